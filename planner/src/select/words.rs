//! Words of names and sentences: in lower case, stemmed, and without stop words.

use std::{collections::BTreeSet, sync::LazyLock};

use rust_stemmers::{Algorithm, Stemmer};

/// Maximum number of bytes of a text that are split into words.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Maximum length of a word in bytes. Longer words are left out, because they are data.
const MAX_WORD_BYTES: usize = 64;

const STOP_WORD_LIST: &str = "\
    a about all also an and any are as at be been being but by can could did do does for from had has \
    have he help her here his how i if in into is it its let like may me might must my need no not of \
    on or our please shall she should so some than that the their them then there these they this \
    those to us want was we were what when where which who why will with would you your";

static STOP_WORDS: LazyLock<BTreeSet<&str>> =
    LazyLock::new(|| STOP_WORD_LIST.split_whitespace().collect());
static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

pub(crate) fn stem_words(text: &str) -> Vec<String> {
    let words = split_words(&text[..text.floor_char_boundary(MAX_TEXT_BYTES)]);
    let words = words.into_iter().filter(|word| !STOP_WORDS.contains(word.as_str()));
    words.map(|word| STEMMER.stem(&word).into_owned()).collect()
}

/// Splits `camelCase`, `snake_case`, `HTTPServer2` and sentences into lower-case words. In scripts
/// without spaces, each character is a word.
pub(crate) fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = CharKind::Other;
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let kind = CharKind::of(char);
        let after = chars.peek().copied().map_or(CharKind::Other, CharKind::of);
        let begins = match (before, kind) {
            (CharKind::Upper, CharKind::Upper) => after == CharKind::Lower,
            (CharKind::Lower | CharKind::Digit, CharKind::Upper)
            | (CharKind::Lower | CharKind::Upper, CharKind::Digit)
            | (_, CharKind::Other | CharKind::WholeWord)
            | (CharKind::WholeWord, _) => true,
            _ => false,
        };
        if begins {
            keep_word(&mut words, &mut word);
        }
        if kind != CharKind::Other {
            word.extend(char.to_lowercase());
        }
        before = kind;
    }
    keep_word(&mut words, &mut word);
    words
}

fn keep_word(words: &mut Vec<String>, word: &mut String) {
    let word = std::mem::take(word);
    if (1..=MAX_WORD_BYTES).contains(&word.len()) {
        words.push(word);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CharKind {
    Lower,
    Upper,
    Digit,
    WholeWord,
    Other,
}

impl CharKind {
    fn of(char: char) -> Self {
        match char {
            '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' => {
                Self::WholeWord
            }
            _ if char.is_uppercase() => Self::Upper,
            _ if char.is_alphabetic() => Self::Lower,
            _ if char.is_numeric() => Self::Digit,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sentences_have_the_same_stemmed_words() {
        for (text, expected) in [
            ("createBlogPost", "creat blog post"),
            ("list_pets-by.status", "list pet status"),
            ("getHTTPServer2", "get http server 2"),
            ("Could you please create two blog posts?", "creat two blog post"),
            ("Über alles", "über all"),
            ("天気は", "天 気 は"),
            ("what is it?", ""),
            ("", ""),
        ] {
            assert_eq!(stem_words(text).join(" "), expected, "{text}");
        }
    }

    #[test]
    fn long_data_is_not_a_word() {
        assert!(stem_words(&"x".repeat(MAX_WORD_BYTES + 1)).is_empty());
        assert_eq!(stem_words(&"word ".repeat(MAX_TEXT_BYTES)).len(), MAX_TEXT_BYTES / 5 + 1);
    }
}
