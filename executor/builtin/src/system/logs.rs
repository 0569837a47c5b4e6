//! `read_logs`: shows the end of a file, and optionally new lines.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    sync::Arc,
    time::Duration,
};

use schemars::JsonSchema;
use secrets::Redaction;
use serde::Deserialize;
use shared::tool::{ErrorCode, Progress, ToolError};
use tokio::time::{Instant, sleep};

use super::{
    System, ToolContext, cancelled_error,
    captured_output::{BoundedOutput, clean_after_cut},
    run_blocking,
};
use crate::whole;

pub(super) const DESCRIPTION: &str = "Read the last lines of a log file, like `tail`.";

const MAX_LINES: usize = 10_000;
const MAX_BYTES: u64 = 256 << 10;
/// Maximum number of line ends that are checked for a secret that crosses them.
const MAX_CHECKED_LINE_ENDS: usize = 64;
/// Bytes per read. The file is read backwards.
const BLOCK_BYTES: u64 = 16 << 10;
/// Duration for which a file is followed.
const FOLLOW_DURATION: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadLogs {
    /// Path to the log file, below the project root.
    file_path: String,
    /// Number of lines to show (default: 50).
    #[serde(default = "default_lines", deserialize_with = "whole::read_number")]
    lines: u64,
    /// If true, wait 30 seconds for new lines and show them, too.
    #[serde(default)]
    follow: bool,
}

fn default_lines() -> u64 {
    50
}

pub(super) async fn read_logs(
    system: Arc<System>,
    args: ReadLogs,
    cx: ToolContext,
) -> Result<String, ToolError> {
    if args.lines == 0 {
        let reason = "`lines` is 0: write the number of lines to read, or leave out `lines` to read \
                   50";
        return Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, reason));
    }
    let lines = usize::try_from(args.lines).unwrap_or(MAX_LINES).min(MAX_LINES);
    let path = args.file_path;
    let redaction = system.passed_secrets();
    let read = {
        let (path, redaction) = (path.clone(), redaction.clone());
        move || {
            let mut file = system.root.open(&path)?;
            let tail = read_tail(&mut file, &path, lines, &redaction)?;
            Ok((file, tail))
        }
    };
    let (file, tail) = run_blocking(read).await?;
    let head = format!("Last {lines} lines of {path}:\n\n");
    if args.follow {
        let added = tokio::select! {
            added = follow_file(file, tail.end, &path, &redaction, &cx) => added?,
            () = cx.cancel.cancelled() => return Err(cancelled_error("`read_logs`")),
        };
        return Ok(format!("{head}{}{added}", tail.text));
    }
    if tail.text.is_empty() {
        return Ok(format!("Log file is empty: {path}"));
    }
    Ok(format!("{head}{}", tail.text))
}

#[derive(Debug, Default)]
pub(super) struct Tail {
    pub(super) text: String,
    /// Length of the file when it was read. New lines are read from this offset.
    end: u64,
}

/// Reads the last lines of a file, from the end to the start. The file may be larger than memory.
pub(super) fn read_tail(
    file: &mut File,
    path: &str,
    lines: usize,
    redaction: &Redaction,
) -> Result<Tail, ToolError> {
    read_last_lines(file, lines, redaction).map_err(|err| unreadable_error(path, &err))
}

fn unreadable_error(path: &str, err: &io::Error) -> ToolError {
    ToolError::failed(format!("{path} cannot be read: {err}"))
}

fn read_last_lines(file: &mut File, lines: usize, redaction: &Redaction) -> io::Result<Tail> {
    let end = file.metadata()?.len();
    let lowest = end.saturating_sub(MAX_BYTES);
    let mut start = end;
    let mut kept: Vec<u8> = Vec::new();
    while start > lowest && count_breaks(&kept) < lines {
        let from = start.saturating_sub(BLOCK_BYTES).max(lowest);
        let mut block = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.by_ref().take(start - from).read_to_end(&mut block)?;
        block.append(&mut kept);
        (kept, start) = (block, from);
    }
    let whole = kept.strip_suffix(b"\n").unwrap_or(&kept);
    let ends = whole.iter().enumerate().rev().filter(|end| *end.1 == b'\n');
    let first = ends.map(|end| end.0 + 1).nth(lines - 1).unwrap_or(0);
    let is_cut = first == 0 && start > 0;
    let text = if is_cut {
        clean_after_cut(&kept, redaction)
    } else {
        redaction.redact(String::from_utf8_lossy(&kept[first..]).into_owned())
    };
    Ok(Tail { text, end })
}

fn count_breaks(bytes: &[u8]) -> usize {
    bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n').count() - 1
}

