//! The toolset `file_tools`: finds files and lines in them.

mod definition;
mod glob;
mod grep;
mod info;
mod languages;
mod search;
#[cfg(test)]
mod tests;
mod tree;

use std::sync::Arc;

use shared::tool::Effect;
use toolbox::Tool;

use super::root::{Queue, Root, ToolEntry};

pub const SET: &str = "file_tools";

/// Returns the tools of the set. They see the folder of `root` only.
pub fn tools(root: &Root) -> Vec<Arc<dyn Tool>> {
    vec![
        entry(
            "file_info",
            "Tell what a file or folder is: its kind, size, times, permissions, and how many lines \
             a text file has.",
        )
        .into_tool(root, info::describe_path),
        entry(
            "find_definition",
            "Find where a function, class, struct, trait, interface, type or constant is defined, \
             by its exact name, in source files of the common languages. Returns lines of \
             `path:line: text`. Hidden and git-ignored files are left out.",
        )
        .into_tool(root, definition::find_definition),
        entry(
            "glob",
            "Find files by a pattern, newest first. A pattern without `/` matches file names at any \
             depth (`*.py`); one with `/` matches paths below `path` (`src/**/*.rs`). `*` and `?` \
             stop at `/`, `**` does not; `[abc]` and `{a,b}` work. Hidden and git-ignored files \
             are found, too.",
        )
        .into_tool(root, glob::find_files),
        entry(
            "grep",
            "Search the contents of files, line by line, with a regular expression (Rust's syntax; \
             no look-around, no back-references). Binary, hidden and git-ignored files are left \
             out.",
        )
        .into_tool(root, grep::search_contents),
        entry(
            "tree",
            "Show the folders and files below a folder, folders first. What `.gitignore` names is \
             left out.",
        )
        .into_tool(root, tree::draw_tree),
    ]
}

fn entry(name: &'static str, description: &'static str) -> ToolEntry {
    let queue = if name == "file_info" { Queue::File } else { Queue::Search };
    ToolEntry { set: SET, name, description, effect: Effect::Read, queue }
}
