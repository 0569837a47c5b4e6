//! Lookups: calls of one tool, where there are few tools and all of them only read.

use std::collections::BTreeSet;

use super::{MAX_CLAUSE_TOKENS, Planning, steps::Call};
use crate::{
    clause::Clause,
    fill::{Reading, look_up, to_f32},
    memory::{Memory, PlannedStep},
    token::Token,
    tool::Tool,
};

/// With so few tools, the values alone can tell which tool is meant.
const MAX_LOOKUP_TOOLS: usize = 4;

impl Planning<'_> {
    pub(super) fn is_plain_read(&self) -> bool {
        let first = self.memory.steps.first().map(|step| step.tool);
        let is_plain = |step: &PlannedStep| {
            let mut values = step.parameters.values();
            Some(step.tool) == first && !values.any(|value| value.to_string().contains("{{"))
        };
        let has_condition = self.planned.steps.iter().any(|step| step.when.is_some());
        !has_condition && self.memory.steps.iter().all(is_plain)
    }

    /// Replaces the plan by calls of the tool that reads what a query asks about. Returns `false`
    /// and keeps the plan if there is no such tool.
    pub(super) fn plan_lookup(&mut self, tokens: &[Token]) -> bool {
        let is_possible =
            self.tools.len() <= MAX_LOOKUP_TOOLS && !self.tools.iter().any(|tool| tool.has_effect);
        if tokens.len() > MAX_CLAUSE_TOKENS || !is_possible {
            return false;
        }
        let fill_context = self.fill_context();
        let clause = Clause::question(tokens.to_vec());
        let mut best: Option<(f32, Reading)> = None;
        for (tool, shared) in self.score_shared_words(tokens).into_iter().enumerate() {
            let reading = look_up(&fill_context, &clause, tool);
            let score = shared + self.weights.foreign * reading.score;
            let is_better = best.as_ref().is_none_or(|(most, _)| score > *most);
            if reading.missing_slots.is_empty() && is_better {
                best = Some((score, reading));
            }
        }
        let Some((_, reading)) = best else { return false };
        self.planned.steps.clear();
        self.planned.doubts.clear();
        self.memory = Memory::default();
        self.last = Vec::new();
        self.add_doubts(&clause, &reading);
        for parameters in reading.calls(&self.tools[reading.tool]) {
            self.add_step(Call { tool: reading.tool, parameters, ..Call::default() });
        }
        true
    }

    fn score_shared_words(&self, tokens: &[Token]) -> Vec<f32> {
        let words = tokens.iter().filter(|token| self.lexicon.is_content(token));
        let words: BTreeSet<&String> = words.map(|token| &token.stem).collect();
        let weigh = |tool: &Tool, word: &String| {
            if tool.has_noun(word, self.lexicon) || tool.verb == *word {
                self.weights.noun
            } else if tool.about.contains(word) || tool.slots.iter().any(|slot| slot.mentions(word))
            {
                self.weights.cue
            } else {
                0.0
            }
        };
        let mut scores = vec![0.0; self.tools.len()];
        for word in words {
            let fits: Vec<f32> = self.tools.iter().map(|tool| weigh(tool, word)).collect();
            let count = to_f32(fits.iter().filter(|fit| **fit > 0.0).count()).max(1.0);
            scores.iter_mut().zip(fits).for_each(|(score, fit)| *score += fit / count);
        }
        scores
    }
}
