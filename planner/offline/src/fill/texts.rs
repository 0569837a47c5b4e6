//! Texts after a cue, a preposition or the verb, with or without quotation marks.

use std::ops::Range;

use serde_json::json;

use super::{Candidate, Filler, to_f32};
use crate::{
    token::{Token, TokenKind},
    tool::{Slot, SlotKind},
};

const MAX_EXTENTS: usize = 8;

struct ValueStart {
    start: usize,
    value: usize,
    score: f32,
    announced_by: Announcer,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Announcer {
    Cue,
    Preposition,
    /// The text stands after `about`, which is the first word of the text.
    About,
    Verb,
}

impl Filler<'_> {
    pub(super) fn add_texts(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        for place in 0..self.tokens.len() {
            let Some(opening) = self.opening(place, slot) else { continue };
            let ValueStart { start, value, score, .. } = opening;
            let Some(first) = self.tokens.get(value) else { continue };
            if first.kind == TokenKind::Quoted {
                let score = score + self.weights.typed + self.weights.quoted;
                candidates.push(self.propose(at, json!(first.value), start..value + 1, score));
            } else if self.begins_text(&opening, slot) {
                self.add_extents(at, slot, &opening, candidates);
            }
        }
        if let Some(opening) = self.bare_value_start(slot) {
            self.add_extents(at, slot, &opening, candidates);
        }
    }

    fn opening(&self, place: usize, slot: &Slot) -> Option<ValueStart> {
        let token = &self.tokens[place];
        let is_text = slot.kind == SlotKind::Text;
        let is_about = is_text && token.is("about");
        let is_preposition = self.lexicon.is_preposition(token);
        let is_cue = self.is_cue(token, slot);
        let is_verb = self.verb.contains(&place)
            && place + 1 < self.tokens.len()
            && !self.lexicon.file.states.contains_key(&token.lower);
        // `about X` is a text only if the slot is required.
        let is_possible = is_cue || self.is_announced(slot, place);
        if !is_possible || is_verb || is_about && !slot.is_required {
            return None;
        }
        let is_skipped = |at: usize, token: &Token| {
            token.is_any(&[":", "="])
                || !is_text && token.is_any(&["is", "to", "the", "a", "an", "it"])
                || at == place + 1 && self.is_cue(token, slot)
        };
        let mut value = place + 1;
        while self.tokens.get(value).is_some_and(|token| is_skipped(value, token)) {
            value += 1;
        }
        let score = if is_preposition { self.weights.preposition } else { self.weights.cue };
        let announced_by = match (is_about, is_cue) {
            (true, _) => Announcer::About,
            (_, true) => Announcer::Cue,
            (_, false) => Announcer::Preposition,
        };
        Some(ValueStart { start: place, value, score, announced_by })
    }

    fn begins_text(&self, opening: &ValueStart, slot: &Slot) -> bool {
        let first = &self.tokens[opening.value];
        let is_preposition = opening.announced_by == Announcer::Preposition;
        let next = self.tokens.get(opening.value + 1);
        match first.kind {
            _ if is_preposition && slot.kind == SlotKind::Text => false,
            TokenKind::Mark => false,
            TokenKind::Word => !self.lexicon.is_preposition(first),
            TokenKind::Number => next.is_some_and(|next| next.kind == TokenKind::Word),
            TokenKind::Email => !self.tool.slots.iter().any(|other| other.kind == SlotKind::Email),
            _ => !is_preposition,
        }
    }

    fn add_extents(
        &self,
        at: usize,
        slot: &Slot,
        opening: &ValueStart,
        candidates: &mut Vec<Candidate>,
    ) {
        let ValueStart { start, value, announced_by, .. } = *opening;
        let is_text = slot.kind == SlotKind::Text;
        let is_bare = announced_by == Announcer::Verb;
        let is_name = matches!(slot.kind, SlotKind::Word | SlotKind::Title);
        let mut ends = self.extents(value, slot);
        ends.truncate(if is_bare && is_name { 1 } else { MAX_EXTENTS });
        for end in ends {
            let count = end - value;
            if !self.is_text(value..end, slot) {
                continue;
            }
            let first = if announced_by == Announcer::About { value - 1 } else { value };
            let mut text = self.slice(first..end);
            let rest = self.fill_context.query.get(self.tokens[end - 1].end..).unwrap_or_default();
            let mark = rest.chars().next().filter(|mark| matches!(mark, '!' | '?'));
            text.extend(mark.filter(|_| is_text && end == self.tokens.len()));
            let length = self.weights.length * to_f32(count);
            let score = opening.score
                + if is_bare { 0.0 } else { self.weights.text }
                + if is_text && !is_bare { length } else { -length };
            let candidate = self.propose(at, json!(text), start..end, score).valued(value..end);
            // In `send a mail about lunch`, the words name a topic and are not a finished text.
            let is_guess = announced_by == Announcer::About && self.tool.verb == "send";
            candidates.push(Candidate { is_guess, ..candidate });
        }
    }

