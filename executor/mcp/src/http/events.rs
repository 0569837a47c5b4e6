//! Parses streams of server-sent events.

use std::{collections::VecDeque, time::Duration};

use reqwest::Response;

use crate::message::KEPT_END_BYTES;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) data: Option<Vec<u8>>,
    /// `true` if the data is the endpoint for messages.
    pub(super) is_endpoint: bool,
    /// `true` if the middle of the data was dropped because the event was too long.
    pub(super) is_cut: bool,
    /// The id after which the stream can resume.
    pub(super) id: Option<String>,
    /// Delay before the stream is resumed.
    pub(super) retry: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum EventKind {
    #[default]
    Message,
    Endpoint,
    Other,
}

#[derive(Debug)]
pub(super) struct Events {
    max_bytes: usize,
    line: Vec<u8>,
    /// `true` if the last byte was a `\r`. A `\n` directly after it belongs to
    /// the same line end.
    is_after_cr: bool,
    data: Option<Vec<u8>>,
    kind: EventKind,
    is_cut: bool,
    id: Option<String>,
    retry: Option<Duration>,
    ready: VecDeque<Event>,
}

impl Events {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            line: Vec::new(),
            is_after_cr: false,
            data: None,
            kind: EventKind::Message,
            is_cut: false,
            id: None,
            retry: None,
            ready: VecDeque::new(),
        }
    }

    pub(super) fn next(&mut self) -> Option<Event> {
        self.ready.pop_front()
    }

    /// Adds a chunk. Returns an error if an event is too long. The parser keeps the start and the
    /// end of that event, and the caller can continue.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), TooLong> {
        let mut fits = Ok(());
        while !bytes.is_empty() {
            if std::mem::take(&mut self.is_after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            self.line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
            if self.line.len() + self.data.as_ref().map_or(0, Vec::len) > self.max_bytes {
                self.cut_middle();
                fits = Err(TooLong);
            }
            let Some(end) = end else { break };
            self.is_after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.read_field(&line);
        }
        fits
    }

    fn cut_middle(&mut self) {
        self.is_cut = true;
        for part in self.data.iter_mut().chain([&mut self.line]) {
            if part.len() > 2 * KEPT_END_BYTES {
                part.drain(KEPT_END_BYTES..part.len() - KEPT_END_BYTES);
            }
        }
    }

    fn read_field(&mut self, line: &[u8]) {
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        if line.is_empty() {
            return self.finish_event();
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = match colon {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
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
            b"event" => {
                self.kind = match value {
                    b"" | b"message" => EventKind::Message,
                    b"endpoint" => EventKind::Endpoint,
                    _ => EventKind::Other,
                };
            }
            b"id" if !value.contains(&0) => {
                self.id = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"retry" => {
                let digits = std::str::from_utf8(value).ok();
                let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                let wait = digits.and_then(|digits| digits.parse().ok()).map(Duration::from_millis);
                self.retry = wait.or(self.retry);
            }
            _ => {}
        }
    }

    fn finish_event(&mut self) {
        let kind = std::mem::take(&mut self.kind);
        let data = self.data.take().filter(|_| kind != EventKind::Other);
        let event = Event {
            is_endpoint: kind == EventKind::Endpoint && data.is_some(),
            is_cut: std::mem::take(&mut self.is_cut) && data.is_some(),
            data,
            id: self.id.take(),
            retry: self.retry.take(),
        };
        if event != Event::default() {
            self.ready.push_back(event);
        }
    }
}

pub(super) struct EventStream {
    response: Response,
    events: Events,
}

impl EventStream {
    pub(super) fn new(response: Response, max_bytes: usize) -> Self {
        Self { response, events: Events::new(max_bytes) }
    }

    /// Returns the next event with data, or `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(event) = self.events.next() {
                if event.data.is_some() {
                    return Some(event);
                }
            }
            let chunk = self.response.chunk().await.ok().flatten()?;
            // Ignores the error, because the parser keeps the start and the end of a long event,
            // and one of them contains the id of the call.
            let _ = self.events.push(&chunk);
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

    fn data_event(data: &str) -> Event {
        Event { data: Some(data.into()), ..Event::default() }
    }

    #[test]
    fn events_are_parsed_in_chunks_of_any_size() {
        let stream = "\u{feff}: hello\n\nid: 7\nretry: 250\ndata\n\ndata: a\r\ndata:b\r\n\r\nevent: ping\ndata: x\n\nevent: message\rdata: ä\r\rdata: never whole";
        let first = Event {
            id: Some("7".into()),
            retry: Some(Duration::from_millis(250)),
            ..data_event("")
        };
        for chunk in 1..stream.len() {
            let events = read(stream.as_bytes(), chunk);
            assert_eq!(events, [first.clone(), data_event("a\nb"), data_event("ä")], "{chunk}");
        }
    }

    #[test]
    fn an_event_above_the_size_limit_is_rejected() {
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

    #[test]
    fn a_too_long_event_keeps_its_beginning_and_end() {
        let (head, tail) = (format!("{{\"id\":7,{}", "a".repeat(900)), "b".repeat(900));
        for stream in [format!("data: {head}{tail}\n\n"), format!("data: {head}\ndata: {tail}\n\n")]
        {
            let mut events = Events::new(1_000);
            let mut pushed = Ok(());
            for chunk in format!("{stream}data: next\n\n").as_bytes().chunks(50) {
                pushed = pushed.and(events.push(chunk));
            }
            assert_eq!(pushed, Err(TooLong));
            let event = events.next().unwrap();
            let data = event.data.unwrap();
            assert!(event.is_cut && data.starts_with(b"{\"id\":7,") && data.ends_with(b"bbb"));
            assert!(data.len() <= 1_000, "{}", data.len());
            assert_eq!(events.next(), Some(data_event("next")));
        }
    }

    #[test]
    fn an_endpoint_event_names_the_url_for_messages() {
        let [endpoint, message] =
            read(b"event: endpoint\ndata: /m\n\ndata: x\n\n", 7).try_into().unwrap();
        assert_eq!(endpoint, Event { is_endpoint: true, ..data_event("/m") });
        assert_eq!(message, data_event("x"));
    }

    proptest! {
        #[test]
        fn random_bytes_are_parsed_without_panic(bytes: Vec<u8>) {
            let mut events = Events::new(50);
            let _ = events.push(&bytes);
        }
    }
}
