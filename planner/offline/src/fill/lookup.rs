//! Calls of a tool that only reads, from the values that a query mentions anywhere. The form of a
//! value and the words around it tell its slot.

use std::collections::BTreeMap;

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
            let is_item =
                mention.is_joined || mentions.get(at + 1).is_some_and(|next| next.is_joined);
            let is_sure = mention.kind != MentionKind::Words || is_item;
            costs[mention.tokens.start] = if is_sure { self.weights.unplaced } else { 0.0 };
        }
        let chosen = self.choose(&candidates, &costs);
        let mut reading = Reading { score: chosen.score, ..Reading::default() };
        let mut values: BTreeMap<usize, Vec<PlacedValue>> = BTreeMap::new();
        let mut is_placed = vec![false; self.tokens.len()];
        let mut last = None;
        for candidate in chosen.candidates.iter().map(|at| &candidates[*at]) {
            candidate.tokens.clone().for_each(|at| is_placed[at] = true);
            let slot = candidate.slot();
            reading.guessed_slots.extend(candidate.is_guess.then_some(slot));
            let Filling::One(value) = &candidate.fills[0].1 else { continue };
            let placed = values.entry(slot).or_default();
            let is_next =
                matches!(candidate.repeat, Repeat::After(end) if last == Some((slot, end)));
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
        let is_paired = self.tokens.iter().any(|token| token.is("respectively"));
        reading.fillings = spread_values(&values, is_paired);
        reading
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
            let Some((value, score)) = self.mention_fit(mention, slot) else { continue };
            let minimum = match mention.kind {
                MentionKind::Figure { .. } => weights.unusual,
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
            let mut push = |value: Value, last: usize, score: f32| {
                let tokens = mention.tokens.start..mentions[last].tokens.end;
                let candidate = self.propose(at, value, tokens, score);
                let is_guess = score <= weights.typed || mention.kind == MentionKind::Words;
                candidates.push(Candidate { is_guess, repeat, ..candidate });
            };
            push(value, first, score);
            // Joins mentions that are one name: `Maroon 5`, `Yamaha P125` and `Miami, Florida`.
            let is_more = |next: &&Mention| {
                let is_number = matches!(
                    self.tokens[next.tokens.start].kind,
                    TokenKind::Number | TokenKind::Code
                );
                mention.kind == MentionKind::Name
                    && (next.is_second || is_number && next.tokens.start == mention.tokens.end)
            };
            if let Some(next) = mentions.get(first + 1).filter(is_more) {
                let text = self.slice(mention.tokens.start..next.tokens.end);
                push(json!(text), first + 1, score + weights.near_form);
            }
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

    fn mention_fit(&self, mention: &Mention, slot: &Slot) -> Option<(Value, f32)> {
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
            MentionKind::Figure { .. } if slot.kind == SlotKind::Id => {
                Some((json!(first.value.trim_start_matches('#')), score))
            }
            MentionKind::Moment if slot.kind == SlotKind::Moment && is_clock == time.is_some() => {
                let day = moment.and_then(|moment| moment.day);
                let day = day.map(|day| json!(write_moment(day, None)));
                let time = time.map(|time| json!(time.format("%H:%M").to_string()));
                Some((day.or(time).unwrap_or_else(text), score + weights.form))
            }
            MentionKind::Figure { .. } | MentionKind::Moment => None,
            MentionKind::Words => {
                let can_be = slot.is_required && (slot.is_free() || slot.is_list);
                let before = mention.before.map(|place| &self.tokens[place]);
                let is_announced = before.is_some_and(|token| self.lexicon.is_preposition(token));
                let bonus = if is_announced { weights.near_form } else { 0.0 };
                can_be.then(|| (text(), score + bonus - weights.typed - weights.foreign))
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
        let is_same = |own: &String| is_alike(own, word) || self.lexicon.is_same_noun(own, word);
        let in_name = |slot: &&Slot| slot.words.iter().any(is_same);
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

/// Returns a figure in the form that a slot takes, if the slot can take it. `5%` is 0.05, or 5 if
/// the slot asks for percent or for an integer.
fn figure_for(value: &Number, is_share: bool, slot: &Slot) -> Option<Value> {
    let takes_percent = slot.about.iter().any(|word| word.starts_with("percent"));
    if is_share && !slot.is_whole && !takes_percent {
        return value.as_f64().map(|amount| json!(round(amount / 100.0)));
    }
    (!slot.is_whole || value.is_i64()).then(|| Value::Number(value.clone()))
}

/// Makes at most 16 calls of the values. Without a pairing, each value goes with each value of the
/// other slots: `Oslo and Rome for 3 and 5 days`.
fn spread_values(
    values: &BTreeMap<usize, Vec<PlacedValue>>,
    is_paired: bool,
) -> BTreeMap<usize, Filling> {
    let many: Vec<&Vec<PlacedValue>> = values.values().filter(|values| values.len() > 1).collect();
    let ends = |values: &[PlacedValue]| (values[0].0, values[values.len() - 1].0);
    let take_turns = |one: &[PlacedValue], other: &[PlacedValue]| {
        let ((start, end), (from, to)) = (ends(one), ends(other));
        start < to && from < end
    };
    let has_turns = is_paired
        || (1..many.len()).any(|at| many[..at].iter().any(|one| take_turns(one, many[at])));
    let mut rows: Vec<BTreeMap<usize, Value>> = vec![BTreeMap::new()];
    if many.len() < 2 || has_turns {
        let leader = many.iter().max_by_key(|values| values.len()).copied();
        let count = leader.map_or(1, Vec::len);
        rows = (0..count)
            .map(|call| {
                let end = leader.and_then(|values| values.get(call + 1));
                let end = end.map_or(usize::MAX, |(start, _)| *start);
                let pick = |values: &Vec<PlacedValue>| {
                    let before = values.iter().rev().find(|(start, _)| *start < end);
                    let same = if values.len() == count { values.get(call) } else { before };
                    same.or(values.first()).map(|(_, value)| value.clone())
                };
                values.iter().filter_map(|(slot, values)| Some((*slot, pick(values)?))).collect()
            })
            .collect();
    } else {
        for (slot, values) in values {
            let with = |row: &BTreeMap<usize, Value>| {
                let row = row.clone();
                values.iter().map(move |(_, value)| {
                    let mut row = row.clone();
                    row.insert(*slot, value.clone());
                    row
                })
            };
            rows = rows.iter().flat_map(with).take(MAX_CALLS).collect();
        }
    }
    let column = |slot: usize| {
        let rows = rows.iter().take(MAX_CALLS);
        rows.filter_map(|row| row.get(&slot).cloned()).collect::<Vec<Value>>()
    };
    values.keys().map(|slot| (*slot, Filling::from_values(column(*slot)))).collect()
}
