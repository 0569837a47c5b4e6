//! Words that mean a value of an earlier step: `it`, `its title`, `the order id`, `by Alice`.

use std::ops::Range;

use super::{Candidate, Filler};
use crate::{
    memory::{RecalledValue, WantedValue},
    token::{Token, TokenKind},
    tool::{Slot, SlotKind},
};

#[derive(Clone, Copy, Debug)]
struct Phrase<'a> {
    /// The noun of the phrase, or `None` for a bare pronoun and for phrases such as `the latest`.
    noun: Option<&'a str>,
    place: usize,
    end: usize,
}

impl Filler<'_> {
    pub(super) fn add_references(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        if self.fill_context.memory.steps.is_empty() {
            return;
        }
        for (place, token) in self.tokens.iter().enumerate() {
            if token.kind != TokenKind::Word || self.verb.contains(&place) {
                continue;
            }
            if let Some(candidate) = self.named_step(at, slot, place) {
                candidates.push(candidate);
            } else if self.lexicon.is_pronoun(token) || token.is("the") || self.joins_field(place) {
                let phrases = self.phrases(place);
                let possible = phrases.iter().filter(|phrase| self.can_mean(phrase, slot));
                candidates.extend(possible.filter_map(|phrase| self.resolve(at, slot, phrase)));
            }
        }
    }

    /// Returns whether `and` joins a second field: `the same title and body`.
    fn joins_field(&self, place: usize) -> bool {
        let is_pronoun = |at: usize| self.lexicon.is_pronoun(&self.tokens[at]);
        self.is_at(place, &["and"]) && place >= 2 && is_pronoun(place - 2)
    }

    /// Reads `by Alice` as the id that a step returns, if one of the step's parameters is `Alice`.
    fn named_step(&self, at: usize, slot: &Slot, place: usize) -> Option<Candidate> {
        let token = &self.tokens[place];
        if slot.kind != SlotKind::Id || !token.is_capitalised() {
            return None;
        }
        let found =
            self.fill_context.memory.named(token.without_possessive(), &self.wanted(slot, None))?;
        let start = self.context(place, slot).start;
        let score = self.weights.reference + self.weights.cue;
        Some(self.make_linked_candidate(at, found, &(start..place + 1), score))
    }

    fn wanted<'a>(&'a self, slot: &'a Slot, noun: Option<&'a str>) -> WantedValue<'a> {
        WantedValue {
            slot,
            tool: self.tool,
            noun,
            tools: self.fill_context.tools,
            lexicon: self.lexicon,
        }
    }

    /// Returns the phrases that begin at `place`, the longest first. The word there is a pronoun,
    /// `the`, or an `and` that joins a second field.
    fn phrases(&self, place: usize) -> Vec<Phrase<'_>> {
        let is_rank = |token: &&Token| self.lexicon.ranks.has(&token.lower);
        let head = place + 1 + self.tokens[place + 1..].iter().take_while(is_rank).count();
        let is_content = |token: &&Token| self.lexicon.is_content(token);
        let noun = self.tokens.get(head).filter(is_content);
        // In `the order id`, the last word names a field of the order, unless it announces another
        // value.
        let is_field = |field: &&Token| {
            is_content(field) && (!self.is_cue_of_text(field) || self.is_at(head + 2, &["as"]))
        };
        let field = noun.and(self.tokens.get(head + 1)).filter(is_field);
        let mut phrases: Vec<Phrase<'_>> = Vec::new();
        for (token, end) in [(field, head + 2), (noun, head + 1)] {
            phrases.extend(token.map(|token| Phrase { noun: Some(&token.stem), place, end }));
        }
        if self.lexicon.is_pronoun(&self.tokens[place]) {
            phrases.push(Phrase { noun: None, place, end: place + 1 });
        } else if noun.is_none() && head > place + 1 {
            phrases.push(Phrase { noun: None, place, end: head });
        }
        phrases
    }

    fn can_mean(&self, phrase: &Phrase<'_>, slot: &Slot) -> bool {
        let Some(noun) = phrase.noun else { return self.can_mean_pronoun(phrase.place, slot) };
        let is_own = slot.words.iter().any(|own| self.lexicon.is_same_noun(own, noun));
        // Optional names, optional queries, owners and repositories are not filled from a field of
        // another object.
        let is_loose = matches!(slot.kind, SlotKind::Word | SlotKind::Query) && !slot.is_required;
        let is_foreign = (is_loose || slot.is_slashed) && !is_own;
        !is_foreign
    }

    fn can_mean_pronoun(&self, place: usize, slot: &Slot) -> bool {
        let token = &self.tokens[place];
        let is_person = token.is_any(&["him", "her", "his", "them"]);
        let is_place = token.is("there");
        // After several results, a pronoun can only mean a path.
        if self.fill_context.has_several_results && slot.kind != SlotKind::Path {
            return false;
        }
        match slot.kind {
            SlotKind::Id => true,
            SlotKind::Email => slot.is_required || is_person || is_place,
            SlotKind::Text => slot.is_required && !is_place && (!is_person || token.is("them")),
            SlotKind::Title => false,
            _ => slot.is_required || is_place,
        }
    }

    fn resolve(&self, at: usize, slot: &Slot, phrase: &Phrase<'_>) -> Option<Candidate> {
        let weights = self.weights;
        let context = self.context(phrase.place, slot);
        let tokens = context.start..phrase.end;
        let wanted = self.wanted(slot, phrase.noun);
        let is_field = matches!(slot.kind, SlotKind::Text | SlotKind::Title)
            || slot.kind == SlotKind::Word && phrase.noun.is_some();
        if !is_field {
            let found = self.fill_context.memory.value_for(&wanted)?;
            let score = weights.reference + context.score;
            return Some(self.make_linked_candidate(at, found, &tokens, score));
        }
        let found = self.fill_context.memory.text(&wanted)?;
        let is_own = phrase
            .noun
            .is_some_and(|noun| slot.words.iter().any(|own| self.lexicon.is_same_noun(own, noun)));
        // `its author` does not mean a title.
        if slot.kind == SlotKind::Title && phrase.noun.is_some() && !is_own {
            return None;
        }
        let score =
            weights.reference + context.score.max(0.0) + if is_own { weights.cue } else { 0.0 };
        Some(self.make_linked_candidate(at, found, &tokens, score))
    }

    /// Makes a candidate from a value of an earlier step. None of its words is the value itself, so
    /// all of them are cues.
    fn make_linked_candidate(
        &self,
        slot: usize,
        found: RecalledValue,
        tokens: &Range<usize>,
        score: f32,
    ) -> Candidate {
        let none = tokens.start..tokens.start;
        let candidate = self.propose(slot, found.value, tokens.clone(), score).valued(none);
        Candidate { link: Some(found.step), ..candidate }
    }
}
