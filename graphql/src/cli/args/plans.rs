//! How plans are made, named and written down.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// How a query is planned.
#[derive(Args, Debug, Default)]
pub(in crate::cli) struct Planning {
    /// Only tools of these toolsets.
    #[arg(long = "toolset", value_name = "NAME")]
    pub(in crate::cli) toolsets: Vec<String>,
    /// The planner.
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) planner: Option<String>,
    /// Whether a plan is taken again that a model made before.
    #[arg(long, value_name = "HOW", value_enum, ignore_case = true)]
    pub(in crate::cli) cache: Option<Cache>,
}

/// Whether a plan is taken again that a model made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Cache {
    /// Never.
    Off,
    /// Of exactly the same query.
    Exact,
}

impl Cache {
    /// Returns the word that the API uses.
    pub(in crate::cli) fn as_str(self) -> &'static str {
        match self {
            Self::Off => "OFF",
            Self::Exact => "EXACT",
        }
    }
}

/// What to plan, and how to show it.
#[derive(Args, Debug)]
pub(in crate::cli) struct PlanArgs {
    /// What is to be done, in words.
    pub(in crate::cli) query: String,
    /// How to show the plan.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(in crate::cli) format: Format,
    #[command(flatten)]
    pub(in crate::cli) planning: Planning,
}

/// How a plan is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Format {
    /// For people.
    Text,
    /// The plan as the API has it.
    Json,
    /// A Mermaid flowchart.
    Mermaid,
    /// A Graphviz digraph.
    Dot,
}

/// Which plan gets which name.
#[derive(Args, Debug)]
pub(in crate::cli) struct SaveArgs {
    /// The name. One that is taken then means this plan.
    pub(in crate::cli) name: String,
    /// `plan_…`
    #[arg(value_name = "PLAN_ID", required_unless_present = "file")]
    pub(in crate::cli) plan: Option<String>,
    /// A plan as JSON or YAML, which is created first; `-` is standard input.
    #[arg(long = "plan", value_name = "FILE", conflicts_with = "plan")]
    pub(in crate::cli) file: Option<PathBuf>,
    /// Its inputs: a JSON Schema, or `{"name": {"type": "string"}}`; `@FILE` reads a file.
    #[arg(long, value_name = "JSON")]
    pub(in crate::cli) inputs: Option<String>,
}

/// Which plan to write down, and how.
#[derive(Args, Debug)]
pub(in crate::cli) struct ExportArgs {
    /// `plan_…`, `req_…` for its newest plan, or the name of a saved plan.
    pub(in crate::cli) id: String,
    /// How to write it.
    #[arg(long, value_enum, default_value_t = ExportFormat::Yaml)]
    pub(in crate::cli) format: ExportFormat,
    /// The file; standard output where there is none.
    #[arg(long, short, value_name = "FILE")]
    pub(in crate::cli) output: Option<PathBuf>,
}

/// How a plan is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum ExportFormat {
    /// For people.
    Yaml,
    /// For programs.
    Json,
}
