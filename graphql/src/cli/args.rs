//! The arguments of the command line.

mod looking;
mod plans;
mod running;
mod toolkit;
mod tools;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::{
    looking::{DebugArgs, List, Part, Since},
    plans::{ExportArgs, ExportFormat, Format, PlanArgs, Planning, SaveArgs},
    running::{AgentArgs, ApproveArgs, ExecuteArgs, Options, RetryArgs, RunArgs, SignalArgs},
    toolkit::{ToolkitCommand, ToolkitFormat},
    tools::{By, Models, SelectArgs, Tools, Toolsets},
};
use crate::{bench::BenchArgs, config::Flags};

/// Turns a request in words into a plan of tool calls and carries it out to the end.
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

/// Options of every command.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Globals {
    /// The store: `sqlite:PATH`, `mongodb://…` or `memory:` (`FABER_STORE`).
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) store: Option<String>,
    /// The configuration; `./faber.yaml` if it is there (`FABER_CONFIG`).
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Talk to a running server instead of opening the store (`FABER_SERVER`).
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Plan a query, or take a plan, execute it and print the outputs.
    #[command(override_usage = "faber run [OPTIONS] <QUERY|--plan FILE|--saved NAME>")]
    Run(RunArgs),
    /// Plan a query and execute nothing.
    Plan(PlanArgs),
    /// Let the configured model do what a query asks, turn by turn.
    Agent(AgentArgs),
    /// Execute a plan, the newest plan of a request, or carry an execution on.
    Execute(ExecuteArgs),
    /// Watch an execution until it ends.
    Watch {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
    },
    /// Stop an execution.
    Cancel {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
        /// A reason, recorded in the log.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let an execution begin no further step.
    Pause {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
    },
    /// Let an execution that was paused go on, and carry it on.
    Resume {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
        /// Wait for a tool that this process lacks instead of ending with status 3.
        #[arg(long)]
        wait: bool,
    },
    /// Do again what an ended execution did not get done, or more of it.
    Retry(RetryArgs),
    /// Let the configured model plan anew what an execution did not get done, and carry that out.
    Replan {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
        #[command(flatten)]
        planning: Planning,
    },
    /// Let a step that waits for a person go on, or not, and carry its execution on.
    Approve(ApproveArgs),
    /// Tell an execution something that a step waits for, and carry it on.
    Signal(SignalArgs),
    /// Make the next version of a plan.
    Revise {
        /// `plan_…`, any version.
        plan: String,
        /// The new plan as JSON or YAML; `-` is standard input.
        file: PathBuf,
    },
    /// Give a plan a name, and types to what it is given; `run --saved NAME` runs it.
    Save(SaveArgs),
    /// Take a name away from its plan, which stays.
    Unsave {
        /// The name.
        name: String,
    },
    /// Write a plan down as YAML or JSON, so that `run --plan` and `save --plan` read it.
    Export(ExportArgs),
    /// Serve Faber's own tools as an MCP server over standard input and output.
    Mcp,
    /// Remove what is over and older than a time, for good: executions, then plans and requests
    /// that nothing refers to.
    Prune {
        /// The age, counted from the end: `30d`, `12h`, `90m`, `3600s`.
        #[arg(long, value_name = "AGE")]
        older_than: String,
    },
    /// Show everything about a request: how the plan came to be, and every step of every run.
    Debug(DebugArgs),
    /// List requests, plans or executions, the newest first, or saved plans.
    List {
        /// The kind of objects.
        #[command(subcommand)]
        what: List,
    },
    /// Write a large binary that a tool returned to a file, or to standard output.
    Blob {
        /// The value of `$blob` in an output: `exec_…/SHA-256`.
        id: String,
        /// The file; standard output where there is none.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show the tools that plans may use, and call them.
    Tools {
        /// The action.
        #[command(subcommand)]
        what: Tools,
    },
    /// Show the toolsets, and switch them on and off.
    Toolsets {
        /// The action.
        #[command(subcommand)]
        what: Toolsets,
    },
    /// Log in to an MCP server that is told by OAuth who calls.
    Login {
        /// The toolset.
        #[arg(value_name = "TOOLSET")]
        set: String,
        /// Only say where to go, and open nothing.
        #[arg(long)]
        no_browser: bool,
    },
    /// Forget a login, and tell the server so.
    Logout {
        /// The toolset.
        #[arg(value_name = "TOOLSET")]
        set: String,
    },
    /// Show the toolkit: which tools go with which actions.
    Toolkit {
        /// The action.
        #[command(subcommand)]
        what: ToolkitCommand,
    },
    /// Fetch embedding models, which let tools be chosen by meaning.
    Models {
        /// The action.
        #[command(subcommand)]
        what: Models,
    },
    /// Serve the GraphQL API and execute whatever is there.
    Serve {
        /// The address to listen on; port 0 picks a port (`FABER_LISTEN`) [default: 127.0.0.1:8080].
        #[arg(long, value_name = "ADDR")]
        listen: Option<String>,
    },
    /// Execute what other processes accept, without serving.
    Worker,
    /// Measure the engine on this machine.
    Bench(BenchArgs),
    /// Print the GraphQL schema.
    Schema,
    /// Print the effective configuration, and where each value came from.
    Config,
    /// Say what is missing or unreachable, and how to mend it.
    Doctor {
        /// Only ask the server of `--server` whether it can work (`/health/ready`): for health checks.
        #[arg(long)]
        ready: bool,
    },
    /// Print a script that completes commands.
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
    /// The demo: a small blog as an MCP server over standard input and output.
    BlogMcp {
        /// The file for its data (`FABER_BLOG_FILE`).
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

impl Cli {
    /// Returns what the configuration needs to know of the command line.
    pub(crate) fn flags(&self) -> Flags {
        let listen = match &self.command {
            Command::Serve { listen } => listen.clone(),
            _ => None,
        };
        Flags {
            store: self.globals.store.clone(),
            config: self.globals.config.clone(),
            server: self.globals.server.clone(),
            listen,
        }
    }
}

/// Returns how the API calls a value.
pub(crate) fn api_name(value: &impl ValueEnum) -> String {
    let name = value.to_possible_value().map(|name| name.get_name().to_uppercase());
    name.unwrap_or_default().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::{looking::State, running::Mode, *};

    #[test]
    fn the_commands_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn values_are_called_as_in_the_api() {
        assert_eq!(api_name(&Mode::Sequential), "SEQUENTIAL");
        assert_eq!(api_name(&State::InProgress), "IN_PROGRESS");
    }
}
