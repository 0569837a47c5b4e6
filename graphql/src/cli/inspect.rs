//! `faber debug`: everything about a request.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    Ending, Session,
    args::DebugArgs,
    client::Client,
    explain,
    failure::Failure,
    house::{House, Need},
    lists,
    paint::Paint,
    plain,
    planning::indented,
    render,
    report::{report, waited, worked},
    shape::Shape,
};

/// The executions of a request that are told of, the newest.
const EXECUTIONS: i32 = 50;
/// Entries of a timeline that one answer has.
const ENTRIES: usize = 10_000;
/// The most parts that a timeline is read in: a server has no more of it.
const PARTS: usize = 32;

/// Shows everything about a request.
pub(super) async fn debug(session: &Session, args: &DebugArgs) -> Result<Ending, Failure> {
    let house = House::open_existing(session, Need::Store).await?;
    let shown = show(session, house.client(), args).await;
    house.close().await;
    shown.map(|()| Ending::Done)
}

async fn show(session: &Session, client: &Client, args: &DebugArgs) -> Result<(), Failure> {
    let id = args.id.as_str();
    let document = document(client, id).await?;
    if session.screen.json {
        return session.screen.print_json(&document);
    }
    let paint = session.screen.out;
    let told = if args.full {
        story(&document, paint)
    } else {
        report(&document, id.starts_with("exec_").then_some(id), paint)
    };
    session.screen.print(&told)
}

/// Returns everything about the request that an identifier belongs to: of its executions the newest,
/// and always the one that is asked about.
pub(super) async fn document(client: &Client, id: &str) -> Result<Value, Failure> {
    let request = request_of(client, id).await?;
    let shape = Shape::of(client).await?;
    let mut document = whole(client, &shape, &request).await?;
    if !document.is_object() {
        return Err(Failure::not_found("request", id));
    }
    if let Some(missing) = missing(client, id, &document).await? {
        let query =
            format!("query($id: ID!) {{ execution(executionId: $id) {} }}", shape.execution());
        let found = client.field(&query, json!({ "id": missing })).await?;
        if let (false, Some(Value::Array(all))) = (found.is_null(), document.get_mut("executions"))
        {
            all.insert(0, found);
        }
    }
    complete(client, &shape, &mut document).await?;
    Ok(document)
}

/// Returns a request with its newest executions, however large they are together.
async fn whole(client: &Client, shape: &Shape, request: &Value) -> Result<Value, Failure> {
    let ask = async |last| {
        let shape = shape.request(last);
        let query = format!("query($id: ID!) {{ request(requestId: $id) {shape} }}");
        client.field(&query, json!({ "id": request })).await
    };
    match ask(EXECUTIONS).await {
        // One answer has no room for them; several have.
        Err(err) if err.code == "LIMIT_EXCEEDED" => {
            let mut document = ask(1).await?;
            let all = lists::executions_of(client, shape, request, EXECUTIONS).await?;
            if let Some(executions) = document.get_mut("executions") {
                *executions = Value::Array(all);
            }
            Ok(document)
        }
        found => found,
    }
}

/// Returns the execution that is asked about, if newer ones left no room for it: the one that is
/// named, or else the newest that is no part of another one.
async fn missing(client: &Client, id: &str, document: &Value) -> Result<Option<Value>, Failure> {
    let mut all = render::list(&document["executions"]);
    if id.starts_with("exec_") {
        return Ok(all.all(|it| it["executionId"] != id).then(|| json!(id)));
    }
    if all.any(|it| it["parentExecutionId"].is_null()) {
        return Ok(None);
    }
    let query = "query($id: ID!) { request(requestId: $id) { executions(last: 1, parts: false) { \
                 executionId } } }";
    let mut found = client.field(query, json!({ "id": document["requestId"] })).await?;
    Ok(found.pointer_mut("/executions/0/executionId").map(Value::take))
}

