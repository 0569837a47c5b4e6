//! Forks: a new execution of a finished one, with another input, other parameters, given outputs or
//! another version of the plan.
//!
//! A fork keeps the output of a step if the step, its rendered parameters, and all steps before it
//! are unchanged. All other steps run.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use shared::{
    event::{CallKey, CallPlace, Created, SettledCall, SkipReason},
    execution::{Execution, ExecutionOptions, StepState},
    id::{StepId, StepNumber, Task},
    json, limits,
    plan::{Plan, ToolExecution},
    template::{LookUpValues, Target, Template},
};

use crate::reuse::{ReuseError, is_same_rule};

/// What a fork does with a step of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkedStep {
    /// The output of the finished execution is kept.
    Kept,
    /// The step was skipped, and the fork skips it for the same reason.
    SkippedAgain,
    /// The caller gave the output.
    Given,
    /// The step runs. `is_unchanged` is `true` if the step, its rendered parameters and all steps
    /// before it are unchanged, so that the step runs only because it has no output to keep.
    Runs { is_unchanged: bool },
}

impl ForkedStep {
    const UNCHANGED: Self = Self::Runs { is_unchanged: true };

    pub fn should_run(self) -> bool {
        matches!(self, Self::Runs { .. })
    }

    /// Returns `true` if steps that depend on this step can be kept.
    fn has_old_result(self) -> bool {
        matches!(self, Self::Kept | Self::SkippedAgain)
    }
}

/// A fork of a finished execution that has not been started.
#[derive(Debug)]
pub struct Fork<'a> {
    ended: &'a Execution,
    plan: &'a Plan,
    input: &'a Arc<Value>,
    given: &'a BTreeMap<StepId, Arc<Value>>,
    /// The entries of the steps of `plan`, in plan order.
    steps: Vec<ForkedStep>,
}

impl<'a> Fork<'a> {
    /// Compares `plan` and `input` with a finished execution. `given` has the outputs that the
    /// caller gave, by steps of `plan`.
    pub fn new(
        ended: &'a Execution,
        plan: &'a Plan,
        input: &'a Arc<Value>,
        given: &'a BTreeMap<StepId, Arc<Value>>,
    ) -> Result<Self, ReuseError> {
        if !ended.state().is_finished() {
            return Err(ReuseError::Open(ended.id()));
        }
        let steps = Vec::with_capacity(plan.steps().len());
        let mut fork = Self { ended, plan, input, given, steps };
        for step in plan.steps() {
            let forked = fork.compare_step(step);
            fork.steps.push(forked);
        }
        Ok(fork)
    }

    pub fn plan(&self) -> &Plan {
        self.plan
    }

    /// Returns the steps of the fork's plan with what the fork does with them, in plan order.
    pub fn steps(&self) -> impl Iterator<Item = (&ToolExecution, ForkedStep)> {
        self.plan.steps().iter().zip(self.steps.iter().copied())
    }

    /// Returns the steps of the finished execution whose calls the fork repeats, with their steps
    /// in the fork. These are the steps that run and that call the same tool in both plans.
    pub fn repeated_steps(&self) -> Vec<(StepNumber, ForkedStep)> {
        let runs = self.steps().filter(|(_, forked)| forked.should_run());
        let old_number = |step: &ToolExecution| {
            let number = self.ended.plan().step_number(&step.id)?;
            has_same_callee(self.ended.plan().step(number), step).then_some(number)
        };
        runs.filter_map(|(step, forked)| Some((old_number(step)?, forked))).collect()
    }

    /// Returns the first event of the fork. The id of its plan is that of [`plan`](Self::plan).
    pub fn create(&self) -> Result<Created, ReuseError> {
        let input = Arc::clone(self.input);
        let options = ExecutionOptions { start_at: None, input, ..self.ended.options().clone() };
        let mut created = Created::new(self.plan.id(), self.ended.request(), options);
        created.forked_from = Some(self.ended.id());
        for (step, forked) in self.steps() {
            let output = match forked {
                ForkedStep::Kept => self.find_old_output(&step.id),
                ForkedStep::Given => self.given.get(&step.id),
                ForkedStep::SkippedAgain | ForkedStep::Runs { .. } => None,
            };
            created.reused.extend(output.map(|output| (step.id.clone(), Arc::clone(output))));
        }
        let keys = self.ended.open_call_keys().into_iter();
        created.call_keys = keys.filter(|key| self.find_step_at(&key.place).is_some()).collect();
        let settled = self.ended.settled_calls().into_iter();
        created.settled = settled.filter_map(|call| self.take_over_settled(call)).collect();
        check_size(&created)?;
        Ok(created)
    }

