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
        tool_entry(
            "append_file",
            "Append content to the end of a file, exactly as given: end it with a newline if the \
             file needs one. Creates the file and its folders if they do not exist.",
            Effect::Once,
        )
        .into_tool(root, write::append_file),
        tool_entry(
            "edit_file",
            "Replace an exact string in a text file. `old_string` must occur exactly once, unless \
             `replace_all` is set. Copy it from `read_file` without the line numbers. The old \
             content is saved beside the file as `FILE.bak`.",
            Effect::Once,
        )
        .into_tool(root, edit::edit_file),
        tool_entry(
            "read_file",
            "Read a text file, or a range of its lines. Each line is shown as its number, `→` and \
             its text. A long output is cut, and its last line names the `offset` to continue \
             with.",
            Effect::Read,
        )
        .into_tool(root, read::read_file),
        tool_entry(
            "write_file",
            "Write a file and replace its old content. Creates the file and its folders if they do \
             not exist. Other programs see either the old or the new content, never a part.",
            Effect::Idempotent,
        )
        .into_tool(root, write::write_file),
    ]
}

fn tool_entry(name: &'static str, description: &'static str, effect: Effect) -> ToolEntry {
    ToolEntry { set: SET, name, description, effect, queue: Queue::File }
}
