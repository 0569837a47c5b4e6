//! What follows pairs: another call, prose that is none of theirs, or a pair that would be dropped.

use super::{
    marker, natural,
    pairs::{Place, Reader, is_mark},
};

/// The longest word that may begin another call.
const VERB_BYTES: usize = 8;

impl Reader<'_, '_> {
    /// Returns whether pairs that end at `end` are all there are.
    pub(super) fn is_all(&self, end: usize) -> bool {
        match self.place {
            Place::Sentence => self.ahead(end).is_none(),
            Place::Line => self.ends_line(end) || self.is_prose(end),
            Place::Whole => self.ends_line(end),
        }
    }

    /// Returns whether nothing is left on the line of arguments that end at `end`.
    fn ends_line(&self, end: usize) -> bool {
        let source = self.source;
        let is_closing = |it: u8| {
            matches!(
                it,
                b' ' | b'\t' | b'\r' | b'`' | b'*' | b'.' | b',' | b';' | b')' | b'"' | b'\''
            )
        };
        let at = source.skip(end, is_closing);
        match source.byte(at) {
            None | Some(b'\n' | b'#') => true,
            Some(b'/') => matches!(source.byte(at + 1), Some(b'/' | b'*')),
            // A word of a sentence that something closes behind the call is none of the arguments.
            Some(b'<') => matches!(source.byte(at + 1), Some(b'/' | b'|' | 0xef)),
            Some(_) => self.opens(at),
        }
    }

    /// Returns whether what is left on the line behind `end`, where a value in quotes ends, is prose:
    /// neither a pair of whatever name, nor another value.
    fn is_prose(&self, end: usize) -> bool {
        let source = self.source;
        let at = source.skip(end, |it| matches!(it, b' ' | b'\t' | b',' | b';' | b'`' | b'*'));
        let is_value = matches!(source.byte(at), Some(b'"' | b'\'' | b'{' | b'['));
        !is_value && self.pair_ahead(end, |_| true).is_none()
    }

    /// Returns the place of a pair of the tool that prose behind `end` has, on the same line or at the
    /// beginning of the next one, up to the next call.
    pub(super) fn ahead(&self, end: usize) -> Option<usize> {
        if end <= self.clear.get() || end == self.begun.get() || self.closes_code(end) {
            return None;
        }
        let pair = self.pair_ahead(end, |name| self.may_have(name));
        if pair.is_none() {
            self.clear.set(end);
        }
        pair
    }

    /// Returns whether what `end` stands before closes code that the call is in: what follows it is
    /// none of the call.
    fn closes_code(&self, end: usize) -> bool {
        self.source.byte(end) == Some(b'`')
            && self.source.slice(self.start..end).matches('`').count().is_multiple_of(2)
    }

    fn pair_ahead(&self, end: usize, has: impl Fn(&str) -> bool) -> Option<usize> {
        let source = self.source;
        let has_key = |at: usize| self.key_at(at).is_some_and(|it| has(it.name));
        let mut at = end;
        let mut before = None;
        loop {
            let first = source.byte(at)?;
            match first {
                b'\n' => {
                    let line = source.skip_blanks(at + 1);
                    let item = source.skip(line, |it| matches!(it, b'-' | b'*' | b'+'));
                    let item = marker::bullet_end(source, item).unwrap_or(item);
                    let key = source.skip(source.skip_blanks(item), is_mark);
                    return has_key(key).then_some(key);
                }
                _ if first.is_ascii_alphanumeric() || matches!(first, b'_' | b'$' | b'-') => {
                    let start = source.skip(at, |it| it == b'-');
                    let stop = source.name_end(start).max(at + 1);
                    let is_signed = first == b'$' || self.is_signed(stop);
                    if is_signed && before.is_none_or(may_precede) && has_key(start) {
                        return Some(start);
                    }
                    if self.begins(start, stop) || self.opens(start) {
                        return None;
                    }
                    at = stop;
                    before = Some(b'a');
                }
                // What a closing tag says is no pair.
                b'<' if source.byte(at + 1) == Some(b'/') => {
                    at = source.skip(at + 1, |it| !matches!(it, b'<' | b'>' | b'\n'));
                    before = Some(b'<');
                }
                _ => {
                    at += 1;
                    before = Some(first);
                }
            }
        }
    }

    /// Returns whether the sign of a value is behind a name that ends at `end`.
    fn is_signed(&self, end: usize) -> bool {
        let source = self.source;
        match source.byte(end) {
            Some(b'=' | b':' | b'$') => true,
            Some(b' ' | b'\t' | b'`' | b'*') => {
                matches!(source.byte(source.skip_marks(end)), Some(b'=' | b':'))
            }
            _ => false,
        }
    }

    /// Returns whether a loose call begins with the word that is `start..end`.
    pub(super) fn begins(&self, start: usize, end: usize) -> bool {
        let Some(reading) = self.reading else { return false };
        if self.source.byte(end) == Some(b'(') {
            return reading.tool(self.source.slice(start..end)).is_some();
        }
        let is_first = |it: u8| matches!(it | 0x20, b'u' | b'c' | b'r' | b'i' | b'e');
        let is_verb = end - start <= VERB_BYTES
            && self.source.byte(start).is_some_and(is_first)
            && natural::is_verb(self.source.slice(start..end));
        is_verb && natural::begins(reading, end)
    }

    /// Returns whether another explicit call begins at `at`.
    pub(super) fn opens(&self, at: usize) -> bool {
        let Some(reading) = self.reading else { return false };
        if !matches!(self.source.byte(at), Some(b't' | b'T')) {
            return false;
        }
        let Some((marked, true)) = marker::tool(self.source, at) else { return false };
        let name = self.source.skip_marks(marked);
        reading.tool(self.source.slice(name..self.source.name_end(name))).is_some()
    }
}

/// Returns whether a name may begin behind a byte: not in the middle of an address or an expression.
fn may_precede(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte >= 0x80 || b"([{\"'`*,;|".contains(&byte)
}
