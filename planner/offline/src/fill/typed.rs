//! Values that are recognized by their form, such as numbers, codes, quotations, paths and days.

use serde_json::{Value, json};

use super::{Candidate, Filler, groups::FoundValue};
use crate::{
    moment::{Moment, write_moment},
    token::{Token, TokenKind, number},
    tool::{Slot, SlotKind, has_form},
};

impl Filler<'_> {
    pub(super) fn add_typed(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let weights = self.weights;
        for place in 0..self.tokens.len() {
            let Some((value, mut fit)) = self.typed_value(place, slot) else { continue };
            let mut end = place + 1;
            if slot.is_numeric {
                let has_unit = self.has_unit(place, slot);
                end += usize::from(has_unit);
                fit += if has_unit { weights.preposition } else { 0.0 };
            }
            let context = self.context(place, slot);
            let evidence = if slot.kind == SlotKind::Number { fit } else { 0.0 } + context.score;
            // Skips the value, because many other values have the same form.
            let is_loose = matches!(slot.kind, SlotKind::Number | SlotKind::Word);
            if is_loose && !slot.is_required && evidence <= 0.0 {
                continue;
            }
            let score = weights.typed + fit + context.score;
            let value = self.convert(value, place, slot);
            let found = FoundValue { value, tokens: place..end, start: context.start, score };
            let read = |next: usize| {
                let is_same = self.tokens[next].kind == self.tokens[place].kind;
                let (value, _) = self.typed_value(next, slot).filter(|_| is_same)?;
                Some((value, next + 1))
            };
            self.add_values(at, found, read, candidates);
        }
    }

    fn typed_value(&self, at: usize, slot: &Slot) -> Option<(Value, f32)> {
        let weights = self.weights;
        let token = &self.tokens[at];
        if self.is_part_of_moment(at, slot) {
            return None;
        }
        let text = |fit: f32| Some((json!(token.value), fit));
        match (slot.kind, token.kind) {
            (SlotKind::Id, _) if self.is_id_of_other(at, slot) => None,
            (SlotKind::Word, _) if slot.is_slashed => None,
            (SlotKind::Word, TokenKind::Email) if !slot.takes_people() => None,
            (SlotKind::Path, TokenKind::Quoted) if token.value.contains(' ') => None,
            (SlotKind::Id, TokenKind::Number) if slot.is_numeric => {
                let fit = if token.value.starts_with('#') { weights.form } else { 0.0 };
                Some((Value::Number(number(&token.value)?), fit))
            }
            (SlotKind::Id, TokenKind::Code | TokenKind::Id) if !slot.is_numeric => {
                text(self.id_fit(&token.value, slot)?)
            }
            (SlotKind::Number, TokenKind::Number | TokenKind::Word) => self.number_value(at),
            (SlotKind::Path, TokenKind::Path) => text(0.0),
            (SlotKind::Text | SlotKind::Title | SlotKind::Query, TokenKind::Quoted) => {
                text(weights.quoted)
            }
            (SlotKind::Email, TokenKind::Email)
            | (SlotKind::Url, TokenKind::Url)
            | (SlotKind::Word, TokenKind::Quoted) => text(weights.near_form),
            (SlotKind::Path, TokenKind::Glob | TokenKind::Quoted)
            | (SlotKind::Id, TokenKind::Number)
            | (SlotKind::Query | SlotKind::Word, TokenKind::Email | TokenKind::Code)
            | (SlotKind::Title, TokenKind::Code)
            | (SlotKind::Word, TokenKind::Slug) => text(-weights.unusual),
            _ => None,
        }
    }

    /// Returns whether the noun before a token says that it is the id of another thing: `order
    /// A-1020` is not a payment.
    fn is_id_of_other(&self, at: usize, slot: &Slot) -> bool {
        let is_link = |token: &&Token| token.is_any(&["number", "id", "the"]);
        let before = self.tokens[..at].iter().enumerate().rev().find(|(_, token)| !is_link(token));
        let Some((place, noun)) = before else { return false };
        let mut slots = self.fill_context.tools.iter().flat_map(|tool| &tool.slots);
        let is_thing = |slot: &Slot| slot.kind == SlotKind::Id && slot.words.contains(&noun.stem);
        let is_noun =
            self.fill_context.nouns.contains(&noun.stem) || self.lexicon.is_noun(&noun.stem);
        (is_noun || slots.any(is_thing))
            && !self.verb.contains(&place)
            && !self.is_noun(noun)
            && !self.lexicon.is_compound_of(&noun.stem, &self.tool.nouns)
            && !self.is_cue(noun, slot)
            && !slot.mentions(&noun.stem)
    }

    fn is_part_of_moment(&self, at: usize, slot: &Slot) -> bool {
        let is_possible = slot.kind != SlotKind::Word && self.tokens[at].kind != TokenKind::Quoted;
        is_possible && self.moments.iter().any(|moment| moment.tokens.contains(&at))
    }

    fn number_value(&self, at: usize) -> Option<(Value, f32)> {
        let token = &self.tokens[at];
        if token.kind == TokenKind::Word {
            let small = self.lexicon.small_number(&token.lower)?;
            return (small != 1).then(|| (json!(small), -self.weights.unusual));
        }
        // `by 5` is a difference, not a new value.
        let is_difference = self.tool.has_effect && at > 0 && self.is_at(at - 1, &["by"]);
        let value = Value::Number(number(&token.value).filter(|_| !is_difference)?);
        Some((value, 0.0))
    }

    /// Returns the points for the fit of a code to the examples of an id. A tool that acts takes no
    /// code with the form of another id.
    fn id_fit(&self, code: &str, slot: &Slot) -> Option<f32> {
        let fits = |slot: &Slot| slot.options.iter().any(|example| has_form(code, example));
        let mut others = self.fill_context.tools.iter().flat_map(|tool| &tool.slots);
        let mut is_other = || others.any(|other| other.kind == SlotKind::Id && fits(other));
        match (fits(slot), slot.options.is_empty()) {
            (true, _) => Some(self.weights.form),
            (_, true) => Some(0.0),
            _ if self.tool.has_effect && is_other() => None,
            _ => Some(-self.weights.form),
        }
    }

    fn has_unit(&self, at: usize, slot: &Slot) -> bool {
        let is_content = |token: &&Token| self.lexicon.is_content(token);
        let Some(next) = self.tokens.get(at + 1).filter(is_content) else { return false };
        let last = slot.words.last();
        slot.mentions(&next.stem)
            || last.is_some_and(|word| self.lexicon.is_same_noun(word, &next.stem))
            || self.lexicon.unit(&next.lower).is_some() && self.slot_unit(slot).is_some()
    }

    fn slot_unit(&self, slot: &Slot) -> Option<u32> {
        let word = slot.parameter.rsplit('_').next()?;
        self.lexicon.unit(&word.to_lowercase())
    }

    fn convert(&self, value: Value, at: usize, slot: &Slot) -> Value {
        let said = self.tokens.get(at + 1).and_then(|token| self.lexicon.unit(&token.lower));
        let (Some(said), Some(wanted), Some(amount)) = (said, self.slot_unit(slot), value.as_f64())
        else {
            return value;
        };
        let amount = amount * f64::from(said) / f64::from(wanted);
        number(&amount.to_string()).map_or(value, Value::Number)
    }

    pub(super) fn add_moments(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let weights = self.weights;
        let days: Vec<&Moment> =
            self.moments.iter().filter(|moment| moment.day.is_some()).collect();
        let times: Vec<&Moment> =
            self.moments.iter().filter(|moment| moment.time.is_some()).collect();
        let is_end = slot.words.iter().any(|word| word == "end" || word == "until");
        let place = usize::from(is_end);
        let own_day = days.get(place).copied();
        let time = times.get(place).copied().filter(|_| slot.has_time);
        if is_end && days.len() < 2 && time.is_none() {
            return;
        }
        let said = own_day.or(days.first().copied()).and_then(|moment| moment.day);
        let Some(day) = said.or_else(|| self.recalled_day()) else { return };
        let parts = || own_day.into_iter().chain(time);
        let first = parts().map(|moment| moment.tokens.start).min();
        let last = parts().map(|moment| moment.tokens.end).max();
        let (Some(first), Some(last)) = (first, last) else { return };
        let context = self.context(first, slot);
        let score = weights.typed + weights.form + context.score;
        let time = time.and_then(|moment| moment.time);
        let value = json!(write_moment(day, time));
        candidates.push(self.propose(at, value, context.start..last, score));
    }

    fn recalled_day(&self) -> Option<chrono::NaiveDate> {
        let steps = self.fill_context.memory.steps.iter().rev();
        let mut values = steps.flat_map(|step| step.parameters.values());
        values.find_map(|value| value.as_str()?.get(..10)?.parse().ok())
    }
}
