use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::labels::parse_label;

#[derive(Args, Debug, Default)]
pub(crate) struct Planning {
    /// Only tools of these toolsets.
    #[arg(long = "toolset", value_name = "NAME")]
    pub(crate) toolsets: Vec<String>,
    /// The planner that writes the plan: `offline`, a configured model or its provider.
    #[arg(long, value_name = "NAME")]
    pub(crate) planner: Option<String>,
    /// Reuse of plans that a model made before.
    #[arg(long, value_name = "HOW", value_enum, ignore_case = true)]
    pub(crate) cache: Option<Cache>,
    /// A stricter rule for calls of a model's plan that the query does not ask for, or whose values
    /// it does not contain.
    #[arg(long, value_name = "HOW", value_enum, ignore_case = true)]
    pub(crate) guard: Option<Guard>,
}

/// A rule for calls of a model's plan that the query does not ask for, or whose values it does not
/// contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Guard {
    /// Refuse the plan.
    Strict,
    /// Let the steps wait for an approval.
    Approve,
    /// Only warn.
    Off,
}

/// Reuse of plans that a model made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cache {
    /// Never reuse a plan.
    Off,
    /// Reuse the plan of exactly the same query.
    Exact,
}

#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// The request that the plan fulfils, in words.
    pub(crate) query: String,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub(crate) format: Format,
    /// A label of the request, such as `team=shop`. Executions of its plans inherit it. Repeatable.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    pub(crate) labels: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) planning: Planning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people.
    Text,
    /// The plan as JSON, in the form of the API.
    Json,
    /// A Mermaid flowchart.
    Mermaid,
    /// A Graphviz digraph.
    Dot,
}

#[derive(Args, Debug)]
pub(crate) struct SaveArgs {
    /// The name to save the plan under. If another plan has the name, this plan replaces it.
    pub(crate) name: String,
    /// The id of a stored plan, `plan_…`.
    #[arg(value_name = "PLAN_ID", required_unless_present = "file")]
    pub(crate) plan: Option<String>,
    /// Create the plan from this JSON or YAML file; `-` is standard input.
    #[arg(long = "plan", value_name = "FILE", conflicts_with = "plan")]
    pub(crate) file: Option<PathBuf>,
    /// The plan's inputs: a JSON Schema, or `{"name": {"type": "string"}}`; `@FILE` reads a file.
    #[arg(long, value_name = "JSON")]
    pub(crate) inputs: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    /// `plan_…`, `req_…` for its newest plan, or the name of a saved plan. With `--since`: the file
    /// to write.
    #[arg(value_name = "PLAN|FILE", required_unless_present = "since")]
    pub(crate) id: Option<String>,
    /// Export requests, plans, executions and calls since this time as JSON, one object a line: a
    /// time such as `2026-01-02T03:04:05Z`, or an age such as `7d`.
    #[arg(long, value_name = "TIME", conflicts_with = "format")]
    pub(crate) since: Option<String>,
    /// The format of the file of a plan.
    #[arg(long, value_enum, default_value_t = ExportFormat::Yaml)]
    pub(crate) format: ExportFormat,
    /// The file to write; default: standard output.
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Text for people.
    Yaml,
    /// JSON for programs.
    Json,
}

#[derive(Args, Debug)]
pub(crate) struct TestArgs {
    /// The tests as YAML or JSON; `faber config schema --test` describes the file.
    pub(crate) file: PathBuf,
    /// Also write the results as `JUnit` XML, for build servers.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
}
