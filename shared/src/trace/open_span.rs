//! Spans of operations of this process, such as a request to a tool.

use std::sync::Arc;

use super::{
    AttributeValue, FinishedSpan, Scope, SpanContext, SpanId, SpanKind, SpanNotes, SpanSink,
    TraceId, current_scope,
};
use crate::clock::{Clock, Timestamp, WallClock};

/// A span that has started. It is lost if the process ends before the span, so it must not be the
/// parent of a span that is made from a log.
#[derive(Debug)]
pub struct OpenSpan {
    parent: Option<Scope>,
    scope: Scope,
    name: String,
    kind: SpanKind,
    started_at: Timestamp,
    attributes: Vec<(&'static str, AttributeValue)>,
    links: Vec<SpanContext>,
}

impl OpenSpan {
    /// Starts a span below the current span. Returns `None` if no collector would receive the span.
    pub fn start(name: impl Into<String>, kind: SpanKind) -> Option<Self> {
        let parent = current_scope().filter(Scope::is_recording)?;
        let (span, notes) = (parent.child_context(), SpanNotes::default());
        let scope = Scope { span, notes, ..parent.clone() };
        Some(Self::new(Some(parent), scope, name.into(), kind))
    }

    /// Starts a span that has no parent in this process. It belongs to a request that another
    /// process sent, or to this process itself. Returns `None` if the trace is not exported.
    pub fn start_root(
        name: impl Into<String>,
        kind: SpanKind,
        sink: &Arc<dyn SpanSink>,
        caller: Option<&SpanContext>,
    ) -> Option<Self> {
        let trace = caller.map_or_else(TraceId::random, |caller| caller.trace);
        let is_sampled = sink.is_sampled(trace, caller.map(|caller| caller.is_sampled));
        let state = caller.and_then(|caller| caller.state.clone());
        let span = SpanContext { trace, span: SpanId::random(), is_sampled, state };
        let sink = Some(Arc::clone(sink));
        let scope = Scope { span, origin: caller.cloned(), sink, notes: SpanNotes::default() };
        let parent = caller.map(|caller| Scope::of_caller(caller.clone(), None));
        is_sampled.then(|| Self::new(parent, scope, name.into(), kind))
    }

    fn new(parent: Option<Scope>, scope: Scope, name: String, kind: SpanKind) -> Self {
        let (started_at, attributes, links) = (WallClock.now(), Vec::new(), Vec::new());
        Self { parent, scope, name, kind, started_at, attributes, links }
    }

    pub fn scope(&self) -> Scope {
        self.scope.clone()
    }

    pub fn set(&mut self, key: &'static str, value: impl Into<AttributeValue>) {
        self.attributes.push((key, value.into()));
    }

    pub fn add_link(&mut self, other: SpanContext) {
        self.links.push(other);
    }

    /// Ends the span and sends it. `error` is the type of the failure, if it failed.
    pub fn finish(mut self, error: Option<&str>) {
        if let Some(error) = error {
            self.set("error.type", error.to_owned());
        }
        self.attributes.extend(self.scope.notes.take());
        let Self { parent, scope, name, kind, started_at, attributes, links } = self;
        let span = FinishedSpan {
            context: scope.span.clone(),
            parent: parent.as_ref().map(|parent| parent.span.span),
            has_remote_parent: parent.as_ref().is_some_and(|parent| parent.sink.is_none()),
            name: name.into(),
            kind,
            started_at,
            ended_at: WallClock.now().max(started_at),
            attributes,
            events: Vec::new(),
            links,
            error: error.map(str::to_owned),
        };
        scope.send_span(span);
    }
}
