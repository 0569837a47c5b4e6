//! `use set.name with key=value and key=value`.

use super::{
    CallFormat, KnownTool,
    argument::{self, Args, Pairs},
    lenient::{self, Tree},
    shape,
    source::{Attempt, Reading, Source, is_name_byte},
};

/// Words that begin a call in prose.
const VERBS: [&str; 8] = ["use", "using", "call", "calling", "run", "running", "invoke", "execute"];
/// Words before those that turn them around.
const NEGATIONS: [&str; 7] = ["not", "n't", "n’t", "never", "cannot", "without", "avoid"];
/// What arguments are called in prose.
const NOUNS: [&str; 6] = ["arguments", "args", "parameters", "params", "inputs", "input"];

/// Returns whether the word at `start..end` may begin a call.
pub(super) fn is_verb(reading: &Reading<'_>, start: usize, end: usize) -> bool {
    let word = reading.source.slice(start..end);
    VERBS.iter().any(|it| word.eq_ignore_ascii_case(it))
}

/// Reads the call whose verb is `start..end`.
pub(super) fn read(reading: &Reading<'_>, start: usize, end: usize) -> Attempt {
    let source = &reading.source;
    let name_at = optional(source, source.skip_space(end), &["the"]);
    let name_at = source.skip_markup(optional(source, name_at, &["tool", "function"]));
    if name_at == end || is_negated(source, start) {
        return Attempt::Passed(end);
    }
    let plain = source.name_end(name_at);
    // Punctuation of other scripts ends a name, and their letters are a part of it.
    let wide = source.skip(plain, |it| is_name_byte(it) || !it.is_ascii());
    let ends = [Some(plain), (wide > plain).then_some(wide)];
    let named = ends.into_iter().flatten().find_map(|end| {
        let tool = reading.tool(source.slice(name_at..end))?;
        Some((tool, end))
    });
    let Some((tool, name_end)) = named else { return Attempt::Passed(end) };
    let after = source.skip_markup(name_end);
    let after = optional(source, after, &["tool", "function"]);
    if let Some(none) = source.word_at(after, "without ").and_then(|it| noun(source, it)) {
        return call(reading, &tool, Args::new(), start..none);
    }
    let Some(with) = source.word_at(after, "with") else { return Attempt::Passed(name_at) };
    if !source.byte(with).is_some_and(|it| it.is_ascii_whitespace() || it == b':') {
        return Attempt::Passed(name_at);
    }
    let given = source.skip_space(with);
    if let Some(none) = source.word_at(given, "no ").and_then(|it| noun(source, it)) {
        return call(reading, &tool, Args::new(), start..none);
    }
    arguments(reading, &tool, start, given)
}

/// Reads an object or pairs, perhaps with `the following arguments:` before them.
fn arguments(reading: &Reading<'_>, tool: &KnownTool, start: usize, at: usize) -> Attempt {
    let source = &reading.source;
    let at = optional(source, at, &["the"]);
    let at = optional(source, at, &["following", "these"]);
    let at = noun(source, at).unwrap_or(at);
    let at = source.skip_markup(source.skip(at, |it| it == b':'));
    let is_listed = source.byte(at) == Some(b'-') && source.byte(at + 1) == Some(b' ');
    let at = if is_listed { source.skip_blanks(at + 1) } else { at };
    if source.byte(at) == Some(b'{') {
        return match lenient::read(source, at) {
            Ok((Tree::Object(object), end)) if !shape::is_call(reading, &object) => {
                call(reading, tool, object.into_map(), start..end)
            }
            _ => Attempt::Passed(at),
        };
    }
    match argument::pairs(source, at, tool) {
        Pairs::Some(args, end) => call(reading, tool, args, start..end),
        Pairs::None(resume) => Attempt::Passed(resume.max(at)),
        Pairs::Cut => Attempt::cut(source),
    }
}

fn call(
    reading: &Reading<'_>,
    tool: &KnownTool,
    args: Args,
    span: std::ops::Range<usize>,
) -> Attempt {
    let end = span.end;
    let call = reading.call(tool, args, CallFormat::NaturalLanguage, span);
    Attempt::Read { calls: vec![call], end }
}

/// Skips one of these words and the blanks behind it, if one is there.
fn optional(source: &Source<'_>, at: usize, words: &[&str]) -> usize {
    let end = words.iter().find_map(|it| {
        let end = source.word_at(at, it)?;
        source.byte(end).is_some_and(|it| it.is_ascii_whitespace()).then_some(end)
    });
    end.map_or(at, |it| source.skip_space(it))
}

/// Returns where the word for arguments at `at` ends, if one is there.
fn noun(source: &Source<'_>, at: usize) -> Option<usize> {
    let end = NOUNS.iter().find_map(|it| source.word_at(at, it))?;
    let goes_on = source.byte(end).is_some_and(|it| it.is_ascii_alphanumeric() || it == b'=');
    (!goes_on).then_some(end)
}

fn is_negated(source: &Source<'_>, start: usize) -> bool {
    NEGATIONS.iter().any(|it| {
        start.checked_sub(it.len() + 1).is_some_and(|at| {
            source.word_at(at, it).is_some()
                && source.byte(start - 1).is_some_and(|it| it.is_ascii_whitespace())
        })
    })
}
