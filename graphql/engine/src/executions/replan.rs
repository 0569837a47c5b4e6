//! Replans: on request, and automatically when an execution with `replans` has finished. The id of
//! the next execution is derived from the id of the finished execution, so its existence shows that
//! the replan is done.

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use executor::{
    control::{ControlError, Start},
    replan::Replanner,
};
use planner::{
    replan::{
        ATTEMPT, Attempts, EarlierPlan, GIVEN_UP, RepeatGuard, failures_of, next_execution, reason,
        repeat_guard::MAX_EXECUTIONS,
    },
    reuse::{ReuseError, create_replan},
};
use serde_json::json;
use shared::{
    actor::Actor,
    execution::{Execution, ExecutionState, REPLAN},
    id::ExecutionId,
    labels, limits,
    plan::Plan,
    store::StoreError,
};

use super::{Executions, Order, reader::ExecutionReader};
use crate::{
    access::Grant,
    agent,
    error::EngineError,
    plans::{
        PlanningOptions, library::reuse_error, planners::NO_MODEL_MESSAGE, transcript::Transcript,
    },
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replanning {
    pub stage: Stage,
    pub reason: String,
    pub given_up: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Pending,
    Begun,
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    Request,
    /// The option `replans` of the execution, or a step with `flow.replan`, requested the replan.
    Automatic,
}

impl ExecutionReader {
    pub async fn load_replanning(
        &self,
        finished: &Execution,
    ) -> Result<Option<Replanning>, EngineError> {
        if finished.replan_cause().is_none() {
            return Ok(None);
        }
        let reason = reason(finished);
        if self.store.head(next_execution(finished)).await?.is_some() {
            return Ok(Some(Replanning { stage: Stage::Begun, reason, given_up: None }));
        }
        let transcript = self.store.transcript(finished.request()).await?;
        let given_up = Attempts::read(&transcript, finished.id()).given_up;
        let stage = if given_up.is_some() { Stage::GivenUp } else { Stage::Pending };
        Ok(Some(Replanning { stage, reason, given_up }))
    }

    /// Returns a finished plan with its results, and the failures of at most [`limits::REPLANS`]
    /// executions before it.
    async fn load_earlier_plan(&self, finished: &Execution) -> Result<EarlierPlan, EngineError> {
        let mut earlier = EarlierPlan::of(finished);
        let mut before = finished.continued_from();
        for _ in 0..limits::REPLANS {
            let Some(found) = before else { break };
            let Some(execution) = self.load(found).await? else { break };
            earlier.failures.extend(failures_of(&execution));
            before = execution.continued_from();
        }
        Ok(earlier)
    }

    /// Collects the effects of a finished execution, of the executions that it continues, and of
    /// their children. Reads at most `max_executions` executions.
    async fn load_repeat_guard<'a>(
        &self,
        finished: &'a Execution,
        max_executions: usize,
    ) -> Result<RepeatGuard<'a>, EngineError> {
        let mut guard = RepeatGuard::new(finished);
        let mut left = max_executions;
        let mut earlier = finished.continued_from();
        let mut last: Option<Execution> = None;
        while let Some(id) = earlier.filter(|_| left > 0) {
            left -= 1;
            let found = self.load(id).await?;
            // The chain ends at an earlier execution that was pruned (`found` is `None`).
            earlier = found.as_ref().and_then(Execution::continued_from);
            if let Some(found) = found {
                guard.add_earlier(&found, last.as_ref().unwrap_or(finished));
                last = Some(found);
            }
        }
        let mut unread = None;
        while let Some(id) = guard.pop_child() {
            if left == 0 {
                unread = Some(id);
                break;
            }
            left -= 1;
            if let Some(child) = self.load(id).await? {
                guard.add_child(&child);
            }
        }
        guard.set_truncated(earlier.is_some() || unread.is_some());
        Ok(guard)
    }
}

struct AutoReplanner(Executions);

impl fmt::Debug for AutoReplanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AutoReplanner").finish_non_exhaustive()
    }
}

