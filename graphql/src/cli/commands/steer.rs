//! Commands to executions that exist: cancel, pause, resume, retry, replan, approve and signal.

use std::io::{self, IsTerminal, Write as _};

use serde::Deserialize;
use serde_json::{Value, json};
use shared::{execution::ExecutionState, id::ExecutionId};

use super::{
    follow::{Purpose, follow, show_state},
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
    drive::until_told_to_stop,
    failure::Failure,
    session::{Need, Session},
    signals,
    view::{plain, table},
};

/// Resumes a paused execution and drives it.
pub(crate) async fn resume(app: &App, id: &str, wait: bool) -> Result<ExitStatus, Failure> {
    Session::with_existing(app, Need::Driving, async |session| {
        let id = find(session.client(), id).await?.execution_id;
        if !wait {
            missing_tools::check_execution(app, session, id).await?;
        }
        let resumed = send_and_drive(session, id, "resumeExecution", &[]).await?;
        follow(app, session, resumed.execution_id, Purpose::Drive).await
    })
    .await
}

/// Retries a finished execution and drives the new one.
pub(crate) async fn retry(app: &App, args: RetryArgs) -> Result<ExitStatus, Failure> {
    Session::with_existing(app, Need::Driving, async |session| {
        let id = find(session.client(), &args.id).await?.execution_id;
        if !args.wait {
            missing_tools::check_retry(app, session, id, args.scope()).await?;
        }
        if !may_repeat_calls(app, session.client(), id, &args).await? {
            app.screen.say("nothing was retried");
            return Ok(ExitStatus::Failed);
        }
        let arguments =
            [("fromStep: String", json!(args.from_step)), ("mode: RetryMode", json!(args.mode()))];
        let retried = send_and_drive(session, id, "retryExecution", &arguments).await?;
        follow(app, session, retried.execution_id, Purpose::Drive).await
    })
    .await
}

/// Makes a new plan for the rest of a finished execution and drives it.
pub(crate) async fn replan(
    app: &App,
    id: &str,
    planning: &Planning,
) -> Result<ExitStatus, Failure> {
    Session::with_existing(app, Need::Driving, async |session| {
        let found = find(session.client(), id).await?;
        let arguments = [("options: PlanningOptions", planning_options(planning))];
        let next =
            send_and_drive(session, found.execution_id, "replanExecution", &arguments).await?;
        show_stored(app, session.client(), &next.plan_id).await?;
        follow(app, session, next.execution_id, Purpose::Drive).await
    })
    .await
}

/// Cancels an execution and waits for its end.
pub(crate) async fn cancel(
    app: &App,
    id: &str,
    reason: Option<String>,
) -> Result<ExitStatus, Failure> {
    Session::with_existing(app, Need::Stopping, async |session| {
        let ExecutionHead { execution_id: id, state, .. } = find(session.client(), id).await?;
        if state.is_finished() {
            let state = state.as_str();
            app.screen.say(&format!("`{id}` had ended already ({state}): nothing was stopped"));
            return show_state(app, session.client(), id).await;
        }
        send_and_stop(session, id, "cancelExecution", &[("reason: String", json!(reason))]).await?;
        Ok(match follow(app, session, id, Purpose::Finish).await? {
            ExitStatus::Detached => ExitStatus::Detached,
            _ => ExitStatus::Done,
        })
    })
    .await
}

/// Pauses an execution.
pub(crate) async fn pause(app: &App, id: &str) -> Result<ExitStatus, Failure> {
    Session::with_existing(app, Need::Stopping, async |session| {
        let id = find(session.client(), id).await?.execution_id;
        send_and_stop(session, id, "pauseExecution", &[]).await?;
        show_recorded(app, session, id).await
    })
    .await
}

/// Approves or rejects a step that waits for a person.
pub(crate) async fn approve(app: &App, args: ApproveArgs) -> Result<ExitStatus, Failure> {
    let arguments = [
        ("stepId: String!", json!(args.step)),
        ("approved: Boolean!", json!(!args.reject)),
        ("comment: String", json!(args.comment)),
    ];
    answer_and_drive(app, &args.id, "approveStep", &arguments, !args.no_run).await
}