    /// Adds calls of child executions to the first event of the fork: the keys of calls whose
    /// outcome is unknown, and the calls that a person settled. A child whose parameters changed
    /// makes the settled calls again.
    pub fn take_over_children(
        &self,
        created: &mut Created,
        keys: Vec<CallKey>,
        settled: Vec<SettledCall>,
    ) -> Result<(), ReuseError> {
        let keys = keys.into_iter().filter(|key| self.find_step_at(&key.place).is_some());
        created.call_keys.extend(keys);
        let is_unchanged =
            |call: &SettledCall| self.find_step_at(&call.place) == Some(ForkedStep::UNCHANGED);
        created.settled.extend(settled.into_iter().filter(is_unchanged));
        check_size(created)
    }

    /// Returns what the fork does with the step of a call, if the step calls the same tool in both
    /// plans.
    fn find_step_at(&self, place: &CallPlace) -> Option<ForkedStep> {
        let number = self.plan.step_number(&place.step)?;
        let old_plan = self.ended.plan();
        let old_step = old_plan.step(old_plan.step_number(&place.step)?);
        has_same_callee(old_step, self.plan.step(number)).then(|| self.steps[number.get()])
    }

    fn take_over_settled(&self, call: SettledCall) -> Option<SettledCall> {
        match (self.find_step_at(&call.place)?, call.place.item) {
            // The output is among the reused outputs.
            (ForkedStep::Kept, None) => Some(SettledCall { output: None, ..call }),
            (ForkedStep::UNCHANGED, Some(_)) => Some(call),
            _ => None,
        }
    }

    fn find_old_output(&self, id: &StepId) -> Option<&Arc<Value>> {
        let number = self.ended.plan().step_number(id)?;
        self.ended.step(number).known_output()
    }

    fn compare_step(&self, step: &ToolExecution) -> ForkedStep {
        if let Some(given) = self.given.get(&step.id) {
            // A given output that is the old output changes nothing for later steps.
            let is_kept = self.find_old_output(&step.id) == Some(given)
                && self.compare_with_old(step) == ForkedStep::Kept;
            return if is_kept { ForkedStep::Kept } else { ForkedStep::Given };
        }
        self.compare_with_old(step)
    }

    fn compare_with_old(&self, step: &ToolExecution) -> ForkedStep {
        let changed = ForkedStep::Runs { is_unchanged: false };
        let Some(number) = self.ended.plan().step_number(&step.id) else { return changed };
        let mut before = step.depends_on.iter().map(|number| self.steps[number.get()]);
        if !before.all(ForkedStep::has_old_result) || !self.is_same_call(number, step) {
            return changed;
        }
        let holds = step.when.as_ref().map(|when| when.evaluate(self, self.input));
        let came = self.ended.step(number);
        match &came.state {
            StepState::Skipped(SkipReason::Condition) if holds == Some(Ok(false)) => {
                ForkedStep::SkippedAgain
            }
            // The dependency that did not succeed can be one that a person settled later.
            StepState::Skipped(SkipReason::Dependency) if self.must_skip(step) => {
                ForkedStep::SkippedAgain
            }
            _ if came.is_reusable() && matches!(holds, None | Some(Ok(true))) => ForkedStep::Kept,
            _ => ForkedStep::UNCHANGED,
        }
    }

    fn must_skip(&self, step: &ToolExecution) -> bool {
        let mut before = step.depends_on.iter().map(|number| self.steps[number.get()]);
        step.when.is_none() && before.any(|forked| forked == ForkedStep::SkippedAgain)
    }

