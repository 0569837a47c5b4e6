//! Rejects commands that need a tool which this process lacks. Otherwise the execution would wait
//! for the tool.

use std::{path::Path, sync::Arc};

use client::{
    failure::Failure,
    types::{Text, UndoCall},
    view::plain,
};
use engine::{Engine, ForkOrder, MissingTool};
use planner::{compile::parse_value, reuse::RetryScope};
use serde_json::{Value, json};
use shared::{
    id::{ExecutionId, PlanId, ToolName},
    plan::Plan,
    tool::set_prefix,
};

use crate::session::Session;

const MAX_FAILURES: usize = 3;

pub(crate) async fn check_plan(session: &Session<'_>, plan: &Text) -> Result<(), Failure> {
    let (Some(engine), Ok(id)) = (session.engine(), plan.parse::<PlanId>()) else {
        return Ok(());
    };
    // Ignores an unknown id, because the command rejects it later.
    let Some(plan) = engine.plans.library.load(id).await? else { return Ok(()) };
    check_compiled(session, engine, &plan).await
}

pub(crate) async fn check_retry(
    session: &Session<'_>,
    id: ExecutionId,
    scope: RetryScope<'_>,
) -> Result<(), Failure> {
    let Some(engine) = session.engine() else { return Ok(()) };
    let Some(ended) = engine.executions.reader.load(id).await? else { return Ok(()) };
    let tools = engine.plans.library.list_retry_tools(&ended, scope).await?;
    refuse_missing(session, &engine.tools.inventory.missing_tools(tools).await)
}

pub(crate) async fn check_fork(
    session: &Session<'_>,
    id: ExecutionId,
    order: ForkOrder,
) -> Result<(), Failure> {
    let Some(engine) = session.engine() else { return Ok(()) };
    let Some(ended) = engine.executions.reader.load(id).await? else { return Ok(()) };
    let preview = engine.executions.preview_fork(&ended, order).await?;
    refuse_missing(session, &engine.tools.inventory.missing_tools(preview.tools).await)
}

pub(crate) async fn check_undo(session: &Session<'_>, calls: &[UndoCall]) -> Result<(), Failure> {
    let Some(engine) = session.engine() else { return Ok(()) };
    let tools = calls.iter().filter_map(|call| call.tool_name.parse().ok()).collect();
    refuse_missing(session, &engine.tools.inventory.missing_tools(tools).await)
}

/// Checks that the tools of a draft exist. If the draft has errors, checks only tools of failed
/// toolsets, because the compiler reports all other errors.
pub(crate) async fn check_draft(session: &Session<'_>, draft: &Value) -> Result<(), Failure> {
    let (Some(engine), Ok(draft)) = (session.engine(), parse_value(draft.clone())) else {
        return Ok(());
    };
    let verdict = engine.plans.validate(&draft).await?;
    if let Some(plan) = verdict.plan {
        return check_compiled(session, engine, &plan).await;
    }
    let named = draft.tools.iter().filter_map(|step| {
        step.name.as_deref().or(step.tool_name.as_deref())?.parse::<ToolName>().ok()
    });
    let mut missing = engine.tools.inventory.missing_tools(named.collect()).await;
    // A name without a toolset does not tell whether the tool belongs to a failed toolset. Such a
    // name counts only if the draft has no other error, and no tool has a similar name.
    let mut errors = verdict.diagnostics.iter().filter(|found| found.is_error());
    let lacks_only_tools = errors.all(|found| {
        let is_misspelt =
            found.help.as_deref().is_some_and(|help| help.starts_with("did you mean"));
        found.code == "plan.unknown_tool" && !is_misspelt
    });
    missing.retain(|tool| {
        tool.failure.is_some() && (lacks_only_tools || set_prefix(tool.tool.as_str()).is_some())
    });
    refuse_missing(session, &missing)
}

