use serde_json::{Map, Value};

use super::{KnownTool, lenient, source::Source, word};

pub(super) type Args = Map<String, Value>;

pub(super) enum ArgumentValue {
    Value(Value, usize),
    /// There is no value. Reading continues at this position.
    None(usize),
    Cut,
}

pub(super) fn read_quoted(source: &Source<'_>, index: usize) -> Option<ArgumentValue> {
    if let Some((quote, is_raw)) = word::find_quote(source, index) {
        return Some(match word::read_string(source, quote, is_raw) {
            Some((text, end)) if word::is_expression(source, index, &text) => {
                ArgumentValue::None(end)
            }
            Some((text, end)) => ArgumentValue::Value(Value::String(text), end),
            None => ArgumentValue::Cut,
        });
    }
    if !matches!(source.byte(index), Some(b'{' | b'[')) {
        return None;
    }
    Some(match lenient::read(source, index) {
        Ok((tree, end)) => ArgumentValue::Value(tree.into_value(), end),
        Err(stuck) if stuck.is_cut => ArgumentValue::Cut,
        Err(stuck) => ArgumentValue::None(stuck.resume.max(index + 1)),
    })
}

pub(super) fn parse_word(tool: &KnownTool, key: &str, word: &str) -> Value {
    if tool.is_text(key) { Value::from(word) } else { word::parse_word(word) }
}

pub(super) fn has_parameter_at(source: &Source<'_>, index: usize, tool: &KnownTool) -> bool {
    let Some(stop) = source.find_key_end(index) else { return false };
    let sign = source.skip_blanks(stop);
    let is_sign =
        matches!(source.byte(sign), Some(b'=' | b':')) && source.byte(sign + 1) != Some(b'=');
    is_sign && tool.has_parameter(source.slice(index..stop))
}
