//! The rules that every log must obey.
//! The checks use the plan as the client wrote it, the events that clients received, and the ledger
//! of the tools. They call no code of the engine, so that a bug there cannot hide itself.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    clients::{ApiRecord, ClientRecord},
    people::Action,
    plans::{Step, StepKind},
    task_state::{Task, TaskSpec, TaskState},
    workspace::LedgerEntry,
};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExecutionCounts {
    pub(super) steps: u64,
    pub(super) items: u64,
    pub(super) compensations: u64,
    pub(super) claims: u64,
    pub(super) interruptions: u64,
    pub(super) unknown_outcomes: u64,
}

pub(super) fn check_log(
    record: &ClientRecord,
    api_record: &ApiRecord,
    calls: &[&LedgerEntry],
) -> (ExecutionCounts, Vec<String>) {
    let mut checker = LogChecker::new(record);
    for event in &api_record.log {
        checker.check_event(event);
    }
    checker.check_end(api_record);
    for (name, received) in
        [("the client", &record.received), ("another subscriber", &record.received_by_other)]
    {
        checker.check_received(name, received, &api_record.log);
    }
    checker.check_actions();
    checker.check_stop();
    checker.check_calls(calls);
    (checker.counts, checker.violations)
}

/// The state of the checks while the checker reads a log event by event.
#[expect(clippy::struct_excessive_bools, reason = "each is a word of the log")]
struct LogChecker<'a> {
    record: &'a ClientRecord,
    task_states: BTreeMap<Task<'a>, TaskState>,
    counts: ExecutionCounts,
    seq: u64,
    epoch: u64,
    worker: Option<String>,
    options: Value,
    is_paused: bool,
    is_cancelled: bool,
    is_expired: bool,
    has_failed: bool,
    is_undoing: bool,
    /// Tasks that succeeded and can be compensated, the newest last.
    compensable_tasks: Vec<Task<'a>>,
    state: Option<String>,
    command_marks: BTreeMap<String, u64>,
    violations: Vec<String>,
}

