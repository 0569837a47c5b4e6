//! Colours, where the stream takes them.
//!
//! What is painted is marked with characters that Unicode keeps for use within programs. Only where
//! the text leaves do marks become colours, and whatever else would steer a terminal becomes
//! visible: nothing that somebody else said can pass for a mark, because it was made plain before.

use super::plain;

/// Ends what is painted.
const END: char = '\u{fdd0}';
const BOLD: char = '\u{fdd1}';
const DIM: char = '\u{fdd2}';
const GREEN: char = '\u{fdd3}';
const RED: char = '\u{fdd4}';
const YELLOW: char = '\u{fdd5}';
const CYAN: char = '\u{fdd6}';

/// Whether to colour. `NO_COLOR`, `TERM=dumb` and pipes say no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paint {
    is_on: bool,
}

impl Paint {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on }
    }

    pub(super) fn bold(self, text: impl AsRef<str>) -> String {
        self.paint(BOLD, text.as_ref())
    }

    pub(super) fn dim(self, text: impl AsRef<str>) -> String {
        self.paint(DIM, text.as_ref())
    }

    pub(super) fn green(self, text: impl AsRef<str>) -> String {
        self.paint(GREEN, text.as_ref())
    }

    pub(super) fn red(self, text: impl AsRef<str>) -> String {
        self.paint(RED, text.as_ref())
    }

    pub(super) fn yellow(self, text: impl AsRef<str>) -> String {
        self.paint(YELLOW, text.as_ref())
    }

    pub(super) fn cyan(self, text: impl AsRef<str>) -> String {
        self.paint(CYAN, text.as_ref())
    }

    fn paint(self, mark: char, text: &str) -> String {
        if self.is_on { format!("{mark}{text}{END}") } else { text.into() }
    }

    /// Writes a text as the terminal gets it: marks as colours, everything else plain.
    pub(super) fn drawn(self, text: &str) -> String {
        let mut drawn = String::with_capacity(text.len());
        for (before, it, after) in plain::around(text) {
            match code(it).filter(|_| self.is_on) {
                Some(code) => drawn.push_str(code),
                None if matches!(it, '\n' | '\t') => drawn.push(it),
                None => plain::push(&mut drawn, (before, it, after)),
            }
        }
        drawn
    }
}

/// Returns how many columns a painted text takes.
pub(super) fn width(text: &str) -> usize {
    if !text.chars().any(|it| code(it).is_some()) {
        return console::measure_text_width(text);
    }
    let bare: String = text.chars().filter(|it| code(*it).is_none()).collect();
    console::measure_text_width(&bare)
}

/// Cuts a painted text that takes more columns than there are.
pub(super) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let (mut cut, mut taken, mut is_painted) = (String::new(), 0, false);
    for it in text.chars() {
        if code(it).is_some() {
            is_painted = it != END;
        } else {
            taken += console::measure_text_width(it.encode_utf8(&mut [0; 4]));
            if taken >= columns {
                break;
            }
        }
        cut.push(it);
    }
    cut.push('…');
    if is_painted {
        cut.push(END);
    }
    cut
}

fn code(mark: char) -> Option<&'static str> {
    Some(match mark {
        END => "\u{1b}[0m",
        BOLD => "\u{1b}[1m",
        DIM => "\u{1b}[2m",
        GREEN => "\u{1b}[32m",
        RED => "\u{1b}[31m\u{1b}[1m",
        YELLOW => "\u{1b}[33m\u{1b}[1m",
        CYAN => "\u{1b}[36m",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_colours_reach_a_terminal() {
        let paint = Paint::new(true);
        let text = format!("{} \u{1b}[31mx\u{9b}\n", paint.red("no"));
        assert_eq!(paint.drawn(&text), "\u{1b}[31m\u{1b}[1mno\u{1b}[0m ␛[31mx\\u{9b}\n");
        assert_eq!(width(&paint.red("日本")), 4);
        assert_eq!(cut(&paint.red("abcdef"), 4), paint.red("abc…"));
        assert_eq!((cut("日本語", 5), cut("abcd", 4)), ("日本…".to_owned(), "abcd".to_owned()));
        let foreign = paint.red(plain::line("\u{fdd0}x"));
        assert_eq!(paint.drawn(&foreign), "\u{1b}[31m\u{1b}[1m\\u{fdd0}x\u{1b}[0m");
    }

    #[test]
    fn without_colours_marks_are_foreign() {
        let paint = Paint::new(false);
        assert_eq!(paint.drawn(&format!("{}\u{fdd3}", paint.red("no"))), "no\\u{fdd3}");
    }
}
