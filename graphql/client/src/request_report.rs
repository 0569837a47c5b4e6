use serde_json::{Value, json};

use crate::{
    Client,
    failure::Failure,
    page::newest_executions,
    types::{ExecutionStatus, Request, TimelineEntry},
};

const MAX_REPORTED_EXECUTIONS: i32 = 50;
const MAX_ENTRIES: usize = 10_000;
/// Maximum number of pages of a timeline. A server offers no more entries than these pages contain.
const MAX_PAGES: usize = 32;

/// Loads the request that `id` belongs to, with the newest executions. If `id` is an older
/// execution, adds this execution, too.
pub async fn load_request(client: &Client, id: &str) -> Result<Value, Failure> {
    let request = find_request_id(client, id).await?;
    let mut document = load_with_executions(client, &request).await?;
    if !document.is_object() {
        return Err(Failure::not_found("request", id));
    }
    if let Some(missing) = find_missing_execution(client, id, &document).await? {
        let found: Value = client.query_execution(missing, &ExecutionStatus::fields()).await?;
        if let (false, Some(all)) = (found.is_null(), list_field_mut(&mut document, "executions")) {
            all.insert(0, found);
        }
    }
    load_timeline(client, &request, &mut document).await?;
    Ok(document)
}

fn list_field_mut<'a>(document: &'a mut Value, key: &str) -> Option<&'a mut Vec<Value>> {
    document.get_mut(key)?.as_array_mut()
}

/// Loads a request with its newest executions. If these exceed the size of one response, loads them
/// page by page.
async fn load_with_executions(client: &Client, request: &str) -> Result<Value, Failure> {
    let load = async |executions| {
        let arguments = [("requestId: ID!", json!(request))];
        client.query::<Value>("request", &arguments, &Request::fields(executions)).await
    };
    match load(MAX_REPORTED_EXECUTIONS).await {
        Err(failure) if failure.code == "LIMIT_EXCEEDED" => {
            let mut document = load(1).await?;
            if let Some(executions) = list_field_mut(&mut document, "executions") {
                *executions = newest_executions(client, request, MAX_REPORTED_EXECUTIONS).await?;
            }
            Ok(document)
        }
        found => found,
    }
}

/// Returns the id of the requested execution if `document` lacks this execution. The requested
/// execution is the one with `id`, or the newest execution without a parent.
async fn find_missing_execution(
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

async fn load_timeline(
    client: &Client,
    request: &str,
    document: &mut Value,
) -> Result<(), Failure> {
    let Some(timeline) = list_field_mut(document, "timeline") else { return Ok(()) };
    for page in 1..MAX_PAGES {
        let skip = timeline.len();
        if skip < page * MAX_ENTRIES {
            break;
        }
        let entry = TimelineEntry::FIELDS;
        let fields = format!("timeline(skip: {skip}, first: {MAX_ENTRIES}) {{ {entry} }}");
        let arguments = [("requestId: ID!", json!(request))];
        let mut found: Value = client.query("request", &arguments, &fields).await?;
        let Some(more) = list_field_mut(&mut found, "timeline") else { break };
        timeline.append(more);
    }
    Ok(())
}

async fn find_request_id(client: &Client, id: &str) -> Result<String, Failure> {
    let (owner, argument) = match id.split('_').next() {
        Some("plan") => ("plan", "planId: ID!"),
        Some("exec") => ("execution", "executionId: ID!"),
        _ => return Ok(id.to_owned()),
    };
    let found: Value = client.query(owner, &[(argument, json!(id))], "requestId").await?;
    let request = found["requestId"].as_str();
    request.map(str::to_owned).ok_or_else(|| Failure::not_found(owner, id))
}
