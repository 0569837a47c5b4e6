use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;

use crate::root::{Root, StopSignal, WriteTarget};

/// Maximum number of bytes that one call writes. The limit is low, because the plan and the log
/// contain the content.
const MAX_CONTENT_BYTES: usize = 8 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    /// File, relative to the project root.
    pub(super) file_path: String,
    /// New content of the whole file.
    pub(super) content: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AppendFile {
    /// File, relative to the project root.
    pub(super) file_path: String,
    /// Text to append.
    pub(super) content: String,
}

pub(super) fn write_file(
    root: &Root,
    args: &WriteFile,
    stop: &StopSignal,
) -> Result<String, ToolError> {
    check_size(&args.content)?;
    let _alone = root.lock_writes();
    stop.check_cancelled()?;
    let target = root.create_target(&root.resolve_path(&args.file_path)?)?;
    target.replace_content(args.content.as_bytes())?;
    Ok(format!(
        "Wrote {} to {}{}",
        describe_size(&args.content),
        target.display(),
        new_file_note(&target)
    ))
}

pub(super) fn append_file(
    root: &Root,
    args: &AppendFile,
    stop: &StopSignal,
) -> Result<String, ToolError> {
    check_size(&args.content)?;
    let _alone = root.lock_writes();
    stop.check_cancelled()?;
    let target = root.create_target(&root.resolve_path(&args.file_path)?)?;
    target.append(args.content.as_bytes())?;
    Ok(format!(
        "Appended {} to {}{}",
        describe_size(&args.content),
        target.display(),
        new_file_note(&target)
    ))
}

fn check_size(content: &str) -> Result<(), ToolError> {
    if content.len() <= MAX_CONTENT_BYTES {
        return Ok(());
    }
    let text = format!("Content too large: {} bytes (at most {MAX_CONTENT_BYTES})", content.len());
    Err(ToolError::failed(text).without_retry())
}

fn new_file_note(target: &WriteTarget) -> &'static str {
    if target.exists() { "" } else { " (a new file)" }
}

fn describe_size(content: &str) -> String {
    format!("{} bytes ({} lines)", content.len(), content.lines().count())
}
