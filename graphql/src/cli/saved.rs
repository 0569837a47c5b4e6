//! Plans under a name, and plans in files.

use std::path::Path;

use serde_json::{Value, json};
use shared::id::{PlanId, RequestId};

use super::{
    Ending, Session,
    args::{ExportArgs, ExportFormat, SaveArgs},
    client::Client,
    failure::Failure,
    house::{House, Need},
    lists::{print, second, text},
    plain, planning, run,
    screen::pretty,
    written_plan::WrittenPlan,
};
use crate::{config::yaml, engine::as_file};

/// How many saved plans one question asks for.
const PART: usize = 200;

/// Gives a plan a name: one that is there, or one of a file.
pub(super) async fn save(session: &Session, args: SaveArgs) -> Result<Ending, Failure> {
    let inputs = match &args.inputs {
        Some(text) => run::given("--inputs", text).await?,
        None => Value::Null,
    };
    let draft = match &args.file {
        Some(file) => Some((run::read_plan(session, file).await?, run::place(file))),
        None => None,
    };
    let opened = if draft.is_some() {
        House::open(session, Need::Tools).await
    } else {
        House::open_existing(session, Need::Store).await
    };
    let house = match (opened, &draft) {
        (Err(failure), Some((plan, _))) => return Err(plan.prefer_errors(failure)),
        (house, _) => house?,
    };
    let saved = name_plan(house.client(), &args, draft, inputs).await;
    house.close().await;
    let plan = saved?;
    if session.screen.json {
        session.screen.print_json(&json!({ "name": args.name, "planId": plan }))?;
    } else {
        session.screen.print(&format!("{}  {}", plain::line(&args.name), plain::line(&plan)))?;
    }
    Ok(Ending::Done)
}

async fn name_plan(
    client: &Client,
    args: &SaveArgs,
    draft: Option<(WrittenPlan, Value)>,
    inputs: Value,
) -> Result<String, Failure> {
    let plan = match draft {
        Some((draft, place)) => {
            let made = planning::create(client, draft).await;
            text(&made.map_err(|it| it.with("file", place))?, "planId")
        }
        None => args.plan.clone().unwrap_or_default(),
    };
    let save = "mutation($name: String!, $plan: ID!, $inputs: JSON) \
                { savePlan(name: $name, planId: $plan, inputs: $inputs) }";
    let variables = json!({ "name": args.name, "plan": plan, "inputs": inputs });
    client.field(save, variables).await?;
    Ok(plan)
}

/// Takes a name away from its plan.
pub(super) async fn unsave(session: &Session, name: &str) -> Result<Ending, Failure> {
    let house = House::open_existing(session, Need::Store).await?;
    let remove = "mutation($name: String!) { removeSavedPlan(name: $name) }";
    let removed = house.client().field(remove, json!({ "name": name })).await;
    let missing = match &removed {
        Ok(Value::Bool(false)) => Some(not_saved(name, &all(house.client()).await?)),
        _ => None,
    };
    house.close().await;
    removed?;
    if let Some(missing) = missing {
        return Err(missing);
    }
    if session.screen.json {
        session.screen.print_json(&json!({ "name": name, "removed": true }))?;
    } else {
        session.screen.print(&format!("{} is no plan any more", plain::line(name)))?;
    }
    Ok(Ending::Done)
}

/// Lists the plans that have a name.
pub(super) async fn list(session: &Session) -> Result<Ending, Failure> {
    let house = House::open_existing(session, Need::Store).await?;
    let found = all(house.client()).await;
    house.close().await;
    print(&session.screen, &json!(found?), &["NAME", "PLAN", "SAVED", "INPUTS"], |it, _| {
        vec![text(it, "name"), text(it, "planId"), second(&text(it, "savedAt")), inputs(it)]
    })?;
    Ok(Ending::Done)
}

