use async_graphql::SimpleObject;
use serde_json::Value;
use shared::plan;

use super::{plan::Effect, scalar::to_int};

/// Number of attempts of a call, and the delays between them.
#[derive(SimpleObject)]
pub(super) struct RetryPolicy {
    /// Maximum number of attempts. Attempts that a crash interrupted do not count.
    max_attempts: u32,
    /// Delay before the second attempt, in milliseconds.
    backoff_ms: i64,
    /// Factor by which each delay grows.
    multiplier: f64,
    /// Longest delay, in milliseconds.
    max_backoff_ms: i64,
    /// True if each delay is drawn at random between half of the computed delay and the whole delay.
    jitter: bool,
}

impl From<plan::RetryPolicy> for RetryPolicy {
    fn from(policy: plan::RetryPolicy) -> Self {
        Self {
            max_attempts: policy.max_attempts,
            backoff_ms: to_int(policy.backoff_ms),
            multiplier: policy.multiplier,
            max_backoff_ms: to_int(policy.max_backoff_ms),
            jitter: policy.jitter,
        }
    }
}

/// Call that undoes a step of a plan.
#[derive(SimpleObject)]
pub(super) struct PlannedCompensation {
    /// Tool, as `set.name`.
    tool_name: String,
    /// Parameters as written, with templates.
    parameters: Value,
    /// Effect of the tool when the plan was compiled.
    effect: Effect,
    /// Time limit of one attempt in milliseconds.
    timeout_ms: i64,
    /// Retry policy of the call.
    retry_policy: RetryPolicy,
}

impl From<&plan::Compensation> for PlannedCompensation {
    fn from(call: &plan::Compensation) -> Self {
        Self {
            tool_name: call.tool.to_string(),
            parameters: Value::clone(&call.parameters),
            effect: call.policy.effect.into(),
            timeout_ms: to_int(call.policy.timeout_ms),
            retry_policy: call.policy.retry.into(),
        }
    }
}
