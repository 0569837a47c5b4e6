//! Plans anew what did not get to its end: the next version of the plan, which keeps what succeeded.

use std::sync::Arc;

use async_trait::async_trait;
use executor::control::{AgainError, onward, stay};
use planner::{
    Earlier, Ending, Judge,
    draft::{Draft, DraftStep},
};
use serde_json::json;
use shared::{
    diagnostic::Diagnostic,
    execution::{Execution, ExecutionState, Step, StepState},
    id::ExecutionId,
    plan::{Plan, ToolExecution},
    tool::Effect,
};

use super::{
    Engine, EngineError, PlanningOptions, again::refused, planners::Compiling, planning::max_tools,
};

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
        let version = self.next_version(request).await?;
        let about = self.about(request, version, query, planner.name());
        let (plan, _) = self.made(about, &catalog, proposed, transcript).await?;
        let created = onward(&ended, &plan).map_err(|err| refused(&ended, err))?;
        self.start_created(&plan, created).await
    }
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
        None => format!("it is {}", ended.state().as_str()),
    };
    Earlier { draft: Draft::exported(plan), endings, why }
}

fn ending(step: &str, came: &Step) -> Ending {
    let (mut output, mut error) = (None, None);
    let state = match &came.state {
        _ if came.has_undo() => "undone",
        StepState::Succeeded(it) => {
            output = Some(Arc::clone(it));
            "succeeded"
        }
        StepState::Failed(it) => {
            error = Some(format!("{}: {}", it.code, it.message));
            "failed"
        }
        StepState::Skipped(_) => "skipped",
        _ => "cancelled",
    };
    Ending { step: step.to_owned(), state, output, error }
}

/// Returns an error for each step that succeeded, does something new when it is done a second
/// time, and would be.
fn done_twice(ended: &Execution, draft: &Draft, plan: &Plan) -> Vec<Diagnostic> {
    let is_done = |step: &ToolExecution| {
        let Some(number) = ended.plan().number(&step.id) else { return false };
        let (planned, came) = (ended.plan().step(number), ended.step(number));
        let is_new = planned.policy.effect == Effect::Once;
        is_new && matches!(came.state, StepState::Succeeded(_)) && !came.has_undo()
    };
    let again = plan.steps().iter().zip(stay(ended, plan)).filter(|(_, stays)| !stays);
    let twice = again.filter(|(step, _)| is_done(step));
    twice.map(|(step, _)| would_be_done_twice(draft, step.id.as_str())).collect()
}

fn would_be_done_twice(draft: &Draft, id: &str) -> Diagnostic {
    let is_it = |it: &DraftStep| {
        let name = || it.name.as_deref().or(it.tool_name.as_deref());
        it.id.as_deref().or_else(name) == Some(id)
    };
    let path = draft.tools.iter().position(is_it).map(|at| format!("tools[{at}]"));
    let message = format!("`{id}` has succeeded, and would be done a second time");
    let help = "keep it, and what it depends on, as it is in the plan; a step that does something \
                else needs another `id`";
    Diagnostic::error("plan.done_twice", path.unwrap_or_default(), message).with_help(help)
}
