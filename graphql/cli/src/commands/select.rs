use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use client::{
    Client,
    failure::Failure,
    plan_file::read_text,
    read_answer,
    types::{Tool, ToolCollision, ToolMatch},
    view::{format::first_line, plain},
};
use planner::select::SelectionQuality;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{
    ExitStatus,
    args::{RankMethod, SelectArgs, api_name},
    session::Session,
};

const DEFAULT_LIMIT: i32 = 5;
const MAX_RANK: i32 = 100;
const MAX_WRONG_NAMES: usize = 5;

#[derive(Clone, Copy)]
struct Criteria {
    by: RankMethod,
    limit: i32,
    all: bool,
}

pub(crate) async fn select(session: &Session<'_>, args: SelectArgs) -> Result<ExitStatus, Failure> {
    let Some(query) = &args.query else { return ask_for_queries(session, &args).await };
    let by = args.by.unwrap_or(RankMethod::Centroid);
    let criteria = Criteria { by, limit: args.limit.unwrap_or(DEFAULT_LIMIT), all: args.all };
    let mut found = select_tools(&session.client, query, criteria, &ToolMatch::fields()).await?;
    if by == RankMethod::Centroid && found.as_array().is_some_and(Vec::is_empty) {
        session.screen.hint(if args.by.is_none() {
            let criteria = Criteria { by: RankMethod::Hybrid, ..criteria };
            found = select_tools(&session.client, query, criteria, &ToolMatch::fields()).await?;
            "no tool has `examples`: tools were selected by similarity and words, as with `--by \
             hybrid`"
        } else {
            "no tool has `examples`: add some, or use `--by hybrid`"
        });
    }
    show_matches(session, &found)
}

async fn select_tools(
    client: &Client,
    query: &str,
    Criteria { by, limit, all }: Criteria,
    fields: &str,
) -> Result<Value, Failure> {
    let arguments = [
        ("query: String!", json!(query)),
        ("by: SelectionCriterion!", json!(api_name(&by))),
        ("limit: Int!", json!(limit)),
        ("activeOnly: Boolean!", json!(!all)),
    ];
    client.query("selectTools", &arguments, fields).await
}

fn show_matches(session: &Session<'_>, found: &Value) -> Result<ExitStatus, Failure> {
    let headings = ["TOOL", "SCORE", "HIT", "LEAST", "DESCRIPTION"];
    session.screen.print_list(found, &headings, |found: &ToolMatch, paint| {
        let name = found.tool.shortest_name().to_string();
        vec![
            if found.hit { name } else { paint.dim(name) },
            format!("{:.4}", found.score),
            if found.hit { "yes" } else { "no" }.to_owned(),
            found.least_similar.map(|score| format!("{score:.4}")).unwrap_or_default(),
            first_line(&found.tool.description),
        ]
    })
}

async fn ask_for_queries(session: &Session<'_>, args: &SelectArgs) -> Result<ExitStatus, Failure> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let unreadable = |err| Failure::usage(format!("standard input cannot be read: {err}"));
    let screen = session.screen;
    loop {
        if !screen.json {
            screen.say("------------------------------");
        }
        screen.say("Query (q to exit):");
        let line = lines.next_line().await.map_err(unreadable)?.unwrap_or_default();
        let query = line.trim();
        if query.is_empty() || query == "q" {
            return Ok(ExitStatus::Done);
        }
        match answer_query(session, query, args).await {
            Ok(()) => (),
            Err(failure) if screen.json => screen.print_json(&failure.to_json())?,
            Err(failure) => screen.say(&screen.err.red(plain::safe_line(&failure.message))),
        }
    }
}

