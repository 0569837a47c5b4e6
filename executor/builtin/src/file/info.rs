use std::{
    io::{self, Read},
    path::Path,
};

use cap_std::{
    fs::{Metadata, MetadataExt as _},
    time::SystemTime,
};
use chrono::{DateTime, SecondsFormat, Utc};
use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;

use crate::root::{Root, StopSignal, display_path, io_failure, kind_name, os_path};

/// Largest file whose lines are counted.
const MAX_COUNTED_BYTES: u64 = 64 << 20;
const MAX_COUNTED_ENTRIES: usize = 100_000;
/// Number of first bytes that are searched for a NUL byte, which makes a file binary, as in git and
/// grep.
const SNIFFED_BYTES: usize = 8_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileInfo {
    /// File or folder, relative to the project root.
    pub(super) file_path: String,
}

pub(super) fn describe_path(
    root: &Root,
    args: &FileInfo,
    stop: &StopSignal,
) -> Result<String, ToolError> {
    let target_path = root.resolve_path(&args.file_path)?;
    let Some(meta) = &target_path.meta else {
        return Err(ToolError::failed(format!("File not found: {}", args.file_path)));
    };
    let mut lines = vec![
        format!("Path: {}", display_path(&target_path.path)),
        format!("Type: {}", describe_type(root, &target_path.path, meta)),
        format!("Size: {}", format_size(meta.len())),
    ];
    let times =
        [("Modified", meta.modified()), ("Created", meta.created()), ("Accessed", meta.accessed())];
    let known_times = times.into_iter().filter_map(|(name, time)| Some((name, time.ok()?)));
    lines.extend(known_times.map(|(name, time)| format!("{name}: {}", format_time(time))));
    lines.push(format!("Permissions: {}", format_permissions(meta.mode())));
    if meta.is_file() {
        lines.push(describe_content(root, &target_path.path, stop)?);
    } else if meta.is_dir() {
        let count = count_entries(root, &target_path.path);
        let count = count.map_err(|err| io_failure("read", &args.file_path, &err))?;
        let more = if count == MAX_COUNTED_ENTRIES { " or more" } else { "" };
        lines.push(format!("Entries: {count}{more}"));
    }
    Ok(lines.join("\n"))
}

/// Returns the type, and the target of the symlink if the path is a symlink.
fn describe_type(root: &Root, path: &Path, meta: &Metadata) -> String {
    let kind = kind_name(meta).trim_start_matches("a ");
    let link = root.dir().symlink_metadata(os_path(path)).is_ok_and(|meta| meta.is_symlink());
    match root.dir().read_link_contents(os_path(path)) {
        Ok(to) if link => format!("{kind} (a symlink to {})", display_path(&to)),
        _ => kind.to_owned(),
    }
}

fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    let mut tenths = u128::from(bytes) * 10;
    let mut unit = None;
    for name in UNITS {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = Some(name);
    }
    match unit {
        None => format!("{bytes} bytes"),
        Some(unit) => format!("{bytes} bytes ({}.{} {unit})", tenths / 10, tenths % 10),
    }
}

fn format_time(time: SystemTime) -> String {
    DateTime::<Utc>::from(time.into_std()).to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Returns the permissions in the notations of `ls` and `chmod`.
fn format_permissions(mode: u32) -> String {
    let bit = |index: u32, char| if mode & (1 << index) == 0 { '-' } else { char };
    let letters: String =
        (0..9).rev().zip("rwxrwxrwx".chars()).map(|(index, letter)| bit(index, letter)).collect();
    format!("{letters} ({:03o})", mode & 0o7777)
}

fn describe_content(root: &Root, path: &Path, stop: &StopSignal) -> Result<String, ToolError> {
    let Ok((file, meta)) = root.open_file(path) else {
        return Ok("Lines: not counted (the file cannot be read)".to_owned());
    };
    if meta.len() > MAX_COUNTED_BYTES {
        return Ok(format!("Lines: not counted (more than {})", format_size(MAX_COUNTED_BYTES)));
    }
    match count_lines(file.take(MAX_COUNTED_BYTES), stop)? {
        Ok(Some(count)) => Ok(format!("Lines: {count}")),
        Ok(None) => Ok("Content: binary".to_owned()),
        Err(err) => Ok(format!("Lines: not counted ({err})")),
    }
}

fn count_lines(
    mut from: impl Read,
    stop: &StopSignal,
) -> Result<io::Result<Option<u64>>, ToolError> {
    let mut buffer = vec![0; 64 << 10];
    let (mut count, mut seen, mut last) = (0, 0, b'\n');
    loop {
        stop.check_cancelled()?;
        let bytes = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => &buffer[..bytes],
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(err) => return Ok(Err(err)),
        };
        let sniffed_len = bytes.len().min(SNIFFED_BYTES.saturating_sub(seen));
        if bytes[..sniffed_len].contains(&0) {
            return Ok(Ok(None));
        }
        count += bytes.split(|byte| *byte == b'\n').count() as u64 - 1;
        seen = seen.saturating_add(bytes.len());
        last = bytes.last().copied().unwrap_or(last);
    }
    Ok(Ok(Some(count + u64::from(last != b'\n'))))
}

fn count_entries(root: &Root, path: &Path) -> io::Result<usize> {
    Ok(root.dir().read_dir(os_path(path))?.take(MAX_COUNTED_ENTRIES).count())
}
