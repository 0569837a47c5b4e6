//! Refuses work for which this process lacks a tool, before it starts and waits for the tool.

use std::{path::Path, sync::Arc};

use planner::{compile::parse_value, reuse::RetryScope};
use serde_json::{Value, json};
use shared::{
    id::{ExecutionId, PlanId, ToolName},
    plan::Plan,
    tool::set_prefix,
};

use crate::{
    cli::{App, client::types::Text, failure::Failure, session::Session, view::plain},
    engine::{Engine, MissingTool},
};

/// Refuses a plan if this process lacks a tool of it.
pub(crate) async fn check_plan(app: &App, session: &Session, plan: &Text) -> Result<(), Failure> {
    let (Some(engine), Ok(id)) = (session.engine(), plan.parse::<PlanId>()) else {
        return Ok(());
    };
    // The command itself refuses an id without a plan.
    let Some(plan) = engine.plan(id).await? else { return Ok(()) };
    check_compiled(app, engine, &plan).await
}

/// Refuses a retry that would call a tool that this process lacks.
pub(crate) async fn check_retry(
    app: &App,
    session: &Session,
    id: ExecutionId,
    scope: RetryScope<'_>,
) -> Result<(), Failure> {
    let Some(engine) = session.engine() else { return Ok(()) };
    let Some(ended) = engine.execution(id).await? else { return Ok(()) };
    let tools = engine.tools_of_retry(&ended, scope).await?;
    refuse_missing(app, &engine.missing_tools(tools).await)
}

/// Refuses a draft if this process lacks a tool of a plan that it executes, or of a toolset that has
/// failed. The compiler reports everything else.
pub(crate) async fn check_draft(
    app: &App,
    session: &Session,
    draft: &Value,
) -> Result<(), Failure> {
    let (Some(engine), Ok(draft)) = (session.engine(), parse_value(draft.clone())) else {
        return Ok(());
    };
    let verdict = engine.validate(&draft).await?;
    if let Some(plan) = verdict.plan {
        return check_compiled(app, engine, &plan).await;
    }
    let named = draft.tools.iter().filter_map(|step| {
        step.name.as_deref().or(step.tool_name.as_deref())?.parse::<ToolName>().ok()
    });
    let mut missing = engine.missing_tools(named.collect()).await;
    // A plain name may not belong to the toolset that has failed.
    missing.retain(|tool| tool.failure.is_some() && set_prefix(tool.tool.as_str()).is_some());
    refuse_missing(app, &missing)
}

/// Refuses an execution that no live worker owns if this process lacks a tool that it may yet call.
pub(crate) async fn check_execution(
    app: &App,
    session: &Session,
    id: ExecutionId,
) -> Result<(), Failure> {
    let Some(engine) = session.engine() else { return Ok(()) };
    if !session.is_unowned(id).await? {
        return Ok(());
    }
    let Some(execution) = engine.execution(id).await? else { return Ok(()) };
    let missing = engine.missing_tools(execution.required_tools().cloned().collect()).await;
    refuse_missing(app, &missing)
}

async fn check_compiled(app: &App, engine: &Engine, plan: &Arc<Plan>) -> Result<(), Failure> {
    let tools = engine.tools_of(plan).await?;
    refuse_missing(app, &engine.missing_tools(tools).await)
}

fn refuse_missing(app: &App, missing: &[MissingTool]) -> Result<(), Failure> {
    let Some(first) = missing.first() else { return Ok(()) };
    let names: Vec<String> = missing.iter().map(|tool| format!("`{}`", tool.tool)).collect();
    let why = first.failure.as_ref().map(|failure| format!(" ({})", plain::line(failure)));
    let message = format!(
        "this process lacks {} of the plan: {}{}; {}",
        if missing.len() == 1 { "a tool" } else { "tools" },
        names.join(", "),
        why.unwrap_or_default(),
        name_configuration(app.config.file.as_deref())
    );
    let tools: Vec<&str> = missing.iter().map(|tool| tool.tool.as_str()).collect();
    Err(Failure::new("TOOL_UNAVAILABLE", message).with("tools", json!(tools)))
}

/// Names the configuration that this process has its tools from.
fn name_configuration(file: Option<&Path>) -> String {
    match file.map(std::path::absolute) {
        Some(Ok(file)) => {
            format!("the configuration is `{}`: add the toolset there", file.display())
        }
        _ => "no configuration file was read: name the one that has the toolset with `--config`"
            .to_owned(),
    }
}
