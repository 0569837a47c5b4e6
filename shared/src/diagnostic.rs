//! Diagnostics of drafts and plans, for people and for models.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

/// A problem of a draft, or a warning about a plan.
#[expect(missing_docs, reason = "the other names need no comment")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Diagnostic {
    /// With an error, there is no plan.
    pub severity: Severity,
    /// A stable code such as `plan.cycle`, explained in `docs/errors.md`.
    pub code: Cow<'static, str>,
    /// The place in the draft, such as `tools[1].parameters.authorId`.
    pub path: String,
    pub message: String,
    pub help: Option<String>,
}

/// The severity of a diagnostic or a finding. The most severe comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Severity {
    /// The draft cannot become a plan, or a finding about an execution is severe.
    Error,
    /// The draft becomes a plan, or the execution continues, but its author should know the
    /// problem.
    Warning,
    /// The author may want to know this, but needs to do nothing.
    Info,
}

#[expect(missing_docs, reason = "the other names need no comment")]
impl Diagnostic {
    pub fn error(code: &'static str, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code: Cow::Borrowed(code),
            path: path.into(),
            message: message.into(),
            help: None,
        }
    }

    pub fn warning(
        code: &'static str,
        path: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, path, message) }
    }

    #[must_use]
    pub fn with_help(self, help: impl Into<String>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Info => "info",
        };
        write!(f, "{severity}[{}] {}: {}", self.code, self.path, self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}
