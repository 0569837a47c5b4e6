//! Calls with an effect that a command would make a second time: people see them before it does.

use std::io::{self, IsTerminal, Write as _};

use serde_json::{Value, json};

use super::{
    Session, args::RetryArgs, client::Client, failure::Failure, plain, render::list, table,
};

const CALLS: &str = "{ stepId toolName calls outcomeUnknown }";

/// Says which calls a retry would make a second time. Returns whether it may go on: on a terminal a
/// person is asked.
pub(super) async fn may_retry(
    session: &Session,
    client: &Client,
    execution: &Value,
    args: &RetryArgs,
) -> Result<bool, Failure> {
    let query = format!(
        "query($id: ID!, $mode: RetryMode!, $from: String) {{ execution(executionId: $id) \
         {{ repeatedCalls(mode: $mode, fromStep: $from) {CALLS} }} }}"
    );
    let variables = json!({
        "id": execution["executionId"], "mode": args.mode(), "from": args.from_step,
    });
    let found = client.field(&query, variables).await?;
    if list(&found["repeatedCalls"]).next().is_none() {
        return Ok(true);
    }
    let screen = &session.screen;
    screen.say("this retry repeats calls that have an effect each time:");
    screen.say(&told(&found["repeatedCalls"]));
    if args.yes || screen.json || !is_interactive() {
        return Ok(true);
    }
    ask("repeat them? (y/N) ").await
}

/// Says which calls of its last execution another execution of a plan makes a second time.
pub(super) async fn warn_before_execution(
    session: &Session,
    client: &Client,
    plan: &Value,
) -> Result<(), Failure> {
    let query = format!(
        "query($id: ID!) {{ plan(planId: $id) {{ executions(last: 1) \
         {{ executionId repeatedCalls {CALLS} }} }} }}"
    );
    let found = client.field(&query, json!({ "id": plan })).await?;
    let last = &found["executions"][0];
    if list(&last["repeatedCalls"]).next().is_some() {
        let id = plain::said(&last["executionId"]);
        let screen = &session.screen;
        screen.say(&format!("`{id}` executed this plan before; these calls are made again:"));
        screen.say(&told(&last["repeatedCalls"]));
    }
    Ok(())
}

/// Lists calls as lines of a table.
fn told(calls: &Value) -> String {
    let rows = list(calls).map(|call| {
        let calls = call["calls"].as_u64().unwrap_or(1);
        let calls = plain::count(usize::try_from(calls).unwrap_or(usize::MAX), "call");
        let unknown = match call["outcomeUnknown"].as_bool() {
            Some(true) => ", and nobody knows if it took effect",
            _ => "",
        };
        vec![
            format!("  {}", plain::said(&call["stepId"])),
            plain::said(&call["toolName"]),
            format!("{calls}{unknown}"),
        ]
    });
    table::aligned(&rows.collect::<Vec<_>>())
}

/// Returns whether a person can be asked, and can answer.
fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a person. Anything but a yes is a no.
async fn ask(question: &str) -> Result<bool, Failure> {
    // Where nobody can read the question, nobody answers it.
    let _ = write!(io::stderr(), "{question}");
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = tokio::select! {
        answer = read => answer,
        () = super::signals::interrupted() => return Err(Failure::new("DETACHED", "nothing was begun")),
    };
    let failed = |err: &dyn std::fmt::Display| {
        Failure::new("INTERNAL", format!("the answer cannot be read: {err}"))
    };
    let answer = answer.map_err(|err| failed(&err))?.map_err(|err| failed(&err))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
