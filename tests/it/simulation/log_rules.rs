//! The rules for every log, and for the store at the end.

use std::{collections::BTreeMap, sync::Arc};

use shared::{
    event::{Event, Outcome, RecordedEvent, StepStarted},
    execution::{AttemptKind, Execution, ExecutionMode, ExecutionState, Phase, StepState},
    id::{ExecutionId, StepNumber, Task},
    plan::{OnError, Plan, StepKind},
    store::{Documents, ExecutionHead, Inbox},
    tool::Effect,
};

use super::{FinalState, Simulation, SimulationCounts};

impl Simulation {
    pub(super) async fn check_store(&mut self, logs: &BTreeMap<ExecutionId, Vec<RecordedEvent>>) {
        let memory = Arc::clone(&self.world.memory);
        for (id, log) in logs {
            let Some(execution) = self.replay_state(*id).await else {
                self.violations.push(format!("a log of {} events cannot be replayed", log.len()));
                continue;
            };
            let head = memory.head(*id).await.expect("the memory store does not fail");
            let expected = ExecutionHead::from_execution(&execution, None, None);
            let is_right = head.as_ref().is_some_and(|head| {
                (head.state, head.owner, head.due, head.epoch, head.needs_person)
                    == (expected.state, expected.owner, expected.due, expected.epoch, false)
            });
            if !is_right {
                self.violations.push(format!("the head is {head:?}, the log says {expected:?}"));
            }
        }
        let inbox = memory.list_commands(None).await.expect("the memory store does not fail");
        if !inbox.is_empty() {
            self.violations.push(format!("still in the inbox: {inbox:?}"));
        }
    }
}

impl Simulation {
    pub(super) async fn check_waits(&mut self) {
        let mut states = BTreeMap::new();
        for id in self.all_executions().await {
            states.extend(self.replay_state(id).await.map(|state| (id, state)));
        }
        for execution in states.values() {
            if !may_be_unfinished(execution, &states) {
                let (id, state, agenda) = (execution.id(), execution.state(), execution.agenda());
                let reason =
                    format!("{id}, {state:?}, is unfinished and waits for nothing: {agenda:?}");
                self.violations.push(reason);
            }
        }
    }
}

/// Returns whether an execution is finished, is paused, waits for a person or a signal, or waits
/// for child executions for which one of these conditions holds.
fn may_be_unfinished(execution: &Execution, all: &BTreeMap<ExecutionId, Execution>) -> bool {
    let agenda = execution.agenda();
    let waits = |task: &Task| {
        let child =
            execution.task(*task).and_then(|task| task.child).and_then(|child| all.get(&child));
        child.is_some_and(|child| !child.state().is_finished() && may_be_unfinished(child, all))
    };
    let only_parts = agenda.running().len() == agenda.in_children().len();
    match execution.state() {
        ExecutionState::Paused => only_parts,
        ExecutionState::Waiting => !agenda.waiting().is_empty(),
        ExecutionState::InProgress => {
            only_parts && !agenda.running().is_empty() && agenda.in_children().iter().all(waits)
        }
        state => state.is_finished(),
    }
}

impl FinalState {
    pub(super) fn check(&self) -> Result<SimulationCounts, Vec<String>> {
        let mut figures = SimulationCounts::default();
        let mut violations = self.violations.clone();
        let mut ends = BTreeMap::new();
        for (id, log) in &self.logs {
            let Some(plan) = self.plans.get(id) else {
                violations.push(format!("{id}: its plan is missing"));
                continue;
            };
            match check_log(*id, plan, log, &mut figures) {
                Ok(execution) => drop(ends.insert(*id, execution)),
                Err(error) => violations.push(format!("{id}: {error}")),
            }
        }
        if violations.is_empty() {
            violations
                .extend(self.logs.iter().flat_map(|(id, log)| check_children(*id, log, &ends)));
        }
        if violations.is_empty() { Ok(figures) } else { Err(violations) }
    }
}

fn check_log(
    id: ExecutionId,
    plan: &Arc<Plan>,
    log: &[RecordedEvent],
    figures: &mut SimulationCounts,
) -> Result<Execution, String> {
    let first = log.first().ok_or("the log is empty")?;
    let mut execution =
        Execution::create(id, Arc::clone(plan), first).map_err(|err| err.to_string())?;
    for recorded in &log[1..] {
        check_event(&execution, recorded)?;
        execution.apply(recorded).map_err(|err| err.to_string())?;
        let running = execution.agenda().running().len();
        if running > execution.options().width() {
            return Err(format!("{running} steps run at once"));
        }
        *figures.events.entry(recorded.event.kind()).or_default() += 1;
        if let Event::StepFailed { error, .. } = &recorded.event {
            *figures.errors.entry(error.code.to_string()).or_default() += 1;
        }
    }
    let Phase::Finished(_) = execution.phase() else {
        return Err(format!("does not finish: {:?}", execution.state()));
    };
    let tally = execution.count_steps();
    if tally.total != tally.successful + tally.failed + tally.skipped + tally.cancelled {
        return Err(format!("the counts do not add up: {tally:?}"));
    }
    check_compensations(&execution, log)?;
    check_lists(&execution)?;
    *figures.states.entry(execution.state().as_str()).or_default() += 1;
    Ok(execution)
}

fn check_order(before: &Execution, number: StepNumber) -> Result<(), String> {
    let is_sequential = before.options().mode == ExecutionMode::Sequential;
    if is_sequential && !before.steps()[..number.get()].iter().all(|step| step.state.is_finished())
    {
        return Err(format!("{} is not the next step", before.plan().step(number).id));
    }
    Ok(())
}

