use std::{
    cmp::Reverse,
    path::{Component, Path, PathBuf},
};

use cap_std::{fs::Metadata, time::SystemTime};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;

use super::search::{check_pattern, invalid_pattern_error};
use crate::root::{
    EntryKind, OutputLines, Root, StopSignal, Walk, WalkRules, display_path, os_path, outside_error,
};

const MAX_PATHS: usize = 1_000;

/// Deepest nesting of braces. The limit protects the stack, because a recursive parser reads the
/// regular expression that a pattern becomes.
const MAX_BRACE_DEPTH: usize = 16;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Glob {
    /// Pattern, such as `*.py` or `src/**/*.rs`.
    pub(super) pattern: String,
    /// Folder to search. Default: the project root.
    #[serde(default)]
    pub(super) path: Option<String>,
}

struct Pattern {
    from: PathBuf,
    matcher: GlobSet,
    matches_names_only: bool,
}

struct FoundFile {
    modified: Option<SystemTime>,
    path: PathBuf,
}

pub(super) fn find_files(root: &Root, args: &Glob, stop: &StopSignal) -> Result<String, ToolError> {
    check_pattern(&args.pattern)?;
    let pattern = Pattern::new(root, args)?;
    let mut walk = Walk::new(root, WalkRules::Git, stop);
    let mut matches = Vec::new();
    if root.dir().metadata(os_path(&pattern.from)).is_ok_and(|meta| meta.is_dir()) {
        walk.set_start(&pattern.from, EntryKind::Folder)?;
    }
    while let Some(entry) = walk.next()? {
        let path = walk.to_caller_path(&entry.path);
        if !pattern.is_match(&path) {
            continue;
        }
        if let Some(meta) = regular_file_metadata(root, &entry.path, entry.kind) {
            matches.push(FoundFile { modified: meta.modified().ok(), path: path.into_owned() });
        }
    }
    matches.sort_unstable_by(|a, b| {
        (Reverse(a.modified), &a.path).cmp(&(Reverse(b.modified), &b.path))
    });
    Ok(format_matches(&matches, &args.pattern, walk.closing_notes(None)))
}

/// Returns the metadata of a regular file. Follows a symlink if its target is inside the root.
fn regular_file_metadata(root: &Root, path: &Path, kind: EntryKind) -> Option<Metadata> {
    let meta = match kind {
        EntryKind::File => root.dir().symlink_metadata(path).ok(),
        EntryKind::Symlink => root.target_metadata(path),
        EntryKind::Folder | EntryKind::Other => None,
    };
    meta.filter(Metadata::is_file)
}

fn format_matches(matches: &[FoundFile], pattern: &str, mut notes: Vec<String>) -> String {
    if matches.is_empty() {
        return OutputLines::new(0)
            .into_text(Some(&format!("No files found matching pattern: {pattern}")), &notes);
    }
    let mut lines = OutputLines::new(MAX_PATHS);
    for found in matches {
        if !lines.push(&format!("  {}", display_path(&found.path))) {
            let count = lines.len();
            notes.insert(
                0,
                format!("(the newest {count} are shown: narrow the pattern or the path)"),
            );
            break;
        }
    }
    let heading = format!("Found {} file(s) matching '{pattern}':", matches.len());
    lines.into_text(Some(&heading), &notes)
}

impl Pattern {
    fn new(root: &Root, args: &Glob) -> Result<Self, ToolError> {
        let folder = root.resolve_folder(args.path.as_deref())?.path;
        let (mut from, mut text) = if args.pattern.starts_with('/') {
            (PathBuf::new(), relative_pattern(root, &args.pattern)?)
        } else {
            (folder, args.pattern.trim_start_matches("./"))
        };
        let matches_names_only = !args.pattern.contains('/');
        while let Some((first, rest)) = text.split_once('/').filter(|(part, _)| is_literal(part)) {
            from.push(first);
            text = rest;
        }
        if Path::new(text).components().any(|part| part == Component::ParentDir) {
            return Err(outside_error(&args.pattern));
        }
        if brace_depth(text) > MAX_BRACE_DEPTH {
            let reason = format!("it has more than {MAX_BRACE_DEPTH} nested braces");
            return Err(invalid_pattern_error(&args.pattern, reason));
        }
        let glob = GlobBuilder::new(text).literal_separator(true).build();
        // Does not use `compile_matcher`, because it panics if the pattern is too large.
        let set = glob.and_then(|glob| GlobSetBuilder::new().add(glob).build());
        let matcher = set.map_err(|err| invalid_pattern_error(&args.pattern, err.kind()))?;
        Ok(Self { from, matcher, matches_names_only })
    }

    fn is_match(&self, path: &Path) -> bool {
        if self.matches_names_only {
            return path.file_name().is_some_and(|name| self.matcher.is_match(name));
        }
        path.strip_prefix(&self.from).is_ok_and(|rest| self.matcher.is_match(rest))
    }
}

fn relative_pattern<'p>(root: &Root, pattern: &'p str) -> Result<&'p str, ToolError> {
    root.path_prefixes()
        .into_iter()
        .find_map(|prefix| pattern.strip_prefix(&prefix))
        .ok_or_else(|| outside_error(pattern))
}

fn brace_depth(text: &str) -> usize {
    let (mut open, mut max_open) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'{' => open += 1,
            b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        max_open = max_open.max(open);
    }
    max_open
}

fn is_literal(part: &str) -> bool {
    !part.contains(['*', '?', '[', ']', '{', '}', '\\', ',']) && !matches!(part, "" | "." | "..")
}
