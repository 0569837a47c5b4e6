use std::path::PathBuf;

use clap::{Args, ValueEnum};
use planner::reuse::RetryScope;
use shared::{clock::Timestamp, limits};

use super::{Planning, labels::parse_label};

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The request, in words.
    #[arg(required_unless_present_any = ["plan", "saved"])]
    pub(crate) query: Option<String>,
    /// A plan as JSON or YAML; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query", "toolsets", "planner", "cache", "guard"])]
    pub(crate) plan: Option<PathBuf>,
    /// Execute the plan that was saved under this name.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["query", "plan", "toolsets", "planner", "cache", "guard"])]
    pub(crate) saved: Option<String>,
    /// Execute a plan without asking even if it has doubts, and approve its steps.
    #[arg(long, short, conflicts_with_all = ["plan", "saved"])]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) planning: Planning,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Args, Debug)]
pub(crate) struct AgentArgs {
    /// The request, in words.
    pub(crate) query: String,
    /// Maximum number of turns with tool calls, 0 to 32.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) max_tool_turns: u32,
    /// Only tools of this toolset; repeatable.
    #[arg(long = "toolset", value_name = "NAME")]
    pub(crate) toolsets: Vec<String>,
    /// The model: `model`, its provider's name, or its name.
    #[arg(long, value_name = "NAME")]
    pub(crate) planner: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ExecuteArgs {
    /// `plan_…`, `req_…` for its newest plan, or `exec_…` to continue it.
    pub(crate) id: String,
    /// Do not ask before repeating a call of a once tool that the plan's last execution made.
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Args, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Options {
    /// Run one step at a time, or all ready steps.
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) mode: Option<Mode>,
    /// Maximum number of steps that run at the same time.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) max_parallel: Option<i32>,
    /// A key that makes the start safe to repeat: a second start with the same key returns the
    /// first execution.
    #[arg(long, value_name = "KEY")]
    pub(crate) idempotency_key: Option<String>,
    /// The deadline in milliseconds after the start.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) deadline_ms: Option<i32>,
    /// Fail a step if one of its templates has no value; with `false`, keep the text of the
    /// template. By default, steps of READ tools keep the text, and all other steps fail.
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) strict_templates: Option<bool>,
    /// The input of the plan, as JSON: `{{input.x}}`; `@FILE` reads a file, `@-` standard input.
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// Undo steps that succeeded if the execution fails or is cancelled. This is the default if a
    /// step of the plan or of a sub-plan has `compensate`, unless `--replans` or a `flow.replan`
    /// step allows automatic replans.
    #[arg(long, conflicts_with = "no_compensate")]
    pub(crate) compensate: bool,
    /// Undo nothing.
    #[arg(long)]
    pub(crate) no_compensate: bool,
    /// Check everything, but call no tool.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Start no step before this time, such as `2026-01-02T03:04:05Z`.
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) start_at: Option<String>,
    /// Workers claim executions of higher priority first.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) priority: Option<i32>,
    /// A label such as `team=shop`, by which executions can be found and counted. A new request
    /// gets it, too. Repeatable.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Maximum number of automatic replans, which follow a failure or a `flow.replan` step.
    #[arg(long, value_name = "N", value_parser = parse_replans())]
    pub(crate) replans: Option<i32>,
    /// If this process lacks a tool, wait for the tool instead of ending with status 3.
    #[arg(long)]
    pub(crate) wait: bool,
}

impl Options {
    pub(crate) fn compensate_on_failure(&self) -> Option<bool> {
        (self.compensate || self.no_compensate).then_some(self.compensate)
    }
}

