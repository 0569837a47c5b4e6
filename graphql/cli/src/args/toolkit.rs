use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum ToolkitCommand {
    /// Show the toolkit, or some actions and tools with the edges between them.
    Show {
        /// Names of actions and tools; default: all.
        names: Vec<String>,
        /// The output format.
        #[arg(long, value_enum, default_value_t = ToolkitFormat::Text)]
        format: ToolkitFormat,
    },
    /// Show the actions that can follow some actions, and their tools.
    Recommend {
        /// Names of actions.
        #[arg(required = true)]
        actions: Vec<String>,
        /// The lowest score of the edges to follow.
        #[arg(long, default_value_t = 0.5, allow_negative_numbers = true, value_parser = parse_number)]
        threshold: f64,
        /// Maximum number of edges from the given actions to a further action.
        #[arg(long, default_value_t = 0)]
        hops: u16,
        /// The output format.
        #[arg(long, value_enum, default_value_t = ToolkitFormat::Text)]
        format: ToolkitFormat,
    },
    /// Add a file in the format of `toolkit_files` to the stored toolkit.
    Load {
        /// The file to add; `-` is standard input.
        file: PathBuf,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ToolkitFormat {
    /// Text for people.
    Text,
    /// The graph as JSON, in the form of the API.
    Json,
    /// The format of `toolkit_files`.
    Yaml,
    /// A Mermaid flowchart.
    Mermaid,
    /// A Graphviz digraph.
    Dot,
    /// An SVG image.
    Svg,
}

pub(crate) fn parse_number(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| "this is not a number such as 0.5".to_owned())
}
