//! Commands that steer executions: cancel, pause, resume, retry, replan, approve and signal.

use std::io::{self, IsTerminal, Write as _};

use serde::Deserialize;
use serde_json::{Value, json};
use shared::{execution::ExecutionState, id::ExecutionId};

use super::{
    follow::{Purpose, show_state, watch_to_end},
    missing_tools,
    plan::{planning_options, show_stored},
};
use crate::cli::{
    App, ExitStatus,
    args::{ApproveArgs, Planning, RetryArgs, SignalArgs},
    client::{
        Argument, Client,
        types::{ExecutionHead, RepeatedCall, Text},
    },
    drive::await_stop_command,
    failure::Failure,
    session::{Need, Session},
    signals,
    view::{format::count, screen::align_rows},
};

pub(crate) async fn resume(
    session: &Session<'_>,
    id: &str,
    wait: bool,
) -> Result<ExitStatus, Failure> {
    let id = find_execution(&session.client, id).await?.execution_id;
    if !wait {
        missing_tools::check_execution(session, id).await?;
    }
    let resumed = send_and_drive(session, id, "resumeExecution", &[], false).await?;
    watch_to_end(session, resumed.execution_id, Purpose::Drive).await
}

pub(crate) async fn retry(session: &Session<'_>, args: RetryArgs) -> Result<ExitStatus, Failure> {
    let id = find_execution(&session.client, &args.id).await?.execution_id;
    if !args.wait {
        missing_tools::check_retry(session, id, args.scope()).await?;
    }
    if !may_repeat_calls(session, id, &args).await? {
        session.screen.say("nothing was retried");
        return Ok(ExitStatus::Failed);
    }
    let arguments =
        [("fromStep: String", json!(args.from_step)), ("mode: RetryMode", json!(args.mode()))];
    let retried = send_and_drive(session, id, "retryExecution", &arguments, false).await?;
    watch_to_end(session, retried.execution_id, Purpose::Drive).await
}

pub(crate) async fn replan(
    session: &Session<'_>,
    id: &str,
    planning: &Planning,
) -> Result<ExitStatus, Failure> {
    let found = find_execution(&session.client, id).await?;
    let arguments = [("options: PlanningOptions", planning_options(planning))];
    let next =
        send_and_drive(session, found.execution_id, "replanExecution", &arguments, false).await?;
    show_stored(session, &next.plan_id).await?;
    watch_to_end(session, next.execution_id, Purpose::Drive).await
}

pub(crate) async fn cancel(
    session: &Session<'_>,
    id: &str,
    reason: Option<String>,
) -> Result<ExitStatus, Failure> {
    let ExecutionHead { execution_id: id, state, .. } = find_execution(&session.client, id).await?;
    if state.is_finished() {
        let state = state.as_str();
        session.screen.say(&format!("`{id}` is already finished ({state}): nothing was cancelled"));
        return show_state(session, id).await;
    }
    send_and_drive(session, id, "cancelExecution", &[("reason: String", json!(reason))], true)
        .await?;
    Ok(match watch_to_end(session, id, Purpose::Finish).await? {
        ExitStatus::Detached => ExitStatus::Detached,
        _ => ExitStatus::Done,
    })
}

pub(crate) async fn pause(session: &Session<'_>, id: &str) -> Result<ExitStatus, Failure> {
    let id = find_execution(&session.client, id).await?.execution_id;
    send_and_drive(session, id, "pauseExecution", &[], true).await?;
    show_recorded(session, id).await
}

pub(crate) async fn approve(app: &App, args: ApproveArgs) -> Result<ExitStatus, Failure> {
    let arguments = [
        ("stepId: String!", json!(args.step)),
        ("approved: Boolean!", json!(!args.reject)),
        ("comment: String", json!(args.comment)),
    ];
    answer_and_drive(app, &args.id, "approveStep", &arguments, !args.no_run).await
}

