use chrono::TimeDelta;
use serde_json::{Map, Number, Value};

use super::{function::format_time, value::Val};
use crate::{json, limits};

/// Converts a result to JSON. Counts the bytes that it makes, because a result of a few bytes in
/// memory can be huge as JSON: lists share their items.
pub(super) fn to_json(result: &Val<'_>) -> Result<Value, String> {
    let mut output = JsonConverter { bytes_left: limits::OUTPUT_BYTES };
    let value = output.convert(result, limits::JSON_DEPTH)?;
    if json::json_size(&value) > limits::OUTPUT_BYTES {
        return Err(too_large_message());
    }
    Ok(value)
}

struct JsonConverter {
    /// Bytes of JSON that the converter can still make before it fails. The converter counts at
    /// least one byte for each value.
    bytes_left: usize,
}

impl JsonConverter {
    fn convert(&mut self, value: &Val<'_>, levels_left: usize) -> Result<Value, String> {
        self.count_bytes(1)?;
        Ok(match value {
            Val::Null => Value::Null,
            Val::Bool(value) => Value::Bool(*value),
            Val::Integer(value) => Value::Number(to_number(*value)),
            Val::Double(value) => {
                let number = Number::from_f64(*value);
                let reason = || format!("the result contains `{value}`, which JSON cannot express");
                Value::Number(number.ok_or_else(reason)?)
            }
            Val::Text(text) => {
                self.count_bytes(text.len())?;
                Value::from(&**text)
            }
            Val::Type(kind) => Value::from(kind.type_name()),
            Val::Time(time) => Value::from(format_time(*time)),
            Val::Span(span) => Value::from(format_span(*span)),
            Val::List(items) => {
                let levels_left = enter_level(levels_left)?;
                let items = items.iter().map(|item| self.convert(&item, levels_left));
                Value::Array(items.collect::<Result<_, _>>()?)
            }
            Val::Map(entries) => {
                let levels_left = enter_level(levels_left)?;
                let mut fields = Map::new();
                for (key, value) in entries.pairs() {
                    let key = key_text(&key);
                    self.count_bytes(key.len())?;
                    let value = self.convert(&value, levels_left)?;
                    if fields.insert(key.clone(), value).is_some() {
                        return Err(format!("the result has the key `{key}` twice"));
                    }
                }
                Value::Object(fields)
            }
        })
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes_left = self.bytes_left.checked_sub(bytes).ok_or_else(too_large_message)?;
        Ok(())
    }
}

fn enter_level(levels_left: usize) -> Result<usize, String> {
    let too_deep = || format!("the result nests deeper than {} levels", limits::JSON_DEPTH);
    levels_left.checked_sub(1).ok_or_else(too_deep)
}

fn too_large_message() -> String {
    format!("the result has more than {} bytes; return less", limits::OUTPUT_BYTES)
}

fn to_number(integer: i128) -> Number {
    let unsigned = || u64::try_from(integer).unwrap_or(u64::MAX);
    i64::try_from(integer).map_or_else(|_| unsigned().into(), Number::from)
}

/// Writes the key of a map that the expression made. The key is a string, an integer or a boolean.
fn key_text(key: &Val<'_>) -> String {
    match key {
        Val::Text(text) => (**text).to_owned(),
        Val::Integer(number) => number.to_string(),
        Val::Bool(value) => value.to_string(),
        other => other.kind().type_name().to_owned(),
    }
}

/// Writes a duration in seconds, as `duration(…)` reads it.
fn format_span(span: TimeDelta) -> String {
    let nanos = i128::from(span.num_seconds()) * 1_000_000_000 + i128::from(span.subsec_nanos());
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, rest) =
        (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let fraction = if rest == 0 { String::new() } else { format!(".{rest:09}") };
    format!("{sign}{seconds}{}s", fraction.trim_end_matches('0'))
}
