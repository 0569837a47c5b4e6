//! What is executed, and how.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use planner::reuse::RetryScope;
use shared::{clock::Timestamp, limits};

use super::Planning;

/// What to run, and how.
#[derive(Args, Debug)]
pub(in crate::cli) struct RunArgs {
    /// What is to be done, in words.
    #[arg(required_unless_present_any = ["plan", "saved"])]
    pub(in crate::cli) query: Option<String>,
    /// A plan as JSON or YAML; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query", "toolsets", "planner", "cache"])]
    pub(in crate::cli) plan: Option<PathBuf>,
    /// A plan that was saved under this name.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["query", "plan", "toolsets", "planner", "cache"])]
    pub(in crate::cli) saved: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) planning: Planning,
    #[command(flatten)]
    pub(in crate::cli) options: Options,
}

/// What an agent is to do.
#[derive(Args, Debug)]
pub(in crate::cli) struct AgentArgs {
    /// What is to be done, in words.
    pub(in crate::cli) query: String,
    /// How often it may call tools and see what comes of that, 0 to 32.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(in crate::cli) max_tool_turns: u32,
    /// Only tools of this set; may be given several times.
    #[arg(long = "toolset", value_name = "NAME")]
    pub(in crate::cli) toolsets: Vec<String>,
    /// Which model: `model`, the name of its provider, or its own.
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) planner: Option<String>,
}

/// What to execute, and how.
#[derive(Args, Debug)]
pub(in crate::cli) struct ExecuteArgs {
    /// `plan_…`, `req_…` for its newest plan, or `exec_…` to carry it on.
    pub(in crate::cli) id: String,
    #[command(flatten)]
    pub(in crate::cli) options: Options,
}

/// How a plan is executed.
#[derive(Args, Debug, Default)]
pub(in crate::cli) struct Options {
    /// One step at a time, or whatever is ready.
    #[arg(long, value_enum, ignore_case = true)]
    pub(in crate::cli) mode: Option<Mode>,
    /// Steps at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(in crate::cli) max_parallel: Option<i32>,
    /// The same key gives the same execution.
    #[arg(long, value_name = "KEY")]
    pub(in crate::cli) idempotency_key: Option<String>,
    /// How long it may take, from its start.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(i32).range(1..))]
    pub(in crate::cli) deadline_ms: Option<i32>,
    /// Fail each step whose template finds nothing, or with `false` none. Left out, steps of READ
    /// tools run with the text as written, and all others fail.
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true"
    )]
    pub(in crate::cli) strict_templates: Option<bool>,
    /// What the plan is given, as JSON: `{{input.x}}`; `@FILE` reads a file, `@-` standard input.
    #[arg(long, value_name = "JSON")]
    pub(in crate::cli) input: Option<String>,
    /// Undo what succeeded where it fails or is cancelled, by the steps' `compensate`.
    #[arg(long)]
    pub(in crate::cli) compensate: bool,
    /// Check everything and call nothing.
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    /// Begin no step before this moment, such as `2026-01-02T03:04:05Z`.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(in crate::cli) start_at: Option<String>,
    /// Higher goes first where workers have a choice.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(in crate::cli) priority: Option<i32>,
    /// How often a model plans anew by itself where it does not end well, or a step asks for it.
    #[arg(long, value_name = "N", value_parser = times())]
    pub(in crate::cli) replans: Option<i32>,
    /// Wait for a tool that this process lacks instead of ending with status 3.
    #[arg(long)]
    pub(in crate::cli) wait: bool,
}

/// What to retry, and how much of it.
#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(in crate::cli) struct RetryArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(in crate::cli) id: String,
    /// Do the steps again that did not succeed, and keep every output: what `retry` does by itself.
    #[arg(long, conflicts_with_all = ["from_step", "all"])]
    pub(in crate::cli) failed: bool,
    /// The step to begin with; what succeeded before it is not done again.
    #[arg(long, value_name = "STEP", conflicts_with = "all")]
    pub(in crate::cli) from_step: Option<String>,
    /// Do all of it again.
    #[arg(long)]
    pub(in crate::cli) all: bool,
    /// Do not ask before a call with an effect is repeated.
    #[arg(long, short)]
    pub(in crate::cli) yes: bool,
    /// Wait for a tool that this process lacks instead of ending with status 3.
    #[arg(long)]
    pub(in crate::cli) wait: bool,
}

impl RetryArgs {
    /// Returns how the API calls how much is done again.
    pub(in crate::cli) fn mode(&self) -> &'static str {
        match (&self.from_step, self.all) {
            (Some(_), _) => "FROM_STEP",
            (None, true) => "ALL",
            (None, false) => "FAILED",
        }
    }

    /// Returns how much is done again.
    pub(in crate::cli) fn scope(&self) -> RetryScope<'_> {
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

/// One step at a time, or whatever is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Mode {
    /// One step at a time, in the plan's order.
    Sequential,
    /// Whatever is ready.
    Parallel,
}

/// Which step may go on, or not.
#[derive(Args, Debug)]
pub(in crate::cli) struct ApproveArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(in crate::cli) id: String,
    /// The step's name within the plan; `step[3]` is one item of a `forEach`.
    pub(in crate::cli) step: String,
    /// Refuse instead.
    #[arg(long)]
    pub(in crate::cli) reject: bool,
    /// Why, for those who look at it later.
    #[arg(long)]
    pub(in crate::cli) comment: Option<String>,
    /// Only record the answer: another process carries the execution on.
    #[arg(long)]
    pub(in crate::cli) no_run: bool,
}

/// What to tell an execution.
#[derive(Args, Debug)]
pub(in crate::cli) struct SignalArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(in crate::cli) id: String,
    /// The signal's name.
    pub(in crate::cli) name: String,
    /// What it brings, as JSON.
    pub(in crate::cli) payload: Option<String>,
    /// Only record the signal: another process carries the execution on.
    #[arg(long)]
    pub(in crate::cli) no_run: bool,
}
