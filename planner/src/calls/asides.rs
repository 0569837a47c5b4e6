//! Words by which a sentence goes on behind a value, and does not go on with it.

/// Those words.
const WORDS: [&str; 96] = [
    "a",
    "after",
    "again",
    "against",
    "all",
    "also",
    "an",
    "and",
    "as",
    "at",
    "because",
    "before",
    "but",
    "by",
    "can",
    "containing",
    "directly",
    "finally",
    "first",
    "for",
    "from",
    "he",
    "here",
    "how",
    "i",
    "if",
    "immediately",
    "in",
    "including",
    "inside",
    "instead",
    "into",
    "is",
    "it",
    "its",
    "just",
    "later",
    "let",
    "listing",
    "looking",
    "my",
    "next",
    "no",
    "not",
    "now",
    "of",
    "on",
    "once",
    "only",
    "onto",
    "or",
    "our",
    "over",
    "please",
    "recursively",
    "returning",
    "searching",
    "she",
    "should",
    "showing",
    "since",
    "so",
    "that",
    "the",
    "their",
    "then",
    "there",
    "these",
    "they",
    "this",
    "those",
    "to",
    "too",
    "under",
    "unless",
    "until",
    "using",
    "via",
    "was",
    "we",
    "were",
    "what",
    "when",
    "where",
    "whether",
    "which",
    "while",
    "who",
    "whose",
    "why",
    "will",
    "with",
    "within",
    "without",
    "would",
    "you",
];
/// Those of them behind which nothing is a value any more.
const PROSE: [&str; 8] = ["because", "now", "please", "so", "then", "to", "which", "while"];
/// The longest of them.
const WORD_BYTES: usize = 16;

/// Returns whether a word is one of them, whatever its case and what ends its sentence.
pub(super) fn is_aside(word: &str) -> bool {
    let word = plain(word);
    let mut letters = [0; WORD_BYTES];
    let Some(lower) = letters.get_mut(..word.len()) else { return false };
    lower.copy_from_slice(word.as_bytes());
    lower.make_ascii_lowercase();
    WORDS.binary_search_by(|it| it.as_bytes().cmp(lower)).is_ok()
}

/// Returns whether words are prose all the way: `to find them`, `and then stop`.
pub(super) fn is_prose<'a>(mut words: impl Iterator<Item = &'a str>) -> bool {
    let first = plain(words.next().unwrap_or_default());
    PROSE.iter().any(|it| first.eq_ignore_ascii_case(it))
        || first.eq_ignore_ascii_case("and") && words.next().is_some_and(is_aside)
}

/// Returns a word without what closes its sentence, and what follows an apostrophe.
pub(super) fn plain(word: &str) -> &str {
    let word = word.split(['\'', '’']).next().unwrap_or_default();
    word.trim_end_matches(['.', ',', ':', ';', '!', '?', ')'])
}

#[cfg(test)]
mod tests {
    use super::{WORD_BYTES, WORDS, is_aside};

    #[test]
    fn the_words_are_in_order() {
        assert!(WORDS.is_sorted());
        assert!(WORDS.iter().all(|it| it.len() <= WORD_BYTES && is_aside(it)));
        assert!(is_aside("It's") && is_aside("Then.") && !is_aside("apples") && !is_aside(""));
    }
}
