use async_graphql::{Enum, SimpleObject};
use shared::actor;

/// Caller who gave a command: started an execution, approved a step, cancelled an execution, and so
/// on.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Actor {
    /// Kind of the actor, which decides the meaning of `name`.
    kind: ActorKind,
    /// Name of the access token, or of the user of the command line. Null for other kinds.
    name: Option<String>,
    /// Name of the MCP client, as the client stated it when it connected. Null for callers without
    /// an MCP client.
    client: Option<String>,
}

/// Kind of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub(super) enum ActorKind {
    /// Caller with an access token.
    Token,
    /// User of the command line that opens the store itself, without a server.
    User,
    /// Caller of a server without access tokens. Such a server accepts only callers on its own
    /// machine.
    Local,
    /// Faber itself, such as an automatic replan.
    Faber,
}

impl From<&actor::Actor> for Actor {
    fn from(actor::Actor { kind, name, client }: &actor::Actor) -> Self {
        let kind = match kind {
            actor::ActorKind::Token => ActorKind::Token,
            actor::ActorKind::User => ActorKind::User,
            actor::ActorKind::Local => ActorKind::Local,
            actor::ActorKind::Faber => ActorKind::Faber,
        };
        Self { kind, name: name.clone(), client: client.clone() }
    }
}

impl From<ActorKind> for actor::ActorKind {
    fn from(kind: ActorKind) -> Self {
        match kind {
            ActorKind::Token => Self::Token,
            ActorKind::User => Self::User,
            ActorKind::Local => Self::Local,
            ActorKind::Faber => Self::Faber,
        }
    }
}