/// Sends a signal to an execution.
pub(crate) async fn signal(app: &App, args: SignalArgs) -> Result<ExitStatus, Failure> {
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

/// Sends a command to an execution, which this process drives meanwhile: the answer comes when a worker
/// has applied the command.
async fn send_and_drive(
    session: &Session,
    id: ExecutionId,
    mutation: &str,
    arguments: &[Argument<'_>],
) -> Result<ExecutionHead, Failure> {
    tokio::select! {
        told = send_command(session.client(), id, mutation, arguments) => told,
        never = session.drive_forever(id) => match never {},
    }
}

/// Does the same with a command that stops an execution. It is driven only from then on, so that no step
/// starts before.
async fn send_and_stop(
    session: &Session,
    id: ExecutionId,
    mutation: &str,
    arguments: &[Argument<'_>],
) -> Result<ExecutionHead, Failure> {
    let driving = async {
        if let Some(store) = session.store() {
            until_told_to_stop(&**store, id).await;
        }
        session.drive_forever(id).await
    };
    tokio::select! {
        told = send_command(session.client(), id, mutation, arguments) => told,
        never = driving => match never {},
    }
}

async fn send_command(
    client: &Client,
    id: ExecutionId,
    mutation: &str,
    arguments: &[Argument<'_>],
) -> Result<ExecutionHead, Failure> {
    let arguments = [&[("executionId: ID!", json!(id))], arguments].concat();
    client.mutate(mutation, &arguments, ExecutionHead::FIELDS).await
}

/// Answers an execution that waits. Then drives it, if `drives` and no other worker does.
async fn answer_and_drive(
    app: &App,
    id: &str,
    mutation: &str,
    arguments: &[Argument<'_>],
    drives: bool,
) -> Result<ExitStatus, Failure> {
    let answered = Session::with_existing(app, Need::Store, async |session| {
        let id = find(session.client(), id).await?.execution_id;
        let told = send_command(session.client(), id, mutation, arguments).await?;
        if drives && let Some(root) = root_to_drive(session, told.execution_id).await? {
            return Ok(Err(root));
        }
        show_recorded(app, session, id).await.map(Ok)
    });
    let root = match answered.await? {
        Ok(status) => return Ok(status),
        Err(root) => root,
    };
    Session::with_existing(app, Need::Driving, async |session| {
        missing_tools::check_execution(app, session, root).await.map_err(|failure| {
            let message = format!("recorded, and not carried on: {}", failure.message);
            Failure { message, ..failure }
        })?;
        follow(app, session, root, Purpose::Drive).await
    })
    .await
}

/// Returns the root of the tree of an execution, if this process should drive it: no live worker does,
/// and it can go on.
async fn root_to_drive(session: &Session, id: ExecutionId) -> Result<Option<ExecutionId>, Failure> {
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
        let node: Node = session.client().execution(id, fields).await?;
        let Some(parent) = node.parent_execution_id else {
            let goes_on =
                matches!(node.state, ExecutionState::Waiting | ExecutionState::InProgress);
            return Ok(goes_on.then_some(id));
        };
        id = parent;
    }
}

/// Shows an execution after a command, and says if no worker applies it.
async fn show_recorded(
    app: &App,
    session: &Session,
    id: ExecutionId,
) -> Result<ExitStatus, Failure> {
    if session.is_unowned(id).await? {
        let hint = format!("recorded; no process carries it on: `faber execute {id}` does");
        app.screen.say(&hint);
    }
    show_state(app, session.client(), id).await
}

/// Finds an execution by its id, or the newest one of a plan or of a request. Children do not count as
/// executions of a request.
pub(crate) async fn find(client: &Client, id: &str) -> Result<ExecutionHead, Failure> {
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

/// Lists the calls that a retry would repeat. Returns whether it may go on: a person is asked, if one is
/// there.
async fn may_repeat_calls(
    app: &App,
    client: &Client,
    id: ExecutionId,
    args: &RetryArgs,
) -> Result<bool, Failure> {
    let (mode, from, fields) = (args.mode(), json!(args.from_step), RepeatedCall::FIELDS);
    let fields = format!("repeatedCalls(mode: {mode}, fromStep: {from}) {{ {fields} }}");
    let found: Repeated = client.execution(id, &fields).await?;
    if found.repeated_calls.is_empty() {
        return Ok(true);
    }
    let screen = &app.screen;
    screen.say("this retry repeats calls that have an effect each time:");
    screen.say(&call_table(&found.repeated_calls));
    let is_interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
    if args.yes || screen.json || !is_interactive {
        return Ok(true);
    }
    ask_person("repeat them? (y/N) ").await
}

/// Lists the calls of the last execution of a plan that another one repeats.
pub(crate) async fn warn_of_repeated_calls(
    app: &App,
    client: &Client,
    plan: &Text,
) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Found {
        executions: Vec<Repeated>,
    }
    let calls = RepeatedCall::FIELDS;
    let fields = format!("executions(last: 1) {{ executionId repeatedCalls {{ {calls} }} }}");
    let arguments = [("planId: ID!", json!(&**plan))];
    let found: Option<Found> = client.query("plan", &arguments, &fields).await?;
    let last = found.and_then(|plan| plan.executions.into_iter().next());
    if let Some(last) = last.filter(|last| !last.repeated_calls.is_empty()) {
        let id = &last.execution_id;
        app.screen.say(&format!("`{id}` executed this plan before; these calls are made again:"));
        app.screen.say(&call_table(&last.repeated_calls));
    }
    Ok(())
}

fn call_table(calls: &[RepeatedCall]) -> String {
    let rows = calls.iter().map(|call| {
        let unknown =
            if call.outcome_unknown { ", and nobody knows if it took effect" } else { "" };
        let calls = plain::count(call.calls, "call");
        vec![format!("  {}", call.step_id), call.tool_name.to_string(), format!("{calls}{unknown}")]
    });
    table::aligned(&rows.collect::<Vec<_>>())
}

/// Asks a person. Any answer but yes is a no.
async fn ask_person(question: &str) -> Result<bool, Failure> {
    // If the question cannot be written, there is no answer either.
    let _ = write!(io::stderr(), "{question}");
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = tokio::select! {
        answer = read => answer,
        () = signals::interrupted() => return Err(Failure::new("DETACHED", "nothing was begun")),
    };
    let failed = |err: &dyn std::fmt::Display| {
        Failure::new("INTERNAL", format!("the answer cannot be read: {err}"))
    };
    let answer = answer.map_err(|err| failed(&err))?.map_err(|err| failed(&err))?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
