use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;

use crate::root::{Root, StopSignal};

/// Largest size of a file before and after an edit, because the whole file is in memory.
const MAX_FILE_BYTES: usize = 16 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditFile {
    /// File, relative to the project root.
    pub(super) file_path: String,
    /// Text to replace, exactly as in the file, with indentation and line breaks.
    pub(super) old_string: String,
    /// Text that replaces `old_string`.
    pub(super) new_string: String,
    /// If true, replace every occurrence. Otherwise `old_string` must occur exactly once.
    #[serde(default)]
    pub(super) replace_all: bool,
}

pub(super) fn edit_file(
    root: &Root,
    args: &EditFile,
    stop: &StopSignal,
) -> Result<String, ToolError> {
    check_strings(args)?;
    let _alone = root.lock_writes();
    stop.check_cancelled()?;
    let target_path = root.resolve_path(&args.file_path)?;
    target_path.regular_file()?;
    let target = root.open_target(&target_path)?;
    let old = String::from_utf8(target.read(MAX_FILE_BYTES as u64)?).map_err(|_| {
        permanent_error(format!(
            "Not UTF-8 text: {}: only text files can be edited",
            args.file_path
        ))
    })?;
    let (new, count) = replace_occurrences(&old, args)?;
    let backup = target.back_up(old.as_bytes())?;
    target.replace_content(new.as_bytes())?;
    let path = target.display();
    Ok(format!("Replaced {count} occurrence(s) in {path} (backup: {backup})"))
}

fn check_strings(args: &EditFile) -> Result<(), ToolError> {
    if args.old_string.is_empty() {
        return Err(permanent_error(
            "old_string is empty: use write_file to create a file".to_owned(),
        ));
    }
    if args.old_string == args.new_string {
        return Err(permanent_error("old_string and new_string are the same".to_owned()));
    }
    Ok(())
}

fn replace_occurrences(text: &str, args: &EditFile) -> Result<(String, usize), ToolError> {
    let EditFile { file_path, old_string: old, new_string: new, replace_all } = args;
    let count = text.matches(old).count();
    if count == 0 {
        let hint = mismatch_hint(text, old);
        return Err(permanent_error(format!("String not found in {file_path}{hint}")));
    }
    if count > 1 && !replace_all {
        return Err(permanent_error(format!(
            "String appears {count} times in {file_path}: include more of the text around it, or use \
             replace_all=True"
        )));
    }
    let grown = new.len().saturating_mul(count).saturating_add(text.len());
    if grown.saturating_sub(old.len() * count) > MAX_FILE_BYTES {
        return Err(permanent_error(format!(
            "{file_path} would become larger than {MAX_FILE_BYTES} bytes"
        )));
    }
    Ok((text.replace(old, new), count))
}

/// Returns the probable reason why `old` does not occur in `text`.
fn mismatch_hint(text: &str, old: &str) -> &'static str {
    if text.contains(&old.replace("\r\n", "\n").replace('\n', "\r\n")) {
        return ": the file's lines end in \\r\\n";
    }
    if text.contains(&old.replace("\r\n", "\n")) {
        return ": the file's lines end in \\n, not in \\r\\n";
    }
    if !old.trim().is_empty() && text.contains(old.trim()) {
        return ": the white space around it is different";
    }
    ": it must be exactly as in the file, with its indentation and without line numbers"
}

fn permanent_error(text: String) -> ToolError {
    ToolError::failed(text).without_retry()
}
