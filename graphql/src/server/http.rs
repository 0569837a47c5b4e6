//! `/graphql` over HTTP, as the GraphQL over HTTP specification defines it.

use std::{panic::AssertUnwindSafe, sync::Arc};

use async_graphql::{Request, parser::types::OperationType};
use axum::{
    body::{Body, HttpBody as _},
    extract::{Request as HttpRequest, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use futures::{FutureExt as _, StreamExt as _};

use super::{
    app::{App, Caller},
    entry,
    metrics::RequestKind,
    negotiate::{Format, accepts_stream, choose_format},
    operation::{self, Operation},
    params,
    refusal::Refusal,
    refusal_log::RefusedRequest,
    reply, sse,
    traced_request::TracedRequest,
    ws,
};

/// If a body is too large, the server reads and drops up to this multiple of the limit. Otherwise a
/// client that reads only after it has sent the whole body would see a broken connection instead of
/// the response.
const DRAIN_FACTOR: usize = 8;

/// Maximum size of an ordinary body. Larger bodies, and bodies of unknown size, are read and
/// executed on a separate thread, because megabytes of JSON would delay other requests.
const LARGE_BODY_BYTES: u64 = 256 << 10;

pub(super) async fn handle_request(State(app): State<Arc<App>>, request: HttpRequest) -> Response {
    let (parts, body) = request.into_parts();
    if ws::wants_upgrade(&parts) {
        let response = ws::upgrade_request(&app, parts).await;
        app.metrics.count_request(RequestKind::WebSocket, response.status());
        return response;
    }
    let traced = TracedRequest::start(app.hooks.span_sink.as_ref(), &parts);
    if !is_large_body(&body) {
        return traced.answer(answer_and_count(&app, &parts, body)).await;
    }
    let answering = {
        let app = Arc::clone(&app);
        traced.answer(async move { answer_and_count(&app, &parts, body).await })
    };
    let answered = app.task_sender.run_large(answering).await;
    answered.unwrap_or_else(|| Refusal::server_stopping().into_response())
}

fn is_large_body(body: &Body) -> bool {
    body.size_hint().upper().is_none_or(|bytes| bytes > LARGE_BODY_BYTES)
}

async fn answer_and_count(app: &Arc<App>, parts: &Parts, body: Body) -> Response {
    let answered = AssertUnwindSafe(answer_request(app, parts, body)).catch_unwind().await;
    let (kind, response) = answered.unwrap_or_else(|panic| {
        (RequestKind::Invalid, operation::report_panic(panic.as_ref()).into_response())
    });
    app.metrics.count_request(kind, response.status());
    response
}

pub(super) async fn identify_member(
    State(app): State<Arc<App>>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    match entry::identify_caller(&app.options.access, &parts) {
        Ok(mut caller) => {
            parts.headers = std::mem::take(&mut caller.headers);
            parts.extensions.insert(caller.grant.clone());
            let traced = TracedRequest::start(app.hooks.span_sink.as_ref(), &parts);
            if let Some(scope) = traced.scope() {
                // Also stores the scope in the request, because a handler that answers in another
                // task does not inherit the scope.
                parts.extensions.insert(scope);
            }
            let answering = next.run(HttpRequest::from_parts(parts, body));
            let response = traced.answer(answering).await;
            app.metrics.count_request(RequestKind::Member, response.status());
            end_stream_with_access(response, caller)
        }
        Err(refusal) => {
            discard_body(&app, body).await;
            app.metrics.count_refusal(&refusal, &RefusedRequest::from(&parts));
            refusal.into_response()
        }
    }
}

/// Ends the event stream of a caller whose access ends. Other answers are short, and end by
/// themselves.
fn end_stream_with_access(response: Response, caller: Caller) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    if !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
        return response;
    }
    response.map(|body| {
        let ended = async move { caller.wait_until_access_ends().await };
        Body::from_stream(body.into_data_stream().take_until(ended))
    })
}

async fn answer_request(app: &Arc<App>, parts: &Parts, body: Body) -> (RequestKind, Response) {
    let caller = match entry::identify_caller(&app.options.access, parts) {
        Ok(caller) => Arc::new(caller),
        Err(refusal) => {
            discard_body(app, body).await;
            app.metrics.log_refusal(&refusal, &RefusedRequest::from(parts));
            return (RequestKind::Forbidden, caller_rejection_response(refusal, &parts.headers));
        }
    };
    let is_large = is_large_body(&body);
    let read = async {
        let format = requested_format(&parts.headers)?;
        Ok((format, read_request(app, parts, body).await?))
    };
    let (format, request) = match read.await {
        Ok(read) => read,
        Err(refusal) => return (RequestKind::Invalid, rejection_response(refusal)),
    };
    match operation::parse_operation(request) {
        Err(response) if format == Format::EventStream => {
            (RequestKind::Invalid, sse::stream_error(*response))
        }
        Err(response) => (RequestKind::Invalid, reply::to_http_response(*response, format)),
        Ok(mut operation) => {
            operation.is_large = is_large;
            let kind = operation::request_kind(operation.kind());
            let response = run_operation(app, parts, operation, format, &caller).await;
            (kind, response.unwrap_or_else(rejection_response))
        }
    }
}

