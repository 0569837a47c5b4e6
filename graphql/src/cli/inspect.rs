//! `faber debug`: everything about a request.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{
    Ending, Session,
    client::Client,
    failure::Failure,
    house::{House, Need},
    paint::Paint,
    planning::indented,
    progress::duration,
    render,
    shape::Shape,
};

/// Shows everything about a request.
pub(super) async fn debug(session: &Session, id: &str) -> Result<Ending, Failure> {
    let house = House::open(session, Need::Store).await?;
    let shown = show(session, house.client(), id).await;
    house.close().await;
    shown.map(|()| Ending::Done)
}

async fn show(session: &Session, client: &Client, id: &str) -> Result<(), Failure> {
    let request = request_of(client, id).await?;
    let shape = Shape::of(client).await?.request();
    let query = format!("query($id: ID!) {{ request(requestId: $id) {shape} }}");
    let document = client.field(&query, json!({ "id": request })).await?;
    if document.is_null() {
        return Err(Failure::not_found("request", id));
    }
    if session.screen.json {
        return session.screen.print_json(&document);
    }
    session.screen.print(&story(&document, session.screen.out))
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
fn story(request: &Value, paint: Paint) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut told = format!(
        "{}  {}\n{}\n",
        paint.bold(text(&request["requestId"])),
        paint.dim(text(&request["createdAt"])),
        text(&request["query"])
    );
    for entry in render::list(&request["transcript"]) {
        let head = paint.cyan(text(&entry["kind"]));
        let _ = write!(told, "\n{head}  {}\n", paint.dim(text(&entry["at"])));
        let _ = writeln!(told, "{}", indented(&entry["content"], 2));
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
    let text = |key: &str| execution[key].as_str().unwrap_or_default();
    let mut told = format!(
        "{}  {}  {}\n",
        paint.bold(text("executionId")),
        state(text("state"), paint),
        paint.dim(format!("{}  {}", text("createdAt"), text("node")))
    );
    for step in render::list(&execution["steps"]) {
        told.push_str(&step_of(step, paint));
    }
    for wait in render::list(&execution["waitsFor"]) {
        let why = wait["message"].as_str().unwrap_or_default();
        let _ = writeln!(told, "  {} {why}", paint.yellow("waits:"));
    }
    told
}

fn step_of(step: &Value, paint: Paint) -> String {
    let text = |key: &str| step[key].as_str().unwrap_or_default();
    let took = step["durationMs"].as_f64().map(duration).unwrap_or_default();
    let attempts = match step["attempts"].as_u64() {
        Some(n) if n > 1 => format!("{n} attempts"),
        _ => String::new(),
    };
    let rest: Vec<_> = [took, attempts].into_iter().filter(|it| !it.is_empty()).collect();
    let mut told = format!(
        "  {}  {}  {}  {}\n",
        paint.cyan(text("stepId")),
        text("toolName"),
        state(text("state"), paint),
        paint.dim(rest.join(", "))
    );
    for (name, key) in [("parameters", "resolvedParameters"), ("output", "output")] {
        if !step[key].is_null() {
            let _ = writeln!(told, "    {}\n{}", paint.dim(name), indented(&step[key], 6));
        }
    }
    let error = &step["error"];
    if let (Some(code), Some(message)) = (error["code"].as_str(), error["message"].as_str()) {
        let _ = writeln!(told, "    {}: {message}", paint.red(format!("error[{code}]")));
    }
    for warning in render::list(&step["warnings"]).filter_map(Value::as_str) {
        let _ = writeln!(told, "    {} {warning}", paint.yellow("warning:"));
    }
    told
}

/// Colours a state as it is meant.
pub(super) fn state(name: &str, paint: Paint) -> String {
    match name {
        "COMPLETED" | "SUCCEEDED" | "ready" => paint.green(name),
        "FAILED" | "failed" => paint.red(name),
        "WAITING" | "PAUSED" | "RETRYING" | "CANCELLED" | "connecting" => paint.yellow(name),
        _ => name.to_owned(),
    }
}
