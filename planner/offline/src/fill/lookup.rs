//! Calls of a tool that only reads, from the values that a query mentions anywhere. The form of a
//! value and the words around it tell its slot.

use std::{cmp::Reverse, collections::BTreeMap};

use serde_json::{Number, Value, json};

use super::{
    Candidate, FillContext, Filler, Filling, Reading,
    mentions::{Mention, MentionKind, round},
    reading::Repeat,
    to_f32,
};
use crate::{
    clause::Clause,
    moment::write_moment,
    token::{Token, TokenKind},
    tool::{Slot, SlotKind, is_alike},
};

const MAX_CALLS: usize = 16;

type PlacedValue = (usize, Value);
type PlacedValues = BTreeMap<usize, Vec<PlacedValue>>;

pub(crate) fn look_up(fill_context: &FillContext<'_>, clause: &Clause, tool: usize) -> Reading {
    Reading { tool, ..Filler::new(fill_context, clause, tool).look_up() }
}

impl Filler<'_> {
    fn look_up(&self) -> Reading {
        let mentions = self.mentions();
        let mut candidates = Vec::new();
        for (at, slot) in self.tool.slots.iter().enumerate() {
            if slot.field.is_some() || slot.kind == SlotKind::Object {
                continue;
            }
            match slot.kind {
                SlotKind::Choice => {
                    let before = candidates.len();
                    self.add_choices(at, slot, None, &mut candidates);
                    for choice in &mut candidates[before..] {
                        choice.repeat = Repeat::Apart;
                    }
                }
                SlotKind::Flag => self.add_flags(at, slot, &mut candidates),
                _ => self.add_mentioned(at, slot, &mentions, &mut candidates),
            }
        }
        let mut costs = vec![0.0; self.tokens.len()];
        for (at, mention) in mentions.iter().enumerate() {
            let is_sure = mention.kind != MentionKind::Words || is_item(&mentions, at);
            costs[mention.tokens.start] = if is_sure { self.weights.unplaced } else { 0.0 };
        }
        let chosen = self.choose(&candidates, &costs);
        let mut reading = Reading { score: chosen.score, ..Reading::default() };
        let mut values = PlacedValues::new();
        let mut is_placed = vec![false; self.tokens.len()];
        let mut last = None;
        for candidate in chosen.candidates.iter().map(|at| &candidates[*at]) {
            candidate.tokens.clone().for_each(|at| is_placed[at] = true);
            let slot = candidate.slot();
            reading.guessed_slots.extend(candidate.is_guess.then_some(slot));
            let Filling::One(value) = &candidate.fills[0].1 else { continue };
            let placed = values.entry(slot).or_default();
            // Choices of a list go together until another slot gets a value.
            let is_choice = self.tool.slots[slot].kind == SlotKind::Choice;
            let is_next = last.is_some_and(|(own, end)| {
                let is_behind = matches!(candidate.repeat, Repeat::After(start) if start == end);
                own == slot && (is_behind || is_choice)
            });
            match (placed.last_mut(), value) {
                (Some((_, Value::Array(items))), Value::Array(more)) if is_next => {
                    items.extend_from_slice(more);
                }
                _ => placed.push((candidate.tokens.start, value.clone())),
            }
            last = Some((slot, candidate.tokens.end));
        }
        let slots = self.tool.slots.iter().enumerate();
        let is_missing = |(at, slot): &(usize, &Slot)| slot.is_required && !values.contains_key(at);
        reading.missing_slots = slots.filter(is_missing).map(|(at, _)| at).collect();
        let is_left = |mention: &&Mention| {
            mention.kind != MentionKind::Words && !is_placed[mention.tokens.start]
        };
        let left = mentions.iter().filter(is_left);
        reading.unplaced_tokens = left.flat_map(|mention| mention.tokens.clone()).collect();
        reading.fillings = self.spread_values(&values);
        reading
    }

    /// Makes at most 16 calls of the values. Values of several slots go together if the query says
    /// `respectively` or mentions the slots in turns. Otherwise each value goes with each value of
    /// the other slots: `Oslo and Rome for 3 and 5 days`.
    fn spread_values(&self, values: &PlacedValues) -> BTreeMap<usize, Filling> {
        let is_paired = self.tokens.iter().any(|token| token.is("respectively"));
        let ends = |slot: &usize| (values[slot][0].0, values[slot][values[slot].len() - 1].0);
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for slot in values.keys().filter(|slot| values[slot].len() > 1) {
            let (start, end) = ends(slot);
            let takes_turns = |group: &mut Vec<usize>| {
                is_paired || group.iter().map(ends).any(|(from, to)| start < to && from < end)
            };
            let group = groups.extract_if(.., takes_turns).flatten().chain([*slot]).collect();
            groups.push(group);
        }
        let mut rows: Vec<BTreeMap<usize, PlacedValue>> = vec![BTreeMap::new()];
        for group in &groups {
            let calls = pair_values(values, group);
            let with = |row: &BTreeMap<usize, PlacedValue>| {
                let row = row.clone();
                calls.iter().map(move |call| row.clone().into_iter().chain(call.clone()).collect())
            };
            rows = rows.iter().flat_map(with).take(MAX_CALLS).collect();
        }
        let fillings = values.iter().map(|(slot, own)| {
            let column = rows.iter().map(|row| row.get(slot).unwrap_or(&own[0]).1.clone());
            (*slot, Filling::from_values(column.collect()))
        });
        fillings.collect()
    }

    fn add_mentioned(
        &self,
        at: usize,
        slot: &Slot,
        mentions: &[Mention],
        candidates: &mut Vec<Candidate>,
    ) {
        let weights = self.weights;
        for (first, mention) in mentions.iter().enumerate() {
            let fit = self.mention_fit(mention, slot, is_item(mentions, first));
            let Some((value, score)) = fit else { continue };
            let minimum = match mention.kind {
                MentionKind::Figure { .. } | MentionKind::Name => weights.unusual,
                MentionKind::Moment => 0.0,
                _ => weights.preposition,
            };
            if !slot.is_required && score < weights.typed + minimum {
                continue;
            }
            let repeat = match first.checked_sub(1).filter(|_| mention.is_joined) {
                Some(last) => Repeat::After(mentions[last].tokens.end),
                None => Repeat::Apart,
            };
            let candidate = self.propose(at, value, mention.tokens.clone(), score);
            let is_guess = score <= weights.typed || mention.kind == MentionKind::Words;
            candidates.push(Candidate { is_guess, repeat, ..candidate });
        }
        if !slot.is_numeric {
            // Adds examples of the description, such as `e.g. summary or detailed`.
            for (tokens, option) in self.shown_examples(slot) {
                let (start, score) = (tokens.start, weights.choice + weights.form);
                let option = self.propose(at, json!(option), tokens, score);
                let before = self.tokens[..start].iter().rev();
                let gap = before.take_while(|token| token.is_separator()).count();
                let repeat = if gap == 0 { Repeat::Apart } else { Repeat::After(start - gap) };
                candidates.push(Candidate { repeat, ..option });
            }
        }
    }

    fn mention_fit(&self, mention: &Mention, slot: &Slot, is_item: bool) -> Option<(Value, f32)> {
        let weights = self.weights;
        let score = weights.typed + self.score_nearby_words(mention, slot);
        let first = &self.tokens[mention.tokens.start];
        let text = self.slice(mention.tokens.clone());
        let text = || json!(text.trim_end_matches("'s").trim_end_matches("’s"));
        let moment = self.moments.iter().find(|moment| moment.tokens == mention.tokens);
        let time = moment.filter(|moment| moment.day.is_none()).and_then(|moment| moment.time);
        let is_clock = slot.words.last().is_some_and(|word| word == "time")
            && !slot.about.iter().any(|word| word == "date");
        match &mention.kind {
            MentionKind::List(list) => slot.is_list.then(|| (list.clone(), score + weights.form)),
            MentionKind::Figure { value, is_share } if slot.is_numeric => {
                Some((figure_for(value, *is_share, slot)?, score))
            }
            _ if slot.is_numeric => None,
            MentionKind::Moment if slot.kind == SlotKind::Moment && is_clock == time.is_some() => {
                let day = moment.and_then(|moment| moment.day);
                let day = day.map(|day| json!(write_moment(day, None)));
                let time = time.map(|time| json!(time.format("%H:%M").to_string()));
                Some((day.or(time).unwrap_or_else(text), score + weights.form))
            }
            MentionKind::Figure { .. } | MentionKind::Moment => None,
            MentionKind::Words => {
                let can_be = slot.is_free() || slot.is_list && slot.is_required;
                let before = mention.before.filter(|_| can_be);
                let is_announced = before.is_some_and(|place| self.is_announced(slot, place));
                let is_after =
                    before.is_some_and(|at| self.lexicon.is_preposition(&self.tokens[at]));
                let bonus = if is_after { weights.near_form } else { 0.0 };
                let foreign = if is_item { 0.0 } else { weights.foreign };
                if slot.is_required {
                    can_be.then(|| (text(), score + bonus - weights.typed - foreign))
                } else {
                    is_announced.then(|| (text(), score))
                }
            }
            _ if slot.kind == SlotKind::Moment => None,
            _ if slot.kind == SlotKind::Email && first.kind != TokenKind::Email => None,
            _ if slot.kind == SlotKind::Url && first.kind != TokenKind::Url => None,
            _ => Some((text(), score)),
        }
    }

    fn score_nearby_words(&self, mention: &Mention, slot: &Slot) -> f32 {
        let weights = self.weights;
        let near =
            mention.near_words.iter().map(|(word, weight)| weight * self.word_fit(word, slot));
        let is_announced = mention.before.is_some_and(|place| self.is_announced(slot, place));
        // A name can contain the word of its slot: `Premier League` is a league.
        let mut tokens = self.tokens[mention.tokens.clone()].iter();
        let has_word = |token: &Token| slot.words.iter().any(|word| is_alike(&token.stem, word));
        let is_named = mention.kind == MentionKind::Name && tokens.any(has_word);
        let count = to_f32(usize::from(is_named) + usize::from(is_announced));
        near.sum::<f32>() + weights.preposition * count
    }

    /// Returns the points that a word gives to a slot. They are lower if other slots of the tool
    /// have the word, too.
    fn word_fit(&self, word: &str, slot: &Slot) -> f32 {
        let in_name = |slot: &&Slot| slot.words.iter().any(|own| is_alike(own, word));
        let in_text =
            |slot: &&Slot| in_name(slot) || slot.about.iter().any(|own| is_alike(own, word));
        let slots = || self.tool.slots.iter();
        if in_name(&slot) {
            self.weights.cue / to_f32(slots().filter(in_name).count())
        } else if in_text(&slot) {
            self.weights.near_form / to_f32(slots().filter(in_text).count())
        } else {
            0.0
        }
    }
}

