//! Arguments of `faber toolkit`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

/// An action on the toolkit.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolkitCommand {
    /// Show all of it, or only some actions and tools and the edges between them.
    Show {
        /// Names of actions and tools. All, where none is given.
        names: Vec<String>,
        /// The output format.
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
        /// The most `next` edges away.
        #[arg(long, default_value_t = 0)]
        hops: u16,
        /// The output format.
        #[arg(long, value_enum, default_value_t = ToolkitFormat::Text)]
        format: ToolkitFormat,
    },
    /// Take in a file in the format of `toolkit_files`, for good.
    Load {
        /// The file; `-` is standard input.
        file: PathBuf,
    },
}

/// An output format of the toolkit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolkitFormat {
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
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| "this is not a number such as 0.5".to_owned())
}
