//! `use set.name with key=value and key=value`.

use std::sync::Arc;

use super::{
    CallFormat, KnownTool,
    argument::{Args, Pairs},
    lenient::{self, Tree},
    marker,
    pairs::{self, Place, Reader},
    shape,
    source::{Attempt, Reading, Source, Why, is_name_byte},
};

/// Words that begin a call in prose.
const VERBS: [&str; 8] = ["use", "using", "call", "calling", "run", "running", "invoke", "execute"];
/// Words behind `no arguments` that name some.
const EXCEPT: [&str; 8] = ["except", "but", "besides", "other", "apart", "aside", "save", "only"];
/// What arguments are called in prose.
const NOUNS: [&str; 6] = ["arguments", "args", "parameters", "params", "inputs", "input"];

/// Returns whether a word may begin a call.
pub(super) fn is_verb(word: &str) -> bool {
    VERBS.iter().any(|it| word.eq_ignore_ascii_case(it))
}

/// Reads the call whose verb is `start..end`.
pub(super) fn read(reading: &Reading<'_>, start: usize, end: usize) -> Attempt {
    let source = &reading.source;
    let (name_at, named) = named(reading, end);
    let Some((tool, name_end)) = named else { return Attempt::Passed(end) };
    let behind = source.word_at(name_end, "()").unwrap_or(name_end);
    let after = source.skip_markup(behind);
    let after = optional(source, after, &["tool", "function"]);
    if let Some(none) = none(source, after) {
        return match none {
            Ok(end) => call(reading, &tool, Args::new(), start..end),
            Err(end) => Attempt::Passed(end),
        };
    }
    let Some(with) = source.word_at(after, "with") else { return Attempt::Passed(name_at) };
    if !source.byte(with).is_some_and(|it| it.is_ascii_whitespace() || it == b':') {
        return Attempt::Passed(name_at);
    }
    arguments(reading, &tool, start, source.skip_space(with))
}

/// Returns where a name may be behind a verb that ends at `end`, and what tool it names up to where.
fn named(reading: &Reading<'_>, end: usize) -> (usize, Option<(Arc<KnownTool>, usize)>) {
    let source = &reading.source;
    let name_at = optional(source, source.skip_space(end), &["the"]);
    let name_at = source.skip_markup(optional(source, name_at, &["tool", "function"]));
    if name_at == end {
        return (name_at, None);
    }
    let plain = source.name_end(name_at);
    // Punctuation of other scripts ends a name, and their letters are a part of it.
    let wide = source.skip(plain, |it| is_name_byte(it) || !it.is_ascii());
    let ends = [Some(plain), (wide > plain).then_some(wide)];
    let named = ends.into_iter().flatten().find_map(|end| {
        let tool = reading.tool(source.slice(name_at..end))?;
        Some((tool, end))
    });
    (name_at, named)
}

/// Returns whether a verb that ends at `end` begins a call, as far as its arguments.
pub(super) fn begins(reading: &Reading<'_>, end: usize) -> bool {
    let source = &reading.source;
    let Some((_, name_end)) = named(reading, end).1 else { return false };
    let behind = source.word_at(name_end, "()").unwrap_or(name_end);
    let after = optional(source, source.skip_markup(behind), &["tool", "function"]);
    source.byte(behind) == Some(b'(')
        || none(source, after).is_some()
        || source.word_at(after, "with").is_some()
}

/// Reads an object or pairs, perhaps with `the following arguments:` before them.
fn arguments(reading: &Reading<'_>, tool: &KnownTool, start: usize, at: usize) -> Attempt {
    let source = &reading.source;
    let at = optional(source, at, &["the"]);
    let at = optional(source, at, &["following", "these"]);
    let at = noun(source, at).unwrap_or(at);
    let at = source.skip_markup(source.skip(at, |it| it == b':'));
    let at = marker::bullet_end(source, at).map_or(at, |it| source.skip_blanks(it));
    if source.byte(at) == Some(b'{') {
        return match lenient::read(source, at) {
            Ok((Tree::Object(object), end)) if !shape::is_call(reading, &object) => {
                if pairs::follow(source, end, tool, false) {
                    return unclear(reading, tool, at);
                }
                call(reading, tool, object.into_map(), start..end)
            }
            _ => Attempt::Passed(at),
        };
    }
    let at = source.skip(at, |it| it == b'(');
    match Reader::new(reading, tool, Place::Sentence, start).read(at) {
        Pairs::Some(args, end) => call(reading, tool, args, start..end),
        Pairs::None(resume) => Attempt::Passed(resume.max(at)),
        Pairs::Unclear(resume) => unclear(reading, tool, resume.max(at)),
        Pairs::Cut => Attempt::cut(reading, tool),
    }
}

/// Tells of arguments that are not clear; the text goes on at `at`.
fn unclear(reading: &Reading<'_>, tool: &KnownTool, at: usize) -> Attempt {
    reading.miss(tool.name.as_str(), Why::Unreadable);
    Attempt::Passed(at)
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

/// Returns where it ends that there are no arguments, if it is said at `at`; where there are some
/// all the same, that is an error.
pub(super) fn none(source: &Source<'_>, at: usize) -> Option<Result<usize, usize>> {
    let said = source.word_at(at, "without ").or_else(|| {
        let no = source.skip_space(source.word_at(at, "with ")?);
        source.word_at(no, "no ")
    });
    let any = optional(source, source.skip_space(said?), &["any"]);
    let end = noun(source, any)?;
    let next = source.skip(source.skip_marks(end), |it| matches!(it, b',' | b' '));
    let is_except = EXCEPT.iter().any(|it| source.word_at(next, it).is_some());
    Some(if is_except { Err(end) } else { Ok(end) })
}
