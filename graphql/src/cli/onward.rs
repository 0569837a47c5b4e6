//! What goes on by itself after an execution that is over.

use std::time::Duration;

use serde_json::{Value, json};
use shared::id::ExecutionId;
use tokio::time;

use super::{Session, failure::Failure, follow::Purpose, house::House, plain, steer::EXECUTION};

/// How often is looked whether it has begun.
const LOOK: Duration = Duration::from_millis(250);
/// How many looks in a row must find that nobody sees to it: who could needs a moment.
const ABANDONED: usize = 20;

/// An execution that is over, and that may be planned anew by itself.
pub(super) struct Onward<'a> {
    session: &'a Session,
    house: &'a House,
    id: &'a Value,
    purpose: Purpose,
}

/// How an execution that is over went on.
pub(super) enum Went {
    /// This one goes on.
    On(Value),
    /// It was to go on, and does not.
    GivenUp,
    /// It was not to go on by itself, or nobody is there to see to it.
    Nowhere,
}

impl<'a> Onward<'a> {
    pub(super) fn of(
        session: &'a Session,
        house: &'a House,
        id: &'a Value,
        purpose: Purpose,
    ) -> Self {
        Self { session, house, id, purpose }
    }

    /// Waits until what goes on has begun, or will not.
    pub(super) async fn went(&self) -> Result<Went, Failure> {
        if !matches!(self.purpose, Purpose::Drive | Purpose::Watch) {
            return Ok(Went::Nowhere);
        }
        let (mut is_told, mut abandoned) = (false, 0);
        loop {
            let found = self.look().await?;
            let replanning = &found["replanning"];
            let reason = plain::said(&replanning["reason"]);
            match replanning["state"].as_str() {
                Some("BEGUN") if !found["next"].is_null() => {
                    let next = &found["next"];
                    let (version, id) =
                        (&next["plan"]["version"], plain::said(&next["executionId"]));
                    self.say(&format!(
                        "planned anew as version {version} because {reason}; {id} goes on"
                    ));
                    return Ok(Went::On(next.clone()));
                }
                Some("GIVEN_UP") => {
                    let why = plain::said(&replanning["givenUp"]);
                    self.say(&format!("not planned anew after all: {why}"));
                    return Ok(Went::GivenUp);
                }
                Some(_) if !is_told => {
                    self.say(&format!("a model plans anew because {reason}"));
                    is_told = true;
                }
                Some(_) => (),
                None => return Ok(Went::Nowhere),
            }
            let id = self.id.as_str().and_then(|it| it.parse::<ExecutionId>().ok());
            if let Some(id) = id {
                let is_alone = self.house.is_owed_by_nobody(id).await.unwrap_or(false);
                abandoned = if is_alone { abandoned + 1 } else { 0 };
                if abandoned >= ABANDONED && self.purpose == Purpose::Watch {
                    self.say(&format!("nobody plans it anew: `faber execute {id}` does"));
                    return Ok(Went::Nowhere);
                }
            }
            time::sleep(LOOK).await;
        }
    }

    async fn look(&self) -> Result<Value, Failure> {
        let query = format!(
            "query($id: ID!) {{ execution(executionId: $id) {{ replanning {{ state reason givenUp }} \
             next {{ {EXECUTION} plan {{ version }} }} }} }}"
        );
        self.house.client().field(&query, json!({ "id": self.id })).await
    }

    fn say(&self, line: &str) {
        let screen = &self.session.screen;
        if !screen.json {
            screen.say(&screen.err.dim(line));
        }
    }
}
