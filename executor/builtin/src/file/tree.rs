use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;

use crate::{
    root::{
        CutReason, Entry, EntryKind, OutputLines, Root, StopSignal, Walk, WalkRules, display_path,
    },
    whole,
};

const MAX_LINES: usize = 1_000;
/// Maximum number of entries shown of one folder, so that a large folder does not hide other
/// folders.
const MAX_FOLDER_ENTRIES: usize = 200;
const MAX_DEPTH: u64 = 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Tree {
    /// Folder to show. Default: the project root.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// Number of levels. 1 shows only the entries of the folder itself.
    #[serde(default = "default_depth", deserialize_with = "whole::read_number")]
    #[schemars(range(min = 1, max = 20))]
    pub(super) depth: u64,
}

fn default_depth() -> u64 {
    2
}

struct TreeDrawing<'a> {
    root: &'a Root,
    walk: Walk<'a>,
    lines: OutputLines,
    folder_count: usize,
    file_count: usize,
    is_full: bool,
}

pub(super) fn draw_tree(root: &Root, args: &Tree, stop: &StopSignal) -> Result<String, ToolError> {
    let target_path = root.resolve_folder(args.path.as_deref())?;
    let mut walk = Walk::new(root, WalkRules::Ignored, stop);
    let start = walk.set_start(&target_path.path, EntryKind::Folder)?;
    let mut drawing = TreeDrawing {
        root,
        walk,
        lines: OutputLines::new(MAX_LINES),
        folder_count: 0,
        file_count: 0,
        is_full: false,
    };
    drawing.draw_folder(&start, "", args.depth.clamp(1, MAX_DEPTH))?;
    Ok(drawing.into_output(&target_path.path))
}

impl TreeDrawing<'_> {
    fn draw_folder(&mut self, folder: &Entry, indent: &str, depth: u64) -> Result<(), ToolError> {
        if self.is_full || self.walk.should_stop()? {
            return Ok(());
        }
        let mut entries = self.walk.list_folder(folder)?;
        entries.sort_by_key(|entry| entry.kind != EntryKind::Folder);
        let more = entries.len().saturating_sub(MAX_FOLDER_ENTRIES);
        let last = entries.len().min(MAX_FOLDER_ENTRIES) + usize::from(more > 0);
        for (index, entry) in entries.iter().take(MAX_FOLDER_ENTRIES).enumerate() {
            let is_last = index + 1 == last;
            self.draw_entry(entry, indent, is_last);
            if entry.kind == EntryKind::Folder && depth > 1 {
                let indent = format!("{indent}{}", if is_last { "    " } else { "│   " });
                self.draw_folder(entry, &indent, depth - 1)?;
            }
        }
        entries.iter().skip(MAX_FOLDER_ENTRIES).for_each(|entry| self.count_kind(entry.kind));
        if more > 0 {
            self.push_line(&format!("{indent}└── … {more} more"));
        }
        Ok(())
    }

    fn draw_entry(&mut self, entry: &Entry, indent: &str, is_last: bool) {
        self.count_kind(entry.kind);
        let branch = if is_last { "└── " } else { "├── " };
        self.push_line(&format!("{indent}{branch}{}", self.entry_label(entry)));
    }

    fn count_kind(&mut self, kind: EntryKind) {
        match kind {
            EntryKind::Folder => self.folder_count += 1,
            _ => self.file_count += 1,
        }
    }

    fn entry_label(&self, entry: &Entry) -> String {
        let name = display_path(Path::new(entry.path.file_name().unwrap_or_default()));
        let link = || self.root.dir().read_link_contents(&entry.path).ok();
        match entry.kind {
            EntryKind::Folder => format!("{name}/"),
            EntryKind::Symlink => match link() {
                Some(to) => format!("{name} -> {}", display_path(&to)),
                None => name,
            },
            EntryKind::File | EntryKind::Other => name,
        }
    }

    fn push_line(&mut self, line: &str) {
        self.is_full |= !self.lines.push(line);
    }

    fn into_output(self, path: &Path) -> String {
        let Self { walk, lines, folder_count: folders, file_count: files, is_full, .. } = self;
        let left_out = walk.describe_left_out();
        let left_out = left_out.map(|counts| format!(" ({counts})")).unwrap_or_default();
        let mut notes =
            vec![String::new(), format!("{folders} folder(s), {files} file(s){left_out}")];
        notes.extend(walk.closing_notes(is_full.then_some(CutReason::Full(MAX_LINES, "lines"))));
        lines.into_text(Some(&format!("{}/", display_path(path))), &notes)
    }
}
