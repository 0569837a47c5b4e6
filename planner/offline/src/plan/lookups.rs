//! Queries that only read, where no clause is an order that a tool carries out.
//!
//! The tool that shares most words with the query answers it. Words that have no place are doubts.

use std::collections::BTreeSet;

use serde_json::Value;
use shared::diagnostic::Diagnostic;

use super::{MAX_CLAUSE_TOKENS, Planning, steps::Call};
use crate::{
    clause::{Clause, Mood},
    fill::{Lookup, count_f32, look_up},
    memory::{Memory, PlannedStep},
    token::{Kind, Token, words_of},
    tool::Tool,
};

/// The number of tools whose calls are compared.
const MAX_TOOLS: usize = 3;
/// With so few tools, the values alone can tell which is meant.
const FEW_TOOLS: usize = 4;

impl Planning<'_> {
    /// Returns whether the plan only calls one tool that reads, with values of the query, and there
    /// are so few tools that the values alone tell which is meant.
    pub(super) fn is_plain_read(&self) -> bool {
        let first = self.memory.steps.first().map(|step| step.tool);
        let is_plain = |step: &PlannedStep| {
            let is_link = |value: &Value| value.to_string().contains("{{");
            Some(step.tool) == first
                && !step.is_derived
                && !self.tools[step.tool].has_effect
                && !step.parameters.values().any(is_link)
        };
        let has_condition = self.planned.steps.iter().any(|step| step.when.is_some());
        self.tools.len() <= FEW_TOOLS && !has_condition && self.memory.steps.iter().all(is_plain)
    }

    /// Plans calls of the tool that reads what a query speaks of. Returns whether there is one.
    pub(super) fn plan_lookup(&mut self, tokens: &[Token], clauses: &[Clause]) -> bool {
        let acts = self.tools.iter().any(|tool| tool.has_effect);
        let is_open = |clause: &Clause| {
            matches!(clause.mood, Mood::Denied | Mood::Asked | Mood::Hypothetical)
        };
        let is_long = tokens.len() > MAX_CLAUSE_TOKENS;
        if is_long || clauses.iter().any(|clause| acts && is_open(clause) || self.may_act(clause)) {
            return false;
        }
        let clause = Clause::question(tokens.to_vec());
        let mut ranked: Vec<(f32, usize)> = self
            .tools
            .iter()
            .enumerate()
            .filter(|(_, tool)| !tool.has_effect)
            .map(|(at, tool)| (self.shared_words(tokens, tool), at))
            .collect();
        let is_small = self.tools.len() <= FEW_TOOLS;
        ranked.retain(|(score, _)| is_small || *score > 0.0);
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked.truncate(MAX_TOOLS);
        let scene = self.fill_context();
        let mut best: Option<(f32, usize, Lookup)> = None;
        for (shared, tool) in ranked {
            let lookup = look_up(&scene, &clause, tool);
            let score = shared + self.weights.foreign * lookup.score;
            if lookup.missing == 0 && best.as_ref().is_none_or(|(most, ..)| score > *most) {
                best = Some((score, tool, lookup));
            }
        }
        let Some((_, tool, lookup)) = best else { return false };
        // Among many tools, a few shared words may be chance.
        let has_noun = || {
            let is_noun = |token: &Token| self.tools[tool].has_noun(&token.stem, self.lexicon);
            tokens.iter().any(|token| token.kind == Kind::Word && is_noun(token))
        };
        let is_sure = || lookup.guessed.is_empty() && lookup.unplaced.is_empty() && has_noun();
        if !is_small && !is_sure() {
            return false;
        }
        self.planned.steps.clear();
        self.planned.doubts.clear();
        self.memory = Memory::default();
        self.last = Vec::new();
        self.doubt_lookup(&clause, tool, &lookup);
        for parameters in lookup.calls {
            self.add_step(Call::new(tool, parameters));
        }
        true
    }

    /// Scores the words that a query shares with a tool: less if other tools have them, too.
    fn shared_words(&self, tokens: &[Token], tool: &Tool) -> f32 {
        let is_content =
            |token: &&Token| token.kind == Kind::Word && !self.lexicon.is_filler(token);
        let words: BTreeSet<&String> =
            tokens.iter().filter(is_content).map(|token| &token.stem).collect();
        let in_name = |tool: &Tool, word: &String| {
            tool.has_noun(word, self.lexicon) || tool.verb == *word || tool.topics.contains(word)
        };
        let in_text = |tool: &Tool, word: &String| {
            tool.about.contains(word) || tool.slots.iter().any(|slot| slot.mentions(word))
        };
        let fit = |word: &&String| {
            let weight = if in_name(tool, word) {
                self.weights.noun
            } else if in_text(tool, word) {
                self.weights.cue
            } else {
                return 0.0;
            };
            let others =
                self.tools.iter().filter(|other| in_name(other, word) || in_text(other, word));
            weight / count_f32(others.count())
        };
        words.iter().map(fit).sum()
    }

    fn doubt_lookup(&mut self, clause: &Clause, tool: usize, lookup: &Lookup) {
        for tokens in &lookup.unplaced {
            let words = words_of(self.query, &clause.tokens[tokens.clone()]);
            let message = format!("the plan does not use `{words}`");
            self.planned.doubts.push(Diagnostic::warning(
                "plan.unplaced_words",
                "tools[0]".to_owned(),
                message,
            ));
        }
        for slot in &lookup.guessed {
            let slot = &self.tools[tool].slots[*slot];
            let value = lookup
                .calls
                .first()
                .and_then(|call| call.get(&slot.parameter))
                .cloned()
                .unwrap_or_default();
            let message = format!("`{}` is a guess: {value}", slot.path());
            let path = format!("tools[0].parameters.{}", slot.parameter);
            let help = format!("say it with its name, such as `with {} …`", slot.cue());
            self.planned
                .doubts
                .push(Diagnostic::warning("plan.guessed_value", path, message).with_help(help));
        }
    }
}
