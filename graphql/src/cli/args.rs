//! What may be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::bench::BenchArgs;
use crate::config::Flags;

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
pub(super) struct Cli {
    #[command(flatten)]
    pub(super) globals: Globals,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What every command takes.
#[derive(Args, Debug)]
#[command(next_help_heading = "Global options")]
pub(super) struct Globals {
    /// Where everything is kept: `sqlite:PATH`, `mongodb://…` or `memory:` (`FABER_STORE`).
    #[arg(long, global = true, value_name = "URL")]
    pub(super) store: Option<String>,
    /// The configuration; `./faber.yaml` if it is there (`FABER_CONFIG`).
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Talk to a running server instead of opening the store (`FABER_SERVER`).
    #[arg(long, global = true, value_name = "URL")]
    pub(super) server: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
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
        /// Why, for those who look at it later.
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
    },
    /// Do an execution that has ended again: all of it, or from a step on.
    Retry {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
        /// The step to begin with; what succeeded before it is not done again.
        #[arg(long, value_name = "STEP")]
        from_step: Option<String>,
    },
    /// Let the configured model plan anew what an execution did not get done, and carry that out.
    Replan {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
        #[command(flatten)]
        planning: Planning,
    },
    /// Let a step that waits for a person go on, or not.
    Approve(ApproveArgs),
    /// Tell an execution something that a step waits for.
    Signal {
        /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
        id: String,
        /// The signal's name.
        name: String,
        /// What it brings, as JSON.
        payload: Option<String>,
    },
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
        /// How long ago it ended: `30d`, `12h`, `90m`, `3600s`.
        #[arg(long, value_name = "AGE")]
        older_than: String,
    },
    /// Show everything about a request: how the plan came to be, and every step of every run.
    Debug(DebugArgs),
    /// List requests, plans or executions, the newest first, or saved plans.
    List {
        /// What to list.
        #[command(subcommand)]
        what: List,
    },
    /// Write a large binary that a tool returned to a file, or to standard output.
    Blob {
        /// What the output has under `$blob`: `exec_…/SHA-256`.
        id: String,
        /// The file; standard output where there is none.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show the tools that plans may use, and call them.
    Tools {
        /// What to do with them.
        #[command(subcommand)]
        what: Tools,
    },
    /// Show the toolsets, and switch them on and off.
    Toolsets {
        /// What to do with them.
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
        /// What to do with it.
        #[command(subcommand)]
        what: ToolkitCommand,
    },
    /// Fetch embedding models, which let tools be chosen by meaning.
    Models {
        /// What to do with them.
        #[command(subcommand)]
        what: Models,
    },
    /// Serve the GraphQL API and execute whatever is there.
    Serve {
        /// Where to listen; port 0 picks one (`FABER_LISTEN`) [default: 127.0.0.1:8080].
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
    Doctor,
    /// Print a script that completes commands.
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
    /// The demo: a small blog as an MCP server over standard input and output.
    BlogMcp {
        /// Where it keeps its data (`FABER_BLOG_FILE`).
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

/// What an agent is to do.
#[derive(Args, Debug)]
pub(super) struct AgentArgs {
    /// What is to be done, in words.
    pub(super) query: String,
    /// How often it may call tools and see what comes of that, 0 to 32.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(super) max_tool_turns: u32,
    /// Only tools of this set; may be given several times.
    #[arg(long = "toolset", value_name = "NAME")]
    pub(super) toolsets: Vec<String>,
    /// Which model: `model`, the name of its provider, or its own.
    #[arg(long, value_name = "NAME")]
    pub(super) planner: Option<String>,
}

/// What to do with the toolkit.
#[derive(Debug, Subcommand)]
pub(super) enum ToolkitCommand {
    /// Show all of it, or only some actions and tools and the edges between them.
    Show {
        /// Names of actions and tools. All, where none is given.
        names: Vec<String>,
        /// How to show it.
        #[arg(long, value_enum, default_value_t = ToolkitFormat::Text)]
        format: ToolkitFormat,
    },
    /// Show what is near some actions: what may follow, and the tools to call.
    Recommend {
        /// Names of actions.
        #[arg(required = true)]
        actions: Vec<String>,
        /// The least score that counts.
        #[arg(long, default_value_t = 0.5, allow_negative_numbers = true)]
        threshold: f64,
        /// How many `next` edges away.
        #[arg(long, default_value_t = 0)]
        hops: u16,
        /// How to show it.
        #[arg(long, value_enum, default_value_t = ToolkitFormat::Text)]
        format: ToolkitFormat,
    },
    /// Take in a file in the format of `toolkit_files`, for good.
    Load {
        /// The file; `-` is standard input.
        file: PathBuf,
    },
}

/// How the toolkit is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ToolkitFormat {
    /// For people.
    Text,
    /// The graph as the API has it.
    Json,
    /// As `toolkit_files` have it.
    Yaml,
    /// A Mermaid flowchart.
    Mermaid,
    /// A Graphviz digraph.
    Dot,
    /// An SVG image.
    Svg,
}

/// What to run, and how.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// What is to be done, in words.
    #[arg(required_unless_present_any = ["plan", "saved"])]
    pub(super) query: Option<String>,
    /// A plan as JSON or YAML; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query", "toolsets", "planner"])]
    pub(super) plan: Option<PathBuf>,
    /// A plan that was saved under this name.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["query", "plan", "toolsets", "planner"])]
    pub(super) saved: Option<String>,
    #[command(flatten)]
    pub(super) planning: Planning,
    #[command(flatten)]
    pub(super) options: Options,
}

/// What to plan, and how to show it.
#[derive(Args, Debug)]
pub(super) struct PlanArgs {
    /// What is to be done, in words.
    pub(super) query: String,
    /// How to show the plan.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(super) format: Format,
    #[command(flatten)]
    pub(super) planning: Planning,
}

/// How a plan is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people.
    Text,
    /// The plan as the API has it.
    Json,
    /// A Mermaid flowchart.
    Mermaid,
    /// A Graphviz digraph.
    Dot,
}

