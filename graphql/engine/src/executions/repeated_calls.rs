use planner::reuse::{RetryScope, find_kept_steps};
use shared::{
    event::Settled,
    execution::{Execution, Step},
    id::{ExecutionId, Part, StepId, Task, ToolName},
    plan::{StepKind, ToolExecution},
    tool::Effect,
};

use super::{findings::Remedy, reader::ExecutionReader};
use crate::{error::EngineError, plans::library::reuse_error};

const MAX_READ_EXECUTIONS: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedCall {
    /// The step of the retried execution. Calls of a sub-plan are listed under the step that
    /// executes the sub-plan.
    pub step: StepId,
    pub tool: ToolName,
    /// The number of calls: one for each item of a `forEach`.
    pub calls: usize,
    pub outcome_unknown: bool,
    /// The ways to settle the first of these calls. Empty if its outcome is known, if an execution
    /// before the retried execution made it, or if its execution was pruned.
    pub remedies: Vec<Remedy>,
}

#[derive(Debug, Default)]
struct CallCount {
    repeated_calls: Vec<RepeatedCall>,
    /// `true` if the retry reuses the output of a call that a person settled as `SUCCEEDED`, so
    /// that this call is not repeated.
    has_reused_settlements: bool,
    children: Vec<Child>,
}

#[derive(Debug)]
struct Child {
    step: StepId,
    /// The tool that is counted once if the child execution was pruned or is not read, so that its
    /// calls are unknown.
    tool: ToolName,
    execution: ExecutionId,
}

impl CallCount {
    fn add_known_call(&mut self, step: &StepId, tool: &ToolName, calls: usize) {
        self.add_calls(RepeatedCall {
            step: step.clone(),
            tool: tool.clone(),
            calls,
            outcome_unknown: false,
            remedies: Vec::new(),
        });
    }

    fn add_calls(&mut self, added: RepeatedCall) {
        let is_same = |call: &&mut RepeatedCall| {
            (&call.step, &call.tool, call.outcome_unknown)
                == (&added.step, &added.tool, added.outcome_unknown)
        };
        match self.repeated_calls.iter_mut().find(is_same) {
            Some(call) => call.calls += added.calls,
            None => self.repeated_calls.push(added),
        }
    }

    /// Counts the calls of `step` as calls of `parent_step`, which is a step of the retried
    /// execution. A compensated call does not count.
    fn add_step(&mut self, parent_step: &StepId, planned: &ToolExecution, step: &Step) {
        for task in step.parts().filter(|task| !task.is_compensated()) {
            if self.has_reused_settlements && task.settled() == Some(Settled::Succeeded) {
                continue;
            }
            if let StepKind::Plan(_) = planned.kind {
                self.children.extend(task.child.map(|execution| Child {
                    step: parent_step.clone(),
                    tool: planned.tool.clone(),
                    execution,
                }));
            } else if task.has_once_call(planned.policy.effect) && task.known_output().is_some() {
                self.add_known_call(parent_step, &planned.tool, 1);
            }
        }
    }

    /// Counts those calls of some steps whose outcome is unknown. If the steps belong to a child,
    /// `parent_step` is the step of the retried execution that started this child.
    fn add_unknown_calls(
        &mut self,
        execution: &Execution,
        parent_step: Option<&StepId>,
        is_repeated: impl Fn(&StepId) -> bool,
    ) {
        for key in execution.open_call_keys() {
            let step = &key.place.step;
            let Some(number) = execution.plan().step_number(step).filter(|_| is_repeated(step))
            else {
                continue;
            };
            let task = Task { step: number, part: Part { item: key.place.item, undo: false } };
            let is_failed = execution.task(task).is_some_and(Step::is_outcome_unknown);
            let remedies = if is_failed && key.place.child.is_none() {
                Remedy::settle_either_way(execution.id(), step, task.part).into()
            } else {
                Vec::new()
            };
            self.add_calls(RepeatedCall {
                step: parent_step.unwrap_or(step).clone(),
                tool: execution.plan().step(number).tool.clone(),
                calls: 1,
                outcome_unknown: true,
                remedies,
            });
        }
    }

