use std::sync::Arc;

use async_graphql::parser::types::OperationType;
use axum::{
    http::{HeaderMap, request::Parts},
    response::Response,
};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use shared::trace::{OpenSpan, Scope, SpanContext, SpanKind, SpanSink, current_scope, with_scope};

use super::operation::OperationResult;

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

/// The span and the scope of an operation whose answers are a stream. The request that opened the
/// stream ends earlier, so the operation can have a span of its own.
pub(super) struct TracedOperation {
    span: Option<OpenSpan>,
    scope: Option<Scope>,
}

impl TracedOperation {
    pub(super) fn start_in_websocket(
        sink: Option<&Arc<dyn SpanSink>>,
        kind: OperationType,
        caller: Option<SpanContext>,
    ) -> Self {
        let span = sink.and_then(|sink| {
            OpenSpan::start_root(kind.to_string(), SpanKind::Server, sink, caller.as_ref())
        });
        let span = span.map(|mut span| {
            span.set("graphql.operation.type", kind.to_string());
            span.set("network.protocol.name", "websocket");
            span
        });
        let scope = span.as_ref().map(OpenSpan::scope);
        let scope = scope.or_else(|| caller.map(|caller| Scope::of_caller(caller, None)));
        Self { span, scope }
    }

    /// Continues the scope of the running request. A subscription gets a span below its span.
    pub(super) fn start_in_request(kind: OperationType) -> Self {
        let is_subscription = kind == OperationType::Subscription;
        let span = is_subscription.then(|| OpenSpan::start(kind.to_string(), SpanKind::Server));
        let span = span.flatten().map(|mut span| {
            span.set("graphql.operation.type", kind.to_string());
            span
        });
        let scope = span.as_ref().map(OpenSpan::scope).or_else(current_scope);
        Self { span, scope }
    }

    /// Makes the answers in the scope of the operation. The span ends after the last answer, or
    /// when the stream is dropped because the client has left or has completed the operation.
    pub(super) fn trace_answers(
        self,
        answers: BoxStream<'static, OperationResult>,
    ) -> BoxStream<'static, OperationResult> {
        let Self { span, scope } = self;
        if scope.is_none() {
            return answers;
        }
        let span = DroppedSpan { span, error: None };
        let traced = stream::unfold((answers, span), move |(mut answers, mut span)| {
            let scope = scope.clone();
            async move {
                let answer = with_scope(scope, answers.next()).await?;
                if let Err(refusal) = &answer {
                    span.error = Some(refusal.code);
                }
                Some((answer, (answers, span)))
            }
        });
        traced.boxed()
    }
}

struct DroppedSpan {
    span: Option<OpenSpan>,
    error: Option<&'static str>,
}

impl Drop for DroppedSpan {
    fn drop(&mut self) {
        if let Some(span) = self.span.take() {
            span.finish(self.error);
        }
    }
}