#[async_trait]
impl Replanner for AutoReplanner {
    /// Starts the next execution, or stores the reason why there is none. A temporary failure of
    /// the store is returned, so that the worker tries again later.
    async fn replan(&self, finished: &Execution) -> Result<(), StoreError> {
        let (store, request) = (&self.0.store, finished.request());
        if self.has_next_execution(finished).await? {
            return Ok(());
        }
        let attempts = Attempts::read(&store.transcript(request).await?, finished.id());
        if attempts.given_up.is_some() {
            return Ok(());
        }
        let Err(err) = self.try_replan(finished, attempts.started).await else { return Ok(()) };
        if let Some(passing) = temporary_store_failure(&err) {
            return Err(passing.clone());
        }
        if self.has_next_execution(finished).await? {
            return Ok(());
        }
        let content = json!({
            "executionId": finished.id(), "code": err.code(), "message": err.to_string(),
        });
        store.add_transcript(request, &[self.0.plans.new_entry(GIVEN_UP, content)]).await
    }
}

impl AutoReplanner {
    async fn has_next_execution(&self, finished: &Execution) -> Result<bool, StoreError> {
        match self.0.control.exists(next_execution(finished)).await {
            Ok(exists) => Ok(exists),
            Err(ControlError::Store(err)) => Err(err),
            Err(err) => Err(StoreError::Unavailable(err.to_string())),
        }
    }

    async fn try_replan(
        &self,
        finished: &Execution,
        started: usize,
    ) -> Result<ExecutionId, EngineError> {
        let replans = &finished.options().replans;
        if replans.left == 0 {
            let times = match replans.before {
                1 => "once".to_owned(),
                n => format!("{n} times"),
            };
            let reason = format!(
                "it was already replanned {times}, the maximum: `faber replan {}` replans it again",
                finished.id()
            );
            return Err(EngineError::LimitExceeded(reason));
        }
        if started >= limits::REPLAN_ATTEMPTS {
            let reason = format!(
                "the processes of {started} replans of this execution ended: `faber replan {}` \
                 tries again",
                finished.id()
            );
            return Err(EngineError::LimitExceeded(reason));
        }
        let planners = &self.0.plans.planners;
        // Without a model, the offline planner can still find a detour for a plan that it made.
        let has_detours = planners.is_made_offline(finished.plan());
        if !planners.has_model() && !has_detours {
            let message = NO_MODEL_MESSAGE.to_owned();
            return Err(EngineError::PlannerUnavailable { message, request: None });
        }
        let planner = (!planners.has_model()).then(|| planners.offline_name().to_owned());
        let unrestricted = || Grant::of_actor(Actor::faber());
        let grant = replans.within.as_ref().map_or_else(unrestricted, Grant::for_replan);
        let tool_sets = replans.sets.iter().map(ToString::to_string).collect();
        let options = PlanningOptions { planner, tool_sets, ..PlanningOptions::default() };
        self.0.with_grant(grant).replan_finished(finished, &options, Trigger::Automatic).await
    }
}

impl Executions {
    /// Replans a finished execution on request, and starts the next version of its plan. Fails if
    /// the execution was replanned before.
    pub async fn replan(
        &self,
        id: ExecutionId,
        options: &PlanningOptions,
    ) -> Result<ExecutionId, EngineError> {
        if !options.labels.is_empty() {
            let reason =
                "`labels` belong to a new request: a replan keeps the labels of its request";
            return Err(EngineError::InvalidArgument(reason.to_owned()));
        }
        let finished = self.reader.expect(id).await?;
        self.replan_finished(&finished, options, Trigger::Request).await
    }

    pub fn replanner(&self) -> Arc<dyn Replanner> {
        Arc::new(AutoReplanner(self.clone()))
    }

    async fn replan_finished(
        &self,
        finished: &Execution,
        options: &PlanningOptions,
        trigger: Trigger,
    ) -> Result<ExecutionId, EngineError> {
        let (id, next, plan) = (finished.id(), next_execution(finished), finished.plan());
        let request = finished.request();
        let scope = self.plans.check_options(options).await?;
        check_replannable(finished)?;
        self.plans.check_plan(plan).await?;
        // A replan belongs to the token of the finished execution.
        let owner = labels::find_token(&finished.options().labels);
        self.tools.grant.check_start(&*self.store, owner).await?;
        self.check_not_replanned(id, next).await?;
        let mut content =
            json!({ "executionId": id, "planId": plan.id(), "why": reason(finished) });
        let mut transcript = Transcript::new(&self.clock);
        if trigger == Trigger::Automatic {
            // The attempt is stored before the model is asked, so that an attempt that crashes the
            // process is counted, too.
            content["automatic"] = json!(true);
            let entry = self.plans.new_entry(ATTEMPT, content);
            self.store.add_transcript(request, &[entry]).await?;
        } else {
            transcript.add(ATTEMPT, content);
        }
        let guard = self.reader.load_repeat_guard(finished, MAX_EXECUTIONS).await?;
        let earlier = self.reader.load_earlier_plan(finished).await?;
        let plans = &self.plans;
        let proposed =
            plans.propose_replan(finished, earlier, scope, &guard, &mut transcript).await?;
        // Fails if another replan has started while the model was asked.
        self.check_not_replanned(id, next).await?;
        let version = self.plans.library.next_version(request).await?;
        let plan = self.plans.store_proposed(request, version, proposed, transcript).await?;
        let created = create_replan(finished, &plan);
        let mut created = created.map_err(|err| reuse_error(finished, err))?;
        if trigger == Trigger::Request {
            created.options.replans.within = self.tools.grant.replan_permissions();
        }
        let start = Start::from_created(&plan, created);
        if start.created.options.dry_run {
            return self.start(start).await;
        }
        let _admission = self.admit_start(&start).await?;
        let started = self.control.start(Start { id: Some(next), ..start }).await?;
        if started.is_new { Ok(next) } else { Err(already_replanned(id, next)) }
    }

