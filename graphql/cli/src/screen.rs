//! Output of a command: results, and with `--json` failures, go to standard output, everything else
//! to standard error.

use std::io::{self, ErrorKind, IsTerminal, Write};

use client::view::{
    format::pretty_json,
    paint::{self, Paint},
    plain, plan,
};
use client::{failure::Failure, read_answer};
use console::Term;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    ExitStatus,
    config::{Environment, LogFormat},
};

#[derive(Clone, Debug)]
pub(crate) struct Screen {
    /// `true` with `--json`: each result is one JSON document.
    pub(crate) json: bool,
    pub(crate) out: Paint,
    pub(crate) err: Paint,
    pub(crate) is_terminal: bool,
    /// `true` if standard error is a terminal that can redraw lines.
    pub(crate) is_live: bool,
}

impl Screen {
    pub(crate) fn new(json: bool, environment: &Environment) -> Self {
        let is_live = io::stderr().is_terminal() && !environment.cannot_redraw;
        Self {
            json,
            out: Paint::new(has_stdout_colours(environment)),
            err: Paint::new(has_stderr_colours(environment)),
            is_terminal: io::stdout().is_terminal(),
            is_live,
        }
    }

    fn window_columns(&self) -> Option<usize> {
        self.is_terminal.then(|| Term::stdout().size().1.into())
    }

    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        write_line(&self.out.to_terminal(text))
    }

    pub(crate) fn print_document(&self, text: &str) -> Result<(), Failure> {
        if self.is_terminal { write_line(&plain::safe_block(text)) } else { write_line(text) }
    }

    pub(crate) fn print_json(&self, value: &Value) -> Result<(), Failure> {
        let document = pretty_json(value);
        if self.is_terminal {
            write_line(&plain::safe_json(&document))
        } else {
            write_line(&document)
        }
    }

    pub(crate) fn print_result(&self, document: &Value, text: &str) -> Result<ExitStatus, Failure> {
        if self.json {
            self.print_json(document)?;
        } else {
            self.print(text)?;
        }
        Ok(ExitStatus::Done)
    }

    pub(crate) fn print_list<T: DeserializeOwned>(
        &self,
        items: &Value,
        headings: &[&str],
        row: impl Fn(&T, Paint) -> Vec<String>,
    ) -> Result<ExitStatus, Failure> {
        if self.json {
            self.print_json(items)?;
            return Ok(ExitStatus::Done);
        }
        let items: Vec<T> = read_answer(items.clone())?;
        let rows: Vec<_> = items.iter().map(|item| row(item, self.out)).collect();
        if rows.is_empty() {
            self.say("nothing found");
        } else {
            self.print(&draw_table(headings, &rows, self.window_columns(), self.out))?;
        }
        Ok(ExitStatus::Done)
    }

    pub(crate) fn hint(&self, text: &str) {
        self.say(&self.err.dim(text));
    }

    pub(crate) fn say(&self, text: &str) {
        let mut err = io::stderr().lock();
        let _ = writeln!(err, "{}", self.err.to_terminal(text));
    }

    pub(crate) fn fail(&self, failure: &Failure) -> u8 {
        if self.json {
            // Ignores a failure, because with `--json` failures go to standard output only.
            let _ = self.print_json(&failure.to_json());
        } else {
            self.say(&plan::draw_failure(failure, self.err));
        }
        failure.status()
    }
}

pub(crate) fn has_stdout_colours(environment: &Environment) -> bool {
    should_colour(console::colors_enabled(), io::stdout().is_terminal(), environment)
}

pub(crate) fn has_stderr_colours(environment: &Environment) -> bool {
    should_colour(console::colors_enabled_stderr(), io::stderr().is_terminal(), environment)
}

/// Returns whether to use colours. The crate `console` disables colours if `NO_COLOR` is empty, but
/// according to <https://no-color.org>, an empty `NO_COLOR` has no effect.
fn should_colour(is_enabled: bool, is_terminal: bool, environment: &Environment) -> bool {
    let Environment { has_empty_no_color, cannot_redraw, .. } = environment;
    is_enabled || (*has_empty_no_color && is_terminal && !cannot_redraw)
}

const DEFAULT_COLUMNS: usize = 160;

pub(crate) fn draw_table(
    headings: &[&str],
    rows: &[Vec<String>],
    columns: Option<usize>,
    paint: Paint,
) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.len()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(paint::text_width(cell));
        }
    }
    let head: Vec<String> = headings.iter().map(|&heading| heading.to_owned()).collect();
    let mut lines = vec![paint.bold(draw_row(&head, &widths))];
    lines.extend(rows.iter().map(|row| draw_row(row, &widths)));
    let columns = columns.unwrap_or(DEFAULT_COLUMNS);
    let lines: Vec<String> = lines.iter().map(|line| paint::cut_to_width(line, columns)).collect();
    lines.join("\n")
}

pub(crate) fn align_rows(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |index: usize| {
        rows.iter().filter_map(move |row| row.get(index)).map(|cell| paint::text_width(cell))
    };
    let widths: Vec<usize> = (0..columns).map(|index| width(index).max().unwrap_or(0)).collect();
    rows.iter().map(|row| draw_row(row, &widths)).collect::<Vec<_>>().join("\n")
}

fn draw_row(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| {
        let padding = width.saturating_sub(paint::text_width(cell));
        format!("{cell}{}", " ".repeat(padding))
    });
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

fn write_line(text: &str) -> Result<(), Failure> {
    write_bytes(format!("{text}\n").as_bytes())
}

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

/// Writes the log to standard error. Each entry is one line.
#[derive(Debug)]
pub(crate) struct LogWriter(pub(crate) LogFormat);

impl Write for LogWriter {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(entry);
        let safe_text = match self.0 {
            LogFormat::Human => plain::safe_coloured(&text),
            LogFormat::Json => plain::safe_json(&text).into_owned(),
        };
        io::stderr().write_all(safe_text.as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn an_empty_no_color_variable_is_ignored() {
        let empty = Environment { has_empty_no_color: true, ..Environment::default() };
        assert!(should_colour(false, true, &empty));
        assert!(!should_colour(false, false, &empty), "a pipe");
        assert!(!should_colour(false, true, &Environment { cannot_redraw: true, ..empty }));
        assert!(!should_colour(false, true, &Environment::default()), "it has a value");
        assert!(should_colour(true, true, &Environment::default()));
    }

    #[test]
    fn columns_are_as_wide_as_their_longest_cell() {
        let rows = [vec!["é".to_owned(), "long".to_owned()], vec!["ab".to_owned(), String::new()]];
        expect![[r"
            A   B
            é   long
            ab"]]
        .assert_eq(&draw_table(&["A", "B"], &rows, None, Paint::new(false)));
        expect![[r"
            A   B
            é   l…
            ab"]]
        .assert_eq(&draw_table(&["A", "B"], &rows, Some(6), Paint::new(false)));
    }
}