async fn all(client: &Client) -> Result<Vec<Value>, Failure> {
    let query = "query($first: Int, $after: String) { savedPlans(first: $first, after: $after) \
                 { name planId inputs savedAt } }";
    let mut all: Vec<Value> = Vec::new();
    loop {
        let after = all.last().map(|it| it["name"].clone());
        let part = client.field(query, json!({ "first": PART, "after": after })).await?;
        let part = part.as_array().cloned().unwrap_or_default();
        let is_last = part.len() < PART;
        all.extend(part);
        if is_last {
            return Ok(all);
        }
    }
}

/// Names what a plan is given; what may be left out ends with `?`.
fn inputs(saved: &Value) -> String {
    let schema = &saved["inputs"];
    let required = schema["required"].as_array();
    let names = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| {
        let must = required.is_some_and(|all| all.iter().any(|it| it == name.as_str()));
        format!("{}{}", plain::line(name), if must { "" } else { "?" })
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Writes a plan down, so that `run --plan` and `save --plan` read it again.
pub(super) async fn export(session: &Session, args: ExportArgs) -> Result<Ending, Failure> {
    let house = House::open_existing(session, Need::Store).await?;
    let exported = exported(house.client(), &args.id).await;
    house.close().await;
    let draft = exported?;
    let is_json = session.screen.json || args.format == ExportFormat::Json;
    let written = if is_json {
        pretty(&draft)
    } else {
        yaml::text(&draft).map_err(|why| Failure::new("INTERNAL", why))?
    };
    match &args.output {
        None => session.screen.document(written.trim_end())?,
        Some(file) => {
            write(file, written.trim_end()).await?;
            if session.screen.json {
                session.screen.print_json(&json!({ "output": file }))?;
            }
        }
    }
    Ok(Ending::Done)
}

async fn write(file: &Path, text: &str) -> Result<(), Failure> {
    let written = tokio::fs::write(file, format!("{text}\n")).await;
    written.map_err(|err| Failure::usage(format!("`{}` cannot be written: {err}", file.display())))
}

async fn exported(client: &Client, id: &str) -> Result<Value, Failure> {
    // A name may begin as an id does.
    let plan = if id.parse::<PlanId>().is_ok() {
        json!(id)
    } else if id.parse::<RequestId>().is_ok() {
        newest(client, id).await?
    } else {
        named(client, id).await?
    };
    let query = "query($id: ID!) { exportPlan(planId: $id) }";
    let mut draft = client.field(query, json!({ "id": plan })).await?;
    if draft.is_null() {
        return Err(Failure::not_found("plan", id));
    }
    as_file(&mut draft);
    Ok(draft)
}

async fn newest(client: &Client, request: &str) -> Result<Value, Failure> {
    let query = "query($id: ID!) { plansByRequestId(requestId: $id) { planId } }";
    let plans = client.field(query, json!({ "id": request })).await?;
    let newest = plans.as_array().and_then(|it| it.last());
    let newest = newest.ok_or_else(|| {
        Failure::new("NOT_FOUND", format!("there is no plan of a request `{request}`"))
    })?;
    Ok(newest["planId"].clone())
}

async fn named(client: &Client, name: &str) -> Result<Value, Failure> {
    let query = "query($name: String!) { savedPlan(name: $name) { planId } }";
    let found = client.field(query, json!({ "name": name })).await?;
    if !found.is_null() {
        return Ok(found["planId"].clone());
    }
    Err(not_saved(name, &all(client).await?))
}

/// Says that no plan has a name, and which name may be meant.
fn not_saved(name: &str, saved: &[Value]) -> Failure {
    let names = saved.iter().filter_map(|it| it["name"].as_str());
    let help = planner::nearest::did_you_mean(name, names);
    let help = help.unwrap_or_else(|| "`faber list saved` lists those that are".to_owned());
    Failure::new("NOT_FOUND", format!("no plan was saved as `{name}`: {help}"))
}
