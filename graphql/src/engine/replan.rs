//! Replans: on request, and automatically when an execution with `replans` has ended.
//!
//! An execution's log says whether it needs an automatic replan. The next execution, under an
//! identifier derived from the ended one, shows that the replan is done. A transcript entry says
//! why it was given up.

#[cfg(test)]
mod automatic_tests;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use executor::{
    control::{ControlError, Start},
    replan::Replanner,
};
use planner::{
    PlanCompiler, ProposedPlan, Rejection,
    compile::Compiled,
    draft::Draft,
    replan::{
        ATTEMPT, Attempts, EarlierPlan, GIVEN_UP, RepeatGuard, carry_over, next_execution, reason,
        repeat_guard::MAX_EXECUTIONS,
    },
    reuse::{ReuseError, create_replan},
};
use serde_json::json;
use shared::{
    execution::{Execution, ExecutionOptions, ExecutionState, REPLAN},
    id::ExecutionId,
    limits,
    plan::Plan,
    store::StoreError,
};

use super::{
    Engine, EngineError, PlanningOptions,
    planners::{NO_MODEL, RequestCompiler},
    planning::{max_tools, offered},
    retry::refused,
    transcript::Transcript,
};
use crate::{access::Grant, agent};

/// The automatic replan of an ended execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replanning {
    /// How far it is.
    pub stage: Stage,
    /// Why there is a replan.
    pub reason: String,
    /// Why it was given up.
    pub given_up: Option<String>,
}

/// How far an automatic replan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A worker plans, or will plan.
    Pending,
    /// The next execution has started.
    Begun,
    /// There is none.
    GivenUp,
}

/// Who asked for a replan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trigger {
    /// A request of the API.
    Request,
    /// The options of the execution, or one of its steps.
    Automatic,
}

/// Compiles drafts of a replan.
struct ReplanCompiler<'a> {
    compiler: RequestCompiler<'a>,
    earlier: &'a EarlierPlan,
    guard: &'a RepeatGuard<'a>,
}

#[async_trait]
impl PlanCompiler for ReplanCompiler<'_> {
    async fn compile(&self, draft: &Draft, author: &str) -> Result<Compiled, Rejection> {
        let mut draft = draft.clone();
        self.carry_over(&mut draft);
        let compiled = self.compiler.compile(&draft, author).await?;
        let repeats = self.guard.find_repeats(&draft, &Arc::new(compiled.plan.clone()));
        if repeats.is_empty() { Ok(compiled) } else { Err(Rejection::Invalid(repeats)) }
    }
}

impl ReplanCompiler<'_> {
    /// Uses the tools that the draft is compiled with, which may be more than the planner was
    /// shown.
    fn carry_over(&self, draft: &mut Draft) {
        carry_over(draft, &self.earlier.draft, self.compiler.catalog);
    }
}

/// Replans executions for the worker of this process.
struct AutoReplanner(Engine);

impl fmt::Debug for AutoReplanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AutoReplanner").finish_non_exhaustive()
    }
}

#[async_trait]
impl Replanner for AutoReplanner {
    async fn replan(&self, ended: &Execution) -> Result<(), StoreError> {
        self.0.replan_automatically(ended).await
    }
}

impl Engine {
    /// Replans an ended execution on request and starts the next version of its plan. One execution
    /// is replanned once.
    pub async fn replan(
        &self,
        id: ExecutionId,
        options: &PlanningOptions,
    ) -> Result<ExecutionId, EngineError> {
        let ended = self.known(id).await?;
        self.replan_ended(&ended, options, Trigger::Request).await
    }

    /// Returns what replans executions for the worker of this process.
    pub fn replanner(&self) -> Arc<dyn Replanner> {
        Arc::new(AutoReplanner(self.clone()))
    }

    /// Returns the execution that continues an ended one after a replan.
    pub async fn next(&self, ended: &Execution) -> Result<Option<Arc<Execution>>, EngineError> {
        if !ended.state().is_finished() || ended.parent().is_some() {
            return Ok(None);
        }
        Ok(self.execution(next_execution(ended)).await?.map(Arc::new))
    }

    /// Returns the automatic replan of an execution, if it has one.
    pub async fn replanning(&self, ended: &Execution) -> Result<Option<Replanning>, EngineError> {
        if ended.replan_cause().is_none() {
            return Ok(None);
        }
        let reason = reason(ended);
        if self.store.head(next_execution(ended)).await?.is_some() {
            return Ok(Some(Replanning { stage: Stage::Begun, reason, given_up: None }));
        }
        let transcript = self.store.transcript(ended.request()).await?;
        let given_up = Attempts::read(&transcript, ended.id()).given_up;
        let stage = if given_up.is_some() { Stage::GivenUp } else { Stage::Pending };
        Ok(Some(Replanning { stage, reason, given_up }))
    }

