//! What must hold of every log, and of the store once all is over.

use std::{collections::BTreeMap, sync::Arc};

use shared::{
    event::{Event, Recorded},
    execution::{Execution, How, Phase, StepState},
    id::{ExecutionId, Task},
    plan::{Plan, StepKind},
    store::{Documents, ExecutionFilter, ExecutionLog, Head, Page},
    tool::Effect,
};

use super::{End, Figures, Simulation};

impl Simulation {
    /// Checks that heads agree with logs and that nothing waits to be heard.
    pub(super) async fn check_store(&mut self, logs: &BTreeMap<ExecutionId, Vec<Recorded>>) {
        let truth = Arc::clone(&self.world.truth);
        let page = Page { first: 100, after: None };
        let heads = truth.heads(&ExecutionFilter::default(), &page).await.expect("the truth");
        if heads.items.len() != self.executions.len() {
            let count = heads.items.len();
            self.wrongs.push(format!("{count} executions, asked for {}", self.executions.len()));
        }
        for (id, log) in logs {
            let Some(execution) = self.state(*id).await else {
                self.wrongs.push(format!("a log of {} events cannot be replayed", log.len()));
                continue;
            };
            let head = truth.head(*id).await.expect("the truth");
            let expected = Head::of(&execution, None, None);
            let is_right = head.as_ref().is_some_and(|it| {
                (it.state, it.owner, it.due, it.epoch)
                    == (expected.state, expected.owner, expected.due, expected.epoch)
            });
            if !is_right {
                self.wrongs.push(format!("the head is {head:?}, the log says {expected:?}"));
            }
        }
        let inbox = truth.inbox(None).await.expect("the truth");
        if !inbox.is_empty() {
            self.wrongs.push(format!("nobody has heard {inbox:?}"));
        }
    }
}

impl End {
    /// Returns the figures of the world, or what is wrong with it.
    pub(super) fn check(&self) -> Result<Figures, Vec<String>> {
        let mut figures = Figures::default();
        let mut wrongs = self.wrongs.clone();
        for ((id, log), plan) in self.logs.iter().zip(&self.plans) {
            if let Err(why) = check_log(*id, plan, log, &mut figures) {
                wrongs.push(format!("{id}: {why}"));
            }
        }
        if wrongs.is_empty() { Ok(figures) } else { Err(wrongs) }
    }
}

fn check_log(
    id: ExecutionId,
    plan: &Arc<Plan>,
    log: &[Recorded],
    figures: &mut Figures,
) -> Result<(), String> {
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
        return Err(format!("never ends: {:?}", execution.state()));
    };
    let tally = execution.tally();
    if tally.total != tally.successful + tally.failed + tally.skipped + tally.cancelled {
        return Err(format!("somebody is missing: {tally:?}"));
    }
    *figures.states.entry(execution.state().as_str()).or_default() += 1;
    Ok(())
}

/// Checks what an event says against the state before it.
fn check_event(before: &Execution, recorded: &Recorded) -> Result<(), String> {
    let plan = before.plan();
    let number = recorded.event.step().and_then(|it| plan.number(it));
    match &recorded.event {
        Event::StepStarted(started) => {
            let number = number.ok_or("no such step")?;
            for on in &plan.step(number).depends_on {
                if !before.step(*on).state.is_over() {
                    return Err(format!("{} began before {}", started.step, plan.step(*on).id));
                }
            }
            if before.phase() != Phase::Open || before.is_paused() {
                return Err(format!("{} began and must not", started.step));
            }
        }
        Event::StepSucceeded { step, part, attempt, output: Some(output), .. } => {
            let number = number.ok_or("no such step")?;
            let is_call = plan.step(number).callee(*part).kind == StepKind::Call;
            if is_call && output["attempt"] != attempt.get() {
                return Err(format!("{step}, attempt {attempt}: the result of another"));
            }
        }
        Event::StepInterrupted { step, part, .. } => {
            let number = number.ok_or("no such step")?;
            if plan.step(number).callee(*part).policy.effect == Effect::Once {
                return Err(format!("{step} would be called twice"));
            }
            let state = before.task(Task { step: number, part: *part }).map(|it| &it.state);
            if !matches!(state, Some(StepState::Running { how: How::Calling, .. })) {
                return Err(format!("{step} only sleeps, and was interrupted"));
            }
        }
        _ => (),
    }
    Ok(())
}
