//! How an execution is to be carried out.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Replans;
use crate::{clock::Timestamp, limits, plan::StepPolicy, tool::Effect};

/// How an execution is to be carried out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutionOptions {
    /// One step at a time, or whatever is ready.
    pub mode: ExecutionMode,
    /// Steps that run at once, in parallel mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Milliseconds after its start at which it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Whether a template that finds nothing fails its step. Left out, the effect of the called tool
    /// decides. Logs of earlier versions left `false` out, so what they say now follows the effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_templates: Option<bool>,
    /// The moment before which no step starts.
    #[serde(
        skip_serializing_if = "Option::is_none",
        with = "chrono::serde::ts_microseconds_option"
    )]
    pub start_at: Option<Timestamp>,
    /// Higher goes first where workers have a choice.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i32,
    /// What the plan is given: `{{input.x}}`.
    #[serde(skip_serializing_if = "is_default")]
    pub input: Arc<Value>,
    /// Whether what succeeded is undone where the execution does not end well.
    #[serde(skip_serializing_if = "is_default")]
    pub compensate_on_failure: bool,
    /// Whether everything is checked and nothing is called.
    #[serde(skip_serializing_if = "is_default")]
    pub dry_run: bool,
    /// How often it is planned anew by itself.
    #[serde(skip_serializing_if = "is_default")]
    pub replans: Replans,
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// One step at a time, or whatever is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExecutionMode {
    /// One step at a time, in plan order.
    Sequential,
    /// Whatever is ready, up to a limit.
    #[default]
    Parallel,
}

impl ExecutionOptions {
    /// Returns whether a template that finds nothing fails a call with that effect, for a step with
    /// that policy. The step is asked first, then the options, then the effect.
    pub fn is_strict(&self, step: &StepPolicy, effect: Effect) -> bool {
        let asked = step.strict_templates.or(self.strict_templates);
        asked.unwrap_or(effect != Effect::Read)
    }

    /// Returns how many steps may run at once.
    pub fn width(&self) -> usize {
        match self.mode {
            ExecutionMode::Sequential => 1,
            ExecutionMode::Parallel => {
                self.max_parallel.unwrap_or(limits::MAX_PARALLEL).max(1) as usize
            }
        }
    }
}
