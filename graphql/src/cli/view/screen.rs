//! The two streams of a command: results go to standard output, everything else to standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};

use console::Term;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{format::pretty, paint::Paint, plain, plan, table::table};
use crate::{
    cli::{ExitStatus, client::read, failure::Failure},
    config::Environment,
};

/// The two streams of this process, and what may be written to them.
#[derive(Clone, Debug)]
pub(crate) struct Screen {
    /// `--json`: results are one JSON document.
    pub(crate) json: bool,
    /// Colours on standard output.
    pub(crate) out: Paint,
    /// Colours on standard error.
    pub(crate) err: Paint,
    pub(crate) is_terminal: bool,
    /// Standard error is a terminal on which lines may be drawn again.
    pub(crate) is_live: bool,
}

impl Screen {
    pub(crate) fn new(json: bool, environment: &Environment) -> Self {
        let is_live = io::stderr().is_terminal() && !environment.is_dumb;
        Self {
            json,
            out: Paint::new(out_has_colours(environment)),
            err: Paint::new(err_has_colours(environment)),
            is_terminal: io::stdout().is_terminal(),
            is_live,
        }
    }

    /// Returns the columns of the window for results, if there is one.
    fn columns(&self) -> Option<usize> {
        self.is_terminal.then(|| Term::stdout().size().1.into())
    }

    /// Prints a result that is for people.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        write(&self.out.drawn(text))
    }

    /// Prints a result that is a document: to the byte, except where a terminal would obey it.
    pub(crate) fn document(&self, text: &str) -> Result<(), Failure> {
        if self.is_terminal { write(&plain::block(text)) } else { write(text) }
    }

    /// Prints a JSON document as a result.
    pub(crate) fn print_json(&self, value: &Value) -> Result<(), Failure> {
        let document = pretty(value);
        if self.is_terminal { write(&plain::json(&document)) } else { write(&document) }
    }

    /// Prints a list as a result: as a table, or as JSON.
    pub(crate) fn list<T: DeserializeOwned>(
        &self,
        items: &Value,
        headings: &[&str],
        row: impl Fn(&T, Paint) -> Vec<String>,
    ) -> Result<ExitStatus, Failure> {
        if self.json {
            self.print_json(items)?;
            return Ok(ExitStatus::Done);
        }
        let items: Vec<T> = read(items.clone())?;
        let rows: Vec<_> = items.iter().map(|item| row(item, self.out)).collect();
        if rows.is_empty() {
            self.say("nothing found");
        } else {
            self.print(&table(headings, &rows, self.columns(), self.out))?;
        }
        Ok(ExitStatus::Done)
    }

    /// Writes a dimmed line to standard error.
    pub(crate) fn hint(&self, text: &str) {
        self.say(&self.err.dim(text));
    }

    /// Writes a line to standard error. Errors of writing are ignored.
    pub(crate) fn say(&self, text: &str) {
        let mut err = io::stderr().lock();
        let _ = writeln!(err, "{}", self.err.drawn(text));
    }

    /// Reports a failure. Returns the exit status.
    pub(crate) fn fail(&self, failure: &Failure) -> u8 {
        if self.json {
            // There is nobody left to tell.
            let _ = self.print_json(&failure.to_json());
        } else {
            self.say(&plan::failure(failure, self.err));
        }
        failure.status()
    }
}

/// Returns whether standard output takes colours.
pub(crate) fn out_has_colours(environment: &Environment) -> bool {
    has_colours(console::colors_enabled(), io::stdout().is_terminal(), environment)
}

/// Returns whether standard error takes colours.
pub(crate) fn err_has_colours(environment: &Environment) -> bool {
    has_colours(console::colors_enabled_stderr(), io::stderr().is_terminal(), environment)
}

/// Returns whether a stream takes colours, of which `console` has an opinion. That takes a
/// `NO_COLOR` that is empty for a no, and by <https://no-color.org> it is none.
fn has_colours(is_enabled: bool, is_terminal: bool, environment: &Environment) -> bool {
    let Environment { has_empty_no_color, is_dumb, .. } = environment;
    is_enabled || (*has_empty_no_color && is_terminal && !is_dumb)
}

fn write(text: &str) -> Result<(), Failure> {
    write_bytes(format!("{text}\n").as_bytes())
}

/// Writes to standard output. A closed stream is no failure: its reader has read enough.
pub(crate) fn write_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    match written {
        Err(err) if err.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new("INTERNAL", format!("standard output cannot be written: {err}")))
        }
        _ => Ok(()),
    }
}

/// A part of the log, on standard error: an entry is one line, whatever it tells.
#[derive(Debug)]
pub(crate) struct Log;

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
