//! Reads calls of the form `TOOL: set.name ARGS: {…}`, and finds the echo of a result, which looks
//! similar.

use std::{ops::Range, sync::Arc};

use super::{
    CallFormat, KnownTool,
    argument::{self, Args},
    lenient::{self, Tree},
    marker,
    pairs::{self, Pairs},
    prompt,
    source::{Attempt, BrokenCall, CallReader, MissReason, Source},
};

const RESULT_LABELS: [&str; 5] = ["result:", "error:", "output:", "observation:", "status:"];

const NO_ARGUMENTS: [&str; 2] = ["none", "()"];
/// Labels on the next line that end the call. Any other label may begin arguments.
const NEW_LINE_LABELS: [&str; 5] = ["thought", "action", "observation", "result", "answer"];
const MAX_LABEL_BYTES: usize = 32;

pub(super) fn read(reading: &CallReader<'_>, start: usize) -> Option<Attempt> {
    let source = &reading.source;
    let arguments_at = marker::tool_marker_end(source, start)?;
    let name_at = skip_quotes(source, source.skip_markup(arguments_at));
    let mut name_end = source.find_name_end(name_at);
    let name = source.slice(name_at..name_end);
    let mut tool =
        reading.resolve_tool(name).or_else(|| reading.resolve_tool(name.trim_end_matches('.')));
    if tool.is_none()
        && let Some((found, end)) = read_name(reading, name_at)
    {
        (tool, name_end) = (Some(found), end);
    }
    if name_end == name_at {
        return Some(Attempt::Passed(arguments_at));
    }
    let quoted = skip_quotes(source, name_end);
    let behind = source.find_word_end(quoted, "()").unwrap_or(quoted);
    let object = source.skip_markup(source.skip(behind, |byte| byte == b','));
    let after = marker::skip_layout(source, behind);
    let call = SimpleCall { reading, tool, start, name: name_at..name_end };
    Some(match marker::argument_marker_end(source, after) {
        Some(given) => call.read_marked(given),
        None if source.byte(object) == Some(b'{') => call.read_marked(object),
        None => call.read_without_arguments(behind, after),
    })
}

/// Reads the name between a position and the argument marker or the end of the line. The name may
/// contain spaces and letters of any script.
fn read_name(reading: &CallReader<'_>, index: usize) -> Option<(Arc<KnownTool>, usize)> {
    let source = &reading.source;
    // Reads up to a colon, because every marker ends with a colon. The next `TOOL:` has a colon,
    // too, so no byte is read twice.
    let stop = source.skip(index, |byte| byte != b'\n' && byte != b':');
    let line = source.slice(index..stop);
    let is_marked = source.byte(stop) == Some(b':');
    let name = if is_marked { marker::name_before_arguments(line)? } else { line };
    let is_around = |character: char| {
        character.is_whitespace() || matches!(character, ',' | '.' | '"' | '\'' | '`' | '*')
    };
    let name = name.trim_end_matches(is_around);
    Some((reading.resolve_tool(name)?, index + name.len()))
}

fn skip_quotes(source: &Source<'_>, index: usize) -> usize {
    source.skip(index, |byte| matches!(byte, b'"' | b'\'' | b'`'))
}

struct SimpleCall<'r, 'a> {
    reading: &'r CallReader<'a>,
    tool: Option<Arc<KnownTool>>,
    start: usize,
    name: Range<usize>,
}

impl SimpleCall<'_, '_> {
    fn read_marked(self, arguments_at: usize) -> Attempt {
        let source = &self.reading.source;
        let position = marker::skip_layout(source, arguments_at);
        if source.byte(position) == Some(b'{') {
            return match (lenient::read(source, position), self.tool.as_deref()) {
                (Ok((_, end)), Some(tool)) if pairs::has_next_pair(source, end, tool) => {
                    self.report_broken_call(end, false)
                }
                (Ok((Tree::Object(object), end)), _) => self.read(object.into_map(), end),
                (Ok((_, end)), _) => self.report_broken_call(end, false),
                (Err(stuck), _) => self.report_broken_call(stuck.position, stuck.is_cut),
            };
        }
        let Some(tool) = self.tool.clone() else {
            self.reading.add_missed(source.slice(self.name), MissReason::Unknown);
            return Attempt::Passed(arguments_at);
        };
        let none = NO_ARGUMENTS.iter().find_map(|none| source.find_word_end(position, none));
        let is_none =
            |end| matches!(source.byte(source.skip_marks(end)), None | Some(b'\n' | b'.'));
        if let Some(end) = none.filter(|end| is_none(*end)) {
            return self.read(Args::new(), end);
        }
        let line_end =
            source.skip(arguments_at, |byte| matches!(byte, b'*' | b'`' | b' ' | b'\t' | b'\r'));
        // Text on the next line may be arguments. Text after an empty line is prose.
        let is_prose = source.slice(line_end..position).matches('\n').count() > 1;
        let is_over = position >= source.len()
            || is_prose
            || marker::tool_marker_end(source, position).is_some();
        let is_empty = matches!(source.byte(line_end), None | Some(b'\n')) && is_over;
        match pairs::read(source, position, &tool) {
            Pairs::Read(args, end) => self.read(args, end),
            Pairs::Absent if is_empty && !may_be_argument(source, position, Some(&tool)) => {
                self.read(Args::new(), arguments_at)
            }
            Pairs::Absent => self.report_broken_call(position, false),
            Pairs::Ambiguous(end) => self.report_broken_call(end, false),
            Pairs::Cut => self.report_broken_call(source.len(), true),
        }
    }

