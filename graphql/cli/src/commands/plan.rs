use std::path::Path;

use client::operations::{
    create_plan, find_saved_plan, make_plan, newest_plan, plan_or_failure, plan_payload_fields,
};
use client::{
    Client,
    failure::Failure,
    plan_file::{self, WrittenPlan, file_label, read_json, write_file},
    read_answer, remove_nulls,
    types::{DIAGNOSTIC_FIELDS, Plan, SavedPlan, Text},
    view::{
        format::{format_second, pretty_json},
        plain,
        plan::{draw_diagnostics, draw_marked_query, draw_plan, draw_short_plan},
    },
};
use engine::{to_file_form, yaml};
use serde_json::{Value, json};
use shared::{
    id::{PlanId, RequestId},
    labels::Labels,
};

use super::failed_sets;
use crate::{
    App, ExitStatus,
    args::{ExportArgs, ExportFormat, Format, PlanArgs, Planning, SaveArgs, api_name},
    screen::Screen,
    session::{Need, Session},
};

const PAGE_SIZE: usize = 200;

pub(crate) async fn plan(session: &Session<'_>, args: PlanArgs) -> Result<ExitStatus, Failure> {
    let screen = session.screen;
    let format = if screen.json { Format::Json } else { args.format };
    let fields = match format {
        Format::Text => Plan::VIEW_FIELDS.to_owned(),
        Format::Json => Plan::fields(),
        Format::Mermaid => format!("drawing: mermaid diagnostics {{ {DIAGNOSTIC_FIELDS} }}"),
        Format::Dot => format!("drawing: dot diagnostics {{ {DIAGNOSTIC_FIELDS} }}"),
    };
    let options = planning_options(&args.planning, &args.labels);
    let made = make_plan(&session.client, &args.query, options, &fields).await;
    failed_sets::warn_of_failed_sets(session).await;
    let made = made?;
    let plan: Plan = read_answer(made.clone())?;
    match format {
        Format::Text => screen.print(&draw_plan(&plan, screen.out))?,
        Format::Json => screen.print_json(&made)?,
        Format::Mermaid | Format::Dot => {
            screen.print_document(made["drawing"].as_str().unwrap_or_default().trim_end())?;
        }
    }
    if format != Format::Json {
        show_warnings(screen, &plan);
    }
    if format == Format::Text {
        screen.hint(&format!("execute it: faber execute {}", plan.plan_id));
    }
    Ok(ExitStatus::Done)
}

pub(crate) async fn revise(app: &App, id: &str, file: &Path) -> Result<ExitStatus, Failure> {
    let written = read_plan_file(app, file).await?;
    let session = Session::open_existing(app, Need::Tools).await;
    let session = session.map_err(|failure| written.prefer_errors(failure))?;
    let fields = if app.screen.json { Plan::fields() } else { Plan::VIEW_FIELDS.to_owned() };
    let revised = session.close_after(async |session| {
        let input = written.check(&session.client).await?;
        let arguments = [("planId: ID!", json!(id)), ("input: PlanInput!", input)];
        plan_or_failure(
            session.client.mutate("revisePlan", &arguments, &plan_payload_fields(&fields)).await?,
        )
    });
    let revised = revised.await.map_err(|failure| match failure.code.as_str() {
        "INVALID_PLAN" => failure.with("file", file_label(file)),
        _ => failure,
    })?;
    if app.screen.json {
        app.screen.print_json(&revised)?;
    } else {
        let plan = read_answer(revised)?;
        app.screen.print(&draw_plan(&plan, app.screen.out))?;
        show_warnings(&app.screen, &plan);
    }
    Ok(ExitStatus::Done)
}

pub(crate) async fn read_plan_file(app: &App, file: &Path) -> Result<WrittenPlan, Failure> {
    let plan = plan_file::read_plan(file).await?;
    // If the file has errors, `WrittenPlan::check` reports the warnings together with the errors of
    // the compiler.
    if !plan.has_errors() && !plan.notices.is_empty() {
        let file = file.display().to_string();
        app.screen.say(&draw_diagnostics(&plan.notices, &file, app.screen.err));
    }
    Ok(plan)
}

pub(crate) fn show_draft(screen: &Screen, plan: &Plan) {
    screen.say(&draw_short_plan(plan, screen.err));
    if let Some(query) = draw_marked_query(plan, screen.err) {
        screen.say(&query);
    }
}

pub(crate) fn show_plan(session: &Session<'_>, plan: &Plan) {
    let screen = session.screen;
    if !screen.json {
        screen.say(&draw_short_plan(plan, screen.err));
    }
    show_warnings(screen, plan);
}

pub(crate) async fn show_stored(session: &Session<'_>, id: &Text) -> Result<Plan, Failure> {
    let arguments = [("planId: ID!", json!(&**id))];
    let plan = session.client.query("plan", &arguments, Plan::VIEW_FIELDS).await?;
    show_plan(session, &plan);
    Ok(plan)
}

/// Shows warnings of a plan, even with `--json`, so that users notice them. Marks the words of the
/// query that the plan does not use.
fn show_warnings(screen: &Screen, plan: &Plan) {
    if let Some(query) = draw_marked_query(plan, screen.err) {
        screen.say(&query);
    }
    if !plan.diagnostics.is_empty() {
        screen.say(&draw_diagnostics(&plan.diagnostics, "", screen.err));
    }
}

