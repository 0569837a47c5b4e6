use std::sync::Arc;

use otlp::{Machine, OtlpSink, Settings};
use shared::trace::{OpenSpan, Scope, SpanContext, SpanKind, SpanSink, with_scope};
use tokio::runtime::Handle;

use crate::config::{Environment, variable};

pub(crate) struct TraceExport {
    sink: Option<Arc<OtlpSink>>,
    /// The trace context of the program that started this process, from `TRACEPARENT`.
    caller: Option<SpanContext>,
}

impl TraceExport {
    /// Starts the export if the variables `OTEL_…` ask for it. Only warns of a variable with a
    /// wrong value, because such variables are often set for all programs of a machine.
    ///
    /// `node` is the name of this node in the spans.
    pub(crate) fn start(environment: &Environment, node: &str) -> Self {
        let parent = variable("TRACEPARENT");
        let state = variable("TRACESTATE");
        let caller = parent.and_then(|parent| SpanContext::parse(&parent, state.as_deref()));
        let host = environment.host_name();
        let started = Settings::read(variable).and_then(|settings| {
            let start = |settings| {
                OtlpSink::start(settings, Machine { host: &host, node }, Handle::current())
            };
            settings.map(start).transpose()
        });
        let sink = started.unwrap_or_else(|why| {
            tracing::warn!("spans are not exported: {why}");
            None
        });
        Self { sink, caller }
    }

    pub(crate) fn sink(&self) -> Option<Arc<dyn SpanSink>> {
        self.sink.clone().map(|sink| sink as _)
    }

    /// Runs a command, and then sends the last spans. `name` is the name of the command's own span.
    /// A server has none, because its requests have spans.
    pub(crate) async fn run_command<T>(
        self,
        name: Option<&str>,
        work: impl Future<Output = T>,
    ) -> T {
        let span = self.sink().and_then(|sink| {
            let name = format!("faber {}", name.unwrap_or_default());
            OpenSpan::start_root(name, SpanKind::Internal, &sink, self.caller.as_ref())
        });
        let scope = span.as_ref().map(OpenSpan::scope);
        let scope = scope.or_else(|| self.caller.map(|caller| Scope::of_caller(caller, None)));
        let result = with_scope(scope, work).await;
        if let Some(span) = span.filter(|_| name.is_some()) {
            span.finish(None);
        }
        if let Some(sink) = self.sink {
            sink.shut_down().await;
        }
        result
    }
}
