//! Reads calls of the form `use set.name with …`, where `…` is a JSON object or pairs. Words may
//! come before such a call, unless they negate it.

use std::{ops::Range, sync::Arc};

use super::{
    CallFormat, KnownTool,
    argument::Args,
    lenient::{self, Tree},
    pairs::{self, Pairs},
    shape,
    source::{Attempt, CallReader, MissReason, Source, is_name_byte},
};

const USE_VERB: &str = "use";
/// Verbs of calls that are only reported as missed.
const OTHER_VERBS: [&str; 6] = ["using", "call", "calling", "run", "invoke", "execute"];
const NEGATIONS: [&str; 13] = [
    "not", "never", "cannot", "without", "avoid", "than", "called", "calls", "ran", "used",
    "invoked", "executed", "tried",
];
/// Words that may occur between a negation and a call, as in `not to use the function set.name()`.
const WORDS_AFTER_NEGATION: [&str; 6] = ["to", "ever", "the", "a", "function", "tool"];
/// Number of words before a call that are searched for a negation, and the length of the longest
/// negation.
const MAX_WORDS_BEFORE: usize = 6;
const MAX_NEGATION_BYTES: usize = 10;

pub(super) fn is_verb(word: &str) -> bool {
    word.eq_ignore_ascii_case(USE_VERB) || is_one_of(&OTHER_VERBS, word)
}

/// Reads the call whose verb is at this range. If the sentence has another form, but names a tool
/// and has arguments, reports the call as missed.
pub(super) fn read(reading: &CallReader<'_>, verb: Range<usize>) -> Attempt {
    let source = &reading.source;
    let mut is_strict = source.slice(verb.clone()).eq_ignore_ascii_case(USE_VERB);
    let mut position = source.skip_space(verb.end);
    for word in ["the", "tool", "function"] {
        let next = skip_word(source, position, word);
        is_strict &= next == position;
        position = next;
    }
    let name_at = source.skip_markup(position);
    let Some((tool, name_end)) = find_tool(reading, name_at) else {
        return Attempt::Passed(verb.end);
    };
    let behind = source.find_word_end(name_end, "()").unwrap_or(name_end);
    let mut after = source.skip_markup(behind);
    is_strict &= behind == name_end;
    for word in ["tool", "function"] {
        let next = skip_word(source, after, word);
        is_strict &= next == after;
        after = next;
    }
    let with = source.find_word_end(after, "with");
    let Some(with) = with.filter(|with| source.skip_space(*with) > *with) else {
        return Attempt::Passed(name_at);
    };
    let position = source.skip_markup(with);
    let attempt = read_arguments(reading, &tool, verb.start, position);
    match attempt {
        Attempt::Read { .. } if !is_strict => missed_call(reading, &tool, position),
        attempt => attempt,
    }
}

fn find_tool(reading: &CallReader<'_>, index: usize) -> Option<(Arc<KnownTool>, usize)> {
    let source = &reading.source;
    let plain = source.find_name_end(index);
    // Names may contain letters of any script. Punctuation of other scripts ends a name.
    let any_script_end = source.skip(plain, |byte| is_name_byte(byte) || !byte.is_ascii());
    let found = |end: usize| reading.resolve_tool(source.slice(index..end)).map(|tool| (tool, end));
    found(plain).or_else(|| (any_script_end > plain).then(|| found(any_script_end)).flatten())
}

fn read_arguments(
    reading: &CallReader<'_>,
    tool: &KnownTool,
    start: usize,
    index: usize,
) -> Attempt {
    let source = &reading.source;
    if source.byte(index) == Some(b'{') {
        return match lenient::read(source, index) {
            Ok((Tree::Object(object), _)) if shape::is_call(reading, &object) => {
                Attempt::Passed(index)
            }
            Ok((Tree::Object(object), end)) if !pairs::has_next_pair(source, end, tool) => {
                read_call(reading, tool, object.into_map(), start..end)
            }
            Err(stuck) if stuck.is_cut => Attempt::at_end_of_text(reading, tool),
            _ => missed_call(reading, tool, index),
        };
    }
    match pairs::read(source, index, tool) {
        Pairs::Read(args, end) => read_call(reading, tool, args, start..end),
        Pairs::Absent => missed_call(reading, tool, index),
        Pairs::Ambiguous(end) => missed_call(reading, tool, end.max(index)),
        Pairs::Cut => Attempt::at_end_of_text(reading, tool),
    }
}

fn missed_call(reading: &CallReader<'_>, tool: &KnownTool, next: usize) -> Attempt {
    reading.add_missed(tool.name.as_str(), MissReason::Unreadable);
    Attempt::Passed(next)
}

fn read_call(
    reading: &CallReader<'_>,
    tool: &KnownTool,
    args: Args,
    span: Range<usize>,
) -> Attempt {
    let end = span.end;
    let call = reading.make_call(tool, args, CallFormat::NaturalLanguage, span);
    Attempt::Read { calls: vec![call], end }
}

fn skip_word(source: &Source<'_>, index: usize, word: &str) -> usize {
    let end = source.find_word_end(index, word).map(|end| (end, source.skip_space(end)));
    end.filter(|(end, next)| next > end).map_or(index, |(_, next)| next)
}

fn is_one_of(words: &[&str], word: &str) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Returns whether the words before a position negate the call there, as in `never use set.name
/// with …`, or report it, as in `I called set.name(…)`.
pub(super) fn is_negated(source: &Source<'_>, index: usize) -> bool {
    let is_gap = |byte: u8| matches!(byte, b' ' | b'\t' | b'`' | b'*');
    let mut position = index;
    for _ in 0..MAX_WORDS_BEFORE {
        let byte_before = |index: usize| index.checked_sub(1).and_then(|index| source.byte(index));
        let mut end = position;
        while byte_before(end).is_some_and(is_gap) && position - end < MAX_NEGATION_BYTES {
            end -= 1;
        }
        let mut start = end;
        while byte_before(start).is_some_and(|byte| !is_gap(byte))
            && end - start < MAX_NEGATION_BYTES
        {
            start -= 1;
        }
        let word = source.slice(start..end).replace('’', "'").to_ascii_lowercase();
        let word = word.rsplit('\n').next().unwrap_or_default();
        if NEGATIONS.contains(&word) || word.ends_with("n't") {
            return true;
        }
        if !is_verb(word) && !WORDS_AFTER_NEGATION.contains(&word) {
            return false;
        }
        position = start;
    }
    false
}
