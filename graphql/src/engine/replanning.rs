//! Plans anew what did not get to its end: the next version of the plan, which keeps what succeeded.

use std::sync::Arc;

use async_trait::async_trait;
use executor::control::{AgainError, onward, stay};
use planner::{
    Earlier, Ending, Judge,
    draft::{Draft, DraftStep},
};
use serde_json::{Value, json};
use shared::{
    diagnostic::Diagnostic,
    execution::{Execution, ExecutionState, Step, StepState},
    id::{ExecutionId, StepIx},
    plan::{Plan, ToolExecution},
    tool::Effect,
};

use super::{
    Engine, EngineError, PlanningOptions, again::refused, planners::Compiling, planning::max_tools,
};
use crate::agent;

/// Items of a list of which is told what came of each.
const ITEMS: usize = 256;

/// Says what is wrong with a draft that is to go on after an execution.
struct GoingOn<'a> {
    compiling: Compiling<'a>,
    ended: &'a Execution,
}

#[async_trait]
impl Judge for GoingOn<'_> {
    async fn judge(&self, draft: &Draft) -> Vec<Diagnostic> {
        match self.compiling.compiled(draft).await {
            Ok(plan) => plan.map(|it| done_twice(self.ended, draft, &it)).unwrap_or_default(),
            Err(diagnostics) => diagnostics,
        }
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
        let max_tools = max_tools(options.max_tools)?;
        let planner = self.planner(options.planner.as_deref())?;
        let sets = self.known_sets(&options.tool_sets).await?;
        let ended = self.known(id).await?;
        check(&ended)?;
        self.check_plan(ended.plan()).await?;
        self.grant.check_room()?;
        let next = next(&ended);
        self.check_next(id, next).await?;
        let near = self.near(&options.actions).await?;
        let query = ended.plan().about().query.clone();
        let request = ended.request();
        let catalog = self.catalog().await.only(&sets);
        let catalog = near.map_or_else(|| catalog.clone(), |it| catalog.among(&it));
        let candidates = self.candidates(&query, &catalog, max_tools).await;
        let earlier = earlier(&ended);
        let told = json!({ "executionId": id, "planId": ended.plan().id(), "why": earlier.why });
        let transcript = vec![self.entry("replan", told), self.entry("selection", candidates.told)];
        let compiling = Compiling { engine: self, request, catalog: &catalog };
        let judge = GoingOn { compiling, ended: &ended };
        let proposed = planner.propose_after(&query, &earlier, &candidates.catalog, &judge).await;
        // A model takes its time, in which somebody else may have asked.
        self.check_next(id, next).await?;
        let version = self.next_version(request).await?;
        let about = self.about(request, version, query, planner.name());
        let (plan, proposal) = self.made(about, &catalog, proposed, transcript).await?;
        let diagnostics = done_twice(&ended, &proposal.draft, &plan);
        if !diagnostics.is_empty() {
            // The judge could not look, or was not asked.
            return Err(EngineError::InvalidPlan { diagnostics, request: Some(request) });
        }
        let created = onward(&ended, &plan).map_err(|err| refused(&ended, err))?;
        if created.options.dry_run {
            return self.start_created(&plan, created).await;
        }
        self.check_start(&plan).await?;
        if !self.control.start_under(next, &plan, created).await? {
            self.check_next(id, next).await?;
        }
        Ok(next)
    }

    /// Refuses to go on a second time.
    async fn check_next(&self, id: ExecutionId, next: ExecutionId) -> Result<(), EngineError> {
        match self.store.head(next).await? {
            None => Ok(()),
            Some(_) => Err(EngineError::Conflict(format!(
                "`{id}` was planned anew, and goes on as `{next}`: plan that one anew if it fails"
            ))),
        }
    }
}

/// Returns the identifier under which an execution goes on: whoever asks begins the same one.
fn next(ended: &Execution) -> ExecutionId {
    let at = ended.finished_at().unwrap_or_else(|| ended.created_at());
    ExecutionId::derive(at, &format!("{}/replan", ended.id()))
}