async fn answer_query(
    session: &Session<'_>,
    query: &str,
    args: &SelectArgs,
) -> Result<(), Failure> {
    let (screen, fields, all) = (session.screen, ToolMatch::fields(), args.all);
    if let Some(by) = args.by {
        let criteria = Criteria { by, limit: args.limit.unwrap_or(DEFAULT_LIMIT), all };
        let found = select_tools(&session.client, query, criteria, &fields).await?;
        return show_matches(session, &found).map(drop);
    }
    let criteria = Criteria { by: RankMethod::Centroid, limit: args.limit.unwrap_or(1), all };
    let centroid = select_tools(&session.client, query, criteria, &fields).await?;
    let criteria = Criteria { by: RankMethod::Description, ..criteria };
    let description = select_tools(&session.client, query, criteria, &fields).await?;
    if screen.json {
        return screen.print_json(&json!({ "centroid": centroid, "description": description }));
    }
    let (centroid, description): (Vec<ToolMatch>, Vec<ToolMatch>) =
        (read_answer(centroid)?, read_answer(description)?);
    let hits = centroid.iter().filter(|found| found.hit).collect();
    for (title, matches) in [
        ("CENTROID SIMILARITY HIT", hits),
        ("CENTROID NEAREST", centroid.iter().collect()),
        ("DESCRIPTION NEAREST", description.iter().collect::<Vec<_>>()),
    ] {
        screen.print(title)?;
        for found in matches {
            let (score, name) = (json!(found.score), found.tool.shortest_name());
            screen.print(&format!("\t {score}: {name}"))?;
        }
    }
    Ok(())
}

pub(crate) async fn list_collisions(
    session: &Session<'_>,
    threshold: f64,
    cosine: bool,
) -> Result<ExitStatus, Failure> {
    let arguments = [
        ("threshold: Float", json!(threshold)),
        ("similarity: CollisionSimilarity", json!(if cosine { "COSINE" } else { "DOT" })),
    ];
    let found: Value =
        session.client.query("toolCollisions", &arguments, ToolCollision::FIELDS).await?;
    let screen = session.screen;
    if screen.json {
        screen.print_json(&found)?;
        return Ok(ExitStatus::Done);
    }
    let pairs: Vec<ToolCollision> = read_answer(found)?;
    screen.print(&format!("POSSIBLE SIMILAR TOOLS ({threshold}): {}", pairs.len()))?;
    for ToolCollision { a, b, similarity } in pairs {
        screen.print(&format!("\t {a} -> {b}: {}", json!(similarity)))?;
    }
    Ok(ExitStatus::Done)
}