    async fn replan_ended(
        &self,
        ended: &Execution,
        options: &PlanningOptions,
        trigger: Trigger,
    ) -> Result<ExecutionId, EngineError> {
        let (id, next) = (ended.id(), next_execution(ended));
        let max_tools = max_tools(options.max_tools)?;
        let planner = self.planners.find(options.planner.as_deref())?;
        let sets = self.known_sets(&options.tool_sets).await?;
        check_replannable(ended)?;
        self.check_plan(ended.plan()).await?;
        self.grant.check_room()?;
        self.check_not_replanned(id, next).await?;
        let near = self.near(&options.actions).await?;
        let query = ended.plan().info().query.clone();
        let request = ended.request();
        let catalog = self.catalog().await.only(&sets);
        let catalog = near.map_or_else(|| catalog.clone(), |near| catalog.among(&near));
        let is_last = ended.options().replans.after_replan().left == 0;
        let offered = offered(&catalog, is_last);
        let candidates = self.candidates(&query, &offered, max_tools).await;
        let earlier = EarlierPlan::of(ended);
        let mut told =
            json!({ "executionId": id, "planId": ended.plan().id(), "why": earlier.reason });
        let mut transcript = Transcript::new(&self.clock);
        if trigger == Trigger::Automatic {
            // Stored before the model is asked, so that attempts count that crash the process.
            told["automatic"] = json!(true);
            self.store.add_transcript(request, &[self.entry(ATTEMPT, told)]).await?;
        } else {
            transcript.add(ATTEMPT, told);
        }
        transcript.add("selection", candidates.report);
        let guard = self.repeat_guard(ended, MAX_EXECUTIONS).await?;
        let compiler = RequestCompiler { engine: self, request, query: &query, catalog: &catalog };
        let compiler = ReplanCompiler { compiler, earlier: &earlier, guard: &guard };
        transcript.ask_planner();
        let mut proposed = planner.replan(&query, &earlier, &candidates.catalog, &compiler).await;
        if let Ok(ProposedPlan { proposal, .. }) = &mut proposed {
            compiler.carry_over(&mut proposal.draft);
        }
        // Another replan may have started while the model was asked.
        self.check_not_replanned(id, next).await?;
        let version = self.next_version(request).await?;
        let (plan, _) = self.keep_proposed(request, version, proposed, transcript).await?;
        let mut created = create_replan(ended, &plan).map_err(|err| refused(ended, err))?;
        if trigger == Trigger::Request {
            created.options.replans.within = self.grant.within();
        }
        if created.options.dry_run {
            return self.start_created(&plan, created).await;
        }
        self.check_start(&plan).await?;
        let start = Start { id: Some(next), ..Start::from_created(&plan, created) };
        let started = self.control.start(start).await?;
        if started.is_new { Ok(next) } else { Err(already_replanned(id, next)) }
    }

