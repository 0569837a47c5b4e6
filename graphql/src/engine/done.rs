//! What was done before a plan is planned anew, and is not to be done a second time.
//!
//! The calls are those of the execution, of those that it goes on after, and of those that its
//! steps began, as their logs have them. What a new plan would call is compared with them as far as
//! that is known before it begins: what templates find in outputs that are taken over, in the input
//! and in what `flow.echo` is told to return.

#[cfg(test)]
mod tests;

use std::{borrow::Cow, cell::Cell, collections::BTreeMap, sync::Arc};

use executor::{
    control::{is_alike, onward, stay},
    machine,
};
use planner::draft::{Draft, DraftStep};
use serde_json::Value;
use shared::{
    diagnostic::Diagnostic,
    execution::{Execution, Step, StepState},
    id::{ExecutionId, StepId, StepIx, ToolName},
    json, limits,
    plan::{Plan, ToolExecution},
    template::{Reference, Target, Template, Values},
    tool::Effect,
};

use super::{Engine, EngineError};

/// The most executions that are looked at besides the one that ended.
const MOST: usize = 1_000;
/// About how many bytes of calls of a new plan are compared: that takes a moment, in which nothing
/// else is done.
const COMPARED: usize = 32 << 20;
/// What a call costs besides its bytes.
const CALL: usize = 64;
/// The tool whose output is what it is given.
const ECHO: &str = "flow.echo";

/// Steps by what they called a tool with. They are looked up, and never gone through.
#[expect(clippy::disallowed_types, reason = "values have no order")]
type Calls = std::collections::HashMap<Arc<Value>, StepId>;

/// What was done that is done anew each time it is done, and stands: it is there, or may be.
pub(super) struct Done<'a> {
    ended: &'a Execution,
    /// By which step a tool was called with what; numbers are written in one way.
    calls: BTreeMap<ToolName, Calls>,
    /// The steps that called a tool for items of a list.
    lists: BTreeMap<ToolName, Vec<StepId>>,
    /// The executions that steps began, which are not looked at yet.
    children: Vec<ExecutionId>,
    /// Whether there is more than was looked at.
    pub(super) is_cut: bool,
}

/// What a step would do a second time.
enum Again<'a> {
    /// What this step did.
    Does(&'a StepId),
    /// What this step did for items of its list, for all that is known.
    May(&'a StepId),
    /// Something, for all that is known: what it calls is too much to be compared.
    Much,
    /// Something, for all that is known: there were too many executions to look at all of them.
    Unseen,
}

/// How a plan goes on.
struct Next<'a> {
    begun: &'a Execution,
    /// Which of its steps are not done anew.
    stays: &'a [bool],
    /// How many bytes of calls may still be compared.
    room: Cell<usize>,
}

impl Engine {
    /// Returns what was done until an execution ended.
    pub(super) async fn done<'a>(&self, ended: &'a Execution) -> Result<Done<'a>, EngineError> {
        self.done_within(ended, MOST).await
    }

    /// Returns the same, having looked at so many other executions at most.
    pub(super) async fn done_within<'a>(
        &self,
        ended: &'a Execution,
        most: usize,
    ) -> Result<Done<'a>, EngineError> {
        let mut done = Done::of(ended);
        let mut left = most;
        let mut earlier = ended.retry_of();
        let mut last: Option<Execution> = None;
        while let Some(id) = earlier.filter(|_| left > 0) {
            left -= 1;
            let before = self.execution(id).await?;
            // It may have been removed since.
            earlier = before.as_ref().and_then(Execution::retry_of);
            if let Some(before) = before {
                done.add_before(&before, last.as_ref().unwrap_or(ended));
                last = Some(before);
            }
        }
        while left > 0
            && let Some(id) = done.children.pop()
        {
            left -= 1;
            if let Some(child) = self.execution(id).await? {
                done.add_child(&child);
            }
        }
        done.is_cut = earlier.is_some() || !done.children.is_empty();
        Ok(done)
    }
}

impl<'a> Done<'a> {
    /// Returns what an execution did.
    pub(super) fn of(ended: &'a Execution) -> Self {
        let (calls, lists, children) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let mut done = Self { ended, calls, lists, children, is_cut: false };
        done.add(ended, |_| true);
        done
    }

    /// Adds what was done before another execution went on. One that does the same plan again does
    /// again what it does not take over: somebody wanted that.
    fn add_before(&mut self, before: &Execution, next: &Execution) {
        let is_same = before.plan().id() == next.plan().id();
        self.add(before, |id| {
            let taken = || next.plan().number(id).is_some_and(|it| next.step(it).is_reused);
            !is_same || taken()
        });
    }

    /// Adds the steps of an execution that count.
    fn add(&mut self, execution: &Execution, counts: impl Fn(&StepId) -> bool) {
        let steps = execution.plan().steps().iter().zip(execution.steps());
        for (step, came) in steps.filter(|(step, _)| counts(&step.id)) {
            self.add_step(step, came);
            if came.items.is_some() && is_there(step, came) {
                self.lists.entry(step.tool.clone()).or_default().push(step.id.clone());
            }
        }
    }

