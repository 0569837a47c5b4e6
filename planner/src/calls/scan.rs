//! One way through the text, from left to right.

use shared::limits;

use super::{
    TooMuch, ToolCall, function,
    mood::{Mood, is_forbidden_behind},
    native, natural, shape, simple,
    source::{Attempt, Reading, is_name_byte},
    tags::{self, Tags},
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
        mood: Mood::default(),
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
    /// What the sentence has said so far.
    mood: Mood,
}

impl Scan<'_, '_> {
    fn step(&mut self) {
        let source = &self.reading.source;
        match source.byte(self.at) {
            Some(b'{') => self.take(shape::read(self.reading, self.at)),
            Some(b'<') if tags::ends_thought(source, self.at) => {
                self.forget();
                self.at += 1;
            }
            Some(first @ (b'<' | b'[')) => {
                let attempt = match native::read(self.reading, self.at) {
                    None if first == b'<' => {
                        let tags = self.tags.get_or_insert_with(|| Tags::find(source));
                        xml::read(self.reading, tags, self.at)
                    }
                    attempt => attempt.unwrap_or(Attempt::Passed(self.at + 1)),
                };
                self.take(attempt);
            }
            Some(it) if is_name_byte(it) => self.word(),
            Some(it) => {
                self.mood.mark(source, self.at, it);
                self.at += 1;
            }
            None => self.at += 1,
        }
    }

    /// Forgets all so far: it was a thought, which began in the prompt.
    fn forget(&mut self) {
        self.calls.clear();
        self.reading.forget_missed(0);
        self.has_broken = false;
        self.mood.end();
    }

    /// Reads the word at this place, and the call that it begins, if it does.
    fn word(&mut self) {
        let source = &self.reading.source;
        let start = source.skip(self.at, |it| matches!(it, b'-' | b'.'));
        let end = source.name_end(start);
        let missed = self.reading.missed();
        if let Some(end) = simple::echo_end(source, start, &mut self.echoes_are_endless) {
            self.at = end;
            return;
        }
        if let Some(attempt) = simple::read(self.reading, start) {
            return self.take(attempt);
        }
        if end == start {
            if source.slice(self.at..end).contains('.') {
                self.mood.end();
            } else {
                self.mood.bullet();
            }
            self.at = end;
        } else if self.has_broken {
            self.at = end;
        } else if source.byte(end) == Some(b'(') && source.byte(end - 1) != Some(b'.') {
            let attempt = function::read(self.reading, start, end);
            let is_read = matches!(attempt, Attempt::Read { .. });
            if self.mood.is_turned() {
                self.reading.forget_missed(missed);
            }
            self.loose(attempt, |mood, end| mood.is_mention(source, end));
            if !is_read {
                self.mood.word("");
            }
        } else {
            let word = source.slice(start..end);
            if natural::is_verb(word) {
                let attempt = natural::read(self.reading, start, end);
                if self.mood.is_turned() {
                    self.reading.forget_missed(missed);
                }
                self.loose(attempt, |_, _| false);
            } else {
                self.at = end;
            }
            self.mood.word(word);
        }
    }

    /// Takes what prose may look like, unless the prose says that it is not to be done.
    fn loose(&mut self, attempt: Attempt, is_mention: impl Fn(&Mood, usize) -> bool) {
        let source = &self.reading.source;
        let Attempt::Read { calls, end } = attempt else { return self.take(attempt) };
        let is_call = !self.mood.is_turned()
            && !is_forbidden_behind(source, end)
            && !is_mention(&self.mood, end);
        self.mood.call();
        let calls = if is_call { calls } else { Vec::new() };
        self.take(Attempt::Read { calls, end });
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
                let next = if broken.is_cut { source.len() } else { source.line_end(broken.at) };
                let tags = self.tags.get_or_insert_with(|| Tags::find(source));
                if tags.has_thought_end(self.at..next) {
                    self.forget();
                    self.has_broken = true;
                }
                next
            }
        };
        self.at = next.max(self.at + 1);
    }
}
