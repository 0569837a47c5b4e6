//! Executions told things: to stop, to pause, to go on.

use serde_json::{Map, Value, json};
use shared::id::ExecutionId;

use super::{
    Ending, Session,
    args::{Planning, RetryArgs},
    client::Client,
    endings::at_rest,
    failure::Failure,
    follow::{Purpose, follow},
    house::{House, Need},
    missing_tools, plain, planning, repeated_calls,
};

/// What is always asked of an execution.
pub(super) const EXECUTION: &str = "executionId requestId planId state";

/// Lets a paused execution go on, and carries it on.
pub(super) async fn resume(session: &Session, id: &str, wait: bool) -> Result<Ending, Failure> {
    let tell =
        format!("mutation($id: ID!) {{ resumeExecution(executionId: $id) {{ {EXECUTION} }} }}");
    let told = Told { tell: &tell, more: Map::new(), need: Need::Driving, purpose: Purpose::Drive };
    let house = House::open_existing(session, Need::Driving).await?;
    let resumed = async {
        let found = find(house.client(), id).await?;
        if !wait {
            missing_tools::check_execution(session, &house, &found).await?;
        }
        told.tell(session, &house, &found).await
    };
    let ending = resumed.await;
    house.close().await;
    ending
}

/// Does an ended execution again, and sees the new one through.
pub(super) async fn retry(session: &Session, args: RetryArgs) -> Result<Ending, Failure> {
    let tell = format!(
        "mutation($id: ID!, $from: String, $mode: RetryMode) \
         {{ retryExecution(executionId: $id, fromStep: $from, mode: $mode) {{ {EXECUTION} }} }}"
    );
    let more = Map::from_iter([
        ("from".to_owned(), json!(args.from_step)),
        ("mode".to_owned(), json!(args.mode())),
    ]);
    let told = Told { tell: &tell, more, need: Need::Driving, purpose: Purpose::Drive };
    let house = House::open_existing(session, Need::Driving).await?;
    let retried = async {
        let found = find(house.client(), &args.id).await?;
        if !args.wait {
            missing_tools::check_retry(session, &house, &found, args.scope()).await?;
        }
        if !repeated_calls::may_retry(session, house.client(), &found, &args).await? {
            session.screen.say("nothing was retried");
            return Ok(Ending::Failed);
        }
        told.tell(session, &house, &found).await
    };
    let ending = retried.await;
    house.close().await;
    ending
}

/// Lets a model plan anew what an ended execution did not get done, and sees that through.
pub(super) async fn replan(
    session: &Session,
    id: &str,
    planning: &Planning,
) -> Result<Ending, Failure> {
    let tell = format!(
        "mutation($id: ID!, $planning: PlanningOptions) \
         {{ replanExecution(executionId: $id, options: $planning) {{ {EXECUTION} }} }}"
    );
    let more = Map::from_iter([("planning".to_owned(), planning::options(planning))]);
    let (need, purpose) = (Need::Driving, Purpose::Drive);
    Told { tell: &tell, more, need, purpose }.to(session, id).await
}

/// Stops an execution.
pub(super) async fn cancel(
    session: &Session,
    id: &str,
    reason: Option<String>,
) -> Result<Ending, Failure> {
    let tell = format!(
        "mutation($id: ID!, $reason: String) \
         {{ cancelExecution(executionId: $id, reason: $reason) {{ {EXECUTION} }} }}"
    );
    let more = Map::from_iter([("reason".to_owned(), json!(reason))]);
    Told { tell: &tell, more, need: Need::Stopping, purpose: Purpose::Finish }.to(session, id).await
}

/// Lets an execution begin no further step.
pub(super) async fn pause(session: &Session, id: &str) -> Result<Ending, Failure> {
    let tell =
        format!("mutation($id: ID!) {{ pauseExecution(executionId: $id) {{ {EXECUTION} }} }}");
    let (more, need) = (Map::new(), Need::Stopping);
    Told { tell: &tell, more, need, purpose: Purpose::Tell }.to(session, id).await
}

/// Something that an execution is told.
struct Told<'a> {
    tell: &'a str,
    more: Map<String, Value>,
    need: Need,
    purpose: Purpose,
}

