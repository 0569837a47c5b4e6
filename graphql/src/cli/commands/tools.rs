//! Tools and toolsets: what there is, and calls outside plans.

use std::{fmt::Write as _, path::Path};

use serde::Deserialize;
use serde_json::{Value, json};
use toolsets::sources::habilis;

use super::select;
use crate::cli::{
    App, ExitStatus,
    args::{Tools, Toolsets},
    client::{
        Client, read,
        types::{Text, Tool, ToolResult, ToolSet, ToolSetChange, ToolUsage},
    },
    failure::Failure,
    plan_file::{read_json, read_text},
    session::{Need, Session},
    view::{
        format::{first_line, indented, second},
        outcome::state,
        plain,
    },
};

pub(crate) async fn tools(app: &App, what: Tools) -> Result<ExitStatus, Failure> {
    // A worker counts calls that have a limit.
    let session = match what {
        Tools::Call { .. } => Session::open(app, Need::Driving).await?,
        Tools::Load { .. } => Session::open(app, Need::Tools).await?,
        _ => Session::open_existing(app, Need::Tools).await?,
    };
    session
        .finish(async |session| {
            let client = session.client();
            match what {
                Tools::Call { name, parameters } => call_tool(app, client, &name, parameters).await,
                Tools::Load { file, toolset } => load_tools(app, client, &file, &toolset).await,
                Tools::Select(args) => select::select(app, client, args).await,
                Tools::Collisions { threshold, cosine } => {
                    select::collisions(app, client, threshold, cosine).await
                }
                Tools::Eval { queries, by, all } => {
                    select::eval(app, client, &queries, by, all).await
                }
                Tools::Usage => show_usage(app, client).await,
                Tools::History { tool, first } => list_calls(app, client, tool, first).await,
                Tools::List { toolset, search, active } => {
                    let arguments = [
                        ("toolSet: String", json!(toolset)),
                        ("search: String", json!(search)),
                        ("activeOnly: Boolean", json!(active)),
                    ];
                    list_tools(app, &client.query("tools", &arguments, Tool::FIELDS).await?)
                }
                Tools::Show { name } => show_tool(app, client, &name).await,
            }
        })
        .await
}

fn list_tools(app: &App, found: &Value) -> Result<ExitStatus, Failure> {
    let headings = ["TOOL", "SET", "ACTIVE", "EFFECT", "DESCRIPTION"];
    app.screen.list(found, &headings, |tool: &Tool, paint| {
        let name = tool.name.to_string();
        vec![
            if tool.active { name } else { paint.dim(name) },
            tool.tool_set.to_string(),
            if tool.active { "yes" } else { "no" }.to_owned(),
            tool.effect.to_string().to_lowercase(),
            first_line(&tool.description),
        ]
    })
}

async fn show_tool(app: &App, client: &Client, name: &str) -> Result<ExitStatus, Failure> {
    let arguments = [("name: String!", json!(name))];
    let found: Value = client.query("tool", &arguments, Tool::FIELDS).await?;
    if found.is_null() {
        return Err(no_tool(client, name).await?);
    }
    let screen = &app.screen;
    if screen.json {
        screen.print_json(&found)?;
        return Ok(ExitStatus::Done);
    }
    let (tool, paint): (Tool, _) = (read(found)?, screen.out);
    let about = format!("{}, {}", tool.tool_set, tool.effect.to_string().to_lowercase());
    let mut shown = format!(
        "{}  {}\n  {}\n\n{}\n{}",
        paint.bold(tool.name.to_string()),
        paint.dim(about),
        plain::block(&tool.description).replace('\n', "\n  "),
        paint.cyan("parameters"),
        indented(&tool.input_schema, 2)
    );
    if let Some(output) = &tool.output_schema {
        let _ = write!(shown, "\n{}\n{}", paint.cyan("output"), indented(output, 2));
    }
    screen.print(&shown)?;
    Ok(ExitStatus::Done)
}

