use std::path::Path;

use grep_matcher::Matcher as _;
use grep_regex::RegexMatcher;
use grep_searcher::Searcher;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use shared::tool::ToolError;

use super::search::{self, SeenLine};
use crate::{
    root::{
        CutReason, EntryKind, OutputLines, Root, StopSignal, Walk, WalkRules, clip_line,
        display_path,
    },
    whole,
};

const MAX_LINES: usize = 1_000;
const MAX_SHOWN_LINE_BYTES: usize = 1_000;
/// Bytes shown before a match that starts late in a long line.
const BYTES_BEFORE_MATCH: usize = 200;
const MAX_CONTEXT: u64 = 50;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Grep {
    /// Regular expression, such as `fn \w+_test\(`.
    pub(super) pattern: String,
    /// File or folder to search. Default: the project root.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// `files_with_matches` lists files. `content` lists lines as `path:line:text`. `count` lists
    /// the number of matching lines of each file as `path:count`.
    #[serde(default)]
    pub(super) output_mode: OutputMode,
    /// Number of lines to show before and after each match, in the mode `content`.
    #[serde(default, deserialize_with = "whole::read_number")]
    pub(super) context_lines: u64,
    /// If true, upper and lower case are the same.
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

struct ContentSearch {
    mode: OutputMode,
    has_context: bool,
    matcher: RegexMatcher,
    searcher: Searcher,
    lines: OutputLines,
    is_full: bool,
}

struct FileMatches<'a> {
    mode: OutputMode,
    matcher: &'a RegexMatcher,
    path: &'a str,
    lines_left: usize,
    lines: Vec<String>,
    count: u64,
    /// `true` if the file has more lines than fit into the output.
    is_full: bool,
}

pub(super) fn search_contents(
    root: &Root,
    args: &Grep,
    stop: &StopSignal,
) -> Result<String, ToolError> {
    let matcher = search::build_matcher(&args.pattern, args.case_insensitive)?;
    let target_path = root.resolve_existing(args.path.as_deref())?;
    let context = match args.output_mode {
        OutputMode::Content => args.context_lines.min(MAX_CONTEXT),
        OutputMode::FilesWithMatches | OutputMode::Count => 0,
    };
    let mut content_search = ContentSearch {
        mode: args.output_mode,
        has_context: context > 0,
        matcher,
        searcher: search::build_searcher(usize::try_from(context).unwrap_or_default()),
        lines: OutputLines::new(MAX_LINES),
        is_full: false,
    };
    let mut walk = Walk::new(root, WalkRules::Hidden, stop);
    walk.start_at(&target_path)?;
    while let Some(entry) = walk.next()? {
        if entry.kind == EntryKind::File && !content_search.search_file(&entry.path, &mut walk)? {
            break;
        }
    }
    Ok(content_search.into_output(&args.pattern, &walk))
}

impl ContentSearch {
    fn search_file(&mut self, path: &Path, walk: &mut Walk<'_>) -> Result<bool, ToolError> {
        let shown_path = display_path(&walk.to_caller_path(path));
        let mut page = FileMatches {
            mode: self.mode,
            matcher: &self.matcher,
            path: &shown_path,
            lines_left: MAX_LINES - self.lines.len(),
            lines: Vec::new(),
            count: 0,
            is_full: false,
        };
        let on_line = |seen: SeenLine<'_>| page.record_line(&seen);
        let is_text = search::search_file(walk, path, &mut self.searcher, &self.matcher, on_line)?;
        let FileMatches { lines, count, is_full, .. } = page;
        if is_text && count > 0 {
            match self.mode {
                OutputMode::FilesWithMatches => self.push_line(&format!("  {shown_path}")),
                OutputMode::Count => self.push_line(&format!("{shown_path}:{count}")),
                OutputMode::Content => {
                    if self.has_context && self.lines.len() > 0 {
                        self.push_line("--");
                    }
                    for line in &lines {
                        self.push_line(line);
                    }
                    self.is_full |= is_full;
                }
            }
        }
        Ok(!self.is_full)
    }

    fn push_line(&mut self, line: &str) {
        self.is_full = self.is_full || !self.lines.push(line);
    }

    fn into_output(self, pattern: &str, walk: &Walk<'_>) -> String {
        let count = self.lines.len();
        let notes = walk
            .closing_notes(self.is_full.then_some(CutReason::Full(count, self.mode.unit_name())));
        let heading = match (count, self.mode) {
            (0, _) => Some(format!("No matches found for pattern: {pattern}")),
            (_, OutputMode::FilesWithMatches) => {
                Some(format!("Found {count} file(s) with matches:"))
            }
            (_, OutputMode::Content | OutputMode::Count) => None,
        };
        self.lines.into_text(heading.as_deref(), &notes)
    }
}

impl FileMatches<'_> {
    fn record_line(&mut self, seen: &SeenLine<'_>) -> bool {
        let path = self.path;
        self.count += u64::from(matches!(seen, SeenLine::Match { .. }));
        match self.mode {
            OutputMode::FilesWithMatches => false,
            OutputMode::Count => true,
            OutputMode::Content if self.lines.len() == self.lines_left => {
                self.is_full = true;
                false
            }
            OutputMode::Content => {
                self.lines.push(match *seen {
                    SeenLine::Match { number, line } => {
                        format!("{path}:{number}:{}", format_match(line, self.matcher))
                    }
                    SeenLine::Context { number, line } => {
                        format!("{path}-{number}-{}", clip_text(line))
                    }
                    SeenLine::Gap => "--".to_owned(),
                });
                true
            }
        }
    }
}

impl OutputMode {
    fn unit_name(self) -> &'static str {
        match self {
            Self::Content => "lines",
            Self::FilesWithMatches | Self::Count => "files",
        }
    }
}

/// Returns a matching line. If the line is long, returns its start, or the part around the match if
/// the start does not contain the match.
fn format_match(line: &[u8], matcher: &RegexMatcher) -> String {
    let found = matcher.find(line).ok().flatten();
    let Some(found) = found.filter(|found| found.end() > MAX_SHOWN_LINE_BYTES) else {
        return clip_text(line);
    };
    let from = found.start().saturating_sub(BYTES_BEFORE_MATCH);
    // Moves to the start of a character.
    let is_inside = |byte: &&u8| (0x80..0xc0).contains(*byte);
    let from = from + line[from..].iter().take_while(is_inside).take(3).count();
    let part = clip_line(&line[from..], line.len(), MAX_SHOWN_LINE_BYTES);
    if line[from..].trim_ascii_end().len() > MAX_SHOWN_LINE_BYTES {
        return format!("… {part}");
    }
    format!("… {part} (line cut: {} bytes)", line.len())
}

fn clip_text(line: &[u8]) -> String {
    clip_line(line, line.len(), MAX_SHOWN_LINE_BYTES).into_owned()
}
