use std::{fmt::Write as _, path::Path};

use client::{
    Client,
    failure::Failure,
    plan_file::{read_json, read_text},
    read_answer,
    types::{Text, Tool, ToolResult, ToolSet, ToolSetChange, ToolUsage},
    view::{
        format::{first_line, format_second, indent_json},
        outcome::paint_state,
        plain,
    },
};
use serde::Deserialize;
use serde_json::{Value, json};
use toolsets::sources::habilis;

use super::{failed_sets, select};
use crate::{
    ExitStatus,
    args::{Tools, Toolsets},
    session::Session,
};

pub(crate) async fn run_tools_command(
    session: &Session<'_>,
    subcommand: Tools,
) -> Result<ExitStatus, Failure> {
    match subcommand {
        Tools::Call { name, parameters } => call_tool(session, &name, parameters).await,
        Tools::Add { .. } => unreachable!("this command runs without a session"),
        Tools::Load { file, toolset } => load_tools(session, &file, &toolset).await,
        Tools::Select(args) => select::select(session, args).await,
        Tools::Collisions { threshold, cosine } => {
            select::list_collisions(session, threshold, cosine).await
        }
        Tools::Eval { queries, by, all } => {
            select::measure_quality(session, &queries, by, all).await
        }
        Tools::Usage => show_usage(session).await,
        Tools::History { tool, first } => list_calls(session, tool, first).await,
        Tools::List { toolset, search, active } => {
            let arguments = [
                ("toolSet: String", json!(toolset)),
                ("search: String", json!(search)),
                ("activeOnly: Boolean", json!(active)),
            ];
            let found = session.client.query("tools", &arguments, Tool::FIELDS).await?;
            match &toolset {
                Some(name) => failed_sets::check_named_set(&session.client, name).await?,
                None => failed_sets::warn_of_failed_sets(session).await,
            }
            list_tools(session, &found)
        }
        Tools::Show { name } => show_tool(session, &name).await,
    }
}