    /// Collects the effects of an ended execution, of the executions that it continues, and of
    /// their children. Reads at most `most` executions.
    async fn repeat_guard<'a>(
        &self,
        ended: &'a Execution,
        most: usize,
    ) -> Result<RepeatGuard<'a>, EngineError> {
        let mut guard = RepeatGuard::new(ended);
        let mut left = most;
        let mut earlier = ended.retry_of();
        let mut last: Option<Execution> = None;
        while let Some(id) = earlier.filter(|_| left > 0) {
            left -= 1;
            let found = self.execution(id).await?;
            // It may have been pruned.
            earlier = found.as_ref().and_then(Execution::retry_of);
            if let Some(found) = found {
                guard.add_earlier(&found, last.as_ref().unwrap_or(ended));
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
            if let Some(child) = self.execution(id).await? {
                guard.add_child(&child);
            }
        }
        guard.set_truncated(earlier.is_some() || unread.is_some());
        Ok(guard)
    }

    async fn check_not_replanned(
        &self,
        id: ExecutionId,
        next: ExecutionId,
    ) -> Result<(), EngineError> {
        if self.control.exists(next).await? { Err(already_replanned(id, next)) } else { Ok(()) }
    }

    /// Starts the next execution, or stores why there is none. A failure of the store that may pass
    /// is returned, and the worker tries again later.
    async fn replan_automatically(&self, ended: &Execution) -> Result<(), StoreError> {
        let (id, request) = (ended.id(), ended.request());
        if self.has_next(ended).await? {
            return Ok(());
        }
        let attempts = Attempts::read(&self.store.transcript(request).await?, id);
        if attempts.given_up.is_some() {
            return Ok(());
        }
        let Err(err) = self.try_replan(ended, attempts.started).await else { return Ok(()) };
        if let Some(passing) = passing(&err) {
            return Err(passing.clone());
        }
        // A concurrent replan may have won.
        if self.has_next(ended).await? {
            return Ok(());
        }
        let told = json!({ "executionId": id, "code": err.code(), "message": err.to_string() });
        self.store.add_transcript(request, &[self.entry(GIVEN_UP, told)]).await
    }

    async fn has_next(&self, ended: &Execution) -> Result<bool, StoreError> {
        match self.control.exists(next_execution(ended)).await {
            Ok(exists) => Ok(exists),
            Err(ControlError::Store(err)) => Err(err),
            Err(err) => Err(StoreError::Unavailable(err.to_string())),
        }
    }

    async fn try_replan(
        &self,
        ended: &Execution,
        started: usize,
    ) -> Result<ExecutionId, EngineError> {
        let replans = &ended.options().replans;
        if replans.left == 0 {
            let times = match replans.before {
                1 => "once".to_owned(),
                n => format!("{n} times"),
            };
            let why = format!(
                "it was planned anew {times}, as often as it may be: `faber replan {}` goes on",
                ended.id()
            );
            return Err(EngineError::LimitExceeded(why));
        }
        if started >= limits::REPLAN_TRIES {
            let why = format!(
                "planning it anew was begun {started} times, and whoever did so was lost: `faber \
                 replan {}` tries again",
                ended.id()
            );
            return Err(EngineError::LimitExceeded(why));
        }
        if !self.planners.has_model() {
            let message = NO_MODEL.to_owned();
            return Err(EngineError::PlannerUnavailable { message, request: None });
        }
        let grant = replans.within.as_ref().map(Grant::kept).unwrap_or_default();
        let engine = Self { grant, ..self.clone() };
        let tool_sets = replans.sets.iter().map(ToString::to_string).collect();
        let options = PlanningOptions { tool_sets, ..PlanningOptions::default() };
        engine.replan_ended(ended, &options, Trigger::Automatic).await
    }

    /// Refuses automatic replans where they are impossible, and notes the tools that they may use.
    /// For a query this is called before and after planning.
    pub(super) fn check_replans(
        &self,
        plan: Option<&Plan>,
        options: &mut ExecutionOptions,
    ) -> Result<(), EngineError> {
        let mut steps = plan.into_iter().flat_map(Plan::steps);
        let asking = steps.clone().find(|step| step.tool.as_str() == REPLAN);
        let replans = &mut options.replans;
        if replans.left == 0 || !(replans.after_failure || asking.is_some()) {
            *replans = replans.caller_options();
            return Ok(());
        }
        let wanted = match asking {
            Some(step) if !replans.after_failure => {
                format!("the step `{}` asks for a new plan; `replans: 0` means none", step.id)
            }
            _ => "`replans` asks for new plans".to_owned(),
        };
        if options.compensate_on_failure {
            let why = format!(
                "{wanted}, and `compensateOnFailure` undoes what these would keep: leave one out"
            );
            return Err(EngineError::InvalidArgument(why));
        }
        if steps.any(|step| agent::is_own(&step.tool)) {
            let why = "`replans` is for plans; an agent makes up its mind by itself: leave it out";
            return Err(EngineError::InvalidArgument(why.to_owned()));
        }
        if !self.planners.has_model() {
            let message = format!("{wanted}, for which a model is needed; {NO_MODEL}");
            return Err(EngineError::PlannerUnavailable { message, request: None });
        }
        replans.within = self.grant.within();
        Ok(())
    }
}

fn already_replanned(id: ExecutionId, next: ExecutionId) -> EngineError {
    EngineError::Conflict(format!(
        "`{id}` was planned anew, and goes on as `{next}`: plan that one anew if it fails"
    ))
}

fn check_replannable(ended: &Execution) -> Result<(), EngineError> {
    let id = ended.id();
    if !ended.state().is_finished() {
        return Err(refused(ended, ReuseError::Open(id)));
    }
    if ended.state() == ExecutionState::Completed && ended.replan_request().is_none() {
        let why = format!("`{id}` got to its end: there is nothing left to plan");
        return Err(EngineError::Conflict(why));
    }
    if let Some(parent) = ended.parent() {
        let why = format!("`{id}` is part of `{}`: plan that one anew", parent.execution);
        return Err(EngineError::Conflict(why));
    }
    if ended.plan().steps().iter().any(|step| agent::is_own(&step.tool)) {
        let why = format!("`{id}` is an agent's, whose turns are no plan: retry it from a turn");
        return Err(EngineError::Conflict(why));
    }
    Ok(())
}

/// Returns the failure of the store that may pass.
fn passing(err: &EngineError) -> Option<&StoreError> {
    match err {
        EngineError::Store(err) if !err.is_permanent() => Some(err),
        EngineError::Planning { error, .. } => passing(error),
        _ => None,
    }
}