    /// Returns whether a step makes the same calls with the same rendered parameters. All steps
    /// before it must be unchanged.
    fn is_same_call(&self, number: StepNumber, step: &ToolExecution) -> bool {
        let old_step = self.ended.plan().step(number);
        if !has_same_callee(old_step, step)
            || !is_same_rule(self.ended.plan(), old_step, self.plan, step)
        {
            return false;
        }
        let is_rendered_alike = json::equals_normalized(&old_step.parameters, &step.parameters)
            && !reads_input_or_variables(&step.template);
        let Some(for_each) = &step.for_each else {
            return is_rendered_alike || self.renders_alike(number.into(), None, old_step, step);
        };
        let list = self.find_value(&for_each.list.target);
        let list = list.and_then(|value| for_each.list.path.find(value)?.as_array());
        if list != self.ended.list(number) {
            return false;
        }
        is_rendered_alike
            || list.into_iter().flatten().zip(0_u32..).all(|(item, index)| {
                let task = Task::from(number).for_item(index);
                self.renders_alike(task, Some(item), old_step, step)
            })
    }

    fn renders_alike(
        &self,
        task: Task,
        item: Option<&Value>,
        old_step: &ToolExecution,
        step: &ToolExecution,
    ) -> bool {
        let scope = ForkScope { fork: self, item, index: task.part.item.map(Value::from) };
        let old = old_step.template.render(&self.ended.template_scope(task), limits::OUTPUT_BYTES);
        let new = step.template.render(&scope, limits::OUTPUT_BYTES);
        old.ok()
            .zip(new.ok())
            .is_some_and(|(old, new)| json::equals_normalized(&old.value, &new.value))
    }

    fn find_output(&self, number: StepNumber) -> Option<&Value> {
        let step = self.plan.step(number);
        match *self.steps.get(number.get())? {
            ForkedStep::Kept => self.find_old_output(&step.id).map(|output| &**output),
            ForkedStep::SkippedAgain => Some(&Value::Null),
            ForkedStep::Given => self.given.get(&step.id).map(|output| &**output),
            ForkedStep::Runs { .. } => None,
        }
    }

    fn find_variable(&self, name: &str) -> Option<&Value> {
        self.plan.variables().get(name)?.iter().rev().find_map(|number| {
            let is_output = self.steps.get(number.get()) != Some(&ForkedStep::SkippedAgain);
            let output = self.find_output(*number).filter(|_| is_output)?;
            let mapped = self.plan.step(*number).output_mapping.iter().rev();
            mapped
                .filter(|mapping| &*mapping.variable == name)
                .find_map(|mapping| mapping.path.find(output))
        })
    }
}

impl LookUpValues for Fork<'_> {
    fn find_value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Step(number) => self.find_output(*number),
            Target::Variable(name) => self.find_variable(name),
            Target::Input => Some(self.input),
            Target::Item | Target::Index => None,
        }
    }
}

/// The values that the templates of one item of a list can read.
struct ForkScope<'a> {
    fork: &'a Fork<'a>,
    item: Option<&'a Value>,
    index: Option<Value>,
}

impl LookUpValues for ForkScope<'_> {
    fn find_value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Item => self.item,
            Target::Index => self.index.as_ref(),
            _ => self.fork.find_value(target),
        }
    }
}

fn reads_input_or_variables(template: &Template) -> bool {
    let mut reads = false;
    template.visit_references(&mut |reference| {
        reads |= matches!(reference.target, Target::Input | Target::Variable(_));
    });
    reads
}

fn has_same_callee(first: &ToolExecution, other: &ToolExecution) -> bool {
    (&first.tool, &first.kind, first.for_each.is_some())
        == (&other.tool, &other.kind, other.for_each.is_some())
}

fn check_size(created: &Created) -> Result<(), ReuseError> {
    if created.call_keys.len() > limits::CALL_KEYS {
        return Err(ReuseError::TooManyUnknown(created.call_keys.len()));
    }
    let reused = created.reused.iter();
    let reused = reused.map(|(id, output)| json::json_size(output) + id.as_str().len());
    let settled = created.settled.iter().filter_map(|call| call.output.as_deref());
    let bytes: usize = reused.chain(settled.map(json::json_size)).sum();
    if bytes > limits::REUSED_BYTES { Err(ReuseError::TooMuchKept) } else { Ok(()) }
}
