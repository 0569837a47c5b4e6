//! Rejects new plans that would repeat an effect. Before a plan runs, only some parameters of its
//! calls are known.

use std::{borrow::Cow, cell::Cell, collections::BTreeMap, sync::Arc};

use serde_json::Value;
use shared::{
    diagnostic::Diagnostic,
    event::{Event, RecordedEvent, Settled},
    execution::{Execution, Step, StepState},
    id::{ExecutionId, Seq, StepId, StepNumber, ToolName},
    json, limits,
    plan::{Plan, ToolExecution},
    template::{LookUpValues, Reference, Target, Template},
    tool::Effect,
};

use crate::{
    draft::{Draft, DraftStep},
    reuse::{create_replan, is_same_call, reusable_steps},
};

/// Maximum number of executions that the caller reads besides the finished execution.
pub const MAX_EXECUTIONS: usize = 1_000;
/// Maximum bytes of calls of a new plan that are compared. The comparison blocks the thread, so the
/// limit keeps it short.
pub const MAX_COMPARED_BYTES: usize = 32 << 20;
pub const CALL_BYTES: usize = 64;
const ECHO_TOOL: &str = "flow.echo";

/// Steps by the parameters of their calls. The map is never iterated, because its order is random.
#[expect(clippy::disallowed_types, reason = "values have no order")]
type StepsByParameters = std::collections::HashMap<Arc<Value>, StepId>;

/// The effects that no new plan may repeat.
#[derive(Debug)]
pub struct RepeatGuard<'a> {
    ended: &'a Execution,
    /// Steps by tool and parameters. Numbers in parameters are normalized.
    calls: BTreeMap<ToolName, StepsByParameters>,
    lists: BTreeMap<ToolName, Vec<StepId>>,
    children: Vec<ExecutionId>,
    /// `true` if some executions were not read, so their calls are unknown.
    is_truncated: bool,
}

enum Repeat<'a> {
    Step(&'a StepId),
    /// Perhaps the effect of this step for some items of its list.
    SomeItems(&'a StepId),
    /// Unknown, because the step's calls are too large to compare.
    TooLarge,
    /// Unknown, because some executions were not read.
    Unread,
}

struct NewPlan<'a> {
    execution: &'a Execution,
    reusable: &'a [bool],
    budget: Cell<usize>,
}

impl<'a> RepeatGuard<'a> {
    pub fn new(ended: &'a Execution) -> Self {
        let (calls, lists, children) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut guard = Self { ended, calls, lists, children, is_truncated: false };
        guard.add_steps(ended, |_| true);
        guard
    }

    /// Adds the effects of an execution that `next` continued. A retry repeats effects on purpose,
    /// so only the steps that it reused count.
    pub fn add_earlier(&mut self, earlier: &Execution, next: &Execution) {
        let is_retry = earlier.plan().id() == next.plan().id();
        self.add_steps(earlier, |id| {
            let is_reused =
                || next.plan().step_number(id).is_some_and(|number| next.step(number).is_reused);
            !is_retry || is_reused()
        });
    }

    pub fn add_child(&mut self, child: &Execution) {
        let steps = child.plan().steps().iter().zip(child.steps());
        steps.for_each(|(planned, step)| self.add_step(planned, step));
    }

    pub fn pop_child(&mut self) -> Option<ExecutionId> {
        self.children.pop()
    }

    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    pub fn set_truncated(&mut self, is_truncated: bool) {
        self.is_truncated = is_truncated;
    }

    fn add_steps(&mut self, execution: &Execution, counts: impl Fn(&StepId) -> bool) {
        let steps = execution.plan().steps().iter().zip(execution.steps());
        for (planned, step) in steps.filter(|(planned, _)| counts(&planned.id)) {
            self.add_step(planned, step);
            if step.items.is_some() && has_effect(planned, step) {
                self.lists.entry(planned.tool.clone()).or_default().push(planned.id.clone());
            }
        }
    }

    fn add_step(&mut self, planned: &ToolExecution, step: &Step) {
        let tasks =
            step.items.as_deref().map_or(std::slice::from_ref(step), |items| items.as_slice());
        let started = tasks.iter().filter(|task| !task.is_compensated());
        self.children.extend(started.filter_map(|task| task.child));
        if !has_effect(planned, step) {
            return;
        }
        let calls = self.calls.entry(planned.tool.clone()).or_default();
        let lasting = tasks.iter().filter(|task| is_lasting(task));
        for parameters in lasting.filter_map(|task| task.parameters.as_ref()) {
            let parameters = match json::normalize_numbers(parameters) {
                Cow::Borrowed(_) => Arc::clone(parameters),
                Cow::Owned(parameters) => Arc::new(parameters),
            };
            calls.entry(parameters).or_insert_with(|| planned.id.clone());
        }
    }

