//! Which tools a query needs, which collide, and how good the choice is.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use planner::select::Figures;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use super::{
    Ending, Session,
    args::{By, SelectArgs, api_name},
    client::Client,
    failure::Failure,
    lists::{first_line, print, text},
    plain, render,
    run::read_text,
    shape::Shape,
};

/// How many tools a single query is shown.
const LIMIT: i32 = 5;
/// How far down the list the right tool is looked for when figures are made.
const DEPTH: i32 = 100;

/// How many wrong names are told one by one.
const WRONG: usize = 5;

const SELECT: &str = "query($query: String!, $by: SelectionCriterion!, $limit: Int!, $active: Boolean!) \
    { selectTools(query: $query, by: $by, limit: $limit, activeOnly: $active)";

/// Chooses tools for one query, or for one after another.
pub(super) async fn select(
    session: &Session,
    client: &Client,
    args: SelectArgs,
) -> Result<Ending, Failure> {
    let Some(query) = &args.query else { return ask(session, client, &args).await };
    let by = args.by.unwrap_or(By::Centroid);
    let limit = args.limit.unwrap_or(LIMIT);
    let mut found = selected(client, query, (by, limit), !args.all).await?;
    if by == By::Centroid && found.as_array().is_some_and(Vec::is_empty) {
        let why = if args.by.is_none() {
            found = selected(client, query, (By::Hybrid, limit), !args.all).await?;
            "no tool has `examples` to be near to: chosen by meaning and words, as `--by hybrid` does"
        } else {
            "no tool has `examples` to be near to: give them some, or choose `--by hybrid`"
        };
        session.screen.say(&session.screen.err.dim(why));
    }
    show(session, &found)?;
    Ok(Ending::Done)
}

async fn selected(
    client: &Client,
    query: &str,
    (by, limit): (By, i32),
    active: bool,
) -> Result<Value, Failure> {
    let fields = Shape::of(client).await?.tool_match();
    let variables =
        json!({ "query": query, "by": api_name(&by), "limit": limit, "active": active });
    client.field(&format!("{SELECT} {fields} }}"), variables).await
}

fn show(session: &Session, found: &Value) -> Result<(), Failure> {
    let headings = ["TOOL", "SCORE", "HIT", "LEAST", "DESCRIPTION"];
    print(&session.screen, found, &headings, |it, paint| {
        let name = name(&it["tool"]);
        let is_hit = it["hit"] == true;
        let number = |key: &str| it[key].as_f64().map(|it| format!("{it:.4}")).unwrap_or_default();
        vec![
            if is_hit { name } else { paint.dim(name) },
            number("score"),
            if is_hit { "yes" } else { "no" }.to_owned(),
            number("leastSimilar"),
            first_line(it["tool"]["description"].as_str().unwrap_or_default()),
        ]
    })
}

/// Returns the shortest name that means a tool.
fn name(tool: &Value) -> String {
    // Its plain name is that of another one.
    text(tool, if tool["shadowedBy"].is_null() { "name" } else { "qualifiedName" })
}

/// Asks for queries until there is none, as the first program of this kind did.
async fn ask(session: &Session, client: &Client, args: &SelectArgs) -> Result<Ending, Failure> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let screen = &session.screen;
    loop {
        if !screen.json {
            screen.say("------------------------------");
        }
        screen.say("Query (q to exit):");
        let Some(query) = line(&mut lines).await? else { return Ok(Ending::Done) };
        let query = query.trim();
        if query.is_empty() || query == "q" {
            return Ok(Ending::Done);
        }
        match answer(session, client, query, args).await {
            Ok(()) => (),
            // One that cannot be answered does not keep from asking others.
            Err(failure) if screen.json => screen.print_json(&failure.to_json())?,
            Err(failure) => screen.say(&screen.err.red(plain::line(&failure.message))),
        }
    }
}

async fn line(lines: &mut Lines<BufReader<Stdin>>) -> Result<Option<String>, Failure> {
    let unreadable = |err| Failure::usage(format!("standard input cannot be read: {err}"));
    lines.next_line().await.map_err(unreadable)
}

