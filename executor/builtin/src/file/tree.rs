//! `tree`.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;

use crate::{
    root::{Cut, Entry, Kind, Lines, Root, Rules, Stop, Walk, shown},
    whole,
};

/// Most lines that one call shows.
const LINES: usize = 1_000;
/// Most entries shown of one folder, so that a large folder does not hide the others.
const ENTRIES: usize = 200;
/// Deepest tree.
const DEPTH: u64 = 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Tree {
    /// The folder; the project root by default.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// How deep to go: 1 shows what is in the folder itself.
    #[serde(default = "two", deserialize_with = "whole::number")]
    #[schemars(range(min = 1, max = 20))]
    pub(super) depth: u64,
}

fn two() -> u64 {
    2
}

struct Drawing<'a> {
    root: &'a Root,
    walk: Walk<'a>,
    lines: Lines,
    folders: usize,
    files: usize,
    is_full: bool,
}

pub(super) fn tree(root: &Root, args: &Tree, stop: &Stop) -> Result<String, ToolError> {
    let place = root.folder(args.path.as_deref())?;
    let mut walk = Walk::new(root, Rules::Ignored, stop);
    let start = walk.begin(&place.path, Kind::Folder)?;
    let mut drawing =
        Drawing { root, walk, lines: Lines::new(LINES), folders: 0, files: 0, is_full: false };
    drawing.folder(&start, "", args.depth.clamp(1, DEPTH))?;
    Ok(drawing.told(&place.path))
}

impl Drawing<'_> {
    fn folder(&mut self, folder: &Entry, indent: &str, depth: u64) -> Result<(), ToolError> {
        if self.is_full || self.walk.is_over()? {
            return Ok(());
        }
        let mut entries = self.walk.list(folder)?;
        entries.sort_by_key(|it| it.kind != Kind::Folder);
        let more = entries.len().saturating_sub(ENTRIES);
        let last = entries.len().min(ENTRIES) + usize::from(more > 0);
        for (index, entry) in entries.iter().take(ENTRIES).enumerate() {
            let is_last = index + 1 == last;
            self.entry(entry, indent, is_last);
            if entry.kind == Kind::Folder && depth > 1 {
                let indent = format!("{indent}{}", if is_last { "    " } else { "│   " });
                self.folder(entry, &indent, depth - 1)?;
            }
        }
        entries.iter().skip(ENTRIES).for_each(|it| self.count(it.kind));
        if more > 0 {
            self.line(&format!("{indent}└── … {more} more"));
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, indent: &str, is_last: bool) {
        self.count(entry.kind);
        let branch = if is_last { "└── " } else { "├── " };
        self.line(&format!("{indent}{branch}{}", self.label(entry)));
    }

    fn count(&mut self, kind: Kind) {
        match kind {
            Kind::Folder => self.folders += 1,
            _ => self.files += 1,
        }
    }

    fn label(&self, entry: &Entry) -> String {
        let name = shown(Path::new(entry.path.file_name().unwrap_or_default()));
        let link = || self.root.dir().read_link_contents(&entry.path).ok();
        match entry.kind {
            Kind::Folder => format!("{name}/"),
            Kind::Symlink => match link() {
                Some(to) => format!("{name} -> {}", shown(&to)),
                None => name,
            },
            Kind::File | Kind::Other => name,
        }
    }

    fn line(&mut self, line: &str) {
        self.is_full |= !self.lines.push(line);
    }

    fn told(self, path: &Path) -> String {
        let Self { walk, lines, folders, files, is_full, .. } = self;
        let left_out = walk.describe_left_out();
        let left_out = left_out.map(|counts| format!(" ({counts})")).unwrap_or_default();
        let mut notes =
            vec![String::new(), format!("{folders} folder(s), {files} file(s){left_out}")];
        notes.extend(walk.notes(is_full.then_some(Cut::Full(LINES, "lines"))));
        lines.between(Some(&format!("{}/", shown(path))), &notes)
    }
}
