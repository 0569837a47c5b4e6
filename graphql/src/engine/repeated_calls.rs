//! The calls that a retry would make a second time, for people to look at before they retry.

use std::collections::BTreeMap;

use planner::reuse::{RetryScope, kept_steps};
use shared::{
    event::{Created, Event},
    execution::{Execution, Step, StepState},
    id::{ExecutionId, Seq, StepId, ToolName},
    plan::{StepKind, ToolExecution},
    store::ExecutionFilter,
    tool::Effect,
};

use super::{Engine, EngineError, retry::refused};

/// The most other executions that one answer looks at.
const LOOKED_AT: usize = 1_000;

/// The most executions of which it is remembered what they retry.
const LINKS: usize = 50_000;

/// By execution, the one that it retries. Neither ever changes, so each log is looked at once.
#[derive(Debug, Default)]
pub(super) struct RetryLinks(tokio::sync::Mutex<BTreeMap<ExecutionId, Option<ExecutionId>>>);

/// Calls of a tool with the effect `ONCE` that were made and that a retry would make again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedCall {
    /// The step of the execution. Calls of a sub-plan stand under the step that executes it.
    pub step: StepId,
    /// The tool that was called.
    pub tool: ToolName,
    /// How many calls there were: one for each item of a `forEach`.
    pub calls: usize,
    /// Whether nobody knows if these calls took effect.
    pub outcome_unknown: bool,
}

/// Counts calls by step, tool and outcome, in the order in which they are first met.
#[derive(Debug, Default)]
struct CallCount {
    counted: Vec<RepeatedCall>,
    /// Executions of sub-plans that are still to be looked at.
    children: Vec<Child>,
}

/// An execution that a step began.
#[derive(Debug)]
struct Child {
    /// The step of the execution that is retried.
    step: StepId,
    /// What the step is said to call where the execution is gone.
    tool: ToolName,
    execution: ExecutionId,
}

impl CallCount {
    fn add(&mut self, step: &StepId, tool: &ToolName, calls: usize, outcome_unknown: bool) {
        let is_same = |call: &&mut RepeatedCall| {
            (&call.step, &call.tool, call.outcome_unknown) == (step, tool, outcome_unknown)
        };
        match self.counted.iter_mut().find(is_same) {
            Some(call) => call.calls += calls,
            None => self.counted.push(RepeatedCall {
                step: step.clone(),
                tool: tool.clone(),
                calls,
                outcome_unknown,
            }),
        }
    }

    /// Counts the calls that a step made, under the name of a step of the retried execution. A call
    /// that was compensated does not count.
    fn add_step(&mut self, under: &StepId, planned: &ToolExecution, step: &Step) {
        let tasks =
            step.items.as_deref().map_or(std::slice::from_ref(step), |items| items.as_slice());
        for task in tasks.iter().filter(|task| !task.is_compensated()) {
            if let StepKind::Plan(_) = planned.kind {
                self.children.extend(task.child.map(|execution| Child {
                    step: under.clone(),
                    tool: planned.tool.clone(),
                    execution,
                }));
            } else if planned.policy.effect == Effect::Once {
                match &task.state {
                    StepState::Succeeded(_) => self.add(under, &planned.tool, 1, false),
                    StepState::Failed(error) if error.is_outcome_unknown() => {
                        self.add(under, &planned.tool, 1, true);
                    }
                    _ => (),
                }
            }
        }
    }

    /// Counts a step whose output was taken over from an execution that is gone.
    fn add_lost_step(&mut self, planned: &ToolExecution, step: &Step) {
        if planned.policy.effect != Effect::Once {
            return;
        }
        let items = step.output().and_then(|output| output.as_array()).map(Vec::len);
        let calls = items.filter(|_| planned.for_each.is_some()).unwrap_or(1);
        if calls > 0 {
            self.add(&planned.id, &planned.tool, calls, false);
        }
    }
}

