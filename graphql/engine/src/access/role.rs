use std::{fmt, str::FromStr};

/// The role of a caller. Each role includes the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Is allowed to subscribe, and to use most queries.
    Viewer,
    /// Is also allowed to plan, execute, control executions, and call tools.
    Operator,
    /// Is allowed everything, such as to change toolsets and stored data, and to read the audit
    /// log.
    Admin,
}

impl Role {
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

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

/// Mutations for operators. Every mutation that is missing here needs an admin, so a new mutation
/// needs one by default.
pub(super) const OPERATOR_MUTATIONS: [&str; 19] = [
    "createPlanWithRequestId",
    "planQuery",
    "createPlan",
    "revisePlan",
    "executePlan",
    "executeByRequestId",
    "run",
    "cancelExecution",
    "pauseExecution",
    "resumeExecution",
    "retryExecution",
    "forkExecution",
    "replanExecution",
    "approveStep",
    "settleStep",
    "signalExecution",
    "runSavedPlan",
    "callTool",
    "runAgent",
];

/// Queries that need an operator, because programs use the result to call tools.
const OPERATOR_QUERIES: [&str; 1] = ["parseToolCalls"];

const ADMIN_QUERIES: [&str; 1] = ["audit"];

pub(super) fn mutation_role(name: &str) -> Role {
    match name {
        "__typename" => Role::Viewer,
        name if OPERATOR_MUTATIONS.contains(&name) => Role::Operator,
        _ => Role::Admin,
    }
}

pub(super) fn query_role(name: &str) -> Role {
    match name {
        name if ADMIN_QUERIES.contains(&name) => Role::Admin,
        name if OPERATOR_QUERIES.contains(&name) => Role::Operator,
        _ => Role::Viewer,
    }
}