impl Told<'_> {
    async fn to(self, session: &Session, id: &str) -> Result<Ending, Failure> {
        let house = House::open_existing(session, self.need).await?;
        let ending = match find(house.client(), id).await {
            Ok(found) => self.tell(session, &house, &found).await,
            Err(failure) => Err(failure),
        };
        house.close().await;
        ending
    }

    /// Tells an execution, and follows what comes of that.
    async fn tell(
        self,
        session: &Session,
        house: &House,
        found: &Value,
    ) -> Result<Ending, Failure> {
        let client = house.client();
        if self.purpose == Purpose::Finish && is_over(found) {
            return had_ended(session, client, found).await;
        }
        let mut variables = self.more;
        variables.insert("id".to_owned(), found["executionId"].clone());
        let telling = client.field(self.tell, Value::Object(variables));
        let told = match (house.drive(), execution_id(found)) {
            (Some(drive), Some(id)) => tokio::select! {
                told = telling => told?,
                never = async {
                    if self.need == Need::Stopping {
                        drive.until_told_to_stop(id).await;
                    }
                    drive.on(id).await
                } => match never {},
            },
            _ => telling.await?,
        };
        if self.purpose == Purpose::Tell {
            return recorded(session, house, &told).await;
        }
        if told["planId"] != found["planId"] {
            planning::show_known(session, client, &told["planId"]).await?;
        }
        let ending = follow(session, house, &told, self.purpose).await?;
        Ok(match (self.purpose, ending) {
            (Purpose::Drive, ending) | (_, ending @ Ending::Detached) => ending,
            _ => Ending::Done,
        })
    }
}

/// Shows an execution as it stands once it was told something that nobody carries out here.
pub(super) async fn recorded(
    session: &Session,
    house: &House,
    told: &Value,
) -> Result<Ending, Failure> {
    if let Some(id) = execution_id(told)
        && house.is_left_alone(id).await?
    {
        let hint = format!("recorded; no process carries it on: `faber execute {id}` does");
        session.screen.say(&hint);
    }
    at_rest(session, house.client(), &told["executionId"]).await
}

/// Returns whether an execution has ended.
fn is_over(execution: &Value) -> bool {
    matches!(execution["state"].as_str(), Some("COMPLETED" | "FAILED" | "CANCELLED"))
}

/// Says that an execution which was to be stopped had ended before.
async fn had_ended(session: &Session, client: &Client, found: &Value) -> Result<Ending, Failure> {
    let (id, state) = (plain::said(&found["executionId"]), plain::said(&found["state"]));
    session.screen.say(&format!("`{id}` had ended already ({state}): nothing was stopped"));
    at_rest(session, client, &found["executionId"]).await
}

/// Finds an execution by its own identifier, as the newest of a plan, or as the newest of a request
/// that is no part of another one.
pub(super) async fn find(client: &Client, id: &str) -> Result<Value, Failure> {
    let (owner, by_id, parts) = match id.split('_').next() {
        Some("plan") => ("plan", "planId", ""),
        // The newest of all is a part wherever a step executes a plan.
        Some("req") => ("request", "requestId", ", parts: false"),
        _ => {
            let query =
                format!("query($id: ID!) {{ execution(executionId: $id) {{ {EXECUTION} }} }}");
            let found = client.field(&query, json!({ "id": id })).await?;
            return if found.is_null() {
                Err(Failure::not_found("execution", id))
            } else {
                Ok(found)
            };
        }
    };
    let query = format!(
        "query($id: ID!) {{ {owner}({by_id}: $id) \
         {{ executions(last: 1{parts}) {{ {EXECUTION} }} }} }}"
    );
    let found = client.field(&query, json!({ "id": id })).await?;
    if found.is_null() {
        return Err(Failure::not_found(owner, id));
    }
    found["executions"].get(0).cloned().ok_or_else(|| {
        let why = format!("`{id}` was never executed: run `faber execute {id}`");
        Failure::new("NOT_FOUND", why)
    })
}

pub(super) fn execution_id(execution: &Value) -> Option<ExecutionId> {
    execution["executionId"].as_str()?.parse().ok()
}
