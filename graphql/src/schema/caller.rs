use async_graphql::{Context, Enum, Object, Result, SimpleObject};
use engine::{Engine, access};

/// Caller of this operation.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Caller {
    /// Name of the caller's access token, or of the user who signed in. Null without access tokens.
    name: Option<String>,
    /// Role of the caller. Without access tokens, `ADMIN`.
    role: Role,
}

/// Role of a caller. Each role includes the roles before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub(super) enum Role {
    /// Is allowed to subscribe, and to use most queries.
    Viewer,
    /// Is also allowed to plan, execute, control executions, and call tools.
    Operator,
    /// Is allowed everything.
    Admin,
}

impl From<access::Role> for Role {
    fn from(role: access::Role) -> Self {
        match role {
            access::Role::Viewer => Self::Viewer,
            access::Role::Operator => Self::Operator,
            access::Role::Admin => Self::Admin,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallerQuery;

#[Object]
impl CallerQuery {
    /// Caller of this operation, and its role.
    #[expect(clippy::unused_async, reason = "fields of the API are asynchronous")]
    async fn caller(&self, ctx: &Context<'_>) -> Result<Caller> {
        let grant = ctx.data::<Engine>()?.grant();
        Ok(Caller { name: grant.name().map(str::to_owned), role: grant.role().into() })
    }
}
