use std::{
    io::{self, IsTerminal, Write as _},
    pin::pin,
    time::Duration,
};

use client::operations::find_execution;
use client::{
    Argument, Client,
    drive::await_stop_command,
    failure::Failure,
    types::{ExecutionHead, Finding, FindingKind, Remedy, RepeatedCall, Text, UndoCall},
    view::{format::count_noun, plain},
};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{execution::ExecutionState, id::ExecutionId};
use tokio::time;

use super::{
    follow::{Purpose, show_state, watch_to_end},
    missing_tools,
    plan::{planning_options, show_stored},
    signal_names::warn_of_unknown_name,
};
use crate::{
    App, ExitStatus,
    args::{ApproveArgs, Planning, RetryArgs, SignalArgs},
    screen::{Screen, align_rows},
    session::{Need, Session},
    signals,
};

const MAX_LISTED_CALLS: usize = 20;
const HINT_DELAY: Duration = Duration::from_millis(200);

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
        missing_tools::check_retry(session, id, args.retry_scope()).await?;
    }
    if !confirm_retry(session, id, &args).await? {
        session.screen.say("nothing was retried");
        return Ok(ExitStatus::Failed);
    }
    let arguments = [
        ("fromStep: String", json!(args.from_step)),
        ("mode: RetryMode", json!(args.scope_name())),
    ];
    let retried = send_and_drive(session, id, "retryExecution", &arguments, false).await?;
    watch_to_end(session, retried.execution_id, Purpose::Drive).await
}

pub(crate) async fn replan(
    session: &Session<'_>,
    id: &str,
    planning: &Planning,
) -> Result<ExitStatus, Failure> {
    let found = find_execution(&session.client, id).await?;
    let arguments = [("options: PlanningOptions", planning_options(planning, &[]))];
    let next =
        send_and_drive(session, found.execution_id, "replanExecution", &arguments, false).await?;
    show_stored(session, &next.plan_id).await?;
    watch_to_end(session, next.execution_id, Purpose::Drive).await
}

pub(crate) async fn cancel(
    app: &App,
    id: &str,
    reason: Option<String>,
) -> Result<ExitStatus, Failure> {
    let session = Session::open_existing(app, Need::Store).await?;
    let found = session.close_after(async |session| find_cancellable(session, id).await);
    let Some((id, calls)) = found.await? else { return Ok(ExitStatus::Done) };
    // Opens the toolsets only if the cancellation undoes steps, because connecting them takes time.
    let need = if calls.is_empty() { Need::Stopping } else { Need::Driving };
    let session = Session::open_existing(app, need).await?;
    session.close_after(async |session| cancel_and_undo(session, id, reason, &calls).await).await
}

/// Finds an execution to cancel, and lists the calls that will undo it. For a finished execution,
/// shows it and returns `None`.
async fn find_cancellable(
    session: &Session<'_>,
    id: &str,
) -> Result<Option<(ExecutionId, Vec<UndoCall>)>, Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct UndoCalls {
        undo_calls: Vec<UndoCall>,
    }
    let ExecutionHead { execution_id: id, state, .. } = find_execution(&session.client, id).await?;
    if state.is_finished() {
        let state = state.as_str();
        session.screen.say(&format!("`{id}` is already finished ({state}): nothing was cancelled"));
        return show_state(session, id).await.map(|_| None);
    }
    let fields = format!("undoCalls {{ {} }}", UndoCall::FIELDS);
    let UndoCalls { undo_calls: calls } = session.client.query_execution(id, &fields).await?;
    if calls.is_empty() {
        return Ok(Some((id, calls)));
    }
    session.screen.say("these calls undo the execution:");
    let rows = calls.iter().take(MAX_LISTED_CALLS).map(|call| {
        let item = call.index.map(|index| format!("[{index}]")).unwrap_or_default();
        vec![format!("  {}{item}", call.step_id), call.tool_name.to_string()]
    });
    session.screen.say(&align_rows(&rows.collect::<Vec<_>>()));
    if let Some(more) = calls.len().checked_sub(MAX_LISTED_CALLS).filter(|more| *more > 0) {
        session.screen.say(&format!("  and {more} more"));
    }
    Ok(Some((id, calls)))
}

