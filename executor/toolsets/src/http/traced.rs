//! Passes the trace context on with a request, and makes a span of the request.

use http_client::{Http, HttpError, HttpReply, OutgoingRequest};
use reqwest::{
    Url,
    header::{HeaderMap, HeaderValue},
};
use shared::trace::{OpenSpan, Scope, SpanContext, SpanKind, current_scope};

/// Sends a request within the current trace, if there is one.
pub(super) async fn send_request(
    http: &Http,
    mut request: OutgoingRequest,
    max_bytes: usize,
) -> Result<HttpReply, HttpError> {
    let mut span = OpenSpan::start(request.method.as_str(), SpanKind::Client);
    let scope = span.as_ref().map(OpenSpan::scope).or_else(current_scope);
    if let Some(Scope { span: context, .. }) = &scope {
        add_context(&mut request.headers, context);
    }
    if let Some(span) = &mut span {
        describe_request(span, &request);
    }
    let sent = http.send(request, max_bytes).await;
    if let Some(mut span) = span {
        match &sent {
            Ok(reply) => {
                let status = reply.status.as_u16();
                span.set("http.response.status_code", status);
                let error = (status >= 400).then(|| status.to_string());
                span.finish(error.as_deref());
            }
            Err(_) => span.finish(Some("connection")),
        }
    }
    sent
}

/// Adds the headers of the W3C Trace Context recommendation, unless the configuration of the tool
/// sets them.
fn add_context(headers: &mut HeaderMap, context: &SpanContext) {
    let parent = HeaderValue::from_str(&context.traceparent());
    let state = context.state.as_deref().map(HeaderValue::from_str).transpose();
    if let Ok(parent) = parent
        && !headers.contains_key("traceparent")
    {
        headers.insert("traceparent", parent);
        if let Ok(Some(state)) = state {
            headers.insert("tracestate", state);
        }
    }
}

fn describe_request(span: &mut OpenSpan, request: &OutgoingRequest) {
    let mut url: Url = request.url.clone();
    url.set_query(None);
    span.set("http.request.method", request.method.to_string());
    span.set("server.address", url.host_str().unwrap_or_default().to_owned());
    if let Some(port) = url.port_or_known_default() {
        span.set("server.port", port);
    }
    span.set("url.full", url.to_string());
}
