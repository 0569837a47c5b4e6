//! Tools and toolsets: what there is, and what can be done with them outside plans.

use std::{fmt::Write as _, path::Path};

use serde_json::{Value, json};
use toolsets::sources::habilis;

use super::{
    Ending, Session,
    args::{Tools, Toolsets},
    client::Client,
    failure::Failure,
    house::{House, Need},
    inspect::state,
    lists::{first_line, print, second, text},
    plain,
    planning::indented,
    render,
    run::{given, read_text},
    select,
    shape::Shape,
};

/// Lists tools, or shows one.
pub(super) async fn tools(session: &Session, what: Tools) -> Result<Ending, Failure> {
    // Calls may have limits, which a worker counts.
    let house = match what {
        Tools::Call { .. } => House::open(session, Need::Driving).await?,
        Tools::Load { .. } => House::open(session, Need::Tools).await?,
        _ => House::open_existing(session, Need::Tools).await?,
    };
    let shown = match what {
        Tools::Call { name, parameters } => call(session, house.client(), &name, parameters).await,
        Tools::Load { file, toolset } => load(session, house.client(), &file, &toolset).await,
        Tools::Select(args) => select::select(session, house.client(), args).await,
        Tools::Collisions { threshold, cosine } => {
            select::collisions(session, house.client(), threshold, cosine).await
        }
        Tools::Eval { queries, by, all } => {
            select::eval(session, house.client(), &queries, by, all).await
        }
        Tools::Usage => usage(session, house.client()).await,
        Tools::History { tool, first } => history(session, house.client(), tool, first).await,
        Tools::List { toolset, search, active } => {
            let wanted = json!({ "set": toolset, "search": search, "active": active });
            list_tools(session, house.client(), wanted).await
        }
        Tools::Show { name } => show_tool(session, house.client(), &name).await,
    };
    house.close().await;
    shown
}

async fn list_tools(session: &Session, client: &Client, wanted: Value) -> Result<Ending, Failure> {
    let fields = Shape::of(client).await?.scalars("Tool");
    let query = format!(
        "query($set: String, $search: String, $active: Boolean) \
         {{ tools(toolSet: $set, search: $search, activeOnly: $active) {fields} }}"
    );
    let found = client.field(&query, wanted).await?;
    let headings = ["TOOL", "SET", "ACTIVE", "EFFECT", "DESCRIPTION"];
    print(&session.screen, &found, &headings, |it, paint| {
        let name = text(it, "name");
        let is_active = it["active"] != false;
        let name = if is_active { name } else { paint.dim(name) };
        let active = if is_active { "yes" } else { "no" }.to_owned();
        let description = first_line(it["description"].as_str().unwrap_or_default());
        vec![name, text(it, "toolSet"), active, text(it, "effect").to_lowercase(), description]
    })?;
    Ok(Ending::Done)
}

async fn show_tool(session: &Session, client: &Client, name: &str) -> Result<Ending, Failure> {
    let fields = Shape::of(client).await?.scalars("Tool");
    let query = format!("query($name: String!) {{ tool(name: $name) {fields} }}");
    let tool = client.field(&query, json!({ "name": name })).await?;
    let screen = &session.screen;
    if tool.is_null() {
        return Err(no_tool(client, name).await?);
    }
    if screen.json {
        screen.print_json(&tool)?;
        return Ok(Ending::Done);
    }
    let paint = screen.out;
    let mut shown = format!(
        "{}  {}\n  {}\n\n{}\n{}",
        paint.bold(text(&tool, "name")),
        paint.dim(format!("{}, {}", text(&tool, "toolSet"), text(&tool, "effect").to_lowercase())),
        plain::block(tool["description"].as_str().unwrap_or_default()).replace('\n', "\n  "),
        paint.cyan("parameters"),
        indented(&tool["inputSchema"], 2)
    );
    if !tool["outputSchema"].is_null() {
        let output = indented(&tool["outputSchema"], 2);
        let _ = write!(shown, "\n{}\n{output}", paint.cyan("output"));
    }
    screen.print(&shown)?;
    Ok(Ending::Done)
}

