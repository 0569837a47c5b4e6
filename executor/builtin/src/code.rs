//! The toolset `code_tools`: reads and changes single files.

mod edit;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::sync::Arc;

use shared::tool::Effect;
use toolbox::Tool;

use super::root::{Queue, Root, ToolEntry};

pub const SET: &str = "code_tools";

/// Returns the tools of the set. They see the folder of `root` only.
pub fn tools(root: &Root) -> Vec<Arc<dyn Tool>> {
    vec![
        entry(
            "append_file",
            "Append content to the end of a file, exactly as given (end it with a newline where \
             one belongs). A file that is not there is made, with the folders above it.",
            Effect::Once,
        )
        .into_tool(root, write::append_file),
        entry(
            "edit_file",
            "Replace an exact string in a text file. `old_string` must be in the file exactly once, \
             unless `replace_all` is set; copy it from `read_file` without the line numbers. The \
             content before the edit is kept beside the file as `FILE.bak`.",
            Effect::Once,
        )
        .into_tool(root, edit::edit_file),
        entry(
            "read_file",
            "Read a text file, or some lines of it. Each line comes after its number and `→`. A \
             long file is cut, and the last line says how to read on.",
            Effect::Read,
        )
        .into_tool(root, read::read_file),
        entry(
            "write_file",
            "Write a file, in the place of any content that it has. The folders above it are made. \
             Whoever reads it meanwhile sees the old content or the new one, never a part.",
            Effect::Idempotent,
        )
        .into_tool(root, write::write_file),
    ]
}

fn entry(name: &'static str, description: &'static str, effect: Effect) -> ToolEntry {
    ToolEntry { set: SET, name, description, effect, queue: Queue::File }
}