/// Checks that the tools exist which an execution can still call. Does nothing if the execution is
/// finished, if a live worker owns it, or if a server executes it.
pub(crate) async fn check_execution(session: &Session<'_>, id: ExecutionId) -> Result<(), Failure> {
    let Some(engine) = session.engine() else { return Ok(()) };
    if !session.is_unowned(id).await? {
        return Ok(());
    }
    let Some(execution) = engine.executions.reader.load(id).await? else { return Ok(()) };
    let missing =
        engine.tools.inventory.missing_tools(execution.required_tools().cloned().collect()).await;
    refuse_missing(session, &missing)
}

async fn check_compiled(
    session: &Session<'_>,
    engine: &Engine,
    plan: &Arc<Plan>,
) -> Result<(), Failure> {
    let tools = engine.plans.library.list_tools(plan).await?;
    refuse_missing(session, &engine.tools.inventory.missing_tools(tools).await)
}

fn refuse_missing(session: &Session<'_>, missing: &[MissingTool]) -> Result<(), Failure> {
    if missing.is_empty() {
        return Ok(());
    }
    let message = describe_missing(missing, session.app.config.file.as_deref());
    let tools: Vec<&str> = missing.iter().map(|tool| tool.tool.as_str()).collect();
    Err(Failure::new("TOOL_UNAVAILABLE", message).with("tools", json!(tools)))
}

/// Names the missing tools, and the reasons of failed toolsets. A missing tool without such a
/// reason belongs to a toolset that is not configured.
fn describe_missing(missing: &[MissingTool], file: Option<&Path>) -> String {
    let names: Vec<String> = missing.iter().map(|tool| format!("`{}`", tool.tool)).collect();
    let mut failures: Vec<String> =
        missing.iter().filter_map(|tool| Some(plain::safe_line(tool.failure.as_ref()?))).collect();
    failures.dedup();
    failures.truncate(MAX_FAILURES);
    let is_configured = missing.iter().all(|tool| tool.failure.is_some());
    let advice = match file.map(std::path::absolute) {
        Some(Ok(file)) if is_configured => {
            format!("the configuration is `{}`: `faber doctor` checks it", file.display())
        }
        _ if is_configured => "`faber doctor` checks it".to_owned(),
        Some(Ok(file)) => {
            format!("the configuration is `{}`: add the toolset there", file.display())
        }
        _ => "no configuration file was read: name the file that configures the toolset with \
              `--config`"
            .to_owned(),
    };
    let tools = if missing.len() == 1 { "a tool" } else { "tools" };
    let lead = format!("this process lacks {tools} of the plan: {}", names.join(", "));
    [lead].into_iter().chain(failures).chain([advice]).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_toolset_gets_no_advice_to_add_it() {
        let missing = |tool: &str, failure: Option<&str>| MissingTool {
            tool: tool.parse().unwrap(),
            failure: failure.map(str::to_owned),
        };
        let failed = "the toolset `mail` failed: connection refused";
        let file = Some(Path::new("/etc/faber.yaml"));
        for (missing, expected) in [
            (
                vec![missing("mail.send", Some(failed)), missing("mail.list", Some(failed))],
                "this process lacks tools of the plan: `mail.send`, `mail.list`; the toolset `mail` \
                 failed: connection refused; the configuration is `/etc/faber.yaml`: `faber doctor` \
                 checks it",
            ),
            (
                vec![missing("shop.pay", None)],
                "this process lacks a tool of the plan: `shop.pay`; the configuration is \
                 `/etc/faber.yaml`: add the toolset there",
            ),
            (
                vec![missing("mail.send", Some(failed)), missing("shop.pay", None)],
                "this process lacks tools of the plan: `mail.send`, `shop.pay`; the toolset `mail` \
                 failed: connection refused; the configuration is `/etc/faber.yaml`: add the \
                 toolset there",
            ),
        ] {
            assert_eq!(describe_missing(&missing, file), expected);
        }
    }
}
