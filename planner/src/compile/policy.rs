use std::fmt::Display;

use shared::{
    diagnostic::Diagnostic,
    limits,
    plan::{OnError, RetryPolicy, StepKind, StepPolicy},
    tool::Effect,
};

use super::{compute, place, report::Report, tools::ToolChoice};
use crate::{
    draft::{DraftCompensation, DraftRetry, DraftStep},
    suggest::did_you_mean,
};

/// The longest timeout and the longest wait between attempts: a year, in milliseconds.
pub(super) const MAX_TIME_MS: u64 = 365 * 24 * 60 * 60 * 1_000;
pub(super) const MAX_MULTIPLIER: f64 = 1_000.0;
pub(super) const ON_ERROR_RULES: [OnError; 4] =
    [OnError::Fail, OnError::Continue, OnError::Ignore, OnError::Wait];

pub(super) const MAX_PARALLEL: u64 = 10_000;

/// Reads a step's policy. A value out of range is reported and replaced by its default.
pub(super) fn read_policy(
    index: usize,
    step: &DraftStep,
    tool_choice: &ToolChoice<'_>,
    report: &mut Report,
) -> StepPolicy {
    let default = StepPolicy::default();
    let mut range =
        RangeChecker { step_index: index, field_prefix: "", code: "plan.invalid_timeout", report };
    let timeout_ms = range.check_range("timeoutMs", step.timeout_ms, 1, MAX_TIME_MS);
    let idle_timeout_ms = range.check_range("idleTimeoutMs", step.idle_timeout_ms, 1, MAX_TIME_MS);
    let retry = step.retry.as_ref().map(|retry| read_retry(index, "", retry, report));
    let on_error =
        step.on_error.as_deref().and_then(|written| read_on_error(index, written, report));
    StepPolicy {
        effect: tool_choice.definition.map_or(default.effect, |definition| definition.effect),
        timeout_ms: timeout_ms.unwrap_or(default.timeout_ms),
        retry: retry.unwrap_or(default.retry),
        on_error: on_error.unwrap_or(default.on_error),
        requires_approval: step.requires_approval.unwrap_or(default.requires_approval),
        idle_timeout_ms,
        cache_ttl_ms: read_cache(index, step, tool_choice, report),
        max_parallel: read_parallel(index, step, report),
        // An expression must fail without its value, because calculating with the text of a
        // template would hide the missing value.
        strict_templates: step
            .strict_templates
            .or_else(|| compute::is_compute(&tool_choice.tool).then_some(true)),
    }
}

pub(super) fn read_undo(
    index: usize,
    undo: &DraftCompensation,
    tool_choice: &ToolChoice<'_>,
    report: &mut Report,
) -> StepPolicy {
    const COMPENSATION_PREFIX: &str = "compensate.";
    let default = StepPolicy::default();
    let mut range = RangeChecker {
        step_index: index,
        field_prefix: COMPENSATION_PREFIX,
        code: "plan.invalid_timeout",
        report,
    };
    let timeout_ms = range.check_range("timeoutMs", undo.timeout_ms, 1, MAX_TIME_MS);
    let retry =
        undo.retry.as_ref().map(|retry| read_retry(index, COMPENSATION_PREFIX, retry, report));
    StepPolicy {
        effect: tool_choice.definition.map_or(default.effect, |definition| definition.effect),
        timeout_ms: timeout_ms.unwrap_or(default.timeout_ms),
        retry: retry.unwrap_or(default.retry),
        ..default
    }
}

fn read_parallel(index: usize, step: &DraftStep, report: &mut Report) -> Option<u32> {
    if step.max_parallel.is_some() && step.for_each.is_none() {
        report.warning(index, || {
            let message = "`maxParallel` limits the items of a `forEach`, which this step does \
                           not have";
            let place = place::field_path(index, "maxParallel");
            Diagnostic::warning("plan.max_parallel_unused", place, message)
                .with_help("remove it; the execution has an option `maxParallel` for its steps")
        });
        return None;
    }
    let mut range = RangeChecker {
        step_index: index,
        field_prefix: "",
        code: "plan.invalid_max_parallel",
        report,
    };
    let maximum = range.check_range("maxParallel", step.max_parallel, 1, MAX_PARALLEL)?;
    u32::try_from(maximum).ok()
}

