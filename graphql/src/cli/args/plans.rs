//! Arguments of commands that make, save and export plans.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of planning.
#[derive(Args, Debug, Default)]
pub(crate) struct Planning {
    /// Only tools of these toolsets.
    #[arg(long = "toolset", value_name = "NAME")]
    pub(crate) toolsets: Vec<String>,
    /// The planner.
    #[arg(long, value_name = "NAME")]
    pub(crate) planner: Option<String>,
    /// Use of plans that a model made before.
    #[arg(long, value_name = "HOW", value_enum, ignore_case = true)]
    pub(crate) cache: Option<Cache>,
}

/// Use of plans that a model made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cache {
    /// Never.
    Off,
    /// Of exactly the same query.
    Exact,
}

/// Arguments of `faber plan`.
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// The request, in words.
    pub(crate) query: String,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) planning: Planning,
}

/// An output format of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// The plan as the API has it.
    Json,
    /// A Mermaid flowchart.
    Mermaid,
    /// A Graphviz digraph.
    Dot,
}

/// Arguments of `faber save`.
#[derive(Args, Debug)]
pub(crate) struct SaveArgs {
    /// The name. One that is taken then means this plan.
    pub(crate) name: String,
    /// `plan_…`
    #[arg(value_name = "PLAN_ID", required_unless_present = "file")]
    pub(crate) plan: Option<String>,
    /// A plan as JSON or YAML, which is created first; `-` is standard input.
    #[arg(long = "plan", value_name = "FILE", conflicts_with = "plan")]
    pub(crate) file: Option<PathBuf>,
    /// Its inputs: a JSON Schema, or `{"name": {"type": "string"}}`; `@FILE` reads a file.
    #[arg(long, value_name = "JSON")]
    pub(crate) inputs: Option<String>,
}

/// Arguments of `faber export`.
#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    /// `plan_…`, `req_…` for its newest plan, or the name of a saved plan.
    pub(crate) id: String,
    /// The format of the file.
    #[arg(long, value_enum, default_value_t = ExportFormat::Yaml)]
    pub(crate) format: ExportFormat,
    /// The file; standard output where there is none.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// A format of plan files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// For people.
    Yaml,
    /// For programs.
    Json,
}