    pub fn find_repeats(&self, draft: &Draft, plan: &Arc<Plan>) -> Vec<Diagnostic> {
        let reusable = reusable_steps(self.ended, plan);
        // Reports nothing, because a plan that reuses too much is rejected for that reason.
        let Some(new_execution) = create_execution(self.ended, plan) else { return Vec::new() };
        let budget = Cell::new(MAX_COMPARED_BYTES);
        let new = NewPlan { execution: &new_execution, reusable: &reusable, budget };
        let runs = plan.steps().iter().zip(&reusable).filter(|(_, reusable)| !**reusable);
        let repeats = runs.filter_map(|(step, _)| {
            let repeat = self.find_repeat(&new, step)?;
            Some(repeat_diagnostic(draft, step.id.as_str(), &repeat))
        });
        repeats.collect()
    }

    fn find_repeat(&self, new: &NewPlan<'_>, step: &ToolExecution) -> Option<Repeat<'_>> {
        let planned = self.ended.plan();
        let same_step = planned.step_number(&step.id);
        let had_effect =
            |number: &StepNumber| has_effect(planned.step(*number), self.ended.step(*number));
        if let Some(number) = same_step.filter(had_effect) {
            return Some(Repeat::Step(&planned.step(number).id));
        }
        // The step's own call failed. It may run again, even if another step made the same call.
        if same_step.is_some_and(|number| is_same_call(planned.step(number), step)) {
            return None;
        }
        let others = planned.steps().iter().zip(self.ended.steps());
        let mut same =
            others.filter(|(was, earlier)| is_same_call(was, step) && has_effect(was, earlier));
        let same = same.next().map(|(was, _)| Repeat::Step(&was.id));
        let unread =
            || (self.is_truncated && step.policy.effect == Effect::Once).then_some(Repeat::Unread);
        same.or_else(|| self.find_call(new, step)).or_else(unread)
    }

    fn find_call(&self, new: &NewPlan<'_>, step: &ToolExecution) -> Option<Repeat<'_>> {
        let calls = self.calls.get(&step.tool)?;
        let new_execution = new.execution;
        let Some(for_each) = &step.for_each else {
            return match new.render(&KnownValues::from_start(new_execution), step) {
                RenderedParameters::Known(parameters) => calls.get(&parameters).map(Repeat::Step),
                RenderedParameters::Unknown => None,
                RenderedParameters::TooLarge => Some(Repeat::TooLarge),
            };
        };
        let found = KnownValues::from_start(new_execution).find_list(&for_each.list);
        let mut is_known = found.is_some();
        for (index, item) in found.into_iter().flatten().take(limits::ITEMS).enumerate() {
            let known_values =
                KnownValues { execution: new_execution, item: Some((item, index.into())) };
            match new.render(&known_values, step) {
                RenderedParameters::Known(parameters) => {
                    if let Some(was) = calls.get(&parameters) {
                        return Some(Repeat::Step(was));
                    }
                }
                RenderedParameters::Unknown => is_known = false,
                RenderedParameters::TooLarge => return Some(Repeat::TooLarge),
            }
        }
        if is_known {
            return None;
        }
        // A reused loop tells nothing about the items of another list.
        let is_reused = |id: &StepId| {
            new_execution.plan().step_number(id).is_some_and(|number| new.reusable[number.get()])
        };
        let lists = self.lists.get(&step.tool)?;
        lists.iter().find(|id| !is_reused(id)).map(Repeat::SomeItems)
    }
}

enum RenderedParameters {
    Known(Value),
    Unknown,
    TooLarge,
}

impl NewPlan<'_> {
    fn render(&self, known_values: &KnownValues<'_>, step: &ToolExecution) -> RenderedParameters {
        let Some(room) = self.budget.get().checked_sub(CALL_BYTES) else {
            return RenderedParameters::TooLarge;
        };
        let Ok(rendered) = step.template.render(known_values, room.min(limits::OUTPUT_BYTES))
        else {
            // Parameters that are larger than `OUTPUT_BYTES` are unknown but harmless, because such
            // a call is never made.
            let left = room.checked_sub(limits::OUTPUT_BYTES);
            self.budget.set(left.unwrap_or_default());
            return if left.is_some() {
                RenderedParameters::Unknown
            } else {
                RenderedParameters::TooLarge
            };
        };
        self.budget.set(room.saturating_sub(json::json_size(&rendered.value)));
        if !rendered.unresolved.is_empty() {
            return RenderedParameters::Unknown;
        }
        RenderedParameters::Known(match json::normalize_numbers(&rendered.value) {
            Cow::Borrowed(_) => rendered.value,
            Cow::Owned(parameters) => parameters,
        })
    }
}

fn create_execution(ended: &Execution, plan: &Arc<Plan>) -> Option<Execution> {
    let event = Event::Created(Box::new(create_replan(ended, plan).ok()?));
    let created = RecordedEvent { seq: Seq::START.next(), at: ended.created_at(), by: None, event };
    Execution::create(ended.id(), Arc::clone(plan), &created).ok()
}

struct KnownValues<'a> {
    execution: &'a Execution,
    item: Option<(&'a Value, Value)>,
}

impl<'a> KnownValues<'a> {
    fn from_start(new_execution: &'a Execution) -> Self {
        Self { execution: new_execution, item: None }
    }

