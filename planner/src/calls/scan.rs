//! One way through the text, from left to right.

use shared::limits;

use super::{
    TooMuch, ToolCall, function, natural, shape, simple,
    source::{Attempt, Reading, is_name_byte},
    tags::Tags,
    xml,
};

/// Returns the calls in the text, in order.
pub(super) fn calls(reading: &Reading<'_>) -> Result<Vec<ToolCall>, TooMuch> {
    let mut scan = Scan {
        reading,
        at: 0,
        tags: None,
        calls: Vec::new(),
        has_broken: false,
        echoes_are_endless: false,
    };
    while scan.at < reading.source.len() {
        scan.step();
        if scan.calls.len() > limits::REPLY_CALLS {
            return Err(TooMuch::Calls);
        }
    }
    Ok(scan.calls)
}

struct Scan<'r, 'a> {
    reading: &'r Reading<'a>,
    at: usize,
    /// The tags of the text, once one is met.
    tags: Option<Tags>,
    calls: Vec<ToolCall>,
    /// Whether a call of a registered tool could not be read: what looks like a loose call behind it
    /// may be one of its arguments.
    has_broken: bool,
    /// Whether no echo of a result ends as results do.
    echoes_are_endless: bool,
}

impl Scan<'_, '_> {
    fn step(&mut self) {
        match self.reading.source.byte(self.at) {
            Some(b'{') => self.take(shape::read(self.reading, self.at)),
            Some(b'<') => {
                let tags = self.tags.get_or_insert_with(|| Tags::find(&self.reading.source));
                let attempt = xml::read(self.reading, tags, self.at);
                self.take(attempt);
            }
            Some(it) if is_name_byte(it) => self.word(),
            _ => self.at += 1,
        }
    }

    /// Reads the word at this place, and the call that it begins, if it does.
    fn word(&mut self) {
        let source = &self.reading.source;
        let start = source.skip(self.at, |it| matches!(it, b'-' | b'.'));
        let end = source.name_end(start);
        if let Some(end) = simple::echo_end(source, start, &mut self.echoes_are_endless) {
            self.at = end;
            return;
        }
        if let Some(attempt) = simple::read(self.reading, start) {
            return self.take(attempt);
        }
        if self.has_broken || end == start {
            self.at = end;
        } else if source.byte(end) == Some(b'(') {
            self.take(function::read(self.reading, start, end));
        } else if natural::is_verb(self.reading, start, end) {
            self.take(natural::read(self.reading, start, end));
        } else {
            self.at = end;
        }
    }

    fn take(&mut self, attempt: Attempt) {
        let next = match attempt {
            Attempt::Passed(next) => next,
            Attempt::Read { calls, end } => {
                self.calls.extend(calls);
                end
            }
            Attempt::Broken(broken) => {
                self.calls.extend(broken.calls);
                self.has_broken |= broken.is_known;
                let source = &self.reading.source;
                if broken.is_cut { source.len() } else { source.line_end(broken.at) }
            }
        };
        self.at = next.max(self.at + 1);
    }
}