impl<'a> LogChecker<'a> {
    fn new(record: &'a ClientRecord) -> Self {
        let tasks = record.draft.steps.keys().map(|name| Task::of_step(name));
        Self {
            record,
            task_states: tasks.map(|task| (task, TaskState::default())).collect(),
            counts: ExecutionCounts::default(),
            seq: 0,
            epoch: 0,
            worker: None,
            options: Value::Null,
            is_paused: false,
            is_cancelled: false,
            is_expired: false,
            has_failed: false,
            is_undoing: false,
            compensable_tasks: Vec::new(),
            state: None,
            command_marks: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    fn add_violation(&mut self, description: &str, about: &impl std::fmt::Debug) {
        self.violations.push(format!("{}: {description}: {about:?}", self.record.execution));
    }

    fn planned_step(&self, name: &str) -> &'a Step {
        &self.record.draft.steps[name]
    }

    fn step_state(&self, name: &'a str) -> &TaskState {
        &self.task_states[&Task::of_step(name)]
    }

    fn check_event(&mut self, event: &Value) {
        self.seq += 1;
        if event["seq"].as_u64() != Some(self.seq) {
            self.add_violation("the log has a gap", event);
        }
        if self.state.is_some() {
            self.add_violation("an event follows the end", event);
        }
        let kind = event["type"].as_str().unwrap_or_default();
        if (kind == "created") != (self.seq == 1) {
            self.add_violation("`created` is not the first event", event);
        }
        match (kind, event["stepId"].as_str()) {
            (_, Some(step)) => self.check_step_event(kind, step, event),
            ("created", _) => self.check_created(&event["data"]),
            ("claimed", _) => self.check_claim(event),
            ("cancel_requested", _) => self.is_cancelled = true,
            ("deadline_passed", _) => self.is_expired = true,
            ("paused", _) => self.is_paused = true,
            ("resumed", _) => self.is_paused = false,
            ("signal_received", _) => self.count_mark(&event["data"]["payload"]),
            ("compensation_started", _) => self.check_compensation_start(event),
            ("finished", _) => self.state = event["data"]["state"].as_str().map(str::to_owned),
            _ => (),
        }
    }

    fn check_created(&mut self, data: &Value) {
        self.options = data.clone();
        for (name, output) in data["reused"].as_object().into_iter().flatten() {
            let Some((task, task_state)) =
                self.task_states.iter_mut().find(|(task, _)| task.step == name)
            else {
                return self.add_violation("reuses the output of an unknown step", data);
            };
            task_state.end_event = Some("step_succeeded".to_owned());
            task_state.output = output.clone();
            task_state.is_reused = true;
            debug_assert!(task.item.is_none());
        }
        for carried in data["callKeys"].as_array().into_iter().flatten() {
            // The entry of a child execution's call is nested: it contains the step of each
            // execution above the child. The innermost step made the call.
            let mut call = carried;
            while call["child"].is_object() {
                call = &call["child"];
            }
            let item = call["index"].as_u64().map(|item| format!("[{item}]"));
            let place =
                format!("{}{}", call["stepId"].as_str().unwrap_or("?"), item.unwrap_or_default());
            let key = carried["key"].as_str().and_then(|key| key.split_once('/'));
            let is_of_earlier = |(execution, other_place): (&str, &str)| {
                other_place == place && execution != self.record.execution
            };
            let repeats_earlier = !data["retryOf"].is_null() || !data["parent"].is_null();
            if !key.is_some_and(is_of_earlier) || !repeats_earlier {
                self.add_violation("carries a key that no earlier call had", carried);
            }
        }
    }

    fn check_claim(&mut self, event: &Value) {
        self.counts.claims += 1;
        self.epoch += 1;
        if event["data"]["epoch"].as_u64() != Some(self.epoch) {
            self.add_violation("the epoch of a claim is wrong", event);
        }
        let worker = event["data"]["worker"].as_str().map(str::to_owned);
        if event["data"]["renewed"] == true {
            // A renewed claim means that the lease expired but the worker still runs. So its calls
            // continue, and are not lost.
            if worker.is_none() || self.worker != worker {
                self.add_violation("renews the claim of another worker", event);
            }
            return;
        }
        self.worker = worker;
        for (task, task_state) in &mut self.task_states {
            let step = &self.record.draft.steps[task.step];
            let gathers = step.items.is_some() && task.item.is_none();
            let needs_worker =
                task.is_compensation || !step.kind.can_run_without_worker() && !gathers;
            task_state.was_lost |= task_state.is_running && needs_worker;
        }
    }

    fn count_mark(&mut self, mark: &Value) {
        if let Some(mark) = mark.as_str() {
            *self.command_marks.entry(mark.to_owned()).or_default() += 1;
        }
    }

    fn check_compensation_start(&mut self, event: &Value) {
        let is_asked_for = self.options["compensateOnFailure"] == true;
        let is_over = self
            .task_states
            .iter()
            .filter(|(task, _)| task.item.is_none())
            .all(|(_, task_state)| task_state.end_event.is_some());
        if self.is_undoing || !is_asked_for || !is_over {
            self.add_violation(
                "compensation starts too early, twice, or without the option",
                event,
            );
        }
        self.is_undoing = true;
    }

    fn check_step_event(&mut self, kind: &str, name: &str, event: &Value) {
        let Some((name, step)) = self.record.draft.steps.get_key_value(name) else {
            return self.add_violation("the plan has no such step", event);
        };
        let (kind, is_compensation) = match kind {
            "step_compensated" => ("step_succeeded".to_owned(), true),
            _ if kind.contains("compensation") => (kind.replace("compensation_", ""), true),
            _ => (kind.to_owned(), false),
        };
        let task = Task { step: name, item: event["data"]["index"].as_u64(), is_compensation };
        if kind == "step_started" {
            self.check_start(task, step, event);
        }
        self.count_mark(&event["data"]["comment"]);
        let spec = TaskSpec::for_task(step, task);
        let task_state = self.task_states.entry(task).or_default();
        if let Err(error) = task_state.apply(&kind, spec, event) {
            let task_state = format!("{task_state:?}");
            return self.add_violation(error, &(event, task_state));
        }
        self.count_step_event(task, step, &kind, event);
    }

    fn count_step_event(&mut self, task: Task<'a>, step: &Step, kind: &str, event: &Value) {
        match kind {
            "step_interrupted" => self.counts.interruptions += 1,
            "step_failed" => {
                let is_unknown = event["data"]["error"]["code"] == "tool.outcome_unknown";
                self.counts.unknown_outcomes += u64::from(is_unknown);
                // If `onError` is `wait` and the person refuses, the step fails as with `fail`.
                let is_whole = task.item.is_none() && !task.is_compensation;
                self.has_failed |= is_whole && matches!(step.on_error, "fail" | "wait");
            }
            "step_succeeded" if task.is_compensation => {
                self.counts.compensations += 1;
                self.compensable_tasks.retain(|done| !done.is_same_call(&task));
            }
            "step_succeeded" => {
                let is_leaf = task.item.is_some() || step.items.is_none();
                self.counts.items += u64::from(task.item.is_some());
                if step.is_compensated && is_leaf {
                    self.compensable_tasks.push(task);
                }
            }
            _ => (),
        }
        if task.is_compensation && kind == "step_failed" {
            self.compensable_tasks.retain(|done| !done.is_same_call(&task));
        }
    }

    /// Checks that a task may start. A step with several parents starts only after all of them
    /// finished.
    fn check_start(&mut self, task: Task<'a>, step: &'a Step, event: &Value) {
        if self.options["dryRun"] == true {
            self.add_violation("a step started in a dry run", event);
        }
        if task.is_compensation {
            let latest = self.compensable_tasks.last();
            if !self.is_undoing || latest.is_none_or(|done| !done.is_same_call(&task)) {
                self.add_violation("compensated in the wrong order", event);
            }
            return;
        }
        if self.is_paused || self.is_cancelled || self.is_expired || self.has_failed {
            self.add_violation("started while starts were forbidden", event);
        }
        for parent in &step.after {
            if let Err(error) = self.check_parent(parent, step, event) {
                self.add_violation(&error, event);
            }
        }
        if let Some(parent) = &step.when {
            let task_state = self.step_state(parent);
            let is_even = task_state.output["n"].as_u64().is_some_and(|n| n % 2 == 0);
            if !task_state.has_succeeded() || !is_even {
                self.add_violation("started although its condition is false", event);
            }
        }
        let whole = self.step_state(task.step).clone();
        if task.item.is_some() && !whole.is_running {
            self.add_violation("an item started before its step", event);
        }
        if step.needs_approval && !whole.is_approved {
            self.add_violation("started before the approval", event);
        }
        self.check_parallelism(event);
        self.counts.steps += u64::from(task.item.is_none() && whole.attempts == 0);
    }

    fn check_parallelism(&mut self, event: &Value) {
        let is_sequential = self.options["mode"] == "SEQUENTIAL";
        let width = self.options["maxParallel"].as_u64().filter(|_| !is_sequential);
        let width = width.unwrap_or(if is_sequential { 1 } else { u64::MAX });
        let counts = |task: &Task<'_>| {
            let step = &self.record.draft.steps[task.step];
            task.item.is_none() && step.items.is_none() && step.child.is_none()
        };
        let running = self
            .task_states
            .iter()
            .filter(|(task, task_state)| counts(task) && task_state.is_running);
        if running.count() as u64 >= width {
            self.add_violation("too many steps run at the same time", event);
        }
    }

