//! The hidden subcommand `confined`: what starts the commands that tools run.
//!
//! It is no part of the command line for people, and must come before everything else: threads
//! that were there before would not be confined.

use std::{ffi::OsString, process::ExitCode};

/// Runs what the command line asks to be confined, if it asks for that.
pub(super) fn confined(arguments: &[OsString]) -> Option<ExitCode> {
    let rest = arguments.get(1..)?;
    let (first, rest) = rest.split_first()?;
    (first == sandbox::SUBCOMMAND).then(|| sandbox::enter(rest.iter().cloned()))
}
