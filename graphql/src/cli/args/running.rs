//! Arguments of commands that start or steer executions.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use planner::reuse::RetryScope;
use shared::{clock::Timestamp, limits};

use super::Planning;

/// Arguments of `faber run`.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The request, in words.
    #[arg(required_unless_present_any = ["plan", "saved"])]
    pub(crate) query: Option<String>,
    /// A plan as JSON or YAML; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query", "toolsets", "planner", "cache"])]
    pub(crate) plan: Option<PathBuf>,
    /// A plan that was saved under this name.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["query", "plan", "toolsets", "planner", "cache"])]
    pub(crate) saved: Option<String>,
    #[command(flatten)]
    pub(crate) planning: Planning,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Arguments of `faber agent`.
#[derive(Args, Debug)]
pub(crate) struct AgentArgs {
    /// The request, in words.
    pub(crate) query: String,
    /// The most turns in which it calls tools, 0 to 32.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) max_tool_turns: u32,
    /// Only tools of this set; may be given several times.
    #[arg(long = "toolset", value_name = "NAME")]
    pub(crate) toolsets: Vec<String>,
    /// The model: `model`, the name of its provider, or its own.
    #[arg(long, value_name = "NAME")]
    pub(crate) planner: Option<String>,
}

/// Arguments of `faber execute`.
#[derive(Args, Debug)]
pub(crate) struct ExecuteArgs {
    /// `plan_…`, `req_…` for its newest plan, or `exec_…` to carry it on.
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// Options of an execution.
#[derive(Args, Debug, Default)]
pub(crate) struct Options {
    /// One step at a time, or all steps that are ready.
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) mode: Option<Mode>,
    /// Steps at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) max_parallel: Option<i32>,
    /// The same key gives the same execution.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// The deadline, counted from its start.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) deadline_ms: Option<i32>,
    /// Fail each step whose template finds nothing, or with `false` none. Left out, steps of READ
    /// tools run with the text as written, and all others fail.
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) strict_templates: Option<bool>,
    /// The input of the plan, as JSON: `{{input.x}}`; `@FILE` reads a file, `@-` standard input.
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// Undo what succeeded where it fails or is cancelled, by the steps' `compensate`.
    #[arg(long)]
    pub(crate) compensate: bool,
    /// Check everything and call nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Begin no step before this moment, such as `2026-01-02T03:04:05Z`.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) start_at: Option<String>,
    /// Higher goes first where workers have a choice.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: Option<i32>,
    /// The most automatic replans, after a failure or when a step asks for one.
    #[arg(long, value_name = "N", value_parser = times())]
    pub(crate) replans: Option<i32>,
    /// Wait for a tool that this process lacks instead of ending with status 3.
    #[arg(long)]
    pub(crate) wait: bool,
}

/// Arguments of `faber retry`.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct RetryArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// Do the steps again that did not succeed, and keep every output: what `retry` does by itself.
    #[arg(long, conflicts_with_all = ["from_step", "all"])]
    pub(crate) failed: bool,
    /// The step to begin with; what succeeded before it is not done again.
    #[arg(long, value_name = "STEP", conflicts_with = "all")]
    pub(crate) from_step: Option<String>,
    /// Do all of it again.
    #[arg(long)]
    pub(crate) all: bool,
    /// Do not ask before a call with an effect is repeated.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Wait for a tool that this process lacks instead of ending with status 3.
    #[arg(long)]
    pub(crate) wait: bool,
}

impl RetryArgs {
    /// Returns how the API calls how much is done again.
    pub(crate) fn mode(&self) -> &'static str {
        match (&self.from_step, self.all) {
            (Some(_), _) => "FROM_STEP",
            (None, true) => "ALL",
            (None, false) => "FAILED",
        }
    }

    /// Returns how much is done again.
    pub(crate) fn scope(&self) -> RetryScope<'_> {
        match (&self.from_step, self.all) {
            (Some(step), _) => RetryScope::FromStep(step),
            (None, true) => RetryScope::All,
            (None, false) => RetryScope::Failed,
        }
    }
}

/// Takes how often something may be planned anew.
fn times() -> clap::builder::RangedI64ValueParser<i32> {
    clap::value_parser!(i32).range(0..=i64::from(limits::REPLANS))
}

/// Refuses what is no moment, before anything is planned for it.
fn moment(text: &str) -> Result<String, String> {
    let hint = "write a moment like `2026-01-02T03:04:05Z`";
    text.parse::<Timestamp>().map(|_| text.to_owned()).map_err(|err| format!("{err}; {hint}"))
}

/// One step at a time, or all steps that are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// One step at a time, in the plan's order.
    Sequential,
    /// All steps that are ready.
    Parallel,
}

/// Arguments of `faber approve`.
#[derive(Args, Debug)]
pub(crate) struct ApproveArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// The step's name within the plan; `step[3]` is one item of a `forEach`.
    pub(crate) step: String,
    /// Refuse instead.
    #[arg(long)]
    pub(crate) reject: bool,
    /// A comment, recorded in the log.
    #[arg(long)]
    pub(crate) comment: Option<String>,
    /// Only record the answer: another process carries the execution on.
    #[arg(long)]
    pub(crate) no_run: bool,
}

/// Arguments of `faber signal`.
#[derive(Args, Debug)]
pub(crate) struct SignalArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// The signal's name.
    pub(crate) name: String,
    /// Its payload, as JSON.
    pub(crate) payload: Option<String>,
    /// Only record the signal: another process carries the execution on.
    #[arg(long)]
    pub(crate) no_run: bool,
}
