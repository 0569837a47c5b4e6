use shared::limits;

use super::{
    LimitExceeded, ToolCall, function, sentence, shape, simple,
    source::{Attempt, CallReader, is_name_byte},
    tags::{self, Tags},
    xml,
};

pub(super) fn scan_calls(reading: &CallReader<'_>) -> Result<Vec<ToolCall>, LimitExceeded> {
    let mut scan = Scan {
        reading,
        position: 0,
        tags: None,
        calls: Vec::new(),
        has_unreadable_call: false,
        has_no_echo_end: false,
    };
    while scan.position < reading.source.len() {
        scan.scan_next();
        if scan.calls.len() > limits::REPLY_CALLS {
            return Err(LimitExceeded::Calls);
        }
    }
    Ok(scan.calls)
}

struct Scan<'r, 'a> {
    reading: &'r CallReader<'a>,
    position: usize,
    /// All tags of the text. Found when the scan reaches the first `<`.
    tags: Option<Tags>,
    calls: Vec<ToolCall>,
    /// `true` if the scan has passed an unreadable call of a registered tool. Later functions and
    /// sentences may be its arguments, so they are not read as calls.
    has_unreadable_call: bool,
    /// `true` if the rest of the text contains no usual end of a reported result, so that the scan
    /// does not search for such an end again.
    has_no_echo_end: bool,
}

impl Scan<'_, '_> {
    fn scan_next(&mut self) {
        let source = &self.reading.source;
        match source.byte(self.position) {
            Some(b'{') => self.add_attempt(shape::read(self.reading, self.position)),
            Some(b'<') if tags::is_thought_end(source, self.position) => {
                self.drop_calls();
                self.position += 1;
            }
            Some(b'<') => {
                let tags = self.tags.get_or_insert_with(|| Tags::find(source));
                let attempt = xml::read(self.reading, tags, self.position);
                self.add_attempt(attempt);
            }
            Some(byte) if is_name_byte(byte) => self.scan_word(),
            _ => self.position += 1,
        }
    }

    /// Drops all calls so far, because they belong to a thought that began in the prompt.
    fn drop_calls(&mut self) {
        self.calls.clear();
        self.reading.forget_missed(0);
        self.has_unreadable_call = false;
    }

    fn scan_word(&mut self) {
        let source = &self.reading.source;
        let start = source.skip(self.position, |byte| matches!(byte, b'-' | b'.'));
        let end = source.find_name_end(start);
        let missed = self.reading.count_missed();
        if let Some(end) = simple::find_echo_end(source, start, &mut self.has_no_echo_end) {
            self.position = end;
            return;
        }
        if let Some(attempt) = simple::read(self.reading, start) {
            return self.add_attempt(attempt);
        }
        let word = source.slice(start..end);
        if end == start || self.has_unreadable_call {
            self.position = end;
        } else if source.byte(end) == Some(b'(') && !word.ends_with('.') {
            let attempt = function::read(self.reading, start, end);
            self.add_prose_call(attempt, start, missed);
        } else if sentence::is_verb(word) {
            let attempt = sentence::read(self.reading, start..end);
            self.add_prose_call(attempt, start, missed);
        } else {
            self.position = end;
        }
    }

    /// Adds a call in prose, unless the words before it negate it.
    fn add_prose_call(&mut self, attempt: Attempt, start: usize, missed: usize) {
        let is_read = matches!(&attempt, Attempt::Read { .. });
        let is_reported = self.reading.count_missed() > missed;
        if !(is_read || is_reported) || !sentence::is_negated(&self.reading.source, start) {
            return self.add_attempt(attempt);
        }
        self.reading.forget_missed(missed);
        match attempt {
            Attempt::Read { end, .. } => self.add_attempt(Attempt::Read { calls: Vec::new(), end }),
            attempt => self.add_attempt(attempt),
        }
    }

    fn add_attempt(&mut self, attempt: Attempt) {
        let next = match attempt {
            Attempt::Passed(next) => next,
            Attempt::Read { calls, end } => {
                self.calls.extend(calls);
                end
            }
            Attempt::Broken(broken) => {
                self.calls.extend(broken.calls);
                self.has_unreadable_call |= broken.is_known;
                let source = &self.reading.source;
                let next = if broken.is_cut {
                    source.len()
                } else {
                    source.find_line_end(broken.position)
                };
                let tags = self.tags.get_or_insert_with(|| Tags::find(source));
                if tags.has_thought_end(self.position..next) {
                    self.drop_calls();
                    self.has_unreadable_call = true;
                }
                next
            }
        };
        self.position = next.max(self.position + 1);
    }
}
