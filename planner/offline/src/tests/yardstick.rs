//! The development half of the yardstick: 150 queries over 72 tools, with the class of each outcome.
//!
//! `tests/data/queries/golden.txt` has the outcome of each query, behind its class. If an outcome
//! changes, write the outcomes with `examples/yardstick.rs`, score them with `score.py --json`, and
//! write the file again with `golden.py`.

use std::{collections::BTreeMap, fs, path::PathBuf};

use super::*;
use crate::{
    Readings, propose_with,
    weights::{WEIGHTS, Weights},
};

const SETS: [&str; 5] = ["github", "workspace", "files", "shop", "home"];
/// The least queries that are planned right.
const RIGHT: usize = 110;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/queries")
}

fn read_json(name: &str) -> Value {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn catalogs() -> BTreeMap<String, Catalog> {
    let mut all = Vec::new();
    let mut catalogs = BTreeMap::new();
    for set in SETS {
        let file = read_json(&format!("tools/{set}.json"));
        let tools: Vec<ToolDefinition> =
            file["tools"].as_array().unwrap().iter().map(|tool| read_tool(tool, set)).collect();
        all.extend(tools.clone());
        catalogs.insert(set.to_owned(), catalog(tools));
    }
    catalogs.insert("all".to_owned(), catalog(all));
    catalogs
}

fn read_tool(tool: &Value, set: &str) -> ToolDefinition {
    let text = |name: &str| tool[name].as_str().unwrap().to_owned();
    ToolDefinition {
        name: text("name").parse().unwrap(),
        set: set.parse().unwrap(),
        description: text("description"),
        input_schema: tool["inputSchema"].clone(),
        output_schema: tool.get("outputSchema").cloned(),
        effect: match tool["effect"].as_str() {
            Some("READ") => Effect::Read,
            Some("IDEMPOTENT") => Effect::Idempotent,
            _ => Effect::Once,
        },
        examples: Vec::new(),
        is_callable: true,
    }
}

fn queries() -> Vec<(u64, String, String)> {
    let text = fs::read_to_string(folder().join("dev.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| {
        let field = |name: &str| row[name].as_str().unwrap().to_owned();
        (row["id"].as_u64().unwrap(), field("set"), field("query"))
    })
    .collect()
}

/// The outcome of a query in one line.
fn summary(catalog: &Catalog, readings: &Readings, query: &str, weights: &Weights) -> String {
    match propose_with(query, catalog, readings, weights) {
        Ok(proposal) => show(&proposal).trim_end().replace('\n', " ; "),
        Err(_) => "refused".to_owned(),
    }
}

#[test]
fn outcomes_are_as_scored() {
    let catalogs = catalogs();
    let readings = Readings::default();
    let golden = fs::read_to_string(folder().join("golden.txt")).unwrap_or_default();
    let mut written = String::new();
    let classes: BTreeMap<u64, &str> = golden
        .lines()
        .filter_map(|line| {
            let (id, rest) = line.split_once(' ')?;
            Some((id.parse().ok()?, rest.split_once(" | ")?.0))
        })
        .collect();
    for (id, set, query) in queries() {
        let class = classes.get(&id).copied().unwrap_or("unscored");
        writeln!(
            written,
            "{id} {class} | {}",
            summary(&catalogs[&set], &readings, &query, &WEIGHTS)
        )
        .unwrap();
    }
    if std::env::var("UPDATE_EXPECT").is_ok() {
        fs::write(folder().join("golden.txt"), &written).unwrap();
    } else {
        assert_eq!(written, golden);
    }
    let count = |class: &str| classes.values().filter(|own| **own == class).count();
    assert!(count("right") >= RIGHT, "{}", count("right"));
    assert_eq!(count("dangerous"), 0);
}

#[test]
fn small_shifts_of_the_weights_change_little() {
    let catalogs = catalogs();
    let readings = Readings::default();
    let queries = queries();
    let outcomes = |weights: &Weights| -> Vec<String> {
        queries
            .iter()
            .map(|(_, set, query)| summary(&catalogs[set], &readings, query, weights))
            .collect()
    };
    let usual = outcomes(&WEIGHTS);
    for factor in [0.9, 1.1] {
        let shifted = outcomes(&WEIGHTS.scaled(factor));
        let changed: Vec<u64> = queries
            .iter()
            .zip(usual.iter().zip(&shifted))
            .filter(|(_, (a, b))| a != b)
            .map(|(query, _)| query.0)
            .collect();
        assert!(changed.len() <= 3, "{factor}: {changed:?}");
    }
}
