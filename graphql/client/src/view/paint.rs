//! Colours, for streams that support them. Coloured text contains marks, which are characters that
//! Unicode reserves for use within programs.

use super::plain;

const END: char = '\u{fdd0}';
const BOLD: char = '\u{fdd1}';
const DIM: char = '\u{fdd2}';
const GREEN: char = '\u{fdd3}';
const RED: char = '\u{fdd4}';
const YELLOW: char = '\u{fdd5}';
const CYAN: char = '\u{fdd6}';

/// Colours texts, unless `NO_COLOR`, `TERM=dumb` or a pipe forbids colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint {
    is_on: bool,
}

impl Paint {
    pub fn new(is_on: bool) -> Self {
        Self { is_on }
    }

    pub fn bold(self, text: impl AsRef<str>) -> String {
        self.paint(BOLD, text.as_ref())
    }

    pub fn dim(self, text: impl AsRef<str>) -> String {
        self.paint(DIM, text.as_ref())
    }

    pub fn green(self, text: impl AsRef<str>) -> String {
        self.paint(GREEN, text.as_ref())
    }

    pub fn red(self, text: impl AsRef<str>) -> String {
        self.paint(RED, text.as_ref())
    }

    pub fn yellow(self, text: impl AsRef<str>) -> String {
        self.paint(YELLOW, text.as_ref())
    }

    pub fn cyan(self, text: impl AsRef<str>) -> String {
        self.paint(CYAN, text.as_ref())
    }

    fn paint(self, mark: char, text: &str) -> String {
        if self.is_on { format!("{mark}{text}{END}") } else { text.into() }
    }

    pub fn to_terminal(self, text: &str) -> String {
        let mut drawn = String::with_capacity(text.len());
        for (before, letter, after) in plain::with_neighbours(text) {
            match ansi_code(letter).filter(|_| self.is_on) {
                Some(code) => drawn.push_str(code),
                None if matches!(letter, '\n' | '\t') => drawn.push(letter),
                None => plain::push_escaped(&mut drawn, before, letter, after),
            }
        }
        drawn
    }
}

pub fn text_width(text: &str) -> usize {
    if !text.chars().any(|letter| ansi_code(letter).is_some()) {
        return console::measure_text_width(text);
    }
    let bare: String = text.chars().filter(|letter| ansi_code(*letter).is_none()).collect();
    console::measure_text_width(&bare)
}

pub fn cut_to_width(text: &str, columns: usize) -> String {
    if text_width(text) <= columns {
        return text.to_owned();
    }
    let (mut cut, mut taken, mut is_painted) = (String::new(), 0, false);
    for letter in text.chars() {
        if ansi_code(letter).is_some() {
            is_painted = letter != END;
        } else {
            taken += console::measure_text_width(letter.encode_utf8(&mut [0; 4]));
            if taken >= columns {
                break;
            }
        }
        cut.push(letter);
    }
    cut.push('…');
    if is_painted {
        cut.push(END);
    }
    cut
}

fn ansi_code(mark: char) -> Option<&'static str> {
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
    fn only_fabers_colours_reach_a_terminal() {
        let paint = Paint::new(true);
        let text = format!("{} \u{1b}[31mx\u{9b}\n", paint.red("no"));
        assert_eq!(paint.to_terminal(&text), "\u{1b}[31m\u{1b}[1mno\u{1b}[0m ␛[31mx\\u{9b}\n");
        assert_eq!(text_width(&paint.red("日本")), 4);
        assert_eq!(cut_to_width(&paint.red("abcdef"), 4), paint.red("abc…"));
        assert_eq!(
            (cut_to_width("日本語", 5), cut_to_width("abcd", 4)),
            ("日本…".to_owned(), "abcd".to_owned())
        );
        let foreign = paint.red(plain::safe_line("\u{fdd0}x"));
        assert_eq!(paint.to_terminal(&foreign), "\u{1b}[31m\u{1b}[1m\\u{fdd0}x\u{1b}[0m");
    }

    #[test]
    fn colour_marks_are_escaped_without_colours() {
        let paint = Paint::new(false);
        assert_eq!(paint.to_terminal(&format!("{}\u{fdd3}", paint.red("no"))), "no\\u{fdd3}");
    }
}
