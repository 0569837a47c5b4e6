//! Calls in special tokens of Mistral, Kimi and `DeepSeek`: a name followed by an object.

use super::{
    CallFormat,
    lenient::{self, Tree},
    source::{Attempt, Broken, Reading, Source, Why},
};

const BEGINS: [&str; 3] = ["[TOOL_CALLS]", "<|tool_call_begin|>", "<｜tool▁call▁begin｜>"];
const BETWEEN: [&str; 3] = ["[ARGS]", "<|tool_call_argument_begin|>", "<｜tool▁sep｜>"];
/// A token that may come before them, followed by an id.
const ID: &str = "[CALL_ID]";
const ENDS: [&str; 2] = ["<|tool_call_end|>", "<｜tool▁call▁end｜>"];

pub(super) fn read(reading: &Reading<'_>, at: usize) -> Option<Attempt> {
    let source = &reading.source;
    // The second bytes of these tokens.
    if !matches!(source.byte(at + 1), Some(b'T' | b't' | b'|' | 0xef)) {
        return None;
    }
    let begun = BEGINS.iter().find_map(|word| source.word_at(at, word))?;
    let kind = source.word_at(begun, "function").and_then(|end| token_end(source, end, &BETWEEN));
    let name_at = source.skip_space(kind.unwrap_or(begun));
    let name_end = source.name_end(name_at);
    if name_end == name_at {
        return Some(Attempt::Passed(begun));
    }
    let name = source.slice(name_at..name_end);
    let tool = reading.tool(name);
    let object = source.skip_markup(arguments_start(source, name_end));
    let given = match source.byte(object) {
        Some(b'{') => lenient::read(source, object),
        _ => return Some(broken_call(reading, name, object)),
    };
    Some(match given {
        Ok((Tree::Object(object), end)) => {
            let close = source.skip_markup(end);
            let end = token_end(source, close, &ENDS).unwrap_or(end);
            if tool.is_none() {
                reading.miss(name, Why::Unknown);
            }
            let call = tool
                .map(|tool| reading.call(&tool, object.into_map(), CallFormat::Simple, at..end));
            Attempt::Read { calls: call.into_iter().collect(), end }
        }
        Ok((_, end)) => broken_call(reading, name, end),
        Err(stuck) => broken_call(reading, name, stuck.at),
    })
}

fn arguments_start(source: &Source<'_>, at: usize) -> usize {
    // Kimi numbers its calls: `functions.name:0`.
    let at = match source.byte(at) {
        Some(b':') => source.skip(at + 1, |byte| byte.is_ascii_digit()),
        _ => at,
    };
    let at = match source.word_at(at, ID) {
        Some(id) => source.name_end(id),
        None => at,
    };
    let at = source.skip_space(at);
    token_end(source, at, &BETWEEN).unwrap_or(at)
}

fn token_end(source: &Source<'_>, at: usize, tokens: &[&str]) -> Option<usize> {
    tokens.iter().find_map(|word| source.word_at(at, word))
}

fn broken_call(reading: &Reading<'_>, name: &str, at: usize) -> Attempt {
    let is_known = reading.tool(name).is_some();
    let is_cut = at >= reading.source.len();
    reading.miss(name, Why::from_flags(is_known, is_cut));
    Attempt::Broken(Broken { calls: Vec::new(), at, is_cut: is_cut && is_known, is_known })
}