/// Says that there is no tool of a name, and which one may be meant.
async fn no_tool(client: &Client, name: &str) -> Result<Failure, Failure> {
    let tools = client.field("{ tools { name toolSet } }", json!({})).await?;
    let qualified = render::list(&tools).map(|tool| {
        let (set, name) = (text(tool, "toolSet"), text(tool, "name"));
        if name.contains('.') { name } else { format!("{set}.{name}") }
    });
    let qualified: Vec<String> = qualified.collect();
    let plain = render::list(&tools).filter_map(|tool| tool["name"].as_str());
    let known = plain.chain(qualified.iter().map(String::as_str));
    let failure = Failure::not_found("tool", name);
    let help = planner::nearest::did_you_mean(name, known);
    let help = help.unwrap_or_else(|| "`faber tools list` lists them".to_owned());
    Ok(Failure { message: format!("{}: {help}", failure.message), ..failure })
}

/// Lists toolsets, or switches some.
pub(super) async fn toolsets(session: &Session, what: Toolsets) -> Result<Ending, Failure> {
    let house = match what {
        Toolsets::List => House::open_existing(session, Need::Tools).await?,
        _ => House::open(session, Need::Tools).await?,
    };
    let done = match what {
        Toolsets::List => list_toolsets(session, house.client()).await,
        Toolsets::Activate { names } => {
            switch(session, house.client(), "activateToolSets", names).await
        }
        Toolsets::Deactivate { names } => {
            switch(session, house.client(), "deactivateToolSets", names).await
        }
    };
    house.close().await;
    done
}

async fn switch(
    session: &Session,
    client: &Client,
    mutation: &str,
    names: Vec<String>,
) -> Result<Ending, Failure> {
    let sets = Shape::of(client).await?.tool_set();
    let query = format!(
        "mutation($names: [String!]!) \
         {{ {mutation}(names: $names) {{ changed notFound refused toolSets {sets} }} }}"
    );
    let change = client.field(&query, json!({ "names": names })).await?;
    let screen = &session.screen;
    let switched = match mutation {
        "activateToolSets" => "switched on",
        _ => "switched off",
    };
    if screen.json {
        screen.print_json(&change)?;
    } else {
        for (list, what) in [
            ("changed", switched),
            ("notFound", "there is no such toolset"),
            ("refused", "always switched on"),
        ] {
            for name in render::list(&change[list]).filter_map(Value::as_str) {
                screen.print(&format!("{}: {what}", plain::line(name)))?;
            }
        }
    }
    let is_empty = |list: &str| change[list].as_array().is_none_or(Vec::is_empty);
    if is_empty("notFound") && is_empty("refused") {
        Ok(Ending::Done)
    } else {
        Ok(Ending::NotFound)
    }
}

async fn list_toolsets(session: &Session, client: &Client) -> Result<Ending, Failure> {
    // Asking for tools waits until the sets have settled.
    client.field("{ tools { name } }", json!({})).await?;
    let fields = Shape::of(client).await?.tool_set();
    let found = client.field(&format!("{{ toolSets {fields} }}"), json!({})).await?;
    print(
        &session.screen,
        &found,
        &["SET", "SOURCE", "STATUS", "TOOLS", "ACTIVE", "DESCRIPTION"],
        |it, paint| {
            let count = it["tools"].as_array().map_or(0, Vec::len).to_string();
            let active = if it["active"] == true { "yes" } else { "no" };
            let said = it["error"].as_str().or(it["description"].as_str()).unwrap_or_default();
            vec![
                text(it, "name"),
                text(it, "source"),
                state(&text(it, "status"), paint),
                count,
                active.to_owned(),
                first_line(said),
            ]
        },
    )?;
    Ok(Ending::Done)
}

/// Calls a tool once.
async fn call(
    session: &Session,
    client: &Client,
    name: &str,
    parameters: Option<String>,
) -> Result<Ending, Failure> {
    let parameters: Value = match parameters {
        None => json!({}),
        Some(text) => given("PARAMETERS", &text).await?,
    };
    let fields = Shape::of(client).await?.scalars("ToolResult");
    let query = format!(
        "mutation($name: String!, $parameters: JSON) \
         {{ callTool(name: $name, parameters: $parameters) {fields} }}"
    );
    let called = client.field(&query, json!({ "name": name, "parameters": parameters })).await?;
    let is_done = called["status"] == "success";
    // Tools say the like in words of their own.
    if !is_done && called["error"] == format!("Tool not found: {name}") {
        return Err(no_tool(client, name).await?);
    }
    let screen = &session.screen;
    if screen.json {
        screen.print_json(&called)?;
    } else if is_done {
        match &called["result"] {
            Value::String(text) => screen.document(text)?,
            other => screen.print_json(other)?,
        }
    } else {
        screen.say(&screen.err.red(text(&called, "error")));
    }
    Ok(if is_done { Ending::Done } else { Ending::Failed })
}

