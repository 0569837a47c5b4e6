//! Plans: made from words or from a file, revised, saved under a name, and exported.

use std::path::Path;

use serde_json::{Value, json};
use shared::id::{PlanId, RequestId};

use crate::{
    cli::{
        App, ExitStatus,
        args::{ExportArgs, ExportFormat, Format, PlanArgs, Planning, SaveArgs, api_name},
        client::{
            Client, read,
            types::{DIAGNOSTIC, Plan, PlanPayload, SavedPlan, Text},
        },
        failure::Failure,
        plan_file::{WrittenPlan, place, read_json, read_plan, write_file},
        session::{Need, Session},
        view::{
            format::{pretty, second},
            plain,
            plan::{diagnostics, plan as whole_plan, plan_in_short},
        },
        without_nulls,
    },
    config::yaml,
    engine::as_file,
};

/// Saved plans that one query reads.
const PAGE: usize = 200;

/// Plans a query and executes nothing.
pub(crate) async fn plan(app: &App, args: PlanArgs) -> Result<ExitStatus, Failure> {
    let screen = &app.screen;
    let format = if screen.json { Format::Json } else { args.format };
    let fields = match format {
        Format::Text => Plan::SHOWN.to_owned(),
        Format::Json => Plan::fields(),
        Format::Mermaid => format!("drawing: mermaid diagnostics {{ {DIAGNOSTIC} }}"),
        Format::Dot => format!("drawing: dot diagnostics {{ {DIAGNOSTIC} }}"),
    };
    let made = Session::with(app, Need::Tools, async |session| {
        let options = planning_options(&args.planning);
        make_plan(session.client(), &args.query, options, &fields).await
    })
    .await?;
    let plan: Plan = read(made.clone())?;
    match format {
        Format::Text => screen.print(&whole_plan(&plan, screen.out))?,
        Format::Json => screen.print_json(&made)?,
        Format::Mermaid | Format::Dot => {
            screen.document(made["drawing"].as_str().unwrap_or_default().trim_end())?;
        }
    }
    if format != Format::Json {
        show_warnings(app, &plan);
    }
    if format == Format::Text {
        screen.hint(&format!("execute it: faber execute {}", plan.plan_id));
    }
    Ok(ExitStatus::Done)
}

/// Makes the next version of a plan.
pub(crate) async fn revise(app: &App, id: &str, file: &Path) -> Result<ExitStatus, Failure> {
    let written = read_plan(app, file).await?;
    let session = Session::open_existing(app, Need::Tools).await;
    let session = session.map_err(|failure| written.prefer_errors(failure))?;
    let fields = if app.screen.json { Plan::fields() } else { Plan::SHOWN.to_owned() };
    let revised = session.finish(async |session| {
        let input = written.check(session.client()).await?;
        let arguments = [("planId: ID!", json!(id)), ("input: PlanInput!", input)];
        plan_or_failure(
            session.client().mutate("revisePlan", &arguments, &payload_fields(&fields)).await?,
        )
    });
    let revised = revised.await.map_err(|failure| match failure.code.as_str() {
        "INVALID_PLAN" => failure.with("file", place(file)),
        _ => failure,
    })?;
    if app.screen.json {
        app.screen.print_json(&revised)?;
    } else {
        let plan = read(revised)?;
        app.screen.print(&whole_plan(&plan, app.screen.out))?;
        show_warnings(app, &plan);
    }
    Ok(ExitStatus::Done)
}

/// Plans a query and returns of the plan what `fields` select.
pub(crate) async fn make_plan(
    client: &Client,
    query: &str,
    options: Value,
    fields: &str,
) -> Result<Value, Failure> {
    let arguments = [("query: String!", json!(query)), ("options: PlanningOptions", options)];
    client.mutate("createPlanWithRequestId", &arguments, fields).await
}

/// Creates a plan of a written one.
pub(crate) async fn create_plan(client: &Client, plan: WrittenPlan) -> Result<Value, Failure> {
    let arguments = [("input: PlanInput!", plan.check(client).await?)];
    plan_or_failure(client.mutate("createPlan", &arguments, &payload_fields(Plan::SHOWN)).await?)
}

