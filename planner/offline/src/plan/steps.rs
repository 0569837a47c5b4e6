use planner::draft::DraftStep;
use serde_json::{Map, Value};
use shared::id::{RESERVED_STEP_IDS, STEP_ID_LEN, is_step_id_char};

use super::Planning;
use crate::{
    clause::Clause,
    fill::Reading,
    memory::PlannedStep,
    refusal::Refusal,
    tool::{Slot, SlotKind, Tool},
};

const SUFFIX_LEN: usize = 4;

#[derive(Default)]
pub(super) struct Call<'c> {
    pub(super) tool: usize,
    pub(super) parameters: Map<String, Value>,
    pub(super) each: Option<String>,
    pub(super) when: Option<&'c str>,
    /// `true` if the query says that the step comes after the steps of the last clause.
    pub(super) is_next: bool,
    pub(super) links: &'c [usize],
}

impl Planning<'_> {
    pub(super) fn add_reading(
        &mut self,
        clause: &Clause,
        mut reading: Reading,
        when: Option<&str>,
    ) -> Result<(), Refusal> {
        self.inherit_values(&mut reading, None);
        let tool = &self.tools[reading.tool];
        let has_verb = clause.verb.is_some() && reading.words_score >= self.weights.akin;
        if !(reading.has_noun && has_verb) || reading.missing_slots.is_empty() {
            self.check(clause, &reading)?;
        }
        if !reading.missing_slots.is_empty() {
            return Err(self.missing(clause, &reading, &reading.missing_slots));
        }
        self.add_doubts(clause, &reading);
        let calls = reading.calls(tool);
        let is_them = clause.tokens.iter().any(|token| token.is_any(&["them", "these", "those"]));
        // `archive them` means each item of the list from the step before.
        let list = match (calls.as_slice(), self.last.as_slice()) {
            ([only], [last]) if is_them && tool.has_effect => self.repeat_over_items(*last, only),
            _ => None,
        };
        let mut places = Vec::new();
        if let Some(each) = list {
            let (tool, parameters, each) = (reading.tool, each.parameters, Some(each.items));
            places.push(self.add_step(Call { tool, parameters, each, when, ..Call::default() }));
        } else {
            for mut parameters in calls {
                end_range(tool, &mut parameters);
                let (is_next, links) = (clause.is_next, reading.links.as_slice());
                let (tool, each) = (reading.tool, None);
                places.push(self.add_step(Call { tool, parameters, each, when, is_next, links }));
            }
        }
        self.last = places;
        self.previous_clause = Some(clause.clone());
        Ok(())
    }

    pub(super) fn add_step(&mut self, call: Call<'_>) -> usize {
        let own = &self.tools[call.tool];
        let id = self.free_id(&own.name);
        let depends_on = self.waits_for(&call, own);
        self.memory.steps.push(PlannedStep {
            id: id.clone(),
            tool: call.tool,
            parameters: call.parameters.clone(),
            is_loop: call.each.is_some(),
        });
        self.planned.steps.push(DraftStep {
            id: Some(id),
            name: Some(own.name.clone()),
            parameters: Some(Value::Object(call.parameters)),
            depends_on,
            for_each: call.each,
            when: call.when.map(str::to_owned),
            ..DraftStep::default()
        });
        self.planned.steps.len() - 1
    }

    /// Returns the ids of the last steps that a call waits for although no template names them. The
    /// query says so, they change something that the call reads, or a value was copied from them.
    fn waits_for(&self, call: &Call<'_>, own: &Tool) -> Option<Value> {
        let text = Value::Object(call.parameters.clone()).to_string()
            + call.each.as_deref().unwrap_or_default()
            + call.when.unwrap_or_default();
        let acted =
            self.last.iter().any(|step| self.tools[self.memory.steps[*step].tool].has_effect);
        let is_after = call.is_next || acted && !own.has_effect;
        let steps = self.last.iter().filter(|step| is_after || call.links.contains(step));
        let ids = steps.map(|step| &self.memory.steps[*step].id);
        let waits: Vec<Value> = ids
            .filter(|id| !text.contains(&format!("{{{{{id}")))
            .map(|id| Value::String(id.clone()))
            .collect();
        match waits.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            _ => Some(Value::Array(waits)),
        }
    }

    /// Returns the id that a step of a tool gets: the tool's name, otherwise the first free name of
    /// `name_2`, `name_3`, ….
    pub(super) fn free_id(&self, name: &str) -> String {
        let base: String = name
            .chars()
            .take(STEP_ID_LEN - SUFFIX_LEN)
            .map(|char| if is_step_id_char(char) { char } else { '_' })
            .collect();
        let is_free = |id: &String| {
            !RESERVED_STEP_IDS.contains(&id.as_str())
                && self.planned.steps.iter().all(|step| step.id.as_ref() != Some(id))
        };
        let mut numbered = (2..).map(|number| format!("{base}_{number}"));
        if is_free(&base) { base } else { numbered.find(is_free).unwrap_or_default() }
    }

    /// Leaves out the ids that the compiler gives anyway, and lets the acting steps of a plan in
    /// doubt wait for a person.
    pub(super) fn settle_steps(&mut self) {
        let names: Vec<Option<String>> =
            self.planned.steps.iter().map(|step| step.name.clone()).collect();
        let has_doubts = !self.planned.doubts.is_empty();
        for (at, step) in self.planned.steps.iter_mut().enumerate() {
            let count = names.iter().filter(|name| **name == step.name).count();
            if count == 1 && step.id == step.name {
                step.id = None;
            }
            let done = self.memory.steps.get(at);
            if has_doubts && done.is_some_and(|done| self.tools[done.tool].has_effect) {
                step.requires_approval = Some(true);
            }
        }
    }
}

/// Ends a range of days with the day that it begins with, because a query that says one day means
/// that day.
pub(super) fn end_range(tool: &Tool, parameters: &mut Map<String, Value>) {
    let is_moment = |name: &str| {
        let is_it = |slot: &Slot| slot.parameter == name && slot.kind == SlotKind::Moment;
        tool.slots.iter().any(is_it)
    };
    let is_range = !tool.has_effect && is_moment("start") && is_moment("end");
    let is_open = !parameters.contains_key("query") && !parameters.contains_key("end");
    let start = parameters.get("start").filter(|_| is_range && is_open).cloned();
    parameters.extend(start.map(|start| ("end".to_owned(), start)));
}
