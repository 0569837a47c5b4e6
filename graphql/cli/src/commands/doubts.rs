//! Plans with doubts: words of the query that a plan does not use, and values or calls that the
//! query does not contain.

use std::io::{self, IsTerminal};

use client::{
    failure::Failure,
    types::{Plan, Text},
};
use serde_json::json;
use shared::diagnostic::Diagnostic;

use super::{
    plan::{export_draft, show_draft, show_plan},
    steer::ask_person,
};
use crate::session::Session;

/// Codes of doubts about drafts of the offline planner. With `plan.model_failed`, the offline
/// planner wrote the draft because the model's plan was invalid.
const OFFLINE_DOUBTS: [&str; 3] =
    ["plan.unplaced_words", "plan.guessed_value", "plan.model_failed"];
const GUARD_DOUBTS: [&str; 2] = ["plan.not_asked", "plan.invented_value"];

/// Shows a plan made from a query, and asks the user before a doubtful plan is executed. Returns
/// the steps that the user approves, or `None` if the user refuses the plan.
pub(crate) async fn accept_plan(
    session: &Session<'_>,
    plan: &Plan,
    is_confirmed: bool,
) -> Result<Option<Vec<Text>>, Failure> {
    let screen = session.screen;
    let waiting = steps_to_approve(plan);
    let acts = plan.tools.iter().any(|step| &*step.effect != "READ");
    let has_doubts = acts && has_diagnostic(plan, &OFFLINE_DOUBTS);
    let is_interactive = io::stdin().is_terminal() && io::stderr().is_terminal();
    if has_doubts && !is_confirmed && (screen.json || !is_interactive) {
        if !screen.json {
            show_draft(screen, plan);
        }
        return Err(doubtful_plan_failure(session, plan).await?);
    }
    show_plan(session, plan);
    let is_guarded = has_diagnostic(plan, &GUARD_DOUBTS) && !waiting.is_empty();
    if !has_doubts && !is_guarded {
        return Ok(Some(Vec::new()));
    }
    if is_confirmed {
        return Ok(Some(waiting));
    }
    if screen.json || !is_interactive {
        return Ok(Some(Vec::new()));
    }
    Ok(ask_person("Execute this plan? [y/N] ").await?.then_some(waiting))
}

pub(crate) fn steps_to_approve(plan: &Plan) -> Vec<Text> {
    let waits = plan.tools.iter().filter(|step| step.requires_approval && &*step.effect != "READ");
    waits.map(|step| step.step_id.clone()).collect()
}

fn has_diagnostic(plan: &Plan, codes: &[&str]) -> bool {
    plan.diagnostics.iter().any(|found| codes.contains(&&*found.code))
}

async fn doubtful_plan_failure(session: &Session<'_>, plan: &Plan) -> Result<Failure, Failure> {
    let draft = export_draft(&session.client, &plan.plan_id).await?;
    let is_doubt = |found: &&Diagnostic| OFFLINE_DOUBTS.contains(&&*found.code);
    let doubts: Vec<&Diagnostic> = plan.diagnostics.iter().filter(is_doubt).collect();
    let first = doubts.first().map_or("", |doubt| doubt.message.as_str());
    let more = doubts.len().saturating_sub(1);
    let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    let message = format!(
        "the plan is in doubt: {first}{more}; reword the query, or execute the plan with `--yes`"
    );
    Ok(Failure::new("INVALID_PLAN", message)
        .with("diagnostics", json!(doubts))
        .with("requestId", json!(&*plan.request_id))
        .with("planId", json!(&*plan.plan_id))
        .with("draft", draft.clone())
        .with("extensions", json!({ "draft": draft })))
}
