//! What is done with the toolkit.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

/// What to do with the toolkit.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ToolkitCommand {
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
        #[arg(long, default_value_t = 0.5, allow_negative_numbers = true, value_parser = number)]
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
pub(in crate::cli) enum ToolkitFormat {
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

/// Reads a number that can be compared with others.
pub(super) fn number(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|it| it.is_finite());
    number.ok_or_else(|| "this is not a number such as 0.5".to_owned())
}
