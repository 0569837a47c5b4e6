//! Forks of finished executions.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use planner::{
    fork::{Fork, ForkedStep},
    suggest::did_you_mean,
};
use serde_json::Value;
use shared::{
    event::Created,
    execution::Execution,
    id::{ExecutionId, PlanId, StepId, ToolName},
    json, labels, limits,
    plan::{Plan, StepKind, ToolExecution},
    store::ChildPath,
    tool::Effect,
};

use super::{Executions, findings::Remedy, repeated_calls::RepeatedCall};
use crate::{
    error::EngineError,
    plans::{changed_plan::ChangedPlan, library::reuse_error},
};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForkOrder {
    /// A version of the execution's plan. `None` means the plan of the execution.
    pub plan: Option<PlanId>,
    /// `None` keeps the input of the execution.
    pub input: Option<Value>,
    pub set: Vec<StepChange>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StepChange {
    pub step: String,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Parameters(Value),
    /// The step does not run, and this is its output.
    Output(Value),
}

/// What a fork would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForkPreview {
    /// The steps whose outputs the fork keeps.
    pub kept: Vec<StepId>,
    pub once_calls: Vec<OnceCall>,
    /// The tools that the fork can call.
    pub tools: BTreeSet<ToolName>,
}

/// Calls with the effect `ONCE` of one step of a fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnceCall {
    pub step: StepId,
    pub tool: ToolName,
    /// `None` if only the fork knows the number, because the step repeats for a list or executes a
    /// plan, and made no call before.
    pub calls: Option<usize>,
    /// `true` if the finished execution, or one that it continues, made these calls before.
    pub is_repeated: bool,
    pub outcome_unknown: bool,
    /// The ways to settle the first of these calls, as in [`RepeatedCall`].
    pub remedies: Vec<Remedy>,
}

/// The checked changes of a fork.
struct Changes {
    plan: Arc<Plan>,
    /// The plan as a new version, if parameters changed.
    changed: Option<ChangedPlan>,
    input: Arc<Value>,
    outputs: BTreeMap<StepId, Arc<Value>>,
}

impl Executions {
    /// Starts a new execution of a finished one with changes, which keeps the outputs that still
    /// fit.
    pub async fn fork(
        &self,
        id: ExecutionId,
        order: ForkOrder,
    ) -> Result<ExecutionId, EngineError> {
        let finished = self.reader.expect(id).await?;
        let Changes { mut plan, changed, input, outputs } =
            self.check_changes(&finished, order).await?;
        self.plans.check_plan(&plan).await?;
        let mut created = self.create_fork(&finished, &plan, &input, &outputs).await?;
        if let Some(changed) = changed {
            // Rejects a caller that has used up a limit before the new version is stored.
            let owner = labels::find_token(&created.options.labels);
            self.tools.grant.check_start(&*self.store, owner).await?;
            plan = self.plans.store_changed(changed).await?;
            self.record_plan(&plan).await;
            created.plan = plan.id();
        }
        self.start_retry(&plan, created).await
    }

    /// Returns what a fork would do, and stores nothing.
    pub async fn preview_fork(
        &self,
        finished: &Execution,
        order: ForkOrder,
    ) -> Result<ForkPreview, EngineError> {
        let Changes { plan, input, outputs, .. } = self.check_changes(finished, order).await?;
        let fork = Fork::new(finished, &plan, &input, &outputs);
        let fork = fork.map_err(|err| reuse_error(finished, err))?;
        let kept = fork.steps().filter(|(_, forked)| *forked == ForkedStep::Kept);
        let kept = kept.map(|(step, _)| step.id.clone()).collect();
        let once_calls = self.list_once_calls(finished, &fork).await?;
        let tools = self.list_fork_tools(finished, &fork).await?;
        Ok(ForkPreview { kept, once_calls, tools })
    }

    async fn create_fork(
        &self,
        finished: &Execution,
        plan: &Plan,
        input: &Arc<Value>,
        outputs: &BTreeMap<StepId, Arc<Value>>,
    ) -> Result<Created, EngineError> {
        let refused = |err| reuse_error(finished, err);
        let fork = Fork::new(finished, plan, input, outputs).map_err(refused)?;
        let mut created = fork.create().map_err(refused)?;
        let repeated: Vec<_> = fork.repeated_steps().iter().map(|(number, _)| *number).collect();
        let children = ChildPath::of_steps(finished, &repeated);
        if !children.is_empty() {
            let (keys, settled) = self.store.calls_of_children(children).await?;
            fork.take_over_children(&mut created, keys, settled).map_err(refused)?;
        }
        Ok(created)
    }

    async fn check_changes(
        &self,
        finished: &Execution,
        ForkOrder { plan, input, set }: ForkOrder,
    ) -> Result<Changes, EngineError> {
        let mut plan = match plan {
            Some(id) => self.find_version(finished, id).await?,
            None => Arc::clone(finished.plan()),
        };
        let (mut parameters, mut outputs) = (BTreeMap::new(), BTreeMap::new());
        for StepChange { step, change } in set {
            let step = find_step(&plan, &step)?;
            let id = step.id.clone();
            if parameters.contains_key(&id) || outputs.contains_key(&id) {
                let reason = format!("`set` has the step `{id}` twice");
                return Err(EngineError::InvalidArgument(reason));
            }
            match change {
                Change::Parameters(changed) => {
                    parameters.insert(id, changed);
                }
                Change::Output(output) => {
                    check_output(&id, &output)?;
                    outputs.insert(id, Arc::new(output));
                }
            }
        }
        let is_new = |id: &StepId, changed: &Value| {
            let number = plan.step_number(id);
            number.is_none_or(|number| *plan.step(number).parameters != *changed)
        };
        parameters.retain(|id, changed| is_new(id, changed));
        let changed = if parameters.is_empty() {
            None
        } else {
            let changed = self.plans.change_parameters(&plan, &parameters).await?;
            plan = Arc::new(changed.plan().clone());
            Some(changed)
        };
        let input = match input {
            Some(input) => Arc::new(input),
            None => Arc::clone(&finished.options().input),
        };
        Ok(Changes { plan, changed, input, outputs })
    }

