//! Queries that only read, where no clause is an order that a tool carries out.
//!
//! The tool that shares most words with the query answers it. Values without a place are doubts.

use std::collections::BTreeSet;

use super::{MAX_CLAUSE_TOKENS, Planning, steps::Call};
use crate::{
    clause::{Clause, Mood},
    fill::{Reading, count_f32, look_up},
    memory::{Memory, PlannedStep},
    token::{Kind, Token},
    tool::Tool,
};

/// The number of tools whose calls are compared.
const MAX_TOOLS: usize = 3;
/// With so few tools, the values alone can tell which tool is meant.
const FEW_TOOLS: usize = 4;

impl Planning<'_> {
    /// Returns whether the plan only calls one tool with values of the query, and the values alone
    /// tell which tool is meant, because all tools only read and are few.
    pub(super) fn is_plain_read(&self) -> bool {
        let first = self.memory.steps.first().map(|step| step.tool);
        let is_plain = |step: &PlannedStep| {
            let mut values = step.parameters.values();
            Some(step.tool) == first
                && !step.is_derived
                && !values.any(|value| value.to_string().contains("{{"))
        };
        let has_condition = self.planned.steps.iter().any(|step| step.when.is_some());
        self.tools.len() <= FEW_TOOLS
            && !self.has_effects()
            && !has_condition
            && self.memory.steps.iter().all(is_plain)
    }

    fn has_effects(&self) -> bool {
        self.tools.iter().any(|tool| tool.has_effect)
    }

    /// Plans calls of the tool that reads what a query speaks of. Returns whether there is such a
    /// tool.
    pub(super) fn plan_lookup(&mut self, tokens: &[Token], clauses: &[Clause]) -> bool {
        // An order with an unknown verb must not become a question.
        let is_order = |clause: &Clause| clause.mood != Mood::Question || self.may_act(clause);
        let is_ordered = self.has_effects() && clauses.iter().any(is_order);
        if tokens.len() > MAX_CLAUSE_TOKENS || is_ordered {
            return false;
        }
        let is_small = self.tools.len() <= FEW_TOOLS && !self.has_effects();
        let tools = self.tools.iter().enumerate().filter(|(_, tool)| !tool.has_effect);
        let shared = tools.map(|(at, tool)| (self.count_shared_words(tokens, tool), at));
        let mut ranked: Vec<(f32, usize)> =
            shared.filter(|(score, _)| is_small || *score > 0.0).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked.truncate(MAX_TOOLS);
        let scene = self.fill_context();
        let clause = Clause::question(tokens.to_vec());
        let mut best: Option<(f32, Reading)> = None;
        for (shared, tool) in ranked {
            let reading = look_up(&scene, &clause, tool);
            let score = shared + self.weights.foreign * reading.score;
            let is_better = best.as_ref().is_none_or(|(most, _)| score > *most);
            if reading.missing.is_empty() && is_better {
                best = Some((score, reading));
            }
        }
        let Some((_, reading)) = best else { return false };
        // Among many tools, a few shared words may be chance.
        let tool = &self.tools[reading.tool];
        let is_noun =
            |token: &Token| token.kind == Kind::Word && tool.has_noun(&token.stem, self.lexicon);
        let is_sure = || {
            let has_doubt = !reading.guessed.is_empty() || !reading.unplaced.is_empty();
            !has_doubt && tokens.iter().any(is_noun)
        };
        if !(is_small || is_sure()) {
            return false;
        }
        self.planned.steps.clear();
        self.planned.doubts.clear();
        self.memory = Memory::default();
        self.last = Vec::new();
        self.add_doubts(&clause, &reading);
        for parameters in reading.calls(tool) {
            self.add_step(Call::new(reading.tool, parameters));
        }
        true
    }

    /// Scores the words that a query shares with a tool: less if other tools have them, too.
    fn count_shared_words(&self, tokens: &[Token], tool: &Tool) -> f32 {
        let words = tokens.iter().filter(|token| self.is_content(token));
        let words: BTreeSet<&String> = words.map(|token| &token.stem).collect();
        let in_name =
            |tool: &Tool, word: &String| tool.has_noun(word, self.lexicon) || tool.verb == *word;
        let is_in = |tool: &Tool, word: &String| {
            in_name(tool, word)
                || tool.about.contains(word)
                || tool.slots.iter().any(|slot| slot.mentions(word))
        };
        let fit = |word: &String| {
            let weight = if in_name(tool, word) { self.weights.noun } else { self.weights.cue };
            weight / count_f32(self.tools.iter().filter(|other| is_in(other, word)).count())
        };
        words.into_iter().filter(|word| is_in(tool, word)).map(fit).sum()
    }
}