#[derive(Deserialize)]
struct GoldQuery {
    query: String,
    #[serde(alias = "tools", alias = "expected")]
    gold: Vec<String>,
    #[serde(skip)]
    place: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Quality {
    by: String,
    queries: u32,
    hit_at_1: f64,
    recall_at_5: f64,
    mrr: f64,
}

pub(crate) async fn measure_quality(
    session: &Session<'_>,
    file: &Path,
    by: Option<RankMethod>,
    all: bool,
) -> Result<ExitStatus, Failure> {
    let gold_queries = read_gold_queries(file).await?;
    check_gold_names(&session.client, &gold_queries, all).await?;
    let criteria =
        [RankMethod::Centroid, RankMethod::Description, RankMethod::Lexical, RankMethod::Hybrid];
    let mut qualities = Vec::new();
    for criterion in criteria.into_iter().filter(|criterion| by.is_none_or(|by| by == *criterion)) {
        let criteria = Criteria { by: criterion, limit: MAX_RANK, all };
        match measure_criterion(&session.client, &gold_queries, criteria).await {
            Ok(figures) => qualities.push(Quality {
                by: api_name(&criterion),
                queries: figures.count_queries(),
                hit_at_1: figures.hit_at_1(),
                recall_at_5: figures.recall_at_5(),
                mrr: figures.reciprocal_rank(),
            }),
            // Skips a criterion that needs an embedder if there is none. The other criteria still
            // work.
            Err(failure) if by.is_none() && failure.code == "PLANNER_UNAVAILABLE" => {
                session.screen.hint(&plain::safe_line(&failure.message));
            }
            Err(failure) => return Err(failure),
        }
    }
    let headings = ["BY", "QUERIES", "HIT@1", "RECALL@5", "MRR"];
    session.screen.print_list(&json!(qualities), &headings, |quality: &Quality, _| {
        let Quality { by, queries, hit_at_1, recall_at_5, mrr } = quality;
        let figures = [hit_at_1, recall_at_5, mrr].map(|figure| format!("{figure:.3}"));
        [by.clone(), queries.to_string()].into_iter().chain(figures).collect()
    })
}

async fn read_gold_queries(file: &Path) -> Result<Vec<GoldQuery>, Failure> {
    const LINE_FORMAT: &str = r#"write {"query": "…", "gold": ["tool", …]} on each line"#;
    let text = read_text("the queries", file).await?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let gold_queries = lines.map(|(number, line)| {
        let place = format!("`{}`, line {}", file.display(), number + 1);
        let unfit = |reason: &str| Failure::usage(format!("{place}: {reason}: {LINE_FORMAT}"));
        let gold_query: GoldQuery =
            serde_json::from_str(line).map_err(|err| unfit(&err.to_string()))?;
        if gold_query.query.trim().is_empty() {
            return Err(unfit("`query` is empty"));
        }
        if gold_query.gold.is_empty() {
            return Err(unfit("`gold` names no tool, so no selection would be correct"));
        }
        Ok(GoldQuery { place, ..gold_query })
    });
    let gold_queries = gold_queries.collect::<Result<Vec<GoldQuery>, Failure>>()?;
    if gold_queries.is_empty() {
        return Err(Failure::usage(format!("`{}` has no query: {LINE_FORMAT}", file.display())));
    }
    Ok(gold_queries)
}

/// Rejects unknown and inactive tools among the expected tools, because selection could never find
/// them. With `all`, accepts inactive tools.
async fn check_gold_names(
    client: &Client,
    gold_queries: &[GoldQuery],
    all: bool,
) -> Result<(), Failure> {
    let tools: Vec<Tool> = client.query("tools", &[], "name qualifiedName active").await?;
    let mut is_active: BTreeMap<&str, bool> = BTreeMap::new();
    for tool in &tools {
        for name in [&tool.name, &tool.qualified_name] {
            *is_active.entry(name).or_default() |= tool.active;
        }
    }
    let mut wrong = Vec::new();
    for GoldQuery { gold, place, .. } in gold_queries {
        for name in gold {
            let reason = match is_active.get(name.as_str()) {
                Some(is_active) if *is_active || all => continue,
                Some(_) => "inactive: `--all` includes it".to_owned(),
                None => {
                    let help = planner::suggest::did_you_mean(name, is_active.keys().copied());
                    let help =
                        help.unwrap_or_else(|| "`faber tools list` lists all tools".to_owned());
                    format!("not the name of a tool: {help}")
                }
            };
            wrong.push(format!("{place}: `{name}` is {reason}"));
        }
    }
    let more = wrong.len().saturating_sub(MAX_WRONG_NAMES);
    wrong.truncate(MAX_WRONG_NAMES);
    if more > 0 {
        wrong.push(format!("and {more} more"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure::usage(wrong.join("; "))) }
}

async fn measure_criterion(
    client: &Client,
    gold_queries: &[GoldQuery],
    criteria: Criteria,
) -> Result<SelectionQuality, Failure> {
    #[derive(Deserialize)]
    struct SelectedTool {
        tool: Tool,
    }
    let mut figures = SelectionQuality::default();
    for GoldQuery { query, gold, place } in gold_queries {
        let found = select_tools(client, query, criteria, "tool { name qualifiedName }").await;
        let found = found.map_err(|failure| match &*failure.code {
            "PLANNER_UNAVAILABLE" => failure,
            _ => Failure { message: format!("{place}: {}", failure.message), ..failure },
        })?;
        let found: Vec<SelectedTool> = read_answer(found)?;
        let gold_tools: BTreeSet<&str> = gold.iter().map(String::as_str).collect();
        let names = found.iter().map(|SelectedTool { tool }| match &*tool.qualified_name {
            qualified if gold_tools.contains(qualified) => qualified,
            _ => &*tool.name,
        });
        figures.add_query(&gold_tools, &names.collect::<Vec<_>>());
    }
    Ok(figures)
}
