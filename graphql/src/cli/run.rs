//! Executions begun: of a query, of a plan, or carried on.

use std::{borrow::Cow, path::Path};

use planner::compile;
use serde_json::{Map, Value, json};
use shared::diagnostic::Diagnostic;

use super::{
    Ending, Session,
    args::{AgentArgs, ExecuteArgs, Options, RunArgs, api_name},
    client::Client,
    failure::Failure,
    follow::{Purpose, follow},
    house::{House, Need},
    missing_tools, planning, printed, render, repeated_calls,
    steer::{EXECUTION, find},
    written_plan::WrittenPlan,
};
use crate::config::yaml;

/// Plans, executes, shows how it goes and prints the outputs.
pub(super) async fn run(session: &Session, args: RunArgs) -> Result<Ending, Failure> {
    let input = match &args.plan {
        Some(file) => Some(read_plan(session, file).await?),
        None => None,
    };
    let options = options(&args.options).await?;
    let house = match (House::open(session, Need::Driving).await, &input) {
        (Err(failure), Some(input)) => return Err(input.prefer_errors(failure)),
        (house, _) => house?,
    };
    let ending = match begin(session, &house, &args, (input, options)).await {
        Ok(execution) => follow(session, &house, &execution, Purpose::Drive).await,
        Err(failure) => Err(failure),
    };
    house.close().await;
    ending
}

/// Lets a model do what is asked, shows how it goes and prints the outputs.
pub(super) async fn agent(session: &Session, args: AgentArgs) -> Result<Ending, Failure> {
    let mut options = Map::from_iter([("maxToolTurns".to_owned(), json!(args.max_tool_turns))]);
    if !args.toolsets.is_empty() {
        options.insert("toolSets".to_owned(), json!(args.toolsets));
    }
    options.extend(args.planner.map(|it| ("planner".to_owned(), json!(it))));
    let house = House::open(session, Need::Driving).await?;
    let begin = format!(
        "mutation($query: String!, $options: AgentOptions) \
         {{ runAgent(query: $query, options: $options) {{ {EXECUTION} }} }}"
    );
    let variables = json!({ "query": args.query, "options": options });
    let ending = match house.client().field(&begin, variables).await {
        Ok(execution) => follow(session, &house, &execution, Purpose::Drive).await,
        Err(failure) => Err(failure),
    };
    house.close().await;
    ending
}

/// Begins what `run` was asked for, and returns the execution.
async fn begin(
    session: &Session,
    house: &House,
    args: &RunArgs,
    (input, options): (Option<WrittenPlan>, Value),
) -> Result<Value, Failure> {
    let client = house.client();
    if let Some(name) = &args.saved {
        if !args.options.wait && !args.options.dry_run {
            let query = "query($name: String!) { savedPlan(name: $name) { planId } }";
            let saved = client.field(query, json!({ "name": name })).await?;
            missing_tools::check_plan(session, house, &saved["planId"]).await?;
        }
        return run_saved(client, name, options).await;
    }
    let has_key = args.options.idempotency_key.is_some();
    if let Some(query) = args.query.as_ref().filter(|_| has_key) {
        // The engine plans nothing if the key was used before.
        let planning = planning::options(&args.planning);
        let variables = json!({ "query": query, "planning": planning, "execution": options });
        let execution = run_query(client, variables).await?;
        planning::show_known(session, client, &execution["planId"]).await?;
        return Ok(execution);
    }
    let plan = match (input, &args.query) {
        (Some(input), _) => {
            let file = args.plan.as_deref().unwrap_or(Path::new("-"));
            if !args.options.wait && !args.options.dry_run && !input.has_errors() {
                missing_tools::check_draft(session, house, &input.input).await?;
            }
            planning::create(client, input).await.map_err(|it| it.with("file", place(file)))?
        }
        (None, query) => {
            let query = query.as_deref().unwrap_or_default();
            planning::by_query(client, query, &args.planning).await?
        }
    };
    planning::show(session, &plan);
    execute_plan(client, &plan["planId"], options).await
}

