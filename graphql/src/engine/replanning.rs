//! Plans anew what did not get to its end: the next version of the plan, which keeps what succeeded.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use executor::control::{AgainError, onward};
use planner::{Earlier, Ending, Judge, draft::Draft, inherited::inherit};
use serde_json::{Value, json};
use shared::{
    diagnostic::Diagnostic,
    execution::{Execution, ExecutionState, Step, StepState},
    id::ExecutionId,
};

use super::{
    Engine, EngineError, PlanningOptions,
    again::refused,
    done::Done,
    planners::Compiling,
    planning::{max_tools, offered},
    transcript::Transcript,
};
use crate::agent;

/// Who asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// Somebody.
    Request,
    /// The execution itself, by how it ended.
    ItsOwn,
}

/// Items of a list of which is told what came of each.
const ITEMS: usize = 256;

/// Says what is wrong with a draft that is to go on after an execution.
struct GoingOn<'a> {
    compiling: Compiling<'a>,
    earlier: &'a Earlier,
    done: &'a Done<'a>,
}

#[async_trait]
impl Judge for GoingOn<'_> {
    async fn judge(&self, draft: &Draft) -> Vec<Diagnostic> {
        let mut draft = draft.clone();
        self.inherit(&mut draft);
        match self.compiling.compiled(&draft).await {
            Ok(Some(plan)) => self.done.twice(&draft, &Arc::new(plan)),
            Ok(None) => Vec::new(),
            Err(diagnostics) => diagnostics,
        }
    }
}

impl GoingOn<'_> {
    /// Gives a draft what its steps had in the earlier plan, by the tools that it is compiled with.
    fn inherit(&self, draft: &mut Draft) {
        inherit(draft, &self.earlier.draft, self.compiling.catalog);
    }
}

impl Engine {
    /// Plans anew what an ended execution did not get done, as the next version of its plan, and
    /// carries that out. What succeeded and stands in the new version as it was is not done again.
    /// Of one execution that is done once: whoever asks a second time is told what goes on.
    pub async fn replan(
        &self,
        id: ExecutionId,
        options: &PlanningOptions,
    ) -> Result<ExecutionId, EngineError> {
        let ended = self.known(id).await?;
        self.go_on_after(&ended, options, On::Request).await
    }

    /// Does so whoever asks for it.
    pub(super) async fn go_on_after(
        &self,
        ended: &Execution,
        options: &PlanningOptions,
        on: On,
    ) -> Result<ExecutionId, EngineError> {
        let (id, next) = (ended.id(), next(ended));
        let max_tools = max_tools(options.max_tools)?;
        let planner = self.planner(options.planner.as_deref())?;
        let sets = self.known_sets(&options.tool_sets).await?;
        check(ended)?;
        self.check_plan(ended.plan()).await?;
        self.grant.check_room()?;
        self.check_next(id, next).await?;
        let near = self.near(&options.actions).await?;
        let query = ended.plan().about().query.clone();
        let request = ended.request();
        let catalog = self.catalog().await.only(&sets);
        let catalog = near.map_or_else(|| catalog.clone(), |it| catalog.among(&it));
        let is_last = ended.options().replans.once_less().left == 0;
        let offered = offered(&catalog, is_last);
        let candidates = self.candidates(&query, &offered, max_tools).await;
        let earlier = earlier(ended);
        let mut told =
            json!({ "executionId": id, "planId": ended.plan().id(), "why": earlier.why });
        let mut transcript = Transcript::new(&self.clock);
        if on == On::ItsOwn {
            // Before anything else: whoever comes after a crash knows how often it was tried.
            told["automatic"] = json!(true);
            self.store.add_transcript(request, &[self.entry("replan", told)]).await?;
        } else {
            transcript.add("replan", told);
        }
        transcript.add("selection", candidates.told);
        let compiling = Compiling { engine: self, request, catalog: &catalog };
        let done = self.done(ended).await?;
        let judge = GoingOn { compiling, earlier: &earlier, done: &done };
        transcript.ask_planner();
        let proposed = planner.propose_after(&query, &earlier, &candidates.catalog, &judge).await;
        let proposed = proposed.map(|mut it| {
            judge.inherit(&mut it.draft);
            it
        });
        // A model takes its time, in which somebody else may have asked.
        self.check_next(id, next).await?;
        let version = self.next_version(request).await?;
        let about = self.about(request, version, query, planner.name());
        let (plan, proposal) = self.made(about, &catalog, proposed, transcript).await?;
        let diagnostics = done.twice(&proposal.draft, &plan);
        if !diagnostics.is_empty() {
            // The judge could not look, or was not asked.
            return Err(EngineError::InvalidPlan { diagnostics, request: Some(request) });
        }
        let mut created = onward(ended, &plan).map_err(|err| refused(ended, err))?;
        if on == On::Request {
            created.options.replans.within = self.grant.within();
        }
        if created.options.dry_run {
            return self.start_created(&plan, created).await;
        }
        self.check_start(&plan).await?;
        if self.control.start_under(next, &plan, created).await? {
            return Ok(next);
        }
        Err(goes_on(id, next))
    }

