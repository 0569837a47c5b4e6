use std::path::PathBuf;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file, and print every mistake with its line and path.
    Check {
        /// The file; default: the file that other commands read.
        file: Option<PathBuf>,
    },
    /// Print the JSON Schema of the configuration file, for editors.
    Schema {
        /// Print the JSON Schema of plan files instead.
        #[arg(long)]
        plan: bool,
        /// Print the JSON Schema of the files of `faber test` instead.
        #[arg(long, conflicts_with = "plan")]
        test: bool,
    },
}