    fn find_list(&self, list: &Reference) -> Option<&'a Vec<Value>> {
        list.path.find(self.find(&list.target)?)?.as_array()
    }

    fn find(&self, target: &Target) -> Option<&'a Value> {
        let new_execution = self.execution;
        match target {
            Target::Step(number) => new_execution
                .step(*number)
                .output()
                .or_else(|| echo_output(new_execution.plan().step(*number))),
            Target::Variable(name) => {
                let mut steps = new_execution.plan().variables().get(name)?.iter();
                let is_known = steps.all(|number| new_execution.step(*number).output().is_some());
                new_execution.variable(name).filter(|_| is_known)
            }
            Target::Input => Some(&new_execution.options().input),
            Target::Item => self.item.as_ref().map(|(item, _)| *item),
            Target::Index => None,
        }
    }
}

impl LookUpValues for KnownValues<'_> {
    fn find_value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Index => self.item.as_ref().map(|(_, index)| index),
            _ => self.find(target),
        }
    }
}

fn echo_output(step: &ToolExecution) -> Option<&Value> {
    match &step.template {
        Template::Literal(parameters) if step.tool.as_str() == ECHO_TOOL => {
            (step.when.is_none() && step.for_each.is_none()).then_some(parameters)
        }
        _ => None,
    }
}

/// Returns whether a step of a `once` tool has, or may have, an effect that was not compensated.
fn has_effect(planned: &ToolExecution, step: &Step) -> bool {
    step.has_once_call(planned.policy.effect) && is_lasting(step)
}

fn is_lasting(step: &Step) -> bool {
    match &step.items {
        Some(items) => items.as_slice().iter().any(is_lasting),
        None if step.is_compensated() => false,
        None => match (&step.state, step.settled()) {
            (_, Some(settled)) => settled == Settled::Succeeded,
            (StepState::Succeeded(_), None) => true,
            (StepState::Failed(err), None) => err.is_outcome_unknown(),
            _ => false,
        },
    }
}

fn repeat_diagnostic(draft: &Draft, id: &str, repeat: &Repeat<'_>) -> Diagnostic {
    let is_step = |step: &DraftStep| {
        let name = || step.name.as_deref().or(step.tool_name.as_deref());
        step.id.as_deref().or_else(name) == Some(id)
    };
    let path = draft.tools.iter().position(is_step).map(|index| format!("tools[{index}]"));
    let (message, help) = match repeat {
        Repeat::Step(was) if was.as_str() == id => (
            format!("`{id}` has taken effect, or may have, and would run a second time"),
            "if it succeeded, keep it and its dependencies as they are in the plan; otherwise \
             remove it. A step that does something else needs another `id`",
        ),
        Repeat::Step(was) => (
            format!("`{id}` would repeat the call of `{was}`, which has taken effect or may have"),
            "remove this step; if the earlier step succeeded, keep it as it is in the plan",
        ),
        Repeat::SomeItems(was) => (
            format!(
                "`{id}` may repeat calls that `{was}` made for some items, because its list is \
                 not known"
            ),
            "write a list that Faber can compare: let a `flow.echo` step return the remaining \
             items, without templates, or write a step for each item",
        ),
        Repeat::TooLarge => (
            format!("`{id}` may repeat an earlier call: its calls are too large to compare"),
            "write smaller parameters: put large data into a file and pass its name, and list \
             only the remaining items",
        ),
        Repeat::Unread => (
            format!(
                "`{id}` may repeat an earlier call: the request has more than {MAX_EXECUTIONS} \
                 earlier executions, and Faber compares no more than that"
            ),
            "keep the steps of the plan as they are, and remove new steps: a person who knows the \
             earlier calls can run these as a separate plan",
        ),
    };
    Diagnostic::error("plan.done_twice", path.unwrap_or_default(), message).with_help(help)
}
