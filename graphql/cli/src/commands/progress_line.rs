use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use console::Term;

use crate::screen::Screen;

const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct ProgressLine {
    terminal: Option<Term>,
    shown_at: Mutex<Option<Instant>>,
}

impl ProgressLine {
    pub(crate) fn new(screen: &Screen) -> Self {
        let terminal = (screen.is_live && !screen.json).then(Term::stderr);
        Self { terminal, shown_at: Mutex::new(None) }
    }

    /// Shows a line, unless the last one has just been shown.
    pub(crate) fn show(&self, line: impl FnOnce() -> String) {
        let Some(terminal) = &self.terminal else { return };
        let mut shown_at = self.shown_at.lock().unwrap_or_else(PoisonError::into_inner);
        if shown_at.is_some_and(|at| at.elapsed() < REDRAW_INTERVAL) {
            return;
        }
        *shown_at = Some(Instant::now());
        // Ignores a failure. If the line cannot be cleared, the next line appears below it.
        let _ = terminal.clear_line().and_then(|()| terminal.write_str(&line()));
    }

    pub(crate) fn clear(&self) {
        if let Some(terminal) = &self.terminal {
            let _ = terminal.clear_line();
        }
    }
}