    /// Refuses to go on a second time.
    async fn check_next(&self, id: ExecutionId, next: ExecutionId) -> Result<(), EngineError> {
        if self.control.is_begun(next).await? { Err(goes_on(id, next)) } else { Ok(()) }
    }
}

fn goes_on(id: ExecutionId, next: ExecutionId) -> EngineError {
    EngineError::Conflict(format!(
        "`{id}` was planned anew, and goes on as `{next}`: plan that one anew if it fails"
    ))
}

/// Returns the identifier under which an execution goes on: whoever asks begins the same one.
pub(super) fn next(ended: &Execution) -> ExecutionId {
    let at = ended.finished_at().unwrap_or_else(|| ended.created_at());
    ExecutionId::derive(at, &format!("{}/replan", ended.id()))
}

/// Refuses what there is nothing to plan anew about.
fn check(ended: &Execution) -> Result<(), EngineError> {
    let id = ended.id();
    if !ended.state().is_over() {
        return Err(refused(ended, AgainError::Open(id)));
    }
    if ended.state() == ExecutionState::Completed && ended.asked().is_none() {
        let why = format!("`{id}` got to its end: there is nothing left to plan");
        return Err(EngineError::Conflict(why));
    }
    if let Some(parent) = ended.parent() {
        let why = format!("`{id}` is part of `{}`: plan that one anew", parent.execution);
        return Err(EngineError::Conflict(why));
    }
    if ended.plan().steps().iter().any(|it| agent::is_own(&it.tool)) {
        let why = format!("`{id}` is an agent's, whose turns are no plan: retry it from a turn");
        return Err(EngineError::Conflict(why));
    }
    Ok(())
}

/// Returns what was planned, and what came of it.
fn earlier(ended: &Execution) -> Earlier {
    let plan = ended.plan();
    let steps = plan.steps().iter().zip(ended.steps());
    let endings = steps.map(|(step, came)| ending(step.id.as_str(), came)).collect();
    let asked = ended.state() == ExecutionState::Completed;
    Earlier { draft: Draft::exported(plan), endings, why: why(ended), asked }
}

/// Returns why an execution is planned anew, in words.
pub(super) fn why(ended: &Execution) -> String {
    if ended.state() == ExecutionState::Completed
        && let Some((step, returned)) = ended.asked()
    {
        return match returned.get("goal").and_then(Value::as_str) {
            Some(goal) => format!("`{step}` asks for it: {goal}"),
            None => format!("`{step}` asks for it"),
        };
    }
    let steps = ended.plan().steps().iter().zip(ended.steps());
    let mut failed = steps.filter_map(|(planned, step)| match &step.state {
        StepState::Failed(error) if !step.has_undo() => Some((&planned.id, error)),
        _ => None,
    });
    match failed.next() {
        Some((step, error)) => format!("`{step}` failed: {}: {}", error.code, error.message),
        None if ended.overran() => "its time was up".to_owned(),
        None => format!("it is {}", ended.state().as_str()),
    }
}

fn ending(step: &str, came: &Step) -> Ending {
    let (mut output, mut error) = (None, None);
    let state = match &came.state {
        _ if came.is_compensated() => "undone",
        _ if came.has_undo() => "undoing_failed",
        StepState::Succeeded(it) => {
            output = Some(Arc::clone(it));
            "succeeded"
        }
        StepState::Failed(it) => {
            error = Some(format!("{}: {}", it.code, it.message));
            if it.is_definite { "failed" } else { "unknown" }
        }
        StepState::Skipped(_) => "skipped",
        _ => "cancelled",
    };
    let items = came.items.iter().flat_map(|it| it.all());
    let items = items.take(ITEMS).map(|it| ending(step, it).state).collect();
    Ending { step: step.to_owned(), state, output, error, items }
}