fn payload_fields(fields: &str) -> String {
    format!("plan {{ {fields} }} diagnostics {{ {DIAGNOSTIC} }}")
}

fn plan_or_failure(payload: PlanPayload) -> Result<Value, Failure> {
    payload.plan.ok_or_else(|| Failure::invalid_plan(&payload.diagnostics))
}

/// Shows a plan that is about to be executed.
pub(crate) fn show(app: &App, plan: &Plan) {
    if !app.screen.json {
        app.screen.say(&plan_in_short(plan, app.screen.err));
    }
    show_warnings(app, plan);
}

/// Shows a stored plan that is about to be executed.
pub(crate) async fn show_stored(app: &App, client: &Client, id: &Text) -> Result<(), Failure> {
    let arguments = [("planId: ID!", json!(&**id))];
    show(app, &client.query("plan", &arguments, Plan::SHOWN).await?);
    Ok(())
}

/// Shows the assumptions of a plan, also with `--json`: they must not be overlooked.
fn show_warnings(app: &App, plan: &Plan) {
    if !plan.diagnostics.is_empty() {
        app.screen.say(&diagnostics(&plan.diagnostics, "", app.screen.err));
    }
}

/// Returns the options of the API for planning.
pub(crate) fn planning_options(planning: &Planning) -> Value {
    without_nulls(json!({
        "toolSets": (!planning.toolsets.is_empty()).then_some(&planning.toolsets),
        "planner": planning.planner,
        "cache": planning.cache.map(|cache| api_name(&cache)),
    }))
}

/// Saves a plan under a name: a stored one, or one of a file.
pub(crate) async fn save(app: &App, args: SaveArgs) -> Result<ExitStatus, Failure> {
    let inputs = match &args.inputs {
        Some(text) => read_json("--inputs", text).await?,
        None => Value::Null,
    };
    let (session, written) = match &args.file {
        Some(file) => {
            let written = read_plan(app, file).await?;
            let session = Session::open(app, Need::Tools).await;
            let session = session.map_err(|failure| written.prefer_errors(failure))?;
            (session, Some((written, place(file))))
        }
        None => (Session::open_existing(app, Need::Store).await?, None),
    };
    let saved = session.finish(async |session| {
        let client = session.client();
        let plan = match written {
            Some((written, place)) => {
                let made = create_plan(client, written).await;
                let plan: Plan = read(made.map_err(|failure| failure.with("file", place))?)?;
                (*plan.plan_id).to_owned()
            }
            None => args.plan.clone().unwrap_or_default(),
        };
        let arguments = [
            ("name: String!", json!(args.name)),
            ("planId: ID!", json!(plan)),
            ("inputs: JSON", inputs),
        ];
        client.mutate::<bool>("savePlan", &arguments, "").await?;
        Ok(plan)
    });
    let plan = saved.await?;
    if app.screen.json {
        app.screen.print_json(&json!({ "name": args.name, "planId": plan }))?;
    } else {
        app.screen.print(&format!("{}  {}", plain::line(&args.name), plain::line(&plan)))?;
    }
    Ok(ExitStatus::Done)
}

/// Removes the name of a plan.
pub(crate) async fn unsave(app: &App, name: &str) -> Result<ExitStatus, Failure> {
    Session::with_existing(app, Need::Store, async |session| {
        let arguments = [("name: String!", json!(name))];
        if session.client().mutate("removeSavedPlan", &arguments, "").await? {
            return Ok(());
        }
        Err(not_saved(session.client(), name).await?)
    })
    .await?;
    if app.screen.json {
        app.screen.print_json(&json!({ "name": name, "removed": true }))?;
    } else {
        app.screen.print(&format!("{} is no plan any more", plain::line(name)))?;
    }
    Ok(ExitStatus::Done)
}

