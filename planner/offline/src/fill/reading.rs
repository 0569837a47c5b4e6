use std::{collections::BTreeMap, ops::Range};

use serde_json::{Map, Value, json};

use crate::tool::Tool;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filling {
    One(Value),
    Many(Vec<Value>),
}

impl Filling {
    pub(crate) fn from_values(mut values: Vec<Value>) -> Self {
        if values.len() == 1 { Self::One(values.remove(0)) } else { Self::Many(values) }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) fills: Vec<(usize, Filling)>,
    pub(super) tokens: Range<usize>,
    /// The tokens of the value alone, without cues.
    pub(super) value: Range<usize>,
    pub(super) score: f32,
    pub(super) link: Option<usize>,
    pub(super) is_guess: bool,
    pub(super) repeat: Repeat,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Repeat {
    Never,
    After(usize),
    Apart,
}

impl Candidate {
    pub(super) fn new(fills: Vec<(usize, Filling)>, tokens: Range<usize>, score: f32) -> Self {
        let value = tokens.clone();
        Self { fills, tokens, value, score, link: None, is_guess: false, repeat: Repeat::Never }
    }

    pub(super) fn slot(&self) -> usize {
        self.fills[0].0
    }

    pub(super) fn valued(self, value: Range<usize>) -> Self {
        Self { value, ..self }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) tool: usize,
    pub(crate) score: f32,
    pub(crate) words_score: f32,
    pub(crate) has_noun: bool,
    pub(crate) fillings: BTreeMap<usize, Filling>,
    pub(crate) missing_slots: Vec<usize>,
    pub(crate) unplaced_tokens: Vec<usize>,
    /// For each token, `true` if it is a value or a cue of a value.
    pub(crate) claimed_tokens: Vec<bool>,
    pub(crate) guessed_slots: Vec<usize>,
    pub(crate) links: Vec<usize>,
}

impl Reading {
    pub(crate) fn calls(&self, tool: &Tool) -> Vec<Map<String, Value>> {
        let many = self.fillings.values().filter_map(|filling| match filling {
            Filling::Many(values) => Some(values.len()),
            Filling::One(_) => None,
        });
        let count = many.max().unwrap_or(1);
        (0..count).map(|call| self.call(tool, call)).collect()
    }

    pub(crate) fn first_call(&self, tool: &Tool) -> Map<String, Value> {
        self.call(tool, 0)
    }

    fn call(&self, tool: &Tool, call: usize) -> Map<String, Value> {
        let mut parameters = Map::new();
        for (slot, filling) in &self.fillings {
            let value = match filling {
                Filling::One(value) => value.clone(),
                Filling::Many(values) => {
                    values.get(call).or(values.last()).cloned().unwrap_or_default()
                }
            };
            let slot = &tool.slots[*slot];
            match &slot.field {
                Some(field) => {
                    let items = parameters.entry(slot.parameter.clone());
                    items.or_insert_with(|| json!([{}]))[0][field] = value;
                }
                None => {
                    parameters.insert(slot.parameter.clone(), value);
                }
            }
        }
        parameters
    }
}