pub(super) fn read_context(headers: &HeaderMap) -> Option<SpanContext> {
    let read = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    SpanContext::parse(read("traceparent")?, read("tracestate"))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_graphql::{Response as Answer, Value};
    use shared::trace::{AttributeValue, FinishedSpan, TraceId};

    use super::{super::refusal::Refusal, *};

    const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[derive(Debug, Default)]
    struct Collected(Mutex<Vec<FinishedSpan>>);

    impl SpanSink for Collected {
        fn is_sampled(&self, _: TraceId, parent: Option<bool>) -> bool {
            parent.unwrap_or(true)
        }

        fn send_span(&self, span: FinishedSpan) {
            self.0.lock().unwrap().push(span);
        }
    }

    impl Collected {
        fn take(&self) -> Vec<FinishedSpan> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    fn collector() -> (Arc<Collected>, Arc<dyn SpanSink>) {
        let collected = Arc::new(Collected::default());
        (Arc::clone(&collected), collected)
    }

    fn caller() -> Option<SpanContext> {
        SpanContext::parse(CALLER, None)
    }

    fn answers(count: usize) -> BoxStream<'static, OperationResult> {
        let answers = stream::iter(0..count).map(|_| {
            let context = current_scope().map(|scope| Value::from(scope.span.traceparent()));
            Ok(Answer::new(context.unwrap_or_default()))
        });
        answers.boxed()
    }

    #[tokio::test]
    async fn an_operation_of_a_websocket_is_a_server_span_of_its_caller() {
        let (collected, sink) = collector();
        for kind in [OperationType::Query, OperationType::Mutation, OperationType::Subscription] {
            let traced = TracedOperation::start_in_websocket(Some(&sink), kind, caller());
            let made: Vec<_> = traced.trace_answers(answers(2)).collect().await;
            let spans = collected.take();
            let [span] = &spans[..] else { panic!("{spans:?}") };
            let caller = caller().unwrap();
            assert_eq!((&*span.name, span.kind), (&*kind.to_string(), SpanKind::Server));
            assert_eq!((span.context.trace, span.parent), (caller.trace, Some(caller.span)));
            assert!(span.has_remote_parent && span.error.is_none());
            let protocol = ("network.protocol.name", AttributeValue::from("websocket"));
            assert!(span.attributes.contains(&protocol), "{span:?}");
            assert_eq!(made.len(), 2);
            for answer in made {
                let context = Value::from(span.context.traceparent());
                assert_eq!(answer.unwrap().data, context);
            }
        }
    }

    #[tokio::test]
    async fn a_subscription_is_one_span_until_its_client_leaves() {
        let (collected, sink) = collector();
        let kind = OperationType::Subscription;
        let traced = TracedOperation::start_in_websocket(Some(&sink), kind, None);
        let mut answers = traced.trace_answers(answers(2).chain(stream::pending()).boxed());
        assert!(answers.next().await.is_some() && answers.next().await.is_some());
        assert_eq!(collected.take(), []);
        drop(answers);
        let spans = collected.take();
        assert_eq!(spans.len(), 1, "{spans:?}");
        assert_eq!((spans[0].parent, spans[0].has_remote_parent), (None, false));
    }

    #[tokio::test]
    async fn a_panic_marks_the_span_as_failed() {
        let (collected, sink) = collector();
        let kind = OperationType::Mutation;
        let traced = TracedOperation::start_in_websocket(Some(&sink), kind, None);
        let refused = stream::iter([Err(Refusal::internal("r1"))]).boxed();
        assert_eq!(traced.trace_answers(refused).count().await, 1);
        assert_eq!(collected.take()[0].error.as_deref(), Some("INTERNAL"));
    }

    #[tokio::test]
    async fn without_an_export_the_context_of_the_caller_is_passed_on() {
        let traced = TracedOperation::start_in_websocket(None, OperationType::Mutation, caller());
        let made: Vec<_> = traced.trace_answers(answers(1)).collect().await;
        assert_eq!(made[0].as_ref().unwrap().data, Value::from(CALLER));
        let traced = TracedOperation::start_in_websocket(None, OperationType::Mutation, None);
        let made: Vec<_> = traced.trace_answers(answers(1)).collect().await;
        assert_eq!(made[0].as_ref().unwrap().data, Value::Null);
    }

    #[tokio::test]
    async fn an_operation_over_server_sent_events_continues_its_request() {
        let (collected, sink) = collector();
        let request = Scope::of_caller(caller().unwrap(), Some(sink));
        let context = request.span.clone();
        let run = async |kind| {
            let scope = Some(request.clone());
            let traced = with_scope(scope, async { TracedOperation::start_in_request(kind) }).await;
            traced.trace_answers(answers(1)).collect::<Vec<_>>().await
        };
        let made = run(OperationType::Mutation).await;
        assert_eq!(made[0].as_ref().unwrap().data, Value::from(CALLER));
        assert_eq!(collected.take(), []);
        run(OperationType::Subscription).await;
        let spans = collected.take();
        assert_eq!((spans.len(), spans[0].parent), (1, Some(context.span)));
        assert_eq!((&*spans[0].name, spans[0].has_remote_parent), ("subscription", false));
    }
}
