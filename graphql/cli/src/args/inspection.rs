use clap::{Args, Subcommand, ValueEnum};

#[derive(Args, Debug)]
pub(crate) struct DebugArgs {
    /// `req_…`, or `plan_…` or `exec_…` of the request.
    pub(crate) id: String,
    /// Show every value and the whole transcript.
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    /// Only actions of this token or user, or of a kind of actor: `ops`, `token:ops`, `user`,
    /// `local`, `faber`.
    #[arg(long, value_name = "ACTOR")]
    pub(crate) actor: Option<String>,
    /// Only this action, such as `approve` or `set_context`.
    #[arg(long, value_name = "ACTION")]
    pub(crate) action: Option<String>,
    /// Only actions at or after this time, such as `2026-01-02T03:04:05Z`, or an age such as `7d`.
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only actions before this time, or an age.
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Only actions on this execution, `exec_…`.
    #[arg(long, value_name = "EXECUTION_ID")]
    pub(crate) execution: Option<String>,
    #[command(flatten)]
    pub(crate) part: PageArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Print the spans of an execution and of its sub-plans as OpenTelemetry JSON, from the log.
    Export {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum List {
    /// Requests.
    Requests {
        /// Only entries whose query contains these words.
        #[arg(long)]
        search: Option<String>,
        /// Only requests with an execution in this state.
        #[arg(long, value_enum, ignore_case = true)]
        state: Option<State>,
        /// Only requests with an execution that waits for a person or a signal, or is paused.
        #[arg(long)]
        needs_person: bool,
        #[command(flatten)]
        since: CreatedRange,
        #[command(flatten)]
        part: PageArgs,
    },
    /// Saved plans, by name.
    Saved,
    /// Workers whose lease has not expired, with their nodes.
    Workers,
    /// Plans.
    Plans {
        /// Only entries whose query contains these words.
        #[arg(long)]
        search: Option<String>,
        /// Only entries of this request.
        #[arg(long, value_name = "REQUEST_ID")]
        request: Option<String>,
        #[command(flatten)]
        part: PageArgs,
    },
    /// Executions.
    Executions {
        /// Only executions in one of these states.
        #[arg(long, value_enum, ignore_case = true, value_delimiter = ',')]
        state: Vec<State>,
        /// Only entries of this request.
        #[arg(long, value_name = "REQUEST_ID")]
        request: Option<String>,
        /// Only executions of this plan.
        #[arg(long, value_name = "PLAN_ID")]
        plan: Option<String>,
        /// Only executions whose plan uses this tool.
        #[arg(long, value_name = "NAME")]
        tool: Option<String>,
        /// Only executions that wait for a person or a signal, or are paused.
        #[arg(long)]
        needs_person: bool,
        #[command(flatten)]
        details: DetailFilters,
        #[command(flatten)]
        since: CreatedRange,
        #[command(flatten)]
        part: PageArgs,
    },
}

#[derive(Args, Debug)]
pub(crate) struct DetailFilters {
    /// Only executions with this label: `team=shop`, or `team` for any value. Repeatable.
    #[arg(long = "label", value_name = "KEY[=VALUE]")]
    pub(crate) labels: Vec<String>,
    /// Only executions whose first error has this code, such as `tool.timeout`.
    #[arg(long, value_name = "CODE")]
    pub(crate) error: Option<String>,
    /// Only executions whose first error comes from a step that calls this tool: `set.name`, or the name
    /// alone if one tool of this name failed.
    #[arg(long, value_name = "NAME")]
    pub(crate) failed_tool: Option<String>,
    /// Only executions whose first error has these words in its code or message.
    #[arg(long, value_name = "WORDS")]
    pub(crate) error_text: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct CreatedRange {
    /// Created at or after this time, such as `2026-01-02T03:04:05Z`, or an age such as `1h`.
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// Created before this time, or an age.
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct PageArgs {
    /// Maximum number of entries.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) first: i32,
    /// Show the page after this cursor, which the previous page printed.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
}

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
