//! The words by which moods are told: who, which questions, what is polite, what forbids.

use crate::words;

/// Who may be said to do something.
pub(super) const SUBJECTS: &[&str] = &[
    "i",
    "we",
    "he",
    "she",
    "they",
    "you",
    "it",
    "someone",
    "somebody",
    "anyone",
    "anybody",
    "everyone",
    "everybody",
    "nobody",
];
/// Words that questions begin with, and that are no orders.
pub(super) const AUXILIARIES: &[&str] = &[
    "did", "does", "is", "are", "was", "were", "has", "had", "should", "shall", "may", "might",
    "can", "could", "would", "will", "am", "isn't", "aren't", "wasn't", "weren't", "didn't",
    "doesn't", "hasn't", "haven't",
];
/// The same, that no subject needs to follow.
pub(super) const QUESTIONS: &[&str] = &[
    "who", "what", "what's", "whats", "which", "where", "why", "how", "whose", "who's", "where's",
    "how's", "when's",
];

/// Returns whether a word forbids what follows it.
pub(super) fn is_forbidding(word: &str) -> bool {
    word.ends_with("n't") || matches!(word, "dont" | "doesnt" | "cannot" | "wont" | "never")
}

/// Returns whether a word is one that `not` may follow to deny a verb.
pub(super) fn is_modal(word: &str) -> bool {
    const MODALS: &[&str] =
        &["do", "does", "did", "should", "must", "can", "could", "would", "will", "may", "shall"];
    MODALS.contains(&word)
}

/// Returns whether a word only makes an order polite or numbers it.
pub(super) fn is_polite(word: &str) -> bool {
    const POLITE: &[&str] = &[
        "please",
        "kindly",
        "just",
        "now",
        "also",
        "then",
        "next",
        "finally",
        "first",
        "firstly",
        "second",
        "secondly",
        "third",
        "lastly",
        "afterwards",
        "afterward",
        "later",
        "hey",
        "hello",
        "hi",
        "ok",
        "okay",
        "so",
        "and",
        "but",
        "or",
        "thanks",
        "go",
        "ahead",
        "help",
        "me",
        "after",
        "that",
        "step",
    ];
    !word.is_empty() && POLITE.contains(&word) && !words::is_pronoun(word)
}
