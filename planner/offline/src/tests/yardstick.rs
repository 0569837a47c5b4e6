//! The yardstick: queries over 72 tools, with the class of each outcome. The 150 queries of
//! `dev.jsonl` are the development half. `fresh.jsonl` has 100 later queries.
//!
//! In `tests/data/queries`, `dev.golden.txt` and `fresh.golden.txt` have the outcome of each query,
//! after its class. If an outcome changes, write the outcomes with `examples/yardstick.rs`, score
//! them with `score.py --json`, and write the file again with `golden.py`.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::LazyLock};

use super::*;
use crate::Weights;

const SETS: [&str; 5] = ["github", "workspace", "files", "shop", "home"];
/// The sets of queries, each with the minimum number of right plans and the maximum number of
/// dangerous plans.
const QUERIES: [(&str, usize, usize); 2] = [("dev", 110, 0), ("fresh", 40, 1)];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/queries")
}

fn read_json(name: &str) -> Value {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns the catalog of each set, and `all`. The catalogs are read once, because properties need
/// them in each case.
pub(super) fn catalogs() -> &'static BTreeMap<String, Catalog> {
    static CATALOGS: LazyLock<BTreeMap<String, Catalog>> = LazyLock::new(read_catalogs);
    &CATALOGS
}

fn read_catalogs() -> BTreeMap<String, Catalog> {
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

pub(super) fn queries(name: &str) -> Vec<(u64, String, String)> {
    let text = fs::read_to_string(folder().join(format!("{name}.jsonl"))).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| {
        let field = |name: &str| row[name].as_str().unwrap().to_owned();
        (row["id"].as_u64().unwrap(), field("set"), field("query"))
    })
    .collect()
}

fn summary(planner: &Offline, catalog: &Catalog, query: &str) -> String {
    match planner.propose_blocking(query, catalog) {
        Ok(proposal) => show(&proposal).trim_end().replace('\n', " ; "),
        Err(_) => "refused".to_owned(),
    }
}

#[test]
fn outcomes_are_as_scored() {
    let catalogs = catalogs();
    let planner = Offline::default();
    for (name, least_right, most_dangerous) in QUERIES {
        let file = folder().join(format!("{name}.golden.txt"));
        let golden = fs::read_to_string(&file).unwrap_or_default();
        let mut written = String::new();
        let classes: BTreeMap<u64, &str> = golden
            .lines()
            .filter_map(|line| {
                let (id, rest) = line.split_once(' ')?;
                Some((id.parse().ok()?, rest.split_once(" | ")?.0))
            })
            .collect();
        for (id, set, query) in queries(name) {
            let class = classes.get(&id).copied().unwrap_or("unscored");
            let outcome = summary(&planner, &catalogs[&set], &query);
            writeln!(written, "{id} {class} | {outcome}").unwrap();
        }
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&file, &written).unwrap();
        } else {
            assert_eq!(written, golden);
        }
        let count = |class: &str| classes.values().filter(|own| **own == class).count();
        assert!(count("right") >= least_right, "{name}: {}", count("right"));
        assert!(count("dangerous") <= most_dangerous, "{name}: {}", count("dangerous"));
    }
}

/// Returns the weights, every other weight a tenth higher and the other weights a tenth lower.
fn shifted_weights(is_first_up: bool) -> Weights {
    let mut weights = Weights::default();
    for (at, value) in weights.values_mut().into_iter().enumerate() {
        *value *= if at.is_multiple_of(2) == is_first_up { 1.1 } else { 0.9 };
    }
    weights
}

#[test]
fn small_shifts_of_the_weights_change_little() {
    assert!(Weights::NAMES.len() <= 30);
    let catalogs = catalogs();
    let queries = queries("dev");
    let outcomes = |planner: &Offline| -> Vec<String> {
        queries.iter().map(|(_, set, query)| summary(planner, &catalogs[set], query)).collect()
    };
    let usual = outcomes(&Offline::default());
    for is_first_up in [true, false] {
        let weights = shifted_weights(is_first_up);
        let shifted = outcomes(&Offline::default().with_weights(weights));
        let outcomes = queries.iter().zip(usual.iter().zip(&shifted));
        let changed: Vec<u64> =
            outcomes.filter(|(_, (a, b))| a != b).map(|(query, _)| query.0).collect();
        assert!(changed.len() <= 3, "{changed:?}");
    }
}
