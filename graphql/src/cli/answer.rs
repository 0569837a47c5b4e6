//! Answers to executions that wait for a person or a signal. They carry the execution on where no
//! living process does.

use serde_json::{Map, Value, json};

use super::{
    Ending, Session,
    args::{ApproveArgs, SignalArgs},
    client::Client,
    failure::Failure,
    follow::{Purpose, follow},
    house::{House, Need},
    missing_tools,
    steer::{EXECUTION, execution_id, find, recorded},
};

/// Lets a step that waits for a person go on, or not.
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
    Answer { tell: &tell, more, carries_on: !args.no_run }.give(session, &args.id).await
}

/// Tells an execution something that a step waits for.
pub(super) async fn signal(session: &Session, args: SignalArgs) -> Result<Ending, Failure> {
    let payload: Option<Value> = match args.payload {
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
        ("name".to_owned(), json!(args.name)),
        ("payload".to_owned(), payload.unwrap_or_default()),
    ]);
    Answer { tell: &tell, more, carries_on: !args.no_run }.give(session, &args.id).await
}

/// An answer to an execution that waits.
struct Answer<'a> {
    tell: &'a str,
    more: Map<String, Value>,
    /// Whether this process carries the execution on where no other does.
    carries_on: bool,
}

impl Answer<'_> {
    async fn give(self, session: &Session, id: &str) -> Result<Ending, Failure> {
        let carries_on = self.carries_on;
        let house = House::open_existing(session, Need::Store).await?;
        let given = self.record(&house, id).await;
        let to_carry_on = match &given {
            Ok(told) if carries_on => to_carry_on(&house, told).await,
            _ => Ok(None),
        };
        let ending = match (given, to_carry_on) {
            (Ok(_), Ok(Some(root))) => {
                house.close().await;
                return carry_on(session, &root).await;
            }
            (Ok(told), Ok(None)) => recorded(session, &house, &told).await,
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
        };
        house.close().await;
        ending
    }

    /// Records the answer, and returns the execution.
    async fn record(self, house: &House, id: &str) -> Result<Value, Failure> {
        let found = find(house.client(), id).await?;
        let mut variables = self.more;
        variables.insert("id".to_owned(), found["executionId"].clone());
        house.client().field(self.tell, Value::Object(variables)).await
    }
}

/// Returns the execution that is to be carried on after an answer: the one that nothing else has as
/// a part. Nothing where a living process has it, or where it would not go on.
async fn to_carry_on(house: &House, told: &Value) -> Result<Option<Value>, Failure> {
    let Some(id) = execution_id(told) else { return Ok(None) };
    if house.store().is_none() || house.is_taken_up(id).await? {
        return Ok(None);
    }
    let root = root_of(house.client(), told).await?;
    let goes_on = matches!(root["state"].as_str(), Some("WAITING" | "IN_PROGRESS"));
    Ok(Some(root).filter(|_| goes_on))
}

async fn root_of(client: &Client, execution: &Value) -> Result<Value, Failure> {
    let query = format!(
        "query($id: ID!) {{ execution(executionId: $id) {{ {EXECUTION} parentExecutionId }} }}"
    );
    let mut id = execution["executionId"].clone();
    loop {
        let found = client.field(&query, json!({ "id": id })).await?;
        if found["parentExecutionId"].is_null() {
            return Ok(found);
        }
        id = found["parentExecutionId"].clone();
    }
}

/// Carries an execution on to its end.
async fn carry_on(session: &Session, execution: &Value) -> Result<Ending, Failure> {
    let house = House::open_existing(session, Need::Driving).await?;
    let ending = match missing_tools::check_execution(session, &house, execution).await {
        Ok(()) => follow(session, &house, execution, Purpose::Drive).await,
        Err(failure) => {
            let message = format!("recorded, and not carried on: {}", failure.message);
            Err(Failure { message, ..failure })
        }
    };
    house.close().await;
    ending
}