/// How a query is planned.
#[derive(Args, Debug, Default)]
pub(super) struct Planning {
    /// Only tools of these toolsets.
    #[arg(long = "toolset", value_name = "NAME")]
    pub(super) toolsets: Vec<String>,
    /// The planner.
    #[arg(long, value_name = "NAME")]
    pub(super) planner: Option<String>,
}

/// What to tell about, and how much.
#[derive(Args, Debug)]
pub(super) struct DebugArgs {
    /// `req_…`, or a `plan_…` or `exec_…` of it.
    pub(super) id: String,
    /// Show every value, and all of how the plan came to be.
    #[arg(long)]
    pub(super) full: bool,
}

/// What to execute, and how.
#[derive(Args, Debug)]
pub(super) struct ExecuteArgs {
    /// `plan_…`, `req_…` for its newest plan, or `exec_…` to carry it on.
    pub(super) id: String,
    #[command(flatten)]
    pub(super) options: Options,
}

/// How a plan is executed.
#[derive(Args, Debug, Default)]
pub(super) struct Options {
    /// One step at a time, or whatever is ready.
    #[arg(long, value_enum)]
    pub(super) mode: Option<Mode>,
    /// Steps at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) max_parallel: Option<i32>,
    /// The same key gives the same execution.
    #[arg(long, value_name = "KEY")]
    pub(super) idempotency_key: Option<String>,
    /// How long it may take, from its start.
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) deadline_ms: Option<i32>,
    /// Fail a step whose template finds nothing.
    #[arg(long)]
    pub(super) strict_templates: bool,
    /// What the plan is given, as JSON: `{{input.x}}`; `@FILE` reads a file, `@-` standard input.
    #[arg(long, value_name = "JSON")]
    pub(super) input: Option<String>,
    /// Undo what succeeded where it fails or is cancelled, by the steps' `compensate`.
    #[arg(long)]
    pub(super) compensate: bool,
    /// Check everything and call nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Begin no step before this moment, such as `2026-01-02T03:04:05Z`.
    #[arg(long, value_name = "TIME")]
    pub(super) start_at: Option<String>,
    /// Higher goes first where workers have a choice.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) priority: Option<i32>,
}

/// One step at a time, or whatever is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// One step at a time, in the plan's order.
    Sequential,
    /// Whatever is ready.
    Parallel,
}

/// Which step may go on, or not.
#[derive(Args, Debug)]
pub(super) struct ApproveArgs {
    /// `exec_…`, or `plan_…` or `req_…` for its newest execution.
    pub(super) id: String,
    /// The step's name within the plan; `step[3]` is one item of a `forEach`.
    pub(super) step: String,
    /// Refuse instead.
    #[arg(long)]
    pub(super) reject: bool,
    /// Why, for those who look at it later.
    #[arg(long)]
    pub(super) comment: Option<String>,
}

/// Which plan gets which name.
#[derive(Args, Debug)]
pub(super) struct SaveArgs {
    /// The name. One that is taken then means this plan.
    pub(super) name: String,
    /// `plan_…`
    #[arg(value_name = "PLAN_ID", required_unless_present = "file")]
    pub(super) plan: Option<String>,
    /// A plan as JSON or YAML, which is created first; `-` is standard input.
    #[arg(long = "plan", value_name = "FILE", conflicts_with = "plan")]
    pub(super) file: Option<PathBuf>,
    /// Its inputs: a JSON Schema, or `{"name": {"type": "string"}}`; `@FILE` reads a file.
    #[arg(long, value_name = "JSON")]
    pub(super) inputs: Option<String>,
}

/// Which plan to write down, and how.
#[derive(Args, Debug)]
pub(super) struct ExportArgs {
    /// `plan_…`, `req_…` for its newest plan, or the name of a saved plan.
    pub(super) id: String,
    /// How to write it.
    #[arg(long, value_enum, default_value_t = ExportFormat::Yaml)]
    pub(super) format: ExportFormat,
    /// The file; standard output where there is none.
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

/// How a plan is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ExportFormat {
    /// For people.
    Yaml,
    /// For programs.
    Json,
}