/// Returns the failure for a name without a tool, with the name that is probably meant.
async fn no_tool(client: &Client, name: &str) -> Result<Failure, Failure> {
    let tools: Vec<Tool> = client.query("tools", &[], "name toolSet").await?;
    let qualified = tools.iter().map(|tool| match &*tool.name {
        name if name.contains('.') => name.to_owned(),
        name => format!("{}.{name}", &*tool.tool_set),
    });
    let qualified: Vec<String> = qualified.collect();
    let known = tools.iter().map(|tool| &*tool.name).chain(qualified.iter().map(String::as_str));
    let failure = Failure::not_found("tool", name);
    let help = planner::nearest::did_you_mean(name, known);
    let help = help.unwrap_or_else(|| "`faber tools list` lists them".to_owned());
    Ok(Failure { message: format!("{}: {help}", failure.message), ..failure })
}

/// Lists toolsets, or switches some.
pub(crate) async fn toolsets(app: &App, what: Toolsets) -> Result<ExitStatus, Failure> {
    let session = match what {
        Toolsets::List => Session::open_existing(app, Need::Tools).await?,
        _ => Session::open(app, Need::Tools).await?,
    };
    session
        .finish(async |session| {
            let client = session.client();
            match what {
                Toolsets::List => list_toolsets(app, client).await,
                Toolsets::Activate { names } => switch_toolsets(app, client, names, true).await,
                Toolsets::Deactivate { names } => switch_toolsets(app, client, names, false).await,
            }
        })
        .await
}

async fn switch_toolsets(
    app: &App,
    client: &Client,
    names: Vec<String>,
    on: bool,
) -> Result<ExitStatus, Failure> {
    let mutation = if on { "activateToolSets" } else { "deactivateToolSets" };
    let arguments = [("names: [String!]!", json!(names))];
    let found: Value = client.mutate(mutation, &arguments, &ToolSetChange::fields()).await?;
    let change: ToolSetChange = read(found.clone())?;
    if app.screen.json {
        app.screen.print_json(&found)?;
    } else {
        for (names, result) in [
            (&change.changed, if on { "switched on" } else { "switched off" }),
            (&change.not_found, "there is no such toolset"),
            (&change.refused, "always switched on"),
        ] {
            for name in names {
                app.screen.print(&format!("{name}: {result}"))?;
            }
        }
    }
    let is_done = change.not_found.is_empty() && change.refused.is_empty();
    Ok(if is_done { ExitStatus::Done } else { ExitStatus::NotFound })
}

async fn list_toolsets(app: &App, client: &Client) -> Result<ExitStatus, Failure> {
    // A query for tools waits until the sets have settled.
    client.query::<Value>("tools", &[], "name").await?;
    let found = client.query("toolSets", &[], &ToolSet::fields()).await?;
    let headings = ["SET", "SOURCE", "STATUS", "TOOLS", "ACTIVE", "DESCRIPTION"];
    app.screen.list(&found, &headings, |set: &ToolSet, paint| {
        vec![
            set.name.to_string(),
            set.source.to_string(),
            state(&set.status, paint),
            set.tools.len().to_string(),
            if set.active { "yes" } else { "no" }.to_owned(),
            first_line(set.error.as_ref().unwrap_or(&set.description)),
        ]
    })
}

/// Calls a tool once.
async fn call_tool(
    app: &App,
    client: &Client,
    name: &str,
    parameters: Option<String>,
) -> Result<ExitStatus, Failure> {
    let parameters: Value = match parameters {
        None => json!({}),
        Some(text) => read_json("PARAMETERS", &text).await?,
    };
    let arguments = [("name: String!", json!(name)), ("parameters: JSON", parameters)];
    let found: Value = client.mutate("callTool", &arguments, ToolResult::FIELDS).await?;
    let called: ToolResult = read(found.clone())?;
    let is_done = called.status == "success";
    let error = called.error.unwrap_or_default();
    // A tool that fails uses words of its own.
    if !is_done && *error == format!("Tool not found: {name}") {
        return Err(no_tool(client, name).await?);
    }
    let screen = &app.screen;
    if screen.json {
        screen.print_json(&found)?;
    } else if is_done {
        match &called.result {
            Value::String(text) => screen.document(text)?,
            other => screen.print_json(other)?,
        }
    } else {
        screen.say(&screen.err.red(error.to_string()));
    }
    Ok(if is_done { ExitStatus::Done } else { ExitStatus::Failed })
}