async fn run_operation(
    app: &Arc<App>,
    parts: &Parts,
    operation: Operation,
    format: Format,
    caller: &Arc<Caller>,
) -> Result<Response, Refusal> {
    let kind = operation.kind();
    if parts.method == Method::GET && kind == OperationType::Mutation {
        let message = "mutations need POST: a GET request must not change anything";
        return Err(Refusal::invalid_request(StatusCode::METHOD_NOT_ALLOWED, message));
    }
    let subscribes = kind == OperationType::Subscription;
    if subscribes && !accepts_stream(&accept_header(&parts.headers)) {
        let message = "subscriptions need a WebSocket, or a request that accepts \
                       `text/event-stream`";
        return Err(Refusal::invalid_request(StatusCode::NOT_ACCEPTABLE, message));
    }
    if subscribes || format == Format::EventStream {
        return Ok(sse::stream_operation(app, operation, caller).await);
    }
    Ok(reply::to_http_response(operation.execute(app, caller).await?, format))
}

/// Returns the response to a rejected request. A response with status 405 names the allowed
/// methods.
fn rejection_response(refusal: Refusal) -> Response {
    let mut response = refusal.into_response();
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, POST"));
    }
    response
}

fn caller_rejection_response(refusal: Refusal, headers: &HeaderMap) -> Response {
    let mut response = refusal.into_response();
    if matches!(requested_format(headers), Ok(Format::GraphqlResponse)) {
        let kind = HeaderValue::from_static(reply::GRAPHQL_RESPONSE_MEDIA_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    response
}

/// Reads and drops a body, up to the limits of size and time, so that a client that sends the whole
/// body first still gets the response.
async fn discard_body(app: &App, body: Body) {
    let mut left = app.options.max_body_bytes;
    let dropping = async {
        let mut chunks = body.into_data_stream();
        while let Some(Ok(chunk)) = chunks.next().await {
            left = left.saturating_sub(chunk.len());
            if left == 0 {
                break;
            }
        }
    };
    // Ignores the timeout. A client that is too slow sees a broken connection.
    let _ = tokio::time::timeout(app.options.body_timeout, dropping).await;
}

fn accept_header(headers: &HeaderMap) -> String {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.collect::<Vec<_>>().join(",")
}

fn requested_format(headers: &HeaderMap) -> Result<Format, Refusal> {
    choose_format(&accept_header(headers)).ok_or_else(|| {
        Refusal::invalid_request(
            StatusCode::NOT_ACCEPTABLE,
            "answers are `application/graphql-response+json`, `application/json` or \
             `text/event-stream`; accept one of them",
        )
    })
}

async fn read_request(app: &App, parts: &Parts, body: Body) -> Result<Request, Refusal> {
    match parts.method {
        Method::GET => params::parse_uri(&parts.uri),
        Method::POST => {
            check_media_type(&parts.headers)?;
            params::parse_json_body(&receive_body(app, &parts.headers, body).await?)
        }
        _ => Err(Refusal::invalid_request(
            StatusCode::METHOD_NOT_ALLOWED,
            "send operations with POST, or queries with GET",
        )),
    }
}

/// Accepts only JSON, because a form of a foreign page can send other media types without a
/// preflight.
fn check_media_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut parts = value.unwrap_or_default().split(';').map(str::trim);
    let json = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"));
    let utf8 = parts.filter_map(|parameter| parameter.split_once('=')).all(|(name, charset)| {
        !name.eq_ignore_ascii_case("charset")
            || charset.trim_matches('"').eq_ignore_ascii_case("utf-8")
    });
    if json && utf8 {
        return Ok(());
    }
    let message = "the body must be JSON in UTF-8; send `content-type: application/json`";
    Err(Refusal::invalid_request(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}

async fn receive_body(app: &App, headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Refusal> {
    let limit = app.options.max_body_bytes;
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let announced: Option<u64> = announced.and_then(|length| length.parse().ok());
    // A client that waits for `100 Continue` has not sent the body yet, so an early error saves the
    // transfer.
    let asks = headers.contains_key(header::EXPECT);
    if asks && announced.is_some_and(|length| length > limit as u64) {
        return Err(body_too_large(limit));
    }
    let receiving = collect_body(body, limit);
    tokio::time::timeout(app.options.body_timeout, receiving).await.unwrap_or_else(|_| {
        Err(Refusal::limit_exceeded(
            StatusCode::REQUEST_TIMEOUT,
            "the body took too long to arrive",
        ))
    })
}

async fn collect_body(body: Body, limit: usize) -> Result<Vec<u8>, Refusal> {
    let mut chunks = body.into_data_stream();
    let (mut bytes, mut length) = (Vec::new(), 0_usize);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Refusal::malformed_request("the body is incomplete"))?;
        length = length.saturating_add(chunk.len());
        if length > limit.saturating_mul(DRAIN_FACTOR) {
            break;
        }
        if length <= limit {
            bytes.extend_from_slice(&chunk);
        }
    }
    if length > limit { Err(body_too_large(limit)) } else { Ok(bytes) }
}

fn body_too_large(limit: usize) -> Refusal {
    let message = format!("the body is larger than {limit} bytes");
    Refusal::limit_exceeded(StatusCode::PAYLOAD_TOO_LARGE, message)
}