    fn check_parent(&self, parent: &'a str, step: &Step, event: &Value) -> Result<(), String> {
        let task_state = self.step_state(parent);
        let is_ignored = self.planned_step(parent).on_error == "ignore";
        match task_state.end_event.as_deref() {
            Some("step_succeeded") => (),
            Some("step_failed") if is_ignored => return Ok(()),
            // For a step with a condition, only the condition decides after the dependencies have
            // finished.
            Some(_) if step.when.is_some() => return Ok(()),
            _ => return Err(format!("started before `{parent}` allowed it")),
        }
        let (given, output) =
            (&event["data"]["parameters"]["from"][parent], &task_state.output["n"]);
        if given.is_null() || given == output {
            return Ok(());
        }
        Err(format!("received another output of `{parent}` than {output}"))
    }

    fn check_end(&mut self, api_record: &ApiRecord) {
        let Some(state) = self.state.clone() else { return };
        if state != api_record.state {
            self.add_violation(
                "the API and the log have different states",
                &(&api_record.state, &state),
            );
        }
        let open: Vec<_> = self
            .task_states
            .iter()
            .filter(|(_, task_state)| task_state.end_event.is_none())
            .collect();
        if !open.is_empty() {
            let open = format!("{open:?}");
            self.add_violation("finished with unfinished tasks", &open);
        }
        if self.options["dryRun"] == true {
            return;
        }
        let has_done_all = self.task_states.iter().filter(|(task, _)| !task.is_compensation).all(
            |(task, task_state)| {
                if task.item.is_some() {
                    // A failed item is no failure of the execution, because its step decides.
                    return !task_state.may_have_hit_deadline;
                }
                let may_fail =
                    ["ignore", "continue"].contains(&self.planned_step(task.step).on_error);
                let has_failed = task_state.end_event.as_deref() == Some("step_failed");
                let has_ended_badly = has_failed && may_fail && !task_state.may_have_hit_deadline;
                task_state.has_succeeded() || task_state.is_skipped || has_ended_badly
            },
        );
        let expected = if self.is_cancelled {
            "CANCELLED"
        } else if self.is_expired && !has_done_all || !self.is_expired && self.has_failed {
            "FAILED"
        } else {
            "COMPLETED"
        };
        if expected != state {
            self.add_violation("the outcome does not follow from the steps", &(&state, expected));
        }
        let is_compensated = self.options["compensateOnFailure"] == true && state != "COMPLETED";
        if is_compensated && !self.compensable_tasks.is_empty() {
            let left = self.compensable_tasks.clone();
            self.add_violation("finished with steps that are not compensated", &left);
        }
        self.check_lists(api_record);
    }

