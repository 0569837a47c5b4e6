use async_graphql::{Context, ID, InputObject, MaybeUndefined, Result, SimpleObject};
use engine::{Change, Engine, ForkOrder, StepChange};
use serde_json::Value;
use shared::execution::Execution;

use super::{
    error::{ApiError, ApiResult, invalid_argument, not_found},
    finding::Remedy,
    input::check_input,
    scalar::to_int,
};

const BOTH_OR_NEITHER: &str = "needs either `parameters` or `output`";

/// Change of one step of a fork. Give either `parameters` or `output`.
#[derive(Clone, Debug, InputObject)]
pub(super) struct StepChangeInput {
    /// Id of the step within the plan.
    step_id: String,
    /// New parameters of the step. They replace all parameters, and can contain templates.
    parameters: Option<Value>,
    /// Output of the step, at most 1 MiB of JSON. The step does not run. Null is an output, unless
    /// `parameters` are given.
    output: MaybeUndefined<Value>,
}

impl TryFrom<StepChangeInput> for StepChange {
    type Error = ApiError;

    fn try_from(written: StepChangeInput) -> ApiResult<Self> {
        let StepChangeInput { step_id: step, parameters, output } = written;
        let change = match (parameters, output) {
            // Clients send null for a field that they leave out.
            (Some(parameters), MaybeUndefined::Undefined | MaybeUndefined::Null) => {
                Change::Parameters(parameters)
            }
            (None, MaybeUndefined::Null) => Change::Output(Value::Null),
            (None, MaybeUndefined::Value(output)) => Change::Output(output),
            (Some(_), MaybeUndefined::Value(_)) | (None, MaybeUndefined::Undefined) => {
                let step: String = step.chars().take(128).collect();
                let reason = format!("`set`: the change of `{step}` {BOTH_OR_NEITHER}");
                return Err(invalid_argument(reason));
            }
        };
        Ok(Self { step, change })
    }
}

/// Builds the order of a fork from the arguments of `forkExecution` and `forkPreview`.
pub(super) fn make_order(
    plan: Option<&ID>,
    input: Option<Value>,
    set: Option<Vec<StepChangeInput>>,
) -> ApiResult<ForkOrder> {
    let plan = plan.map(|id| id.parse().map_err(|_| not_found("plan", id))).transpose()?;
    let input = input.map(|input| check_input(Some(input))).transpose()?;
    let set = set.unwrap_or_default().into_iter().map(StepChange::try_from);
    Ok(ForkOrder { plan, input, set: set.collect::<ApiResult<_>>()? })
}

/// What a fork of an execution would do.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct ForkPreview {
    /// Ids of the steps whose outputs the fork keeps, in execution order.
    kept_steps: Vec<String>,
    /// Calls of `ONCE` tools that the fork makes if their steps run, in execution order.
    once_calls: Vec<OnceCall>,
}

/// Calls of a `ONCE` tool that a fork would make. Calls of one step with the same tool and outcome
/// are counted together.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct OnceCall {
    /// Id of the step. Calls of a child execution are listed under the step that starts it.
    step_id: String,
    /// Tool, as `set.name`.
    tool_name: String,
    /// Number of calls. Null if the step made no call before, and repeats for a list or executes a
    /// plan.
    calls: Option<i64>,
    /// True if the forked execution, or one that it continues, made these calls before.
    repeated: bool,
    /// True if it is unknown whether the earlier calls took effect (`tool.outcome_unknown`).
    outcome_unknown: bool,
    /// Ways to settle the first of these calls instead of repeating it, as in `RepeatedCall`.
    remedies: Vec<Remedy>,
}

impl From<engine::ForkPreview> for ForkPreview {
    fn from(preview: engine::ForkPreview) -> Self {
        Self {
            kept_steps: preview.kept.iter().map(ToString::to_string).collect(),
            once_calls: preview.once_calls.into_iter().map(OnceCall::from).collect(),
        }
    }
}

impl From<engine::OnceCall> for OnceCall {
    fn from(call: engine::OnceCall) -> Self {
        Self {
            step_id: call.step.to_string(),
            tool_name: call.tool.to_string(),
            calls: call.calls.map(to_int),
            repeated: call.is_repeated,
            outcome_unknown: call.outcome_unknown,
            remedies: call.remedies.into_iter().map(Remedy::from).collect(),
        }
    }
}

pub(super) async fn preview_fork(
    ctx: &Context<'_>,
    execution: &Execution,
    order: ForkOrder,
) -> Result<ForkPreview> {
    let preview = ctx.data::<Engine>()?.executions.preview_fork(execution, order).await;
    Ok(preview.map_err(ApiError::from)?.into())
}