/// Cancels an execution and waits until it finishes. If a tool for `calls` is missing and no other
/// worker undoes the execution, the cancellation is recorded and the command fails.
async fn cancel_and_undo(
    session: &Session<'_>,
    id: ExecutionId,
    reason: Option<String>,
    calls: &[UndoCall],
) -> Result<ExitStatus, Failure> {
    let arguments = [("reason: String", json!(reason))];
    send_and_drive(session, id, "cancelExecution", &arguments, true).await?;
    let Err(missing) = missing_tools::check_undo(session, calls).await else {
        let ended = watch_to_end(session, id, Purpose::Finish).await?;
        let is_detached = ended == ExitStatus::Detached;
        return Ok(if is_detached { ended } else { ExitStatus::Done });
    };
    if session.has_other_workers().await? {
        match watch_to_end(session, id, Purpose::Finish).await {
            Err(failure) if failure.code == "TOOL_UNAVAILABLE" => (),
            Ok(ExitStatus::Detached) => return Ok(ExitStatus::Detached),
            ended => return ended.map(|_| ExitStatus::Done),
        }
    }
    let reason = &missing.message;
    let message = format!(
        "`{id}` is cancelled, but nothing is undone yet: {reason}; then run `faber execute {id}` to \
         undo it"
    );
    Err(Failure { message, ..missing }.with("executionId", json!(id)))
}

pub(crate) async fn pause(session: &Session<'_>, id: &str) -> Result<ExitStatus, Failure> {
    let id = find_execution(&session.client, id).await?.execution_id;
    send_and_drive(session, id, "pauseExecution", &[], true).await?;
    show_recorded(session, id).await
}

pub(crate) async fn approve(app: &App, args: ApproveArgs) -> Result<ExitStatus, Failure> {
    if !args.reject && !args.yes {
        let session = Session::open_existing(app, Need::Store).await?;
        let may_call =
            session.close_after(async |session| confirm_repeated_call(session, &args).await);
        if !may_call.await? {
            app.screen.say("nothing was approved");
            return Ok(ExitStatus::Failed);
        }
    }
    let arguments = [
        ("stepId: String!", json!(args.step)),
        ("approved: Boolean!", json!(!args.reject)),
        ("comment: String", json!(args.comment)),
    ];
    answer_and_drive(app, &args.id, "approveStep", &arguments, !args.no_run).await
}

/// Asks the user before an approval that repeats a call of a `ONCE` tool although the last call has
/// perhaps taken effect. Without a terminal or with `--json`, fails.
async fn confirm_repeated_call(session: &Session<'_>, args: &ApproveArgs) -> Result<bool, Failure> {
    #[derive(Deserialize)]
    struct ExecutionFindings {
        findings: Vec<Finding>,
    }
    let id = find_execution(&session.client, &args.id).await?.execution_id;
    let fields = format!("findings {{ {} }}", Finding::FIELDS);
    let ExecutionFindings { findings } = session.client.query_execution(id, &fields).await?;
    let name = |finding: &Finding| {
        let item = finding.index.map(|index| format!("[{index}]")).unwrap_or_default();
        format!("{}{item}", finding.step_id.as_deref().unwrap_or_default())
    };
    let unknown = findings.iter().find(|finding| {
        let is_named =
            finding.step_id.as_deref() == Some(&*args.step) || name(finding) == args.step;
        let is_dangerous = finding.remedies.iter().any(|remedy| remedy.is_dangerous);
        finding.kind == FindingKind::Wait && is_named && is_dangerous
    });
    let Some(finding) = unknown else { return Ok(true) };
    let screen = session.screen;
    screen.say(&plain::safe_line(&finding.message));
    if io::stdin().is_terminal() && io::stderr().is_terminal() && !screen.json {
        return ask_person("repeat the call, although it may have taken effect? (y/N) ").await;
    }
    let settle = |remedy: &&Remedy| {
        remedy.command.as_deref().is_some_and(|command| command.starts_with("faber settle"))
    };
    let remedies: Vec<Remedy> = finding.remedies.iter().filter(settle).cloned().collect();
    Err(refuse_repetition(&format!("`{}`", plain::safe_line(&name(finding))), &remedies))
}

