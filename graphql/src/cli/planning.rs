//! Plans: made of words or of JSON, shown, and kept.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{
    Ending, Session,
    args::{Format, PlanArgs, Planning},
    client::Client,
    failure::Failure,
    house::{House, Need},
    render, run,
    screen::pretty,
    shape::Shape,
    written_plan::WrittenPlan,
};

/// What a person sees of a plan.
pub(super) const PLAN: &str = "{ planId requestId version query planner layers executionOrder tools { stepId \
     toolName plan parameters dependsOn when forEach compensate requiresApproval } diagnostics { severity code path message \
     help } }";

/// Plans a query and executes nothing.
pub(super) async fn plan(session: &Session, args: PlanArgs) -> Result<Ending, Failure> {
    let house = House::open(session, Need::Tools).await?;
    let shown = show_planned(session, house.client(), &args).await;
    house.close().await;
    shown.map(|()| Ending::Done)
}

async fn show_planned(session: &Session, client: &Client, args: &PlanArgs) -> Result<(), Failure> {
    let screen = &session.screen;
    let format = if screen.json { Format::Json } else { args.format };
    let selection = match format {
        Format::Text => PLAN.to_owned(),
        Format::Json => Shape::of(client).await?.plan(),
        Format::Mermaid => {
            "{ drawing: mermaid diagnostics { severity code path message help } }".into()
        }
        Format::Dot => "{ drawing: dot diagnostics { severity code path message help } }".into(),
    };
    let plan = query_plan(client, &args.query, options(&args.planning), &selection).await?;
    match format {
        Format::Text => screen.print(&render::plan(&plan, screen.out))?,
        Format::Json => screen.print_json(&plan)?,
        Format::Mermaid | Format::Dot => {
            screen.document(plan["drawing"].as_str().unwrap_or_default().trim_end())?;
        }
    }
    if format != Format::Json {
        warn(session, &plan);
    }
    if format == Format::Text {
        let id = plan["planId"].as_str().unwrap_or_default();
        screen.say(&screen.err.dim(format!("execute it: faber execute {id}")));
    }
    Ok(())
}

/// Makes the next version of a plan.
pub(super) async fn revise(session: &Session, id: &str, file: &Path) -> Result<Ending, Failure> {
    let input = run::read_plan(session, file).await?;
    let house = House::open_existing(session, Need::Tools).await;
    let house = house.map_err(|failure| input.prefer_errors(failure))?;
    let revised = revised(session, house.client(), id, input).await;
    house.close().await;
    let place = if file == Path::new("-") { json!("<stdin>") } else { json!(file) };
    revised.map(|()| Ending::Done).map_err(|it| match it.code.as_str() {
        "INVALID_PLAN" => it.with("file", place),
        _ => it,
    })
}

async fn revised(
    session: &Session,
    client: &Client,
    id: &str,
    plan: WrittenPlan,
) -> Result<(), Failure> {
    let input = plan.check(client).await?;
    let is_json = session.screen.json;
    let selection = if is_json { Shape::of(client).await?.plan() } else { PLAN.to_owned() };
    let change = format!(
        "mutation($id: ID!, $input: PlanInput!) {{ revisePlan(planId: $id, input: $input) \
         {{ plan {selection} diagnostics {{ severity code path message help }} }} }}"
    );
    let payload = client.field(&change, json!({ "id": id, "input": input })).await?;
    let plan = made(payload)?;
    if is_json {
        return session.screen.print_json(&plan);
    }
    session.screen.print(&render::plan(&plan, session.screen.out))?;
    warn(session, &plan);
    Ok(())
}

/// Plans a query.
pub(super) async fn by_query(
    client: &Client,
    query: &str,
    how: &Planning,
) -> Result<Value, Failure> {
    query_plan(client, query, options(how), PLAN).await
}

/// Plans a query as these options of the API say.
pub(super) async fn query_plan(
    client: &Client,
    query: &str,
    options: Value,
    selection: &str,
) -> Result<Value, Failure> {
    let make = format!(
        "mutation($query: String!, $options: PlanningOptions) \
         {{ createPlanWithRequestId(query: $query, options: $options) {selection} }}"
    );
    client.field(&make, json!({ "query": query, "options": options })).await
}

/// Makes a plan of JSON.
pub(super) async fn create(client: &Client, plan: WrittenPlan) -> Result<Value, Failure> {
    let input = plan.check(client).await?;
    let make = format!(
        "mutation($input: PlanInput!) {{ createPlan(input: $input) \
         {{ plan {PLAN} diagnostics {{ severity code path message help }} }} }}"
    );
    made(client.field(&make, json!({ "input": input })).await?)
}

/// Returns the plan that was made, or says why none was.
fn made(mut payload: Value) -> Result<Value, Failure> {
    let plan = payload["plan"].take();
    if plan.is_null() {
        return Err(Failure::invalid_plan(payload["diagnostics"].take()));
    }
    Ok(plan)
}

/// Shows a plan that is about to be executed.
pub(super) fn show(session: &Session, plan: &Value) {
    let screen = &session.screen;
    if !screen.json {
        screen.say(&render::plan_in_short(plan, screen.err));
    }
    warn(session, plan);
}

/// Shows a plan that is kept.
pub(super) async fn show_known(
    session: &Session,
    client: &Client,
    id: &Value,
) -> Result<(), Failure> {
    let query = format!("query($id: ID!) {{ plan(planId: $id) {PLAN} }}");
    let plan = client.field(&query, json!({ "id": id })).await?;
    show(session, &plan);
    Ok(())
}

/// Says what was assumed: it must not be overlooked.
fn warn(session: &Session, plan: &Value) {
    let screen = &session.screen;
    if plan["diagnostics"].as_array().is_some_and(|it| !it.is_empty()) {
        screen.say(&render::diagnostics(&plan["diagnostics"], "", screen.err));
    }
}

/// Returns how a query is to be planned.
pub(super) fn options(how: &Planning) -> Value {
    let mut options = Map::new();
    if !how.toolsets.is_empty() {
        options.insert("toolSets".to_owned(), json!(how.toolsets));
    }
    if let Some(planner) = &how.planner {
        options.insert("planner".to_owned(), json!(planner));
    }
    if let Some(cache) = how.cache {
        options.insert("cache".to_owned(), json!(cache.as_str()));
    }
    Value::Object(options)
}

/// Shows JSON within other text, a little to the right.
pub(super) fn indented(value: &Value, by: usize) -> String {
    let lead = " ".repeat(by);
    let text = pretty(value);
    let lines: Vec<String> = text.lines().map(|it| format!("{lead}{it}")).collect();
    lines.join("\n")
}
