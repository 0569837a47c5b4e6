use std::{
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
};

use super::{AttributeValue, FinishedSpan, SpanContext, SpanId, TraceId};

tokio::task_local! {
    static CURRENT: Scope;
}

/// Receives spans that have ended, and sends them to a collector.
pub trait SpanSink: Debug + Send + Sync {
    /// Returns `true` if the spans of a trace must be exported. `parent` is the decision of the
    /// caller. The answer must be the same in every process with the same configuration.
    fn is_sampled(&self, trace: TraceId, parent: Option<bool>) -> bool;

    /// Accepts a span without waiting. Drops the span if the queue is full.
    fn send_span(&self, span: FinishedSpan);
}

#[derive(Clone, Debug)]
pub struct Scope {
    pub span: SpanContext,
    /// The span that executions started in this scope belong to. This span belongs to another
    /// process or is made from a log, so it is exported even if this process crashes now.
    pub origin: Option<SpanContext>,
    /// The receiver of finished spans. `None` if this process exports no spans and only sends the
    /// context with its requests.
    pub sink: Option<Arc<dyn SpanSink>>,
    pub notes: SpanNotes,
}

/// Attributes that a call adds to the span in which it runs. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct SpanNotes(Arc<Mutex<Vec<(&'static str, AttributeValue)>>>);

impl SpanNotes {
    /// Sets an attribute. A later value replaces an earlier value, for example if the call sends a
    /// second request.
    pub fn add(&self, key: &'static str, value: impl Into<AttributeValue>) {
        let mut notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        notes.retain(|(known, _)| *known != key);
        notes.push((key, value.into()));
    }

    pub fn take(&self) -> Vec<(&'static str, AttributeValue)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Scope {
    /// Returns the scope of a request that another process sent with a trace context.
    pub fn of_caller(caller: SpanContext, sink: Option<Arc<dyn SpanSink>>) -> Self {
        Self { span: caller.clone(), origin: Some(caller), sink, notes: SpanNotes::default() }
    }

    /// Returns the context of a new span below this scope's span. Without a sink there will be no
    /// such span, so the context stays the same.
    pub fn child_context(&self) -> SpanContext {
        match self.sink {
            Some(_) => self.span.with_span(SpanId::random()),
            None => self.span.clone(),
        }
    }

    /// Returns `true` if spans of this scope are exported. Otherwise the caller need not make a
    /// span.
    pub fn is_recording(&self) -> bool {
        self.sink.is_some() && self.span.is_sampled
    }

    pub fn send_span(&self, span: FinishedSpan) {
        if let Some(sink) = self.sink.as_ref().filter(|_| self.span.is_sampled) {
            sink.send_span(span);
        }
    }
}

/// Runs a future in a scope. Tasks that it spawns do not inherit the scope.
pub async fn with_scope<T>(scope: Option<Scope>, work: impl Future<Output = T>) -> T {
    match scope {
        Some(scope) => CURRENT.scope(scope, work).await,
        None => work.await,
    }
}

pub fn current_scope() -> Option<Scope> {
    CURRENT.try_with(Scope::clone).ok()
}
