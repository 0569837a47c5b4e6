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
        tool_entry(
            "file_info",
            "Describe a file or folder: its kind, size, times and permissions, and the number of \
             lines of a text file or of entries of a folder.",
        )
        .into_tool(root, info::describe_path),
        tool_entry(
            "find_definition",
            "Find where a function, class, struct, trait, interface, type or constant is defined, \
             by its exact name, in source files of the common languages. Returns lines of \
             `path:line: text`. Skips hidden and git-ignored files.",
        )
        .into_tool(root, definition::find_definition),
        tool_entry(
            "glob",
            "Find files by a pattern, newest first. A pattern without `/` matches file names at any \
             depth (`*.py`). A pattern with `/` matches paths below `path` (`src/**/*.rs`). `*` and \
             `?` do not match `/`, and `**` does. `[abc]` and `{a,b}` work. Includes hidden and \
             git-ignored files.",
        )
        .into_tool(root, glob::find_files),
        tool_entry(
            "grep",
            "Search the contents of files, line by line, with a regular expression in Rust's \
             syntax, without look-around and back-references. Skips binary, hidden and git-ignored \
             files.",
        )
        .into_tool(root, grep::search_contents),
        tool_entry(
            "tree",
            "Show the folders and files below a folder, folders first. Skips files and folders that \
             `.gitignore` names.",
        )
        .into_tool(root, tree::draw_tree),
    ]
}

fn tool_entry(name: &'static str, description: &'static str) -> ToolEntry {
    let queue = if name == "file_info" { Queue::File } else { Queue::Search };
    ToolEntry { set: SET, name, description, effect: Effect::Read, queue }
}
