//! Why an execution does not go on, in one place: what `faber debug` says.

use std::collections::BTreeSet;

use async_graphql::{ID, SimpleObject};
use executor::call_limits::CallLimits;
use shared::{
    clock::Timestamp,
    event::WaitReason,
    execution::{AttemptKind, Execution, Phase, Step, StepState},
    id::Task,
    limits,
    store::{Command, ExecutionHead, SentCommand},
};

use super::scalar::DateTime;

/// The most reasons that are named: people read no further.
const MOST: usize = 100;

/// A reason why an execution does not go on by itself, now.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Wait {
    /// What kind of reason: `approval`, `decision`, `signal`, `retry`, `sleep`, `child`, `limit`,
    /// `call`, `paused`, `start` or `worker`.
    kind: &'static str,
    /// The step that waits.
    step_id: Option<String>,
    /// The item of its `forEach`, from 0.
    index: Option<u32>,
    /// What it waits for: the name of a signal, or the key of a limit.
    name: Option<String>,
    /// The execution that it waits for, `exec_…`.
    execution_id: Option<ID>,
    /// Until when, where that is known.
    until: Option<DateTime>,
    /// All of it in words.
    message: String,
}

impl Wait {
    fn new(kind: &'static str, message: String) -> Self {
        let (step_id, index, name, execution_id, until) = (None, None, None, None, None);
        Self { kind, step_id, index, name, execution_id, until, message }
    }

    fn ending(self, until: Timestamp) -> Self {
        Self { until: Some(until.into()), ..self }
    }

    fn named(self, name: String) -> Self {
        Self { name: Some(name), ..self }
    }
}

/// Returns whether a worker could take it and none has.
fn is_free(head: Option<&ExecutionHead>, now: Timestamp) -> bool {
    head.is_some_and(|head| head.owner.is_none() && head.due.is_some_and(|due| due <= now))
}

