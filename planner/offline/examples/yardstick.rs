//! Plans the queries of a yardstick in one process and writes the outcomes that `score.py` reads.
//!
//! ```sh
//! cargo run -p offline --example yardstick -- tests/data/queries/dev.jsonl OUTCOMES.jsonl
//! python3 tests/data/queries/score.py tests/data/queries/dev.jsonl OUTCOMES.jsonl
//! ```

use std::{
    collections::BTreeMap, error::Error, fmt::Write as _, fs, path::Path, sync::Arc, time::Instant,
};

use planner::{
    catalog::{Catalog, CatalogTool},
    compile::compile,
    draft::Draft,
};
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    plan::PlanInfo,
    tool::{Effect, ToolDefinition},
};

const SETS: [&str; 5] = ["github", "workspace", "files", "shop", "home"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let queries = args.next().ok_or("which queries?")?;
    let outcomes = args.next().ok_or("which file for the outcomes?")?;
    let folder = Path::new(&queries).parent().unwrap_or(Path::new(".")).join("tools");
    let catalogs = read_catalogs(&folder)?;
    let mut lines = String::new();
    for line in fs::read_to_string(&queries)?.lines() {
        let case: Value = serde_json::from_str(line)?;
        let query = case["query"].as_str().unwrap_or_default();
        let catalog = &catalogs[case["set"].as_str().unwrap_or_default()];
        let started = Instant::now();
        let mut row = plan(query, catalog);
        row["id"] = case["id"].clone();
        row["seconds"] = json!(started.elapsed().as_secs_f64());
        writeln!(lines, "{row}")?;
    }
    fs::write(outcomes, lines)?;
    Ok(())
}

fn plan(query: &str, catalog: &Catalog) -> Value {
    let proposal = match offline::propose(query, catalog) {
        Ok(proposal) => proposal,
        Err(err) => {
            return json!({ "error": { "code": "NO_PLAN_FOUND", "message": err.to_string() } });
        }
    };
    let info = PlanInfo {
        id: "plan_1_aaaaaaaaa".parse().expect("an id"),
        request: "req_1_aaaaaaaaa".parse().expect("an id"),
        version: 1,
        query: query.to_owned(),
        planner: "offline".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
    };
    match compile(&proposal.draft, info, catalog) {
        Ok(plan) => {
            let draft = json!(Draft::from_plan(&plan));
            let warnings: Vec<String> = proposal.warnings.iter().map(ToString::to_string).collect();
            json!({ "plan": draft["tools"], "warnings": warnings })
        }
        Err(wrong) => {
            let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
            json!({ "error": { "code": "INVALID_PLAN", "message": wrong.join(" "), "draft": json!(proposal.draft) } })
        }
    }
}

fn read_catalogs(folder: &Path) -> Result<BTreeMap<&'static str, Catalog>, Box<dyn Error>> {
    let mut all = Vec::new();
    let mut catalogs = BTreeMap::new();
    for set in SETS {
        let file: Value =
            serde_json::from_str(&fs::read_to_string(folder.join(format!("{set}.json")))?)?;
        let mut tools = Vec::new();
        for tool in file["tools"].as_array().ok_or("a set has tools")? {
            tools.push(read_tool(tool, set)?);
        }
        all.extend(tools.clone());
        catalogs.insert(set, Catalog::new(tools));
    }
    catalogs.insert("all", Catalog::new(all));
    Ok(catalogs)
}

fn read_tool(tool: &Value, set: &str) -> Result<CatalogTool, Box<dyn Error>> {
    let effect = match tool["effect"].as_str() {
        Some("READ") => Effect::Read,
        Some("IDEMPOTENT") => Effect::Idempotent,
        _ => Effect::Once,
    };
    let definition = ToolDefinition {
        name: tool["name"].as_str().unwrap_or_default().parse()?,
        set: set.parse()?,
        description: tool["description"].as_str().unwrap_or_default().to_owned(),
        input_schema: tool["inputSchema"].clone(),
        output_schema: tool.get("outputSchema").cloned(),
        effect,
        examples: Vec::new(),
        is_callable: true,
    };
    Ok(CatalogTool { definition: Arc::new(definition), is_active: true })
}
