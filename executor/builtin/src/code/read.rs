use std::io::{BufRead, BufReader, Read as _};

use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::{ErrorCode, ToolError};

use crate::{
    root::{OutputLines, Root, StopSignal, clip_line, io_failure},
    whole,
};

/// Largest file that can be read. The limit exists because the whole file is read to count its
/// lines.
const MAX_FILE_BYTES: u64 = 256 << 20;
const MAX_SHOWN_LINE_BYTES: usize = 16 << 10;
/// Bytes per read. After each read, the call checks if it was cancelled.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    /// File, relative to the project root.
    pub(super) file_path: String,
    /// First line to read, counted from 1.
    #[serde(default, deserialize_with = "whole::read_option")]
    pub(super) offset: Option<u64>,
    /// Number of lines to read.
    #[serde(default, deserialize_with = "whole::read_option")]
    pub(super) limit: Option<u64>,
}

struct Page {
    first_wanted: u64,
    last_wanted: u64,
    lines: OutputLines,
    last_shown: u64,
    lines_read: u64,
    is_full: bool,
    is_text: bool,
    /// The start of the current line. `line_bytes` is the length of the whole line.
    line: Vec<u8>,
    line_bytes: usize,
}

pub(super) fn read_file(
    root: &Root,
    args: &ReadFile,
    stop: &StopSignal,
) -> Result<String, ToolError> {
    if args.limit == Some(0) {
        let reason = "`limit` is 0: write the number of lines to read, or leave out `limit` to read \
                   all";
        return Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, reason));
    }
    let target_path = root.resolve_path(&args.file_path)?;
    let (file, meta) = root.open_regular(&target_path)?;
    if meta.len() > MAX_FILE_BYTES {
        let text = format!(
            "File too large: {} has {} bytes (at most {MAX_FILE_BYTES}): use grep to find lines in it",
            args.file_path,
            meta.len()
        );
        return Err(ToolError::failed(text).without_retry());
    }
    let mut page = Page::new(args);
    // Limits the bytes again, because the file may grow while it is read.
    let mut reader = BufReader::with_capacity(CHUNK_BYTES, file.take(MAX_FILE_BYTES));
    loop {
        stop.check_cancelled()?;
        let chunk = reader.fill_buf().map_err(|err| io_failure("read", &args.file_path, &err))?;
        if chunk.is_empty() {
            break;
        }
        page.push_chunk(chunk);
        let bytes = chunk.len();
        reader.consume(bytes);
    }
    page.end_last_line();
    page.into_output(args)
}

impl Page {
    fn new(args: &ReadFile) -> Self {
        let first = args.offset.unwrap_or(1).max(1);
        let count = args.limit.unwrap_or(u64::MAX);
        Self {
            first_wanted: first,
            last_wanted: first.saturating_add(count).saturating_sub(1),
            lines: OutputLines::new(usize::MAX),
            last_shown: first - 1,
            lines_read: 0,
            is_full: false,
            is_text: true,
            line: Vec::new(),
            line_bytes: 0,
        }
    }

    fn push_chunk(&mut self, chunk: &[u8]) {
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            if self.is_requested() {
                let room = (MAX_SHOWN_LINE_BYTES + 1).saturating_sub(self.line.len());
                self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            self.line_bytes += piece.len();
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn is_requested(&self) -> bool {
        let number = self.lines_read + 1;
        !self.is_full && (self.first_wanted..=self.last_wanted).contains(&number)
    }

    fn end_line(&mut self) {
        let is_requested = self.is_requested();
        self.lines_read += 1;
        if is_requested {
            self.show_line();
        }
        self.line.clear();
        self.line_bytes = 0;
    }

    fn show_line(&mut self) {
        let text = clip_line(&self.line, self.line_bytes, MAX_SHOWN_LINE_BYTES);
        self.is_text &= !text.contains(['\u{fffd}', '\0']);
        self.is_full = !self.lines.push(&format!("{:>6}→{text}", self.lines_read));
        if !self.is_full {
            self.last_shown = self.lines_read;
        }
    }

    fn end_last_line(&mut self) {
        if self.line_bytes > 0 {
            self.end_line();
        }
    }

    fn into_output(self, args: &ReadFile) -> Result<String, ToolError> {
        let Self {
            first_wanted: first,
            last_wanted: last,
            lines,
            last_shown,
            lines_read,
            is_text,
            ..
        } = self;
        if lines_read == 0 && first == 1 {
            return Ok("(the file is empty)".to_owned());
        }
        if lines_read < first {
            let text = format!("No line {first} in {}: the file has {lines_read}", args.file_path);
            return Err(ToolError::failed(text).without_retry());
        }
        let is_part = args.offset.is_some() || args.limit.is_some() || last_shown < lines_read;
        let heading =
            is_part.then(|| format!("Showing lines {first}-{last_shown} of {lines_read}"));
        let mut notes = Vec::new();
        if last_shown < lines_read.min(last) {
            notes.push(format!("(cut: continue with offset={})", last_shown + 1));
        }
        if !is_text {
            notes.push(
                "(the file is not entirely UTF-8 text: other bytes are shown as �)".to_owned(),
            );
        }
        Ok(lines.into_text(heading.as_deref(), &notes))
    }
}