#[derive(Args, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct RetryArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// Run the steps that did not succeed, and reuse the outputs of all other steps (default).
    #[arg(long, conflicts_with_all = ["from_step", "all"])]
    pub(crate) failed: bool,
    /// Run this step and all later steps; reuse the steps before it that succeeded.
    #[arg(long, value_name = "STEP", conflicts_with = "all")]
    pub(crate) from_step: Option<String>,
    /// Run every step again.
    #[arg(long)]
    pub(crate) all: bool,
    /// Repeat calls of once tools without asking, even calls whose outcome is unknown.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// If this process lacks a tool, wait for the tool instead of ending with status 3.
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ForkArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// Another version of the plan, `plan_…`.
    #[arg(long, value_name = "PLAN")]
    pub(crate) plan: Option<String>,
    /// The new input, as JSON; `@FILE` reads a file, `@-` standard input.
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// Change a parameter of a step. VALUE is JSON, otherwise text. `STEP=JSON` replaces all
    /// parameters. Repeatable.
    #[arg(long, value_name = "STEP.PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Give the output of a step, as JSON, so that the step does not run; `STEP=@FILE` reads a file.
    /// Repeatable.
    #[arg(long = "output", value_name = "STEP=JSON")]
    pub(crate) outputs: Vec<String>,
    /// Make calls of once tools without asking, even calls whose outcome is unknown.
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// If this process lacks a tool, wait for the tool instead of ending with status 3.
    #[arg(long)]
    pub(crate) wait: bool,
}

impl RetryArgs {
    /// Returns the value of `RetryMode` in the API.
    pub(crate) fn scope_name(&self) -> &'static str {
        match (&self.from_step, self.all) {
            (Some(_), _) => "FROM_STEP",
            (None, true) => "ALL",
            (None, false) => "FAILED",
        }
    }

    pub(crate) fn retry_scope(&self) -> RetryScope<'_> {
        match (&self.from_step, self.all) {
            (Some(step), _) => RetryScope::FromStep(step),
            (None, true) => RetryScope::All,
            (None, false) => RetryScope::Failed,
        }
    }
}

fn parse_replans() -> clap::builder::RangedI64ValueParser<i32> {
    clap::value_parser!(i32).range(0..=i64::from(limits::REPLANS))
}

/// Checks a time when the arguments are parsed, so that a mistake costs no planning.
fn parse_time(text: &str) -> Result<String, String> {
    let hint = "write a time such as `2026-01-02T03:04:05Z`";
    text.parse::<Timestamp>().map(|_| text.to_owned()).map_err(|err| format!("{err}; {hint}"))
}

/// Run one step at a time, or all ready steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// One step at a time, in the plan's order.
    Sequential,
    /// All steps that are ready.
    Parallel,
}

#[derive(Args, Debug)]
pub(crate) struct ApproveArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// The name of the step; `step[3]` is one item of a loop.
    pub(crate) step: String,
    /// Reject the step.
    #[arg(long)]
    pub(crate) reject: bool,
    /// A comment, recorded in the log.
    #[arg(long)]
    pub(crate) comment: Option<String>,
    /// Only record the answer; another process continues the execution.
    #[arg(long)]
    pub(crate) no_run: bool,
    /// Call a `once` tool again although its last call may have taken effect, without asking.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SignalArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// The signal's name.
    pub(crate) name: String,
    /// The payload, as JSON.
    pub(crate) payload: Option<String>,
    /// Only record the signal; another process continues the execution.
    #[arg(long)]
    pub(crate) no_run: bool,
}

#[derive(Args, Debug)]
pub(crate) struct SettleArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(crate) id: String,
    /// The name of the step; `step[3]` is one item of a loop.
    pub(crate) step: String,
    /// The item of a loop, from 0.
    #[arg(long, value_name = "N")]
    pub(crate) item: Option<u32>,
    /// The call took effect. JSON is its output, null by default.
    #[arg(
        long, value_name = "JSON", num_args = 0..=1, allow_negative_numbers = true,
        required_unless_present = "failed", conflicts_with = "failed"
    )]
    #[expect(clippy::option_option, reason = "the flag and its value are optional")]
    pub(crate) succeeded: Option<Option<String>>,
    /// The call had no effect.
    #[arg(long)]
    pub(crate) failed: bool,
    /// A comment, recorded with the decision.
    #[arg(long)]
    pub(crate) comment: Option<String>,
    /// Only record the decision; another process continues the execution.
    #[arg(long)]
    pub(crate) no_run: bool,
}

impl SettleArgs {
    pub(crate) fn step_or_item_name(&self) -> String {
        let item = self.item.map(|item| format!("[{item}]")).unwrap_or_default();
        format!("{}{item}", self.step)
    }
}
