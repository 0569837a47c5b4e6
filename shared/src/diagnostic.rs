//! What is wrong with a draft, said once, for people and for models alike.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// Something wrong with a draft, or worth knowing about a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diagnostic {
    /// Whether there can be a plan all the same.
    pub severity: Severity,
    /// A stable code such as `plan.cycle`, explained in `docs/errors.md`.
    pub code: Cow<'static, str>,
    /// Where in the draft, like `tools[1].parameters.authorId`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// How bad a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// There is no plan.
    Error,
    /// There is a plan; the author should know.
    Warning,
}

impl Diagnostic {
    /// Makes an error.
    pub fn error(code: &'static str, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code: Cow::Borrowed(code),
            path: path.into(),
            message: message.into(),
            help: None,
        }
    }

    /// Makes a warning.
    pub fn warning(
        code: &'static str,
        path: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, path, message) }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Returns whether it stands in the way of a plan.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}[{}] {}: {}", self.code, self.path, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}