fn list_tools(session: &Session<'_>, found: &Value) -> Result<ExitStatus, Failure> {
    let headings = ["TOOL", "SET", "ACTIVE", "EFFECT", "DESCRIPTION"];
    session.screen.print_list(found, &headings, |tool: &Tool, paint| {
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

async fn show_tool(session: &Session<'_>, name: &str) -> Result<ExitStatus, Failure> {
    let arguments = [("name: String!", json!(name))];
    let found: Value = session.client.query("tool", &arguments, Tool::FIELDS).await?;
    if found.is_null() {
        return Err(unknown_tool_failure(&session.client, name).await?);
    }
    let screen = session.screen;
    if screen.json {
        screen.print_json(&found)?;
        return Ok(ExitStatus::Done);
    }
    let (tool, paint): (Tool, _) = (read_answer(found)?, screen.out);
    let about = format!("{}, {}", tool.tool_set, tool.effect.to_string().to_lowercase());
    let mut text = format!(
        "{}  {}\n  {}\n\n{}\n{}",
        paint.bold(tool.name.to_string()),
        paint.dim(about),
        plain::safe_block(&tool.description).replace('\n', "\n  "),
        paint.cyan("parameters"),
        indent_json(&tool.input_schema, 2)
    );
    if let Some(output) = &tool.output_schema {
        let _ = write!(text, "\n{}\n{}", paint.cyan("output"), indent_json(output, 2));
    }
    screen.print(&text)?;
    Ok(ExitStatus::Done)
}

async fn unknown_tool_failure(client: &Client, name: &str) -> Result<Failure, Failure> {
    let tools: Vec<Tool> = client.query("tools", &[], "name toolSet").await?;
    let qualified = tools.iter().map(|tool| match &*tool.name {
        name if name.contains('.') => name.to_owned(),
        name => format!("{}.{name}", &*tool.tool_set),
    });
    let qualified: Vec<String> = qualified.collect();
    let known_names =
        tools.iter().map(|tool| &*tool.name).chain(qualified.iter().map(String::as_str));
    let failure = Failure::not_found("tool", name);
    let help = planner::suggest::did_you_mean(name, known_names);
    if help.is_none()
        && let Some(suspect) = failed_sets::failure_of_failed_set(client, name).await?
    {
        return Ok(suspect);
    }
    let help = help.unwrap_or_else(|| "`faber tools list` lists all tools".to_owned());
    Ok(Failure { message: format!("{}: {help}", failure.message), ..failure })
}

pub(crate) async fn run_toolsets_command(
    session: &Session<'_>,
    subcommand: Toolsets,
) -> Result<ExitStatus, Failure> {
    match subcommand {
        Toolsets::List => list_toolsets(session).await,
        Toolsets::Activate { names } => switch_toolsets(session, names, true).await,
        Toolsets::Deactivate { names } => switch_toolsets(session, names, false).await,
    }
}

async fn switch_toolsets(
    session: &Session<'_>,
    names: Vec<String>,
    is_activation: bool,
) -> Result<ExitStatus, Failure> {
    let mutation = if is_activation { "activateToolSets" } else { "deactivateToolSets" };
    let arguments = [("names: [String!]!", json!(names))];
    let found: Value =
        session.client.mutate(mutation, &arguments, &ToolSetChange::fields()).await?;
    let change: ToolSetChange = read_answer(found.clone())?;
    if session.screen.json {
        session.screen.print_json(&found)?;
    } else {
        for (names, result) in [
            (&change.changed, if is_activation { "activated" } else { "deactivated" }),
            (&change.refused, "always active"),
        ] {
            for name in names {
                session.screen.print(&format!("{name}: {result}"))?;
            }
        }
        let known_sets = || change.tool_sets.iter().map(|set| &*set.name);
        for name in &change.not_found {
            let help = failed_sets::suggest_set(name, known_sets());
            session.screen.print(&format!("{name}: there is no such toolset: {help}"))?;
        }
    }
    let is_done = change.not_found.is_empty() && change.refused.is_empty();
    Ok(if is_done { ExitStatus::Done } else { ExitStatus::NotFound })
}

async fn list_toolsets(session: &Session<'_>) -> Result<ExitStatus, Failure> {
    // Queries the tools first, because this query waits until the toolsets are connected or a
    // timeout has passed.
    session.client.query::<Value>("tools", &[], "name").await?;
    let found = session.client.query("toolSets", &[], &ToolSet::fields()).await?;
    let headings = ["SET", "SOURCE", "STATUS", "TOOLS", "ACTIVE", "DESCRIPTION"];
    session.screen.print_list(&found, &headings, |set: &ToolSet, paint| {
        vec![
            set.name.to_string(),
            set.source.to_string(),
            paint_state(&set.status, paint),
            set.tools.len().to_string(),
            if set.active { "yes" } else { "no" }.to_owned(),
            first_line(set.error.as_ref().unwrap_or(&set.description)),
        ]
    })
}

async fn call_tool(
    session: &Session<'_>,
    name: &str,
    parameters: Option<String>,
) -> Result<ExitStatus, Failure> {
    let parameters: Value = match parameters {
        None => json!({}),
        Some(text) => read_json("PARAMETERS", &text).await?,
    };
    let arguments = [("name: String!", json!(name)), ("parameters: JSON", parameters)];
    let found: Value = session.client.mutate("callTool", &arguments, ToolResult::FIELDS).await?;
    let called: ToolResult = read_answer(found.clone())?;
    let is_done = called.status == "success";
    let error = called.error.unwrap_or_default();
    // The API returns this message if no tool has the name.
    if !is_done && *error == format!("Tool not found: {name}") {
        return Err(unknown_tool_failure(&session.client, name).await?);
    }
    let screen = session.screen;
    if screen.json {
        screen.print_json(&found)?;
    } else if is_done {
        match &called.result {
            Value::String(text) => screen.print_document(text)?,
            other => screen.print_json(other)?,
        }
    } else {
        screen.say(&screen.err.red(error.to_string()));
    }
    if is_done {
        return Ok(ExitStatus::Done);
    }
    let is_lost = failed_sets::names_failed_set(&session.client, name).await?;
    Ok(if is_lost { ExitStatus::Unreachable } else { ExitStatus::Failed })
}

#[derive(Deserialize)]
struct LoadedTool {
    name: Text,
    status: Text,
}

async fn load_tools(
    session: &Session<'_>,
    file: &Path,
    toolset: &str,
) -> Result<ExitStatus, Failure> {
    let unfit = |reason: String| Failure::usage(format!("`{}`: {reason}", file.display()));
    let written = read_text("the tools", file).await?;
    let tools = serde_json::from_str(&written).map_err(|err| unfit(format!("not JSON: {err}")))?;
    let effects = habilis::read_effects(&tools).map_err(unfit)?;
    let tools = habilis::read(&tools).map_err(unfit)?;
    let find_effect = |tool: &Value| {
        effects.find_effect(&toolset.parse().ok()?, &tool["name"].as_str()?.parse().ok()?)
    };
    let mut loaded = Vec::new();
    for (place, mut tool) in tools.into_iter().enumerate() {
        tool["toolSet"] = json!(toolset);
        if let Some(effect) = find_effect(&tool) {
            tool["effect"] = json!(effect);
        }
        tool["effect"] = json!(tool["effect"].as_str().map(str::to_uppercase));
        if tool.get("run").is_none() {
            tool["run"] = json!({});
        }
        let name = tool["name"].clone();
        let shown_name = plain::safe_line(name.as_str().unwrap_or_default());
        let arguments = [("input: ToolInput!", tool)];
        let fields = "name qualifiedName shadowedBy";
        let status = match session.client.mutate::<Tool>("registerTool", &arguments, fields).await {
            Ok(tool) => {
                if let Some(other) = &tool.shadowed_by {
                    let meant = match other.to_string() {
                        other if other == shown_name => format!("`{shown_name}` is another tool"),
                        other => format!("`{shown_name}` identifies `{other}`"),
                    };
                    let notice = format!("{meant}: this tool is `{}`", tool.qualified_name);
                    session.screen.say(&session.screen.err.yellow(notice));
                }
                "OK"
            }
            Err(failure) if failure.code == "CONFLICT" => "ALREADY EXISTS",
            Err(failure) => {
                let place = format!("`{}`: `tools_list[{place}]` (`{shown_name}`)", file.display());
                let before =
                    if loaded.is_empty() { "" } else { "; the tools before it are loaded" };
                let message = format!("{place}: {}{before}", failure.message);
                return Err(Failure { message, ..failure });
            }
        };
        loaded.push(json!({ "name": name, "status": status }));
    }
    session.screen.print_list(&Value::Array(loaded), &["TOOL", "STATUS"], |tool: &LoadedTool, _| {
        vec![tool.name.to_string(), tool.status.to_string()]
    })
}

async fn show_usage(session: &Session<'_>) -> Result<ExitStatus, Failure> {
    let found = session.client.query("toolUsage", &[], ToolUsage::FIELDS).await?;
    let headings = ["TOOL", "CALLS", "FAILURES", "P50 MS", "P99 MS", "LAST"];
    session.screen.print_list(&found, &headings, |usage: &ToolUsage, _| {
        vec![
            usage.tool_name.to_string(),
            usage.calls.to_string(),
            usage.failures.to_string(),
            usage.p50_ms.map(format_ms).unwrap_or_default(),
            usage.p99_ms.map(format_ms).unwrap_or_default(),
            usage.last_called_at.as_deref().map(format_second).unwrap_or_default(),
        ]
    })
}

async fn list_calls(
    session: &Session<'_>,
    tool: Option<String>,
    first: u32,
) -> Result<ExitStatus, Failure> {
    let arguments = [("toolName: String", json!(tool)), ("first: Int", json!(first))];
    let found = session.client.query("toolHistory", &arguments, ToolResult::FIELDS).await?;
    let headings = ["AT", "TOOL", "STATUS", "MS", "RESULT"];
    session.screen.print_list(&found, &headings, |call: &ToolResult, paint| {
        let result = call.error.as_deref().map_or_else(|| call.result.to_string(), str::to_owned);
        vec![
            format_second(&call.at),
            call.tool.to_string(),
            paint_state(&call.status, paint),
            format_ms(call.duration_ms),
            first_line(&result),
        ]
    })
}

fn format_ms(ms: f64) -> String {
    format!("{ms:.1}")
}
