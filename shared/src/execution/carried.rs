//! Calls with an unknown outcome: those of earlier executions, and those of this execution for a
//! retry of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use super::{Execution, ReplayError, Step, StepState};
use crate::{
    event::{
        CallKey, CallPlace, Created, Settled, SettledCall, Settlement, hash_parameters,
        idempotency_key,
    },
    id::{ExecutionId, Part, StepId, StepNumber, Task},
    plan::{StepKind, ToolExecution},
    tool::ErrorCode,
};

#[derive(Debug, Default)]
pub(super) struct CarriedCalls {
    /// Keys of earlier calls, by the task of this execution that repeats the call. A task has
    /// several keys if its parameters changed between executions.
    keys: BTreeMap<Task, Vec<CallKey>>,
    /// Settled calls of items of lists. Settled calls of whole steps are not here, because their
    /// outputs are among the reused outputs.
    items: BTreeMap<Task, SettledCall>,
    child_keys: BTreeMap<Task, Vec<CallKey>>,
    child_settled: BTreeMap<Task, Vec<SettledCall>>,
}

/// The idempotency key that a call must send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarriedKey {
    /// The key of this execution, because no earlier call of the task has an unknown outcome.
    Own,
    /// The key of an earlier call with the same parameters.
    Same(Arc<str>),
    /// The key of this execution, because the earlier call had other parameters.
    OtherParameters,
}

/// The calls of earlier executions that a child execution repeats or whose outputs it reuses.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChildCalls {
    pub reused: Vec<(StepId, Arc<Value>)>,
    pub call_keys: Vec<CallKey>,
    pub settled: Vec<SettledCall>,
}

impl ChildCalls {
    /// Returns the calls of an earlier child execution, for the child that repeats it.
    pub fn from_earlier_child(call_keys: Vec<CallKey>, settled: Vec<SettledCall>) -> Self {
        let mut calls = Self { call_keys, ..Self::default() };
        for call in settled {
            calls.add_settled(call);
        }
        calls
    }

    /// Adds the calls to the first event of a child execution.
    pub fn add_to(self, created: &mut Created) {
        created.reused.extend(self.reused);
        created.call_keys.extend(self.call_keys);
        created.settled.extend(self.settled);
    }
}

impl CarriedCalls {
    pub(super) fn from_created(
        created: &Created,
        execution: &Execution,
    ) -> Result<Self, ReplayError> {
        let mut carried = Self::default();
        for key in &created.call_keys {
            let task = execution.find_task_at(&key.place)?;
            let CallKey { place, key, parameters } = key.clone();
            let (keys, place) = match place.child {
                Some(inner) => (&mut carried.child_keys, *inner),
                None => (&mut carried.keys, place),
            };
            keys.entry(task).or_default().push(CallKey { place, key, parameters });
        }
        for call in &created.settled {
            let task = execution.find_task_at(&call.place)?;
            let call = call.clone();
            if let Some(inner) = call.place.child {
                let call = SettledCall { place: *inner, ..call };
                carried.child_settled.entry(task).or_default().push(call);
            } else if task.part.item.is_some() {
                carried.items.insert(task, call);
            }
        }
        Ok(carried)
    }
}

impl Execution {
    fn find_task_at(&self, place: &CallPlace) -> Result<Task, ReplayError> {
        let step = self.plan.step_number(&place.step);
        let step = step.ok_or_else(|| ReplayError::UnknownStep(place.step.clone()))?;
        Ok(Task { step, part: Part { item: place.item, undo: false } })
    }

    /// Records that a person settled the calls of some reused steps. The compensation of this
    /// execution includes them, because the earlier execution did not undo them.
    pub(super) fn reuse_settled(&mut self, settled: &[SettledCall]) -> Result<(), ReplayError> {
        for call in settled.iter().filter(|call| call.place.child.is_none()) {
            let task = self.find_task_at(&call.place)?;
            let step = &mut self.steps[task.step.get()];
            let (true, StepState::Succeeded(output)) = (task.part.is_whole(), &step.state) else {
                continue;
            };
            step.settlement = Some(Box::new(Settlement {
                outcome: Settled::Succeeded,
                output: Some(Arc::clone(output)),
                comment: call.comment.clone(),
            }));
            if self.plan.step(task.step).for_each.is_none() {
                self.record_undoable(task);
            }
        }
        Ok(())
    }

