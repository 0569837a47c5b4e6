use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum Tools {
    /// List all tools.
    List {
        /// Only tools of this toolset.
        #[arg(long, value_name = "NAME")]
        toolset: Option<String>,
        /// Only tools with these words.
        #[arg(long)]
        search: Option<String>,
        /// Only active tools.
        #[arg(long)]
        active: bool,
    },
    /// Show a tool with its parameters.
    Show {
        /// The name of the tool, or `set.name`.
        name: String,
    },
    /// Call a tool once, outside plans, and print its result.
    Call {
        /// The name of the tool, or `set.name`.
        name: String,
        /// The parameters, as JSON.
        parameters: Option<String>,
    },
    /// Add a toolset to the configuration file, if its connection works.
    Add {
        #[command(subcommand)]
        new: NewToolset,
    },
    /// Register the tools of a file: `{"tools_list": [{"name", "description", "examples",
    /// "arguments"}]}`.
    Load {
        /// The JSON file with the tools.
        file: PathBuf,
        /// The toolset of the new tools.
        #[arg(long, value_name = "NAME", default_value = "tools")]
        toolset: String,
    },
    /// Select the tools for a query; without a query, read queries from standard input.
    Select(SelectArgs),
    /// List collisions: pairs of tools that the same sentences select.
    Collisions {
        /// The lowest similarity of two centroids.
        #[arg(long, value_name = "X", default_value_t = 0.3, allow_negative_numbers = true,
              value_parser = super::toolkit::parse_number)]
        threshold: f64,
        /// Compare by cosine instead of dot product.
        #[arg(long)]
        cosine: bool,
    },
    /// Measure how often selection finds the expected tools of queries.
    Eval {
        /// The queries, one per line: `{"query": "…", "gold": ["tool", …]}`; `-` is standard input.
        #[arg(long, value_name = "FILE")]
        queries: PathBuf,
        /// Measure only this criterion.
        #[arg(long, value_enum, ignore_case = true)]
        by: Option<RankMethod>,
        /// Include inactive tools.
        #[arg(long)]
        all: bool,
    },
    /// Show calls, failures and durations of tools.
    Usage,
    /// List calls outside plans, newest first.
    History {
        /// Only calls of this tool.
        tool: Option<String>,
        /// Maximum number of entries.
        #[arg(long, default_value_t = 100)]
        first: u32,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum NewToolset {
    /// Add an MCP server that a command starts: `faber tools add mcp NAME -- COMMAND…`.
    Mcp {
        /// The name of the toolset.
        name: String,
        /// The program and its arguments. A program with a slash is a path from the file's folder.
        #[arg(required = true, last = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Add the operations of an OpenAPI document.
    Openapi {
        /// The name of the toolset.
        name: String,
        /// The address of the document, or a path from the folder of the configuration file.
        #[arg(value_name = "URL")]
        document: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct SelectArgs {
    /// The query, in words.
    pub(crate) query: Option<String>,
    /// The criterion [default: centroid, or hybrid if no tool has examples].
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) by: Option<RankMethod>,
    /// Maximum number of tools [default: 5, or 1 for each query from standard input].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) limit: Option<i32>,
    /// Include inactive tools.
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RankMethod {
    /// Similarity to the centroid of a tool's examples.
    Centroid,
    /// Similarity to a tool's description.
    Description,
    /// Words in common.
    Lexical,
    /// Similarity and common words.
    Hybrid,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Toolsets {
    /// List all toolsets.
    List,
    /// Activate toolsets, so that plans can use their tools.
    Activate {
        /// The names of the toolsets.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Deactivate toolsets. Their tools can neither be planned nor called.
    Deactivate {
        /// The names of the toolsets.
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Models {
    /// Download a model into the data directory.
    Pull {
        /// An embedding model, such as `all-MiniLM-L6-v2`, or `planner` for the planning model.
        name: String,
        /// The address of another planning model in GGUF.
        #[arg(long, value_name = "URL")]
        url: Option<String>,
        /// The SHA-256 of the weights; default: the checksum of Faber or the hub.
        #[arg(long, value_name = "HEX")]
        sha256: Option<String>,
        /// Download the planning model without a question.
        #[arg(long)]
        yes: bool,
    },
    /// List the downloaded models.
    List,
}
