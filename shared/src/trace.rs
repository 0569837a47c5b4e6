//! Trace contexts and spans, without a telemetry library.
//!
//! An execution may run for days, on several workers, so no process can keep its spans open. Each
//! span of an execution is made when it ends, with an id that every worker derives in the same way.

mod context;
mod execution_spans;
mod open_span;
mod otlp_json;
mod scope;
mod span;

pub use self::{
    context::{SpanContext, SpanId, TraceId},
    execution_spans::{attempt_context, attempt_span, root_context, root_span},
    open_span::OpenSpan,
    otlp_json::to_otlp_json,
    scope::{Scope, SpanNotes, SpanSink, current_scope, with_scope},
    span::{AttributeValue, FinishedSpan, SpanEvent, SpanKind},
};
