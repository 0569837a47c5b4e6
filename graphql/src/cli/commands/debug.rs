//! Commands that read what is stored: `faber debug` and `faber blob`.

use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::list::newest_executions;
use crate::cli::{
    App, ExitStatus,
    args::DebugArgs,
    client::{
        Client, read,
        types::{BLOB, Execution, Request, TimelineEntry},
    },
    failure::Failure,
    plan_file::write_file,
    session::{Need, Session},
    view::{report::report, screen::write_bytes},
};

/// The executions of a request that are told, the newest.
const EXECUTIONS: i32 = 50;
/// Entries of a timeline in one answer.
const ENTRIES: usize = 10_000;
/// The most pages of a timeline: a server has no more.
const PAGES: usize = 32;

/// Shows everything about a request.
pub(crate) async fn debug(app: &App, args: &DebugArgs) -> Result<ExitStatus, Failure> {
    let id = args.id.as_str();
    let document = Session::with_existing(app, Need::Store, async |session| {
        document(session.client(), id).await
    });
    let document = document.await?;
    if app.screen.json {
        app.screen.print_json(&document)?;
    } else {
        let request: Request = read(document)?;
        let execution = id.starts_with("exec_").then_some(id);
        app.screen.print(&report(&request, execution, args.full, app.screen.out))?;
    }
    Ok(ExitStatus::Done)
}

/// Returns everything about the request of an id: its newest executions, and always the one with this
/// id.
pub(crate) async fn document(client: &Client, id: &str) -> Result<Value, Failure> {
    let request = request_of(client, id).await?;
    let mut document = whole_request(client, &request).await?;
    if !document.is_object() {
        return Err(Failure::not_found("request", id));
    }
    if let Some(missing) = missing_execution(client, id, &document).await? {
        let found: Value = client.execution(missing, &Execution::fields()).await?;
        if let (false, Some(all)) = (found.is_null(), list_of(&mut document, "executions")) {
            all.insert(0, found);
        }
    }
    complete_timeline(client, &request, &mut document).await?;
    Ok(document)
}

fn list_of<'a>(document: &'a mut Value, key: &str) -> Option<&'a mut Vec<Value>> {
    document.get_mut(key)?.as_array_mut()
}

/// Returns a request with its newest executions, however large they are together.
async fn whole_request(client: &Client, request: &str) -> Result<Value, Failure> {
    let ask = async |executions| {
        let arguments = [("requestId: ID!", json!(request))];
        client.query::<Value>("request", &arguments, &Request::fields(executions)).await
    };
    match ask(EXECUTIONS).await {
        Err(failure) if failure.code == "LIMIT_EXCEEDED" => {
            let mut document = ask(1).await?;
            if let Some(executions) = list_of(&mut document, "executions") {
                *executions = newest_executions(client, request, EXECUTIONS).await?;
            }
            Ok(document)
        }
        found => found,
    }
}

/// Returns the execution that is asked about, if newer ones left no room for it: the one with the id, or
/// the newest that has no parent.
async fn missing_execution(
    client: &Client,
    id: &str,
    document: &Value,
) -> Result<Option<Value>, Failure> {
    let mut all = document["executions"].as_array().into_iter().flatten();
    if id.starts_with("exec_") {
        return Ok(all.all(|execution| execution["executionId"] != id).then(|| json!(id)));
    }
    if all.any(|execution| execution["parentExecutionId"].is_null()) {
        return Ok(None);
    }
    let arguments = [("requestId: ID!", document["requestId"].clone())];
    let fields = "executions(last: 1, parts: false) { executionId }";
    let mut found: Value = client.query("request", &arguments, fields).await?;
    Ok(found.pointer_mut("/executions/0/executionId").map(Value::take))
}

/// Adds the entries of a timeline that the first answer had no room for.
async fn complete_timeline(
    client: &Client,
    request: &str,
    document: &mut Value,
) -> Result<(), Failure> {
    let Some(timeline) = list_of(document, "timeline") else { return Ok(()) };
    for page in 1..PAGES {
        let skip = timeline.len();
        if skip < page * ENTRIES {
            break;
        }
        let entry = TimelineEntry::FIELDS;
        let fields = format!("timeline(skip: {skip}, first: {ENTRIES}) {{ {entry} }}");
        let arguments = [("requestId: ID!", json!(request))];
        let mut found: Value = client.query("request", &arguments, &fields).await?;
        let Some(more) = list_of(&mut found, "timeline") else { break };
        timeline.append(more);
    }
    Ok(())
}

/// Returns the request that an id belongs to.
async fn request_of(client: &Client, id: &str) -> Result<String, Failure> {
    let (owner, argument) = match id.split('_').next() {
        Some("plan") => ("plan", "planId: ID!"),
        Some("exec") => ("execution", "executionId: ID!"),
        _ => return Ok(id.to_owned()),
    };
    let found: Value = client.query(owner, &[(argument, json!(id))], "requestId").await?;
    let request = found["requestId"].as_str();
    request.map(str::to_owned).ok_or_else(|| Failure::not_found(owner, id))
}

/// Writes a large binary to a file, or to standard output.
pub(crate) async fn blob(app: &App, id: &str, file: Option<&Path>) -> Result<ExitStatus, Failure> {
    let found = Session::with_existing(app, Need::Store, async |session| {
        session.client().query::<Value>("blob", &[("id: ID!", json!(id))], BLOB).await
    });
    let mut found = found.await?;
    if found.is_null() {
        return Err(Failure::not_found("blob", id));
    }
    let screen = &app.screen;
    if screen.json && file.is_none() {
        screen.print_json(&found)?;
        return Ok(ExitStatus::Done);
    }
    let bytes = STANDARD.decode(found["data"].as_str().unwrap_or_default());
    let damaged = |err| Failure::new("INTERNAL", format!("`{id}` is damaged: {err}"));
    let bytes = bytes.map_err(damaged)?;
    match file {
        Some(file) => {
            write_file(file, &bytes).await?;
            if let (true, Some(fields)) = (screen.json, found.as_object_mut()) {
                fields.shift_remove("data");
                fields.insert("output".to_owned(), json!(file));
                screen.print_json(&found)?;
            }
        }
        None if screen.is_terminal => screen.document(&String::from_utf8_lossy(&bytes))?,
        None => write_bytes(&bytes)?,
    }
    Ok(ExitStatus::Done)
}
