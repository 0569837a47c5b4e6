//! `TOOL: set.name ARGS: {…}`, `Action: set.name` with `Action Input: {…}`, and the echo of a result, which looks alike.

use std::sync::Arc;

use super::{
    CallFormat, KnownTool,
    argument::{self, Args, Pairs},
    lenient::{self, Tree},
    prompt,
    source::{Attempt, Broken, Reading, Source},
};

/// How the marker of the arguments may be spelt.
const ARGS: [&str; 7] =
    ["args:", "arguments:", "parameters:", "params:", "input:", "tool input:", "action input:"];
/// What follows a tool's name where a result is told and nothing is called.
const RESULTS: [&str; 5] = ["result:", "error:", "output:", "observation:", "status:"];

/// Reads the call whose `TOOL:` or `Action:` is at `start`, if it is there.
pub(super) fn read(reading: &Reading<'_>, start: usize) -> Option<Attempt> {
    let source = &reading.source;
    let named = source.word_at(start, "tool:");
    let marked = named.or_else(|| source.word_at(start, "action:"))?;
    let name_at = skip_quotes(source, source.skip_markup(marked));
    let mut name_end = source.name_end(name_at);
    let name = source.slice(name_at..name_end);
    let mut tool = reading.tool(name).or_else(|| reading.tool(name.trim_end_matches('.')));
    if tool.is_none()
        && named.is_some()
        && let Some((found, end)) = whole_name(reading, name_at)
    {
        (tool, name_end) = (Some(found), end);
    }
    let after = source.skip_markup(source.skip(skip_quotes(source, name_end), |it| it == b','));
    if name_end == name_at {
        return Some(Attempt::Passed(marked));
    }
    let given = ARGS.iter().find_map(|it| source.word_at(after, it));
    let call = Call { reading, tool, start };
    Some(match given {
        Some(given) => call.with(source.skip_markup(given), given),
        None if source.byte(after) == Some(b'{') => call.with(after, after),
        None if named.is_some() => call.alone(name_at, name_end, after),
        // Actions have names that prose has, too.
        None => Attempt::Passed(name_at),
    })
}

/// Returns the tool that everything from `at` to the marker of the arguments names, or to the end of
/// the line, and where its name ends: names may have spaces, and letters of any script.
fn whole_name(reading: &Reading<'_>, at: usize) -> Option<(Arc<KnownTool>, usize)> {
    let source = &reading.source;
    // Every marker ends with a colon, as the next `TOOL:` does: nothing is looked at twice.
    let stop = source.skip(at, |it| it != b'\n' && it != b':');
    let end = if source.byte(stop) == Some(b':') {
        let starts = ARGS.iter().filter_map(|it| {
            let start = (stop + 1).checked_sub(it.len()).filter(|start| *start > at)?;
            source.word_at(start, it).map(|_| start)
        });
        starts.min()?
    } else {
        stop
    };
    let is_around =
        |it: char| it.is_whitespace() || matches!(it, ',' | '.' | '"' | '\'' | '`' | '*');
    let name = source.slice(at..end).trim_end_matches(is_around);
    Some((reading.tool(name)?, at + name.len()))
}

fn skip_quotes(source: &Source<'_>, at: usize) -> usize {
    source.skip(at, |it| matches!(it, b'"' | b'\'' | b'`'))
}

struct Call<'r, 'a> {
    reading: &'r Reading<'a>,
    tool: Option<Arc<KnownTool>>,
    start: usize,
}

impl Call<'_, '_> {
    /// Reads the arguments at `at`, whose marker ends at `marked`.
    fn with(self, at: usize, marked: usize) -> Attempt {
        let source = &self.reading.source;
        if source.byte(at) == Some(b'{') {
            return match lenient::read(source, at) {
                Ok((Tree::Object(object), end)) => self.read(object.into_map(), end),
                Ok((_, end)) => self.broken(end, false),
                Err(stuck) => self.broken(stuck.at, stuck.is_cut),
            };
        }
        let Some(tool) = &self.tool else { return Attempt::Passed(marked) };
        let rest = source.skip_blanks(marked);
        let none =
            ["none", "null", "()"].iter().find_map(|it| source.word_at(rest, it)).unwrap_or(rest);
        let none = source.skip(none, |it| matches!(it, b'.' | b'`' | b'*' | b' ' | b'\r'));
        if matches!(source.byte(none), None | Some(b'\n')) && !self.has_pairs(at, tool) {
            return self.read(Args::new(), marked);
        }
        match argument::pairs(source, at, tool) {
            Pairs::Some(args, end) => self.read(args, end),
            Pairs::None(at) => self.broken(at, false),
            Pairs::Cut => self.broken(source.len(), true),
        }
    }

    /// Returns whether pairs begin on the line at `at`.
    fn has_pairs(&self, at: usize, tool: &KnownTool) -> bool {
        let source = &self.reading.source;
        let Some(end) = source.key_end(at) else { return false };
        let key = source.slice(at..end);
        let is_meant = tool.parameters.is_empty() || tool.has(key);
        is_meant && source.byte(source.skip_blanks(end)) == Some(b'=')
    }

    /// Reads a call that names no arguments: nothing else is on its line.
    fn alone(self, name_at: usize, name_end: usize, after: usize) -> Attempt {
        let source = &self.reading.source;
        let rest = source.skip(name_end, |it| {
            matches!(it, b'.' | b'`' | b'*' | b'"' | b'\'' | b' ' | b'\t' | b'\r')
        });
        let is_result = RESULTS.iter().any(|it| source.word_at(after, it).is_some());
        if !matches!(source.byte(rest), None | Some(b'\n')) || is_result {
            return Attempt::Passed(name_at);
        }
        self.read(Args::new(), name_end)
    }

    fn read(self, args: Args, end: usize) -> Attempt {
        let call =
            |tool: &KnownTool| self.reading.call(tool, args, CallFormat::Simple, self.start..end);
        Attempt::Read { calls: self.tool.as_deref().map(call).into_iter().collect(), end }
    }

    fn broken(self, at: usize, is_cut: bool) -> Attempt {
        let is_known = self.tool.is_some();
        Attempt::Broken(Broken { calls: Vec::new(), at, is_cut: is_cut && is_known, is_known })
    }
}

/// Returns where the echo of a result ends, if one begins at `at`.
///
/// Its second line has the tool. It ends with the sentence that a result ends with, or else with its paragraph.
pub(super) fn echo_end(source: &Source<'_>, at: usize, is_endless: &mut bool) -> Option<usize> {
    let headers = [prompt::SUCCESSFUL, prompt::FAILED];
    let start = headers.iter().find_map(|it| source.word_at(at, it))?;
    let line = source.skip(start, |it| it.is_ascii_whitespace() || it == b'>');
    source.word_at(line, "tool:")?;
    if !*is_endless {
        if let Some(end) = source.find(start..source.len(), prompt::PLEASE) {
            return Some(source.line_end(end));
        }
        *is_endless = true;
    }
    Some(source.find(start..source.len(), "\n\n").unwrap_or(source.len()))
}