/// A tool of a file, and whether it was registered.
#[derive(Deserialize)]
struct Loaded {
    name: Text,
    status: Text,
}

/// Registers the tools of a file, except those that exist.
async fn load_tools(
    app: &App,
    client: &Client,
    file: &Path,
    toolset: &str,
) -> Result<ExitStatus, Failure> {
    let unfit = |why: String| Failure::usage(format!("`{}`: {why}", file.display()));
    let written = read_text("the tools", file).await?;
    let tools = serde_json::from_str(&written).map_err(|err| unfit(format!("not JSON: {err}")))?;
    let tools = habilis::read(&tools).map_err(unfit)?;
    let mut loaded = Vec::new();
    for (place, mut tool) in tools.into_iter().enumerate() {
        tool["toolSet"] = json!(toolset);
        tool["effect"] = json!(tool["effect"].as_str().map(str::to_uppercase));
        if tool.get("run").is_none() {
            tool["run"] = json!({});
        }
        let name = tool["name"].clone();
        let shown = plain::line(name.as_str().unwrap_or_default());
        let arguments = [("input: ToolInput!", tool)];
        let fields = "name qualifiedName shadowedBy";
        let status = match client.mutate::<Tool>("registerTool", &arguments, fields).await {
            Ok(tool) => {
                if let Some(other) = &tool.shadowed_by {
                    let meant = match other.to_string() {
                        other if other == shown => format!("`{shown}` is another tool"),
                        other => format!("`{shown}` means `{other}`"),
                    };
                    let told = format!("{meant}: this one is `{}`", tool.qualified_name);
                    app.screen.say(&app.screen.err.yellow(told));
                }
                "OK"
            }
            Err(failure) if failure.code == "CONFLICT" => "ALREADY EXISTS",
            Err(failure) => {
                let place = format!("`{}`: `tools_list[{place}]` (`{shown}`)", file.display());
                let before =
                    if loaded.is_empty() { "" } else { "; what stands before it is loaded" };
                let message = format!("{place}: {}{before}", failure.message);
                return Err(Failure { message, ..failure });
            }
        };
        loaded.push(json!({ "name": name, "status": status }));
    }
    app.screen.list(&Value::Array(loaded), &["TOOL", "STATUS"], |tool: &Loaded, _| {
        vec![tool.name.to_string(), tool.status.to_string()]
    })
}

async fn show_usage(app: &App, client: &Client) -> Result<ExitStatus, Failure> {
    let found = client.query("toolUsage", &[], ToolUsage::FIELDS).await?;
    let headings = ["TOOL", "CALLS", "FAILURES", "P50 MS", "P99 MS", "LAST"];
    app.screen.list(&found, &headings, |usage: &ToolUsage, _| {
        vec![
            usage.tool_name.to_string(),
            usage.calls.to_string(),
            usage.failures.to_string(),
            usage.p50_ms.map(milliseconds).unwrap_or_default(),
            usage.p99_ms.map(milliseconds).unwrap_or_default(),
            usage.last_called_at.as_deref().map(second).unwrap_or_default(),
        ]
    })
}

/// Lists calls outside plans.
async fn list_calls(
    app: &App,
    client: &Client,
    tool: Option<String>,
    first: u32,
) -> Result<ExitStatus, Failure> {
    let arguments = [("toolName: String", json!(tool)), ("first: Int", json!(first))];
    let found = client.query("toolHistory", &arguments, ToolResult::FIELDS).await?;
    let headings = ["AT", "TOOL", "STATUS", "MS", "RESULT"];
    app.screen.list(&found, &headings, |call: &ToolResult, paint| {
        let result = call.error.as_deref().map_or_else(|| call.result.to_string(), str::to_owned);
        vec![
            second(&call.at),
            call.tool.to_string(),
            state(&call.status, paint),
            milliseconds(call.duration_ms),
            first_line(&result),
        ]
    })
}

fn milliseconds(ms: f64) -> String {
    format!("{ms:.1}")
}
