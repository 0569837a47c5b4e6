//! The state of one task according to its log. A task is a step, an item, or the compensation of a
//! step or an item.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    plans::{Step, StepKind},
    workspace::LedgerEntry,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Task<'a> {
    pub(super) step: &'a str,
    pub(super) item: Option<u64>,
    pub(super) is_compensation: bool,
}

impl<'a> Task<'a> {
    pub(super) fn of_step(step: &'a str) -> Self {
        Self { step, item: None, is_compensation: false }
    }

    /// Returns `true` if both tasks belong to the same step and item, so that they are the same
    /// task or one compensates the other.
    pub(super) fn is_same_call(&self, other: &Task<'_>) -> bool {
        (self.step, self.item) == (other.step, other.item)
    }
}

#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the log")]
pub(super) struct TaskState {
    pub(super) attempts: u64,
    pub(super) is_running: bool,
    pub(super) was_lost: bool,
    pub(super) is_approved: bool,
    pub(super) end_event: Option<String>,
    pub(super) output: Value,
    /// The output comes from an earlier call or execution.
    pub(super) is_reused: bool,
    /// The task failed because of the deadline, or the log does not show whether it did.
    pub(super) may_have_hit_deadline: bool,
    /// The task was skipped, and not because the execution failed.
    pub(super) is_skipped: bool,
    /// Attempts after which another call is allowed to repeat an effect, because the attempt
    /// certainly failed or a person agreed.
    released_attempts: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TaskSpec {
    pub(super) kind: StepKind,
    /// The number that the task must return. `None` if the plan does not determine the number.
    pub(super) n: Option<u64>,
}

impl TaskSpec {
    pub(super) fn for_task(step: &Step, task: Task<'_>) -> Self {
        let item_state =
            |index: u64| step.items.as_ref()?.get(usize::try_from(index).ok()?).copied();
        let n = match (task.item, step.items.is_some()) {
            (Some(item), _) => item_state(item),
            (None, true) => None,
            (None, false) => Some(step.n),
        };
        let kind = if task.is_compensation { StepKind::Idempotent } else { step.kind };
        Self { kind, n: n.filter(|_| step.kind.is_in_ledger()) }
    }
}

impl TaskState {
    pub(super) fn has_succeeded(&self) -> bool {
        self.end_event.as_deref() == Some("step_succeeded")
    }

    pub(super) fn apply(
        &mut self,
        kind: &str,
        spec: TaskSpec,
        event: &Value,
    ) -> Result<(), &'static str> {
        let attempt = event["attempt"].as_u64().unwrap_or_default();
        if self.end_event.is_some() {
            return Err("an event follows the end of its task");
        }
        match kind {
            "step_started" => return self.apply_start(spec, attempt),
            "step_progress" | "step_checked" => return Ok(()),
            "step_waiting" if event["data"]["for"] != "decision" => return Ok(()),
            "step_approved" => {
                self.is_approved = true;
                self.released_attempts.push(self.attempts);
                return Ok(());
            }
            _ => (),
        }
        let ends_attempt =
            ["step_succeeded", "step_failed", "step_retry_scheduled", "step_interrupted"];
        if ends_attempt.contains(&kind) && self.is_running && attempt != self.attempts {
            return Err("ends another attempt");
        }
        match kind {
            "step_succeeded" => self.apply_success(spec, &event["data"])?,
            "step_interrupted" if spec.kind.is_once() || !self.was_lost => {
                return Err("interrupted although that is forbidden");
            }
            "step_retry_scheduled" => {
                let code = event["data"]["error"]["code"].as_str().unwrap_or_default();
                if !matches!(code, "tool.outcome_unknown" | "tool.timeout") {
                    self.released_attempts.push(attempt);
                }
            }
            _ => (),
        }
        let code = event["data"]["error"]["code"].as_str().unwrap_or_default();
        let is_cut = ["execution.deadline", "tool.outcome_unknown"].contains(&code);
        self.may_have_hit_deadline = kind == "step_failed" && is_cut;
        self.is_skipped = kind == "step_skipped" && event["data"]["reason"] != "execution_failed";
        (self.is_running, self.was_lost) = (false, false);
        let ends = ["step_succeeded", "step_failed", "step_skipped", "step_cancelled"];
        self.end_event = ends.contains(&kind).then(|| kind.to_owned());
        Ok(())
    }

    fn apply_start(&mut self, spec: TaskSpec, attempt: u64) -> Result<(), &'static str> {
        if self.is_running {
            return Err("started twice");
        }
        if attempt != self.attempts + 1 {
            return Err("the number of the attempt is wrong");
        }
        if spec.kind.is_once()
            && self.attempts > 0
            && !self.released_attempts.contains(&self.attempts)
        {
            return Err("started again although that repeats an effect");
        }
        self.attempts = attempt;
        self.is_running = true;
        Ok(())
    }

    fn apply_success(&mut self, spec: TaskSpec, data: &Value) -> Result<(), &'static str> {
        if self.was_lost {
            return Err("ended after its worker was lost");
        }
        self.is_reused = data["cached"] == true;
        if !self.is_running && !self.is_reused && spec.kind != StepKind::Wait {
            return Err("succeeded without an attempt");
        }
        self.output = data["output"].clone();
        if spec.n.is_some() && self.output["n"].as_u64() != spec.n {
            return Err("has another output than the tool's");
        }
        Ok(())
    }

    /// Checks that the ledger has no more calls than the tool's effect allows, and that these calls
    /// agree with the log.
    pub(super) fn check_calls(
        &self,
        kind: StepKind,
        lines: &[&LedgerEntry],
    ) -> Result<(), &'static str> {
        let mut attempts = BTreeMap::new();
        for line in lines {
            *attempts.entry(line.attempt).or_insert(0) += 1;
        }
        let is_read = kind == StepKind::Read;
        if !is_read && attempts.values().any(|count| *count > 1) {
            return Err("one attempt made two calls");
        }
        if !is_read && attempts.keys().any(|attempt| *attempt > self.attempts) {
            return Err("called before the start was logged");
        }
        let is_released =
            |attempt: &u64| self.released_attempts.iter().any(|released| released >= attempt);
        let last = attempts.keys().next_back();
        let mut earlier = attempts.keys().filter(|attempt| Some(*attempt) != last);
        if kind == StepKind::Once && !earlier.all(is_released) {
            return Err("called twice");
        }
        if self.has_succeeded() && !self.is_reused && !attempts.contains_key(&self.attempts) {
            return Err("succeeded without a call");
        }
        Ok(())
    }
}