fn check_compensations(execution: &Execution, log: &[RecordedEvent]) -> Result<(), String> {
    let plan = execution.plan();
    let (mut done, mut undone) = (Vec::new(), Vec::new());
    for RecordedEvent { event, .. } in log {
        let Some(step) = event.step().and_then(|step| plan.step_number(step)) else { continue };
        let task = Task { step, part: event.part() };
        if task.part.undo {
            undone.push(task);
        } else if matches!(event, Event::StepSucceeded { output: Some(_), .. })
            && plan.step(step).compensate.is_some()
        {
            done.push(task.compensation());
        }
    }
    undone.dedup();
    if execution.phase() == Phase::Finished(Outcome::Completed)
        || !execution.options().compensate_on_failure
    {
        done.clear();
    }
    done.reverse();
    if done == undone { Ok(()) } else { Err(format!("{done:?} were done, {undone:?} undone")) }
}

fn check_lists(execution: &Execution) -> Result<(), String> {
    for (planned, step) in execution.plan().steps().iter().zip(execution.steps()) {
        let (Some(items), Some(output)) = (&step.items, step.output()) else { continue };
        let succeeded = items.as_slice().iter().filter(|item| item.output().is_some()).count();
        let must = if planned.policy.on_error == OnError::Continue {
            succeeded
        } else {
            items.as_slice().len()
        };
        if output.as_array().map(Vec::len) != Some(must) || !items.is_finished() {
            return Err(format!("{} has {output}, expected {must} outputs", planned.id));
        }
    }
    Ok(())
}

/// Checks that each child execution exists once, and that the outputs of the child are the output
/// of the step that started it.
fn check_children(
    id: ExecutionId,
    log: &[RecordedEvent],
    ends: &BTreeMap<ExecutionId, Execution>,
) -> Vec<String> {
    let mut violations = Vec::new();
    let parent = &ends[&id];
    let children = log.iter().filter_map(|recorded| match &recorded.event {
        Event::StepStarted(StepStarted { child: Some(child), step, part, attempt, .. }) => {
            Some((*child, step, *part, *attempt))
        }
        _ => None,
    });
    for (child, step, part, attempt) in children {
        let Some(end) = ends.get(&child) else {
            violations.push(format!("{id}: `{step}` started {child}, which does not exist"));
            continue;
        };
        let of = end
            .parent()
            .map(|parent| (parent.execution, &parent.step, parent.part, parent.attempt));
        if of != Some((id, step, part, attempt)) {
            violations.push(format!("{child} is a child of {of:?}"));
        }
        let task =
            Task { step: parent.plan().step_number(step).expect("the plan has the step"), part };
        let done = parent.task(task).filter(|task| task.child == Some(child));
        let output = done.and_then(|task| task.output());
        if output.is_some_and(|output| *output != end.outputs()) {
            violations
                .push(format!("{id}: the output of `{step}` differs from the outputs of {child}"));
        }
    }
    let is_known = parent.parent().is_none_or(|parent| {
        let of = ends.get(&parent.execution);
        of.is_some_and(|of| of.plan().step_number(&parent.step).is_some())
    });
    if !is_known {
        violations.push(format!("{id} is a child of no execution"));
    }
    violations
}

fn check_event(before: &Execution, recorded: &RecordedEvent) -> Result<(), String> {
    let plan = before.plan();
    let number = recorded.event.step().and_then(|step| plan.step_number(step));
    match &recorded.event {
        Event::StepStarted(started) => {
            let number = number.ok_or("the plan has no such step")?;
            if started.part.undo {
                let next = before.undoable().last().map(|task| task.compensation());
                let is_next = next == Some(Task { step: number, part: started.part });
                let is_time = matches!(before.phase(), Phase::Compensating(_));
                return if is_next && is_time {
                    Ok(())
                } else {
                    Err(format!("{} was undone and must not", started.step))
                };
            }
            for on in &plan.step(number).depends_on {
                if !before.step(*on).state.is_finished() {
                    return Err(format!("{} began before {}", started.step, plan.step(*on).id));
                }
            }
            if before.phase() != Phase::Open || before.is_paused() {
                return Err(format!("{} began and must not", started.step));
            }
            check_order(before, number)?;
        }
        Event::StepWaiting { .. } => {
            check_order(before, number.ok_or("the plan has no such step")?)?;
        }
        Event::StepSucceeded {
            step, part, attempt, output: Some(output), cached: false, ..
        } => {
            let number = number.ok_or("the plan has no such step")?;
            let is_call = plan.step(number).call_of_part(*part).kind == StepKind::Call;
            if is_call && output["attempt"] != attempt.get() {
                return Err(format!("{step}, attempt {attempt}: the result of another"));
            }
        }
        Event::StepInterrupted { step, part, error, .. } => {
            let number = number.ok_or("the plan has no such step")?;
            // The ledger checks that no tool was called.
            let is_once = plan.step(number).call_of_part(*part).policy.effect == Effect::Once;
            if is_once && error.is_none() {
                return Err(format!("{step} would be called twice"));
            }
            let state = before.task(Task { step: number, part: *part }).map(|task| &task.state);
            if !matches!(state, Some(StepState::Running { how: AttemptKind::Calling, .. })) {
                return Err(format!("{step} only sleeps, and was interrupted"));
            }
        }
        _ => (),
    }
    Ok(())
}
