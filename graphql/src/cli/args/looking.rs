//! Arguments of `faber debug` and `faber list`.

use clap::{Args, Subcommand, ValueEnum};

/// Arguments of `faber debug`.
#[derive(Args, Debug)]
pub(crate) struct DebugArgs {
    /// `req_…`, or a `plan_…` or `exec_…` of it.
    pub(crate) id: String,
    /// Show every value, and all of how the plan came to be.
    #[arg(long)]
    pub(crate) full: bool,
}

/// The kind of objects to list.
#[derive(Debug, Subcommand)]
pub(crate) enum List {
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

/// A period of creation.
#[derive(Args, Debug)]
pub(crate) struct Since {
    /// Created not before, such as `2026-01-02T03:04:05Z`.
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// Created before.
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
}

/// A page of a list.
#[derive(Args, Debug)]
pub(crate) struct Part {
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) first: i32,
    /// Behind the end of another part.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

/// The state of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum State {
    Pending,
    InProgress,
    Paused,
    Waiting,
    Compensating,
    Completed,
    Failed,
    Cancelled,
}
