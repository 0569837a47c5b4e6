//! Arguments of `faber tools`, `faber toolsets` and `faber models`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// An action on tools.
#[derive(Debug, Subcommand)]
pub(crate) enum Tools {
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
        /// Its parameters, as JSON.
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
        /// The least similarity of their centroids.
        #[arg(long, value_name = "X", default_value_t = 0.3, allow_negative_numbers = true,
              value_parser = super::toolkit::number)]
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

/// Arguments of `tools select`.
#[derive(Args, Debug)]
pub(crate) struct SelectArgs {
    /// The task, in words.
    pub(crate) query: Option<String>,
    /// By what tools are chosen [default: centroid; hybrid where no tool has examples].
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) by: Option<By>,
    /// At most so many [default: 5; 1 for each question, where questions are asked].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) limit: Option<i32>,
    /// Tools that are switched off, too.
    #[arg(long)]
    pub(crate) all: bool,
}

/// A criterion of selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// Near enough to the middle of their examples.
    Centroid,
    /// Near their description.
    Description,
    /// By their words.
    Lexical,
    /// By meaning and words.
    Hybrid,
}

/// An action on toolsets.
#[derive(Debug, Subcommand)]
pub(crate) enum Toolsets {
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

/// An action on embedding models.
#[derive(Debug, Subcommand)]
pub(crate) enum Models {
    /// Fetch a model into the data directory.
    Pull {
        /// Its name, such as `all-MiniLM-L6-v2` or `BAAI/bge-small-en-v1.5`.
        name: String,
        /// The SHA-256 that its weights must have. Without it, the one that Faber or the hub names.
        #[arg(long, value_name = "HEX")]
        sha256: Option<String>,
    },
    /// List the models that were fetched.
    List,
}
