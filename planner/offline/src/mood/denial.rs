//! What is not to be done.

use std::ops::Range;

use super::{
    super::token::Kind,
    Excuse, FLAG, Mood, Reader,
    lists::{is_forbidding, is_modal},
};

impl Reader<'_> {
    /// Reads a word that denies what is said with it.
    pub(super) fn denial(
        &self,
        at: usize,
        to: usize,
        is_head: bool,
    ) -> Option<(Mood, Excuse, Option<Range<usize>>)> {
        let (word, next) = (self.word(at), self.word(at + 1));
        if word.is_empty() {
            return None;
        }
        let before = at.checked_sub(1).map_or("", |it| self.word(it));
        let (begin, _) = if is_head { self.politeness(at) } else { (at, false) };
        let is_forbidden =
            is_forbidding(word) || word == "not" && (is_modal(before) || next == "to");
        if is_forbidden {
            let verb = if word == "not" && next == "to" { at + 2 } else { at + 1 };
            let wants = matches!(self.word(verb), "want" | "wish" | "need" | "like");
            let start = if word == "not" && is_modal(before) { at - 1 } else { at };
            let start = if wants && start > 0 { start - 1 } else { start };
            let cut = (is_head || wants || before == "but" || self.is_verb(verb))
                .then(|| start..self.clause_end(at + 1, to));
            return Some((Mood::Denied, Excuse::Nothing, cut));
        }
        let is_two = matches!(
            (word, next),
            ("other" | "rather", "than") | ("instead", "of") | ("apart", "from") | ("but", "not")
        );
        let is_comparison = matches!(
            next,
            "only"
                | "more"
                | "less"
                | "later"
                | "earlier"
                | "fewer"
                | "longer"
                | "exceeding"
                | "over"
                | "under"
        );
        let is_not = word == "not" && before != "but" && !is_comparison;
        let is_without = matches!(word, "without" | "except" | "excluding" | "neither" | "nor");
        let is_no = word == "no" && !is_comparison && self.is_no(at);
        if is_two || is_not || is_without || is_no {
            let behind = self.tokens[at + 1..to.max(at + 1)].iter();
            let stems: Vec<String> = behind
                .filter(|it| it.kind == Kind::Word)
                .take(FLAG)
                .map(|it| it.stem.clone())
                .collect();
            let is_tail = is_two || matches!(word, "without" | "except" | "excluding") || is_head;
            let cut = (is_tail && !is_no).then(|| at..self.clause_end(at + 1, to));
            let excuse = if word == "without" { Excuse::Lack(stems) } else { Excuse::Flag(stems) };
            return Some((Mood::Denied, excuse, cut));
        }
        is_head.then(|| self.ending(begin)).flatten()
    }

    /// Reads a verb that ends or undoes something.
    fn ending(&self, at: usize) -> Option<(Mood, Excuse, Option<Range<usize>>)> {
        const ENDS: &str = "undo revert reverse rollback cancel stop avoid prevent refrain abort skip forget ignore halt";
        let begin = self.tokens.get(at).filter(|it| it.kind == Kind::Word)?;
        let is_end = ENDS.split_whitespace().any(|it| it == begin.lower);
        is_end.then(|| (Mood::Denied, Excuse::Verb(begin.stem.clone()), None))
    }

    /// Returns whether a `no` denies what follows: not `No. 5`, `The No Club`, `refundable: no`.
    fn is_no(&self, at: usize) -> bool {
        let token = &self.tokens[at];
        let is_title = token.is_capitalised() && at > 0;
        let is_value =
            self.tokens.get(at + 1).is_none_or(|it| it.kind != Kind::Word || it.is_separator());
        let is_told = at
            .checked_sub(1)
            .map(|it| &self.tokens[it])
            .is_some_and(|it| it.is_mark(":") || it.is_mark("="));
        !is_title && !is_value && !is_told
    }
}
