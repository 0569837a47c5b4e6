//! Where words go: results to standard output, everything else to standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};

use serde_json::Value;

use super::{failure::Failure, paint::Paint, render};
use crate::config::Environment;

/// The two streams of this process, and what may be written to them.
#[derive(Clone, Debug)]
pub(super) struct Screen {
    /// Whether results are one JSON document.
    pub(super) json: bool,
    /// Colours on standard output.
    pub(super) out: Paint,
    /// Colours on standard error.
    pub(super) err: Paint,
    /// Whether standard error is a terminal on which lines may be drawn again.
    pub(super) is_live: bool,
}

impl Screen {
    pub(super) fn new(json: bool, environment: &Environment) -> Self {
        let is_live = io::stderr().is_terminal() && !environment.is_dumb;
        Self {
            json,
            out: Paint::new(console::colors_enabled()),
            err: Paint::new(console::colors_enabled_stderr()),
            is_live,
        }
    }

    /// Prints a result. Whoever closed the stream has read enough.
    #[expect(clippy::unused_self, reason = "whoever prints has a screen")]
    pub(super) fn print(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        let written = writeln!(out, "{text}").and_then(|()| out.flush());
        match written {
            Err(err) if err.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::new("INTERNAL", format!("standard output cannot be written: {err}")))
            }
            _ => Ok(()),
        }
    }

    /// Prints a JSON document as a result.
    pub(super) fn print_json(&self, value: &Value) -> Result<(), Failure> {
        self.print(&pretty(value))
    }

    /// Says something that is no result. If nobody can read it, nobody misses it.
    #[expect(clippy::unused_self, reason = "whoever speaks has a screen")]
    pub(super) fn say(&self, text: &str) {
        let mut err = io::stderr().lock();
        let _ = writeln!(err, "{text}");
    }

    /// Says why a command did not do what it was asked. Returns the status to end with.
    pub(super) fn fail(&self, failure: &Failure) -> u8 {
        if self.json {
            // There is nobody left to tell.
            let _ = self.print_json(&failure.to_json());
        } else {
            self.say(&render::failure(failure, self.err));
        }
        failure.status()
    }
}

/// Writes JSON for people; it is still one document.
pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}
