//! Output text: complete lines, within a limit.

use std::{borrow::Cow, fmt::Write as _, path::Path};

/// Maximum number of bytes of an output. As JSON they stay below [`shared::limits::OUTPUT_BYTES`],
/// even if every byte must be escaped.
pub(crate) const TEXT_BYTES: usize = 128 << 10;

#[derive(Debug)]
pub(crate) struct OutputLines {
    text: String,
    count: usize,
    max_lines: usize,
}

impl OutputLines {
    pub(crate) fn new(max_lines: usize) -> Self {
        Self { text: String::new(), count: 0, max_lines }
    }

    pub(crate) fn push(&mut self, line: &str) -> bool {
        if self.count == self.max_lines || self.text.len() + line.len() >= TEXT_BYTES {
            return false;
        }
        self.text.push_str(line);
        self.text.push('\n');
        self.count += 1;
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn into_text(self, heading: Option<&str>, notes: &[String]) -> String {
        let notes = notes.iter().map(String::as_str);
        let lines = self.text.strip_suffix('\n');
        let parts: Vec<_> = heading.into_iter().chain(lines).chain(notes).collect();
        parts.join("\n")
    }
}

/// Escapes control characters, so a path takes one line of an output.
pub(crate) fn display_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    if text.is_empty() {
        return ".".to_owned();
    }
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() {
            let _ = write!(escaped, "{}", char.escape_default());
        } else {
            escaped.push(char);
        }
    }
    escaped
}

/// Returns a line as text, cut after `max_bytes` bytes.
///
/// The caller may pass only the start of a line. `bytes` is the length of the whole line.
pub(crate) fn clip_line(line: &[u8], bytes: usize, max_bytes: usize) -> Cow<'_, str> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= max_bytes {
        return String::from_utf8_lossy(line);
    }
    let head = &line[..max_bytes];
    let whole = match std::str::from_utf8(head) {
        Err(err) if err.error_len().is_none() => &head[..err.valid_up_to()],
        _ => head,
    };
    Cow::Owned(format!("{} … (line cut: {bytes} bytes)", String::from_utf8_lossy(whole)))
}