    async fn check_not_replanned(
        &self,
        id: ExecutionId,
        next: ExecutionId,
    ) -> Result<(), EngineError> {
        if self.control.exists(next).await? { Err(already_replanned(id, next)) } else { Ok(()) }
    }

    /// Rejects options that ask for automatic replans which are impossible. For a query, call this
    /// function twice: before planning with no plan, and then with the plan.
    pub(super) fn check_replans(
        &self,
        plan: Option<&Plan>,
        order: &mut Order,
        planner: Option<&str>,
    ) -> Result<bool, EngineError> {
        let planners = &self.plans.planners;
        let is_offline = match plan {
            Some(plan) => planners.is_made_offline(plan),
            None => planners.is_offline_choice(planner),
        };
        let mut steps = plan.into_iter().flat_map(Plan::steps);
        let asking = steps.clone().find(|step| step.tool.as_str() == REPLAN);
        let replans = &mut order.options.replans;
        if replans.left == 0 || !(replans.after_failure || asking.is_some()) {
            *replans = replans.caller_options();
            return Ok(false);
        }
        let wanted = match asking {
            Some(step) if !replans.after_failure => {
                format!("the step `{}` asks for a replan (`replans: 0` prevents it)", step.id)
            }
            _ => "`replans` asks for replans".to_owned(),
        };
        if order.compensates == Some(true) {
            let reason = format!(
                "{wanted}, but `compensateOnFailure` undoes the steps that a replan keeps: leave \
                 out one of the two options"
            );
            return Err(EngineError::InvalidArgument(reason));
        }
        if steps.any(|step| agent::is_agent_tool(&step.tool)) {
            let reason = "`replans` does not apply to an agent, which decides about its next calls \
                       itself: leave it out";
            return Err(EngineError::InvalidArgument(reason.to_owned()));
        }
        let can_detour = is_offline && asking.is_none();
        if !planners.has_model() && !can_detour {
            let message = format!("{wanted}, which needs a model; {NO_MODEL_MESSAGE}");
            return Err(EngineError::PlannerUnavailable { message, request: None });
        }
        replans.within = self.tools.grant.replan_permissions();
        Ok(true)
    }
}

fn already_replanned(id: ExecutionId, next: ExecutionId) -> EngineError {
    EngineError::Conflict(format!(
        "`{id}` was replanned and continues as `{next}`: replan that execution if it fails"
    ))
}

fn check_replannable(finished: &Execution) -> Result<(), EngineError> {
    let id = finished.id();
    if !finished.state().is_finished() {
        return Err(reuse_error(finished, ReuseError::Open(id)));
    }
    if finished.state() == ExecutionState::Completed && finished.replan_request().is_none() {
        let reason = format!("`{id}` completed: there is nothing left to replan");
        return Err(EngineError::Conflict(reason));
    }
    if let Some(parent) = finished.parent() {
        let reason = format!("`{id}` is a child of `{}`: replan that execution", parent.execution);
        return Err(EngineError::Conflict(reason));
    }
    if finished.plan().steps().iter().any(|step| agent::is_agent_tool(&step.tool)) {
        let reason = format!(
            "`{id}` belongs to an agent, which has no plan to replace: retry it from a turn"
        );
        return Err(EngineError::Conflict(reason));
    }
    Ok(())
}

fn temporary_store_failure(err: &EngineError) -> Option<&StoreError> {
    match err {
        EngineError::Store(err) if !err.is_permanent() => Some(err),
        EngineError::Planning { error, .. } => temporary_store_failure(error),
        _ => None,
    }
}
