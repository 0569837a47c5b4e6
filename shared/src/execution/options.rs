//! Options of an execution.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ReplanOptions;
use crate::{clock::Timestamp, labels::Labels, limits, plan::StepPolicy, tool::Effect};

#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecutionOptions {
    pub mode: ExecutionMode,
    /// The maximum number of steps that run at the same time, in parallel mode.
    #[serde(alias = "max_parallel", skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// The execution's deadline, in milliseconds after its start.
    #[serde(alias = "deadline_ms", skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// `true` fails a step if a template has no value. By default the called tool's effect decides.
    ///
    /// Earlier versions did not record `false`, so for their logs the effect decides, too.
    #[serde(alias = "strict_templates", skip_serializing_if = "Option::is_none")]
    pub strict_templates: Option<bool>,
    /// The earliest time at which a step starts.
    #[serde(
        alias = "start_at",
        skip_serializing_if = "Option::is_none",
        with = "chrono::serde::ts_microseconds_option"
    )]
    pub start_at: Option<Timestamp>,
    /// The priority. Workers start executions with a higher priority first.
    #[serde(skip_serializing_if = "is_default")]
    pub priority: i32,
    /// The input, as in `{{input.x}}`.
    #[serde(skip_serializing_if = "is_default")]
    pub input: Arc<Value>,
    /// `true` undoes successful steps if the execution does not succeed.
    #[serde(alias = "compensate_on_failure", skip_serializing_if = "is_default")]
    pub compensate_on_failure: bool,
    /// `true` checks conditions, templates and parameters, and calls no tool.
    #[serde(alias = "dry_run", skip_serializing_if = "is_default")]
    pub dry_run: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub replans: ReplanOptions,
    /// Pairs of a key and a value, by which people find and count executions.
    #[serde(skip_serializing_if = "is_default")]
    pub labels: Labels,
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Sequential or parallel execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExecutionMode {
    /// One step at a time, in plan order.
    Sequential,
    /// All ready steps, up to a limit.
    #[default]
    Parallel,
}

impl ExecutionOptions {
    /// Returns `true` if a template without a value fails a call with this effect.
    ///
    /// The step's policy decides first, then the options, then the effect.
    pub fn is_strict(&self, step: &StepPolicy, effect: Effect) -> bool {
        let strict = step.strict_templates.or(self.strict_templates);
        strict.unwrap_or(effect != Effect::Read)
    }

    /// Returns the maximum number of steps that run at the same time.
    pub fn width(&self) -> usize {
        match self.mode {
            ExecutionMode::Sequential => 1,
            ExecutionMode::Parallel => {
                self.max_parallel.unwrap_or(limits::DEFAULT_MAX_PARALLEL).max(1) as usize
            }
        }
    }
}