    /// Adds what an execution did that a step began. Its steps are in no plan that goes on.
    fn add_child(&mut self, child: &Execution) {
        let steps = child.plan().steps().iter().zip(child.steps());
        steps.for_each(|(step, came)| self.add_step(step, came));
    }

    fn add_step(&mut self, step: &ToolExecution, came: &Step) {
        let tasks = came.items.as_deref().map_or(std::slice::from_ref(came), |it| it.all());
        let begun = tasks.iter().filter(|it| !it.is_compensated()).filter_map(|it| it.child);
        self.children.extend(begun);
        if !is_there(step, came) {
            return;
        }
        let calls = self.calls.entry(step.tool.clone()).or_default();
        let made = tasks.iter().filter(|it| stands(it));
        for parameters in made.filter_map(|it| it.parameters.as_ref()) {
            let parameters = match json::by_worth(parameters) {
                Cow::Borrowed(_) => Arc::clone(parameters),
                Cow::Owned(parameters) => Arc::new(parameters),
            };
            calls.entry(parameters).or_insert_with(|| step.id.clone());
        }
    }

    /// Returns an error for each step that did something, or may have, and would do it a second
    /// time: under its name, or under another one.
    pub(super) fn twice(&self, draft: &Draft, plan: &Arc<Plan>) -> Vec<Diagnostic> {
        let stays = stay(self.ended, plan);
        // What is too much to be taken over is refused for that.
        let Some(begun) = begun(self.ended, plan) else { return Vec::new() };
        let next = Next { begun: &begun, stays: &stays, room: Cell::new(COMPARED) };
        let again = plan.steps().iter().zip(&stays).filter(|(_, stays)| !**stays);
        let twice = again.filter_map(|(step, _)| {
            let was = self.was_done(&next, step)?;
            Some(would_be_done_twice(draft, step.id.as_str(), &was))
        });
        twice.collect()
    }

    /// Returns the step that did what this one would do, or may have done it.
    fn was_done(&self, next: &Next<'_>, step: &ToolExecution) -> Option<Again<'_>> {
        let planned = self.ended.plan();
        let own = planned.number(&step.id);
        let is_done = |it: &StepIx| is_there(planned.step(*it), self.ended.step(*it));
        if let Some(own) = own.filter(is_done) {
            return Some(Again::Does(&planned.step(own).id));
        }
        // Of two calls alike one may have failed: that one is done again.
        if own.is_some_and(|it| is_alike(planned.step(it), step)) {
            return None;
        }
        let others = planned.steps().iter().zip(self.ended.steps());
        let mut alike = others.filter(|(was, came)| is_alike(was, step) && is_there(was, came));
        let alike = alike.next().map(|(was, _)| Again::Does(&was.id));
        let unseen =
            || (self.is_cut && step.policy.effect == Effect::Once).then_some(Again::Unseen);
        alike.or_else(|| self.was_called(next, step)).or_else(unseen)
    }

    /// Returns the step that called a tool with what this one would call it with.
    fn was_called(&self, next: &Next<'_>, step: &ToolExecution) -> Option<Again<'_>> {
        let calls = self.calls.get(&step.tool)?;
        let begun = next.begun;
        let Some(for_each) = &step.for_each else {
            return match next.compared(&Known::of(begun), step) {
                Compared::Known(parameters) => calls.get(&parameters).map(Again::Does),
                Compared::Open => None,
                Compared::Much => Some(Again::Much),
            };
        };
        let found = Known::of(begun).list(&for_each.list);
        let mut is_known = found.is_some();
        for (index, item) in found.into_iter().flatten().take(limits::ITEMS).enumerate() {
            let known = Known { begun, item: Some((item, index.into())) };
            match next.compared(&known, step) {
                Compared::Known(parameters) => {
                    if let Some(was) = calls.get(&parameters) {
                        return Some(Again::Does(was));
                    }
                }
                Compared::Open => is_known = false,
                Compared::Much => return Some(Again::Much),
            }
        }
        if is_known {
            return None;
        }
        // A list that was got through to its end says nothing of what is left of another.
        let is_kept = |id: &StepId| begun.plan().number(id).is_some_and(|it| next.stays[it.get()]);
        let lists = self.lists.get(&step.tool)?;
        lists.iter().find(|it| !is_kept(it)).map(Again::May)
    }
}

/// What a step would call its tool with.
enum Compared {
    /// This, with numbers written in one way.
    Known(Value),
    /// Something of it is left open.
    Open,
    /// There is too much of it to find out.
    Much,
}

impl Next<'_> {
    /// Returns what a step would call its tool with, as far as there is room for it.
    fn compared(&self, known: &Known<'_>, step: &ToolExecution) -> Compared {
        let Some(room) = self.room.get().checked_sub(CALL) else { return Compared::Much };
        let Ok(rendered) = step.template.render(known, room.min(limits::OUTPUT_BYTES)) else {
            // What is too much for a call is not called.
            let left = room.checked_sub(limits::OUTPUT_BYTES);
            self.room.set(left.unwrap_or_default());
            return if left.is_some() { Compared::Open } else { Compared::Much };
        };
        self.room.set(room.saturating_sub(json::bytes(&rendered.value)));
        if !rendered.unresolved.is_empty() {
            return Compared::Open;
        }
        Compared::Known(match json::by_worth(&rendered.value) {
            Cow::Borrowed(_) => rendered.value,
            Cow::Owned(parameters) => parameters,
        })
    }
}

/// Returns how an execution of a plan that goes on after another one begins.
fn begun(ended: &Execution, plan: &Arc<Plan>) -> Option<Execution> {
    let created = onward(ended, plan).ok()?;
    let begun = machine::create_as(ended.id(), plan, created, ended.created_at());
    Some(begun.ok()?.0)
}

/// What templates find before any step has begun.
struct Known<'a> {
    begun: &'a Execution,
    /// The item of a list, and its place.
    item: Option<(&'a Value, Value)>,
}

impl<'a> Known<'a> {
    fn of(begun: &'a Execution) -> Self {
        Self { begun, item: None }
    }