pub(crate) async fn send_signal(app: &App, args: SignalArgs) -> Result<ExitStatus, Failure> {
    let payload: Value = match args.payload {
        Some(text) => serde_json::from_str(&text).map_err(|err| {
            let hint = "a string needs quotes, as in '\"text\"'";
            Failure::usage(format!("`{text}` is not JSON: {err}; {hint}"))
        })?,
        None => Value::Null,
    };
    let session = Session::open_existing(app, Need::Store).await?;
    let warned = session.close_after(async |session| {
        let id = find_execution(&session.client, &args.id).await?.execution_id;
        warn_of_unknown_name(session, id, &args.name).await
    });
    warned.await?;
    let arguments = [("name: String!", json!(args.name)), ("payload: JSON", payload)];
    answer_and_drive(app, &args.id, "signalExecution", &arguments, !args.no_run).await
}

/// Sends a command to an execution, and drives the execution until the response arrives, because a
/// worker must apply the command.
async fn send_and_drive(
    session: &Session<'_>,
    id: ExecutionId,
    mutation: &str,
    arguments: &[Argument<'_>],
    is_stop_command: bool,
) -> Result<ExecutionHead, Failure> {
    let driving = async {
        if is_stop_command && let Some(store) = session.store() {
            await_stop_command(&**store, id).await;
        }
        session.drive_forever(id).await
    };
    tokio::select! {
        sent = send_command(&session.client, id, mutation, arguments) => sent,
        never = driving => match never {},
    }
}

async fn hint_if_slow<T>(screen: &Screen, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = time::sleep(HINT_DELAY) => (),
    }
    if !screen.json {
        screen.hint("waiting for the worker that owns the execution");
    }
    work.await
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

/// Sends an answer to a waiting execution. Then drives the root of its tree if `should_drive` is
/// set and no live worker drives the root.
pub(super) async fn answer_and_drive(
    app: &App,
    id: &str,
    mutation: &str,
    arguments: &[Argument<'_>],
    should_drive: bool,
) -> Result<ExitStatus, Failure> {
    let session = Session::open_existing(app, Need::Store).await?;
    let answered = session.close_after(async |session| {
        let id = find_execution(&session.client, id).await?.execution_id;
        let sending = async {
            send_command(&session.client, id, mutation, arguments).await?;
            if should_drive { find_root_to_drive(session, id).await } else { Ok(None) }
        };
        if let Some(root) = hint_if_slow(session.screen, sending).await? {
            if !session.screen.json {
                // Tells the user before the toolsets are opened, because opening them can take
                // seconds.
                session.screen.hint(&format!("recorded; continuing {root} (Ctrl-C detaches)"));
            }
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
                let message =
                    format!("recorded, but no worker drives the execution: {}", failure.message);
                Failure { message, ..failure }
            })?;
            watch_to_end(session, root, Purpose::Drive).await
        })
        .await
}

async fn find_root_to_drive(
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
        let node: Node = session.client.query_execution(id, fields).await?;
        let Some(parent) = node.parent_execution_id else {
            let goes_on =
                matches!(node.state, ExecutionState::Waiting | ExecutionState::InProgress);
            return Ok(goes_on.then_some(id));
        };
        id = parent;
    }
}

async fn show_recorded(session: &Session<'_>, id: ExecutionId) -> Result<ExitStatus, Failure> {
    if session.is_unowned(id).await? {
        let hint = format!(
            "recorded, but no worker drives the execution: run `faber execute {id}` \
            to drive it"
        );
        session.screen.say(&hint);
    }
    show_state(session, id).await
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RepeatedCalls {
    repeated_calls: Vec<RepeatedCall>,
}

pub(crate) struct Repetition<'a> {
    pub(crate) heading: &'a str,
    pub(crate) calls: &'a [RepeatedCall],
    pub(crate) is_confirmed: bool,
}

