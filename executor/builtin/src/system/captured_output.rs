//! Captured output of a command, within a limit.

use std::{io, pin::pin, process::ExitStatus, time::Duration};

use sandbox::process::ProcessGroup;
use secrets::Redaction;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::timeout,
};

/// Maximum bytes that are kept of the start of a stream, and of its end.
const KEPT_BYTES: usize = 48 << 10;
/// Time limit for pipes that stay open after the end of the command.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct BoundedOutput {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Number of bytes that were dropped between the start and the end.
    dropped_bytes: u64,
}

impl BoundedOutput {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_at(bytes.len().min(KEPT_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend_from_slice(rest);
        if self.tail.len() > 2 * KEPT_BYTES {
            self.drop_front(self.tail.len() - KEPT_BYTES);
        }
    }

    fn drop_front(&mut self, bytes: usize) {
        self.tail.drain(..bytes);
        self.dropped_bytes += bytes as u64;
    }

    /// Returns the text without secrets. Shows no part of a secret that was cut.
    pub(super) fn into_text(mut self, redaction: &Redaction) -> String {
        self.drop_front(self.tail.len().saturating_sub(KEPT_BYTES));
        if self.dropped_bytes == 0 {
            self.head.append(&mut self.tail);
            return redaction.redact(String::from_utf8_lossy(&self.head).into_owned());
        }
        let mut head = redaction.redact(String::from_utf8_lossy(&self.head).into_owned());
        head.truncate(head.floor_char_boundary(head.len().saturating_sub(cut_margin(redaction))));
        let tail = clean_after_cut(&self.tail, redaction);
        format!("{head}\n… ({} bytes left out) …\n{tail}", self.dropped_bytes)
    }
}

/// Removes secrets from text after a cut, including the rest of a secret that was cut.
pub(super) fn clean_after_cut(bytes: &[u8], redaction: &Redaction) -> String {
    let text = redaction.redact(String::from_utf8_lossy(bytes).into_owned());
    text[text.ceil_char_boundary(cut_margin(redaction).min(text.len()))..].to_owned()
}

/// Returns the number of bytes beside a cut that may belong to a secret. Decoding a cut character
/// adds bytes: each of up to three bytes becomes a replacement character of three bytes.
fn cut_margin(redaction: &Redaction) -> usize {
    match redaction.max_secret_bytes() {
        0 => 0,
        longest => longest + 3 * 3,
    }
}

#[derive(Debug, Default)]
pub(super) struct CapturedOutput {
    stdout: BoundedOutput,
    stderr: BoundedOutput,
}

impl CapturedOutput {
    pub(super) fn stderr_head(&self) -> String {
        String::from_utf8_lossy(&self.stderr.head).into_owned()
    }

    /// Captures output until the command has ended. If its streams are then still open, kills the
    /// processes that the command left running.
    pub(super) async fn read(&mut self, group: &mut ProcessGroup) -> io::Result<ExitStatus> {
        let child = group.child();
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::Error::other("its streams are not piped"));
        };
        let mut streams = pin!(async {
            tokio::join!(read(stdout, &mut self.stdout), read(stderr, &mut self.stderr))
        });
        tokio::select! {
            _ = &mut streams => group.wait().await,
            status = group.wait() => {
                group.kill();
                let _ = timeout(DRAIN_TIMEOUT, streams).await;
                status
            }
        }
    }

    /// Returns the text of both streams, or a note that they are empty.
    pub(super) fn into_output(self, redaction: &Redaction) -> String {
        let text = self.into_text(redaction);
        if text.is_empty() { "(Command completed with no output)".to_owned() } else { text }
    }

    pub(super) fn into_text(self, redaction: &Redaction) -> String {
        let parts = [
            ("STDOUT", self.stdout.into_text(redaction)),
            ("STDERR", self.stderr.into_text(redaction)),
        ];
        let parts: Vec<_> = parts
            .into_iter()
            .filter(|(_, text)| !text.is_empty())
            .map(|(name, text)| format!("{name}:\n{}", text.trim_end_matches('\n')))
            .collect();
        parts.join("\n\n")
    }
}

async fn read(mut stream: impl AsyncRead + Unpin, output: &mut BoundedOutput) {
    let mut buffer = vec![0; 32 << 10];
    // A broken pipe ends the output without an error, because the exit status tells the reason.
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        output.push(&buffer[..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_keeps_its_beginning_and_end() {
        let mut output = BoundedOutput::default();
        for number in 0..1_000_000_u32 {
            output.push(format!("{number}\n").as_bytes());
            assert!(output.head.len() <= KEPT_BYTES && output.tail.len() <= 2 * KEPT_BYTES);
        }
        let text = output.into_text(&Redaction::default());
        assert!(text.starts_with("0\n1\n2\n") && text.ends_with("\n999998\n999999\n"));
        assert!(text.contains("… (6790586 bytes left out) …"), "{text}");
    }

    #[test]
    fn a_short_output_is_kept_whole() {
        let mut output = BoundedOutput::default();
        let text = "ä".repeat(KEPT_BYTES);
        text.as_bytes().chunks(7).for_each(|chunk| output.push(chunk));
        assert_eq!(output.into_text(&Redaction::default()), text);
        assert_eq!(
            CapturedOutput::default().into_output(&Redaction::default()),
            "(Command completed with no output)"
        );
    }
    #[test]
    fn a_secret_across_a_cut_is_not_shown() {
        let mut redaction = Redaction::default();
        redaction.add_secret("TOK", "SECRETVALUE0123456789");
        // At every offset, a secret lies across each cut.
        for offset in 0..21 {
            let mut output = BoundedOutput::default();
            output.push(&b"x".repeat(offset));
            output.push(&b"SECRETVALUE0123456789".repeat(20_000));
            output.push(&b"y".repeat(offset));
            let text = output.into_text(&redaction);
            assert!(text.contains("***TOK***") && text.contains("bytes left out"));
            for part in ["SECRET", "VALUE", "0123", "6789"] {
                assert!(!text.contains(part), "{offset} {part}");
            }
        }
        let mut redaction = Redaction::default();
        redaction.add_secret("TOK", "s€cr€t€");
        for offset in 0..13 {
            let mut output = BoundedOutput::default();
            output.push(&b"x".repeat(offset));
            output.push("s€cr€t€".repeat(20_000).as_bytes());
            output.push(&b"y".repeat(offset));
            let text = output.into_text(&redaction).replace("bytes left out", "");
            assert!(text.contains("***TOK***"));
            for part in ['s', '€', 'c', 'r', 't'] {
                assert!(!text.contains(part), "{offset} {part}");
            }
        }
    }
}
