//! Which words are a text that somebody is to read, and say nothing about what is to be done:
//! `saying …`, `titled …`, `with body …`.

use super::{
    clause,
    token::{Kind, Token},
};

/// Which words of a query are such a text.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    inside: Vec<bool>,
}

/// How far the text goes that a word announces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    None,
    /// To the next comma or `then`: `titled …`, `about …`.
    Short,
    /// To the next comma or `then` within the sentence, and on over what is no order: `saying …`.
    Long,
}

impl Texts {
    /// Reads a query.
    pub(super) fn read(tokens: &[Token]) -> Self {
        let mut inside = vec![false; tokens.len()];
        let mut reach = Reach::None;
        for at in 0..tokens.len() {
            let token = &tokens[at];
            let announced = announces(tokens, at);
            if announced != Reach::None && reach != Reach::Long {
                reach = announced;
                continue;
            }
            let before = at.checked_sub(1).map(|it| &tokens[it]);
            let is_next = before.is_some_and(|_| announces(tokens, at - 1) != Reach::None)
                || before.is_some_and(|it| it.is_mark(":") || it.is_mark("="));
            let is_sentence = [".", "!", "?", "\n"].iter().any(|it| token.is_mark(it));
            let is_over = token.is_mark(",")
                || token.is_mark(";")
                || ["then", "but"].iter().any(|it| token.is(it))
                || is_sentence && reach == Reach::Short
                || token.kind == Kind::Email
                || reach == Reach::Short
                    && ["if", "unless", "until", "whether"].iter().any(|it| token.is(it));
            if is_over && !is_next {
                // The question mark of `saying how are you?` belongs to the text.
                inside[at] = reach != Reach::None && token.is_mark("?");
                reach = Reach::None;
                continue;
            }
            inside[at] = reach != Reach::None;
        }
        Self { inside }
    }

    /// Returns whether a word is part of a text.
    pub(super) fn is_inside(&self, at: usize) -> bool {
        self.inside.get(at).copied().unwrap_or(false)
    }
}

/// Returns what text begins behind a word.
fn announces(tokens: &[Token], at: usize) -> Reach {
    let token = &tokens[at];
    if token.kind != Kind::Word {
        return Reach::None;
    }
    if matches!(token.lower.as_str(), "saying" | "says" | "say" | "stating" | "reading" | "reads") {
        return Reach::Long;
    }
    let before = at.checked_sub(1).map(|it| &tokens[it]);
    let is_led = before.is_some_and(|it| {
        it.is_mark(",") || ["with", "and", "whose", "its"].iter().any(|word| it.is(word))
    });
    let is_marked =
        tokens.get(at + 1).is_some_and(|it| it.is_mark(":") || it.is_mark("=") || it.is("is"));
    let is_content = clause::is_content_cue(token) && token.lower != "about";
    if is_content && (is_led || is_marked) {
        return Reach::Long;
    }
    let is_participle =
        matches!(token.lower.as_str(), "titled" | "entitled" | "called" | "named" | "captioned");
    let is_title = matches!(token.lower.as_str(), "title" | "subject" | "name" | "caption")
        && (is_led || is_marked);
    if is_participle || is_title || token.lower == "about" { Reach::Short } else { Reach::None }
}
