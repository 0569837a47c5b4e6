//! Executions begun: of a query, of a plan, or carried on.

use std::path::Path;

use planner::compile;
use serde_json::{Map, Value, json};

use super::{
    Ending, Session,
    args::{AgentArgs, ExecuteArgs, Options, RunArgs, api_name},
    client::Client,
    failure::Failure,
    follow::{Purpose, follow},
    house::{House, Need},
    planning, render,
    steer::{EXECUTION, find},
};

/// Plans, executes, shows how it goes and prints the outputs.
pub(super) async fn run(session: &Session, args: RunArgs) -> Result<Ending, Failure> {
    let input = match &args.plan {
        Some(file) => Some(read_plan(session, file).await?),
        None => None,
    };
    let options = options(&args.options).await?;
    let house = House::open(session, Need::Driving).await?;
    let ending = match begin(session, house.client(), &args, (input, options)).await {
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
    client: &Client,
    args: &RunArgs,
    (input, options): (Option<Value>, Value),
) -> Result<Value, Failure> {
    if let Some(name) = &args.saved {
        let begin = format!(
            "mutation($name: String!, $options: ExecutionOptions) \
             {{ runSavedPlan(name: $name, options: $options) {{ {EXECUTION} }} }}"
        );
        return client.field(&begin, json!({ "name": name, "options": options })).await;
    }
    if let (Some(query), Some(_)) = (&args.query, &args.options.idempotency_key) {
        // A key that was used before plans nothing, so planning is the engine's to decide.
        let begin = format!(
            "mutation($query: String!, $planning: PlanningOptions, $execution: ExecutionOptions) \
             {{ run(query: $query, planning: $planning, execution: $execution) {{ {EXECUTION} }} }}"
        );
        let planning = planning::options(&args.planning);
        let variables = json!({ "query": query, "planning": planning, "execution": options });
        let execution = client.field(&begin, variables).await?;
        planning::show_known(session, client, &execution["planId"]).await?;
        return Ok(execution);
    }
    let plan = match (input, &args.query) {
        (Some(input), _) => {
            let file = args.plan.as_deref().unwrap_or(Path::new("-"));
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

/// Reads a plan as a person wrote it. What is wrong with it is said all at once.
pub(super) async fn read_plan(session: &Session, file: &Path) -> Result<Value, Failure> {
    let text = read_text("the plan", file).await?;
    let draft = compile::parse(&text)
        .map_err(|it| Failure::invalid_draft(&it).with("file", place(file)))?;
    if !draft.notices.is_empty() {
        let notices = json!(draft.notices);
        let at = file.display().to_string();
        session.screen.say(&render::diagnostics(&notices, &at, session.screen.err));
    }
    let mut input: Value = serde_json::from_str(&text).expect("it was just read as a draft");
    named_as_in_the_api(&mut input);
    Ok(input)
}

/// The API calls a plan inside a plan otherwise than a reference to one; everything else is the
/// same.
fn named_as_in_the_api(draft: &mut Value) {
    let Some(fields) = draft.as_object_mut() else { return };
    fields.retain(|_, it| !it.is_null());
    for step in fields.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(step) = step.as_object_mut() else { continue };
        if step.get("plan").is_some_and(Value::is_object) {
            let mut plan = step.shift_remove("plan").unwrap_or_default();
            named_as_in_the_api(&mut plan);
            step.insert("inlinePlan".to_owned(), plan);
        }
    }
}

fn place(file: &Path) -> Value {
    if file == Path::new("-") { json!("<stdin>") } else { json!(file) }
}

/// Executes a plan, the newest plan of a request, or carries an execution on.
pub(super) async fn execute(session: &Session, args: ExecuteArgs) -> Result<Ending, Failure> {
    let options = options(&args.options).await?;
    let house = House::open(session, Need::Driving).await?;
    let client = house.client();
    let begun = match args.id.split('_').next() {
        Some("req") => execute_request(client, &args.id, options).await,
        Some("exec") => find(client, &args.id).await,
        _ => execute_plan(client, &json!(args.id), options).await,
    };
    let ending = match begun {
        Ok(execution) => follow(session, &house, &execution, Purpose::Drive).await,
        Err(failure) => Err(failure),
    };
    house.close().await;
    ending
}

async fn execute_plan(client: &Client, plan: &Value, options: Value) -> Result<Value, Failure> {
    let begin = format!(
        "mutation($id: ID!, $options: ExecutionOptions) \
         {{ executePlan(planId: $id, options: $options) {{ {EXECUTION} }} }}"
    );
    client.field(&begin, json!({ "id": plan, "options": options })).await
}

async fn execute_request(client: &Client, id: &str, options: Value) -> Result<Value, Failure> {
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
    say("strictTemplates", how.strict_templates.then(|| json!(true)));
    say("input", input);
    say("compensateOnFailure", how.compensate.then(|| json!(true)));
    say("dryRun", how.dry_run.then(|| json!(true)));
    say("startAt", how.start_at.as_ref().map(|it| json!(it)));
    say("priority", how.priority.map(|it| json!(it)));
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

pub(super) async fn read_text(what: &str, file: &Path) -> Result<String, Failure> {
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

/// Gives a plan a name.
pub(super) async fn save(
    session: &Session,
    name: &str,
    plan: &str,
    inputs: Option<&str>,
) -> Result<Ending, Failure> {
    let inputs = match inputs {
        Some(text) => given("--inputs", text).await?,
        None => Value::Null,
    };
    let house = House::open(session, Need::Store).await?;
    let save = "mutation($name: String!, $plan: ID!, $inputs: JSON) \
                { savePlan(name: $name, planId: $plan, inputs: $inputs) }";
    let variables = json!({ "name": name, "plan": plan, "inputs": inputs });
    let saved = house.client().field(save, variables).await;
    house.close().await;
    saved?;
    if session.screen.json {
        session.screen.print_json(&json!({ "name": name, "planId": plan }))?;
    } else {
        session.screen.print(&format!("{name}  {plan}"))?;
    }
    Ok(Ending::Done)
}

/// Watches an execution until it ends.
pub(super) async fn watch(session: &Session, id: &str) -> Result<Ending, Failure> {
    let house = House::open(session, Need::Store).await?;
    let execution = find(house.client(), id).await?;
    let ending = follow(session, &house, &execution, Purpose::Watch).await;
    house.close().await;
    ending
}
