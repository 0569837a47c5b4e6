//! How a step is carried out: attempts, time, what a failure means.

use std::{fmt, time::Duration};

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use crate::{limits, tool::Effect};

/// How a step is carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepPolicy {
    /// What a second call does.
    pub effect: Effect,
    /// How long an attempt may take, in milliseconds.
    pub timeout_ms: u64,
    /// How often and when it is tried again.
    pub retry: RetryPolicy,
    /// What a failure means for the others.
    pub on_error: OnError,
    /// Whether a person must agree before it starts.
    pub requires_approval: bool,
    /// How long an attempt may take without saying anything, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
    /// How long what it returns may be taken for what it would return, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_ttl_ms: Option<u64>,
    /// How many items of its list are done at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Whether a template that finds nothing fails the step, whatever the options and its effect say.
    #[serde(skip_serializing_if = "Option::is_none")]
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

impl StepPolicy {
    /// Returns how long an attempt may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Returns how long an attempt may take, where the plan says so. The usual timeout is for
    /// calls: a sleep says itself how long it takes, and a plan is as long as it is.
    pub fn own_timeout_ms(&self) -> Option<u64> {
        (self.timeout() != limits::STEP_TIMEOUT).then_some(self.timeout_ms)
    }

    /// Returns how many items of its list are done at once.
    pub fn width(&self) -> u32 {
        self.max_parallel.unwrap_or(limits::MAX_PARALLEL).max(1)
    }
}

/// What the failure of a step means for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnError {
    /// The execution fails.
    #[default]
    Fail,
    /// The step's dependents are skipped, the rest goes on.
    Continue,
    /// The step's output is null, and everything goes on.
    Ignore,
    /// A person decides.
    Wait,
}

impl OnError {
    /// Returns the word that plans use.
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

/// How often a step is tried, and how long apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryPolicy {
    /// Tries in all. Interruptions by crashes do not count.
    pub max_attempts: u32,
    /// The wait before the second try, in milliseconds.
    pub backoff_ms: u64,
    /// What the wait is multiplied by each time.
    pub multiplier: f64,
    /// The longest wait, in milliseconds.
    pub max_backoff_ms: u64,
    /// Whether each wait is drawn between half of it and all of it.
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
    /// Returns how long to wait after `failures` failed tries, or nothing if that was the last.
    ///
    /// `dice` is any number; the same number gives the same wait.
    pub fn delay(&self, failures: u32, dice: u64) -> Option<TimeDelta> {
        if failures >= self.max_attempts.min(limits::ATTEMPTS) {
            return None;
        }
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of hours, not of ages")]
        let (base, most) = (self.backoff_ms as f64, self.max_backoff_ms as f64);
        let wait = (base * self.multiplier.max(0.0).powi(exponent)).min(most);
        #[expect(clippy::cast_precision_loss, reason = "a fraction needs few bits")]
        let share = if self.jitter { 0.5 + (dice % 1_024) as f64 / 2_048.0 } else { 1.0 };
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
        Some(TimeDelta::microseconds((wait * share * 1_000.0) as i64))
    }
}
