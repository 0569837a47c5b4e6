use std::path::Path;

use client::operations::{
    create_plan, execute_plan, execute_request, find_execution, find_saved_plan, make_plan,
    newest_plan, run_query, run_saved,
};
use client::{
    failure::Failure,
    plan_file::{WrittenPlan, file_label, read_json},
    read_answer, remove_nulls,
    types::{ExecutionHead, Plan, Text},
};
use serde_json::{Value, json};
use shared::id::ExecutionId;

use super::{
    doubts::{accept_plan, steps_to_approve},
    failed_sets,
    follow::{Purpose, watch_to_end, watch_with_approvals},
    missing_tools,
    plan::{label_object, planning_options, read_plan_file, show_plan, show_stored},
    steer::confirm_new_execution,
};
use crate::{
    App, ExitStatus,
    args::{AgentArgs, ExecuteArgs, Options, RunArgs, api_name},
    session::{Need, Session},
};

pub(crate) async fn run(app: &App, args: RunArgs) -> Result<ExitStatus, Failure> {
    let written = match &args.plan {
        Some(file) => Some(read_plan_file(app, file).await?),
        None => None,
    };
    let options = execution_options(&args.options).await?;
    // `--saved` creates no store, because a new store contains no saved plan.
    let opened = if args.saved.is_some() {
        Session::open_existing(app, Need::Driving).await
    } else {
        Session::open(app, Need::Driving).await
    };
    let session = match (opened, &written) {
        (Err(failure), Some(written)) => return Err(written.prefer_errors(failure)),
        (session, _) => session?,
    };
    session
        .close_after(async |session| {
            let started = start_execution(session, &args, written, options).await?;
            let Some(StartedExecution { id, approved }) = started else {
                session.screen.say("nothing was executed");
                return Ok(ExitStatus::Failed);
            };
            watch_with_approvals(session, id, Purpose::Drive, approved).await
        })
        .await
}

struct StartedExecution {
    id: ExecutionId,
    approved: Vec<Text>,
}

impl From<ExecutionHead> for StartedExecution {
    fn from(head: ExecutionHead) -> Self {
        Self { id: head.execution_id, approved: Vec::new() }
    }
}

pub(crate) async fn run_agent(
    session: &Session<'_>,
    args: AgentArgs,
) -> Result<ExitStatus, Failure> {
    let options = remove_nulls(json!({
        "maxToolTurns": args.max_tool_turns,
        "toolSets": (!args.toolsets.is_empty()).then_some(&args.toolsets),
        "planner": args.planner,
    }));
    let arguments = [("query: String!", json!(args.query)), ("options: AgentOptions", options)];
    let started: ExecutionHead =
        session.client.mutate("runAgent", &arguments, ExecutionHead::FIELDS).await?;
    watch_to_end(session, started.execution_id, Purpose::Drive).await
}

