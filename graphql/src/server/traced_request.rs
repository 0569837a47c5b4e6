//! Answers requests within the trace of their callers, and makes a span for each request.

use std::sync::Arc;

use axum::{
    http::{HeaderMap, request::Parts},
    response::Response,
};
use shared::trace::{OpenSpan, Scope, SpanContext, SpanKind, SpanSink, with_scope};

/// The span and the scope of one request.
pub(super) struct TracedRequest {
    span: Option<OpenSpan>,
    scope: Option<Scope>,
}

impl TracedRequest {
    pub(super) fn start(sink: Option<&Arc<dyn SpanSink>>, parts: &Parts) -> Self {
        let caller = read_context(&parts.headers);
        let (method, path) = (&parts.method, parts.uri.path());
        let span = sink.and_then(|sink| {
            let name = format!("{method} {path}");
            let mut span = OpenSpan::start_root(name, SpanKind::Server, sink, caller.as_ref())?;
            span.set("http.request.method", method.to_string());
            span.set("url.path", path.to_owned());
            span.set("http.route", path.to_owned());
            Some(span)
        });
        let scope = span.as_ref().map(OpenSpan::scope);
        let scope = scope.or_else(|| caller.map(|caller| Scope::of_caller(caller, None)));
        Self { span, scope }
    }

    pub(super) fn scope(&self) -> Option<Scope> {
        self.scope.clone()
    }

    /// Runs the answer in the scope of the request, and ends the span.
    pub(super) async fn answer(self, answer: impl Future<Output = Response>) -> Response {
        let response = with_scope(self.scope, answer).await;
        if let Some(mut span) = self.span {
            let status = response.status();
            span.set("http.response.status_code", status.as_u16());
            let error = status.is_server_error().then(|| status.as_u16().to_string());
            span.finish(error.as_deref());
        }
        response
    }
}

fn read_context(headers: &HeaderMap) -> Option<SpanContext> {
    let read = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    SpanContext::parse(read("traceparent")?, read("tracestate"))
}
