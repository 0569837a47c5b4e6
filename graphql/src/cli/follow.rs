//! Follows an execution, shows how it goes, and carries it on where nobody else does.

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use serde_json::{Value, json};
use shared::id::ExecutionId;
use tokio::time;

use super::{
    Ending, Session,
    client::Client,
    drive::Drive,
    endings::{Persons, detached, over, waiting},
    events::News,
    failure::Failure,
    house::House,
    onward::{Onward, Went},
    plain,
    progress::Progress,
    signals,
    stage::Layout,
    steer::execution_id,
    tree::Tree,
};

/// How often a broken stream is taken up again before the server counts as gone.
const RECONNECTS: usize = 5;
/// How long to wait before that.
const RECONNECT: Duration = Duration::from_secs(1);

/// How often is looked whether anybody carries on what is only watched.
const LOOK_FOR_OWNER: Duration = Duration::from_secs(1);
/// How many such looks in a row must find nobody: who could take it needs a moment.
const LOOKS_FOR_OWNER: usize = 3;
/// How often executions are looked at that are not followed, where all others wait.
const LOOK: Duration = Duration::from_secs(1);

/// What a command does with an execution besides telling it something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Only looks at it.
    Watch,
    /// Carries it on to its end, and ends as it does.
    Drive,
    /// Waits until it is over, and sees to it where nobody else does.
    Finish,
    /// Is done once it was told.
    Tell,
}

/// Follows an execution to its end and what goes on after it by itself, or until it waits for a
/// person or the user leaves; then shows how it stands.
pub(super) async fn follow(
    session: &Session,
    house: &House,
    execution: &Value,
    purpose: Purpose,
) -> Result<Ending, Failure> {
    let mut execution = execution.clone();
    loop {
        match follow_one(session, house, &execution, purpose).await? {
            Followed::On(next) => execution = next,
            Followed::Ended(ending) => return Ok(ending),
        }
    }
}

/// What became of an execution that was followed.
enum Followed {
    /// This one goes on.
    On(Value),
    /// It was shown.
    Ended(Ending),
}

async fn follow_one(
    session: &Session,
    house: &House,
    execution: &Value,
    purpose: Purpose,
) -> Result<Followed, Failure> {
    let client = house.client();
    let id = &execution["executionId"];
    let layout = layout(client, id).await?;
    if purpose == Purpose::Drive && !session.screen.json {
        session.screen.say(&session.screen.err.dim(format!("executing {}", plain::said(id))));
    }
    let mut follower = Follower {
        house,
        drives: purpose != Purpose::Watch,
        is_told: false,
        client,
        id: id.clone(),
        tree: Tree::new(id.as_str().unwrap_or_default().to_owned()),
        progress: Progress::new(&session.screen, layout),
    };
    let drive = || house.drive().filter(|_| purpose != Purpose::Watch);
    let stopped = {
        let following = follower.follow();
        let carrying = carry_on(drive(), execution_id(execution));
        tokio::select! {
            stopped = following => Some(stopped?),
            () = signals::interrupted() => None,
            never = carrying => match never {},
        }
    };
    follower.progress.end();
    let ending = match stopped {
        Some(Stopped::Over) => {
            let carrying = carry_on(drive(), execution_id(execution));
            let onward = Onward::of(session, house, id, purpose);
            let went = tokio::select! {
                went = onward.went() => went?,
                () = signals::interrupted() => {
                    return detached(session, client, id).map(Followed::Ended);
                }
                never = carrying => match never {},
            };
            match went {
                Went::On(next) => return Ok(Followed::On(next)),
                Went::GivenUp => match over(session, client, id).await? {
                    // What it was to bring about is not done, however well this part of it ended.
                    Ending::Done => Ending::Failed,
                    ending => ending,
                },
                Went::Nowhere => over(session, client, id).await?,
            }
        }
        Some(Stopped::Person) => {
            let persons = Persons::of(house, follower.tree.persons()).await?;
            waiting(session, client, id, &persons).await?
        }
        None => detached(session, client, id)?,
    };
    Ok(Followed::Ended(ending))
}

async fn carry_on(drive: Option<Drive>, id: Option<ExecutionId>) -> std::convert::Infallible {
    match (drive, id) {
        (Some(drive), Some(id)) => drive.on(id).await,
        _ => std::future::pending().await,
    }
}

async fn layout(client: &Client, id: &Value) -> Result<Layout, Failure> {
    let query = "query($id: ID!) { execution(executionId: $id) { plan { layers \
                 tools { stepId retry } } } }";
    let found = client.field(query, json!({ "id": id })).await?;
    Ok(Layout::of(&found["plan"]))
}

/// Why nothing more is followed.
enum Stopped {
    Over,
    /// It waits for a person.
    Person,
}

