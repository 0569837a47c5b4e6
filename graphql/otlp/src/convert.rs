use std::time::{Duration, SystemTime};

use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId, Value,
    trace::{Event, Link, SpanContext, SpanKind, Status, TraceState},
};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use shared::{
    clock::Timestamp,
    trace::{self, AttributeValue, FinishedSpan},
};

pub(super) fn to_span_data(span: FinishedSpan, scope: InstrumentationScope) -> SpanData {
    let mut events = SpanEvents::default();
    events.events = span.events.into_iter().map(to_event).collect();
    let mut links = SpanLinks::default();
    let linked = span.links.iter().map(|link| Link::new(to_context(link, true), Vec::new(), 0));
    links.links = linked.collect();
    SpanData {
        span_context: to_context(&span.context, false),
        parent_span_id: span.parent.map_or(SpanId::INVALID, to_span_id),
        parent_span_is_remote: span.has_remote_parent,
        span_kind: match span.kind {
            trace::SpanKind::Internal => SpanKind::Internal,
            trace::SpanKind::Client => SpanKind::Client,
            trace::SpanKind::Server => SpanKind::Server,
        },
        name: span.name,
        start_time: to_system_time(span.started_at),
        end_time: to_system_time(span.ended_at),
        attributes: to_attributes(span.attributes),
        dropped_attributes_count: 0,
        events,
        links,
        status: span.error.map_or(Status::Unset, Status::error),
        instrumentation_scope: scope,
    }
}

fn to_event(event: trace::SpanEvent) -> Event {
    Event::new(event.name, to_system_time(event.at), to_attributes(event.attributes), 0)
}

fn to_context(context: &trace::SpanContext, is_remote: bool) -> SpanContext {
    let flags = if context.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let state = context.state.as_deref().and_then(|state| state.parse::<TraceState>().ok());
    let trace = TraceId::from_bytes(context.trace.to_bytes());
    SpanContext::new(trace, to_span_id(context.span), flags, is_remote, state.unwrap_or_default())
}

fn to_span_id(id: trace::SpanId) -> SpanId {
    SpanId::from_bytes(id.to_bytes())
}

fn to_attributes(attributes: Vec<(&'static str, AttributeValue)>) -> Vec<KeyValue> {
    attributes.into_iter().map(|(key, value)| KeyValue::new(key, to_value(value))).collect()
}

fn to_value(value: AttributeValue) -> Value {
    match value {
        AttributeValue::Text(text) => Value::String(text.into()),
        AttributeValue::Number(number) => Value::I64(number),
        AttributeValue::Decimal(number) => Value::F64(number),
        AttributeValue::Flag(flag) => Value::Bool(flag),
    }
}

fn to_system_time(at: Timestamp) -> SystemTime {
    let micros = u64::try_from(at.timestamp_micros()).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}