/// Returns whether a value is in a list of values of one kind.
fn is_item(mentions: &[Mention], at: usize) -> bool {
    mentions[at].is_joined || mentions.get(at + 1).is_some_and(|next| next.is_joined)
}

/// Returns a figure in the form that a slot takes, if the slot can take it. `5%` is 0.05, or 5 if
/// the slot asks for percent or for an integer.
fn figure_for(value: &Number, is_share: bool, slot: &Slot) -> Option<Value> {
    let takes_percent = slot.about.iter().any(|word| word.starts_with("percent"));
    if is_share && !slot.is_whole && !takes_percent {
        return value.as_f64().map(|amount| json!(round(amount / 100.0)));
    }
    (!slot.is_whole || value.is_i64()).then(|| Value::Number(value.clone()))
}

/// Makes a call of each value of the slot that has most values. Of several such slots, the first in
/// the query counts. The other slots of the group get the value with the same number, or the last
/// value before the next call.
fn pair_values(values: &PlacedValues, group: &[usize]) -> Vec<BTreeMap<usize, PlacedValue>> {
    let slots = group.iter().map(|slot| &values[slot]);
    let leader = slots.max_by_key(|own| (own.len(), Reverse(own[0].0)));
    let starts: Vec<usize> = leader.into_iter().flatten().map(|(start, _)| *start).collect();
    let pick = |slot: &usize, call: usize| {
        let own = &values[slot];
        let end = starts.get(call + 1).copied().unwrap_or(usize::MAX);
        let before = own.iter().rfind(|(start, _)| *start < end);
        let same = if own.len() == starts.len() { own.get(call) } else { before };
        (*slot, same.unwrap_or(&own[0]).clone())
    };
    (0..starts.len()).map(|call| group.iter().map(|slot| pick(slot, call)).collect()).collect()
}
