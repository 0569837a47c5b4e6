use std::fmt::Write as _;

use client::{
    Argument, Client,
    failure::Failure,
    plan_file::read_text,
    read_answer,
    types::{Text, Toolkit},
    view::{
        format::{count_noun, first_line},
        paint::Paint,
        plain,
    },
};
use planner::toolkit::draw;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    ExitStatus,
    args::{ToolkitCommand, ToolkitFormat},
    session::Session,
};

pub(crate) async fn run_toolkit_command(
    session: &Session<'_>,
    subcommand: ToolkitCommand,
) -> Result<ExitStatus, Failure> {
    match subcommand {
        ToolkitCommand::Load { file } => {
            load_file(session, &read_text("the toolkit", &file).await?).await
        }
        ToolkitCommand::Show { names, format } if names.is_empty() => {
            show_graph(session, "toolkit", &[], format).await
        }
        ToolkitCommand::Show { names, format } => {
            check_names(session, &names, false).await?;
            let arguments = [("names: [String!]!", json!(names))];
            show_graph(session, "toolkitSubgraph", &arguments, format).await
        }
        ToolkitCommand::Recommend { actions, threshold, hops, format } => {
            check_names(session, &actions, true).await?;
            let arguments = [
                ("actions: [String!]!", json!(actions)),
                ("threshold: Float", json!(threshold)),
                ("hops: Int", json!(hops)),
            ];
            show_graph(session, "recommendSubgraph", &arguments, format).await
        }
    }
}

async fn check_names(
    session: &Session<'_>,
    names: &[String],
    only_actions: bool,
) -> Result<(), Failure> {
    let mut unknown = Vec::new();
    for name in names {
        let arguments = [("names: [String!]!", json!([name]))];
        let found: Toolkit =
            session.client.query("toolkitSubgraph", &arguments, Toolkit::NAME_FIELDS).await?;
        let is_tool = !found.tools.is_empty();
        if !found.actions.is_empty() || (is_tool && !only_actions) {
            continue;
        }
        unknown.push(if is_tool {
            format!("`{name}` is a tool, but recommendations start from actions")
        } else {
            describe_unknown_name(&session.client, name, only_actions).await?
        });
    }
    if !unknown.is_empty() && unknown.len() == names.len() {
        return Err(Failure::new("NOT_FOUND", unknown.join("; ")));
    }
    for text in &unknown {
        session.screen.say(&session.screen.err.yellow(plain::safe_line(text)));
    }
    Ok(())
}

async fn describe_unknown_name(
    client: &Client,
    name: &str,
    only_actions: bool,
) -> Result<String, Failure> {
    let all: Toolkit = client.query("toolkit", &[], Toolkit::NAME_FIELDS).await?;
    let tools = all.tools.iter().filter(|_| !only_actions);
    let known_names = all.actions.iter().chain(tools).map(|item| &*item.name);
    let help = planner::suggest::did_you_mean(name, known_names);
    let help = help.unwrap_or_else(|| "`faber toolkit show` lists actions and tools".to_owned());
    let lacked = if only_actions { "no action" } else { "neither action nor tool" };
    Ok(format!("the toolkit has {lacked} `{name}`: {help}"))
}

async fn show_graph(
    session: &Session<'_>,
    field: &str,
    arguments: &[Argument<'_>],
    format: ToolkitFormat,
) -> Result<ExitStatus, Failure> {
    let screen = session.screen;
    let format = if screen.json { ToolkitFormat::Json } else { format };
    let fields = match format {
        ToolkitFormat::Json => Toolkit::FIELDS,
        ToolkitFormat::Text => Toolkit::VIEW_FIELDS,
        ToolkitFormat::Yaml => "yaml",
        ToolkitFormat::Mermaid => "mermaid",
        ToolkitFormat::Dot => "dot",
        ToolkitFormat::Svg => "svg",
    };
    let found: Value = session.client.query(field, arguments, fields).await?;
    match format {
        ToolkitFormat::Json => screen.print_json(&found)?,
        ToolkitFormat::Text => screen.print(&draw_toolkit(&read_answer(found)?, screen.out))?,
        _ => screen.print_document(found[fields].as_str().unwrap_or_default().trim_end())?,
    }
    Ok(ExitStatus::Done)
}

fn draw_toolkit(toolkit: &Toolkit, paint: Paint) -> String {
    let mut text = String::new();
    for action in &toolkit.actions {
        let about = paint.dim(first_line(&action.description));
        let _ = writeln!(text, "{}  {about}", paint.bold(action.name.to_string()));
        for (kind, word) in [("call", "calls"), ("next", "then")] {
            let edges = toolkit.edges.iter();
            for edge in edges.filter(|edge| edge.from == action.name && edge.kind == kind) {
                let learned =
                    edge.learned.map(|score| format!(", learned {}", draw::format_score(score)));
                let score = draw::format_score(edge.score) + &learned.unwrap_or_default();
                let _ = writeln!(text, "  {word} {}  {}", edge.to, paint.dim(score));
            }
        }
    }
    text + &count_parts(toolkit)
}

fn count_parts(toolkit: &Toolkit) -> String {
    let actions = count_noun(toolkit.actions.len(), "action");
    let tools = count_noun(toolkit.tools.len(), "tool");
    format!("{actions}, {tools}, {}", count_noun(toolkit.edges.len(), "edge"))
}

async fn load_file(session: &Session<'_>, yaml: &str) -> Result<ExitStatus, Failure> {
    #[derive(Deserialize)]
    struct Change {
        warnings: Vec<Text>,
        toolkit: Toolkit,
    }
    let fields =
        "warnings toolkit { actions { name } tools { name } edges { from to kind score } }";
    let found: Value =
        session.client.mutate("updateToolkit", &[("yaml: String!", json!(yaml))], fields).await?;
    let screen = session.screen;
    let change: Change = read_answer(found.clone())?;
    for warning in &change.warnings {
        screen.say(&screen.err.yellow(warning.to_string()));
    }
    screen.print_result(&found, &format!("the toolkit has {}", count_parts(&change.toolkit)))
}
