//! Answers to steps that wait for a signal or a person.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use executor::control::{Control, ControlError};
use serde_json::Value;
use shared::{
    event::WaitReason,
    execution::{Execution, StepState},
    id::{ExecutionId, Seq, Task},
};

use super::{
    file::Script,
    plans::{Recording, TaskPath},
};

/// The signals and approvals that a test has not used yet.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) signals: BTreeMap<String, Script<Value>>,
    pub(super) approvals: BTreeMap<String, Script<bool>>,
    pub(super) recording: Option<Arc<Recording>>,
    /// Waits that were answered, by the position of the event with which they began.
    pub(super) answered: BTreeSet<(ExecutionId, Task, Seq)>,
}

impl Answers {
    /// Answers the waits of an execution. `above` is the path to the execution. Returns whether
    /// there was an answer.
    pub(super) async fn answer_waits(
        &mut self,
        control: &Control,
        execution: &Execution,
        above: &TaskPath,
    ) -> Result<bool, ControlError> {
        let mut has_answered = false;
        let waiting: Vec<Task> = execution.agenda().waiting().iter().copied().collect();
        for task in waiting {
            let Some(state) = execution.task(task) else { continue };
            let StepState::Waiting(reason) = &state.state else { continue };
            let began = state.changed.map_or(Seq::START, |changed| changed.seq);
            let wait = (execution.id(), task, began);
            if self.answered.contains(&wait) {
                continue;
            }
            let mut path = above.clone();
            path.steps.push((execution.plan().step(task.step).id.clone(), task.part.item));
            let id = execution.id();
            if let WaitReason::Signal { name, .. } = reason {
                let Some(payload) = self.take_payload(name, &path) else { continue };
                control.signal(id, name.clone(), payload).await?;
            } else {
                let is_approval = *reason == WaitReason::Approval;
                let Some(approved) = self.take_approval(&path, is_approval) else { continue };
                let step = execution.plan().step(task.step).id.clone();
                control.approve(id, step, task.part.item, approved, None).await?;
            }
            self.answered.insert(wait);
            has_answered = true;
        }
        Ok(has_answered)
    }

    fn take_payload(&mut self, name: &str, path: &TaskPath) -> Option<Value> {
        match self.signals.get_mut(name) {
            Some(script) => script.take_next(),
            None => self.recording.as_ref()?.find_payload(path),
        }
    }

    /// Finds an answer by the whole path, by the step with its item, or by the step.
    fn take_approval(&mut self, path: &TaskPath, is_approval: bool) -> Option<bool> {
        let (step, item) = path.steps.last()?;
        let item = item.map(|item| format!("{step}[{item}]"));
        for name in [Some(path.to_string()), item, Some(step.to_string())].into_iter().flatten() {
            if let Some(script) = self.approvals.get_mut(&name) {
                return script.take_next();
            }
        }
        let recording = self.recording.as_ref().filter(|_| is_approval)?;
        recording.is_approved(path).then_some(true)
    }
}
