//! Starts tasks: renders their parameters, and starts a call, a sleep, a loop or a child execution.

use std::sync::Arc;

use serde_json::Value;
use shared::{
    event::{Event, Settled, SettledCall, StepStarted},
    execution::{CarriedKey, Phase, Step, StepState},
    id::{Attempt, ExecutionId, Task},
    json, limits,
    plan::StepKind,
    template::{LookUpValues, RenderedTooLarge, Template},
    tool::{ErrorCode, ToolError},
};
use toolbox::flow;

use super::{Decision, add_millis, attempt_name, can_start_tasks, input, is_blocked_by_permit};

/// Maximum number of templates without a value that the warnings of a step name. The limit keeps
/// events small.
const MAX_WARNINGS: usize = 1_000;

pub const OTHER_PARAMETERS_WARNING: &str = "an earlier call of this step with other parameters has \
                                            an unknown outcome, so this attempt sends a new \
                                            idempotency key";

pub(super) struct RenderedParameters {
    pub(super) parameters: Arc<Value>,
    pub(super) warnings: Vec<String>,
}

impl Decision<'_> {
    /// Returns whether tasks other than compensations can start.
    pub(super) fn can_start(&self) -> bool {
        let is_open = self.execution.phase() == Phase::Open;
        self.context.is_start_allowed && is_open && can_start_tasks(self.execution)
    }

    pub(super) fn start_ready_tasks(&mut self) {
        while self.has_free_slot() {
            self.queue_due_retries();
            let Some(task) = self.next_startable_task() else { return };
            if self.is_unexpanded_loop(task) {
                self.expand_loop(task);
            } else if self.execution.is_limited(task) {
                self.execution.set_task_aside(task);
            } else {
                self.start_task(task);
            }
        }
    }

    fn has_free_slot(&self) -> bool {
        self.can_start()
            && self.execution.agenda().running().len() < self.execution.options().width()
    }

    pub(super) fn start_permitted_task(&mut self, task: Task) {
        if !self.execution.agenda().without_permit().contains(&task) {
            return;
        }
        let is_start_allowed =
            if task.part.undo { self.context.is_start_allowed } else { self.has_free_slot() };
        if is_start_allowed {
            self.start_task(task);
        }
    }

    /// Moves due retries that need a permit to the permit queue, up to the first retry that needs
    /// none.
    fn queue_due_retries(&mut self) {
        while let Some(task) = self.first_due_retry()
            && self.execution.is_limited(task)
        {
            self.execution.set_task_aside(task);
        }
    }

    fn first_due_retry(&self) -> Option<Task> {
        let (until, task) = self.execution.agenda().retrying().first()?;
        (*until <= self.context.now).then_some(*task)
    }

    /// Returns the next ready task or due retry.
    fn next_startable_task(&self) -> Option<Task> {
        let agenda = self.execution.agenda();
        let due = self.first_due_retry();
        if self.execution.options().width() == 1 {
            let next = agenda.ready().first().copied().into_iter().chain(due).min()?;
            return (!is_blocked_by_permit(self.execution, next)).then_some(next);
        }
        agenda
            .first_ready()
            .into_iter()
            .chain(due)
            .min_by_key(|task| (task.part.item.is_some(), *task))
    }

    fn is_unexpanded_loop(&self, task: Task) -> bool {
        task.part.is_whole() && self.execution.plan().step(task.step).for_each.is_some()
    }

    fn expand_loop(&mut self, task: Task) {
        let items = match self.execution.list(task.step).map(|list| u32::try_from(list.len())) {
            Some(Ok(n)) if n as usize <= limits::ITEMS => n,
            Some(_) => {
                let limit = limits::ITEMS;
                let reason = format!("the list of `forEach` has more than {limit} items: split it");
                let error = ToolError::new(ErrorCode::INVALID_PARAMETERS, reason);
                return self.fail_unstarted(task, Attempt::FIRST, error);
            }
            None => return self.fail_unstarted(task, Attempt::FIRST, self.not_a_list_error(task)),
        };
        self.record_event(Event::StepStarted(StepStarted {
            step: self.step_id(task),
            part: task.part,
            attempt: Attempt::FIRST,
            parameters: Arc::default(),
            warnings: Vec::new(),
            until: None,
            items: Some(items),
            child: None,
            key: None,
            effect: None,
        }));
    }

    fn not_a_list_error(&self, task: Task) -> ToolError {
        let step = self.execution.plan().step(task.step);
        let list = step.for_each.as_ref();
        let found = list.and_then(|for_each| {
            for_each.list.path.find(self.execution.find_value(&for_each.list.target)?)
        });
        let found = match found {
            None => "nothing",
            Some(Value::Null) => "null",
            Some(Value::Bool(_)) => "true or false",
            Some(Value::Number(_)) => "a number",
            Some(Value::String(_)) => "text",
            Some(Value::Array(_)) => "a list",
            Some(Value::Object(_)) => "an object",
        };
        let written = list.map_or("", |for_each| for_each.written.as_str());
        let reason = format!("`forEach` needs a list, but `{written}` is {found}");
        ToolError::new(ErrorCode::NOT_A_LIST, reason)
    }

    pub(super) fn start_task(&mut self, task: Task) {
        let attempt = self.execution.task(task).map_or(Attempt::FIRST, Step::next_attempt);
        let rendered = match self
            .render_parameters(task)
            .and_then(|rendered| self.check_plan_input(task, rendered))
        {
            Ok(rendered) => rendered,
            Err(error) => return self.fail_unstarted(task, attempt, error),
        };
        let kind = self.execution.plan().step(task.step).call_of_part(task.part).kind;
        if matches!(kind, StepKind::Plan(_)) && self.nesting_depth() >= limits::ANCESTORS {
            let limit = limits::ANCESTORS;
            let reason = format!("plans are nested more than {limit} levels deep");
            let error = ToolError::new(ErrorCode::INVALID_PARAMETERS, reason);
            return self.fail_unstarted(task, attempt, error);
        }
        if kind == StepKind::Wait {
            return self.fail_unstarted(task, attempt, wait_in_compensation_error());
        }
        if let Some(call) = self.execution.settled_item(task, &rendered.parameters).cloned() {
            return self.reuse_settled_item(task, attempt, call);
        }
        let slept = self.sleep_duration_ms(task, &rendered.parameters);
        let until =
            slept.as_ref().ok().copied().flatten().map(|ms| add_millis(self.context.now, ms));
        let seed = attempt_name(self.execution.id(), task, attempt);
        let child = matches!(kind, StepKind::Plan(_))
            .then(|| ExecutionId::derive_child(self.context.now, &seed));
        let (step, part, effect) = (self.step_id(task), task.part, self.changed_effect(task));
        let RenderedParameters { parameters, mut warnings } = rendered;
        let key = self.take_over_key(task, &parameters, &mut warnings);
        self.record_event(Event::StepStarted(StepStarted {
            step,
            part,
            attempt,
            parameters,
            warnings,
            until,
            items: None,
            child,
            key,
            effect,
        }));
        if let Err(error) = slept {
            self.record_result(task, attempt, Err(error));
        }
    }

    /// Returns the key of an earlier call whose outcome is unknown, if that call had the same
    /// parameters. Warns if it had other parameters, because the new call then gets another key.
    fn take_over_key(
        &self,
        task: Task,
        parameters: &Value,
        warnings: &mut Vec<String>,
    ) -> Option<Arc<str>> {
        match self.execution.carried_key(task, parameters) {
            CarriedKey::Own => None,
            CarriedKey::Same(key) => Some(key),
            CarriedKey::OtherParameters => {
                warnings.push(OTHER_PARAMETERS_WARNING.to_owned());
                None
            }
        }
    }

    fn reuse_settled_item(&mut self, task: Task, attempt: Attempt, call: SettledCall) {
        self.record_event(Event::StepSettled {
            step: self.step_id(task),
            part: task.part,
            attempt,
            outcome: Settled::Succeeded,
            output: Some(call.output.unwrap_or_default()),
            comment: call.comment,
            command: None,
        });
    }

    fn nesting_depth(&self) -> u32 {
        self.execution.parent().map_or(0, |parent| parent.depth)
    }

    /// Fails a task that could not start. A retry keeps the number of its last attempt.
    pub(super) fn fail_unstarted(&mut self, task: Task, next: Attempt, error: ToolError) {
        let attempt = match self.task_state(task) {
            Some(StepState::Retrying { attempt, .. }) => *attempt,
            _ => next,
        };
        let (step, part) = (self.step_id(task), task.part);
        self.record_event(Event::StepFailed { step, part, attempt, error, command: None });
    }

    pub(super) fn render_parameters(&self, task: Task) -> Result<RenderedParameters, ToolError> {
        let template = self.execution.plan().step(task.step).call_of_part(task.part).template;
        if let Template::Literal(parameters) = template {
            return check_parameter_size(Arc::clone(parameters), Vec::new());
        }
        let rendered = template.render(&self.execution.template_scope(task), limits::OUTPUT_BYTES);
        let rendered = rendered.map_err(|RenderedTooLarge| {
            let limit = limits::OUTPUT_BYTES;
            let reason =
                format!("the values of the templates have more than {limit} bytes: pass less data");
            ToolError::new(ErrorCode::INVALID_PARAMETERS, reason)
        })?;
        if json::is_deeper_than(&rendered.value, limits::JSON_DEPTH) {
            let limit = limits::JSON_DEPTH;
            let reason = format!("the rendered parameters nest deeper than {limit} levels");
            return Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, reason));
        }
        if !rendered.unresolved.is_empty() && self.is_strict(task) {
            return Err(input::unresolved_error(&rendered.unresolved, "in the outputs so far"));
        }
        check_parameter_size(Arc::new(rendered.value), describe_unresolved(&rendered.unresolved))
    }

    /// Returns whether a template without a value fails a task.
    fn is_strict(&self, task: Task) -> bool {
        let step = self.execution.plan().step(task.step);
        let planned = step.call_of_part(task.part).policy.effect;
        let effect = self.changed_effect(task).unwrap_or(planned);
        self.execution.options().is_strict(&step.policy, effect)
    }

    /// Fills in the defaults of a sub-plan's input, and checks it. Returns the parameters of other
    /// tasks unchanged.
    fn check_plan_input(
        &self,
        task: Task,
        rendered: RenderedParameters,
    ) -> Result<RenderedParameters, ToolError> {
        let step = self.execution.plan().step(task.step);
        let inputs = step.inputs.as_ref().filter(|_| !task.part.undo);
        let Some(inputs) = inputs else { return Ok(rendered) };
        let RenderedParameters { parameters, warnings } = rendered;
        let fitted = inputs.fill_and_check(parameters).map_err(|error| {
            let reason = format!("the input of `{}` does not fit its schema: {error}", step.tool);
            ToolError::new(ErrorCode::INVALID_PARAMETERS, reason)
        })?;
        check_parameter_size(fitted, warnings)
    }

    /// Returns the duration of a `flow.sleep`, which an explicit timeout limits. `None` for any
    /// other tool.
    fn sleep_duration_ms(&self, task: Task, parameters: &Value) -> Result<Option<u64>, ToolError> {
        let callee = self.execution.plan().step(task.step).call_of_part(task.part);
        if callee.kind != StepKind::Sleep {
            return Ok(None);
        }
        let ms = parse_sleep_ms(parameters)?;
        Ok(Some(callee.policy.explicit_timeout_ms().map_or(ms, |maximum| ms.min(maximum))))
    }

    pub(super) fn end_due_sleeps(&mut self) {
        let now = self.context.now;
        while let Some((until, task)) = self.execution.agenda().sleeping().first().copied()
            && until <= now
        {
            let Some(Step { state: StepState::Running { attempt, .. }, parameters, .. }) =
                self.execution.task(task)
            else {
                unreachable!("only running tasks sleep");
            };
            let (attempt, parameters) = (*attempt, parameters.clone().unwrap_or_default());
            if let Some(timeout_ms) = self.call_policy(task).explicit_timeout_ms()
                && parse_sleep_ms(&parameters).is_ok_and(|ms| ms > timeout_ms)
            {
                let reason = format!("slept longer than its timeout of {timeout_ms} ms");
                let error = ToolError::new(ErrorCode::TIMEOUT, reason);
                self.record_result(task, attempt, Err(error));
            } else {
                self.record_result(task, attempt, Ok(Value::Null.into()));
            }
        }
    }
}