    /// Checks that a loop's output lists the outputs of its items in order.
    fn check_lists(&mut self, api_record: &ApiRecord) {
        for (name, step) in &self.record.draft.steps {
            let task_state = self.step_state(name);
            let (Some(items), true, false) =
                (&step.items, task_state.has_succeeded(), task_state.is_reused)
            else {
                continue;
            };
            let outputs = (0..items.len() as u64).filter_map(|index| {
                let item =
                    self.task_states.get(&Task { item: Some(index), ..Task::of_step(name) })?;
                match step.on_error {
                    _ if item.has_succeeded() => Some(item.output.clone()),
                    "ignore" => Some(Value::Null),
                    _ => None,
                }
            });
            let expected: Value = outputs.collect();
            if api_record.outputs[name] != expected {
                let description = json!({ "is": api_record.outputs[name], "must be": expected });
                self.add_violation(
                    "the output of the loop differs from the outputs of its items",
                    &(name, description),
                );
            }
        }
    }

    fn check_received(&mut self, who: &str, received: &[Value], log: &[Value]) {
        for event in received {
            let seq = usize::try_from(event["seq"].as_u64().unwrap_or_default()).unwrap();
            let kept = seq.checked_sub(1).and_then(|index| log.get(index));
            if kept != Some(event) {
                let reason =
                    format!("{who} received an event that the log does not have; it has {kept:?}");
                self.add_violation(&reason, event);
            }
        }
    }

    fn check_actions(&mut self) {
        for action in self.record.actions.iter().filter(|action| !action.mark().is_empty()) {
            let count = self.command_marks.get(action.mark()).copied().unwrap_or_default();
            if action.mutation == "signal"
                && action.is_acknowledged
                && count == 0
                && self.state.is_none()
            {
                self.add_violation("an acknowledged signal is lost", action);
            }
            if count > action.tries {
                self.add_violation("counts more often than it was sent", action);
            }
        }
    }

    fn check_stop(&mut self) {
        let stops = |action: &&Action| action.mutation == "cancel" && action.is_acknowledged;
        if let Some(action) = self.record.actions.iter().find(stops)
            && self.state.is_none()
        {
            self.add_violation("continues after an acknowledged cancellation", action);
        }
    }

    fn check_calls(&mut self, calls: &[&LedgerEntry]) {
        let mut by_key: BTreeMap<&str, Vec<&LedgerEntry>> = BTreeMap::new();
        for line in calls {
            by_key.entry(&line.key).or_default().push(line);
        }
        let task_states = std::mem::take(&mut self.task_states);
        for (task, task_state) in &task_states {
            let step = self.planned_step(task.step);
            let is_called = task.is_compensation || task.item.is_some() || step.items.is_none();
            let kind = TaskSpec::for_task(step, *task).kind;
            let lines = by_key.remove(self.expected_key(*task).as_str()).unwrap_or_default();
            if (kind.is_in_ledger() && is_called || !lines.is_empty())
                && let Err(error) = task_state.check_calls(kind, &lines)
            {
                self.add_violation(error, &(task, task_state, lines));
            }
        }
        let ahead = self.keys_of_early_reads();
        for (key, lines) in by_key.into_iter().filter(|(key, _)| !ahead.contains(*key)) {
            self.add_violation("called with a key that no task has", &(key, lines));
        }
    }

    /// Returns the keys of items with which a tool may have been called although the log has no
    /// start. A read runs while its start event is being stored, so after a crash the log may lack
    /// the event.
    fn keys_of_early_reads(&self) -> BTreeSet<String> {
        let steps = self.record.draft.steps.iter();
        let lists =
            steps.filter_map(|(name, step)| Some((name.as_str(), step, step.items.as_ref()?)));
        lists
            .flat_map(|(name, step, items)| {
                let tasks = (0..items.len() as u64)
                    .map(move |item| Task { item: Some(item), ..Task::of_step(name) });
                tasks.filter(|task| TaskSpec::for_task(step, *task).kind == StepKind::Read)
            })
            .map(|task| self.expected_key(task))
            .collect()
    }

    /// Returns the key that every call of a task must send.
    ///
    /// A retry sends the key of an earlier call whose outcome is unknown.
    fn expected_key(&self, task: Task<'_>) -> String {
        let Task { step: name, item, is_compensation } = task;
        let item_suffix = item.map(|item| format!("[{item}]")).unwrap_or_default();
        let undo = if is_compensation { "/undo" } else { "" };
        let of_execution = format!("{}/{name}{item_suffix}{undo}", self.record.execution);
        if is_compensation {
            return of_execution;
        }
        let mut carried = self.options["callKeys"].as_array().into_iter().flatten();
        let earlier = carried.find(|key| {
            key["stepId"] == name && key["index"].as_u64() == item && key["child"].is_null()
        });
        earlier.and_then(|key| key["key"].as_str()).map_or(of_execution, str::to_owned)
    }
}