/// Registers the tools of a file, each unless there is one of its name.
async fn load(
    session: &Session,
    client: &Client,
    file: &Path,
    toolset: &str,
) -> Result<Ending, Failure> {
    let unfit = |why: String| Failure::usage(format!("`{}`: {why}", file.display()));
    let written = read_text("the tools", file).await?;
    let tools = serde_json::from_str(&written).map_err(|err| unfit(format!("not JSON: {err}")))?;
    let tools = habilis::read(&tools).map_err(unfit)?;
    let mut loaded = Vec::new();
    for (at, mut tool) in tools.into_iter().enumerate() {
        tool["toolSet"] = json!(toolset);
        let effect = tool["effect"].as_str().map(str::to_uppercase);
        tool["effect"] = json!(effect);
        if tool.get("run").is_none() {
            tool["run"] = json!({});
        }
        let name = tool["name"].clone();
        let query = "mutation($input: ToolInput!) \
                     { registerTool(input: $input) { qualifiedName shadowedBy } }";
        let status = match client.field(query, json!({ "input": tool })).await {
            Ok(tool) => {
                if let Some(other) = tool["shadowedBy"].as_str() {
                    let own = text(&tool, "qualifiedName");
                    let (name, other) = (plain::said(&name), plain::line(other));
                    let told = if name == other {
                        format!("`{name}` is another tool: this one is `{own}`")
                    } else {
                        format!("`{name}` means `{other}`: this one is `{own}`")
                    };
                    session.screen.say(&session.screen.err.yellow(told));
                }
                "OK"
            }
            Err(failure) if failure.code == "CONFLICT" => "ALREADY EXISTS",
            Err(failure) => {
                let (file, name) = (file.display(), plain::said(&name));
                let place = format!("`{file}`: `tools_list[{at}]` (`{name}`)");
                let before =
                    if loaded.is_empty() { "" } else { "; what stands before it is loaded" };
                let message = format!("{place}: {}{before}", failure.message);
                return Err(Failure { message, ..failure });
            }
        };
        loaded.push(json!({ "name": name, "status": status }));
    }
    let row = |it: &Value, _| vec![text(it, "name"), text(it, "status")];
    print(&session.screen, &Value::Array(loaded), &["TOOL", "STATUS"], row)?;
    Ok(Ending::Done)
}

/// Says how often tools were called.
async fn usage(session: &Session, client: &Client) -> Result<Ending, Failure> {
    let fields = Shape::of(client).await?.scalars("ToolUsage");
    let found = client.field(&format!("{{ toolUsage {fields} }}"), json!({})).await?;
    let headings = ["TOOL", "CALLS", "FAILURES", "P50 MS", "P99 MS", "LAST"];
    print(&session.screen, &found, &headings, |it, _| {
        vec![
            text(it, "toolName"),
            it["calls"].to_string(),
            it["failures"].to_string(),
            milliseconds(&it["p50Ms"]),
            milliseconds(&it["p99Ms"]),
            second(&text(it, "lastCalledAt")),
        ]
    })?;
    Ok(Ending::Done)
}

/// Lists calls outside plans.
async fn history(
    session: &Session,
    client: &Client,
    tool: Option<String>,
    first: u32,
) -> Result<Ending, Failure> {
    let fields = Shape::of(client).await?.scalars("ToolResult");
    let query = format!(
        "query($tool: String, $first: Int) \
         {{ toolHistory(toolName: $tool, first: $first) {fields} }}"
    );
    let found = client.field(&query, json!({ "tool": tool, "first": first })).await?;
    let headings = ["AT", "TOOL", "STATUS", "MS", "RESULT"];
    print(&session.screen, &found, &headings, |it, paint| {
        let result = it["error"].as_str().map_or_else(|| it["result"].to_string(), str::to_owned);
        vec![
            second(&text(it, "at")),
            text(it, "tool"),
            state(&text(it, "status"), paint),
            milliseconds(&it["durationMs"]),
            first_line(&result),
        ]
    })?;
    Ok(Ending::Done)
}

fn milliseconds(value: &Value) -> String {
    value.as_f64().map(|it| format!("{it:.1}")).unwrap_or_default()
}