/// Finds out why an execution does not go on.
pub(super) struct Reader<'a> {
    execution: &'a Execution,
    limits: &'a CallLimits,
    /// What it was told and no worker has read yet.
    mail: &'a [SentCommand],
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        execution: &'a Execution,
        limits: &'a CallLimits,
        mail: &'a [SentCommand],
    ) -> Self {
        Self { execution, limits, mail }
    }

    /// Returns why the execution does not go on. Nothing for one that is over.
    pub(super) fn waits(&self, head: Option<&ExecutionHead>, now: Timestamp) -> Vec<Wait> {
        let execution = self.execution;
        if execution.state().is_finished() {
            return Vec::new();
        }
        let mut waits = Vec::new();
        if execution.is_paused() && execution.phase() == Phase::Open {
            waits.push(Wait::new("paused", "somebody paused it: resume it".to_owned()));
        }
        if let Some(at) = execution.options().start_at.filter(|at| *at > now) {
            waits.push(Wait::new("start", "its start is not due".to_owned()).ending(at));
        } else if is_free(head, now) {
            let why =
                "no worker has it: those that work lack its tools, are busy, or there is none";
            waits.push(Wait::new("worker", why.to_owned()));
        }
        let told = self.tasks().into_iter().filter_map(|task| self.wait(task));
        waits.extend(told.take(MOST - waits.len()));
        waits
    }

    /// Returns how a step that waits for a person or a signal was answered, if no worker has read
    /// that yet.
    fn answer(&self, task: Task, reason: &WaitReason) -> Option<&'static str> {
        let step = &self.execution.plan().step(task.step).id;
        self.mail.iter().find_map(|envelope| match (&envelope.command, reason) {
            (
                Command::Approve { step: answered, item, approved, .. },
                WaitReason::Approval | WaitReason::Decision { .. },
            ) if answered == step && (item.is_none() || *item == task.part.item) => {
                Some(if *approved { "was approved" } else { "was refused" })
            }
            (Command::Settle { step: answered, item, .. }, WaitReason::Decision { .. })
                if answered == step && *item == task.part.item =>
            {
                Some("was settled")
            }
            (Command::Signal { name, .. }, WaitReason::Signal { name: awaited, .. })
                if name == awaited =>
            {
                Some("was sent its signal")
            }
            _ => None,
        })
    }

    /// Returns what is open: what waits for somebody first, what runs by itself last.
    fn tasks(&self) -> Vec<Task> {
        let agenda = self.execution.agenda();
        let mut seen = BTreeSet::new();
        let all = agenda
            .waiting()
            .iter()
            .copied()
            .chain(agenda.retrying().iter().map(|(_, task)| *task))
            .chain(agenda.in_children().iter().copied())
            .chain(agenda.sleeping().iter().map(|(_, task)| *task))
            .chain(agenda.waiting_for_permit().iter().copied())
            .chain(agenda.ready().iter().copied())
            .chain(agenda.running().iter().copied());
        all.filter(|task| seen.insert(*task)).take(10 * MOST).collect()
    }

    fn wait(&self, task: Task) -> Option<Wait> {
        let found = self.execution.task(task)?;
        let wait = self.reason(task, found)?;
        let step = self.execution.plan().step(task.step).id.to_string();
        let item = task.part.item.map(|item| format!("[{item}]")).unwrap_or_default();
        let undo = if task.part.undo { "undoing " } else { "" };
        let message = format!("{undo}`{step}{item}` {}", wait.message);
        Some(Wait { step_id: Some(step), index: task.part.item, message, ..wait })
    }

    fn reason(&self, task: Task, found: &Step) -> Option<Wait> {
        Some(match &found.state {
            StepState::Waiting(reason) if let Some(answer) = self.answer(task, reason) => {
                let id = self.execution.id();
                let why = format!("{answer}: a worker, or `faber execute {id}`, carries it on");
                Wait::new("worker", why)
            }
            StepState::Waiting(WaitReason::Approval) => {
                Wait::new("approval", "waits for a person's consent".to_owned())
            }
            StepState::Waiting(WaitReason::Decision { error }) => {
                let why = format!("failed and waits for a person's decision: {error}");
                Wait::new("decision", why)
            }
            StepState::Waiting(WaitReason::Signal { name, until }) => {
                let wait = Wait::new("signal", format!("waits for the signal `{name}`"));
                let wait = wait.named(name.clone());
                match until {
                    Some(until) => wait.ending(*until),
                    None => wait,
                }
            }
            StepState::Retrying { until, error, .. } => {
                let why = error.as_ref().map(|error| format!(", which failed: {error}"));
                let why = why.unwrap_or_else(|| ", whose worker was lost".to_owned());
                let attempt = found.attempts;
                Wait::new("retry", format!("will be tried again after attempt {attempt}{why}"))
                    .ending(*until)
            }
            StepState::Running { how: AttemptKind::Sleeping { until }, .. } => {
                Wait::new("sleep", "sleeps".to_owned()).ending(*until)
            }
            StepState::Running { how: AttemptKind::Executing { child }, .. } => {
                let wait = Wait::new("child", format!("waits for `{child}`"));
                Wait { execution_id: Some(ID(child.to_string())), ..wait }
            }
            StepState::Running { attempt, .. } => {
                let tool = self.execution.plan().step(task.step).call_of_part(task.part).tool;
                Wait::new("call", format!("is being called (`{tool}`), attempt {attempt}"))
            }
            StepState::Pending => return self.limited(task),
            _ => return None,
        })
    }

    /// Says which limit a task stands before that could begin otherwise.
    fn limited(&self, task: Task) -> Option<Wait> {
        let callee = self.execution.plan().step(task.step).call_of_part(task.part);
        let scope = self.execution.template_scope(task);
        let parameters = callee.template.render(&scope, limits::OUTPUT_BYTES).ok();
        let parameters = parameters.map(|rendered| rendered.value).unwrap_or_default();
        let keys = self.limits.limits_of_call(callee.tool, &parameters);
        if !keys.is_empty() {
            let keys = keys.into_iter().map(|limit| limit.key).collect::<Vec<_>>().join(", ");
            return Some(Wait::new("limit", format!("waits for a limit: {keys}")).named(keys));
        }
        let (running, width) =
            (self.execution.agenda().running().len(), self.execution.options().width());
        let is_full = running >= width;
        let key = "maxParallel".to_owned();
        is_full.then(|| {
            let why = format!("waits until fewer than {width} steps run (`maxParallel`)");
            Wait::new("limit", why).named(key)
        })
    }
}