/// Reads a plan as a person wrote it, and shows what was noticed.
pub(super) async fn read_plan(session: &Session, file: &Path) -> Result<WrittenPlan, Failure> {
    let text = read_text("the plan", file).await?;
    let json = as_json(&text).map_err(|why| {
        let place = place(file);
        let shown = place.as_str().unwrap_or_default();
        Failure::usage(format!("`{shown}`: {why}")).with("file", place.clone())
    })?;
    let plan = draft(&json).map_err(|it| Failure::invalid_draft(&it).with("file", place(file)))?;
    // Errors are shown together with those that the compiler finds.
    if !plan.has_errors() && !plan.notices.is_empty() {
        let notices = json!(plan.notices);
        let at = file.display().to_string();
        session.screen.say(&render::diagnostics(&notices, &at, session.screen.err));
    }
    Ok(plan)
}

/// Returns a plan as JSON. What begins like JSON is JSON; anything else is YAML.
fn as_json(text: &str) -> Result<Cow<'_, str>, String> {
    if text.trim_start().starts_with(['{', '[']) {
        return Ok(Cow::Borrowed(text));
    }
    Ok(Cow::Owned(yaml::value(text)?.to_string()))
}

/// Reads the JSON of a plan, written or printed, or says everything that makes it unreadable.
pub(super) fn draft(json: &str) -> Result<WrittenPlan, Vec<Diagnostic>> {
    let Ok(mut input) = serde_json::from_str::<Value>(json) else {
        // Why it is no JSON is the compiler's to say.
        return compile::parse(json).map(|draft| WrittenPlan::new(&draft, Value::Null));
    };
    let written = input.clone();
    printed::as_draft(&mut input)
        .map_err(|why| vec![Diagnostic::error("plan.invalid_json", "", why)])?;
    let changed = (input != written).then(|| input.to_string());
    let draft = compile::parse(changed.as_deref().unwrap_or(json))?;
    Ok(WrittenPlan::new(&draft, input))
}

pub(super) fn place(file: &Path) -> Value {
    if file == Path::new("-") { json!("<stdin>") } else { json!(file) }
}

/// Executes a plan, the newest plan of a request, or carries an execution on.
pub(super) async fn execute(session: &Session, args: ExecuteArgs) -> Result<Ending, Failure> {
    let options = options(&args.options).await?;
    let house = House::open_existing(session, Need::Driving).await?;
    let ending = match begin_execution(session, &house, &args, options).await {
        Ok(execution) => follow(session, &house, &execution, Purpose::Drive).await,
        Err(failure) => Err(failure),
    };
    house.close().await;
    ending
}

/// Begins what `execute` was asked for, and returns the execution.
async fn begin_execution(
    session: &Session,
    house: &House,
    args: &ExecuteArgs,
    options: Value,
) -> Result<Value, Failure> {
    let (client, how) = (house.client(), &args.options);
    if args.id.starts_with("exec_") {
        let found = find(client, &args.id).await?;
        if !how.wait {
            missing_tools::check_execution(session, house, &found).await?;
        }
        return Ok(found);
    }
    let is_request = args.id.starts_with("req_");
    let plan = if is_request { newest_plan(client, &args.id).await? } else { json!(args.id) };
    if !how.wait && !how.dry_run {
        missing_tools::check_plan(session, house, &plan).await?;
    }
    // Under a key that was used before, nothing is executed again.
    if !how.dry_run && how.idempotency_key.is_none() && !plan.is_null() {
        repeated_calls::warn_before_execution(session, client, &plan).await?;
    }
    if is_request {
        return execute_request(client, &args.id, options).await;
    }
    execute_plan(client, &plan, options).await
}

/// Returns the newest plan of a request, or nothing where there is none.
async fn newest_plan(client: &Client, request: &str) -> Result<Value, Failure> {
    let query = "query($id: ID!) { plansByRequestId(requestId: $id) { planId } }";
    let plans = client.field(query, json!({ "id": request })).await?;
    Ok(plans
        .as_array()
        .and_then(|plans| plans.last())
        .map_or(Value::Null, |plan| plan["planId"].clone()))
}

/// Plans a query and begins its execution.
pub(super) async fn run_query(client: &Client, variables: Value) -> Result<Value, Failure> {
    let begin = format!(
        "mutation($query: String!, $planning: PlanningOptions, $execution: ExecutionOptions) \
         {{ run(query: $query, planning: $planning, execution: $execution) {{ {EXECUTION} }} }}"
    );
    client.field(&begin, variables).await
}

