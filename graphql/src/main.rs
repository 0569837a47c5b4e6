//! The `faber` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    graphql::cli::main(std::env::args_os())
}
