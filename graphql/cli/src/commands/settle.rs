use client::operations::find_execution;
use client::{
    Argument,
    failure::Failure,
    types::{ExecutionHead, Text},
    view::format::quote_for_shell,
};
use engine::SettleOrder;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{event::Settled, id::ExecutionId};

use super::{
    follow::show_state,
    steer::{answer_and_drive, send_command},
};
use crate::{
    App, ExitStatus,
    args::SettleArgs,
    session::{Need, Session},
};

pub(crate) async fn settle(app: &App, args: SettleArgs) -> Result<ExitStatus, Failure> {
    let output = read_output(&args)?;
    let outcome = if args.failed { Settled::Failed } else { Settled::Succeeded };
    let order = SettleOrder {
        step: args.step.clone(),
        item: args.item,
        outcome,
        output: output.clone(),
        comment: args.comment.clone(),
    };
    let arguments = [
        ("stepId: String!", json!(args.step)),
        ("item: Int", json!(args.item)),
        ("outcome: SettledOutcome!", json!(outcome.as_str())),
        ("output: JSON", output.clone().unwrap_or_default()),
        ("comment: String", json!(args.comment)),
    ];
    // If the user passes an output, the tools are needed, because the output is checked against the
    // tool's schema.
    let need = if output.is_some() { Need::Tools } else { Need::Store };
    let session = Session::open_existing(app, need).await?;
    let is_settled = session.close_after(async |session| {
        let found = find_execution(&session.client, &args.id).await?;
        let id = found.execution_id;
        if let Some(engine) = session.engine() {
            engine.executions.check_settlement(id, &order).await?;
        }
        if !found.state.is_finished() {
            return Ok(false);
        }
        settle_finished(session, id, &args, &arguments).await?;
        Ok(true)
    });
    if is_settled.await? {
        return Ok(ExitStatus::Done);
    }
    answer_and_drive(app, &args.id, "settleStep", &arguments, !args.no_run).await
}

async fn settle_finished(
    session: &Session<'_>,
    id: ExecutionId,
    args: &SettleArgs,
    arguments: &[Argument<'_>],
) -> Result<(), Failure> {
    let head: ExecutionHead = send_command(&session.client, id, "settleStep", arguments).await?;
    show_state(session, head.execution_id).await?;
    let step = args.step_or_item_name();
    let root = find_root(session, id).await?;
    let hint = if args.failed {
        format!("recorded: `{step}` had no effect; `faber retry {root}` calls it again")
    } else {
        format!("recorded: `{step}` took effect; `faber retry {root}` reuses its output")
    };
    session.screen.say(&hint);
    if let Some(call) = missing_compensation(session, id, args).await? {
        let tool = &call.tool_name;
        session.screen.say(&format!(
            "`{step}` was not undone, because the execution had already compensated; this call \
             would undo it:"
        ));
        let parameters = quote_for_shell(&call.parameters.to_string());
        session.screen.say(&format!("  faber tools call {tool} {parameters}"));
    }
    Ok(())
}

/// Returns the topmost parent of the execution, because a child execution cannot be retried on its
/// own.
async fn find_root(session: &Session<'_>, id: ExecutionId) -> Result<ExecutionId, Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Node {
        parent_execution_id: Option<ExecutionId>,
    }
    let mut root = id;
    loop {
        let found: Option<Node> = session.client.query_execution(root, "parentExecutionId").await?;
        match found.and_then(|node| node.parent_execution_id) {
            Some(parent) => root = parent,
            None => return Ok(root),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CompensatingCall {
    tool_name: Text,
    parameters: Value,
}

async fn missing_compensation(
    session: &Session<'_>,
    id: ExecutionId,
    args: &SettleArgs,
) -> Result<Option<CompensatingCall>, Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Status {
        missing_compensation: Option<CompensatingCall>,
        #[serde(default)]
        items: Vec<Self>,
    }
    #[derive(Deserialize)]
    struct StepHolder {
        step: Option<Status>,
    }
    let (name, item) = match args.step.strip_suffix(']').and_then(|open| open.rsplit_once('[')) {
        Some((name, index)) => (name, index.parse().ok()),
        None => (args.step.as_str(), args.item),
    };
    let call = "missingCompensation { toolName parameters }";
    let after = item.and_then(|item: u32| item.checked_sub(1));
    let items = format!("items(first: 1, afterIndex: {}) {{ {call} }}", json!(after));
    let items = if item.is_some() { items } else { String::new() };
    let fields = format!("step(stepId: {}) {{ {call} {items} }}", json!(name));
    let found: StepHolder = session.client.query_execution(id, &fields).await?;
    let Some(step) = found.step else { return Ok(None) };
    Ok(match item {
        Some(_) => step.items.into_iter().next().and_then(|item| item.missing_compensation),
        None => step.missing_compensation,
    })
}

fn read_output(args: &SettleArgs) -> Result<Option<Value>, Failure> {
    let Some(text) = args.succeeded.iter().flatten().next() else { return Ok(None) };
    let output = serde_json::from_str(text).map_err(|err| {
        let hint = "a string needs quotes, as in '\"text\"'";
        Failure::usage(format!("`{text}` is not JSON: {err}; {hint}"))
    })?;
    Ok(Some(output))
}
