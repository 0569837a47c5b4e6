//! What a log says of one thing that is done: a step, one item of it, or what undoes either.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    home::Line,
    plans::{Kind, Step},
};

/// What is done: the step, the item of its list, and whether that is undone.
pub(super) type Task<'a> = (&'a str, Option<u64>, bool);

/// What a log says of one thing that is done.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the log")]
pub(super) struct Course {
    pub(super) attempts: u64,
    /// Whether an attempt is under way.
    pub(super) is_running: bool,
    /// Whether a worker was lost while it was.
    pub(super) is_lost: bool,
    pub(super) is_approved: bool,
    /// How it ended.
    pub(super) over: Option<String>,
    pub(super) output: Value,
    /// The output is of an earlier call or execution.
    pub(super) is_taken_over: bool,
    /// It failed because the time was up, or may have.
    pub(super) was_cut: bool,
    /// It was skipped, and not because something else had gone wrong.
    pub(super) is_passed_over: bool,
    /// The attempts after which it may be called again though that does something again.
    released: Vec<u64>,
}

/// How something is carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    pub(super) kind: Kind,
    /// What it must return, where it is a number of the plan.
    pub(super) n: Option<u64>,
}

impl Manner {
    /// Returns how a task of a step is carried out.
    pub(super) fn of(step: &Step, (_, item, is_undo): Task<'_>) -> Self {
        let at = |index: u64| step.items.as_ref()?.get(usize::try_from(index).ok()?).copied();
        let n = match (item, step.items.is_some()) {
            (Some(item), _) => at(item),
            (None, true) => None,
            (None, false) => Some(step.n),
        };
        let kind = if is_undo { Kind::Idempotent } else { step.kind };
        Self { kind, n: n.filter(|_| step.kind.is_counted()) }
    }
}

impl Course {
    pub(super) fn succeeded(&self) -> bool {
        self.over.as_deref() == Some("step_succeeded")
    }

    /// Moves past an event, if it may come now.
    pub(super) fn event(
        &mut self,
        kind: &str,
        manner: Manner,
        event: &Value,
    ) -> Result<(), &'static str> {
        let attempt = event["attempt"].as_u64().unwrap_or_default();
        if self.over.is_some() {
            return Err("something happens to what is over");
        }
        match kind {
            "step_started" => return self.started(manner, attempt),
            "step_progress" | "step_checked" => return Ok(()),
            "step_waiting" if event["data"]["for"] != "decision" => return Ok(()),
            "step_approved" => {
                self.is_approved = true;
                self.released.push(self.attempts);
                return Ok(());
            }
            _ => (),
        }
        let ends_attempt =
            ["step_succeeded", "step_failed", "step_retry_scheduled", "step_interrupted"];
        if ends_attempt.contains(&kind) && self.is_running && attempt != self.attempts {
            return Err("the end of another attempt");
        }
        match kind {
            "step_succeeded" => self.succeeds(manner, &event["data"])?,
            "step_interrupted" if manner.kind.is_once() || !self.is_lost => {
                return Err("interrupted, and must not be");
            }
            "step_retry_scheduled" => {
                let code = event["data"]["error"]["code"].as_str().unwrap_or_default();
                if !matches!(code, "tool.outcome_unknown" | "tool.timeout") {
                    self.released.push(attempt);
                }
            }
            _ => (),
        }
        let code = event["data"]["error"]["code"].as_str().unwrap_or_default();
        let is_cut = ["execution.deadline", "tool.outcome_unknown"].contains(&code);
        self.was_cut = kind == "step_failed" && is_cut;
        self.is_passed_over =
            kind == "step_skipped" && event["data"]["reason"] != "execution_failed";
        (self.is_running, self.is_lost) = (false, false);
        let ends = ["step_succeeded", "step_failed", "step_skipped", "step_cancelled"];
        self.over = ends.contains(&kind).then(|| kind.to_owned());
        Ok(())
    }

    fn started(&mut self, manner: Manner, attempt: u64) -> Result<(), &'static str> {
        if self.is_running {
            return Err("begun twice");
        }
        if attempt != self.attempts + 1 {
            return Err("attempts are not counted");
        }
        if manner.kind.is_once() && self.attempts > 0 && !self.released.contains(&self.attempts) {
            return Err("begun again, and does something again");
        }
        self.attempts = attempt;
        self.is_running = true;
        Ok(())
    }

    fn succeeds(&mut self, manner: Manner, data: &Value) -> Result<(), &'static str> {
        if self.is_lost {
            return Err("nobody can know how it ended");
        }
        self.is_taken_over = data["cached"] == true;
        if !self.is_running && !self.is_taken_over && manner.kind != Kind::Wait {
            return Err("succeeded without an attempt");
        }
        self.output = data["output"].clone();
        if manner.n.is_some() && self.output["n"].as_u64() != manner.n {
            return Err("another output than the tool's");
        }
        Ok(())
    }

    /// Checks by what the tool is whether it was called as often as it may be, and whether the log
    /// says what came of it.
    pub(super) fn check_calls(&self, kind: Kind, lines: &[&Line]) -> Result<(), &'static str> {
        let mut attempts = BTreeMap::new();
        for line in lines {
            *attempts.entry(line.attempt).or_insert(0) += 1;
        }
        let is_read = kind == Kind::Read;
        if !is_read && attempts.values().any(|count| *count > 1) {
            return Err("one attempt, two calls");
        }
        if !is_read && attempts.keys().any(|attempt| *attempt > self.attempts) {
            return Err("called before the log said so");
        }
        let is_released = |attempt: &u64| self.released.iter().any(|released| released >= attempt);
        let last = attempts.keys().next_back();
        let mut earlier = attempts.keys().filter(|attempt| Some(*attempt) != last);
        if kind == Kind::Once && !earlier.all(is_released) {
            return Err("called twice");
        }
        if self.succeeded() && !self.is_taken_over && !attempts.contains_key(&self.attempts) {
            return Err("succeeded without a call");
        }
        Ok(())
    }
}
