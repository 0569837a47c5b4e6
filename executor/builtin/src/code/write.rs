//! `write_file` and `append_file`.

use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;

use crate::root::{Root, Stop, Target};

/// Most bytes that one call writes. The plan and its log contain them.
const CONTENT_BYTES: usize = 8 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    /// The file, relative to the project root.
    pub(super) file_path: String,
    /// The whole new content.
    pub(super) content: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AppendFile {
    /// The file, relative to the project root.
    pub(super) file_path: String,
    /// What to add at its end.
    pub(super) content: String,
}

pub(super) fn write(root: &Root, args: &WriteFile, stop: &Stop) -> Result<String, ToolError> {
    check(&args.content)?;
    let _alone = root.writing();
    stop.check()?;
    let target = root.new_target(&root.place(&args.file_path)?)?;
    target.replace(args.content.as_bytes())?;
    Ok(format!("Wrote {} to {}{}", measure(&args.content), target.shown(), new(&target)))
}

pub(super) fn append(root: &Root, args: &AppendFile, stop: &Stop) -> Result<String, ToolError> {
    check(&args.content)?;
    let _alone = root.writing();
    stop.check()?;
    let target = root.new_target(&root.place(&args.file_path)?)?;
    target.append(args.content.as_bytes())?;
    Ok(format!("Appended {} to {}{}", measure(&args.content), target.shown(), new(&target)))
}

fn check(content: &str) -> Result<(), ToolError> {
    if content.len() <= CONTENT_BYTES {
        return Ok(());
    }
    let text = format!("Content too large: {} bytes (at most {CONTENT_BYTES})", content.len());
    Err(ToolError::failed(text).without_retry())
}

fn new(target: &Target) -> &'static str {
    if target.exists() { "" } else { " (a new file)" }
}

fn measure(content: &str) -> String {
    format!("{} bytes ({} lines)", content.len(), content.lines().count())
}
