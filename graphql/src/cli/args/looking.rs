//! What is looked at, and how much of it.

use clap::{Args, Subcommand, ValueEnum};

/// What to tell about, and how much.
#[derive(Args, Debug)]
pub(in crate::cli) struct DebugArgs {
    /// `req_…`, or a `plan_…` or `exec_…` of it.
    pub(in crate::cli) id: String,
    /// Show every value, and all of how the plan came to be.
    #[arg(long)]
    pub(in crate::cli) full: bool,
}

/// What to list.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum List {
    /// Requests.
    Requests {
        /// Only those whose query has these words.
        #[arg(long)]
        search: Option<String>,
        /// Only those with an execution in this state.
        #[arg(long, value_enum, ignore_case = true)]
        state: Option<State>,
        #[command(flatten)]
        since: Since,
        #[command(flatten)]
        part: Part,
    },
    /// Plans that were saved under a name, by name.
    Saved,
    /// Plans.
    Plans {
        /// Only those whose query has these words.
        #[arg(long)]
        search: Option<String>,
        /// Only those of this request.
        #[arg(long, value_name = "REQUEST_ID")]
        request: Option<String>,
        #[command(flatten)]
        part: Part,
    },
    /// Executions.
    Executions {
        /// Only those in one of these states.
        #[arg(long, value_enum, ignore_case = true, value_delimiter = ',')]
        state: Vec<State>,
        /// Only those of this request.
        #[arg(long, value_name = "REQUEST_ID")]
        request: Option<String>,
        /// Only those of this plan.
        #[arg(long, value_name = "PLAN_ID")]
        plan: Option<String>,
        /// Only those whose plan uses this tool.
        #[arg(long, value_name = "NAME")]
        tool: Option<String>,
        #[command(flatten)]
        since: Since,
        #[command(flatten)]
        part: Part,
    },
}

/// Created when.
#[derive(Args, Debug)]
pub(in crate::cli) struct Since {
    /// Created not before, such as `2026-01-02T03:04:05Z`.
    #[arg(long, value_name = "TIME")]
    pub(in crate::cli) from: Option<String>,
    /// Created before.
    #[arg(long, value_name = "TIME")]
    pub(in crate::cli) to: Option<String>,
}

/// Which part of a list.
#[derive(Args, Debug)]
pub(in crate::cli) struct Part {
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(in crate::cli) first: i32,
    /// Behind the end of another part.
    #[arg(long, value_name = "CURSOR")]
    pub(in crate::cli) after: Option<String>,
}

/// The state of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(in crate::cli) enum State {
    Pending,
    InProgress,
    Paused,
    Waiting,
    Compensating,
    Completed,
    Failed,
    Cancelled,
}