async fn answer(
    session: &Session,
    client: &Client,
    query: &str,
    args: &SelectArgs,
) -> Result<(), Failure> {
    let screen = &session.screen;
    if let Some(by) = args.by {
        let limit = args.limit.unwrap_or(LIMIT);
        return show(session, &selected(client, query, (by, limit), !args.all).await?);
    }
    let limit = args.limit.unwrap_or(1);
    let centroid = selected(client, query, (By::Centroid, limit), !args.all).await?;
    let description = selected(client, query, (By::Description, limit), !args.all).await?;
    if screen.json {
        return screen.print_json(&json!({ "centroid": centroid, "description": description }));
    }
    screen.print("CENTROID SIMILARITY HIT")?;
    each(session, &centroid, |it| it["hit"] == true)?;
    screen.print("CENTROID NEAREST")?;
    each(session, &centroid, |_| true)?;
    screen.print("DESCRIPTION NEAREST")?;
    each(session, &description, |_| true)
}

fn each(session: &Session, found: &Value, is_shown: fn(&Value) -> bool) -> Result<(), Failure> {
    for it in render::list(found).filter(|it| is_shown(it)) {
        session.screen.print(&format!("\t {}: {}", it["score"], name(&it["tool"])))?;
    }
    Ok(())
}

/// Lists the pairs of tools that the same sentences want.
pub(super) async fn collisions(
    session: &Session,
    client: &Client,
    threshold: f64,
    cosine: bool,
) -> Result<Ending, Failure> {
    let query = "query($threshold: Float, $similarity: CollisionSimilarity) \
        { toolCollisions(threshold: $threshold, similarity: $similarity) { a b similarity } }";
    let similarity = if cosine { "COSINE" } else { "DOT" };
    let variables = json!({ "threshold": threshold, "similarity": similarity });
    let found = client.field(query, variables).await?;
    let screen = &session.screen;
    if screen.json {
        screen.print_json(&found)?;
        return Ok(Ending::Done);
    }
    let pairs: Vec<&Value> = render::list(&found).collect();
    screen.print(&format!("POSSIBLE SIMILAR TOOLS ({threshold}): {}", pairs.len()))?;
    for it in pairs {
        screen.print(&format!(
            "\t {} -> {}: {}",
            text(it, "a"),
            text(it, "b"),
            it["similarity"]
        ))?;
    }
    Ok(Ending::Done)
}

/// A query whose right tools are known.
#[derive(Deserialize)]
struct Known {
    query: String,
    #[serde(alias = "tools", alias = "expected")]
    gold: Vec<String>,
    /// Where it stands, for people.
    #[serde(skip)]
    place: String,
}

/// Says how good selection is.
pub(super) async fn eval(
    session: &Session,
    client: &Client,
    file: &Path,
    by: Option<By>,
    all: bool,
) -> Result<Ending, Failure> {
    let known = read(file).await?;
    check_gold(client, &known, all).await?;
    let criteria = [By::Centroid, By::Description, By::Lexical, By::Hybrid];
    let wanted = criteria.into_iter().filter(|it| by.is_none_or(|by| by == *it));
    let mut figures = Vec::new();
    for criterion in wanted {
        match figures_of(client, &known, criterion, !all).await {
            Ok(found) => figures.push(told(criterion, &found)),
            // Without a model the others still have figures.
            Err(failure) if by.is_none() && failure.code == "PLANNER_UNAVAILABLE" => {
                session.screen.say(&session.screen.err.dim(plain::line(&failure.message)));
            }
            Err(failure) => return Err(failure),
        }
    }
    let headings = ["BY", "QUERIES", "HIT@1", "RECALL@5", "MRR"];
    print(&session.screen, &Value::Array(figures), &headings, |it, _| {
        let number = |key: &str| it[key].as_f64().map(|it| format!("{it:.3}")).unwrap_or_default();
        let (by, queries) = (text(it, "by"), it["queries"].to_string());
        vec![by, queries, number("hitAt1"), number("recallAt5"), number("mrr")]
    })?;
    Ok(Ending::Done)
}

fn told(by: By, figures: &Figures) -> Value {
    json!({
        "by": api_name(&by),
        "queries": figures.queries(),
        "hitAt1": figures.hit_at_1(),
        "recallAt5": figures.recall_at_5(),
        "mrr": figures.reciprocal_rank(),
    })
}