/// Adds what one answer has no room for to a timeline.
async fn complete(client: &Client, shape: &Shape, document: &mut Value) -> Result<(), Failure> {
    let query = format!(
        "query($id: ID!, $skip: Int) {{ request(requestId: $id) {{ timeline(skip: $skip, \
         first: {ENTRIES}) {} }} }}",
        shape.timeline_entry()
    );
    let mut read = document["timeline"].as_array().map_or(0, Vec::len);
    for part in 1..PARTS {
        if read < part * ENTRIES {
            break;
        }
        let variables = json!({ "id": document["requestId"], "skip": read });
        let mut found = client.field(&query, variables).await?;
        let (Some(Value::Array(more)), Some(Value::Array(all))) =
            (found.get_mut("timeline").map(Value::take), document.get_mut("timeline"))
        else {
            break;
        };
        read += more.len();
        all.extend(more);
    }
    Ok(())
}

/// Returns the request that an identifier belongs to.
async fn request_of(client: &Client, id: &str) -> Result<Value, Failure> {
    let (what, query) = match id.split('_').next() {
        Some("plan") => ("plan", "query($id: ID!) { plan(planId: $id) { requestId } }"),
        Some("exec") => {
            ("execution", "query($id: ID!) { execution(executionId: $id) { requestId } }")
        }
        _ => return Ok(json!(id)),
    };
    let found = client.field(query, json!({ "id": id })).await?;
    if found.is_null() { Err(Failure::not_found(what, id)) } else { Ok(found["requestId"].clone()) }
}

/// Tells a request from the query to the last step.
pub(super) fn story(request: &Value, paint: Paint) -> String {
    let text = plain::said;
    let mut told = format!(
        "{}  {}\n{}\n",
        paint.bold(text(&request["requestId"])),
        paint.dim(text(&request["createdAt"])),
        plain::line(request["query"].as_str().unwrap_or_default())
    );
    for entry in render::list(&request["transcript"]) {
        let head = paint.cyan(text(&entry["kind"]));
        let _ = write!(told, "\n{head}  {}\n", paint.dim(text(&entry["at"])));
        let kind = text(&entry["kind"]);
        let _ = writeln!(told, "{}", explain::entry(&kind, &entry["content"], paint));
    }
    for plan in render::list(&request["plans"]) {
        let _ = write!(told, "\n{}\n", render::plan(plan, paint));
        let warnings = render::diagnostics(&plan["diagnostics"], "", paint);
        if !warnings.is_empty() {
            let _ = writeln!(told, "{warnings}");
        }
    }
    for execution in render::list(&request["executions"]) {
        told.push('\n');
        told.push_str(&run_of(execution, paint));
    }
    told.trim_end().to_owned()
}

fn run_of(execution: &Value, paint: Paint) -> String {
    let text = |key: &str| plain::said(&execution[key]);
    let mut told = format!(
        "{}  {}  {}\n",
        paint.bold(text("executionId")),
        state(&text("state"), paint),
        paint.dim(format!("{}  {}", text("createdAt"), text("node")))
    );
    let next = &execution["next"]["executionId"];
    for (name, id) in [
        ("part of", &execution["parentExecutionId"]),
        ("again", &execution["retryOf"]),
        ("planned anew as", next),
    ] {
        if let Some(id) = id.as_str() {
            let _ = writeln!(told, "  {} {}", paint.dim(name), plain::line(id));
        }
    }
    if !execution["input"].is_null() {
        let _ = writeln!(told, "  {}\n{}", paint.dim("input"), indented(&execution["input"], 4));
    }
    for wait in render::list(&execution["waitsFor"]) {
        let until = wait["until"]
            .as_str()
            .map(|it| format!(", until {}", plain::line(it)))
            .unwrap_or_default();
        let message = plain::said(&wait["message"]);
        let _ = writeln!(told, "  {} {message}{until}", paint.yellow("waits:"));
    }
    for step in render::list(&execution["steps"]) {
        told.push_str(&step_of(step, paint));
    }
    told
}

