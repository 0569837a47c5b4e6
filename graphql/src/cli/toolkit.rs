//! The toolkit: which tools go with which actions.

use std::fmt::Write as _;

use planner::toolkit::draw;
use serde_json::{Value, json};

use super::{
    Ending, Session,
    args::{ToolkitCommand, ToolkitFormat},
    client::Client,
    failure::Failure,
    house::{House, Need},
    lists::{first_line, text},
    paint::Paint,
    plain,
    render::list,
    run::read_text,
};

/// What is asked of the graph where it is shown as JSON.
const FIELDS: &str = "{ actions { name description } \
    tools { name description toolSet source active effect } \
    edges { from to kind score learned } mermaid dot svg yaml }";
/// What is asked of it where people read it.
const SHORT: &str = "{ actions { name description } tools { name } \
    edges { from to kind score learned } }";

/// Shows the toolkit, or what is near some actions.
pub(super) async fn toolkit(session: &Session, what: ToolkitCommand) -> Result<Ending, Failure> {
    let house = match what {
        ToolkitCommand::Load { .. } => House::open(session, Need::Tools).await?,
        _ => House::open_existing(session, Need::Tools).await?,
    };
    let done = answer(session, house.client(), what).await;
    house.close().await;
    done
}

async fn answer(
    session: &Session,
    client: &Client,
    what: ToolkitCommand,
) -> Result<Ending, Failure> {
    let (head, format, variables) = match what {
        ToolkitCommand::Load { file } => {
            let yaml = read_text("the toolkit", &file).await?;
            return load(session, client, &yaml).await;
        }
        ToolkitCommand::Show { names, format } if names.is_empty() => {
            ("query { toolkit", format, json!({}))
        }
        ToolkitCommand::Show { names, format } => {
            check(session, client, &names, Wanted::Any).await?;
            let head = "query($names: [String!]!) { toolkitSubgraph(names: $names)";
            (head, format, json!({ "names": names }))
        }
        ToolkitCommand::Recommend { actions, threshold, hops, format } => {
            check(session, client, &actions, Wanted::Actions).await?;
            let head = "query($actions: [String!]!, $threshold: Float, $hops: Int) \
                { recommendSubgraph(actions: $actions, threshold: $threshold, hops: $hops)";
            let given = json!({ "actions": actions, "threshold": threshold, "hops": hops });
            (head, format, given)
        }
    };
    let fields = match format {
        _ if session.screen.json => FIELDS,
        ToolkitFormat::Json => FIELDS,
        ToolkitFormat::Text => SHORT,
        ToolkitFormat::Yaml => "{ yaml }",
        ToolkitFormat::Mermaid => "{ mermaid }",
        ToolkitFormat::Dot => "{ dot }",
        ToolkitFormat::Svg => "{ svg }",
    };
    let graph = client.field(&format!("{head} {fields} }}"), variables).await?;
    show(session, &graph, format)?;
    Ok(Ending::Done)
}

/// Says which names the toolkit does not have; where it has none of them there is nothing to show.
async fn check(
    session: &Session,
    client: &Client,
    names: &[String],
    wanted: Wanted,
) -> Result<(), Failure> {
    let of_one = "query($names: [String!]!) \
        { toolkitSubgraph(names: $names) { actions { name } tools { name } } }";
    let mut unknown = Vec::new();
    for name in names {
        let found = client.field(of_one, json!({ "names": [name] })).await?;
        let has = |what: &str| list(&found[what]).next().is_some();
        match wanted {
            _ if has("actions") => (),
            Wanted::Any if has("tools") => (),
            Wanted::Actions if has("tools") => {
                unknown.push(format!("`{name}` is a tool, and recommendations begin with actions"));
            }
            _ => unknown.push(missing(client, name, wanted).await?),
        }
    }
    if !unknown.is_empty() && unknown.len() == names.len() {
        return Err(Failure::new("NOT_FOUND", unknown.join("; ")));
    }
    for it in &unknown {
        session.screen.say(&session.screen.err.yellow(plain::line(it)));
    }
    Ok(())
}

/// What names may mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Any,
    Actions,
}

/// Says that the toolkit does not have a name, and what it has.
async fn missing(client: &Client, name: &str, wanted: Wanted) -> Result<String, Failure> {
    let all = client.field("{ toolkit { actions { name } tools { name } } }", json!({})).await?;
    let (what, lists) = match wanted {
        Wanted::Any => ("neither action nor tool", &["actions", "tools"][..]),
        Wanted::Actions => ("no action", &["actions"][..]),
    };
    let known = lists.iter().flat_map(|it| list(&all[*it])).filter_map(|it| it["name"].as_str());
    let help = planner::nearest::did_you_mean(name, known);
    let help = help.unwrap_or_else(|| "`faber toolkit show` shows what there is".to_owned());
    Ok(format!("the toolkit has {what} `{name}`: {help}"))
}

fn show(session: &Session, graph: &Value, format: ToolkitFormat) -> Result<(), Failure> {
    let screen = &session.screen;
    if screen.json || format == ToolkitFormat::Json {
        return screen.print_json(graph);
    }
    let key = match format {
        ToolkitFormat::Text => return screen.print(&for_people(graph, screen.out)),
        ToolkitFormat::Yaml => "yaml",
        ToolkitFormat::Mermaid => "mermaid",
        ToolkitFormat::Dot => "dot",
        ToolkitFormat::Svg | ToolkitFormat::Json => "svg",
    };
    screen.document(graph[key].as_str().unwrap_or_default().trim_end())
}

/// Writes every action with what it calls and what may follow it.
fn for_people(graph: &Value, paint: Paint) -> String {
    let mut shown = String::new();
    for action in list(&graph["actions"]) {
        let (name, about) =
            (text(action, "name"), first_line(action["description"].as_str().unwrap_or_default()));
        let _ = writeln!(shown, "{}  {}", paint.bold(&name), paint.dim(about));
        for (kind, word) in [("call", "calls"), ("next", "then")] {
            let edges = list(&graph["edges"]);
            for edge in edges.filter(|it| it["from"] == name.as_str() && it["kind"] == kind) {
                let score = edge["score"].as_f64().unwrap_or_default();
                let mut score = draw::score(score);
                if let Some(learned) = edge["learned"].as_f64() {
                    let _ = write!(score, ", learned {}", draw::score(learned));
                }
                let _ = writeln!(shown, "  {word} {}  {}", text(edge, "to"), paint.dim(score));
            }
        }
    }
    shown.push_str(&counted(graph));
    shown
}

/// Says how much there is of everything.
fn counted(graph: &Value) -> String {
    let count =
        |what: &str, one: &str| plain::count(graph[what].as_array().map_or(0, Vec::len), one);
    format!(
        "{}, {}, {}",
        count("actions", "action"),
        count("tools", "tool"),
        count("edges", "edge")
    )
}

async fn load(session: &Session, client: &Client, yaml: &str) -> Result<Ending, Failure> {
    let query = "mutation($yaml: String!) { updateToolkit(yaml: $yaml) \
        { warnings toolkit { actions { name } tools { name } edges { from to kind score } } } }";
    let change = client.field(query, json!({ "yaml": yaml })).await?;
    let screen = &session.screen;
    if screen.json {
        screen.print_json(&change)?;
        return Ok(Ending::Done);
    }
    for warning in list(&change["warnings"]).filter_map(Value::as_str) {
        screen.say(&screen.err.yellow(plain::line(warning)));
    }
    screen.print(&format!("the toolkit has {}", counted(&change["toolkit"])))?;
    Ok(Ending::Done)
}
