//! Executions that are planned anew by themselves: who may be, and what becomes of it.
//!
//! That one is owed a new plan follows from its log. What came of it is in two places, which whoever
//! looks after it reads again: the execution that goes on, under an identifier that follows from its
//! own, or else an entry of the request's transcript that says why there is none.

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use executor::{control::ControlError, onward::Onward};
use serde_json::json;
use shared::{
    execution::{Execution, ExecutionOptions, REPLAN},
    id::ExecutionId,
    limits,
    plan::Plan,
    request::TranscriptEntry,
    store::StoreError,
};

use super::{
    Engine, EngineError, PlanningOptions,
    planners::NO_MODEL,
    replanning::{On, next, why},
};
use crate::{access::Grant, agent};

/// The entry of a transcript that says that an execution is planned anew.
const BEGUN: &str = "replan";
/// The entry that says why it is not.
const GIVEN_UP: &str = "replan_given_up";

/// How an execution that is to be planned anew by itself stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replanning {
    /// How far it is.
    pub stage: Stage,
    /// Why it is planned anew.
    pub reason: String,
    /// Why it was given up.
    pub given_up: Option<String>,
}

/// How far the planning of what goes on is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is, or will be, planned.
    Pending,
    /// It has begun.
    Begun,
    /// It will not begin by itself.
    GivenUp,
}

/// What a transcript says of the planning of what goes on.
#[derive(Debug, Default, PartialEq, Eq)]
struct Record {
    /// How often it was begun.
    tries: usize,
    given_up: Option<String>,
}

impl Record {
    fn of(transcript: &[TranscriptEntry], id: ExecutionId) -> Self {
        let id = id.to_string();
        let own = transcript.iter().filter(|it| it.content["executionId"] == id);
        let mut record = Self::default();
        for entry in own {
            match entry.kind.as_str() {
                BEGUN if entry.content["automatic"] == true => record.tries += 1,
                GIVEN_UP => {
                    let message = entry.content["message"].as_str().unwrap_or_default();
                    record.given_up = Some(message.to_owned());
                }
                _ => (),
            }
        }
        record
    }
}

/// Plans executions anew when nobody asks any more.
struct ByItself(Engine);

impl fmt::Debug for ByItself {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ByItself").finish_non_exhaustive()
    }
}

#[async_trait]
impl Onward for ByItself {
    async fn go_on(&self, ended: &Execution) -> Result<(), StoreError> {
        self.0.see_to_next(ended).await
    }
}

/// Returns the failure of the store that may be over later.
fn passing(err: &EngineError) -> Option<&StoreError> {
    match err {
        EngineError::Store(err) if !err.is_damage() => Some(err),
        EngineError::Planning { error, .. } => passing(error),
        _ => None,
    }
}

impl Engine {
    /// Returns what plans anew for the worker of this process.
    pub fn onward(&self) -> Arc<dyn Onward> {
        Arc::new(ByItself(self.clone()))
    }

    /// Begins what goes on after an execution, or writes down why nothing does.
    async fn see_to_next(&self, ended: &Execution) -> Result<(), StoreError> {
        let (id, request) = (ended.id(), ended.request());
        if self.has_begun(ended).await? {
            return Ok(());
        }
        let record = Record::of(&self.store.transcript(request).await?, id);
        if record.given_up.is_some() {
            return Ok(());
        }
        let Err(err) = self.go_on_by_itself(ended, record.tries).await else { return Ok(()) };
        if let Some(passing) = passing(&err) {
            return Err(passing.clone());
        }
        // Somebody else may have been faster, and then that goes on.
        if self.has_begun(ended).await? {
            return Ok(());
        }
        let told = json!({ "executionId": id, "code": err.code(), "message": err.to_string() });
        self.store.add_transcript(request, &[self.entry(GIVEN_UP, told)]).await
    }

    async fn has_begun(&self, ended: &Execution) -> Result<bool, StoreError> {
        match self.control.is_begun(next(ended)).await {
            Ok(begun) => Ok(begun),
            Err(ControlError::Store(err)) => Err(err),
            Err(err) => Err(StoreError::Unavailable(err.to_string())),
        }
    }

    async fn go_on_by_itself(
        &self,
        ended: &Execution,
        tries: usize,
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
        if tries >= limits::REPLAN_TRIES {
            let why = format!(
                "planning it anew was begun {tries} times, and whoever did so was lost: `faber \
                 replan {}` tries again",
                ended.id()
            );
            return Err(EngineError::LimitExceeded(why));
        }
        if self.modelled.is_none() {
            let message = NO_MODEL.to_owned();
            return Err(EngineError::PlannerUnavailable { message, request: None });
        }
        let grant = replans.within.as_ref().map(Grant::kept).unwrap_or_default();
        let engine = Self { grant, ..self.clone() };
        let tool_sets = replans.sets.iter().map(ToString::to_string).collect();
        let options = PlanningOptions { tool_sets, ..PlanningOptions::default() };
        engine.go_on_after(ended, &options, On::ItsOwn).await
    }

    /// Refuses an execution that is to be planned anew by itself where that cannot be, and notes
    /// what its plans may use. Where the plan is not there yet, it is asked again.
    pub(super) fn check_replans(
        &self,
        plan: Option<&Plan>,
        options: &mut ExecutionOptions,
    ) -> Result<(), EngineError> {
        let mut steps = plan.into_iter().flat_map(Plan::steps);
        let asking = steps.clone().find(|it| it.tool.as_str() == REPLAN);
        let replans = &mut options.replans;
        if replans.left == 0 || !(replans.after_failure || asking.is_some()) {
            *replans = replans.as_asked();
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
        if steps.any(|it| agent::is_own(&it.tool)) {
            let why = "`replans` is for plans; an agent makes up its mind by itself: leave it out";
            return Err(EngineError::InvalidArgument(why.to_owned()));
        }
        if self.modelled.is_none() {
            let message = format!("{wanted}, for which a model is needed; {NO_MODEL}");
            return Err(EngineError::PlannerUnavailable { message, request: None });
        }
        replans.within = self.grant.within();
        Ok(())
    }

    /// Returns the execution that goes on after one that is over, whoever had it planned.
    pub async fn next(&self, ended: &Execution) -> Result<Option<Arc<Execution>>, EngineError> {
        if !ended.state().is_over() || ended.parent().is_some() {
            return Ok(None);
        }
        Ok(self.execution(next(ended)).await?.map(Arc::new))
    }

    /// Returns how the new plan of an execution stands that is to be planned anew by itself.
    pub async fn replanning(&self, ended: &Execution) -> Result<Option<Replanning>, EngineError> {
        if ended.anew().is_none() {
            return Ok(None);
        }
        let reason = why(ended);
        if self.store.head(next(ended)).await?.is_some() {
            return Ok(Some(Replanning { stage: Stage::Begun, reason, given_up: None }));
        }
        let transcript = self.store.transcript(ended.request()).await?;
        let given_up = Record::of(&transcript, ended.id()).given_up;
        let stage = if given_up.is_some() { Stage::GivenUp } else { Stage::Pending };
        Ok(Some(Replanning { stage, reason, given_up }))
    }
}