/// What to do with embedding models.
#[derive(Debug, Subcommand)]
pub(super) enum Models {
    /// Fetch a model into the data directory.
    Pull {
        /// Its name, such as `all-MiniLM-L6-v2` or `BAAI/bge-small-en-v1.5`.
        name: String,
    },
    /// List the models that were fetched.
    List,
}

/// What to list.
#[derive(Debug, Subcommand)]
pub(super) enum List {
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
pub(super) struct Since {
    /// Created not before, such as `2026-01-02T03:04:05Z`.
    #[arg(long, value_name = "TIME")]
    pub(super) from: Option<String>,
    /// Created before.
    #[arg(long, value_name = "TIME")]
    pub(super) to: Option<String>,
}

/// Which part of a list.
#[derive(Args, Debug)]
pub(super) struct Part {
    /// At most so many.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(super) first: i32,
    /// Behind the end of another part.
    #[arg(long, value_name = "CURSOR")]
    pub(super) after: Option<String>,
}

/// The state of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum State {
    Pending,
    InProgress,
    Paused,
    Waiting,
    Compensating,
    Completed,
    Failed,
    Cancelled,
}

/// What to do with tools.
#[derive(Debug, Subcommand)]
pub(super) enum Tools {
    /// List them.
    List {
        /// Only those of this toolset.
        #[arg(long, value_name = "NAME")]
        toolset: Option<String>,
        /// Only those with these words.
        #[arg(long)]
        search: Option<String>,
        /// Only those that plans may use.
        #[arg(long)]
        active: bool,
    },
    /// Show one, with its parameters.
    Show {
        /// Its name, or `set.name`.
        name: String,
    },
    /// Call one, once and outside any plan, and print what it returns.
    Call {
        /// Its name, or `set.name`.
        name: String,
        /// What it is given, as JSON.
        parameters: Option<String>,
    },
    /// Register the tools of a file: `{"tools_list": [{"name", "description", "examples",
    /// "arguments"}]}`.
    Load {
        /// The file.
        file: PathBuf,
        /// The toolset they go into.
        #[arg(long, value_name = "NAME", default_value = "tools")]
        toolset: String,
    },
    /// Choose the tools that a query needs; without one, ask for queries again and again.
    Select(SelectArgs),
    /// List the pairs of tools that the same sentences want.
    Collisions {
        /// How similar their centroids are at least.
        #[arg(long, value_name = "X", default_value_t = 0.3, allow_negative_numbers = true)]
        threshold: f64,
        /// Compare them by their cosine, not by their product.
        #[arg(long)]
        cosine: bool,
    },
    /// Say how good selection is over queries whose right tools are known.
    Eval {
        /// The queries, one a line: `{"query": "…", "gold": ["tool", …]}`; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        queries: PathBuf,
        /// Only by this, and not by each.
        #[arg(long, value_enum, ignore_case = true)]
        by: Option<By>,
        /// Tools that are switched off, too.
        #[arg(long)]
        all: bool,
    },
    /// Show how often tools were called, how often they failed, and how long they took.
    Usage,
    /// List calls outside plans, the newest first.
    History {
        /// Only calls of this tool.
        tool: Option<String>,
        /// At most so many.
        #[arg(long, default_value_t = 100)]
        first: u32,
    },
}

/// Which tools to choose.
#[derive(Args, Debug)]
pub(super) struct SelectArgs {
    /// What is wanted, in words.
    pub(super) query: Option<String>,
    /// By what tools are chosen [default: centroid; hybrid where no tool has examples].
    #[arg(long, value_enum, ignore_case = true)]
    pub(super) by: Option<By>,
    /// At most so many [default: 5; 1 for each question, where questions are asked].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(super) limit: Option<i32>,
    /// Tools that are switched off, too.
    #[arg(long)]
    pub(super) all: bool,
}

/// By what tools are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    /// Near enough to the middle of their examples.
    Centroid,
    /// Near their description.
    Description,
    /// By their words.
    Lexical,
    /// By meaning and words.
    Hybrid,
}

/// What to do with toolsets.
#[derive(Debug, Subcommand)]
pub(super) enum Toolsets {
    /// List them.
    List,
    /// Switch some on, so that plans may use their tools.
    Activate {
        /// Their names.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Switch some off: their tools can neither be planned nor called.
    Deactivate {
        /// Their names.
        #[arg(required = true)]
        names: Vec<String>,
    },
}

impl Cli {
    /// Returns what the configuration needs to know of the command line.
    pub(super) fn flags(&self) -> Flags {
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
pub(super) fn api_name(value: &impl ValueEnum) -> String {
    let name = value.to_possible_value().map(|it| it.get_name().to_uppercase());
    name.unwrap_or_default().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

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
