//! How an execution stands when it is no longer followed.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};

use super::{
    Ending, Session, client::Client, failure::Failure, paint::Paint, progress::duration, render,
    screen::pretty, shape::Shape,
};

/// The most steps that wait for a person and are told of.
const PERSONS: usize = 20;
/// The most errors that are told of.
const ERRORS: usize = 20;

/// Shows an execution that is over.
pub(super) async fn over(
    session: &Session,
    client: &Client,
    id: &Value,
) -> Result<Ending, Failure> {
    let screen = &session.screen;
    let document = if screen.json {
        print_document(session, client, id).await?
    } else {
        let query = "query($id: ID!) { execution(executionId: $id) { requestId state startedAt \
             createdAt finishedAt total successful outputs executionResults { errors { stepId \
             index code message } } steps { stepId warnings \
             compensation { error { code message } } } } }";
        let document = client.field(query, json!({ "id": id })).await?;
        warn(session, &document);
        let paint = screen.err;
        screen.say(&summary(&document, paint));
        screen.print(&pretty(&document["outputs"]))?;
        let hint = document["requestId"].as_str().unwrap_or_default();
        screen.say(&paint.dim(format!("everything about it: faber debug {hint}")));
        document
    };
    Ok(if document["state"] == "COMPLETED" { Ending::Done } else { Ending::Failed })
}

/// Says what steps had to warn of.
fn warn(session: &Session, document: &Value) {
    let paint = session.screen.err;
    for step in render::list(&document["steps"]) {
        for warning in render::list(&step["warnings"]).filter_map(Value::as_str) {
            let name = step["stepId"].as_str().unwrap_or_default();
            session.screen.say(&format!("{} {name}: {warning}", paint.yellow("warning:")));
        }
    }
}

fn summary(document: &Value, paint: Paint) -> String {
    let state = document["state"].as_str().unwrap_or_default();
    let shown = match state {
        "COMPLETED" => paint.green(state),
        "FAILED" => paint.red(state),
        _ => paint.yellow(state),
    };
    let (total, successful) = (&document["total"], &document["successful"]);
    let took = took_ms(document).map_or_else(String::new, |it| format!(" in {}", duration(it)));
    let mut text = format!("{shown}  {successful} of {total} steps{took}");
    let errors = &document["executionResults"]["errors"];
    for error in render::list(errors).take(ERRORS) {
        let part = |key: &str| error[key].as_str().unwrap_or_default();
        let head = paint.red(format!("error[{}]", part("code")));
        let item = error["index"].as_u64().map(|it| format!("[{it}]")).unwrap_or_default();
        let _ = write!(text, "\n{head}: {}{item}: {}", part("stepId"), part("message"));
    }
    let left = render::list(errors).count().saturating_sub(ERRORS);
    if left > 0 {
        let _ = write!(text, "\n… and {left} more errors");
    }
    for step in render::list(&document["steps"]) {
        let part = |key: &str| step["compensation"]["error"][key].as_str();
        if let (Some(code), Some(message)) = (part("code"), part("message")) {
            let name = step["stepId"].as_str().unwrap_or_default();
            let head = paint.red(format!("not undone[{code}]"));
            let _ = write!(text, "\n{head}: {name}: {message}");
        }
    }
    text
}

fn took_ms(document: &Value) -> Option<f64> {
    let moment = |key: &str| document[key].as_str()?.parse::<shared::clock::Timestamp>().ok();
    let from = moment("startedAt").or_else(|| moment("createdAt"))?;
    let micros = (moment("finishedAt")? - from).num_microseconds()?;
    Some(Duration::from_micros(u64::try_from(micros).ok()?).as_secs_f64() * 1_000.0)
}

/// Shows an execution that waits for a person: at these steps of these executions.
pub(super) async fn waiting(
    session: &Session,
    client: &Client,
    id: &Value,
    persons: &[(String, String)],
) -> Result<Ending, Failure> {
    let screen = &session.screen;
    if screen.json {
        print_document(session, client, id).await?;
        return Ok(Ending::Waiting);
    }
    let id = id.as_str().unwrap_or_default();
    screen.print(&format!("{id}  WAITING"))?;
    for (id, step) in persons.iter().take(PERSONS) {
        // Shells read brackets as a pattern.
        let step = if step.contains('[') { format!("'{step}'") } else { step.clone() };
        screen.say(&format!("faber approve {id} {step}            lets it go on"));
        screen.say(&format!("faber approve {id} {step} --reject   refuses it"));
    }
    if persons.len() > PERSONS {
        screen.say(&format!("and {} more", persons.len() - PERSONS));
    }
    Ok(Ending::Waiting)
}

/// Shows an execution that is followed no further as it stands.
pub(super) async fn at_rest(
    session: &Session,
    client: &Client,
    id: &Value,
) -> Result<Ending, Failure> {
    if session.screen.json {
        print_document(session, client, id).await?;
        return Ok(Ending::Done);
    }
    let query = "query($id: ID!) { execution(executionId: $id) { executionId state } }";
    let found = client.field(query, json!({ "id": id })).await?;
    let text = |key: &str| found[key].as_str().unwrap_or_default();
    session.screen.print(&format!("{}  {}", text("executionId"), text("state")))?;
    Ok(Ending::Done)
}

/// Says how to come back.
pub(super) fn detached(session: &Session, client: &Client, id: &Value) -> Result<Ending, Failure> {
    let name = id.as_str().unwrap_or_default();
    let message = if client.is_remote() {
        format!("detached; `{name}` goes on: `faber watch {name}` watches it")
    } else {
        format!(
            "detached; `{name}` is in the store: `faber execute {name}` carries it on, \
             `faber watch {name}` watches it, `faber cancel {name}` stops it"
        )
    };
    if session.screen.json {
        return Err(Failure::new("DETACHED", message).with("executionId", id.clone()));
    }
    session.screen.say(&message);
    Ok(Ending::Detached)
}

/// Prints an execution as one document.
pub(super) async fn print_document(
    session: &Session,
    client: &Client,
    id: &Value,
) -> Result<Value, Failure> {
    let shape = Shape::of(client).await?.execution();
    let query = format!("query($id: ID!) {{ execution(executionId: $id) {shape} }}");
    let document = client.field(&query, json!({ "id": id })).await?;
    session.screen.print_json(&document)?;
    Ok(document)
}
