use serde_json::{Value, json};

use super::{Planning, steps::Call};
use crate::{
    clause::Clause,
    fill::{Filling, Reading},
    memory::{Parameters, field_for, write_template},
    refusal::Refusal,
    token::{Token, TokenKind},
    tool::{SlotKind, Tool},
};

impl Planning<'_> {
    pub(super) fn is_loop(&self, clause: &Clause, best: &Reading) -> bool {
        let is_word = |(at, token): (usize, &Token)| {
            token.kind == TokenKind::Word
                && self.lexicon.loops.has(&token.lower)
                && !best.claimed_tokens[at]
        };
        self.tools[best.tool].has_effect
            && !best.missing_slots.is_empty()
            && clause.tokens.iter().enumerate().any(is_word)
    }

    /// Plans `delete all emails from X`: a call that lists items, chosen by the words that the
    /// action does not use, then the action for each item.
    pub(super) fn plan_loop(&mut self, clause: &Clause, action: Reading) -> Result<(), Refusal> {
        let is_left = |(at, token): &(usize, &Token)| {
            !clause.verb_places().contains(at)
                && !action.claimed_tokens[*at]
                && !self.lexicon.loops.has(&token.lower)
        };
        let rest = clause.tokens.iter().enumerate().filter(is_left);
        let rest: Vec<Token> = rest.map(|(_, token)| token.clone()).collect();
        let rest = Clause { is_next: clause.is_next, ..Clause::question(rest) };
        let step = self.add_list(clause, &rest, &action)?;
        self.finish_loop(clause, &rest, action, step)
    }

    pub(super) fn plan_each(&mut self, clause: &Clause, each: &[Token]) -> Result<(), Refusal> {
        let rest = Clause { is_next: clause.is_next, ..Clause::question(each.to_vec()) };
        let main = Clause { each: None, ..clause.clone() };
        let action = self.best_action(&main)?;
        let step = self.add_list(&main, &rest, &action)?;
        // With the list in memory, words such as `its id` are fields of an item.
        let action = self.best_action(&main)?;
        self.finish_loop(&main, &rest, action, step)
    }

    fn best_action(&mut self, clause: &Clause) -> Result<Reading, Refusal> {
        let readings = self.readings(clause, &|tool| tool.has_effect);
        self.note_clause(clause, &readings);
        let best = readings.into_iter().next();
        best.ok_or_else(|| Refusal::nothing_fits(&self.words(&clause.tokens)))
    }

    fn add_list(
        &mut self,
        clause: &Clause,
        rest: &Clause,
        action: &Reading,
    ) -> Result<usize, Refusal> {
        let shared = action.first_call(&self.tools[action.tool]);
        let lists = |list: &Tool| !list.has_effect && list.list().is_some();
        let list =
            self.known_reading(self.readings(rest, &lists), Some(&shared)).ok_or_else(|| {
                Refusal::no_list(&self.tools[action.tool], &self.words(&clause.tokens))
            })?;
        if let Some(at) = list.unplaced_tokens.first() {
            // A word that no slot takes may be a filter. Without the filter, the loop would include
            // wrong items.
            let own = &self.tools[list.tool];
            let word = &rest.tokens[*at].value;
            return Err(Refusal::unplaced(own, word, &self.words(&clause.tokens)));
        }
        self.add_doubts(rest, &list);
        let parameters = list.first_call(&self.tools[list.tool]);
        let (tool, is_next) = (list.tool, clause.is_next);
        let step = self.add_step(Call { tool, parameters, is_next, ..Call::default() });
        self.last = vec![step];
        Ok(step)
    }

    fn finish_loop(
        &mut self,
        clause: &Clause,
        rest: &Clause,
        mut action: Reading,
        step: usize,
    ) -> Result<(), Refusal> {
        let tool = &self.tools[action.tool];
        self.fill_from_item(&mut action, step);
        if !action.missing_slots.is_empty() {
            return Err(self.missing(clause, &action, &action.missing_slots));
        }
        // The call that lists the items already uses the words about the list.
        let in_list =
            |at: &usize| rest.tokens.iter().any(|token| token.start == clause.tokens[*at].start);
        action.unplaced_tokens.retain(|at| !in_list(at));
        action.score = action.score.max(self.weights.least);
        self.check(clause, &action)?;
        self.add_doubts(clause, &action);
        for parameters in action.calls(tool) {
            let each = self.repeat_over_items(step, &parameters);
            let each = each.ok_or_else(|| Refusal::condition(&self.words(&clause.tokens)))?;
            let (tool, parameters, each) = (action.tool, each.parameters, Some(each.items));
            self.last = vec![self.add_step(Call { tool, parameters, each, ..Call::default() })];
        }
        self.previous_clause = Some(clause.clone());
        Ok(())
    }

    fn fill_from_item(&self, action: &mut Reading, step: usize) {
        let list = &self.memory.steps[step];
        let output = self.tools[list.tool].list();
        for at in std::mem::take(&mut action.missing_slots) {
            let slot = &self.tools[action.tool].slots[at];
            let field = output.and_then(|output| field_for(&output.items, slot, true));
            let known =
                list.parameters.get(&slot.parameter).filter(|_| slot.kind != SlotKind::Email);
            let value = field.map(|field| write_template("item", &field)).or(known.cloned());
            match value {
                Some(value) => {
                    let value = if slot.is_list { json!([value]) } else { value };
                    action.fillings.insert(at, Filling::One(value));
                }
                None => action.missing_slots.push(at),
            }
        }
    }

    pub(super) fn repeat_over_items(&self, step: usize, call: &Parameters) -> Option<EachItem> {
        let list = &self.memory.steps[step];
        let path = &self.tools[list.tool].list()?.path;
        let first = format!("{{{{{}.{path}[0].", list.id);
        let items = format!("{{{{{}.{path}}}}}", list.id);
        let text = Value::Object(call.clone()).to_string().replace(&first, "{{item.");
        let is_each = text.contains("{{item.");
        let parameters = serde_json::from_str(&text).ok().filter(|_| is_each)?;
        Some(EachItem { parameters, items })
    }
}

pub(super) struct EachItem {
    pub(super) parameters: Parameters,
    pub(super) items: String,
}
