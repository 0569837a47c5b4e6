use std::{fmt, time::Duration};

use executor::control::ControlError;
use shared::{diagnostic::Diagnostic, id::RequestId, store::StoreError};

use crate::access::{AccessError, QuotaError};

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EngineError {
    #[error("{0}")]
    NotFound(String),
    #[error("{}", first_error(diagnostics))]
    InvalidPlan { diagnostics: Vec<Diagnostic>, request: Option<RequestId> },
    #[error("{0}")]
    InvalidArgument(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{message}")]
    PlannerUnavailable { message: String, request: Option<RequestId> },
    #[error("{message}")]
    NoPlanFound { message: String, nearest: Vec<String>, request: Option<RequestId> },
    /// Planning failed for the reason in `error`, and the request is stored.
    #[error("{error}")]
    Planning { request: RequestId, error: Box<EngineError> },
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    LimitExceeded(String),
    /// The caller has reached a limit of its token. Another attempt helps after `retry_after`.
    #[error("{message}")]
    LimitReached { message: String, retry_after: Duration },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EngineError {
    pub fn not_found(kind: &str, id: impl fmt::Display) -> Self {
        Self::NotFound(format!("there is no {kind} `{id}`"))
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "NOT_FOUND",
            Self::InvalidPlan { .. } => "INVALID_PLAN",
            Self::InvalidArgument(_)
            | Self::Store(StoreError::Unfit { .. } | StoreError::NotSearchable { .. }) => {
                "INVALID_ARGUMENT"
            }
            Self::Conflict(_) | Self::Store(StoreError::Taken) => "CONFLICT",
            Self::Forbidden(_) => "FORBIDDEN",
            Self::PlannerUnavailable { .. } => "PLANNER_UNAVAILABLE",
            Self::NoPlanFound { .. } => "NO_PLAN_FOUND",
            Self::Planning { error, .. } => error.code(),
            Self::LimitExceeded(_)
            | Self::LimitReached { .. }
            | Self::Store(StoreError::Full { .. } | StoreError::TooLarge { .. }) => {
                "LIMIT_EXCEEDED"
            }
            Self::Store(StoreError::Corrupt { .. }) => "INTERNAL",
            Self::Store(_) => "STORE_UNAVAILABLE",
        }
    }

    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::LimitReached { retry_after, .. } => Some(*retry_after),
            Self::Planning { error, .. } => error.retry_after(),
            _ => None,
        }
    }

    pub fn request(&self) -> Option<RequestId> {
        match self {
            Self::InvalidPlan { request, .. }
            | Self::PlannerUnavailable { request, .. }
            | Self::NoPlanFound { request, .. } => *request,
            Self::Planning { request, .. } => Some(*request),
            _ => None,
        }
    }

    /// Adds the stored request to the error, unless it has one.
    #[must_use]
    pub(super) fn with_request(self, request: RequestId) -> Self {
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
            AccessError::LimitReached { wait, .. } => {
                Self::LimitReached { message: err.to_string(), retry_after: wait }
            }
        }
    }
}

impl From<QuotaError> for EngineError {
    fn from(err: QuotaError) -> Self {
        match err {
            QuotaError::Reached(err) => err.into(),
            QuotaError::Store(err) => Self::Store(err),
        }
    }
}

impl From<ControlError> for EngineError {
    fn from(err: ControlError) -> Self {
        match err {
            ControlError::NotFound(id) => Self::not_found("execution", id),
            ControlError::Conflict(reason) => Self::Conflict(reason),
            ControlError::Invalid(reason) => Self::InvalidArgument(reason),
            ControlError::LimitExceeded(reason) => Self::LimitExceeded(reason),
            ControlError::Store(err) => Self::Store(err),
        }
    }
}

fn first_error(diagnostics: &[Diagnostic]) -> String {
    let mut errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error());
    match (errors.next(), errors.count()) {
        (None, _) => "the plan cannot run".to_owned(),
        (Some(first), 0) => first.message.clone(),
        (Some(first), more) => format!("{} (and {more} more)", first.message),
    }
}
