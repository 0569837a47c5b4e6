//! Spans as a document of OTLP in JSON, which collectors and viewers import.

use serde_json::{Value, json};

use super::{AttributeValue, FinishedSpan, SpanContext, SpanEvent, SpanKind};
use crate::clock::Timestamp;

/// The number of a failed status in OTLP.
const STATUS_ERROR: u8 = 2;

pub fn to_otlp_json(spans: &[FinishedSpan]) -> Value {
    let resource = json!({
        "attributes": to_attributes(&[("service.name", "faber".into())]),
    });
    let scope = json!({ "name": "faber", "version": env!("CARGO_PKG_VERSION") });
    let spans: Vec<Value> = spans.iter().map(to_span).collect();
    json!({
        "resourceSpans": [{
            "resource": resource,
            "scopeSpans": [{ "scope": scope, "spans": spans }],
        }],
    })
}

fn to_span(span: &FinishedSpan) -> Value {
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Server => 2,
        SpanKind::Client => 3,
    };
    let status = span
        .error
        .as_ref()
        .map_or_else(|| json!({}), |message| json!({ "code": STATUS_ERROR, "message": message }));
    json!({
        "traceId": span.context.trace.to_string(),
        "spanId": span.context.span.to_string(),
        "traceState": span.context.state.as_deref().unwrap_or_default(),
        "parentSpanId": span.parent.map(|parent| parent.to_string()).unwrap_or_default(),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": to_nanoseconds(span.started_at),
        "endTimeUnixNano": to_nanoseconds(span.ended_at),
        "attributes": to_attributes(&span.attributes),
        "events": span.events.iter().map(to_event).collect::<Vec<_>>(),
        "links": span.links.iter().map(to_link).collect::<Vec<_>>(),
        "status": status,
    })
}

fn to_event(event: &SpanEvent) -> Value {
    json!({
        "name": event.name,
        "timeUnixNano": to_nanoseconds(event.at),
        "attributes": to_attributes(&event.attributes),
    })
}

fn to_link(link: &SpanContext) -> Value {
    json!({ "traceId": link.trace.to_string(), "spanId": link.span.to_string() })
}

fn to_attributes(attributes: &[(&'static str, AttributeValue)]) -> Value {
    let pairs = attributes.iter().map(|(key, value)| {
        let value = match value {
            AttributeValue::Text(text) => json!({ "stringValue": text }),
            // The JSON format of protobuf has 64-bit numbers as texts.
            AttributeValue::Number(number) => json!({ "intValue": number.to_string() }),
            AttributeValue::Decimal(number) => json!({ "doubleValue": number }),
            AttributeValue::Flag(flag) => json!({ "boolValue": flag }),
        };
        json!({ "key": key, "value": value })
    });
    pairs.collect()
}

fn to_nanoseconds(at: Timestamp) -> String {
    format!("{}000", at.timestamp_micros())
}