/// Begins an execution of the plan that a name means.
pub(super) async fn run_saved(
    client: &Client,
    name: &str,
    options: Value,
) -> Result<Value, Failure> {
    let begin = format!(
        "mutation($name: String!, $options: ExecutionOptions) \
         {{ runSavedPlan(name: $name, options: $options) {{ {EXECUTION} }} }}"
    );
    client.field(&begin, json!({ "name": name, "options": options })).await
}

/// Begins an execution of a plan.
pub(super) async fn execute_plan(
    client: &Client,
    plan: &Value,
    options: Value,
) -> Result<Value, Failure> {
    let begin = format!(
        "mutation($id: ID!, $options: ExecutionOptions) \
         {{ executePlan(planId: $id, options: $options) {{ {EXECUTION} }} }}"
    );
    client.field(&begin, json!({ "id": plan, "options": options })).await
}

/// Begins an execution of the newest plan of a request.
pub(super) async fn execute_request(
    client: &Client,
    id: &str,
    options: Value,
) -> Result<Value, Failure> {
    let begin = format!(
        "mutation($id: ID!, $options: ExecutionOptions) \
         {{ executeByRequestId(requestId: $id, options: $options) {{ {EXECUTION} }} }}"
    );
    client.field(&begin, json!({ "id": id, "options": options })).await
}

async fn options(how: &Options) -> Result<Value, Failure> {
    let input = match &how.input {
        Some(text) => Some(given("--input", text).await?),
        None => None,
    };
    let mut options = Map::new();
    let mut say = |key: &str, value: Option<Value>| {
        options.extend(value.map(|it| (key.to_owned(), it)));
    };
    say("mode", how.mode.map(|it| json!(api_name(&it))));
    say("maxParallel", how.max_parallel.map(|it| json!(it)));
    say("idempotencyKey", how.idempotency_key.as_ref().map(|it| json!(it)));
    say("deadlineMs", how.deadline_ms.map(|it| json!(it)));
    say("strictTemplates", how.strict_templates.map(|it| json!(it)));
    say("input", input);
    say("compensateOnFailure", how.compensate.then(|| json!(true)));
    say("dryRun", how.dry_run.then(|| json!(true)));
    say("startAt", how.start_at.as_ref().map(|it| json!(it)));
    say("priority", how.priority.map(|it| json!(it)));
    say("replans", how.replans.map(|it| json!(it)));
    Ok(Value::Object(options))
}

/// Reads JSON that was typed, or that is in the file behind `@`; `@-` is standard input.
pub(super) async fn given(flag: &str, text: &str) -> Result<Value, Failure> {
    let (place, json) = match text.strip_prefix('@') {
        None => (text, text.to_owned()),
        Some(file) => (file, read_text(flag, Path::new(file)).await?),
    };
    serde_json::from_str(&json).map_err(|err| {
        let hint = "a text needs quotes, as in '\"text\"'; `@FILE` reads a file";
        Failure::usage(format!(
            "`{flag}`: `{}` is not JSON: {err}; {hint}",
            render::clip(place, 80)
        ))
    })
}

/// Reads a file, or standard input for `-`, without the mark that some editors put before the first
/// letter.
pub(super) async fn read_text(what: &str, file: &Path) -> Result<String, Failure> {
    let mut text = read_whole(what, file).await?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    Ok(text)
}

async fn read_whole(what: &str, file: &Path) -> Result<String, Failure> {
    let unreadable = |err: std::io::Error| {
        Failure::usage(format!("{what}: `{}` cannot be read: {err}", file.display()))
    };
    if file == Path::new("-") {
        let read = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin()));
        return read
            .await
            .map_err(|err| Failure::new("INTERNAL", err.to_string()))?
            .map_err(unreadable);
    }
    tokio::fs::read_to_string(file).await.map_err(unreadable)
}

/// Watches an execution until it ends.
pub(super) async fn watch(session: &Session, id: &str) -> Result<Ending, Failure> {
    let house = House::open_existing(session, Need::Store).await?;
    let execution = find(house.client(), id).await?;
    let ending = follow(session, &house, &execution, Purpose::Watch).await;
    house.close().await;
    ending
}