async fn read(file: &Path) -> Result<Vec<Known>, Failure> {
    const FORM: &str = r#"write {"query": "…", "gold": ["tool", …]} on each line"#;
    let text = read_text("the queries", file).await?;
    let lines = text.lines().enumerate().filter(|(_, it)| !it.trim().is_empty());
    let known = lines.map(|(at, line)| {
        let place = format!("`{}`, line {}", file.display(), at + 1);
        let unfit = |why: &str| Failure::usage(format!("{place}: {why}: {FORM}"));
        let known: Known = serde_json::from_str(line).map_err(|err| unfit(&err.to_string()))?;
        if known.query.trim().is_empty() {
            return Err(unfit("`query` is empty"));
        }
        if known.gold.is_empty() {
            return Err(unfit("`gold` names no tool, so that no answer would be right"));
        }
        Ok(Known { place, ..known })
    });
    let known = known.collect::<Result<Vec<Known>, Failure>>()?;
    if known.is_empty() {
        return Err(Failure::usage(format!("`{}` has no query: {FORM}", file.display())));
    }
    Ok(known)
}

/// Refuses names of right tools that no tool has, or none that is asked for: each would count as a
/// miss, and nobody would know.
async fn check_gold(client: &Client, known: &[Known], all: bool) -> Result<(), Failure> {
    let tools = client.field("{ tools { name qualifiedName active } }", json!({})).await?;
    let mut there: BTreeMap<&str, bool> = BTreeMap::new();
    for tool in render::list(&tools) {
        for name in ["name", "qualifiedName"].iter().filter_map(|it| tool[it].as_str()) {
            *there.entry(name).or_default() |= tool["active"] == true;
        }
    }
    let mut wrong = Vec::new();
    for Known { gold, place, .. } in known {
        for name in gold {
            let why = match there.get(name.as_str()) {
                Some(is_active) if *is_active || all => continue,
                Some(_) => "switched off: `--all` counts it, too".to_owned(),
                None => {
                    let help = planner::nearest::did_you_mean(name, there.keys().copied());
                    let help = help.unwrap_or_else(|| "`faber tools list` lists them".to_owned());
                    format!("not the name of a tool: {help}")
                }
            };
            wrong.push(format!("{place}: `{name}` is {why}"));
        }
    }
    let more = wrong.len().saturating_sub(WRONG);
    wrong.truncate(WRONG);
    if more > 0 {
        wrong.push(format!("and {more} more"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure::usage(wrong.join("; "))) }
}

async fn figures_of(
    client: &Client,
    known: &[Known],
    by: By,
    active: bool,
) -> Result<Figures, Failure> {
    let operation = format!("{SELECT} {{ tool {{ name qualifiedName }} }} }}");
    let mut figures = Figures::default();
    for Known { query, gold, place } in known {
        let variables =
            json!({ "query": query, "by": api_name(&by), "limit": DEPTH, "active": active });
        let found = client.field(&operation, variables).await.map_err(|err| match &*err.code {
            "PLANNER_UNAVAILABLE" => err,
            _ => Failure { message: format!("{place}: {}", err.message), ..err },
        })?;
        let right: BTreeSet<&str> = gold.iter().map(String::as_str).collect();
        let selected: Vec<&str> = render::list(&found)
            .filter_map(|it| {
                let qualified = it["tool"]["qualifiedName"].as_str();
                qualified.filter(|it| right.contains(it)).or(it["tool"]["name"].as_str())
            })
            .collect();
        figures.add(&right, &selected);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_called_by_what_means_it() {
        let tool = |shadow: Value| json!({ "name": "flow.echo", "qualifiedName": "tools.flow.echo", "shadowedBy": shadow });
        assert_eq!(name(&tool(Value::Null)), "flow.echo");
        assert_eq!(name(&tool(json!("flow.echo"))), "tools.flow.echo");
        let of_an_older_server = json!({ "name": "a", "qualifiedName": "s.a" });
        assert_eq!(name(&of_an_older_server), "a");
    }
}