    /// Returns whether words without quotation marks can be the value of a slot. Except in a slot
    /// for a text, they contain no e-mail address and no path among other words.
    fn is_text(&self, range: Range<usize>, slot: &Slot) -> bool {
        let tokens = &self.tokens[range];
        let is_single = tokens.len() == 1;
        if tokens[0].is_inserted() {
            return false;
        }
        if is_single && slot.kind != SlotKind::Text && self.lexicon.is_filler(&tokens[0]) {
            return false;
        }
        let has_typed = tokens.iter().any(Token::is_typed);
        // In `titled A and one titled B`, the second cue shows that the words are not one name.
        let is_cue =
            |token: &Token| self.is_cue(token, slot) && !self.lexicon.is_preposition(token);
        let is_name = matches!(slot.kind, SlotKind::Title | SlotKind::Word);
        if is_name && tokens[1..].iter().any(is_cue) {
            return false;
        }
        match slot.kind {
            SlotKind::Text => !(is_single && has_typed),
            SlotKind::Title => {
                is_single && !tokens[0].is_separator()
                    || !tokens.iter().any(|token| token.is_typed() && token.kind != TokenKind::Code)
            }
            SlotKind::Query => !has_typed && !tokens.iter().any(|token| self.is_noun(token)),
            _ => {
                let is_foreign = |token: &Token| {
                    self.is_noun(token) && !slot.words.contains(&token.stem) && !is_single
                };
                let is_end = |token: &Token| token.is("and") || self.lexicon.is_preposition(token);
                (!has_typed || is_single)
                    && !tokens.iter().any(|token| is_foreign(token) || is_end(token))
            }
        }
    }

    fn extents(&self, start: usize, slot: &Slot) -> Vec<usize> {
        let stops = (start + 1..self.tokens.len()).filter(|place| self.is_stop(*place, slot));
        let mut ends: Vec<usize> = stops.take(MAX_EXTENTS - 1).collect();
        ends.push(self.tokens.len());
        for end in &mut ends {
            let is_loose = |token: &Token| {
                self.lexicon.soft_words.has(&token.lower)
                    || token.kind == TokenKind::Mark
                    || token.is("and")
            };
            while *end > start + 1 && is_loose(&self.tokens[*end - 1]) {
                *end -= 1;
            }
        }
        ends.dedup();
        ends
    }

    fn is_stop(&self, place: usize, slot: &Slot) -> bool {
        let token = &self.tokens[place];
        match token.kind {
            _ if token.is_inserted() => true,
            TokenKind::Mark => !token.is_any(&["-", "'"]),
            TokenKind::Quoted => false,
            TokenKind::Word => {
                let is_cue = |other: &Slot| {
                    other.parameter != slot.parameter
                        && other.is_free()
                        && self.is_cue(token, other)
                };
                token.is_separator()
                    || self.lexicon.is_preposition(token)
                    || self.lexicon.is_pronoun(token)
                    || self.lexicon.soft_words.has(&token.lower)
                    || slot.words.contains(&token.stem)
                    || slot.kind == SlotKind::Word && slot.about.contains(&token.stem)
                    || self.tool.slots.iter().any(is_cue)
                    || self.is_noun(token)
            }
            _ => true,
        }
    }

    /// Finds the words after the verb and its noun: `play Miles Davis`, `search for red lamps`.
    fn bare_value_start(&self, slot: &Slot) -> Option<ValueStart> {
        let is_wanted = slot.is_required || slot.kind == SlotKind::Query && !self.tool.has_effect;
        let can_be = is_wanted && !slot.is_list;
        let start = self.bare_start().filter(|start| can_be && self.is_bare(*start, slot))?;
        let is_name = self.tokens[start].is_capitalised();
        let score = self.weights.bare * if is_name { 2.0 } else { 1.0 };
        Some(ValueStart { start, value: start, score, announced_by: Announcer::Verb })
    }

    fn bare_start(&self) -> Option<usize> {
        let is_passed = |token: &Token| {
            token.is_mark(":")
                || token.kind == TokenKind::Word
                    && !self.lexicon.soft_words.has(&token.lower)
                    && (self.lexicon.is_filler(token)
                        || self.lexicon.small_number(&token.lower).is_some()
                        || self.is_noun(token)
                        || self.lexicon.is_compound_of(&token.stem, &self.tool.nouns))
        };
        let behind = self.verb.iter().max().map_or(0, |place| place + 1);
        let start = (behind..self.tokens.len()).find(|place| !is_passed(&self.tokens[*place]))?;
        let first = &self.tokens[start];
        (first.kind == TokenKind::Word && !self.lexicon.loops.has(&first.lower)).then_some(start)
    }

    /// Returns whether the words at a place can be a value without a cue. Cues cannot, and most
    /// verbs, nouns of tools and things that the query presents as known cannot either.
    fn is_bare(&self, start: usize, slot: &Slot) -> bool {
        let first = &self.tokens[start];
        let is_order = !self.lexicon.concepts(&first.stem).is_empty();
        let is_known_noun = self.fill_context.nouns.contains(&first.stem)
            || slot.kind == SlotKind::Word && self.lexicon.is_noun(&first.stem);
        let is_name = matches!(slot.kind, SlotKind::Title | SlotKind::Word);
        let is_other = is_known_noun && (self.tool.has_effect || slot.kind == SlotKind::Word)
            || is_order && self.verb.is_empty()
            || is_name
                && self.tool.has_effect
                && (is_order || self.lexicon.file.states.contains_key(&first.lower));
        let before = start.checked_sub(1).map(|place| &self.tokens[place]);
        let is_definite =
            before.is_some_and(|token| token.is("the") || self.lexicon.is_pronoun(token));
        let takes_text = slot.kind == SlotKind::Text
            || slot.words.last().is_some_and(|word| self.lexicon.is_same_noun(word, "text"));
        let is_cue = self.tool.slots.iter().any(|other| self.is_cue(first, other));
        !(is_cue || is_other && !first.is_capitalised() || is_definite && takes_text)
    }
}
