//! Where words go: results to standard output, everything else to standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};

use console::Term;
use serde_json::Value;

use super::{failure::Failure, paint::Paint, plain, render};
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
    /// Whether standard output is a terminal.
    pub(super) is_terminal: bool,
    /// Whether standard error is a terminal on which lines may be drawn again.
    pub(super) is_live: bool,
}

impl Screen {
    pub(super) fn new(json: bool, environment: &Environment) -> Self {
        let is_live = io::stderr().is_terminal() && !environment.is_dumb;
        Self {
            json,
            out: Paint::new(out_has_colours(environment)),
            err: Paint::new(err_has_colours(environment)),
            is_terminal: io::stdout().is_terminal(),
            is_live,
        }
    }

    /// Returns how many columns the window has that results are printed in.
    pub(super) fn columns(&self) -> Option<usize> {
        self.is_terminal.then(|| Term::stdout().size().1.into())
    }

    /// Prints a result that is for people.
    pub(super) fn print(&self, text: &str) -> Result<(), Failure> {
        write(&self.out.drawn(text))
    }

    /// Prints a result that is a document: to the byte, except where a terminal would obey it.
    pub(super) fn document(&self, text: &str) -> Result<(), Failure> {
        if self.is_terminal { write(&plain::block(text)) } else { write(text) }
    }

    /// Prints a JSON document as a result.
    pub(super) fn print_json(&self, value: &Value) -> Result<(), Failure> {
        let document = pretty(value);
        if self.is_terminal { write(&plain::json(&document)) } else { write(&document) }
    }

    /// Says something that is no result. If nobody can read it, nobody misses it.
    pub(super) fn say(&self, text: &str) {
        let mut err = io::stderr().lock();
        let _ = writeln!(err, "{}", self.err.drawn(text));
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

/// Returns whether standard output takes colours.
pub(super) fn out_has_colours(environment: &Environment) -> bool {
    has_colours(console::colors_enabled(), io::stdout().is_terminal(), environment)
}

/// Returns whether standard error takes colours.
pub(super) fn err_has_colours(environment: &Environment) -> bool {
    has_colours(console::colors_enabled_stderr(), io::stderr().is_terminal(), environment)
}

/// Returns whether a stream takes colours, of which `console` has an opinion. That takes a
/// `NO_COLOR` that is empty for a no, and by <https://no-color.org> it is none.
fn has_colours(is_enabled: bool, is_terminal: bool, environment: &Environment) -> bool {
    let Environment { has_empty_no_color, is_dumb, .. } = environment;
    is_enabled || (*has_empty_no_color && is_terminal && !is_dumb)
}

/// Writes to standard output. Whoever closed the stream has read enough.
fn write(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    match written {
        Err(err) if err.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new("INTERNAL", format!("standard output cannot be written: {err}")))
        }
        _ => Ok(()),
    }
}

/// A part of the log, on standard error: an entry is one line, whatever it tells.
#[derive(Debug)]
pub(super) struct Log;

impl Write for Log {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let shown = plain::coloured(&String::from_utf8_lossy(entry));
        io::stderr().write_all(shown.as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Writes JSON for people; it is still one document.
pub(super) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_color_that_is_empty_is_none() {
        let empty = Environment { has_empty_no_color: true, ..Environment::default() };
        assert!(has_colours(false, true, &empty));
        assert!(!has_colours(false, false, &empty), "a pipe");
        assert!(!has_colours(false, true, &Environment { is_dumb: true, ..empty }));
        assert!(!has_colours(false, true, &Environment::default()), "it says something");
        assert!(has_colours(true, true, &Environment::default()));
    }
}
