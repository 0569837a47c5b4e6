//! Why something that was asked for did not happen, in the words of the API.

use std::fmt;

use executor::control::ControlError;
use shared::{diagnostic::Diagnostic, id::RequestId, store::StoreError};

use crate::access::AccessError;

/// Why something that was asked for did not happen.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EngineError {
    /// Nothing has this identifier.
    #[error("{0}")]
    NotFound(String),
    /// There is a draft, but no plan comes of it.
    #[error("{}", headline(diagnostics))]
    InvalidPlan {
        /// What is wrong with it.
        diagnostics: Vec<Diagnostic>,
        /// The request under which it was tried.
        request: Option<RequestId>,
    },
    /// It could not be right, whatever is there.
    #[error("{0}")]
    InvalidArgument(String),
    /// It does not fit what is there.
    #[error("{0}")]
    Conflict(String),
    /// The planner could not be reached.
    #[error("{message}")]
    PlannerUnavailable {
        /// Why, and what to do.
        message: String,
        /// The request under which it was tried.
        request: Option<RequestId>,
    },
    /// No tool does what is asked, or what it needs was not said.
    #[error("{message}")]
    NoPlanFound {
        /// What could not be done, and what to do.
        message: String,
        /// The nearest tools, best first.
        nearest: Vec<String>,
        /// The request under which it was tried.
        request: Option<RequestId>,
    },
    /// Planning went wrong in another way, and what was asked for is kept all the same.
    #[error("{error}")]
    Planning {
        /// The request under which it was tried.
        request: RequestId,
        /// What went wrong.
        error: Box<EngineError>,
    },
    /// Whoever asks may not do it.
    #[error("{0}")]
    Forbidden(String),
    /// It is more than there may be.
    #[error("{0}")]
    LimitExceeded(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EngineError {
    /// Says that nothing has an identifier.
    pub fn not_found(what: &str, id: impl fmt::Display) -> Self {
        Self::NotFound(format!("there is no {what} `{id}`"))
    }

    /// Returns the code that the API has for it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "NOT_FOUND",
            Self::InvalidPlan { .. } => "INVALID_PLAN",
            Self::InvalidArgument(_) | Self::Store(StoreError::Unfit { .. }) => "INVALID_ARGUMENT",
            Self::Conflict(_) | Self::Store(StoreError::Taken) => "CONFLICT",
            Self::Forbidden(_) => "FORBIDDEN",
            Self::PlannerUnavailable { .. } => "PLANNER_UNAVAILABLE",
            Self::NoPlanFound { .. } => "NO_PLAN_FOUND",
            Self::Planning { error, .. } => error.code(),
            Self::LimitExceeded(_)
            | Self::Store(StoreError::Full { .. } | StoreError::TooLarge { .. }) => {
                "LIMIT_EXCEEDED"
            }
            Self::Store(StoreError::Corrupt { .. }) => "INTERNAL",
            Self::Store(_) => "STORE_UNAVAILABLE",
        }
    }

    /// Returns the request under which it was tried, if it was.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::InvalidPlan { request, .. }
            | Self::PlannerUnavailable { request, .. }
            | Self::NoPlanFound { request, .. } => *request,
            Self::Planning { request, .. } => Some(*request),
            _ => None,
        }
    }

    /// Returns the same error as one of a request that is kept.
    #[must_use]
    pub(super) fn under(self, request: RequestId) -> Self {
        if self.request().is_some() {
            return self;
        }
        Self::Planning { request, error: Box::new(self) }
    }
}

impl From<AccessError> for EngineError {
    fn from(err: AccessError) -> Self {
        match err {
            AccessError::Role { .. } | AccessError::Tool { .. } => Self::Forbidden(err.to_string()),
            AccessError::Spent { .. } => Self::LimitExceeded(err.to_string()),
        }
    }
}

impl From<ControlError> for EngineError {
    fn from(err: ControlError) -> Self {
        match err {
            ControlError::NotFound(id) => Self::not_found("execution", id),
            ControlError::Conflict(why) => Self::Conflict(why),
            ControlError::Invalid(why) => Self::InvalidArgument(why),
            ControlError::TooMuch(why) => Self::LimitExceeded(why),
            ControlError::Store(err) => Self::Store(err),
        }
    }
}

fn headline(diagnostics: &[Diagnostic]) -> String {
    let mut errors = diagnostics.iter().filter(|it| it.is_error());
    match (errors.next(), errors.count()) {
        (None, _) => "the plan cannot run".to_owned(),
        (Some(first), 0) => first.message.clone(),
        (Some(first), more) => format!("{} (and {more} more)", first.message),
    }
}