pub(crate) fn planning_options(planning: &Planning, labels: &[(String, String)]) -> Value {
    remove_nulls(json!({
        "toolSets": (!planning.toolsets.is_empty()).then_some(&planning.toolsets),
        "planner": planning.planner,
        "cache": planning.cache.map(|cache| api_name(&cache)),
        "guard": planning.guard.map(|guard| api_name(&guard)),
        "labels": label_object(labels),
    }))
}

pub(crate) fn label_object(labels: &[(String, String)]) -> Option<Labels> {
    (!labels.is_empty()).then(|| labels.iter().cloned().collect())
}

pub(crate) async fn save(app: &App, args: SaveArgs) -> Result<ExitStatus, Failure> {
    let inputs = match &args.inputs {
        Some(text) => read_json("--inputs", text).await?,
        None => Value::Null,
    };
    let (session, written) = match &args.file {
        Some(file) => {
            let written = read_plan_file(app, file).await?;
            let session = Session::open(app, Need::Tools).await;
            let session = session.map_err(|failure| written.prefer_errors(failure))?;
            (session, Some((written, file_label(file))))
        }
        None => (Session::open_existing(app, Need::Store).await?, None),
    };
    let saved = session.close_after(async |session| {
        let client = &session.client;
        let plan = match written {
            Some((written, place)) => {
                let made = create_plan(client, written).await;
                let plan: Plan = read_answer(made.map_err(|failure| failure.with("file", place))?)?;
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
    let document = json!({ "name": args.name, "planId": plan });
    app.screen.print_result(
        &document,
        &format!("{}  {}", plain::safe_line(&args.name), plain::safe_line(&plan)),
    )
}

pub(crate) async fn unsave(session: &Session<'_>, name: &str) -> Result<ExitStatus, Failure> {
    let arguments = [("name: String!", json!(name))];
    if !session.client.mutate::<bool>("removeSavedPlan", &arguments, "").await? {
        return Err(unknown_saved_plan_failure(&session.client, name).await?);
    }
    let document = json!({ "name": name, "removed": true });
    session
        .screen
        .print_result(&document, &format!("{} no longer names a plan", plain::safe_line(name)))
}

pub(crate) async fn list_saved(session: &Session<'_>) -> Result<ExitStatus, Failure> {
    let saved = Value::Array(load_saved_plans(&session.client).await?);
    let headings = ["NAME", "PLAN", "SAVED", "INPUTS"];
    session.screen.print_list(&saved, &headings, |plan: &SavedPlan, _| {
        let inputs = plan.inputs.as_ref().map(input_names).unwrap_or_default();
        vec![plan.name.to_string(), plan.plan_id.to_string(), format_second(&plan.saved_at), inputs]
    })
}

async fn load_saved_plans(client: &Client) -> Result<Vec<Value>, Failure> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let after = all.last().map(|plan| plan["name"].clone()).unwrap_or_default();
        let arguments = [("first: Int", json!(PAGE_SIZE)), ("after: String", after)];
        let page: Vec<Value> = client.query("savedPlans", &arguments, SavedPlan::FIELDS).await?;
        let is_last = page.len() < PAGE_SIZE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

fn input_names(schema: &Value) -> String {
    let required = schema["required"].as_array();
    let names = schema["properties"].as_object().into_iter().flatten().map(|(name, _)| {
        let is_required =
            required.is_some_and(|all| all.iter().any(|required| required == name.as_str()));
        format!("{}{}", plain::safe_line(name), if is_required { "" } else { "?" })
    });
    names.collect::<Vec<_>>().join(", ")
}

pub(crate) async fn export(session: &Session<'_>, args: ExportArgs) -> Result<ExitStatus, Failure> {
    let screen = session.screen;
    let draft = export_draft(&session.client, args.id.as_deref().unwrap_or_default()).await?;
    let is_json = screen.json || args.format == ExportFormat::Json;
    let text = if is_json {
        pretty_json(&draft)
    } else {
        yaml::format(&draft).map_err(|error| Failure::new("INTERNAL", error))?
    };
    match &args.output {
        None => screen.print_document(text.trim_end())?,
        Some(file) => {
            write_file(file, format!("{}\n", text.trim_end()).as_bytes()).await?;
            if screen.json {
                screen.print_json(&json!({ "output": file }))?;
            }
        }
    }
    Ok(ExitStatus::Done)
}

pub(crate) async fn export_draft(client: &Client, id: &str) -> Result<Value, Failure> {
    // A saved plan can have a name such as `plan_x`, so only a valid id counts as an id.
    let plan = if id.parse::<PlanId>().is_ok() {
        id.into()
    } else if id.parse::<RequestId>().is_ok() {
        newest_plan(client, id)
            .await?
            .ok_or_else(|| Failure::new("NOT_FOUND", format!("the request `{id}` has no plan")))?
    } else {
        match find_saved_plan(client, id).await? {
            Some(plan) => plan,
            None => return Err(unknown_saved_plan_failure(client, id).await?),
        }
    };
    let arguments = [("planId: ID!", json!(&*plan))];
    let draft: Option<Value> = client.query("exportPlan", &arguments, "").await?;
    let mut draft = draft.ok_or_else(|| Failure::not_found("plan", id))?;
    to_file_form(&mut draft);
    Ok(draft)
}

async fn unknown_saved_plan_failure(client: &Client, name: &str) -> Result<Failure, Failure> {
    let saved = load_saved_plans(client).await?;
    let help =
        planner::suggest::did_you_mean(name, saved.iter().filter_map(|plan| plan["name"].as_str()));
    let help = help.unwrap_or_else(|| "`faber list saved` lists the saved plans".to_owned());
    Ok(Failure::new("NOT_FOUND", format!("no plan was saved as `{name}`: {help}")))
}
