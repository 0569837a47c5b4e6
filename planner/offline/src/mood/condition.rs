//! What is to be done only if something holds.

use std::ops::Range;

use super::{Excuse, Mood, Reader};

impl Reader<'_> {
    /// Reads a word that begins a condition.
    pub(super) fn condition(
        &self,
        at: usize,
        to: usize,
        is_head: bool,
    ) -> Option<(Mood, Excuse, Option<Range<usize>>)> {
        let (word, next) = (self.word(at), self.word(at + 1));
        // `check whether …`, `assuming …`: what to look at, or with.
        let is_asked = word == "whether" || word == "if" && self.asks(at);
        if is_asked || word == "assuming" {
            return Some((Mood::Given, Excuse::Nothing, None));
        }
        let is_if = matches!(
            word,
            "if" | "unless"
                | "until"
                | "till"
                | "whenever"
                | "provided"
                | "providing"
                | "otherwise"
        );
        let is_phrase = matches!(
            (word, next),
            ("as" | "so", "long")
                | ("in", "case")
                | ("or", "else")
                | ("depending", "on")
                | ("only", "when")
        );
        let is_somebody = matches!(
            next,
            "i" | "he"
                | "she"
                | "they"
                | "someone"
                | "somebody"
                | "everyone"
                | "everybody"
                | "it"
                | "we"
                | "you"
        );
        // `after you create …` is an order of clauses; `after I approve` waits for somebody.
        let is_event = matches!(next, "i" | "we" | "you") && self.is_verb(at + 2);
        let is_after =
            matches!(word, "after" | "before" | "once" | "while") && is_somebody && !is_event;
        let is_when =
            word == "when" && !(is_head && at + 1 == to) && !self.tokens.get(at + 1)?.is_mark(":");
        (is_if || is_phrase || is_after || is_when).then_some((
            Mood::Conditional,
            Excuse::Nothing,
            None,
        ))
    }

    /// Returns whether the words before an `if` make it a `whether`: `check if`, `tell me if`.
    fn asks(&self, at: usize) -> bool {
        let back = |len: usize| at.checked_sub(len).map_or("", |it| self.word(it));
        matches!(
            back(1),
            "check" | "see" | "know" | "determine" | "verify" | "wonder" | "wondering" | "ask"
        ) || matches!(
            (back(2), back(1)),
            ("tell" | "inform", "me" | "us") | ("find" | "figure", "out")
        )
    }
}