impl Engine {
    /// Returns the calls of tools with the effect `ONCE` that were made for an execution, or may
    /// have been, and that a retry would make again. Steps that the execution took over from the
    /// one that it retries count, too.
    pub async fn repeated_calls(
        &self,
        ended: &Execution,
        scope: RetryScope<'_>,
    ) -> Result<Vec<RepeatedCall>, EngineError> {
        let kept = kept_steps(ended, scope).map_err(|err| refused(ended, err))?;
        let steps = ended.plan().steps().iter().zip(&kept);
        let redone: Vec<StepId> =
            steps.filter(|(_, kept)| !**kept).map(|(step, _)| step.id.clone()).collect();
        let (mut count, mut left) = (CallCount::default(), LOOKED_AT);
        self.count_steps(&mut count, ended, redone, &mut left).await?;
        while let Some(child) = count.children.pop() {
            let found = match left.checked_sub(1) {
                Some(rest) => {
                    left = rest;
                    self.execution(child.execution).await?
                }
                None => None,
            };
            match found {
                Some(execution) => {
                    let steps = execution.plan().steps().iter().zip(execution.steps());
                    steps.for_each(|(planned, step)| count.add_step(&child.step, planned, step));
                }
                None => count.add(&child.step, &child.tool, 1, true),
            }
        }
        let order = |call: &RepeatedCall| ended.plan().step_number(&call.step);
        count.counted.sort_by_key(order);
        Ok(count.counted)
    }

    /// Counts the calls of some steps. The calls of a step whose output was taken over are in the
    /// execution that made it.
    async fn count_steps(
        &self,
        count: &mut CallCount,
        ended: &Execution,
        mut steps: Vec<StepId>,
        left: &mut usize,
    ) -> Result<(), EngineError> {
        let mut earlier: Option<Execution> = None;
        while !steps.is_empty() {
            let execution = earlier.as_ref().unwrap_or(ended);
            let mut taken_over = Vec::new();
            for id in steps {
                let Some(number) = execution.plan().step_number(&id) else { continue };
                let step = execution.step(number);
                if step.is_reused && step.attempts == 0 {
                    taken_over.push(number);
                } else {
                    count.add_step(&id, execution.plan().step(number), step);
                }
            }
            let before = match execution.retry_of().filter(|_| !taken_over.is_empty() && *left > 0)
            {
                Some(id) => self.execution(id).await?,
                None => None,
            };
            *left = left.saturating_sub(1);
            if before.is_none() {
                for number in taken_over {
                    count.add_lost_step(execution.plan().step(number), execution.step(number));
                }
                break;
            }
            let plan = execution.plan();
            steps = taken_over.iter().map(|number| plan.step(*number).id.clone()).collect();
            earlier = before;
        }
        Ok(())
    }

    /// Returns the executions that retry an ended one, or go on after it, oldest first. A retry is
    /// found only among the 1,000 newest executions of the plan.
    pub async fn retries(&self, ended: &Execution) -> Result<Vec<ExecutionId>, EngineError> {
        if !ended.state().is_finished() {
            return Ok(Vec::new());
        }
        let filter = ExecutionFilter {
            plan: Some(ended.plan().id()),
            is_root: true,
            from: Some(ended.created_at()),
            ..ExecutionFilter::default()
        };
        let mut retries = Vec::new();
        for head in self.newest(&filter, LOOKED_AT, |_| true).await? {
            if head.execution != ended.id()
                && self.retry_of(head.execution).await? == Some(ended.id())
            {
                retries.push((head.created_at, head.execution));
            }
        }
        if let Some(next) = self.next(ended).await? {
            retries.push((next.created_at(), next.id()));
        }
        retries.sort();
        Ok(retries.into_iter().map(|(_, id)| id).collect())
    }

    /// Returns the execution that another one retries, by the first event of its log. The logs are
    /// read one after another: many fields of one query look for the same ones.
    async fn retry_of(&self, id: ExecutionId) -> Result<Option<ExecutionId>, EngineError> {
        let mut links = self.retry_links.0.lock().await;
        if let Some(link) = links.get(&id) {
            return Ok(*link);
        }
        let Some(Event::Created(Created { retry_of, .. })) =
            self.store.read(id, Seq::START).await?.into_iter().next().map(|first| first.event)
        else {
            return Ok(None);
        };
        if links.len() >= LINKS {
            links.pop_first();
        }
        links.insert(id, retry_of);
        Ok(retry_of)
    }
}
