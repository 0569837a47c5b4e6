//! `grep`.

use std::path::Path;

use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use grep_searcher::Searcher;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shared::tool::ToolError;

use super::search::{self, Seen};
use crate::{
    root::{Cut, Kind, Lines, Root, Rules, Stop, Walk, clipped, shown},
    whole,
};

/// Most lines of an output.
const LINES: usize = 1_000;
/// Longest part of a line that is shown.
const LINE_BYTES: usize = 1_000;
/// Bytes shown before a match that starts late in a long line.
const BEFORE: usize = 200;
/// Most lines around a match.
const CONTEXT: u64 = 50;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Grep {
    /// The regular expression, such as `fn \w+_test\(`.
    pub(super) pattern: String,
    /// The file or folder to search; the project root by default.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// `files_with_matches` lists files, `content` the lines as `path:line:text`, `count` how many
    /// lines match in each file as `path:count`.
    #[serde(default)]
    pub(super) output_mode: OutputMode,
    /// Lines to show around each match, in `content`.
    #[serde(default, deserialize_with = "whole::number")]
    pub(super) context_lines: u64,
    /// Whether capital and small letters are the same.
    #[serde(default)]
    pub(super) case_insensitive: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum OutputMode {
    #[default]
    FilesWithMatches,
    Content,
    Count,
}

struct Hunt {
    mode: OutputMode,
    has_context: bool,
    matcher: RegexMatcher,
    searcher: Searcher,
    lines: Lines,
    is_full: bool,
}

/// The matches in one file.
struct Page<'a> {
    mode: OutputMode,
    matcher: &'a RegexMatcher,
    /// The path as the output shows it.
    path: &'a str,
    /// Lines that the output can still hold.
    room: usize,
    lines: Vec<String>,
    count: u64,
    /// `true` if the file has more lines than the output can hold.
    is_full: bool,
}

pub(super) fn grep(root: &Root, args: &Grep, stop: &Stop) -> Result<String, ToolError> {
    let matcher = search::matcher(&args.pattern, args.case_insensitive)?;
    let place = root.start(args.path.as_deref())?;
    let context = match args.output_mode {
        OutputMode::Content => args.context_lines.min(CONTEXT),
        OutputMode::FilesWithMatches | OutputMode::Count => 0,
    };
    let mut hunt = Hunt {
        mode: args.output_mode,
        has_context: context > 0,
        matcher,
        searcher: search::searcher(usize::try_from(context).unwrap_or_default()),
        lines: Lines::new(LINES),
        is_full: false,
    };
    let mut walk = Walk::new(root, Rules::Hidden, stop);
    walk.begin_at(&place)?;
    while let Some(entry) = walk.next()? {
        if entry.kind == Kind::File && !hunt.search(&entry.path, &mut walk)? {
            break;
        }
    }
    Ok(hunt.told(&args.pattern, &walk))
}

impl Hunt {
    /// Searches a file. Returns whether to continue.
    fn search(&mut self, path: &Path, walk: &mut Walk<'_>) -> Result<bool, ToolError> {
        let shown = shown(&walk.called(path));
        let mut page = Page {
            mode: self.mode,
            matcher: &self.matcher,
            path: &shown,
            room: LINES - self.lines.count(),
            lines: Vec::new(),
            count: 0,
            is_full: false,
        };
        let see = |seen: Seen<'_>| page.see(&seen);
        let is_text = search::search_file(walk, path, &mut self.searcher, &self.matcher, see)?;
        let Page { lines, count, is_full, .. } = page;
        if is_text && count > 0 {
            match self.mode {
                OutputMode::FilesWithMatches => self.line(&format!("  {shown}")),
                OutputMode::Count => self.line(&format!("{shown}:{count}")),
                OutputMode::Content => {
                    if self.has_context && self.lines.count() > 0 {
                        self.line("--");
                    }
                    lines.iter().for_each(|line| self.line(line));
                    self.is_full |= is_full;
                }
            }
        }
        Ok(!self.is_full)
    }

    fn line(&mut self, line: &str) {
        self.is_full = self.is_full || !self.lines.push(line);
    }

    fn told(self, pattern: &str, walk: &Walk<'_>) -> String {
        let count = self.lines.count();
        let notes = walk.notes(self.is_full.then_some(Cut::Full(count, self.mode.things())));
        let heading = match (count, self.mode) {
            (0, _) => Some(format!("No matches found for pattern: {pattern}")),
            (_, OutputMode::FilesWithMatches) => {
                Some(format!("Found {count} file(s) with matches:"))
            }
            (_, OutputMode::Content | OutputMode::Count) => None,
        };
        self.lines.between(heading.as_deref(), &notes)
    }
}

impl Page<'_> {
    /// Adds a line. Returns whether the search needs more.
    fn see(&mut self, seen: &Seen<'_>) -> bool {
        let path = self.path;
        self.count += u64::from(matches!(seen, Seen::Match { .. }));
        match self.mode {
            OutputMode::FilesWithMatches => false,
            OutputMode::Count => true,
            OutputMode::Content if self.lines.len() == self.room => {
                self.is_full = true;
                false
            }
            OutputMode::Content => {
                self.lines.push(match *seen {
                    Seen::Match { number, line } => {
                        format!("{path}:{number}:{}", around(line, self.matcher))
                    }
                    Seen::Context { number, line } => format!("{path}-{number}-{}", text(line)),
                    Seen::Gap => "--".to_owned(),
                });
                true
            }
        }
    }
}

impl OutputMode {
    fn things(self) -> &'static str {
        match self {
            Self::Content => "lines",
            Self::FilesWithMatches | Self::Count => "files",
        }
    }
}

/// Returns a matching line. If the line is long, returns the part around the match.
fn around(line: &[u8], matcher: &RegexMatcher) -> String {
    let found = matcher.find(line).ok().flatten();
    let Some(found) = found.filter(|it| it.end() > LINE_BYTES) else { return text(line) };
    let from = found.start().saturating_sub(BEFORE);
    // Moves to the start of a character.
    let is_inside = |it: &&u8| (0x80..0xc0).contains(*it);
    let from = from + line[from..].iter().take_while(is_inside).take(3).count();
    let part = clipped(&line[from..], line.len(), LINE_BYTES);
    if line[from..].trim_ascii_end().len() > LINE_BYTES {
        return format!("… {part}");
    }
    format!("… {part} (line cut: {} bytes)", line.len())
}

fn text(line: &[u8]) -> String {
    clipped(line, line.len(), LINE_BYTES).into_owned()
}
