//! Step policies: retries, timeouts and error handling.

use std::{fmt, time::Duration};

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use crate::{limits, tool::Effect};

/// Retries, timeouts and error handling of a step.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct StepPolicy {
    pub effect: Effect,
    /// The time limit of one attempt, in milliseconds.
    #[serde(alias = "timeout_ms")]
    pub timeout_ms: u64,
    pub retry: RetryPolicy,
    #[serde(alias = "on_error")]
    pub on_error: OnError,
    /// `true` if a person must approve the step before it starts.
    #[serde(alias = "requires_approval")]
    pub requires_approval: bool,
    /// The longest time without progress in one attempt, in milliseconds.
    #[serde(alias = "idle_timeout_ms", skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
    /// The time for which a result can be reused from the cache, in milliseconds.
    #[serde(alias = "cache_ttl_ms", skip_serializing_if = "Option::is_none")]
    pub cache_ttl_ms: Option<u64>,
    /// The maximum number of items that run at the same time.
    #[serde(alias = "max_parallel", skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Overrides the execution's option: `true` fails the step if a reference has no value.
    #[serde(alias = "strict_templates", skip_serializing_if = "Option::is_none")]
    pub strict_templates: Option<bool>,
}

impl Default for StepPolicy {
    fn default() -> Self {
        Self {
            effect: Effect::default(),
            timeout_ms: u64::try_from(limits::STEP_TIMEOUT.as_millis()).unwrap_or(u64::MAX),
            retry: RetryPolicy::default(),
            on_error: OnError::default(),
            requires_approval: false,
            idle_timeout_ms: None,
            cache_ttl_ms: None,
            max_parallel: None,
            strict_templates: None,
        }
    }
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl StepPolicy {
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Returns the time limit of one attempt if it is not the default.
    ///
    /// The default applies to calls only. A sleep has its own duration, and a plan can take any
    /// time.
    pub fn explicit_timeout_ms(&self) -> Option<u64> {
        (self.timeout() != limits::STEP_TIMEOUT).then_some(self.timeout_ms)
    }

    pub fn max_parallel(&self) -> u32 {
        self.max_parallel.unwrap_or(limits::DEFAULT_MAX_PARALLEL).max(1)
    }
}

/// The consequence of a step's failure for the execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The execution fails, and running steps continue until they finish.
    #[default]
    Fail,
    /// Dependent steps without a condition are skipped, and other steps continue.
    Continue,
    /// The step's output is null, and all steps continue.
    Ignore,
    /// A person decides whether the step is attempted again.
    Wait,
}

impl OnError {
    /// Returns the name that plans use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Continue => "continue",
            Self::Ignore => "ignore",
            Self::Wait => "wait",
        }
    }
}

impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The number of attempts and the delays between them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// The maximum number of attempts. Attempts that a crash interrupted do not count.
    pub max_attempts: u32,
    /// The delay before the second attempt, in milliseconds.
    pub backoff_ms: u64,
    /// The factor by which each delay grows.
    pub multiplier: f64,
    /// The longest delay, in milliseconds.
    pub max_backoff_ms: u64,
    /// `true` if each delay is drawn at random between half of the calculated delay and the whole
    /// delay.
    pub jitter: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 1,
            backoff_ms: 100,
            multiplier: 2.0,
            max_backoff_ms: 30_000,
            jitter: true,
        }
    }
}

impl RetryPolicy {
    /// Returns the delay after `failures` failed attempts, or `None` after the last attempt.
    ///
    /// `random_number` is any number. The same number gives the same delay.
    pub fn delay(&self, failures: u32, random_number: u64) -> Option<TimeDelta> {
        if failures >= self.max_attempts.min(limits::ATTEMPTS) {
            return None;
        }
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of hours, not of ages")]
        let (base, maximum) = (self.backoff_ms as f64, self.max_backoff_ms as f64);
        let wait = (base * self.multiplier.max(0.0).powi(exponent)).min(maximum);
        #[expect(clippy::cast_precision_loss, reason = "a fraction needs few bits")]
        let share = if self.jitter { 0.5 + (random_number % 1_024) as f64 / 2_048.0 } else { 1.0 };
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
        Some(TimeDelta::microseconds((wait * share * 1_000.0) as i64))
    }
}
