use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Json, Router,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::{any, get},
};
use serde_json::json;
use tower_http::{
    CompressionLevel,
    compression::{
        CompressionLayer, Predicate,
        predicate::{NotForContentType, SizeAbove},
    },
};

use super::{
    app::App,
    entry,
    guard::{GuardState, check_hosts_and_origins},
    http,
    options::UnknownPathHandler,
    peer::Peer,
    refusal::Refusal,
    sign_in::{self, Identified},
};

const READY_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum size of a response that is compressed. A smaller response fits into one packet without
/// compression.
const MIN_COMPRESSED_BYTES: u16 = 1_400;

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn build_router(app: Arc<App>, guard_state: GuardState) -> Router {
    let pages = app.hooks.pages.clone();
    let unknown_path_handler = Arc::clone(&app.hooks.unknown_path_handler);
    let member_routes = app.hooks.member_routes.clone();
    let member_routes = member_routes
        .layer(middleware::from_fn_with_state(Arc::clone(&app), http::identify_member));
    let has_api = app.options.has_api;
    let shared_app = Arc::clone(&app);
    let api = if has_api {
        Router::new().route("/graphql", any(http::handle_request))
    } else {
        Router::new()
    };
    let routes = api
        .route("/health/live", get(report_liveness))
        .route("/health/ready", get(report_readiness))
        .route("/metrics", get(report_metrics))
        .layer(build_compression())
        .with_state(app)
        .fallback(async move |request: Request| {
            not_found_response(&unknown_path_handler, &request, has_api)
        })
        .merge(pages)
        .merge(member_routes);
    sign_in::add_sign_in(routes, &shared_app)
        .layer(middleware::from_fn_with_state(Arc::new(guard_state), check_hosts_and_origins))
}

/// Compresses responses for clients that accept compression. Compresses no event streams, and no
/// files of the page that have a compressed copy.
fn build_compression() -> CompressionLayer<impl Predicate> {
    let is_worth_it = SizeAbove::new(MIN_COMPRESSED_BYTES).and(NotForContentType::SSE);
    // The fastest level needs little CPU time, and already saves most of the bytes.
    CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(is_worth_it)
}

async fn report_liveness() -> impl IntoResponse {
    Json(json!({ "status": "live" }))
}

async fn report_readiness(State(app): State<Arc<App>>) -> impl IntoResponse {
    let result = tokio::time::timeout(READY_TIMEOUT, (app.hooks.ready)()).await;
    let answer = result
        .unwrap_or_else(|_| Err(format!("no answer within {} seconds", READY_TIMEOUT.as_secs())));
    let answer = if app.stopping.is_cancelled() { Err("shutting down".into()) } else { answer };
    match answer {
        Ok(()) => (StatusCode::OK, Json(json!({ "status": "ready" }))),
        Err(reason) => {
            let body = json!({ "status": "not ready", "reason": reason });
            (StatusCode::SERVICE_UNAVAILABLE, Json(body))
        }
    }
}

/// Returns the metrics. They need a token if tokens are configured, because they show what the
/// server does.
async fn report_metrics(
    State(app): State<Arc<App>>,
    Extension(peer): Extension<Peer>,
    identified: Option<Extension<Identified>>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Refusal> {
    entry::authenticate(&app.options.access, &headers, peer, identified.as_deref())?;
    let mut text = (app.hooks.first_metrics)().await;
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&app.metrics.render_metrics());
    text.push_str(&app.connections.format_metrics());
    text.push_str(&app.options.access.format_metrics());
    Ok(([(header::CONTENT_TYPE, METRICS_TYPE)], text))
}

fn not_found_response(
    unknown_path_handler: &UnknownPathHandler,
    request: &Request,
    has_api: bool,
) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let answer = if reads { unknown_path_handler(request.uri(), request.headers()) } else { None };
    answer.unwrap_or_else(|| {
        let text = if has_api {
            "this path does not exist; GraphQL is at `/graphql`"
        } else {
            "this path does not exist; a worker serves `/metrics` and `/health/…` only"
        };
        Refusal::invalid_request(StatusCode::NOT_FOUND, text).into_response()
    })
}