    /// Counts the calls of a reused step from its output, because the execution that made the calls
    /// was pruned or is not read.
    fn add_lost_step(&mut self, planned: &ToolExecution, step: &Step) {
        if planned.policy.effect != Effect::Once {
            return;
        }
        let items = step.output().and_then(|output| output.as_array()).map(Vec::len);
        let calls = items.filter(|_| planned.for_each.is_some()).unwrap_or(1);
        if calls > 0 {
            self.add_known_call(&planned.id, &planned.tool, calls);
        }
    }
}

impl ExecutionReader {
    /// Returns the calls with the effect `ONCE` that a retry would repeat: calls that the execution
    /// made, and calls with an unknown outcome. Calls of reused steps count, too.
    pub async fn repeated_calls(
        &self,
        finished: &Execution,
        scope: RetryScope<'_>,
    ) -> Result<Vec<RepeatedCall>, EngineError> {
        let kept = find_kept_steps(finished, scope).map_err(|err| reuse_error(finished, err))?;
        let steps = finished.plan().steps().iter().zip(&kept);
        let repeated = steps.filter(|(_, kept)| !**kept).map(|(step, _)| step.id.clone()).collect();
        self.count_repeated_calls(finished, repeated, scope == RetryScope::Failed).await
    }

    /// Returns the calls with the effect `ONCE` of some steps. With `has_reused_settlements`, leaves
    /// out calls that a person settled as succeeded.
    pub(super) async fn count_repeated_calls(
        &self,
        finished: &Execution,
        repeated: Vec<StepId>,
        has_reused_settlements: bool,
    ) -> Result<Vec<RepeatedCall>, EngineError> {
        let mut count = CallCount { has_reused_settlements, ..CallCount::default() };
        let mut executions_left = MAX_READ_EXECUTIONS;
        count.add_unknown_calls(finished, None, |step| repeated.contains(step));
        self.count_steps(&mut count, finished, repeated, &mut executions_left).await?;
        while let Some(child) = count.children.pop() {
            let found = match executions_left.checked_sub(1) {
                Some(rest) => {
                    executions_left = rest;
                    self.load(child.execution).await?
                }
                None => None,
            };
            match found {
                Some(execution) => {
                    let steps = execution.plan().steps().iter().zip(execution.steps());
                    steps.for_each(|(planned, step)| count.add_step(&child.step, planned, step));
                    count.add_unknown_calls(&execution, Some(&child.step), |_| true);
                }
                None => count.add_calls(RepeatedCall {
                    step: child.step,
                    tool: child.tool,
                    calls: 1,
                    outcome_unknown: true,
                    remedies: Vec::new(),
                }),
            }
        }
        let order = |call: &RepeatedCall| finished.plan().step_number(&call.step);
        count.repeated_calls.sort_by_key(order);
        Ok(count.repeated_calls)
    }

    /// Counts the calls of some steps. For a reused step, reads the earlier execution that made the
    /// calls.
    async fn count_steps(
        &self,
        count: &mut CallCount,
        finished: &Execution,
        mut steps: Vec<StepId>,
        executions_left: &mut usize,
    ) -> Result<(), EngineError> {
        let mut earlier: Option<Execution> = None;
        while !steps.is_empty() {
            let execution = earlier.as_ref().unwrap_or(finished);
            let mut reused = Vec::new();
            for id in steps {
                let Some(number) = execution.plan().step_number(&id) else { continue };
                let step = execution.step(number);
                if step.is_reused && step.attempts == 0 {
                    reused.push(number);
                } else {
                    count.add_step(&id, execution.plan().step(number), step);
                }
            }
            let before = match execution
                .continued_from()
                .filter(|_| !reused.is_empty() && *executions_left > 0)
            {
                Some(id) => self.load(id).await?,
                None => None,
            };
            *executions_left = executions_left.saturating_sub(1);
            if before.is_none() {
                for number in reused {
                    count.add_lost_step(execution.plan().step(number), execution.step(number));
                }
                break;
            }
            let plan = execution.plan();
            steps = reused.iter().map(|number| plan.step(*number).id.clone()).collect();
            earlier = before;
        }
        Ok(())
    }
}