fn step_of(step: &Value, paint: Paint) -> String {
    let text = |key: &str| plain::said(&step[key]);
    let attempts = match step["attempts"].as_u64() {
        Some(n) if n > 1 => format!("{n} attempts"),
        _ => String::new(),
    };
    let skipped = text("skipReason").replace('_', " ");
    let reused = if step["reused"] == true { "reused" } else { "" }.to_owned();
    let rest = [worked(step), waited(step), attempts, skipped, reused, counted(&step["itemTally"])];
    let rest: Vec<_> = rest.into_iter().filter(|it| !it.is_empty()).collect();
    let mut told = format!(
        "  {}  {}  {}  {}\n",
        paint.cyan(text("stepId")),
        text("toolName"),
        state(&text("state"), paint),
        paint.dim(rest.join(", "))
    );
    for (name, key) in [("parameters", "resolvedParameters"), ("output", "output")] {
        if !step[key].is_null() {
            let _ = writeln!(told, "    {}\n{}", paint.dim(name), indented(&step[key], 6));
        }
    }
    let error = &step["error"];
    if let (Some(code), Some(message)) = (error["code"].as_str(), error["message"].as_str()) {
        let _ = writeln!(
            told,
            "    {}: {}",
            paint.red(format!("error[{}]", plain::line(code))),
            plain::line(message)
        );
    }
    for warning in render::list(&step["warnings"]).filter_map(Value::as_str) {
        let _ = writeln!(told, "    {} {}", paint.yellow("warning:"), plain::line(warning));
    }
    if let Some(child) = step["childExecutionId"].as_str() {
        let _ = writeln!(told, "    {} {}", paint.dim("executes"), plain::line(child));
    }
    if step["compensation"].is_object() {
        let undone = step_of(&step["compensation"], paint);
        let _ = write!(told, "    {}{undone}", paint.dim("undone by"));
    }
    told.push_str(&items_of(step, paint));
    told
}

/// The most items of a step that are shown.
const ITEMS: usize = 10;

/// Shows the items of a step that did not just succeed.
fn items_of(step: &Value, paint: Paint) -> String {
    let mut told = String::new();
    let is_plain = |it: &&Value| it["state"] == "SUCCEEDED" || it["state"] == "PENDING";
    let others: Vec<_> = render::list(&step["items"]).filter(|it| !is_plain(it)).collect();
    for item in others.iter().take(ITEMS) {
        let error = &item["error"];
        let why = match (error["code"].as_str(), error["message"].as_str()) {
            (Some(code), Some(message)) => {
                format!("  {}: {}", plain::line(code), plain::line(message))
            }
            _ => String::new(),
        };
        let shown = state(&plain::said(&item["state"]), paint);
        let _ = writeln!(told, "    [{}]  {shown}{why}", item["index"]);
    }
    if others.len() > ITEMS {
        let more = plain::count(others.len() - ITEMS, "more item");
        let _ = writeln!(told, "    … and {more}");
    }
    told
}

/// Counts items in words: `990 of 1000 items succeeded, 10 failed`.
fn counted(tally: &Value) -> String {
    let Some(total) = tally["total"].as_u64() else { return String::new() };
    let items = plain::count(total, "item");
    let mut text = format!("{} of {items} succeeded", tally["successful"]);
    for key in ["failed", "skipped", "cancelled", "running", "waiting"] {
        if let Some(n) = tally[key].as_u64().filter(|it| *it > 0) {
            let _ = write!(text, ", {n} {key}");
        }
    }
    text
}

/// Colours a state as it is meant.
pub(super) fn state(name: &str, paint: Paint) -> String {
    match name {
        "COMPLETED" | "SUCCEEDED" | "ready" => paint.green(name),
        "FAILED" | "failed" => paint.red(name),
        "WAITING" | "PAUSED" | "RETRYING" | "CANCELLED" | "COMPENSATING" | "COMPENSATED"
        | "connecting" => paint.yellow(name),
        _ => name.to_owned(),
    }
}
