//! Steps begin: their templates are rendered, and they run or sleep.

use std::sync::Arc;

use serde_json::Value;
use shared::{
    event::{Event, StepStarted},
    execution::{Phase, StepState},
    id::{Attempt, StepIx},
    json, limits,
    plan::{StepKind, StepPolicy},
    template::{Template, TooMuch},
    tool::{ErrorCode, ToolError},
};

use super::{Turn, later};

/// The longest sleep: a century, so that a slip of the keyboard is an error.
const SLEEP_MS: u64 = 100 * 365 * 24 * 60 * 60 * 1_000;

/// A step's parameters, ready for a call.
pub(super) struct Rendered {
    pub(super) parameters: Arc<Value>,
    pub(super) warnings: Vec<String>,
}

impl Turn<'_> {
    /// Returns whether steps may begin at all.
    pub(super) fn is_open(&self) -> bool {
        self.moment.may_start
            && self.execution.phase() == Phase::Open
            && !self.execution.is_paused()
            && self.execution.started_at().is_some()
    }

    /// Begins what is ready, as far as there are slots.
    pub(super) fn start(&mut self) {
        let width = self.execution.options().width();
        while self.is_open() && self.execution.agenda().running().len() < width {
            let Some(number) = self.next_to_start() else { return };
            self.start_step(number);
        }
    }

    /// Returns the first in plan order of what is ready and what is due for another try.
    fn next_to_start(&self) -> Option<StepIx> {
        let agenda = self.execution.agenda();
        let ready = agenda.ready().first().copied();
        let due = agenda.retrying().first().filter(|(until, _)| *until <= self.moment.now);
        match (ready, due.map(|(_, number)| *number)) {
            (Some(ready), Some(due)) => Some(ready.min(due)),
            (ready, due) => ready.or(due),
        }
    }

    fn start_step(&mut self, number: StepIx) {
        let attempt = self.execution.step(number).next_attempt();
        let id = self.execution.plan().step(number).id.clone();
        let rendered = match self.render(number) {
            Ok(rendered) => rendered,
            Err(error) => return self.fail_unstarted(number, attempt, error),
        };
        let slept = self.sleep_ms(number, &rendered.parameters);
        let until = slept.as_ref().ok().copied().flatten().map(|it| later(self.moment.now, it));
        let Rendered { parameters, warnings } = rendered;
        let step = id;
        self.push(Event::StepStarted(StepStarted { step, attempt, parameters, warnings, until }));
        if let Err(error) = slept {
            self.settle(number, attempt, Err(error));
        }
    }

    /// Ends a step that could not begin. Of a step that was tried before, that try is the last.
    pub(super) fn fail_unstarted(&mut self, number: StepIx, next: Attempt, error: ToolError) {
        let last = match self.execution.step(number).state {
            StepState::Retrying { attempt, .. } => attempt,
            _ => next,
        };
        let step = self.execution.plan().step(number).id.clone();
        self.push(Event::StepFailed { step, attempt: last, error });
    }

    /// Fills the holes in a step's parameters.
    pub(super) fn render(&self, number: StepIx) -> Result<Rendered, ToolError> {
        let plan = self.execution.plan();
        let step = plan.step(number);
        if let Template::Literal(parameters) = &step.template {
            return Ok(Rendered { parameters: Arc::clone(parameters), warnings: Vec::new() });
        }
        let rendered = step.template.render(&*self.execution, limits::OUTPUT_BYTES);
        let rendered = rendered.map_err(|TooMuch| {
            let most = limits::OUTPUT_BYTES;
            let why = format!("the templates bring in more than {most} bytes: pass less");
            ToolError::new(ErrorCode::INVALID_PARAMETERS, why)
        })?;
        if json::is_deeper_than(&rendered.value, limits::JSON_DEPTH) {
            let most = limits::JSON_DEPTH;
            let why = format!("the rendered parameters nest deeper than {most} levels");
            return Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, why));
        }
        let warnings: Vec<String> = rendered
            .unresolved
            .iter()
            .map(|text| format!("`{text}` found nothing and stands as it was written"))
            .collect();
        if self.execution.options().strict_templates && !warnings.is_empty() {
            let texts: Vec<String> =
                rendered.unresolved.iter().map(|text| format!("`{text}`")).collect();
            let why = format!("{} found nothing in the outputs so far", texts.join(", "));
            return Err(ToolError::new(ErrorCode::UNRESOLVED, why));
        }
        Ok(Rendered { parameters: Arc::new(rendered.value), warnings })
    }

    /// Returns how long a step sleeps, if that is all it does. Its timeout may end it earlier.
    fn sleep_ms(&self, number: StepIx, parameters: &Value) -> Result<Option<u64>, ToolError> {
        let step = self.execution.plan().step(number);
        if step.kind != StepKind::Sleep {
            return Ok(None);
        }
        let ms = sleep_ms(parameters)?;
        Ok(Some(most_sleep(&step.policy).map_or(ms, |most| ms.min(most))))
    }

    /// Ends the sleep of every step whose time has come.
    pub(super) fn wake(&mut self) {
        let now = self.moment.now;
        while let Some((until, number)) = self.execution.agenda().sleeping().first().copied()
            && until <= now
        {
            let StepState::Running { attempt, .. } = self.execution.step(number).state else {
                unreachable!("only running steps sleep");
            };
            let step = self.execution.plan().step(number);
            let (id, most) = (step.id.clone(), most_sleep(&step.policy));
            let parameters = self.execution.step(number).parameters.clone().unwrap_or_default();
            if let Some(timeout_ms) = most
                && sleep_ms(&parameters).is_ok_and(|ms| ms > timeout_ms)
            {
                let why = format!("slept longer than its timeout of {timeout_ms} ms");
                let error = ToolError::new(ErrorCode::TIMEOUT, why);
                self.settle(number, attempt, Err(error));
            } else {
                let output = Arc::new(Value::Null);
                self.push(Event::StepSucceeded { step: id, attempt, output });
            }
        }
    }
}

/// Returns the timeout of a sleep, where the plan gives one. The usual timeout is for calls: a
/// sleep says itself how long it takes.
fn most_sleep(policy: &StepPolicy) -> Option<u64> {
    (policy.timeout() != limits::STEP_TIMEOUT).then_some(policy.timeout_ms)
}

fn sleep_ms(parameters: &Value) -> Result<u64, ToolError> {
    let ms = &parameters["ms"];
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked first")]
    let whole = |it: f64| (it >= 0.0 && it.fract() == 0.0 && it < 1e15).then_some(it as u64);
    ms.as_u64().or_else(|| ms.as_f64().and_then(whole)).filter(|it| *it <= SLEEP_MS).ok_or_else(
        || {
            let why =
                format!("`ms` must be a whole number of milliseconds up to {SLEEP_MS}, not {ms}");
            ToolError::new(ErrorCode::INVALID_PARAMETERS, why)
        },
    )
}