    fn list(&self, list: &Reference) -> Option<&'a Vec<Value>> {
        list.path.find(self.find(&list.target)?)?.as_array()
    }

    fn find(&self, target: &Target) -> Option<&'a Value> {
        let begun = self.begun;
        match target {
            Target::Step(at) => begun.step(*at).output().or_else(|| echoed(begun.plan().step(*at))),
            Target::Variable(name) => {
                let mut by = begun.plan().variables().get(name)?.iter();
                let is_known = by.all(|it| begun.step(*it).output().is_some());
                begun.variable(name).filter(|_| is_known)
            }
            Target::Input => Some(&begun.options().input),
            Target::Item => self.item.as_ref().map(|it| it.0),
            Target::Index => None,
        }
    }
}

impl Values for Known<'_> {
    fn value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Index => self.item.as_ref().map(|it| &it.1),
            _ => self.find(target),
        }
    }
}

/// Returns what a step will return that returns what it is given, if it is certain to.
fn echoed(step: &ToolExecution) -> Option<&Value> {
    match &step.template {
        Template::Literal(parameters) if step.tool.as_str() == ECHO => {
            (step.when.is_none() && step.for_each.is_none()).then_some(parameters)
        }
        _ => None,
    }
}

/// Returns whether something stands that a step did, and that is done anew each time it is done.
fn is_there(step: &ToolExecution, came: &Step) -> bool {
    step.policy.effect == Effect::Once && stands(came)
}

/// Returns whether something that a step did is there, or may be: nobody undid it.
fn stands(came: &Step) -> bool {
    match &came.items {
        Some(items) => items.all().iter().any(stands),
        None if came.is_compensated() => false,
        None => match &came.state {
            StepState::Succeeded(_) => true,
            StepState::Failed(err) => err.is_outcome_unknown(),
            _ => false,
        },
    }
}

fn would_be_done_twice(draft: &Draft, id: &str, was: &Again<'_>) -> Diagnostic {
    let is_it = |it: &DraftStep| {
        let name = || it.name.as_deref().or(it.tool_name.as_deref());
        it.id.as_deref().or_else(name) == Some(id)
    };
    let path = draft.tools.iter().position(is_it).map(|at| format!("tools[{at}]"));
    let (message, help) = match was {
        Again::Does(was) if was.as_str() == id => (
            format!("`{id}` was done, or may have been, and would be done a second time"),
            "keep it, and what it depends on, as it is in the plan, if it succeeded; otherwise \
             leave it out. A step that does something else needs another `id`",
        ),
        Again::Does(was) => (
            format!("`{id}` would do what `{was}` did, or may have done, a second time"),
            "keep that step as it is in the plan, if it succeeded, and leave this one out",
        ),
        Again::May(was) => (
            format!("`{id}` may do again what `{was}` did for some items: its list is not known"),
            "write what is left to be done where it can be seen: let a `flow.echo` step return the \
             list, with nothing in it to be filled in, or write a step for each item",
        ),
        Again::Much => (
            format!("`{id}` may do again what was done: what it would call is too much to compare"),
            "write smaller parameters: what is large goes into a file whose name is given, and a \
             list has only what is left to be done",
        ),
        Again::Unseen => (
            format!(
                "`{id}` may do again what was done: there were more than {MOST} executions before, \
                 and the others were not looked at"
            ),
            "keep steps as they are in the plan, and leave out what does something new: a person \
             who knows what was done can run that as a plan of its own",
        ),
    };
    Diagnostic::error("plan.done_twice", path.unwrap_or_default(), message).with_help(help)
}
