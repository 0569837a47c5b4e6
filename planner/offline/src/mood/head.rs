//! How a sentence begins: politely, as a question, or as a story.

use std::ops::Range;

use super::{
    super::{token::Kind, words},
    Excuse, Mood, POLITENESS, Reader,
    lists::{AUXILIARIES, QUESTIONS, SUBJECTS, is_polite},
};

impl Reader<'_> {
    /// Skips what makes an order polite, and returns where the order itself begins and whether
    /// words such as `could you` say that it is one.
    pub(super) fn politeness(&self, at: usize) -> (usize, bool) {
        let (begin, mut at, mut is_told) = (at, at, false);
        loop {
            if at - begin >= POLITENESS {
                return (at, is_told);
            }
            let (word, next) = (self.word(at), self.word(at + 1));
            let wants = matches!(next, "want" | "need" | "wish" | "like" | "love");
            let would =
                matches!(next, "would" | "'d") && matches!(self.word(at + 2), "like" | "love");
            let len = match word {
                "can" | "could" | "would" | "will" if next == "you" => 2,
                "i" | "we" if would => 3,
                "i" | "we" | "i'd" | "we'd" if wants => 2,
                "let" if next == "us" => 2,
                "let's" | "lets" => 1,
                _ => 0,
            };
            if len > 0 {
                is_told = true;
                at += len;
                continue;
            }
            let is_told_to = is_told && matches!(word, "to" | "you" | "mind" | "us");
            let is_mark = self.tokens.get(at).is_some_and(|it| {
                it.kind == Kind::Mark && !matches!(it.value.as_str(), "?" | "!" | ".")
                    || it.kind == Kind::Number
                        && self
                            .tokens
                            .get(at + 1)
                            .is_some_and(|it| it.is_mark(".") || it.is_mark(")"))
            });
            if !is_polite(word) && !is_told_to && !is_mark {
                return (at, is_told);
            }
            at += 1;
        }
    }

    /// Reads the beginning of a sentence, or of a part of it.
    pub(super) fn head(
        &self,
        at: usize,
        to: usize,
        is_first: bool,
        is_order: &mut bool,
    ) -> Option<(Mood, Excuse, Option<Range<usize>>)> {
        let (begin, is_told) = self.politeness(at);
        if begin >= to {
            return None;
        }
        let (word, next) = (self.word(begin), self.word(begin + 1));
        *is_order |= is_first && is_told;
        if is_told {
            return None;
        }
        let is_subject = |word: &str| SUBJECTS.contains(&word);
        let asked = Some((Mood::Asked, Excuse::Nothing, None));
        let told = Some((Mood::Told, Excuse::Nothing, None));
        let is_auxiliary = AUXILIARIES.contains(&word);
        // What comes later, or once something is done, is not to be done now.
        if at == 0 && matches!(self.word(at), "later" | "once") {
            return Some((Mood::Conditional, Excuse::Nothing, None));
        }
        if self.is_telling(begin, to) {
            return told;
        }
        if is_auxiliary && (is_first || is_subject(next)) {
            return asked;
        }
        if matches!(word, "do" | "have") && is_subject(next) {
            return asked;
        }
        if is_first && QUESTIONS.contains(&word) {
            return asked;
        }
        if matches!(word, "yesterday" | "earlier" | "previously" | "recently" | "already")
            && is_first
        {
            return told;
        }
        if is_subject(word) && (is_first || self.is_past(begin + 1)) {
            return told;
        }
        let contracted = ["'m", "'ve", "'re", "'ll", "'d"].iter().any(|it| word.ends_with(it));
        if contracted && is_first {
            return told;
        }
        let is_somebody = self.tokens[begin].is_capitalised() && !self.is_verb(begin);
        let is_passive = self.word(begin + 2) == "by";
        (is_first && is_somebody && self.is_past(begin + 1) && !is_passive)
            .then_some(told)
            .flatten()
    }

    /// Returns whether words that a clause may leave out tell something: `plus I have deleted …`, `by
    /// now you should …`.
    fn is_telling(&self, begin: usize, to: usize) -> bool {
        let most = to.min(begin + POLITENESS);
        let is_left =
            |at: &usize| self.tokens[*at].kind != Kind::Word || words::is_filler(self.word(*at));
        let behind = (begin..most).find(|it| !is_left(it)).unwrap_or(most);
        let tells = |at: usize| self.is_past(at) || matches!(self.word(at), "should" | "must");
        (begin..behind).any(|at| SUBJECTS.contains(&self.word(at)))
            && (begin..to.min(behind + 1)).any(tells)
    }

    /// Returns whether a verb at `at` says what was done: `deleted`, `have deleted`.
    fn is_past(&self, at: usize) -> bool {
        let word = self.word(at);
        let is_past = word.ends_with("ed") && self.is_verb(at)
            || matches!(
                word,
                "sent" | "made" | "wrote" | "built" | "put" | "gave" | "told" | "said"
            );
        is_past || matches!(word, "have" | "has" | "had" | "was" | "were" | "already")
    }
}