/// Lists calls that a command would repeat, and asks the user on a terminal. Returns `false` if the
/// user says no.
pub(crate) async fn confirm_repetition(
    session: &Session<'_>,
    repetition: Repetition<'_>,
) -> Result<bool, Failure> {
    let Repetition { heading, calls, is_confirmed } = repetition;
    if calls.is_empty() {
        return Ok(true);
    }
    let screen = session.screen;
    screen.say(heading);
    screen.say(&draw_calls(calls));
    let is_interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
    if is_confirmed {
        Ok(true)
    } else if is_interactive && !screen.json {
        ask_person("repeat them? (y/N) ").await
    } else {
        refuse_unknown_calls(calls).map_or(Ok(true), Err)
    }
}

pub(super) fn refuse_unknown_calls(calls: &[RepeatedCall]) -> Option<Failure> {
    let mut unknown = calls.iter().filter(|call| call.outcome_unknown);
    let first = unknown.next()?;
    let more = unknown.count();
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    let (step, tool) = (plain::safe_line(&first.step_id), plain::safe_line(&first.tool_name));
    Some(refuse_repetition(&format!("`{step}` ({tool}){more}"), &first.remedies))
}

fn refuse_repetition(call: &str, remedies: &[Remedy]) -> Failure {
    let commands = remedies.iter().filter_map(|remedy| remedy.command.as_ref());
    let commands: Vec<String> = commands.map(|command| format!("`{command}`")).collect();
    let settle = if commands.is_empty() {
        "settle it with `faber settle`".to_owned()
    } else {
        format!("record the outcome with {}", commands.join(" or "))
    };
    let message = format!(
        "{call} may have taken effect, and its outcome is unknown: {settle}, or repeat it with \
         `--yes`"
    );
    Failure::new("CONFLICT", message)
}

async fn confirm_retry(
    session: &Session<'_>,
    id: ExecutionId,
    args: &RetryArgs,
) -> Result<bool, Failure> {
    let (mode, from, fields) = (args.scope_name(), json!(args.from_step), RepeatedCall::FIELDS);
    let fields = format!("repeatedCalls(mode: {mode}, fromStep: {from}) {{ {fields} }}");
    let found: RepeatedCalls = session.client.query_execution(id, &fields).await?;
    let repetition = Repetition {
        heading: "this retry repeats calls of `once` tools:",
        calls: &found.repeated_calls,
        is_confirmed: args.yes,
    };
    confirm_repetition(session, repetition).await
}

/// Asks the user before a new execution repeats calls of `ONCE` tools that the plan's last
/// execution made. Looks only among the 20 newest executions.
pub(crate) async fn confirm_new_execution(
    session: &Session<'_>,
    plan: &Text,
    is_confirmed: bool,
) -> Result<bool, Failure> {
    #[derive(Deserialize)]
    struct PlanExecutions {
        executions: Vec<EarlierExecution>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct EarlierExecution {
        execution_id: ExecutionId,
        dry_run: bool,
    }
    let arguments = [("planId: ID!", json!(&**plan))];
    let fields = "executions(last: 20) { executionId dryRun }";
    let found: Option<PlanExecutions> = session.client.query("plan", &arguments, fields).await?;
    let mut earlier = found.into_iter().flat_map(|plan| plan.executions);
    let Some(last) = earlier.rfind(|execution| !execution.dry_run) else { return Ok(true) };
    let id = last.execution_id;
    let fields = format!("repeatedCalls {{ {} }}", RepeatedCall::FIELDS);
    let RepeatedCalls { repeated_calls } = session.client.query_execution(id, &fields).await?;
    let repetition = Repetition {
        heading: &format!("`{id}` executed this plan before; these calls run again:"),
        calls: &repeated_calls,
        is_confirmed,
    };
    confirm_repetition(session, repetition).await
}

fn draw_calls(calls: &[RepeatedCall]) -> String {
    let rows = calls.iter().map(|call| {
        let unknown = if call.outcome_unknown { ", with an unknown outcome" } else { "" };
        let calls = count_noun(call.calls, "call");
        vec![format!("  {}", call.step_id), call.tool_name.to_string(), format!("{calls}{unknown}")]
    });
    align_rows(&rows.collect::<Vec<_>>())
}

pub(super) async fn ask_person(question: &str) -> Result<bool, Failure> {
    // Ignores a failure, because the user can still answer.
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