/// Reads the events of an execution and shows them.
struct Follower<'a> {
    house: &'a House,
    drives: bool,
    /// Whether was said that nobody carries it on.
    is_told: bool,
    client: &'a Client,
    id: Value,
    tree: Tree,
    progress: Progress,
}

impl Follower<'_> {
    async fn follow(&mut self) -> Result<Stopped, Failure> {
        let mut reconnects = RECONNECTS;
        loop {
            let after = self.tree.root().seq;
            match self.read().await {
                Ok(Some(stopped)) => return Ok(stopped),
                Ok(None) if self.state().await?.is_over() => return Ok(Stopped::Over),
                Ok(None) => (),
                Err(failure) if failure.code != "SERVER_UNAVAILABLE" => return Err(failure),
                Err(failure) if reconnects == 0 => return Err(failure),
                Err(_) => reconnects -= 1,
            }
            if self.tree.root().seq > after {
                reconnects = RECONNECTS;
            }
            time::sleep(RECONNECT).await;
        }
    }

    /// Reads the events of the tree until the root is over, or its stream ends.
    async fn read(&mut self) -> Result<Option<Stopped>, Failure> {
        let mut events = self.tree.subscribe(self.client);
        let mut looks = time::interval(LOOK);
        looks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let id = self.id.clone();
        let mut abandoned = pin!(abandoned(self.house, id.as_str()));
        loop {
            let waits = self.tree.waits_unseen();
            tokio::select! {
                next = events.next() => {
                    let Some((id, event)) = next else { return Ok(None) };
                    if let Some(news) = self.tree.apply(self.client, &mut events, (&id, &event?)) {
                        self.progress.tell(&news, self.tree.root().n_over);
                    }
                }
                id = &mut abandoned, if !self.drives && !self.is_told => {
                    let note = format!("nobody carries it on: `faber execute {id}` does");
                    self.progress.tell(&News::Note(note), self.tree.root().n_over);
                    self.is_told = true;
                }
                _ = looks.tick(), if waits => (),
            }
            if self.tree.root().is_over() {
                return Ok(Some(Stopped::Over));
            }
            if self.tree.waits_for_a_person() && self.is_left_waiting().await? {
                return Ok(Some(Stopped::Person));
            }
        }
    }

    /// Returns whether nothing goes on until a person speaks, none having spoken already. (A
    /// command leaves the inbox together with what it makes happen, so the inbox is read first.)
    async fn is_left_waiting(&self) -> Result<bool, Failure> {
        for id in self.tree.queued() {
            if !self.state_of(&json!(id)).await?.is("WAITING") {
                return Ok(false);
            }
        }
        let mut ids: Vec<String> = self.tree.persons().into_iter().map(|(id, _)| id).collect();
        ids.dedup();
        for id in ids {
            // What is only watched goes on where a living process reads the answer.
            let has_mail = match id.parse() {
                Ok(id) if self.house.has_mail(id).await? => {
                    self.drives || self.house.is_taken_up(id).await?
                }
                _ => false,
            };
            let state = self.state_of(&json!(id)).await?;
            // What happened and is not seen yet may be the answer, and another question.
            if has_mail || !state.is("WAITING") || state.seq > self.tree.seq_of(&id) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn state(&self) -> Result<State, Failure> {
        self.state_of(&self.id).await
    }

    async fn state_of(&self, id: &Value) -> Result<State, Failure> {
        let query = "query($id: ID!) { execution(executionId: $id) { state seq } }";
        let found = self.client.field(query, json!({ "id": id })).await?;
        let name = found["state"].as_str().unwrap_or_default().to_owned();
        Ok(State { name, seq: found["seq"].as_u64().unwrap_or_default() })
    }
}

/// The state of an execution, as the API calls it.
struct State {
    name: String,
    /// The position of the last event.
    seq: u64,
}

impl State {
    fn is(&self, name: &str) -> bool {
        self.name == name
    }

    fn is_over(&self) -> bool {
        matches!(self.name.as_str(), "COMPLETED" | "FAILED" | "CANCELLED")
    }
}

/// Waits until nobody carries an execution on, and returns its identifier.
async fn abandoned(house: &House, id: Option<&str>) -> ExecutionId {
    let Some(id) = id.and_then(|it| it.parse().ok()) else {
        return std::future::pending().await;
    };
    let mut looks = 0;
    while looks < LOOKS_FOR_OWNER {
        time::sleep(LOOK_FOR_OWNER).await;
        // A store that does not answer is for the events to tell of.
        let is_abandoned = house.is_abandoned(id).await.unwrap_or(false);
        looks = if is_abandoned { looks + 1 } else { 0 };
    }
    id
}