pub(crate) async fn send_signal(app: &App, args: SignalArgs) -> Result<ExitStatus, Failure> {
    let payload: Value = match args.payload {
        Some(text) => serde_json::from_str(&text).map_err(|err| {
            let hint = "a string needs quotes, as in '\"text\"'";
            Failure::usage(format!("`{text}` is not JSON: {err}; {hint}"))
        })?,
        None => Value::Null,
    };
    let arguments = [("name: String!", json!(args.name)), ("payload: JSON", payload)];
    answer_and_drive(app, &args.id, "signalExecution", &arguments, !args.no_run).await
}

/// Sends a command and drives the execution meanwhile. The response arrives after a worker has applied
/// the command. If the command `stops` the execution, this process drives only after the command is in
/// the inbox, so that no step starts before.
async fn send_and_drive(
    session: &Session<'_>,
    id: ExecutionId,
    mutation: &str,
    arguments: &[Argument<'_>],
    stops: bool,
) -> Result<ExecutionHead, Failure> {
    let driving = async {
        if stops && let Some(store) = session.store() {
            await_stop_command(&**store, id).await;
        }
        session.drive_forever(id).await
    };
    tokio::select! {
        sent = send_command(&session.client, id, mutation, arguments) => sent,
        never = driving => match never {},
    }
}

pub(super) async fn send_command(
    client: &Client,
    id: ExecutionId,
    mutation: &str,
    arguments: &[Argument<'_>],
) -> Result<ExecutionHead, Failure> {
    let arguments = [&[("executionId: ID!", json!(id))], arguments].concat();
    client.mutate(mutation, &arguments, ExecutionHead::FIELDS).await
}

/// Answers a waiting execution. Then drives it if `drives` is set and no other worker does.
pub(super) async fn answer_and_drive(
    app: &App,
    id: &str,
    mutation: &str,
    arguments: &[Argument<'_>],
    drives: bool,
) -> Result<ExitStatus, Failure> {
    let session = Session::open_existing(app, Need::Store).await?;
    let answered = session.close_after(async |session| {
        let id = find_execution(&session.client, id).await?.execution_id;
        let told = send_command(&session.client, id, mutation, arguments).await?;
        if drives && let Some(root) = root_to_drive(session, told.execution_id).await? {
            return Ok(Err(root));
        }
        show_recorded(session, id).await.map(Ok)
    });
    let root = match answered.await? {
        Ok(status) => return Ok(status),
        Err(root) => root,
    };
    let session = Session::open_existing(app, Need::Driving).await?;
    session
        .close_after(async |session| {
            missing_tools::check_execution(session, root).await.map_err(|failure| {
                let message = format!("recorded, but not driven: {}", failure.message);
                Failure { message, ..failure }
            })?;
            watch_to_end(session, root, Purpose::Drive).await
        })
        .await
}

/// Returns the root of an execution's tree if it can continue and no live worker drives it.
async fn root_to_drive(
    session: &Session<'_>,
    id: ExecutionId,
) -> Result<Option<ExecutionId>, Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Node {
        state: ExecutionState,
        parent_execution_id: Option<ExecutionId>,
    }
    if session.store().is_none() || session.has_reader(id).await? {
        return Ok(None);
    }
    let mut id = id;
    loop {
        let fields = "state parentExecutionId";
        let node: Node = session.client.execution(id, fields).await?;
        let Some(parent) = node.parent_execution_id else {
            let goes_on =
                matches!(node.state, ExecutionState::Waiting | ExecutionState::InProgress);
            return Ok(goes_on.then_some(id));
        };
        id = parent;
    }
}

/// Shows an execution after a command. Tells the user if no worker applies the command.
async fn show_recorded(session: &Session<'_>, id: ExecutionId) -> Result<ExitStatus, Failure> {
    if session.is_unowned(id).await? {
        let hint = format!("recorded; no worker drives it: `faber execute {id}` does");
        session.screen.say(&hint);
    }
    show_state(session, id).await
}

/// Finds an execution by its id, or the newest execution of a plan or request. Ignores children of
/// a request's executions.
pub(crate) async fn find_execution(client: &Client, id: &str) -> Result<ExecutionHead, Failure> {
    #[derive(Deserialize)]
    struct Owner {
        executions: Vec<ExecutionHead>,
    }
    let fields = ExecutionHead::FIELDS;
    let (owner, argument, parts) = match id.split('_').next() {
        Some("plan") => ("plan", "planId: ID!", ""),
        Some("req") => ("request", "requestId: ID!", ", parts: false"),
        _ => {
            let found: Option<_> = client.execution(id, fields).await?;
            return found.ok_or_else(|| Failure::not_found("execution", id));
        }
    };
    let fields = format!("executions(last: 1{parts}) {{ {fields} }}");
    let found: Option<Owner> = client.query(owner, &[(argument, json!(id))], &fields).await?;
    let found = found.ok_or_else(|| Failure::not_found(owner, id))?;
    found.executions.into_iter().next().ok_or_else(|| {
        let why = format!("`{id}` was never executed: run `faber execute {id}`");
        Failure::new("NOT_FOUND", why)
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Repeated {
    #[serde(default)]
    execution_id: Text,
    repeated_calls: Vec<RepeatedCall>,
}

/// Lists the calls that a retry would repeat, and asks the user at a terminal. Returns `false`
/// after a no.
async fn may_repeat_calls(
    session: &Session<'_>,
    id: ExecutionId,
    args: &RetryArgs,
) -> Result<bool, Failure> {
    let (mode, from, fields) = (args.mode(), json!(args.from_step), RepeatedCall::FIELDS);
    let fields = format!("repeatedCalls(mode: {mode}, fromStep: {from}) {{ {fields} }}");
    let found: Repeated = session.client.execution(id, &fields).await?;
    if found.repeated_calls.is_empty() {
        return Ok(true);
    }
    let screen = session.screen;
    screen.say("this retry repeats calls of `once` tools:");
    screen.say(&call_table(&found.repeated_calls));
    let is_interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
    if args.yes || screen.json || !is_interactive {
        return Ok(true);
    }
    ask_person("repeat them? (y/N) ").await
}

/// Lists the *once* calls of a plan's last execution that a new execution repeats.
pub(crate) async fn warn_of_repeated_calls(
    session: &Session<'_>,
    plan: &Text,
) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Found {
        executions: Vec<Repeated>,
    }
    let calls = RepeatedCall::FIELDS;
    let fields = format!("executions(last: 1) {{ executionId repeatedCalls {{ {calls} }} }}");
    let arguments = [("planId: ID!", json!(&**plan))];
    let found: Option<Found> = session.client.query("plan", &arguments, &fields).await?;
    let last = found.and_then(|plan| plan.executions.into_iter().next());
    if let Some(last) = last.filter(|last| !last.repeated_calls.is_empty()) {
        let id = &last.execution_id;
        session
            .screen
            .say(&format!("`{id}` executed this plan before; these calls are made again:"));
        session.screen.say(&call_table(&last.repeated_calls));
    }
    Ok(())
}

fn call_table(calls: &[RepeatedCall]) -> String {
    let rows = calls.iter().map(|call| {
        let unknown = if call.outcome_unknown { ", with an unknown outcome" } else { "" };
        let calls = count(call.calls, "call");
        vec![format!("  {}", call.step_id), call.tool_name.to_string(), format!("{calls}{unknown}")]
    });
    align_rows(&rows.collect::<Vec<_>>())
}

/// Asks the user. Any answer but yes is a no.
async fn ask_person(question: &str) -> Result<bool, Failure> {
    // If writing fails, reading the answer fails, too.
    let _ = write!(io::stderr(), "{question}");
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = tokio::select! {
        answer = read => answer,
        () = signals::await_interrupt() => return Err(Failure::new("DETACHED", "nothing was started")),
    };
    let failed = |err: &dyn std::fmt::Display| {
        Failure::new("INTERNAL", format!("the answer cannot be read: {err}"))
    };
    let answer = answer.map_err(|err| failed(&err))?.map_err(|err| failed(&err))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