    fn read_without_arguments(self, behind: usize, after: usize) -> Attempt {
        let source = &self.reading.source;
        let rest = source.skip(behind, |byte| {
            matches!(byte, b'.' | b'`' | b'*' | b'"' | b'\'' | b' ' | b'\t' | b'\r')
        });
        let is_alone = matches!(source.byte(rest), None | Some(b'\n'));
        if !is_alone || RESULT_LABELS.iter().any(|word| source.find_word_end(after, word).is_some())
        {
            return Attempt::Passed(self.name.start);
        }
        let line = marker::skip_layout(source, rest);
        if may_be_argument(source, line, self.tool.as_deref()) {
            return self.report_broken_call(line, false);
        }
        // A name without a point and without arguments may be an ordinary word.
        if self.tool.is_none() && !source.slice(self.name.clone()).contains('.') {
            return Attempt::Passed(self.name.start);
        }
        self.read(Args::new(), behind)
    }

    fn read(self, args: Args, end: usize) -> Attempt {
        let Some(tool) = self.tool.as_deref() else {
            self.reading.add_missed(self.reading.source.slice(self.name), MissReason::Unknown);
            return Attempt::Read { calls: Vec::new(), end };
        };
        let call = self.reading.make_call(tool, args, CallFormat::Simple, self.start..end);
        Attempt::Read { calls: vec![call], end }
    }

    fn report_broken_call(self, index: usize, is_cut: bool) -> Attempt {
        let is_known = self.tool.is_some();
        let name = self.reading.source.slice(self.name);
        self.reading.add_missed(name, MissReason::from_flags(is_known, is_cut));
        Attempt::Broken(BrokenCall {
            calls: Vec::new(),
            position: index,
            is_cut: is_cut && is_known,
            is_known,
        })
    }
}

fn may_be_argument(source: &Source<'_>, index: usize, tool: Option<&KnownTool>) -> bool {
    if source.byte(index) == Some(b'{') {
        return true;
    }
    let mut end = index;
    while end - index <= MAX_LABEL_BYTES
        && source
            .byte(end)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    {
        end += 1;
    }
    let sign = source.skip(end, |byte| matches!(byte, b'*' | b'`'));
    let label = source.slice(index..end);
    let is_label = end > index && matches!(source.byte(sign), Some(b':' | b'='));
    let is_new = NEW_LINE_LABELS.iter().any(|new| new.eq_ignore_ascii_case(label));
    let is_parameter = tool.is_some_and(|tool| argument::has_parameter_at(source, index, tool));
    is_parameter || is_label && !is_new && marker::tool_marker_end(source, index).is_none()
}

/// Returns the end of the echo of a result that begins at a position.
pub(super) fn find_echo_end(
    source: &Source<'_>,
    index: usize,
    is_endless: &mut bool,
) -> Option<usize> {
    let headers = [prompt::SUCCESS_HEADING, prompt::FAILURE_HEADING];
    let start = headers.iter().find_map(|word| source.find_word_end(index, word))?;
    let line = source.skip(start, |byte| byte.is_ascii_whitespace() || byte == b'>');
    source.find_word_end(line, "tool:")?;
    if !*is_endless {
        if let Some(end) = source.find(start..source.len(), prompt::REPORT_END) {
            return Some(source.find_line_end(end));
        }
        *is_endless = true;
    }
    Some(source.find(start..source.len(), "\n\n").unwrap_or(source.len()))
}
