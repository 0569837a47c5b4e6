use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Client,
    failure::Failure,
    plan_file::WrittenPlan,
    types::{DIAGNOSTIC_FIELDS, ExecutionHead, Plan, PlanPayload, Text},
};

pub async fn make_plan(
    client: &Client,
    query: &str,
    options: Value,
    fields: &str,
) -> Result<Value, Failure> {
    let arguments = [("query: String!", json!(query)), ("options: PlanningOptions", options)];
    client.mutate("createPlanWithRequestId", &arguments, fields).await
}

pub async fn create_plan(client: &Client, plan: WrittenPlan) -> Result<Value, Failure> {
    let arguments = [("input: PlanInput!", plan.check(client).await?)];
    plan_or_failure(
        client.mutate("createPlan", &arguments, &plan_payload_fields(Plan::VIEW_FIELDS)).await?,
    )
}

pub fn plan_payload_fields(fields: &str) -> String {
    format!("plan {{ {fields} }} diagnostics {{ {DIAGNOSTIC_FIELDS} }}")
}

pub fn plan_or_failure(payload: PlanPayload) -> Result<Value, Failure> {
    payload.plan.ok_or_else(|| Failure::invalid_plan(&payload.diagnostics))
}

pub async fn newest_plan(client: &Client, request: &str) -> Result<Option<Text>, Failure> {
    let arguments = [("requestId: ID!", json!(request))];
    let mut plans: Vec<Plan> = client.query("plansByRequestId", &arguments, "planId").await?;
    Ok(plans.pop().map(|plan| plan.plan_id))
}

pub async fn find_saved_plan(client: &Client, name: &str) -> Result<Option<Text>, Failure> {
    let arguments = [("name: String!", json!(name))];
    let found: Option<Plan> = client.query("savedPlan", &arguments, "planId").await?;
    Ok(found.map(|plan| plan.plan_id))
}

pub async fn run_query(
    client: &Client,
    query: &str,
    planning: Value,
    options: Value,
) -> Result<ExecutionHead, Failure> {
    let arguments = [
        ("query: String!", json!(query)),
        ("planning: PlanningOptions", planning),
        ("execution: ExecutionOptions", options),
    ];
    client.mutate("run", &arguments, ExecutionHead::FIELDS).await
}

pub async fn run_saved(
    client: &Client,
    name: &str,
    options: Value,
) -> Result<ExecutionHead, Failure> {
    let arguments = [("name: String!", json!(name)), ("options: ExecutionOptions", options)];
    client.mutate("runSavedPlan", &arguments, ExecutionHead::FIELDS).await
}

pub async fn execute_plan(
    client: &Client,
    plan: &Text,
    options: Value,
) -> Result<ExecutionHead, Failure> {
    let arguments = [("planId: ID!", json!(&**plan)), ("options: ExecutionOptions", options)];
    client.mutate("executePlan", &arguments, ExecutionHead::FIELDS).await
}

pub async fn execute_request(
    client: &Client,
    request: &str,
    options: Value,
) -> Result<ExecutionHead, Failure> {
    let arguments = [("requestId: ID!", json!(request)), ("options: ExecutionOptions", options)];
    client.mutate("executeByRequestId", &arguments, ExecutionHead::FIELDS).await
}

/// Finds an execution by its id, or the newest execution of a plan or request. Ignores children of
/// a request's executions.
pub async fn find_execution(client: &Client, id: &str) -> Result<ExecutionHead, Failure> {
    #[derive(Deserialize)]
    struct ExecutionOwner {
        executions: Vec<ExecutionHead>,
    }
    let fields = ExecutionHead::FIELDS;
    let (owner, argument, parts) = match id.split('_').next() {
        Some("plan") => ("plan", "planId: ID!", ""),
        Some("req") => ("request", "requestId: ID!", ", parts: false"),
        _ => {
            let found: Option<_> = client.query_execution(id, fields).await?;
            return found.ok_or_else(|| Failure::not_found("execution", id));
        }
    };
    let fields = format!("executions(last: 1{parts}) {{ {fields} }}");
    let found: Option<ExecutionOwner> =
        client.query(owner, &[(argument, json!(id))], &fields).await?;
    let found = found.ok_or_else(|| Failure::not_found(owner, id))?;
    found.executions.into_iter().next().ok_or_else(|| {
        let reason = format!("`{id}` was never executed: run `faber execute {id}`");
        Failure::new("NOT_FOUND", reason)
    })
}
