//! Executions told things: to stop, to pause, to go on.

use serde_json::{Map, Value, json};
use shared::id::ExecutionId;

use super::{
    Ending, Session,
    args::{ApproveArgs, Planning},
    client::Client,
    endings::at_rest,
    failure::Failure,
    follow::{Purpose, follow},
    house::{House, Need},
    planning,
};

/// What is always asked of an execution.
pub(super) const EXECUTION: &str = "executionId requestId planId state";

/// Lets a paused execution go on, and carries it on.
pub(super) async fn resume(session: &Session, id: &str) -> Result<Ending, Failure> {
    let tell =
        format!("mutation($id: ID!) {{ resumeExecution(executionId: $id) {{ {EXECUTION} }} }}");
    let told = Told { tell: &tell, more: Map::new(), need: Need::Driving, purpose: Purpose::Drive };
    told.to(session, id).await
}

/// Does an ended execution again, and sees the new one through.
pub(super) async fn retry(
    session: &Session,
    id: &str,
    from_step: Option<String>,
) -> Result<Ending, Failure> {
    let tell = format!(
        "mutation($id: ID!, $from: String) \
         {{ retryExecution(executionId: $id, fromStep: $from) {{ {EXECUTION} }} }}"
    );
    let more = Map::from_iter([("from".to_owned(), json!(from_step))]);
    let (need, purpose) = (Need::Driving, Purpose::Drive);
    Told { tell: &tell, more, need, purpose }.to(session, id).await
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

/// Lets a step that waits for a person go on, or not. Whoever has the execution carries it on.
pub(super) async fn approve(session: &Session, args: ApproveArgs) -> Result<Ending, Failure> {
    let tell = format!(
        "mutation($id: ID!, $step: String!, $approved: Boolean!, $comment: String) \
         {{ approveStep(executionId: $id, stepId: $step, approved: $approved, comment: $comment) \
         {{ {EXECUTION} }} }}"
    );
    let more = Map::from_iter([
        ("step".to_owned(), json!(args.step)),
        ("approved".to_owned(), json!(!args.reject)),
        ("comment".to_owned(), json!(args.comment)),
    ]);
    let (need, purpose) = (Need::Store, Purpose::Tell);
    Told { tell: &tell, more, need, purpose }.to(session, &args.id).await
}

/// Tells an execution something that a step waits for.
pub(super) async fn signal(
    session: &Session,
    id: &str,
    name: String,
    payload: Option<String>,
) -> Result<Ending, Failure> {
    let payload: Option<Value> = match payload {
        Some(text) => Some(serde_json::from_str(&text).map_err(|err| {
            let hint = "a string needs quotes, as in '\"text\"'";
            Failure::usage(format!("`{text}` is not JSON: {err}; {hint}"))
        })?),
        None => None,
    };
    let tell = format!(
        "mutation($id: ID!, $name: String!, $payload: JSON) \
         {{ signalExecution(executionId: $id, name: $name, payload: $payload) {{ {EXECUTION} }} }}"
    );
    let more = Map::from_iter([
        ("name".to_owned(), json!(name)),
        ("payload".to_owned(), payload.unwrap_or_default()),
    ]);
    let (need, purpose) = (Need::Store, Purpose::Tell);
    Told { tell: &tell, more, need, purpose }.to(session, id).await
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
        let house = House::open(session, self.need).await?;
        let ending = self.within(session, &house, id).await;
        house.close().await;
        ending
    }

    async fn within(self, session: &Session, house: &House, id: &str) -> Result<Ending, Failure> {
        let client = house.client();
        let found = find(client, id).await?;
        let mut variables = self.more;
        variables.insert("id".to_owned(), found["executionId"].clone());
        let telling = client.field(self.tell, Value::Object(variables));
        let told = match (house.drive(), execution_id(&found)) {
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
            if let Some(id) = execution_id(&told)
                && house.is_left_alone(id).await?
            {
                let hint = format!("recorded; nobody carries it on: `faber execute {id}` does");
                session.screen.say(&hint);
            }
            return at_rest(session, client, &told["executionId"]).await;
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
