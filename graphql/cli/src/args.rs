//! The arguments of the command line. Doc comments on commands and options are the texts of
//! `--help`.

mod config;
mod counts;
mod inspection;
mod labels;
mod plans;
mod running;
mod toolkit;
mod tools;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::{
    config::ConfigCommand,
    counts::{CountKey, CountsArgs},
    inspection::{AuditArgs, CreatedRange, DebugArgs, DetailFilters, List, TraceCommand},
    plans::{ExportArgs, ExportFormat, Format, PlanArgs, Planning, SaveArgs, TestArgs},
    running::{
        AgentArgs, ApproveArgs, ExecuteArgs, ForkArgs, Options, RetryArgs, RunArgs, SettleArgs,
        SignalArgs,
    },
    toolkit::{ToolkitCommand, ToolkitFormat},
    tools::{Models, NewToolset, RankMethod, SelectArgs, Tools, Toolsets},
};
use crate::{
    bench::BenchArgs,
    config::{Flags, LogFormat},
};

/// Turns a request in words into a plan of tool calls and executes the plan.
#[derive(Debug, Parser)]
#[command(
    name = "faber",
    version,
    long_about = None,
    after_help = "Try: faber run \"Create author Alice with email alice@test.com, then create \
                  blog by Alice titled Hello about world\"",
    propagate_version = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// The store: `sqlite:PATH`, `mongodb://…` or `memory:` (`FABER_STORE`).
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The configuration file; default: `./faber.yaml`, if it exists (`FABER_CONFIG`).
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The form of the log: lines for people, or one JSON object per line (`FABER_LOG_FORMAT`).
    #[arg(long, global = true, value_name = "FORMAT", value_enum)]
    pub(crate) log_format: Option<LogFormat>,
    /// Send operations to this running server instead of opening the store (`FABER_SERVER`).
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Plan a query, or read a plan, then execute it and print the outputs.
    #[command(override_usage = "faber run [OPTIONS] <QUERY|--plan FILE|--saved NAME>")]
    Run(RunArgs),
    /// Plan a query and execute nothing.
    Plan(PlanArgs),
    /// Let the configured model answer a query by calling tools, turn by turn.
    Agent(AgentArgs),
    /// Execute a plan or the newest plan of a request, or continue an execution.
    Execute(ExecuteArgs),
    /// Watch an execution until it is finished.
    Watch {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
    },
    /// Cancel an execution, and undo it if it compensates.
    Cancel {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
        /// A reason, recorded in the log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Pause an execution: no further step starts.
    Pause {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
    },
    /// Resume a paused execution and drive it.
    Resume {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
        /// If this process lacks a tool, wait for the tool instead of ending with status 3.
        #[arg(long)]
        wait: bool,
    },
    /// Retry a finished execution: run the steps that did not succeed, or more steps.
    Retry(RetryArgs),
    /// Fork a finished execution: repeat it with changes, and keep the outputs that still fit.
    Fork(ForkArgs),
    /// Replan: let the configured model finish an execution that failed, was cancelled or asked for
    /// a replan, and execute the new plan.
    Replan {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
        #[command(flatten)]
        planning: Planning,
    },
    /// Approve or reject a step that waits for a person, and continue its execution.
    Approve(ApproveArgs),
    /// Record the outcome of a call that ended with an unknown outcome, and continue the execution.
    Settle(SettleArgs),
    /// Send a signal that a step waits for, and continue its execution.
    Signal(SignalArgs),
    /// Create the next version of a plan.
    Revise {
        /// The id of any version of the plan, `plan_…`.
        plan: String,
        /// The new plan as JSON or YAML; `-` is standard input.
        file: PathBuf,
    },
    /// Save a plan under a name, with the types of its inputs; `run --saved NAME` executes it.
    Save(SaveArgs),
    /// Test a plan: execute it with mocked tools in virtual time, and compare what happened.
    Test(TestArgs),
    /// Remove the name of a saved plan; the plan stays.
    Unsave {
        /// The name of the saved plan.
        name: String,
    },
    /// Export a plan for `run --plan` and `save --plan`, or with `--since` the history for
    /// `import`.
    #[command(
        override_usage = "faber export [OPTIONS] <PLAN>\n       faber export --since <TIME> [FILE]"
    )]
    Export(ExportArgs),
    /// Import the history that `export --since` wrote; skip entries that the store has already.
    Import {
        /// The file with one JSON object a line.
        file: PathBuf,
    },
    /// Write a backup of the store into one file, while other processes use the store.
    Backup {
        /// The file to write. An older backup of this name is replaced when the new one is
        /// complete.
        file: PathBuf,
    },
    /// Restore a backup into an empty store of any kind.
    Restore {
        /// The file that `faber backup` wrote.
        file: PathBuf,
    },
    /// Encrypt old values with the active key, so that the other keys can be removed.
    Rekey,
    /// Serve Faber's operations as an MCP server over standard input and output.
    Mcp,
    /// Remove finished executions that are older than an age, then plans and requests without
    /// references.
    Prune {
        /// The age since the execution finished: `30d`, `12h`, `90m`, `3600s`.
        #[arg(long, value_name = "AGE")]
        older_than: String,
    },
    /// List actions and who did them, newest first. With `--server`, the token needs the role
    /// `admin`.
    Audit(AuditArgs),
    /// Show everything about a request: its plans, executions, steps and failures.
    Debug(DebugArgs),
    /// List requests, plans or executions, newest first, or saved plans.
    List {
        #[command(subcommand)]
        subcommand: List,
    },
    /// Count executions by the tool and the code of their first error, or by other keys.
    Counts(CountsArgs),
    /// Write a blob that a tool returned to a file, or to standard output.
    Blob {
        /// The value of `$blob` in an output: `exec_…/SHA-256`, or `call/SHA-256` for a call
        /// outside plans.
        id: String,
        /// The file to write; default: standard output.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show the trace of an execution.
    Trace {
        #[command(subcommand)]
        subcommand: TraceCommand,
    },
    /// List, show, call, load and select tools.
    Tools {
        #[command(subcommand)]
        subcommand: Tools,
    },
    /// List, activate and deactivate toolsets.
    Toolsets {
        #[command(subcommand)]
        subcommand: Toolsets,
    },
    /// Log in to an MCP server with OAuth.
    Login {
        /// The name of the toolset, as in the configuration.
        #[arg(value_name = "TOOLSET")]
        set: String,
        /// Print the address and open no browser.
        #[arg(long)]
        no_browser: bool,
    },
    /// Remove a login and revoke it on the server.
    Logout {
        /// The name of the toolset, as in the configuration.
        #[arg(value_name = "TOOLSET")]
        set: String,
    },
    /// Show the toolkit: actions and their tools.
    Toolkit {
        #[command(subcommand)]
        subcommand: ToolkitCommand,
    },
    /// Download and list models for tool selection and planning.
    Models {
        #[command(subcommand)]
        subcommand: Models,
    },
    /// Serve the GraphQL API and drive executions.
    Serve {
        /// The address to listen on; port 0 picks a port (`FABER_LISTEN`) [default:
        /// 127.0.0.1:8080].
        #[arg(long, value_name = "ADDR")]
        listen: Option<String>,
        /// The name of this node in events, traces and `list workers`; default: the name of the
        /// machine (`FABER_NODE`).
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
    },
    /// Drive executions that other processes start, without serving the API.
    Worker {
        /// Serve `/metrics` and `/health/…` on this address; port 0 picks a port (`FABER_METRICS`).
        #[arg(long, value_name = "ADDR")]
        metrics: Option<String>,
        /// The name of this node in events, traces and `list workers`; default: the name of the
        /// machine (`FABER_NODE`).
        #[arg(long, value_name = "NAME")]
        node: Option<String>,
    },
    /// Measure the engine on this machine.
    Bench(BenchArgs),
    /// Print the GraphQL schema.
    Schema,
    /// Print the effective configuration and the origin of each value. Check a file, or print its
    /// JSON Schema.
    Config {
        #[command(subcommand)]
        subcommand: Option<ConfigCommand>,
    },
    /// Check the configuration, the store and the tools, and print remedies.
    Doctor {
        /// Check only whether the server of `--server` is ready (`/health/ready`), for health
        /// checks.
        #[arg(long)]
        ready: bool,
    },
    /// Print a completion script for a shell.
    Completions {
        /// The shell that runs the script.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands into a folder.
    #[command(hide = true)]
    Man {
        /// The folder, which is created if it is missing.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Demo: a small blog as an MCP server over standard input and output.
    BlogMcp {
        /// The data file (`FABER_BLOG_FILE`).
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

impl Cli {
    pub(crate) fn flags(&self) -> Flags {
        let (listen, metrics, node) = match &self.command {
            Command::Serve { listen, node } => (listen.clone(), None, node.clone()),
            Command::Worker { metrics, node } => (None, metrics.clone(), node.clone()),
            _ => (None, None, None),
        };
        Flags {
            store: self.globals.store.clone(),
            config: self.globals.config.clone(),
            server: self.globals.server.clone(),
            log_format: self.globals.log_format,
            listen,
            metrics,
            node,
        }
    }
}

/// Returns the name of an enum value in the API, such as `FROM_STEP` for `from-step`.
pub(crate) fn api_name(value: &impl ValueEnum) -> String {
    let name = value.to_possible_value().map(|name| name.get_name().to_uppercase());
    name.unwrap_or_default().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{inspection::State, running::Mode, *};

    #[test]
    fn the_command_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn option_values_have_the_names_of_the_api() {
        assert_eq!(api_name(&Mode::Sequential), "SEQUENTIAL");
        assert_eq!(api_name(&State::InProgress), "IN_PROGRESS");
    }
}