/// Returns the text that is added to a file within [`FOLLOW_DURATION`]. A file that becomes shorter
/// is read from its start.
async fn follow_file(
    file: File,
    mut offset: u64,
    path: &str,
    redaction: &Redaction,
    cx: &ToolContext,
) -> Result<String, ToolError> {
    let file = Arc::new(file);
    let (mut added, mut line) = (BoundedOutput::default(), Vec::new());
    let (mut reports, mut is_dropping) = (0_u32, false);
    let until = Instant::now() + FOLLOW_DURATION;
    while Instant::now() < until {
        sleep(POLL_INTERVAL).await;
        let (file, path) = (Arc::clone(&file), path.to_owned());
        let read_task = run_blocking(move || {
            read_added(&file, offset).map_err(|err| unreadable_error(&path, &err))
        });
        let (bytes, end) = read_task.await?;
        offset = end;
        if bytes.is_empty() {
            continue;
        }
        added.push(&bytes);
        line.extend_from_slice(&bytes);
        if is_dropping {
            let end = line.iter().position(|byte| *byte == b'\n').map(|newline| newline + 1);
            line.drain(..end.unwrap_or(line.len()));
            is_dropping = end.is_none();
        }
        let reportable: Vec<u8> = line.drain(..reportable_len(&line, redaction)).collect();
        // Skips the rest of a line that is too long.
        if line.len() as u64 > MAX_BYTES {
            line.clear();
            is_dropping = true;
        }
        if reportable.is_empty() {
            continue;
        }
        reports += 1;
        let message = redaction.redact(String::from_utf8_lossy(&reportable).into_owned());
        cx.progress(Progress {
            progress: f64::from(reports),
            total: None,
            message: Some(message.trim_end().into()),
        });
    }
    Ok(added.into_text(redaction))
}

/// Returns the length of the complete lines that can be reported now. No secret crosses the end of
/// this part, whatever the next read returns.
fn reportable_len(read: &[u8], redaction: &Redaction) -> usize {
    let safe_len = read.len() - redaction.max_secret_bytes().min(read.len());
    let lines = read[..safe_len].iter().enumerate().rev();
    let mut ends = lines.filter(|(_, byte)| **byte == b'\n').map(|(index, _)| index + 1);
    if redaction.max_secret_bytes() == 0 {
        return ends.next().unwrap_or(0);
    }
    let redact = |bytes: &[u8]| redaction.redact(String::from_utf8_lossy(bytes).into_owned());
    let all = redact(read);
    let splits_no_secret = |end: &usize| redact(&read[..*end]) + &redact(&read[*end..]) == all;
    ends.take(MAX_CHECKED_LINE_ENDS).find(splits_no_secret).unwrap_or(0)
}

fn read_added(mut file: &File, offset: u64) -> io::Result<(Vec<u8>, u64)> {
    let end = file.metadata()?.len();
    let from = if end < offset { 0 } else { offset };
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(MAX_BYTES.min(end - from)).read_to_end(&mut bytes)?;
    let read = bytes.len() as u64;
    Ok((bytes, from + read))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;

    fn tail_of(text: &[u8], lines: usize) -> Tail {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        read_tail(&mut File::open(file.path()).unwrap(), "log", lines, &Redaction::default())
            .unwrap()
    }

    #[test]
    fn a_report_ends_before_an_incomplete_secret() {
        assert_eq!(reportable_len(b"a\nb\nc", &Redaction::default()), 4);
        let mut redaction = Redaction::default();
        redaction.add_secret("KEY", "short-1\nshort-2");
        let pad = vec![b'x'; redaction.max_secret_bytes()];
        let read = |text: &str| [text.as_bytes(), &pad].concat();
        assert_eq!(reportable_len(&read("one\nshort-1\nshort-2\ntwo\n"), &redaction), 24);
        assert_eq!(
            reportable_len(&read("one\nshort-1\nshort-2 two"), &redaction),
            4,
            "the secret crosses the end of a line"
        );
        assert_eq!(
            reportable_len(b"one\nshort-1\n", &redaction),
            0,
            "the rest of the secret may follow"
        );
    }

    #[test]
    fn the_last_lines_of_a_log_are_read_from_its_end() {
        for (text, lines, expected) in [
            ("", 1, ""),
            ("a", 1, "a"),
            ("a\n", 1, "a\n"),
            ("a\nb", 1, "b"),
            ("a\nb\n", 1, "b\n"),
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\n\n\n", 2, "\n\n"),
            ("a\nb\n", 9, "a\nb\n"),
        ] {
            assert_eq!(tail_of(text.as_bytes(), lines).text, expected, "{text:?} {lines}");
        }
        let many: Vec<_> = (0..100_000).map(|number| format!("line {number}")).collect();
        let text = tail_of((many.join("\n") + "\n").as_bytes(), 5_000).text;
        assert!(text.starts_with("line 95000\n") && text.ends_with("line 99999\n"));
        assert_eq!(text.lines().count(), 5_000);
    }

    #[test]
    fn a_huge_line_of_a_log_is_cut() {
        let text = tail_of(&vec![b'x'; 3 << 20], 50).text;
        assert_eq!(text.len() as u64, MAX_BYTES);
    }

    #[test]
    fn following_a_log_reads_added_bytes_and_a_replaced_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one\n").unwrap();
        let reader = File::open(file.path()).unwrap();
        assert_eq!(read_added(&reader, 4).unwrap(), (b"".to_vec(), 4));
        file.write_all(b"two\n").unwrap();
        assert_eq!(read_added(&reader, 4).unwrap(), (b"two\n".to_vec(), 8));
        fs::write(file.path(), "new\n").unwrap();
        assert_eq!(read_added(&reader, 8).unwrap(), (b"new\n".to_vec(), 4));
    }
}