/// Lists the saved plans.
pub(crate) async fn list_saved(app: &App) -> Result<ExitStatus, Failure> {
    let saved =
        Session::with_existing(app, Need::Store, async |session| all_saved(session.client()).await);
    let headings = ["NAME", "PLAN", "SAVED", "INPUTS"];
    app.screen.list(&Value::Array(saved.await?), &headings, |plan: &SavedPlan, _| {
        let inputs = plan.inputs.as_ref().map(input_names).unwrap_or_default();
        vec![plan.name.to_string(), plan.plan_id.to_string(), second(&plan.saved_at), inputs]
    })
}

async fn all_saved(client: &Client) -> Result<Vec<Value>, Failure> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let after = all.last().map(|plan| plan["name"].clone()).unwrap_or_default();
        let arguments = [("first: Int", json!(PAGE)), ("after: String", after)];
        let page: Vec<Value> = client.query("savedPlans", &arguments, SavedPlan::FIELDS).await?;
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// Lists the names in a JSON Schema of inputs. Optional ones end with `?`.
fn input_names(schema: &Value) -> String {
    let required = schema["required"].as_array();
    let names = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| {
        let is_required =
            required.is_some_and(|all| all.iter().any(|required| required == name.as_str()));
        format!("{}{}", plain::line(name), if is_required { "" } else { "?" })
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Writes a plan as a file that `run --plan` and `save --plan` read.
pub(crate) async fn export(app: &App, args: ExportArgs) -> Result<ExitStatus, Failure> {
    let exported = Session::with_existing(app, Need::Store, async |session| {
        export_draft(session.client(), &args.id).await
    });
    let draft = exported.await?;
    let is_json = app.screen.json || args.format == ExportFormat::Json;
    let text = if is_json {
        pretty(&draft)
    } else {
        yaml::text(&draft).map_err(|why| Failure::new("INTERNAL", why))?
    };
    match &args.output {
        None => app.screen.document(text.trim_end())?,
        Some(file) => {
            write_file(file, format!("{}\n", text.trim_end()).as_bytes()).await?;
            if app.screen.json {
                app.screen.print_json(&json!({ "output": file }))?;
            }
        }
    }
    Ok(ExitStatus::Done)
}

async fn export_draft(client: &Client, id: &str) -> Result<Value, Failure> {
    // A name may begin as an id does.
    let plan = if id.parse::<PlanId>().is_ok() {
        id.into()
    } else if id.parse::<RequestId>().is_ok() {
        newest_plan(client, id).await?.ok_or_else(|| {
            Failure::new("NOT_FOUND", format!("there is no plan of a request `{id}`"))
        })?
    } else {
        match saved_plan(client, id).await? {
            Some(plan) => plan,
            None => return Err(not_saved(client, id).await?),
        }
    };
    let arguments = [("planId: ID!", json!(&*plan))];
    let draft: Option<Value> = client.query("exportPlan", &arguments, "").await?;
    let mut draft = draft.ok_or_else(|| Failure::not_found("plan", id))?;
    as_file(&mut draft);
    Ok(draft)
}

/// Returns the newest plan of a request, if it has one.
pub(crate) async fn newest_plan(client: &Client, request: &str) -> Result<Option<Text>, Failure> {
    let arguments = [("requestId: ID!", json!(request))];
    let mut plans: Vec<Plan> = client.query("plansByRequestId", &arguments, "planId").await?;
    Ok(plans.pop().map(|plan| plan.plan_id))
}

/// Returns the plan that was saved under a name, if there is one.
pub(crate) async fn saved_plan(client: &Client, name: &str) -> Result<Option<Text>, Failure> {
    let arguments = [("name: String!", json!(name))];
    let found: Option<Plan> = client.query("savedPlan", &arguments, "planId").await?;
    Ok(found.map(|plan| plan.plan_id))
}

/// Returns the failure for a name without a plan, with the name that is probably meant.
async fn not_saved(client: &Client, name: &str) -> Result<Failure, Failure> {
    let saved = all_saved(client).await?;
    let help =
        planner::nearest::did_you_mean(name, saved.iter().filter_map(|plan| plan["name"].as_str()));
    let help = help.unwrap_or_else(|| "`faber list saved` lists those that are".to_owned());
    Ok(Failure::new("NOT_FOUND", format!("no plan was saved as `{name}`: {help}")))
}