/// Refuses what there is nothing to plan anew about.
fn check(ended: &Execution) -> Result<(), EngineError> {
    let id = ended.id();
    if !ended.state().is_over() {
        return Err(refused(ended, AgainError::Open(id)));
    }
    if ended.state() == ExecutionState::Completed {
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
    let endings: Vec<Ending> = steps.map(|(step, came)| ending(step.id.as_str(), came)).collect();
    let failed = endings.iter().find(|it| it.error.is_some());
    let why = match failed.and_then(|it| it.error.as_deref().map(|error| (&it.step, error))) {
        Some((step, error)) => format!("`{step}` failed: {error}"),
        None if ended.overran() => "its time was up".to_owned(),
        None => format!("it is {}", ended.state().as_str()),
    };
    Earlier { draft: Draft::exported(plan), endings, why }
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

/// Returns an error for each step that did something, or may have, that is done anew each time it
/// is done, and would be a second time: under its name, or under another one.
fn done_twice(ended: &Execution, draft: &Draft, plan: &Plan) -> Vec<Diagnostic> {
    let again = plan.steps().iter().zip(stay(ended, plan)).filter(|(_, stays)| !stays);
    let twice = again.filter_map(|(step, _)| Some((step, was_done(ended, step)?)));
    twice.map(|(step, was)| would_be_done_twice(draft, step.id.as_str(), was)).collect()
}

/// Returns the step that did what this one would do, or may have done it.
fn was_done<'a>(ended: &'a Execution, step: &ToolExecution) -> Option<&'a str> {
    let planned = ended.plan();
    let own = planned.number(&step.id);
    let stands =
        |at: StepIx| planned.step(at).policy.effect == Effect::Once && stands(ended.step(at));
    if own.is_some_and(stands) {
        return own.map(|it| planned.step(it).id.as_str());
    }
    // Of two calls alike one may have failed: that one is done again.
    if own.is_some_and(|it| is_alike(planned.step(it), step)) {
        return None;
    }
    let others = planned.steps().iter().zip(ended.steps());
    let same = others.filter(|(was, _)| was.tool == step.tool && was.policy.effect == Effect::Once);
    let did = same.filter(|(was, came)| {
        let alike = is_alike(was, step) && self::stands(came);
        alike || step.for_each.is_none() && has_called(came, &step.parameters)
    });
    did.map(|(was, _)| was.id.as_str()).next()
}

fn is_alike(one: &ToolExecution, other: &ToolExecution) -> bool {
    let list = |it: &ToolExecution| it.for_each.as_ref().map(|it| it.written.clone());
    (&one.tool, &one.parameters, list(one)) == (&other.tool, &other.parameters, list(other))
}

/// Returns whether something that a step did is there, or may be: nobody undid it.
fn stands(came: &Step) -> bool {
    match &came.items {
        Some(items) => items.all().iter().any(stands),
        None if came.is_compensated() => false,
        None => match &came.state {
            StepState::Succeeded(_) => true,
            StepState::Failed(err) => !err.is_definite,
            _ => false,
        },
    }
}

/// Returns whether a step, or an item of its list, called its tool with this, and that stands.
fn has_called(came: &Step, parameters: &Value) -> bool {
    match &came.items {
        Some(items) => items.all().iter().any(|it| has_called(it, parameters)),
        None => stands(came) && came.parameters.as_deref() == Some(parameters),
    }
}

fn would_be_done_twice(draft: &Draft, id: &str, was: &str) -> Diagnostic {
    let is_it = |it: &DraftStep| {
        let name = || it.name.as_deref().or(it.tool_name.as_deref());
        it.id.as_deref().or_else(name) == Some(id)
    };
    let path = draft.tools.iter().position(is_it).map(|at| format!("tools[{at}]"));
    let (message, help) = if id == was {
        (
            format!("`{id}` was done, or may have been, and would be done a second time"),
            "keep it, and what it depends on, as it is in the plan, if it succeeded; otherwise \
             leave it out. A step that does something else needs another `id`",
        )
    } else {
        (
            format!("`{id}` would do what `{was}` did, or may have done, a second time"),
            "keep that step as it is in the plan, if it succeeded, and leave this one out",
        )
    };
    Diagnostic::error("plan.done_twice", path.unwrap_or_default(), message).with_help(help)
}