    /// Returns the key that a call of a task sends with its rendered parameters.
    pub fn carried_key(&self, task: Task, parameters: &Value) -> CarriedKey {
        let Some(keys) = self.carried_calls.keys.get(&task) else { return CarriedKey::Own };
        let hash = hash_parameters(parameters);
        match keys.iter().find(|key| key.parameters == hash) {
            Some(found) => CarriedKey::Same(Arc::clone(&found.key)),
            None => CarriedKey::OtherParameters,
        }
    }

    /// Returns the decision about an earlier call of an item, if that call had the same parameters.
    pub fn settled_item(&self, task: Task, parameters: &Value) -> Option<&SettledCall> {
        let call = self.carried_calls.items.get(&task)?;
        (call.parameters == hash_parameters(parameters)).then_some(call)
    }

    /// Returns the calls of earlier executions for the child execution of a task.
    pub fn calls_for_child(&self, task: Task) -> ChildCalls {
        let call_keys = self.carried_calls.child_keys.get(&task).cloned().unwrap_or_default();
        let settled = self.carried_calls.child_settled.get(&task).cloned().unwrap_or_default();
        ChildCalls::from_earlier_child(call_keys, settled)
    }

    /// Records decisions of people about calls of a finished step. The store keeps these decisions
    /// beside the log.
    pub fn add_settlements(
        &mut self,
        settlements: impl IntoIterator<Item = (StepId, Option<u32>, Settlement)>,
    ) {
        for (step, item, settlement) in settlements {
            let place = CallPlace { step, item, child: None };
            let Ok(task) = self.find_task_at(&place) else { continue };
            let is_repeated = self.repeats_open_call(task);
            let Some(step) = super::find_task(&mut self.steps, task) else { continue };
            if (step.is_outcome_unknown() || is_repeated) && step.settlement.is_none() {
                step.settlement = Some(Box::new(settlement));
            }
        }
    }

    /// Returns `true` if a task repeated a call of an earlier execution whose outcome is unknown,
    /// and this task certainly failed. The earlier call may still have taken effect.
    pub fn repeats_open_call(&self, task: Task) -> bool {
        let Some(step) = self.task(task) else { return false };
        let is_failed = matches!(step.state, StepState::Failed(_)) && !step.is_outcome_unknown();
        let mut carried = self.carried_calls.keys.get(&task).into_iter().flatten();
        is_failed && step.key.as_ref().is_some_and(|sent| carried.any(|call| call.key == *sent))
    }

    /// Returns the key of the call of an earlier execution that this task repeats, if the outcome
    /// of that call is still unknown.
    pub fn open_earlier_key(&self, task: Task) -> Option<&CallKey> {
        let step = self.task(task).filter(|step| step.is_outcome_known());
        let id = &self.plan.step(task.step).id;
        let known_key = step.map(|step| step.sent_key(self.id, id, task.part));
        let mut carried = self.carried_calls.keys.get(&task).into_iter().flatten();
        carried.find(|call| known_key.as_deref() != Some(&*call.key))
    }

    /// Returns `false` if no call of this execution, and no call of the earlier executions that it
    /// continues, can have an unknown outcome. Then there are no settlements to read.
    pub fn may_have_unknown_outcome(&self) -> bool {
        !self.carried_calls.keys.is_empty()
            || self.steps.iter().any(|step| step.parts().any(Step::is_outcome_unknown))
    }

    /// Returns the keys of all `ONCE` calls of this execution and of earlier executions whose
    /// outcome is unknown. Leaves out calls of a child execution that was started, because the
    /// child knows them.
    pub fn open_call_keys(&self) -> Vec<CallKey> {
        let mut open = Vec::new();
        for (position, planned) in self.plan.steps().iter().enumerate() {
            let number = StepNumber::new(position);
            let step = self.step(number);
            let items = step.items.as_deref().map_or(0, |items| items.as_slice().len());
            let items = (0..items).filter_map(|index| u32::try_from(index).ok());
            let mut parts: BTreeSet<Task> =
                items.map(|index| Task::from(number).for_item(index)).collect();
            parts.insert(number.into());
            let of_step = Task::from(number)..Task::from(number.next());
            let carried = self.carried_calls.keys.range(of_step.clone());
            parts.extend(carried.map(|(task, _)| *task));
            parts.extend(self.carried_calls.child_keys.range(of_step).map(|(task, _)| *task));
            for task in parts {
                self.add_open_keys(&mut open, task, planned);
            }
        }
        open
    }

