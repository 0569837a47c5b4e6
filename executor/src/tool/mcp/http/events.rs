//! Server-sent events.

use std::{collections::VecDeque, time::Duration};

/// One event, as far as MCP wants to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// What it says, if it is a message.
    pub(super) data: Option<Vec<u8>>,
    /// By which the stream can be taken up behind it.
    pub(super) id: Option<String>,
    /// How long to wait until then.
    pub(super) retry: Option<Duration>,
}

/// An event that is longer than any may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Cuts a stream into events, however it arrives.
#[derive(Debug)]
pub(super) struct Events {
    most: usize,
    line: Vec<u8>,
    /// The last byte ended a line, and a `\n` behind it belongs to that.
    is_after_cr: bool,
    data: Option<Vec<u8>>,
    is_other: bool,
    id: Option<String>,
    retry: Option<Duration>,
    ready: VecDeque<Event>,
}

impl Events {
    /// Makes the events of a stream, each of which may have `most` bytes.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            line: Vec::new(),
            is_after_cr: false,
            data: None,
            is_other: false,
            id: None,
            retry: None,
            ready: VecDeque::new(),
        }
    }

    /// Returns the next event that has come whole.
    pub(super) fn next(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Adds what has come.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.is_after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|it| matches!(it, b'\n' | b'\r'));
            self.line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            if self.line.len() + self.data.as_ref().map_or(0, Vec::len) > self.most {
                return Err(TooLong);
            }
            let Some(end) = end else { return Ok(()) };
            self.is_after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.field(&line);
        }
        Ok(())
    }

    fn field(&mut self, line: &[u8]) {
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        if line.is_empty() {
            return self.finish();
        }
        let colon = line.iter().position(|it| *it == b':');
        let (name, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            b"event" => self.is_other = !matches!(value, b"" | b"message"),
            b"id" if !value.contains(&0) => {
                self.id = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"retry" => {
                let digits = std::str::from_utf8(value).ok();
                let digits = digits.filter(|it| it.bytes().all(|it| it.is_ascii_digit()));
                let wait = digits.and_then(|it| it.parse().ok()).map(Duration::from_millis);
                self.retry = wait.or(self.retry);
            }
            _ => {}
        }
    }

    fn finish(&mut self) {
        let data = self.data.take().filter(|_| !self.is_other);
        self.is_other = false;
        let event = Event { data, id: self.id.take(), retry: self.retry.take() };
        if event != Event::default() {
            self.ready.push_back(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(stream: &[u8], chunk: usize) -> Vec<Event> {
        let mut events = Events::new(100);
        for bytes in stream.chunks(chunk) {
            events.push(bytes).unwrap();
        }
        std::iter::from_fn(|| events.next()).collect()
    }

    fn said(data: &str) -> Event {
        Event { data: Some(data.into()), ..Event::default() }
    }

    #[test]
    fn events_are_read_however_they_arrive() {
        let stream = "\u{feff}: hello\n\nid: 7\nretry: 250\ndata\n\ndata: a\r\ndata:b\r\n\r\nevent: ping\ndata: x\n\nevent: message\rdata: ä\r\rdata: never whole";
        let first =
            Event { id: Some("7".into()), retry: Some(Duration::from_millis(250)), ..said("") };
        for chunk in 1..stream.len() {
            let events = read(stream.as_bytes(), chunk);
            assert_eq!(events, [first.clone(), said("a\nb"), said("ä")], "{chunk}");
        }
    }

    #[test]
    fn an_event_has_a_limit() {
        let mut events = Events::new(100);
        for _ in 0..50 {
            assert_eq!(events.push(b": comments are free\ndata: 0123456789\n\n"), Ok(()));
        }
        assert_eq!(events.push(&[b'x'; 101]), Err(TooLong));
        let mut events = Events::new(100);
        let pushed: Result<Vec<_>, _> =
            (0..20).map(|_| events.push(b"data: 0123456789\n")).collect();
        assert_eq!(pushed, Err(TooLong));
    }

    proptest! {
        #[test]
        fn nothing_that_arrives_harms(bytes: Vec<u8>) {
            let mut events = Events::new(50);
            let _ = events.push(&bytes);
        }
    }
}