fn read_cache(
    index: usize,
    step: &DraftStep,
    tool_choice: &ToolChoice<'_>,
    report: &mut Report,
) -> Option<u64> {
    const INVALID_CACHE: &str = "plan.invalid_cache";
    let mut range =
        RangeChecker { step_index: index, field_prefix: "", code: INVALID_CACHE, report };
    let ttl = range.check_range("cacheTtlMs", step.cache_ttl_ms, 1, MAX_TIME_MS)?;
    if let Some(message) = reason_not_cached(tool_choice) {
        report.error(index, || {
            Diagnostic::error(INVALID_CACHE, place::field_path(index, "cacheTtlMs"), message)
                .with_help("remove `cacheTtlMs`; only tools with the effect READ can be cached")
        });
        return None;
    }
    Some(ttl)
}

/// Returns the reason why the output of a step cannot be cached. Returns `None` if it can be
/// cached, or if the tool is unknown.
fn reason_not_cached(tool_choice: &ToolChoice<'_>) -> Option<String> {
    let tool = &tool_choice.tool;
    if tool_choice.plan.is_some() {
        return Some(format!(
            "`{tool}` is a plan, and with a cached output Faber would not execute the plan"
        ));
    }
    let effect = match tool_choice.definition?.effect {
        Effect::Read if StepKind::of_tool(tool) == StepKind::Call => return None,
        Effect::Read => return Some(format!("`{tool}` only waits, so it has no output to cache")),
        Effect::Idempotent => "IDEMPOTENT",
        Effect::Once => "ONCE",
    };
    Some(format!("`{tool}` has the effect {effect}, which would not happen with a cached output"))
}

fn read_retry(
    index: usize,
    field_prefix: &'static str,
    retry: &DraftRetry,
    report: &mut Report,
) -> RetryPolicy {
    let default = RetryPolicy::default();
    let mut range =
        RangeChecker { step_index: index, field_prefix, code: "plan.invalid_retry", report };
    let attempts =
        range.check_range("retry.maxAttempts", retry.max_attempts, 1, u64::from(limits::ATTEMPTS));
    let backoff = range.check_range("retry.backoffMs", retry.backoff_ms, 0, MAX_TIME_MS);
    let max_backoff = range.check_range("retry.maxBackoffMs", retry.max_backoff_ms, 0, MAX_TIME_MS);
    let multiplier = retry.multiplier.filter(|number| {
        let is_inside = (0.0..=MAX_MULTIPLIER).contains(number);
        if !is_inside {
            range.report_out_of_range("retry.multiplier", number, 0, &MAX_MULTIPLIER);
        }
        is_inside
    });
    RetryPolicy {
        max_attempts: attempts
            .and_then(|number| u32::try_from(number).ok())
            .unwrap_or(default.max_attempts),
        backoff_ms: backoff.unwrap_or(default.backoff_ms),
        multiplier: multiplier.unwrap_or(default.multiplier),
        max_backoff_ms: max_backoff.unwrap_or(default.max_backoff_ms),
        jitter: retry.jitter.unwrap_or(default.jitter),
    }
}

fn read_on_error(index: usize, written: &str, report: &mut Report) -> Option<OnError> {
    let found = ON_ERROR_RULES.into_iter().find(|rule| rule.as_str() == written);
    if found.is_none() {
        report.error(index, || {
            let message = format!(
                "`{}` is not `fail`, `continue`, `ignore` or `wait`",
                super::names::shorten_name(written)
            );
            let help = did_you_mean(written, ON_ERROR_RULES.iter().map(|rule| rule.as_str()));
            let help = help.unwrap_or_else(|| "remove it for `fail`".to_owned());
            Diagnostic::error("plan.invalid_on_error", place::field_path(index, "onError"), message)
                .with_help(help)
        });
    }
    found
}

struct RangeChecker<'a> {
    step_index: usize,
    field_prefix: &'static str,
    code: &'static str,
    report: &'a mut Report,
}

impl RangeChecker<'_> {
    fn check_range(
        &mut self,
        field: &str,
        value: Option<i64>,
        minimum: u64,
        maximum: u64,
    ) -> Option<u64> {
        let value = value?;
        let number =
            u64::try_from(value).ok().filter(|number| (minimum..=maximum).contains(number));
        if number.is_none() {
            self.report_out_of_range(field, &value, minimum, &maximum);
        }
        number
    }

    fn report_out_of_range(
        &mut self,
        field: &str,
        value: &dyn Display,
        minimum: u64,
        maximum: &dyn Display,
    ) {
        let (index, code) = (self.step_index, self.code);
        let place = || place::field_path(index, &format!("{}{field}", self.field_prefix));
        self.report.error(index, || {
            let message = format!("`{value}` is out of range");
            Diagnostic::error(code, place(), message)
                .with_help(format!("choose a number from {minimum} to {maximum}"))
        });
    }
}
