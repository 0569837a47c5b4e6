//! The queries and the tools of the yardstick, and the outcomes that `score.py` reads.

use std::{collections::BTreeMap, error::Error, fs, path::Path, sync::Arc};

use offline::Offline;
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

pub(crate) struct Case {
    pub(crate) id: u64,
    pub(crate) query: String,
    pub(crate) catalog: Catalog,
}

pub(crate) fn read_cases(queries: &Path) -> Result<Vec<Case>, Box<dyn Error>> {
    let folder = queries.parent().unwrap_or(Path::new(".")).join("tools");
    let catalogs = read_catalogs(&folder)?;
    let mut cases = Vec::new();
    for line in fs::read_to_string(queries)?.lines() {
        let case: Value = serde_json::from_str(line)?;
        cases.push(Case {
            id: case["id"].as_u64().ok_or("a query has an id")?,
            query: case["query"].as_str().unwrap_or_default().to_owned(),
            catalog: catalogs[case["set"].as_str().unwrap_or_default()].clone(),
        });
    }
    Ok(cases)
}

pub(crate) fn plan(planner: &Offline, case: &Case) -> Value {
    let proposal = match planner.propose_blocking(&case.query, &case.catalog) {
        Ok(proposal) => proposal,
        Err(err) => {
            let error = json!({ "code": "NO_PLAN_FOUND", "message": err.to_string() });
            return json!({ "id": case.id, "error": error });
        }
    };
    let info = PlanInfo {
        id: "plan_1_aaaaaaaaa".parse().expect("an id"),
        request: "req_1_aaaaaaaaa".parse().expect("an id"),
        version: 1,
        query: case.query.clone(),
        planner: "offline".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
    };
    match compile(&proposal.draft, info, &case.catalog) {
        Ok(plan) => {
            let draft = json!(Draft::from_plan(&plan));
            let warnings: Vec<String> = proposal.warnings.iter().map(ToString::to_string).collect();
            json!({ "id": case.id, "plan": draft["tools"], "warnings": warnings })
        }
        Err(wrong) => {
            let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
            let error = json!({ "code": "INVALID_PLAN", "message": wrong.join(" ") });
            json!({ "id": case.id, "error": error, "draft": json!(proposal.draft) })
        }
    }
}

fn read_catalogs(folder: &Path) -> Result<BTreeMap<&'static str, Catalog>, Box<dyn Error>> {
    let mut all = Vec::new();
    let mut catalogs = BTreeMap::new();
    for set in SETS {
        let text = fs::read_to_string(folder.join(format!("{set}.json")))?;
        let file: Value = serde_json::from_str(&text)?;
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
