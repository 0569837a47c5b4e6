//! Tools of a plan that this process lacks: named before anything is begun that would wait for them.

use std::{path::Path, sync::Arc};

use planner::compile::parse_value;
use planner::reuse::RetryScope;
use serde_json::{Value, json};
use shared::{
    id::{PlanId, ToolName},
    plan::Plan,
    tool::prefix,
};

use super::{Session, failure::Failure, house::House, plain, steer::execution_id};
use crate::engine::{Engine, MissingTool};

/// Refuses a plan with a tool that this process lacks.
pub(super) async fn check_plan(
    session: &Session,
    house: &House,
    plan: &Value,
) -> Result<(), Failure> {
    let (Some(engine), Some(id)) = (house.engine(), plan_id(plan)) else { return Ok(()) };
    // An identifier of nothing is for the command itself to refuse.
    let Some(plan) = engine.plan(id).await? else { return Ok(()) };
    check(session, engine, &plan).await
}

/// Refuses a retry that would call a tool that this process lacks.
pub(super) async fn check_retry(
    session: &Session,
    house: &House,
    execution: &Value,
    scope: RetryScope<'_>,
) -> Result<(), Failure> {
    let (Some(engine), Some(id)) = (house.engine(), execution_id(execution)) else {
        return Ok(());
    };
    let Some(ended) = engine.execution(id).await? else { return Ok(()) };
    let tools = engine.tools_of_retry(&ended, scope).await?;
    refuse(session, &engine.missing_tools(tools).await)
}

/// Refuses a draft with a tool that this process lacks: of a plan that it executes, or of a toolset
/// that has failed. What else is wrong with it is for the compiler to say.
pub(super) async fn check_draft(
    session: &Session,
    house: &House,
    draft: &Value,
) -> Result<(), Failure> {
    let Some(engine) = house.engine() else { return Ok(()) };
    let Ok(draft) = parse_value(draft.clone()) else { return Ok(()) };
    let verdict = engine.validate(&draft).await?;
    if let Some(plan) = verdict.plan {
        return check(session, engine, &plan).await;
    }
    let named = draft.tools.iter().filter_map(|step| {
        step.name.as_deref().or(step.tool_name.as_deref())?.parse::<ToolName>().ok()
    });
    let mut missing = engine.missing_tools(named.collect()).await;
    // A plain name may be no tool of the toolset that has failed.
    missing.retain(|it| it.failure.is_some() && prefix(it.tool.as_str()).is_some());
    refuse(session, &missing)
}

/// Refuses an execution that no living process has, and that may yet call a tool that this process
/// lacks.
pub(super) async fn check_execution(
    session: &Session,
    house: &House,
    execution: &Value,
) -> Result<(), Failure> {
    let (Some(engine), Some(id)) = (house.engine(), execution_id(execution)) else {
        return Ok(());
    };
    if !house.is_left_alone(id).await? {
        return Ok(());
    }
    let Some(execution) = engine.execution(id).await? else { return Ok(()) };
    let missing = engine.missing_tools(execution.needs().cloned().collect()).await;
    refuse(session, &missing)
}

async fn check(session: &Session, engine: &Engine, plan: &Arc<Plan>) -> Result<(), Failure> {
    let tools = engine.tools_of(plan).await?;
    refuse(session, &engine.missing_tools(tools).await)
}

fn refuse(session: &Session, missing: &[MissingTool]) -> Result<(), Failure> {
    let Some(first) = missing.first() else { return Ok(()) };
    let names: Vec<String> = missing.iter().map(|it| format!("`{}`", it.tool)).collect();
    let why = match &first.failure {
        Some(failure) => format!(" ({})", plain::line(failure)),
        None => String::new(),
    };
    let message = format!(
        "this process lacks {} of the plan: {}{why}; {}",
        if missing.len() == 1 { "a tool" } else { "tools" },
        names.join(", "),
        configuration(session.config.file.as_deref())
    );
    let tools: Vec<&str> = missing.iter().map(|it| it.tool.as_str()).collect();
    Err(Failure::new("TOOL_UNAVAILABLE", message).with("tools", json!(tools)))
}

/// Says which configuration this process has its tools of.
fn configuration(file: Option<&Path>) -> String {
    match file.map(std::path::absolute) {
        Some(Ok(file)) => {
            format!("the configuration is `{}`: add the toolset there", file.display())
        }
        _ => "no configuration file was read: name the one that has the toolset with `--config`"
            .to_owned(),
    }
}

fn plan_id(plan: &Value) -> Option<PlanId> {
    plan.as_str()?.parse().ok()
}