    fn add_open_keys(&self, open: &mut Vec<CallKey>, task: Task, planned: &ToolExecution) {
        let state = self.task(task);
        let place = || CallPlace { step: planned.id.clone(), item: task.part.item, child: None };
        let has_child = state.is_some_and(|step| step.child.is_some());
        for key in
            self.carried_calls.child_keys.get(&task).into_iter().flatten().filter(|_| !has_child)
        {
            let place = key.place.clone().under(planned.id.clone(), task.part.item);
            open.push(CallKey { place, ..key.clone() });
        }
        let known_step = state.filter(|step| step.is_outcome_known());
        let known_key = known_step.map(|step| step.sent_key(self.id, &planned.id, task.part));
        let carried = self.carried_calls.keys.get(&task).into_iter().flatten();
        let carried = carried.filter(|key| known_key.as_deref() != Some(&*key.key));
        let before = open.len();
        open.extend(carried.map(|key| CallKey { place: place(), ..key.clone() }));
        // Ignores the step that repeats for a list. It fails with the error of an item, but the
        // item made the call.
        let is_loop = planned.for_each.is_some() && task.part.item.is_none();
        let is_call = !is_loop && !matches!(planned.kind, StepKind::Plan(_));
        let is_open = |step: &&Step| {
            is_call && step.has_once_call(planned.policy.effect) && step.is_open_call()
        };
        let Some(step) = state.filter(is_open) else { return };
        let key = step.sent_key(self.id, &planned.id, task.part);
        if open[before..].iter().all(|open| open.key != key) {
            let parameters = hash_parameters(step.parameters.as_deref().unwrap_or(&Value::Null));
            open.push(CallKey { place: place(), key, parameters });
        }
    }

    /// Returns the calls that a person settled as succeeded and that this execution does not undo.
    pub fn settled_calls(&self) -> Vec<SettledCall> {
        let mut settled = Vec::new();
        for (planned, step) in self.plan.steps().iter().zip(&self.steps) {
            let place = |item| CallPlace { step: planned.id.clone(), item, child: None };
            settled.extend(step.settled_call(place(None)));
            let items = step.items.iter().flat_map(|items| items.as_slice());
            settled
                .extend((0..).zip(items).filter_map(|(n, item)| item.settled_call(place(Some(n)))));
        }
        settled
    }
}

impl ChildCalls {
    fn add_settled(&mut self, mut call: SettledCall) {
        if call.place.child.is_none() && call.place.item.is_none() {
            let output = call.output.take().unwrap_or_default();
            self.reused.push((call.place.step.clone(), output));
        }
        self.settled.push(call);
    }
}

impl Step {
    /// Returns the step itself, or its items if it repeats for a list.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        let items = self.items.as_deref();
        items.map_or(std::slice::from_ref(self), |items| items.as_slice()).iter()
    }

    /// Returns `true` if the last attempt failed with `tool.outcome_unknown`.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(&self.state, StepState::Failed(error) if error.code == ErrorCode::OUTCOME_UNKNOWN)
    }

    /// Returns the answer of a person about the call, if there is one.
    pub fn settled(&self) -> Option<Settled> {
        self.settlement.as_ref().map(|settlement| settlement.outcome)
    }

    /// Returns the output of the call: the tool's output, or the output that a person gave.
    pub fn known_output(&self) -> Option<&Arc<Value>> {
        match (&self.state, &self.settlement) {
            (StepState::Succeeded(output), _) => Some(output),
            (_, Some(settlement)) => settlement.output.as_ref(),
            _ => None,
        }
    }

    /// Returns `true` if a retry can reuse the output.
    pub fn is_reusable(&self) -> bool {
        self.known_output().is_some() && !self.has_started_compensation()
    }

    /// Returns `true` if the step failed with an unknown outcome that no person has settled.
    fn is_open_call(&self) -> bool {
        let is_unknown =
            matches!(&self.state, StepState::Failed(error) if error.is_outcome_unknown());
        is_unknown && self.settlement.is_none()
    }

    fn is_outcome_known(&self) -> bool {
        matches!(self.state, StepState::Succeeded(_)) || self.settlement.is_some()
    }

    fn sent_key(&self, execution: ExecutionId, step: &StepId, part: Part) -> Arc<str> {
        match &self.key {
            Some(key) => Arc::clone(key),
            None => idempotency_key(execution, step, part).into(),
        }
    }

    fn settled_call(&self, place: CallPlace) -> Option<SettledCall> {
        let settlement = self.settlement.as_deref()?;
        if settlement.outcome != Settled::Succeeded || self.has_started_compensation() {
            return None;
        }
        let parameters = self.parameters.as_deref().map(hash_parameters).unwrap_or_default();
        let (output, comment) = (self.known_output().cloned(), settlement.comment.clone());
        Some(SettledCall { place, output, parameters, comment })
    }
}