    async fn find_version(
        &self,
        finished: &Execution,
        id: PlanId,
    ) -> Result<Arc<Plan>, EngineError> {
        let Some(plan) = self.plans.library.load(id).await? else {
            return Err(EngineError::not_found("plan", id));
        };
        if plan.info().request != finished.request() {
            let request = finished.request();
            let reason = format!("`{id}` is no version of the plan of the request `{request}`");
            return Err(EngineError::InvalidArgument(reason));
        }
        Ok(plan)
    }

    /// Returns the `ONCE` calls of a fork, in plan order: calls that it repeats, and calls of steps
    /// that made none before.
    async fn list_once_calls(
        &self,
        finished: &Execution,
        fork: &Fork<'_>,
    ) -> Result<Vec<OnceCall>, EngineError> {
        let mut calls = Vec::new();
        for is_unchanged in [true, false] {
            let steps = fork.repeated_steps().into_iter();
            let steps = steps.filter(|(_, forked)| *forked == ForkedStep::Runs { is_unchanged });
            let steps = steps.map(|(number, _)| finished.plan().step(number).id.clone()).collect();
            // Only an unchanged step reuses calls that a person settled as succeeded.
            let found = self.reader.count_repeated_calls(finished, steps, is_unchanged).await?;
            calls.extend(found.into_iter().map(OnceCall::from));
        }
        let mut new_calls = Vec::new();
        for (step, _) in fork.steps().filter(|(_, forked)| forked.should_run()) {
            if !calls.iter().any(|call| call.step == step.id) {
                new_calls.append(&mut self.list_new_calls(step).await?);
            }
        }
        calls.append(&mut new_calls);
        calls.sort_by_key(|call| fork.plan().step_number(&call.step));
        Ok(calls)
    }

    /// Returns the `ONCE` calls of a step that made none before. For a step that executes a plan,
    /// these are the calls of this plan.
    async fn list_new_calls(&self, step: &ToolExecution) -> Result<Vec<OnceCall>, EngineError> {
        let new_call = |tool: &ToolName, calls| OnceCall {
            step: step.id.clone(),
            tool: tool.clone(),
            calls,
            is_repeated: false,
            outcome_unknown: false,
            remedies: Vec::new(),
        };
        let StepKind::Plan(id) = step.kind else {
            let is_once = step.policy.effect == Effect::Once;
            let calls = step.for_each.is_none().then_some(1);
            return Ok(is_once.then(|| new_call(&step.tool, calls)).into_iter().collect());
        };
        let Some(plan) = self.plans.library.load_any(id).await? else { return Ok(Vec::new()) };
        let plans = self.plans.library.list_sub_plan_levels(&plan).await?;
        let steps = plans.iter().flatten().chain([&plan]).flat_map(|plan| plan.steps());
        let once = steps.filter(|step| step.policy.effect == Effect::Once);
        let tools: BTreeSet<&ToolName> = once.filter_map(ToolExecution::called_tool).collect();
        Ok(tools.into_iter().map(|tool| new_call(tool, None)).collect())
    }

    async fn list_fork_tools(
        &self,
        finished: &Execution,
        fork: &Fork<'_>,
    ) -> Result<BTreeSet<ToolName>, EngineError> {
        let mut tools = BTreeSet::new();
        let compensates = finished.options().compensate_on_failure;
        for (step, forked) in fork.steps() {
            let compensation = step.compensate.as_ref().filter(|_| compensates);
            tools.extend(compensation.map(|call| call.tool.clone()));
            if !forked.should_run() {
                continue;
            }
            tools.extend(step.called_tool().cloned());
            if let StepKind::Plan(id) = step.kind
                && let Some(plan) = self.plans.library.load_any(id).await?
            {
                tools.append(&mut self.plans.library.list_tools(&plan).await?);
            }
        }
        Ok(tools)
    }
}

impl From<RepeatedCall> for OnceCall {
    fn from(call: RepeatedCall) -> Self {
        Self {
            step: call.step,
            tool: call.tool,
            calls: Some(call.calls),
            is_repeated: true,
            outcome_unknown: call.outcome_unknown,
            remedies: call.remedies,
        }
    }
}

fn find_step<'a>(plan: &'a Plan, name: &str) -> Result<&'a ToolExecution, EngineError> {
    let number = name.parse().ok().and_then(|id: StepId| plan.step_number(&id));
    number.map(|number| plan.step(number)).ok_or_else(|| {
        let name: String = name.chars().take(128).collect();
        let help = did_you_mean(&name, plan.steps().iter().map(|step| step.id.as_str()));
        let help = help.map(|help| format!(": {help}")).unwrap_or_default();
        EngineError::InvalidArgument(format!("`{}` has no step `{name}`{help}", plan.id()))
    })
}

fn check_output(step: &StepId, output: &Value) -> Result<(), EngineError> {
    let (bytes, limit) = (json::json_size(output), limits::OUTPUT_BYTES);
    if bytes > limit {
        let reason = format!("the output of `{step}` has {bytes} bytes; the limit is {limit}");
        return Err(EngineError::LimitExceeded(reason));
    }
    if json::is_deeper_than(output, limits::JSON_DEPTH) {
        let limit = limits::JSON_DEPTH;
        let reason = format!("the output of `{step}` is nested deeper than {limit} levels");
        return Err(EngineError::InvalidArgument(reason));
    }
    Ok(())
}