fn describe_unresolved(unresolved: &[Arc<str>]) -> Vec<String> {
    let shown_templates = unresolved.iter().take(MAX_WARNINGS);
    let mut warnings: Vec<String> = shown_templates
        .map(|text| format!("`{text}` has no value and was passed on as written"))
        .collect();
    if let more @ 1.. = unresolved.len().saturating_sub(MAX_WARNINGS) {
        warnings.push(format!("{more} more templates have no value and were passed on as written"));
    }
    warnings
}

fn wait_in_compensation_error() -> ToolError {
    let reason = "a compensation cannot wait for a signal: the execution has to end";
    ToolError::new(ErrorCode::INVALID_PARAMETERS, reason)
}

fn parse_sleep_ms(parameters: &Value) -> Result<u64, ToolError> {
    flow::sleep_ms(parameters).ok_or_else(|| {
        let (maximum, ms) = (flow::MAX_SLEEP_MS, &parameters["ms"]);
        let reason =
            format!("`ms` must be a whole number of milliseconds up to {maximum}, not {ms}");
        ToolError::new(ErrorCode::INVALID_PARAMETERS, reason)
    })
}

pub(super) fn check_parameter_size(
    parameters: Arc<Value>,
    warnings: Vec<String>,
) -> Result<RenderedParameters, ToolError> {
    let (bytes, limit) = (json::json_size(&parameters), limits::PARAMETER_BYTES);
    if bytes > limit {
        let reason = format!(
            "the parameters have {bytes} bytes as JSON; the limit is {limit}: put the data into a \
             file and pass its name"
        );
        return Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, reason));
    }
    Ok(RenderedParameters { parameters, warnings })
}
