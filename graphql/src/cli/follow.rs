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
    endings::{detached, over, waiting},
    events::Board,
    failure::Failure,
    house::House,
    progress::Progress,
    render, signals,
    steer::execution_id,
};

/// How often a broken stream is taken up again before the server counts as gone.
const RECONNECTS: usize = 5;
/// How long to wait before that.
const RECONNECT: Duration = Duration::from_secs(1);

const EVENTS: &str = "subscription($id: ID!, $after: Int) { executionEvents(executionId: $id, \
     afterSeq: $after) { seq at type stepId attempt data } }";

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

/// Follows an execution to its end, or until it waits for a person or the user leaves; then shows
/// how it stands.
pub(super) async fn follow(
    session: &Session,
    house: &House,
    execution: &Value,
    purpose: Purpose,
) -> Result<Ending, Failure> {
    let client = house.client();
    let id = &execution["executionId"];
    let steps = step_ids(client, id).await?;
    let mut follower = Follower {
        house,
        drives: purpose != Purpose::Watch,
        client,
        id: id.clone(),
        board: Board::default(),
        progress: Progress::new(&session.screen, &steps),
    };
    let drive = house.drive().filter(|_| purpose != Purpose::Watch);
    let stopped = {
        let following = follower.follow();
        let carrying = carry_on(drive, execution_id(execution));
        tokio::select! {
            stopped = following => Some(stopped?),
            () = signals::interrupted() => None,
            never = carrying => match never {},
        }
    };
    follower.progress.end();
    match stopped {
        Some(Stopped::Over) => over(session, client, id).await,
        Some(Stopped::Person) => waiting(session, client, id, &follower.board).await,
        None => detached(session, client, id),
    }
}

async fn carry_on(drive: Option<Drive>, id: Option<ExecutionId>) -> std::convert::Infallible {
    match (drive, id) {
        (Some(drive), Some(id)) => drive.on(id).await,
        _ => std::future::pending().await,
    }
}

async fn step_ids(client: &Client, id: &Value) -> Result<Vec<String>, Failure> {
    let query = "query($id: ID!) { execution(executionId: $id) { plan { executionOrder } } }";
    let found = client.field(query, json!({ "id": id })).await?;
    let order = render::list(&found["plan"]["executionOrder"]);
    Ok(order.filter_map(|it| it.as_str().map(str::to_owned)).collect())
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
    client: &'a Client,
    id: Value,
    board: Board,
    progress: Progress,
}

impl Follower<'_> {
    async fn follow(&mut self) -> Result<Stopped, Failure> {
        let mut reconnects = RECONNECTS;
        loop {
            let after = self.board.seq;
            match self.read().await {
                Ok(Some(stopped)) => return Ok(stopped),
                Ok(None) if self.state().await?.is_over() => return Ok(Stopped::Over),
                Ok(None) => (),
                Err(failure) if failure.code != "SERVER_UNAVAILABLE" => return Err(failure),
                Err(failure) if reconnects == 0 => return Err(failure),
                Err(_) => reconnects -= 1,
            }
            if self.board.seq > after {
                reconnects = RECONNECTS;
            }
            time::sleep(RECONNECT).await;
        }
    }

    /// Reads one stream of events to its end.
    async fn read(&mut self) -> Result<Option<Stopped>, Failure> {
        let variables = json!({ "id": self.id, "after": self.board.seq });
        let mut events = pin!(self.client.subscribe(EVENTS, variables));
        while let Some(event) = events.next().await {
            if let Some(news) = self.board.apply(&event?) {
                self.progress.tell(&news, self.board.n_over);
            }
            if self.board.is_over() {
                return Ok(Some(Stopped::Over));
            }
            if self.board.waits_for_a_person() && self.is_left_waiting().await? {
                return Ok(Some(Stopped::Person));
            }
        }
        Ok(None)
    }

    /// Returns whether nothing goes on until a person speaks, none having spoken already. (A
    /// command leaves the inbox together with what it makes happen, so the inbox is read first.)
    async fn is_left_waiting(&self) -> Result<bool, Failure> {
        let has_mail = match self.id.as_str().and_then(|it| it.parse().ok()) {
            Some(id) if self.drives => self.house.has_mail(id).await?,
            _ => false,
        };
        Ok(!has_mail && self.state().await?.is("WAITING"))
    }

    async fn state(&self) -> Result<State, Failure> {
        let query = "query($id: ID!) { execution(executionId: $id) { state } }";
        let found = self.client.field(query, json!({ "id": self.id })).await?;
        Ok(State(found["state"].as_str().unwrap_or_default().to_owned()))
    }
}

/// The state of an execution, as the API calls it.
struct State(String);

impl State {
    fn is(&self, name: &str) -> bool {
        self.0 == name
    }

    fn is_over(&self) -> bool {
        matches!(self.0.as_str(), "COMPLETED" | "FAILED" | "CANCELLED")
    }
}
