//! Queries and the drafts that they become, as tables.

#[expect(
    clippy::needless_raw_string_hashes,
    clippy::too_many_lines,
    reason = "tables, and `expect_test` writes the hashes"
)]
mod blog;
mod described;
mod limits;
mod meaning;
mod orders;
mod readings;
#[expect(
    clippy::needless_raw_string_hashes,
    clippy::too_many_lines,
    reason = "tables, and `expect_test` writes the hashes"
)]
mod toolsets;
mod vetoes;

use std::{fmt::Write as _, sync::Arc};

use expect_test::Expect;
use serde_json::{Map, Value, json};
use shared::{
    clock::Timestamp,
    plan::{Plan, PlanInfo},
    tool::{Effect, ToolDefinition},
};

use super::propose;
use planner::{
    PlanningError, Proposal,
    catalog::{Catalog, CatalogTool},
    compile::compile,
};

/// Makes a tool; `fields` are `name`, `name!` (required) and their schemas.
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
        tools.into_iter().map(|it| CatalogTool { definition: Arc::new(it), is_active: true }),
    )
}

fn shown(proposal: &Proposal) -> String {
    let mut text = String::new();
    for step in &proposal.draft.tools {
        if let Some(id) = &step.id {
            write!(text, "{id} = ").unwrap();
        }
        let parameters = step.parameters.as_ref().unwrap();
        write!(text, "{} {parameters}", step.name.as_ref().unwrap()).unwrap();
        if let Some(after) = &step.depends_on {
            write!(text, " after {after}").unwrap();
        }
        text.push('\n');
    }
    for it in &proposal.warnings {
        writeln!(text, "{it}").unwrap();
    }
    text
}

fn compiled(proposal: &Proposal, catalog: &Catalog) -> Plan {
    let about = PlanInfo {
        id: "plan_1_aaaaaaaaa".parse().unwrap(),
        request: "req_1_aaaaaaaaa".parse().unwrap(),
        version: 1,
        query: proposal.draft.query.clone().unwrap(),
        planner: "offline".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
    };
    let plan = compile(&proposal.draft, about, catalog);
    plan.unwrap_or_else(|wrong| panic!("{wrong:?} in\n{}", shown(proposal)))
}

fn outcome(catalog: &Catalog, query: &str) -> String {
    match propose(query, catalog) {
        Ok(proposal) => {
            // Whatever is proposed is a plan.
            compiled(&proposal, catalog);
            shown(&proposal)
        }
        Err(PlanningError::NoPlan { message, nearest, .. }) => {
            format!("no plan: {}\nnearest: {}\n", message.replace("; ", ";\n  "), nearest.join(" "))
        }
        Err(other) => format!("{other}\n"),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "`expect!` is written in place")]
fn check(catalog: &Catalog, query: &str, expected: Expect) {
    expected.assert_eq(&outcome(catalog, query));
}
