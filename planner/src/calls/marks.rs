//! Marks of Markdown around pairs, which belong to neither name nor value.

use std::ops::Range;

use super::pairs::{Key, Reader, is_mark, is_wordy};

impl Reader<'_, '_> {
    /// Returns the place that marks of Markdown close around the pair of `key`.
    pub(super) fn span(&self, key: &Key<'_>) -> Option<Range<usize>> {
        let source = self.source;
        let mark =
            source.byte(key.at.checked_sub(1)?).filter(|it| is_mark(*it) && !key.is_closed)?;
        let before = (1..=3)
            .take_while(|n| key.at.checked_sub(*n).is_some_and(|at| source.byte(at) == Some(mark)));
        let width = before.count();
        let mut at = key.value;
        loop {
            at = source.skip(at, |it| it != mark && it != b'\n');
            let end = source.skip(at, |it| it == mark);
            if end == at {
                return None;
            }
            if end - at >= width && (mark == b'`' || self.closes(at, end)) {
                return Some(key.at..end - width);
            }
            let is_opening =
                !source.byte(at - 1).is_some_and(is_wordy) && source.key_end(end).is_some();
            if mark == b'`' || is_opening {
                return None;
            }
            at = end;
        }
    }

    /// Returns whether stars that are `at..end` may close: something is before them, and no word behind.
    fn closes(&self, at: usize, end: usize) -> bool {
        let source = self.source;
        let is_end = |at| source.byte(at).is_none_or(|it| it.is_ascii_whitespace());
        !is_end(at - 1)
            && (is_end(end)
                || matches!(source.byte(end), Some(b',' | b';' | b':' | b')' | b'!' | b'?'))
                || source.byte(end) == Some(b'.') && is_end(end + 1))
    }

    /// Drops what closes behind a value and was opened before the call: `**use … with path=a**`.
    pub(super) fn without_marks<'t>(&self, text: &'t str) -> &'t str {
        let open = self.start.checked_sub(1).and_then(|at| self.source.byte(at));
        let close = match open {
            Some(b'(') if !text.contains('(') => ')',
            Some(mark @ (b'`' | b'*' | b'"' | b'\'')) => char::from(mark),
            _ => return text,
        };
        let width = (1..=3).take_while(|n| {
            let before = self.start.checked_sub(*n).and_then(|at| self.source.byte(at));
            before == open
        });
        let mut rest = text;
        for _ in width {
            let Some(shorter) = rest.strip_suffix(close) else { return text };
            rest = shorter;
        }
        rest
    }
}
