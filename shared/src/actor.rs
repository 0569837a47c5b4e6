//! Actors, which are the callers that give commands: token holders, users, or Faber itself.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Maximum number of characters of a name. Longer names are cut, because a client can choose any
/// name.
const MAX_NAME_CHARS: usize = 128;

/// The caller that gave a command, for example started an execution or approved a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Actor {
    /// The kind of caller.
    pub kind: ActorKind,
    /// The name of the token or user. `None` for Faber, for a caller without a token, and for a
    /// user without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The name that an MCP client gave when it connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// The kind of an [`Actor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    /// A caller with an access token.
    Token,
    /// A user of the command line that opens the store itself, without a server.
    User,
    /// A caller of a server without tokens, which accepts this machine only.
    Local,
    /// Faber itself, for example when it replans automatically.
    Faber,
}

impl ActorKind {
    /// Returns the name that stored actors have.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::User => "user",
            Self::Local => "local",
            Self::Faber => "faber",
        }
    }
}

impl Actor {
    /// Returns the holder of a token.
    pub fn token(name: &str) -> Self {
        Self { kind: ActorKind::Token, name: Some(shorten(name)), client: None }
    }

    /// Returns a user of the command line.
    pub fn user(name: Option<&str>) -> Self {
        Self { kind: ActorKind::User, name: name.map(shorten), client: None }
    }

    /// Returns a caller without a name on this machine.
    pub fn local() -> Self {
        Self { kind: ActorKind::Local, name: None, client: None }
    }

    /// Returns Faber itself.
    pub fn faber() -> Self {
        Self { kind: ActorKind::Faber, name: None, client: None }
    }

    /// Returns a copy of this actor with the name of its MCP client.
    #[must_use]
    pub fn with_client(&self, client: &str) -> Self {
        Self { client: Some(shorten(client)).filter(|name| !name.is_empty()), ..self.clone() }
    }

    pub(crate) fn bytes(&self) -> usize {
        48 + self.name.as_ref().map_or(0, String::len) + self.client.as_ref().map_or(0, String::len)
    }
}

/// Writes the actor for people, for example a user with its MCP client: "user `ada` through
/// `Inspector`".
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, &self.name) {
            (ActorKind::Token, Some(name)) => write!(f, "token `{name}`")?,
            (ActorKind::Token, None) => f.write_str("a token")?,
            (ActorKind::User, Some(name)) => write!(f, "user `{name}`")?,
            (ActorKind::User, None) => f.write_str("a user")?,
            (ActorKind::Local, _) => f.write_str("a caller on this machine")?,
            (ActorKind::Faber, _) => f.write_str("Faber")?,
        }
        match &self.client {
            Some(client) => write!(f, " through `{client}`"),
            None => Ok(()),
        }
    }
}

fn shorten(name: &str) -> String {
    name.chars().filter(|char| !char.is_control()).take(MAX_NAME_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_is_written_for_people_and_read_back_from_json() {
        let cases = [
            (Actor::token("ops"), "token `ops`", r#"{"kind":"token","name":"ops"}"#),
            (Actor::faber(), "Faber", r#"{"kind":"faber"}"#),
            (
                Actor::local().with_client("Inspector\n"),
                "a caller on this machine through `Inspector`",
                r#"{"kind":"local","client":"Inspector"}"#,
            ),
        ];
        for (actor, text, json) in cases {
            assert_eq!(actor.to_string(), text);
            assert_eq!(serde_json::to_string(&actor).unwrap(), json);
            assert_eq!(serde_json::from_str::<Actor>(json).unwrap(), actor);
        }
    }

    #[test]
    fn a_long_name_is_cut_at_the_limit() {
        let actor = Actor::token(&"ä".repeat(1_000));
        assert_eq!(actor.name.unwrap().chars().count(), MAX_NAME_CHARS);
    }
}
