//! Reads one clause as calls of one tool. Each kind of evidence proposes candidates, and one
//! assignment takes those that fit together best.

mod assignment;
mod choices;
mod cues;
mod groups;
mod lookup;
mod mentions;
mod reading;
mod references;
mod texts;
mod typed;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use serde_json::{Value, json};

use self::reading::Candidate;
pub(super) use self::{
    lookup::look_up,
    reading::{Filling, Reading},
};
use super::{
    clause::Clause,
    lexicon::Lexicon,
    memory::Memory,
    moment::{Moment, find_moments},
    token::{Token, words_of},
    tool::{Slot, SlotKind, Tool},
    weights::Weights,
};

pub(super) struct FillContext<'a> {
    pub(super) query: &'a str,
    pub(super) lexicon: &'a Lexicon,
    pub(super) tools: &'a [Tool],
    pub(super) memory: &'a Memory,
    /// `true` if the last clause became several calls, so that `it` cannot mean one of them.
    pub(super) has_several_results: bool,
    pub(super) nouns: &'a BTreeSet<String>,
    pub(super) weights: &'a Weights,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VerbFit<'a> {
    pub(super) score: f32,
    /// The choice that the verb sets: `close` sets the state `closed`.
    pub(super) state: Option<&'a str>,
}

struct Filler<'a> {
    fill_context: &'a FillContext<'a>,
    lexicon: &'a Lexicon,
    weights: &'a Weights,
    tokens: &'a [Token],
    tool: &'a Tool,
    verb: &'a [usize],
    moments: Vec<Moment>,
}

pub(super) fn fill(
    fill_context: &FillContext<'_>,
    clause: &Clause,
    tool: usize,
    verb: VerbFit<'_>,
) -> Reading {
    Reading { tool, ..Filler::new(fill_context, clause, tool).read(verb) }
}

impl<'a> Filler<'a> {
    fn new(fill_context: &'a FillContext<'a>, clause: &'a Clause, tool: usize) -> Self {
        Self {
            fill_context,
            lexicon: fill_context.lexicon,
            weights: fill_context.weights,
            tokens: &clause.tokens,
            tool: &fill_context.tools[tool],
            verb: clause.verb_places(),
            moments: find_moments(&clause.tokens),
        }
    }
}

impl Filler<'_> {
    fn read(&self, verb: VerbFit<'_>) -> Reading {
        let weights = self.weights;
        let candidates = self.candidates(verb.state);
        let costs: Vec<f32> = (0..self.tokens.len()).map(|at| self.unplaced_cost(at)).collect();
        let chosen = self.choose(&candidates, &costs);
        let mut reading =
            Reading { claimed_tokens: vec![false; self.tokens.len()], ..Reading::default() };
        let mut values: BTreeSet<usize> = BTreeSet::new();
        for candidate in chosen.candidates.iter().map(|at| &candidates[*at]) {
            candidate.tokens.clone().for_each(|token| reading.claimed_tokens[token] = true);
            reading.links.extend(candidate.link);
            values.extend(candidate.value.clone());
            for (slot, filling) in &candidate.fills {
                reading.fillings.insert(*slot, filling.clone());
                reading.guessed_slots.extend(candidate.is_guess.then_some(*slot));
            }
        }
        self.move_below_directory(&mut reading.fillings);
        let is_missing =
            |(at, slot): &(usize, &Slot)| slot.is_required && !reading.fillings.contains_key(at);
        let slots = self.tool.slots.iter().enumerate();
        reading.missing_slots = slots.filter(is_missing).map(|(at, _)| at).collect();
        reading.unplaced_tokens = (0..self.tokens.len())
            .filter(|at| !reading.claimed_tokens[*at] && costs[*at] >= weights.unplaced)
            .collect();
        let (nouns, has_noun) = self.score_nouns(&reading.claimed_tokens, &values);
        reading.has_noun = has_noun;
        reading.words_score = verb.score + nouns;
        reading.score = reading.words_score + chosen.score
            - weights.missing * to_f32(reading.missing_slots.len());
        reading
    }

    fn candidates(&self, state: Option<&str>) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (at, slot) in self.tool.slots.iter().enumerate() {
            match slot.kind {
                SlotKind::Choice => self.add_choices(at, slot, state, &mut candidates),
                SlotKind::Flag => self.add_flags(at, slot, &mut candidates),
                SlotKind::Moment => self.add_moments(at, slot, &mut candidates),
                SlotKind::Pattern if slot.is_required => self.add_patterns(at, &mut candidates),
                _ => self.add_typed(at, slot, &mut candidates),
            }
            if !slot.is_slashed && slot.is_free() {
                self.add_texts(at, slot, &mut candidates);
                self.add_examples(at, slot, &mut candidates);
            }
            self.add_references(at, slot, &mut candidates);
        }
        self.add_slugs(&mut candidates);
        // `rename X to Y` sets the title.
        let is_target =
            |slot: usize| self.target_parameter() == Some(&self.tool.slots[slot].parameter);
        for candidate in &mut candidates {
            let is_meant = candidate.fills.iter().any(|(slot, _)| is_target(*slot));
            candidate.score += if is_meant { self.weights.cue } else { 0.0 };
        }
        candidates
    }

    fn propose(&self, slot: usize, value: Value, tokens: Range<usize>, score: f32) -> Candidate {
        let is_single = self.tool.slots[slot].is_list && !value.is_array();
        let filling = Filling::One(if is_single { json!([value]) } else { value });
        Candidate::new(vec![(slot, filling)], tokens, score)
    }

    fn is_at(&self, at: usize, words: &[&str]) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is_any(words))
    }

    fn target_parameter(&self) -> Option<&String> {
        self.verb.first().and_then(|at| self.lexicon.file.states.get(&self.tokens[*at].lower))
    }

    fn slice(&self, range: Range<usize>) -> String {
        match &self.tokens[range] {
            [only] => only.value.clone(),
            tokens => words_of(self.fill_context.query, tokens),
        }
    }

    /// Puts a file below the directory that it is moved into: `move a.txt into /data`.
    fn move_below_directory(&self, fillings: &mut BTreeMap<usize, Filling>) {
        let slots = self.tool.slots.iter().enumerate();
        let paths: Vec<usize> = slots
            .filter(|(_, slot)| slot.kind == SlotKind::Path && slot.is_required)
            .map(|(at, _)| at)
            .collect();
        let [from, to] = paths.as_slice() else { return };
        let text = |slot| match fillings.get(slot)? {
            Filling::One(value) => value.as_str(),
            Filling::Many(_) => None,
        };
        let (Some(file), Some(directory)) = (text(from), text(to)) else { return };
        let is_file = |path: &str| path.rsplit('/').next().is_some_and(|name| name.contains('.'));
        let is_into = directory.ends_with('/')
            || self.tokens.iter().any(|token| token.is_any(&["into", "there"]));
        if is_into && is_file(file) && !is_file(directory) && !directory.contains("{{") {
            let name = file.rsplit('/').next().unwrap_or_default();
            let path = format!("{}/{name}", directory.trim_end_matches('/'));
            fillings.insert(*to, Filling::One(json!(path)));
        }
    }
}

pub(super) fn to_f32(count: usize) -> f32 {
    u16::try_from(count).map_or(f32::MAX, f32::from)
}
