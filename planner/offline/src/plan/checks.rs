use serde_json::Value;
use shared::diagnostic::Diagnostic;

use super::Planning;
use crate::{
    clause::Clause,
    fill::{Filling, Reading, to_f32},
    refusal::Refusal,
    token::TokenKind,
    tool::{Slot, SlotKind, Tool},
};

impl Planning<'_> {
    pub(super) fn check(&self, clause: &Clause, reading: &Reading) -> Result<(), Refusal> {
        let tool = &self.tools[reading.tool];
        let weights = self.weights;
        let said = || self.words(&clause.tokens);
        let is_word = |at: &usize| clause.tokens[*at].kind == TokenKind::Word;
        let lost = to_f32(reading.unplaced_tokens.len());
        let most = weights.most_unplaced * if tool.has_effect { 1.0 } else { 2.0 };
        let is_weak = reading.score < weights.least;
        if is_weak || !self.names_tool(clause, reading) {
            return Err(Refusal::nothing_fits(&said()));
        }
        if lost > most || !reading.unplaced_tokens.iter().all(is_word) {
            let words: Vec<&str> = reading
                .unplaced_tokens
                .iter()
                .map(|at| clause.tokens[*at].value.as_str())
                .collect();
            return Err(Refusal::unplaced(tool, &words.join(" "), &said()));
        }
        Ok(())
    }

    /// Returns whether the words of a clause name a tool. The name is a noun, its own verb, a
    /// choice of a tool that reads, or the values of all its required slots.
    fn names_tool(&self, clause: &Clause, reading: &Reading) -> bool {
        let tool = &self.tools[reading.tool];
        let slots = || reading.fillings.keys().map(|slot| &tool.slots[*slot]);
        let is_vague =
            self.lexicon.means(&tool.verb, "creat") || self.lexicon.means(&tool.verb, "updat");
        // `put on` means `play`, and only one tool plays.
        let is_only = |verb: &str| {
            let has_verb = |other: &&Tool| self.lexicon.means(verb, &other.verb);
            has_verb(&tool) && self.tools.iter().filter(has_verb).count() == 1
        };
        let is_own = |verb: &str| verb == tool.verb || is_only(verb);
        let has_own_verb = clause.verb.as_ref().is_some_and(|verb| is_own(&verb.stem))
            && !(tool.has_effect && is_vague);
        let has_choice = !tool.has_effect && slots().any(|slot| slot.kind == SlotKind::Choice);
        let is_composed = |kind| matches!(kind, SlotKind::Query | SlotKind::Title | SlotKind::Text);
        let has_typed = slots().any(|slot| slot.is_required && !is_composed(slot.kind));
        let has_id = slots().any(|slot| slot.is_required && !slot.is_free());
        let is_exact = has_typed
            && (has_id || !tool.has_effect)
            && reading.words_score > 0.0
            && reading.missing_slots.is_empty()
            && (reading.unplaced_tokens.is_empty() || !tool.has_effect);
        reading.has_noun || has_own_verb || has_choice || is_exact
    }

    pub(super) fn missing(&self, clause: &Clause, reading: &Reading, slots: &[usize]) -> Refusal {
        let tool = &self.tools[reading.tool];
        let slots: Vec<&Slot> = slots.iter().map(|slot| &tool.slots[*slot]).collect();
        Refusal::missing(tool, &slots, &self.words(&clause.tokens))
    }

    pub(super) fn add_doubts(&mut self, clause: &Clause, reading: &Reading) {
        let path = format!("tools[{}]", self.planned.steps.len());
        for range in reading.unplaced_tokens.chunk_by(|at, next| at + 1 == *next) {
            let words = self.words(&clause.tokens[range[0]..range[0] + range.len()]);
            let message = format!("the plan does not use `{words}`");
            let help =
                "leave it out, or put it between quotation marks behind the name of its parameter";
            let doubt = Diagnostic::warning("plan.unplaced_words", path.clone(), message);
            self.planned.doubts.push(doubt.with_help(help));
        }
        for at in &reading.guessed_slots {
            let slot = &self.tools[reading.tool].slots[*at];
            let value = match reading.fillings.get(at) {
                Some(Filling::One(value)) => value.clone(),
                Some(Filling::Many(values)) => Value::Array(values.clone()),
                None => continue,
            };
            let message = format!("`{}` is a guess: {value}", slot.path());
            let help = format!("say it with its name, such as `with {} …`", slot.cue());
            let path = format!("{path}.parameters.{}", slot.parameter);
            let doubt = Diagnostic::warning("plan.guessed_value", path, message);
            self.planned.doubts.push(doubt.with_help(help));
        }
    }
}
