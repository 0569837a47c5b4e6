//! The toolkit: which tools go with which actions.

use std::fmt::Write as _;

use planner::toolkit::draw;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::{
    App, ExitStatus,
    args::{ToolkitCommand, ToolkitFormat},
    client::{
        Argument, Client, read,
        types::{Text, Toolkit},
    },
    failure::Failure,
    plan_file::read_text,
    session::{Need, Session},
    view::{format::first_line, paint::Paint, plain},
};

/// Shows the toolkit or a part of it, or loads a file into it.
pub(crate) async fn toolkit(app: &App, what: ToolkitCommand) -> Result<ExitStatus, Failure> {
    let session = match what {
        ToolkitCommand::Load { .. } => Session::open(app, Need::Tools).await?,
        _ => Session::open_existing(app, Need::Tools).await?,
    };
    session
        .finish(async |session| {
            let client = session.client();
            match what {
                ToolkitCommand::Load { file } => {
                    load_file(app, client, &read_text("the toolkit", &file).await?).await
                }
                ToolkitCommand::Show { names, format } if names.is_empty() => {
                    show_graph(app, client, "toolkit", &[], format).await
                }
                ToolkitCommand::Show { names, format } => {
                    check_names(app, client, &names, false).await?;
                    let arguments = [("names: [String!]!", json!(names))];
                    show_graph(app, client, "toolkitSubgraph", &arguments, format).await
                }
                ToolkitCommand::Recommend { actions, threshold, hops, format } => {
                    check_names(app, client, &actions, true).await?;
                    let arguments = [
                        ("actions: [String!]!", json!(actions)),
                        ("threshold: Float", json!(threshold)),
                        ("hops: Int", json!(hops)),
                    ];
                    show_graph(app, client, "recommendSubgraph", &arguments, format).await
                }
            }
        })
        .await
}

/// Names the actions, or actions and tools, that the toolkit lacks. Fails if it has none of them.
async fn check_names(
    app: &App,
    client: &Client,
    names: &[String],
    only_actions: bool,
) -> Result<(), Failure> {
    let mut unknown = Vec::new();
    for name in names {
        let arguments = [("names: [String!]!", json!([name]))];
        let found: Toolkit = client.query("toolkitSubgraph", &arguments, Toolkit::NAMES).await?;
        let is_tool = !found.tools.is_empty();
        if !found.actions.is_empty() || (is_tool && !only_actions) {
            continue;
        }
        unknown.push(if is_tool {
            format!("`{name}` is a tool, and recommendations begin with actions")
        } else {
            unknown_name(client, name, only_actions).await?
        });
    }
    if !unknown.is_empty() && unknown.len() == names.len() {
        return Err(Failure::new("NOT_FOUND", unknown.join("; ")));
    }
    for text in &unknown {
        app.screen.say(&app.screen.err.yellow(plain::line(text)));
    }
    Ok(())
}

async fn unknown_name(client: &Client, name: &str, only_actions: bool) -> Result<String, Failure> {
    let all: Toolkit = client.query("toolkit", &[], Toolkit::NAMES).await?;
    let tools = all.tools.iter().filter(|_| !only_actions);
    let known = all.actions.iter().chain(tools).map(|item| &*item.name);
    let help = planner::nearest::did_you_mean(name, known);
    let help = help.unwrap_or_else(|| "`faber toolkit show` shows what there is".to_owned());
    let what = if only_actions { "no action" } else { "neither action nor tool" };
    Ok(format!("the toolkit has {what} `{name}`: {help}"))
}

async fn show_graph(
    app: &App,
    client: &Client,
    field: &str,
    arguments: &[Argument<'_>],
    format: ToolkitFormat,
) -> Result<ExitStatus, Failure> {
    let screen = &app.screen;
    let format = if screen.json { ToolkitFormat::Json } else { format };
    let fields = match format {
        ToolkitFormat::Json => Toolkit::FIELDS,
        ToolkitFormat::Text => Toolkit::SHOWN,
        ToolkitFormat::Yaml => "yaml",
        ToolkitFormat::Mermaid => "mermaid",
        ToolkitFormat::Dot => "dot",
        ToolkitFormat::Svg => "svg",
    };
    let found: Value = client.query(field, arguments, fields).await?;
    match format {
        ToolkitFormat::Json => screen.print_json(&found)?,
        ToolkitFormat::Text => screen.print(&for_people(&read(found)?, screen.out))?,
        _ => screen.document(found[fields].as_str().unwrap_or_default().trim_end())?,
    }
    Ok(ExitStatus::Done)
}

/// Writes every action with the tools that it calls and the actions that may follow it.
fn for_people(toolkit: &Toolkit, paint: Paint) -> String {
    let mut shown = String::new();
    for action in &toolkit.actions {
        let about = paint.dim(first_line(&action.description));
        let _ = writeln!(shown, "{}  {about}", paint.bold(action.name.to_string()));
        for (kind, word) in [("call", "calls"), ("next", "then")] {
            let edges = toolkit.edges.iter();
            for edge in edges.filter(|edge| edge.from == action.name && edge.kind == kind) {
                let learned = edge.learned.map(|score| format!(", learned {}", draw::score(score)));
                let score = draw::score(edge.score) + &learned.unwrap_or_default();
                let _ = writeln!(shown, "  {word} {}  {}", edge.to, paint.dim(score));
            }
        }
    }
    shown + &count_parts(toolkit)
}

fn count_parts(toolkit: &Toolkit) -> String {
    let actions = plain::count(toolkit.actions.len(), "action");
    let tools = plain::count(toolkit.tools.len(), "tool");
    format!("{actions}, {tools}, {}", plain::count(toolkit.edges.len(), "edge"))
}

async fn load_file(app: &App, client: &Client, yaml: &str) -> Result<ExitStatus, Failure> {
    #[derive(Deserialize)]
    struct Change {
        warnings: Vec<Text>,
        toolkit: Toolkit,
    }
    let fields =
        "warnings toolkit { actions { name } tools { name } edges { from to kind score } }";
    let found: Value =
        client.mutate("updateToolkit", &[("yaml: String!", json!(yaml))], fields).await?;
    let screen = &app.screen;
    if screen.json {
        screen.print_json(&found)?;
        return Ok(ExitStatus::Done);
    }
    let change: Change = read(found)?;
    for warning in &change.warnings {
        screen.say(&screen.err.yellow(warning.to_string()));
    }
    screen.print(&format!("the toolkit has {}", count_parts(&change.toolkit)))?;
    Ok(ExitStatus::Done)
}
