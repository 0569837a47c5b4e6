//! The choice of values for slots that may repeat, and the calls that they make.

use std::{collections::BTreeMap, ops::Range};

use serde_json::{Map, Value};

use super::{
    Candidate, Filler, count_f32,
    mentions::{Mention, Said},
    reading::CandidateKind,
};
use crate::{token::Kind, tool::SlotKind};

const BEAM_WIDTH: usize = 32;
const MAX_CALLS: usize = 16;

#[derive(Clone, Default)]
pub(super) struct RepeatedChoice {
    pub(super) score: f32,
    /// The number of values of each slot.
    counts: Vec<u8>,
    pub(super) candidates: Vec<usize>,
}

/// A value of a slot, with its place.
pub(super) type Placed = (Range<usize>, Value);

impl Filler<'_> {
    /// Chooses candidates that do not overlap. A slot may repeat, at a cost.
    pub(super) fn choose_repeated(
        &self,
        candidates: &[Candidate],
        mentions: &[Mention],
    ) -> RepeatedChoice {
        let weights = self.weights;
        let count = self.tokens.len();
        let mut costs = vec![0.0; count];
        for mention in mentions {
            let first = &self.tokens[mention.tokens.start];
            costs[mention.tokens.start] = match mention.said {
                Said::Figure { .. }
                    if self.lexicon.small_number(&first.lower).is_some()
                        && first.kind == Kind::Word =>
                {
                    0.0
                }
                Said::Name => weights.unplaced,
                _ => weights.unplaced * 1.5,
            };
        }
        let mut by_start: Vec<Vec<usize>> = vec![Vec::new(); count + 1];
        for (at, candidate) in candidates.iter().enumerate() {
            by_start[candidate.tokens.start].push(at);
        }
        let mut states: Vec<Vec<RepeatedChoice>> = vec![Vec::new(); count + 1];
        states[0].push(RepeatedChoice {
            counts: vec![0; self.tool.slots.len()],
            ..RepeatedChoice::default()
        });
        for at in 0..count {
            for state in best(std::mem::take(&mut states[at])) {
                for index in &by_start[at] {
                    let candidate = &candidates[*index];
                    if let Some(gain) = self.gain(&state, candidate, candidates) {
                        let mut next = state.clone();
                        next.score += gain;
                        next.counts[slot_of(candidate)] += 1;
                        next.candidates.push(*index);
                        states[candidate.tokens.end].push(next);
                    }
                }
                states[at + 1].push(RepeatedChoice { score: state.score - costs[at], ..state });
            }
        }
        let settle = |mut state: RepeatedChoice| {
            let missing = self
                .tool
                .slots
                .iter()
                .zip(&state.counts)
                .filter(|(slot, count)| slot.is_required && **count == 0)
                .count();
            let most = state.counts.iter().copied().max().unwrap_or_default();
            let uneven = state.counts.iter().filter(|count| **count > 1 && **count < most).count();
            state.score -=
                weights.missing * count_f32(missing) + weights.foreign * count_f32(uneven);
            state
        };
        let last = states.pop().unwrap_or_default().into_iter().map(settle);
        last.reduce(|best, state| if state.score > best.score { state } else { best })
            .unwrap_or_default()
    }

    /// Returns what a candidate adds to a choice. Values come in the order of the slots, and a slot
    /// repeats as an item of a list or where the order of the slots repeats.
    fn gain(
        &self,
        state: &RepeatedChoice,
        candidate: &Candidate,
        candidates: &[Candidate],
    ) -> Option<f32> {
        let weights = self.weights;
        let slot = slot_of(candidate);
        let own = &self.tool.slots[slot];
        if state.counts[slot] == 0 {
            let before = self.tool.slots[..slot].iter().zip(&state.counts);
            let skipped = before
                .filter(|(other, count)| {
                    **count == 0 && other.is_required && other.kind == own.kind
                })
                .count();
            let required = if own.is_required { weights.required } else { 0.0 };
            return Some(candidate.score + required - weights.length * count_f32(skipped));
        }
        if own.kind == SlotKind::Flag || usize::from(state.counts[slot]) >= MAX_CALLS {
            return None;
        }
        let last = &candidates[*state.candidates.last()?];
        let slots = || state.candidates.iter().map(|at| slot_of(&candidates[*at]));
        let is_joined = slot_of(last) == slot && candidate.link == Some(last.tokens.end);
        let is_other = slot_of(last) != slot;
        let follows =
            is_other && slots().zip(slots().skip(1)).any(|pair| pair == (slot_of(last), slot));
        let begins = is_other && slots().next() == Some(slot);
        let more = match candidate.kind {
            _ if own.kind == SlotKind::Choice => return Some(candidate.score - weights.bare),
            CandidateKind::Words if is_joined => return Some(candidate.score + weights.foreign),
            CandidateKind::Words => return Some(candidate.score - weights.cue),
            _ if is_joined => weights.near_form / 2.0,
            _ if follows => weights.near_form,
            _ if begins => -weights.near_form / 2.0,
            CandidateKind::Figure => -weights.foreign,
            _ => -weights.cue,
        };
        Some(candidate.score - weights.typed + more)
    }

    /// Makes calls of the values. Values of several slots go together where they take turns in the
    /// query, or where it says `respectively`. Otherwise each goes with each.
    pub(super) fn spread(&self, values: &BTreeMap<usize, Vec<Placed>>) -> Vec<Map<String, Value>> {
        let many: Vec<&Vec<Placed>> = values.values().filter(|values| values.len() > 1).collect();
        let says_pairs = self.tokens.iter().any(|token| token.is("respectively"));
        let takes_turns = many
            .iter()
            .enumerate()
            .any(|(at, values)| many[at + 1..].iter().any(|others| take_turns(values, others)));
        let rows: Vec<BTreeMap<usize, Value>> = if many.len() < 2 || says_pairs || takes_turns {
            let leader = many.iter().max_by_key(|values| values.len());
            let count = leader.map_or(1, |values| values.len());
            let row = |call: usize| {
                let end = leader
                    .and_then(|values| values.get(call + 1))
                    .map_or(usize::MAX, |(tokens, _)| tokens.start);
                let pick = |values: &Vec<Placed>| {
                    let same = if values.len() == count {
                        values.get(call)
                    } else {
                        values.iter().rev().find(|(tokens, _)| tokens.start < end)
                    };
                    same.or(values.first()).map(|(_, value)| value.clone())
                };
                values.iter().filter_map(|(slot, values)| Some((*slot, pick(values)?))).collect()
            };
            (0..count).map(row).collect()
        } else {
            values.iter().fold(vec![BTreeMap::new()], |rows, (slot, values)| {
                let with = |row: &BTreeMap<usize, Value>, value: &Value| {
                    let mut row = row.clone();
                    row.insert(*slot, value.clone());
                    row
                };
                rows.iter()
                    .flat_map(|row| values.iter().map(move |(_, value)| with(row, value)))
                    .collect()
            })
        };
        let mut calls: Vec<Map<String, Value>> = Vec::new();
        for row in rows.into_iter().take(MAX_CALLS) {
            let call = row
                .into_iter()
                .map(|(slot, value)| (self.tool.slots[slot].parameter.clone(), value))
                .collect();
            if !calls.contains(&call) {
                calls.push(call);
            }
        }
        calls
    }
}

fn slot_of(candidate: &Candidate) -> usize {
    candidate.fills[0].0
}

/// Returns whether values of one slot stand between those of another.
fn take_turns(values: &[Placed], others: &[Placed]) -> bool {
    let range = |values: &[Placed]| values[0].0.start..values[values.len() - 1].0.start;
    let (own, other) = (range(values), range(others));
    own.start < other.end && other.start < own.end
}

fn best(mut states: Vec<RepeatedChoice>) -> Vec<RepeatedChoice> {
    states.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut seen: Vec<Vec<u8>> = Vec::new();
    states.retain(|state| {
        let is_new = !seen.contains(&state.counts);
        seen.push(state.counts.clone());
        is_new
    });
    states.truncate(BEAM_WIDTH);
    states
}