/// Starts an execution. Returns `None` if the user does not accept a plan with doubts.
async fn start_execution(
    session: &Session<'_>,
    args: &RunArgs,
    written: Option<WrittenPlan>,
    options: Value,
) -> Result<Option<StartedExecution>, Failure> {
    let client = &session.client;
    let checks_tools = !args.options.wait && !args.options.dry_run;
    if let Some(name) = &args.saved {
        if checks_tools && let Some(plan) = find_saved_plan(client, name).await? {
            missing_tools::check_plan(session, &plan).await?;
        }
        return Ok(Some(run_saved(client, name, options).await?.into()));
    }
    let query = args.query.as_deref().unwrap_or_default();
    let planning = planning_options(&args.planning, &args.options.labels);
    if let Some(written) = written {
        if checks_tools && !written.has_errors() {
            missing_tools::check_draft(session, &written.input).await?;
        }
        let file = args.plan.as_deref().unwrap_or(Path::new("-"));
        let made = create_plan(client, written).await;
        let plan: Plan =
            read_answer(made.map_err(|failure| failure.with("file", file_label(file)))?)?;
        show_plan(session, &plan);
        return Ok(Some(execute_plan(client, &plan.plan_id, options).await?.into()));
    }
    // With an idempotency key, one operation plans and executes the query. If the key was used
    // before, the engine then returns the earlier execution and makes no plan.
    if args.options.idempotency_key.is_some() {
        let started = run_query(client, query, planning, options).await?;
        let plan = show_stored(session, &started.plan_id).await?;
        let approved = if args.yes { steps_to_approve(&plan) } else { Vec::new() };
        return Ok(Some(StartedExecution { id: started.execution_id, approved }));
    }
    let made = make_plan(client, query, planning, Plan::VIEW_FIELDS).await;
    failed_sets::warn_of_failed_sets(session).await;
    let plan: Plan = read_answer(made?)?;
    // A dry run calls no tool, so the user does not have to confirm the plan.
    let is_confirmed = args.yes || args.options.dry_run;
    let Some(approved) = accept_plan(session, &plan, is_confirmed).await? else { return Ok(None) };
    let started = execute_plan(client, &plan.plan_id, options).await?;
    Ok(Some(StartedExecution { id: started.execution_id, approved }))
}

pub(crate) async fn execute(
    session: &Session<'_>,
    args: ExecuteArgs,
) -> Result<ExitStatus, Failure> {
    let options = execution_options(&args.options).await?;
    let id = &args.id;
    let started = if id.starts_with("exec_") {
        let found = find_execution(&session.client, id).await?;
        if !args.options.wait {
            missing_tools::check_execution(session, found.execution_id).await?;
        }
        found
    } else if let Some(started) = start_again(session, &args, options).await? {
        started
    } else {
        session.screen.say("nothing was executed");
        return Ok(ExitStatus::Failed);
    };
    watch_to_end(session, started.execution_id, Purpose::Drive).await
}

async fn start_again(
    session: &Session<'_>,
    args: &ExecuteArgs,
    options: Value,
) -> Result<Option<ExecutionHead>, Failure> {
    let (client, id, how) = (&session.client, args.id.as_str(), &args.options);
    let is_request = id.starts_with("req_");
    let plan = if is_request { newest_plan(client, id).await? } else { Some(id.into()) };
    if let Some(plan) = plan.as_ref().filter(|_| !how.dry_run) {
        if !how.wait {
            missing_tools::check_plan(session, plan).await?;
        }
        // With an idempotency key, does not ask the user: if the key was used before, no new
        // execution starts.
        let is_free = how.idempotency_key.is_none();
        if is_free && !confirm_new_execution(session, plan, args.yes).await? {
            return Ok(None);
        }
    }
    let started = match plan {
        Some(plan) if !is_request => execute_plan(client, &plan, options).await?,
        _ => execute_request(client, id, options).await?,
    };
    Ok(Some(started))
}

pub(crate) async fn watch(session: &Session<'_>, id: &str) -> Result<ExitStatus, Failure> {
    let found = find_execution(&session.client, id).await?;
    watch_to_end(session, found.execution_id, Purpose::Watch).await
}

async fn execution_options(how: &Options) -> Result<Value, Failure> {
    let mut options = remove_nulls(json!({
        "mode": how.mode.map(|mode| api_name(&mode)),
        "maxParallel": how.max_parallel,
        "idempotencyKey": how.idempotency_key,
        "deadlineMs": how.deadline_ms,
        "strictTemplates": how.strict_templates,
        "compensateOnFailure": how.compensate_on_failure(),
        "dryRun": how.dry_run.then_some(true),
        "startAt": how.start_at,
        "priority": how.priority,
        "replans": how.replans,
        "labels": label_object(&how.labels),
    }));
    // An input of `null` is valid, so it is not left out like other null options.
    if let Some(text) = &how.input {
        options["input"] = read_json("--input", text).await?;
    }
    Ok(options)
}
