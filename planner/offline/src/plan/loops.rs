//! Loops: a step that lists the items, and the action for each of them.

use serde_json::{Map, Value, json};

use super::{Planning, steps::Call};
use crate::{
    clause::Clause,
    fill::{Filling, Reading, count_f32, fill},
    memory::{item_field, template},
    refusal::Refusal,
    token::{Kind, Token, stem},
    tool::{Output, Slot, SlotKind, Tool},
};

impl Planning<'_> {
    /// Reads the action of a clause such as `delete all emails from X`. The words that filter the
    /// items are left for the call that lists the items.
    pub(super) fn loop_action(&self, clause: &Clause, best: &Reading) -> Option<Reading> {
        let tool = &self.tools[best.tool];
        let has_word = clause.tokens.iter().enumerate().any(|(at, token)| {
            let is_word =
                self.lexicon.loops.has(&token.lower) || self.lexicon.ranks.has(&token.lower);
            token.kind == Kind::Word && is_word && !best.claimed[at]
        });
        if !tool.has_effect || !has_word {
            return None;
        }
        let verb = self.verb_fit(clause, tool);
        let lists = self.tools.iter().filter(|list| !list.has_effect && list.list().is_some());
        let filters: Vec<&Slot> = lists.flat_map(|list| &list.slots).collect();
        let is_filter = |slot: &Slot| {
            !slot.is_required && filters.iter().any(|filter| filter.parameter == slot.parameter)
        };
        let is_set = |slot: &Slot| {
            verb.state.is_some_and(|state| slot.choices.iter().any(|choice| choice == state))
        };
        let is_blocked = |at: &usize| is_filter(&tool.slots[*at]) && !is_set(&tool.slots[*at]);
        let blocked: Vec<usize> = (0..tool.slots.len()).filter(is_blocked).collect();
        let action = fill(&self.fill_context(), clause, best.tool, &blocked, verb);
        (!action.missing.is_empty()).then_some(action)
    }

    /// Plans `delete all emails from X`: a list by the words that the action does not use, then the
    /// action for each item.
    pub(super) fn plan_loop(&mut self, clause: &Clause, action: Reading) -> Result<(), Refusal> {
        let is_left = |(at, token): &(usize, &Token)| {
            !clause.verb_places().contains(at)
                && !action.claimed[*at]
                && !self.lexicon.loops.has(&token.lower)
        };
        let rest = clause.tokens.iter().enumerate().filter(is_left);
        let rest: Vec<Token> = rest.map(|(_, token)| token.clone()).collect();
        let rest = Clause { is_next: clause.is_next, ..Clause::question(rest) };
        let step = self.add_list(clause, &rest, &action)?;
        self.finish_loop(clause, &rest, action, step)
    }

    /// Plans `for each X do Y`.
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
        readings
            .into_iter()
            .next()
            .ok_or_else(|| Refusal::nothing_fits(&self.words(&clause.tokens)))
    }

    fn add_list(
        &mut self,
        clause: &Clause,
        rest: &Clause,
        action: &Reading,
    ) -> Result<usize, Refusal> {
        let list = self.choose_list(rest, action).ok_or_else(|| {
            Refusal::no_list(&self.tools[action.tool], &self.words(&clause.tokens))
        })?;
        if let Some(at) = list.unplaced.first() {
            // A word that no slot takes may be a filter. Without the filter, the loop would include
            // wrong items.
            let own = &self.tools[list.tool];
            let word = &rest.tokens[*at].value;
            return Err(Refusal::unplaced(own, word, &self.words(&clause.tokens)));
        }
        self.add_doubts(rest, &list);
        let parameters = list.first_call(&self.tools[list.tool]);
        let is_next = clause.is_next;
        let step = self.add_step(Call { is_next, ..Call::new(list.tool, parameters) });
        self.last = vec![step];
        Ok(step)
    }

    fn choose_list(&self, rest: &Clause, action: &Reading) -> Option<Reading> {
        let tool = &self.tools[action.tool];
        let shared = action.first_call(tool);
        let gives = |list: &Tool| {
            list.list().is_some_and(|output| {
                let mut missing = action.missing.iter().map(|slot| &tool.slots[*slot]);
                missing.all(|slot| can_give(output, slot, &shared))
            })
        };
        let mut readings = self.readings(rest, &|list| !list.has_effect && gives(list));
        for reading in &mut readings {
            let before = reading.missing.len();
            self.inherit_values(reading, Some(&shared));
            let filled = count_f32(before - reading.missing.len());
            let lost = count_f32(reading.unplaced.len());
            reading.score += self.weights.missing * filled - self.weights.about * lost;
            if self.tools[reading.tool].verb == "list" {
                reading.score += self.weights.about;
            }
        }
        readings.retain(|reading| {
            let slots = &self.tools[reading.tool].slots;
            let is_choice = |slot: &usize| slots[*slot].kind == SlotKind::Choice;
            let has_choice = reading.fillings.keys().any(is_choice);
            reading.missing.is_empty() && (reading.has_noun || has_choice)
        });
        readings.into_iter().max_by(|a, b| a.score.total_cmp(&b.score).then(b.tool.cmp(&a.tool)))
    }

    fn finish_loop(
        &mut self,
        clause: &Clause,
        rest: &Clause,
        mut action: Reading,
        step: usize,
    ) -> Result<(), Refusal> {
        let tool = &self.tools[action.tool];
        let rank = self.rank(clause, rest);
        self.fill_from_item(&mut action, step, rank.is_some());
        if !action.missing.is_empty() {
            return Err(self.missing(clause, &action, &action.missing));
        }
        // The call that lists the items already uses the words about the list.
        let in_list =
            |at: &usize| rest.tokens.iter().any(|token| token.start == clause.tokens[*at].start);
        action.unplaced.retain(|at| !in_list(at));
        action.score = action.score.max(self.weights.least);
        self.check(clause, &action)?;
        self.add_doubts(clause, &action);
        // `the newest order` is the first order of a list that begins with the newest order.
        let list = &self.tools[self.memory.steps[step].tool];
        if rank.is_some_and(|rank| !rank.is("first") && !list.about.contains(&stem("newest"))) {
            return Err(Refusal::no_list(tool, &self.words(&clause.tokens)));
        }
        for parameters in action.calls(tool) {
            let each = self.over_items(step, &parameters);
            let each = each.ok_or_else(|| Refusal::condition(&self.words(&clause.tokens)))?;
            let call = if rank.is_some() {
                Call::new(action.tool, parameters)
            } else {
                let items = Some(each.items);
                Call { each: items, ..Call::new(action.tool, each.parameters) }
            };
            self.last = vec![self.add_step(call)];
        }
        self.previous = Some(clause.clone());
        Ok(())
    }

    fn rank<'c>(&self, clause: &'c Clause, rest: &Clause) -> Option<&'c Token> {
        let is_many = clause.tokens.iter().any(|token| self.lexicon.loops.has(&token.lower));
        let in_list = |token: &Token| rest.tokens.iter().any(|other| other.start == token.start);
        let is_rank = |token: &&Token| self.lexicon.ranks.has(&token.lower) && in_list(token);
        clause.tokens.iter().find(is_rank).filter(|_| !is_many)
    }

    /// Fills the missing slots of an action with the fields of an item, or with the parameters of
    /// the list.
    fn fill_from_item(&self, action: &mut Reading, step: usize, is_first: bool) {
        let list = &self.memory.steps[step];
        let output = self.tools[list.tool].list();
        let path = output.map_or("", |output| output.path.as_str());
        let item = if is_first { format!("{}.{path}[0]", list.id) } else { "item".to_owned() };
        for at in std::mem::take(&mut action.missing) {
            let slot = &self.tools[action.tool].slots[at];
            let field = output.and_then(|output| item_field(output, slot));
            let known =
                list.parameters.get(&slot.parameter).filter(|_| slot.kind != SlotKind::Email);
            let value = field.map(|field| template(&item, &field)).or(known.cloned());
            match value {
                Some(value) => {
                    let value = if slot.is_list { json!([value]) } else { value };
                    action.fillings.insert(at, Filling::One(value));
                }
                None => action.missing.push(at),
            }
        }
    }

    /// Turns a call about the first item of a list into a call for each item.
    pub(super) fn over_items(&self, step: usize, call: &Map<String, Value>) -> Option<EachItem> {
        let list = &self.memory.steps[step];
        let path = &self.tools[list.tool].list()?.path;
        let first = format!("{{{{{}.{path}[0].", list.id);
        let items = format!("{{{{{}.{path}}}}}", list.id);
        let whole = format!("{{{{{}}}}}", list.id);
        let text = Value::Object(call.clone()).to_string().replace(&first, "{{item.");
        // The whole list is not a value for one item.
        let has_list = text.contains(&items) || text.contains(&whole);
        let is_each = text.contains("{{item.") && !has_list;
        let parameters = serde_json::from_str(&text).ok().filter(|_| is_each)?;
        Some(EachItem { parameters, items })
    }
}

pub(super) struct EachItem {
    pub(super) parameters: Map<String, Value>,
    pub(super) items: String,
}

/// Returns whether the items of a list can fill a slot, unless the call with which the list shares
/// its parameters can fill it.
fn can_give(list: &Output, slot: &Slot, shared: &Map<String, Value>) -> bool {
    !matches!(slot.kind, SlotKind::Id | SlotKind::Email | SlotKind::Word)
        || item_field(list, slot).is_some()
        || shared.contains_key(&slot.parameter)
        || slot.is_slashed
}
