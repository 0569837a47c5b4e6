use std::{cmp::Reverse, ops::Range};

use serde_json::json;

use super::{Candidate, Filler, groups::FoundValue};
use crate::{
    token::{TokenKind, stem},
    tool::{Slot, SlotKind, is_alike},
};

impl Filler<'_> {
    pub(super) fn add_choices(
        &self,
        at: usize,
        slot: &Slot,
        state: Option<&str>,
        candidates: &mut Vec<Candidate>,
    ) {
        let weights = self.weights;
        for choice in &slot.choices {
            if let Some(place) = self.verb.first().filter(|_| state == Some(choice)) {
                let (tokens, score) = (*place..place + 1, weights.choice + weights.cue);
                candidates.push(self.propose(at, json!(choice), tokens, score));
            }
            let words: Vec<String> =
                choice.split(['_', '-', ' ']).map(|word| stem(&word.to_lowercase())).collect();
            for place in 0..self.tokens.len() {
                let is_verb =
                    self.verb.contains(&place) && self.tokens[place].stem == self.tool.verb;
                if !is_verb && self.is_said_at(place, &words) {
                    let context = self.context(place, slot);
                    let tokens = context.start..place + words.len();
                    let score = weights.choice + context.score.max(0.0);
                    candidates.push(self.propose(at, json!(choice), tokens, score));
                }
            }
        }
    }

    /// Adds flags whose last word is in the query: `history` for `include_history`.
    pub(super) fn add_flags(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let is_content = |word: &&String| {
            !self.lexicon.fillers.contains(*word) && self.lexicon.concepts(word).is_empty()
        };
        let Some(last) = slot.words.iter().rfind(is_content) else { return };
        for (place, token) in self.tokens.iter().enumerate() {
            let is_verb = self.verb.contains(&place);
            if token.kind == TokenKind::Word && is_alike(&token.stem, last) && !is_verb {
                // A negation may be some words before the flag: `do not include the impact`.
                let before = self.tokens[..place].iter().rev().take(4);
                let mut before = before.take_while(|token| token.kind == TokenKind::Word);
                let negation = before.position(|token| token.is_any(&["not", "no", "without"]));
                let tokens = negation.map_or(place, |count| place - count - 1)..place + 1;
                let (value, score) = (json!(negation.is_none()), self.weights.choice);
                candidates.push(self.propose(at, value, tokens, score));
            }
        }
    }

    pub(super) fn is_said_at(&self, place: usize, stems: &[String]) -> bool {
        stems.iter().enumerate().all(|(offset, stem)| {
            self.tokens.get(place + offset).is_some_and(|token| {
                let is_quoted =
                    || token.kind == TokenKind::Quoted && self::stem(&token.lower) == *stem;
                matches!(token.kind, TokenKind::Word | TokenKind::Code) && token.stem == *stem
                    || is_quoted()
            })
        })
    }

    pub(super) fn add_examples(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        if slot.kind != SlotKind::Word {
            return;
        }
        let shown = self.shown_examples(slot);
        let read = |next: usize| {
            let other = shown.iter().find(|(tokens, _)| tokens.start == next);
            let end = other.map_or(next + 1, |(tokens, _)| tokens.end);
            let token = &self.tokens[next];
            let is_name = self.lexicon.is_content(token)
                && !self.lexicon.is_noun(&token.stem)
                && self.lexicon.concepts(&token.stem).is_empty();
            is_name.then(|| (json!(self.slice(next..end)), end))
        };
        for (tokens, text) in &shown {
            let context = self.context(tokens.start, slot);
            let score = self.weights.typed + self.weights.form + context.score.max(0.0);
            let (value, tokens, start) = (json!(text), tokens.clone(), context.start);
            self.add_values(at, FoundValue { value, tokens, start, score }, read, candidates);
        }
    }

    /// Returns the examples of a slot, and of the slots with this name in other tools, that the
    /// query contains. Of several examples at one place, returns the longest.
    pub(super) fn shown_examples(&self, slot: &Slot) -> Vec<(Range<usize>, &String)> {
        let slots = self.fill_context.tools.iter().flat_map(|tool| &tool.slots);
        let same = slots.filter(|other| other.words == slot.words);
        let mut shown = Vec::new();
        for example in same.flat_map(|other| &other.options) {
            let words = example.split([' ', '_']).map(|word| stem(&word.to_lowercase()));
            let words: Vec<String> = words.collect();
            let places = (0..self.tokens.len()).filter(|place| self.is_said_at(*place, &words));
            shown.extend(places.map(|place| (place..place + words.len(), example)));
        }
        shown.sort_by_key(|(tokens, _)| (tokens.start, Reverse(tokens.end)));
        shown.dedup_by_key(|(tokens, _)| tokens.start);
        shown
    }

    /// Adds patterns of file names: `*.md`, a quotation, `.env files`, `python files`.
    pub(super) fn add_patterns(&self, at: usize, candidates: &mut Vec<Candidate>) {
        let weights = self.weights;
        let is_ending = |place: usize| {
            !self.verb.contains(&place)
                && !self.fill_context.nouns.contains(&self.tokens[place].stem)
        };
        for (place, token) in self.tokens.iter().enumerate() {
            let is_before_file = self.tokens.get(place + 1).is_some_and(|next| next.stem == "file");
            let pattern = match token.kind {
                TokenKind::Glob | TokenKind::Quoted => {
                    Some((token.value.clone(), weights.typed + weights.form))
                }
                TokenKind::Path if token.value.starts_with('.') => {
                    Some((format!("**/*{}", token.value), weights.typed + weights.form))
                }
                TokenKind::Word if is_before_file && is_ending(place) => self
                    .lexicon
                    .file_ending(token)
                    .map(|ending| (format!("**/*.{ending}"), weights.choice)),
                _ => None,
            };
            let Some((pattern, score)) = pattern else { continue };
            let read = |next: usize| {
                let other = &self.tokens[next];
                (other.kind == TokenKind::Glob).then(|| (json!(other.value), next + 1))
            };
            let (value, tokens) = (json!(pattern), place..place + 1);
            let found = FoundValue { value, tokens, start: place, score };
            self.add_values(at, found, read, candidates);
        }
    }
}
