//! Colours, where the stream takes them.

use console::Style;

/// Whether to colour. `NO_COLOR`, `TERM=dumb` and pipes say no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paint {
    is_on: bool,
}

impl Paint {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on }
    }

    pub(super) fn bold(self, text: impl AsRef<str>) -> String {
        self.paint(Style::new().bold(), text.as_ref())
    }

    pub(super) fn dim(self, text: impl AsRef<str>) -> String {
        self.paint(Style::new().dim(), text.as_ref())
    }

    pub(super) fn green(self, text: impl AsRef<str>) -> String {
        self.paint(Style::new().green(), text.as_ref())
    }

    pub(super) fn red(self, text: impl AsRef<str>) -> String {
        self.paint(Style::new().red().bold(), text.as_ref())
    }

    pub(super) fn yellow(self, text: impl AsRef<str>) -> String {
        self.paint(Style::new().yellow().bold(), text.as_ref())
    }

    pub(super) fn cyan(self, text: impl AsRef<str>) -> String {
        self.paint(Style::new().cyan(), text.as_ref())
    }

    fn paint(self, style: Style, text: &str) -> String {
        if self.is_on { style.force_styling(true).apply_to(text).to_string() } else { text.into() }
    }
}
