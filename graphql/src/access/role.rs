//! Roles, and which one each field of the API needs.

use std::{fmt, str::FromStr};

/// What a caller may do, each more than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Looks: queries and subscriptions.
    Viewer,
    /// Plans, executes, steers, and calls tools.
    Operator,
    /// Everything: changes what there is, too.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| format!("there is no role `{text}`: use viewer, operator or admin"))
    }
}

/// The mutations that an operator may use. Every other one, a new one too, needs an admin.
pub(super) const OPERATOR_MUTATIONS: [&str; 16] = [
    "createPlanWithRequestId",
    "createPlan",
    "revisePlan",
    "executePlan",
    "executeByRequestId",
    "run",
    "cancelExecution",
    "pauseExecution",
    "resumeExecution",
    "retryExecution",
    "replanExecution",
    "approveStep",
    "signalExecution",
    "runSavedPlan",
    "callTool",
    "runAgent",
];

/// The queries that are part of working with tools, not of looking.
const OPERATOR_QUERIES: [&str; 1] = ["parseToolCalls"];

/// Returns what a mutation needs.
pub(super) fn mutation_role(name: &str) -> Role {
    match name {
        "__typename" => Role::Viewer,
        name if OPERATOR_MUTATIONS.contains(&name) => Role::Operator,
        _ => Role::Admin,
    }
}

/// Returns what a query needs.
pub(super) fn query_role(name: &str) -> Role {
    if OPERATOR_QUERIES.contains(&name) { Role::Operator } else { Role::Viewer }
}
