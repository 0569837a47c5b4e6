mod advice;
mod blog;
mod chains;
mod lookups;
mod properties;
mod sentences;
mod yardstick;

use std::{
    fmt::Write as _,
    sync::{Arc, LazyLock},
};

use expect_test::Expect;
use planner::{
    PlanningError, Proposal,
    catalog::{Catalog, CatalogTool},
    compile::compile,
};
use serde_json::{Map, Value, json};
use shared::{
    clock::Timestamp,
    plan::PlanInfo,
    tool::{Effect, ToolDefinition},
};

use super::Offline;

fn propose(query: &str, catalog: &Catalog) -> Result<Proposal, PlanningError> {
    static PLANNER: LazyLock<Offline> = LazyLock::new(Offline::default);
    PLANNER.propose_blocking(query, catalog)
}

/// Makes a tool. `fields` are `name` or `name!` (required), with their schemas.
fn tool(name: &str, description: &str, fields: Value) -> ToolDefinition {
    let mut properties = Map::new();
    let mut required = Vec::new();
    let Value::Object(fields) = fields else { panic!("`fields` is an object") };
    for (name, schema) in fields {
        let plain = name.trim_end_matches('!').to_owned();
        if plain.len() < name.len() {
            required.push(plain.clone());
        }
        properties.insert(plain, schema);
    }
    ToolDefinition {
        name: name.parse().unwrap(),
        set: "demo".parse().unwrap(),
        description: description.to_owned(),
        input_schema: json!({ "type": "object", "properties": properties, "required": required }),
        output_schema: None,
        effect: Effect::Once,
        examples: Vec::new(),
        is_callable: true,
    }
}

fn catalog(tools: Vec<ToolDefinition>) -> Catalog {
    Catalog::new(
        tools.into_iter().map(|tool| CatalogTool { definition: Arc::new(tool), is_active: true }),
    )
}

fn show(proposal: &Proposal) -> String {
    let mut text = String::new();
    for step in &proposal.draft.tools {
        if let Some(id) = &step.id {
            write!(text, "{id} = ").unwrap();
        }
        write!(text, "{} {}", step.name.as_ref().unwrap(), step.parameters.as_ref().unwrap())
            .unwrap();
        if let Some(list) = &step.for_each {
            write!(text, " for each {list}").unwrap();
        }
        if let Some(condition) = &step.when {
            write!(text, " when {condition}").unwrap();
        }
        if let Some(after) = &step.depends_on {
            write!(text, " after {after}").unwrap();
        }
        if step.requires_approval == Some(true) {
            text.push_str(" if approved");
        }
        text.push('\n');
    }
    for warning in &proposal.warnings {
        writeln!(text, "{warning}").unwrap();
    }
    text
}

fn assert_compiles(proposal: &Proposal, catalog: &Catalog) {
    let info = PlanInfo {
        id: "plan_1_aaaaaaaaa".parse().unwrap(),
        request: "req_1_aaaaaaaaa".parse().unwrap(),
        version: 1,
        query: String::new(),
        planner: "offline".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
    };
    if let Err(wrong) = compile(&proposal.draft, info, catalog) {
        panic!("{wrong:?} in\n{}", show(proposal));
    }
}

fn outcome(catalog: &Catalog, query: &str) -> String {
    match propose(query, catalog) {
        Ok(proposal) => {
            assert_compiles(&proposal, catalog);
            show(&proposal)
        }
        Err(PlanningError::NoPlan { message, .. }) => format!("no plan: {message}\n"),
        Err(other) => format!("{other}\n"),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`expect!` is written in place")]
fn check(catalog: &Catalog, query: &str, expected: Expect) {
    expected.assert_eq(&outcome(catalog, query));
}
