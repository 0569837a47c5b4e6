#![expect(clippy::needless_raw_string_hashes, reason = "`expect-test` writes them")]

mod computations;
mod conditions;
mod cycles;
mod loops;
mod messages;
mod parameters;
mod policies;
mod properties;
mod reading;
mod sentences;
mod sub_plans;
mod undo;

use std::sync::Arc;

use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    diagnostic::Diagnostic,
    plan::{Plan, PlanInfo},
    tool::{Effect, ToolDefinition},
};

use super::{compile, parse_value};
use crate::catalog::{Catalog, CatalogTool};

fn plan_info() -> PlanInfo {
    PlanInfo {
        id: "plan_1_aaaaaaaaa".parse().unwrap(),
        request: "req_1_aaaaaaaaa".parse().unwrap(),
        version: 1,
        query: "q".to_owned(),
        planner: "explicit".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
    }
}

fn make_tool(set: &str, name: &str, schema: Value) -> CatalogTool {
    let definition = ToolDefinition {
        name: name.parse().unwrap(),
        set: set.parse().unwrap(),
        description: String::new(),
        input_schema: schema,
        output_schema: None,
        effect: Effect::Once,
        examples: Vec::new(),
        is_callable: true,
    };
    CatalogTool { definition: Arc::new(definition), is_active: true }
}

fn with_change(tool: &CatalogTool, change: impl FnOnce(&mut ToolDefinition)) -> CatalogTool {
    let mut definition = (*tool.definition).clone();
    change(&mut definition);
    CatalogTool { definition: Arc::new(definition), is_active: tool.is_active }
}

/// Authors, blogs, an inactive set, a tool that cannot be called, and `flow.*`.
fn make_catalog() -> Catalog {
    let author = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "the full name" },
            "email": { "type": "string", "format": "email", "minLength": 3 },
            "age": { "type": "integer", "minimum": 0 },
            "tags": { "type": "array", "items": { "type": "string" }, "uniqueItems": true },
            "address": {
                "type": "object",
                "properties": { "city": { "type": "string" } },
                "required": ["city"],
            },
            "kind": { "enum": ["person", "group"] },
        },
        "required": ["name", "email"],
        "additionalProperties": false,
    });
    let output = json!({
        "type": "object",
        "properties": {
            "_id": { "type": "string" },
            "tags": { "type": "array", "items": { "type": "string" } },
        },
        "additionalProperties": false,
    });
    let anything = || json!({ "type": "object" });
    Catalog::new([
        with_change(&make_tool("demo", "createAuthor", author), |tool| {
            tool.output_schema = Some(output);
        }),
        with_change(&make_tool("demo", "listAuthors", anything()), |tool| {
            tool.effect = Effect::Read;
        }),
        make_tool("demo", "createBlog", anything()),
        make_tool("other", "createBlog", anything()),
        make_tool("demo", "wrong", json!({ "type": 5 })),
        CatalogTool { is_active: false, ..make_tool("files", "glob", anything()) },
        with_change(&make_tool("tools", "weather", anything()), |tool| tool.is_callable = false),
        make_tool("flow", "flow.echo", anything()),
        make_tool("flow", "flow.noop", anything()),
    ])
}

fn compile_json(draft: Value) -> Result<Plan, Vec<Diagnostic>> {
    compile(&parse_value(draft)?, plan_info(), &make_catalog())
}

fn compile_valid(draft: Value) -> Plan {
    compile_json(draft).unwrap_or_else(|diagnostics| panic!("{}", format_diagnostics(&diagnostics)))
}

fn compile_invalid(draft: Value) -> Vec<Diagnostic> {
    compile_json(draft).map(|plan| list_ids(&plan)).expect_err("a draft that is wrong")
}

fn list_ids(plan: &Plan) -> Vec<String> {
    plan.steps().iter().map(|step| step.id.to_string()).collect()
}

fn list_dependencies(plan: &Plan) -> Vec<String> {
    let steps = plan.steps().iter();
    let on = |on: &[shared::id::StepNumber]| {
        on.iter().map(|number| plan.step(*number).id.as_str()).collect::<Vec<_>>().join(" ")
    };
    steps
        .map(|step| format!("{}: {}", step.id, on(&step.depends_on)).trim_end().to_owned())
        .collect()
}

fn format_diagnostics(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().flat_map(|diagnostic| [diagnostic.to_string(), "\n".to_owned()]).collect()
}

fn list_codes(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics
        .iter()
        .map(|diagnostic| format!("{} {}", diagnostic.code, diagnostic.path))
        .collect()
}

fn draft_of_steps(steps: &[(&str, &[&str])]) -> Value {
    let steps = steps
        .iter()
        .map(|(id, on)| json!({ "id": id, "name": "flow.echo", "dependsOn": on }))
        .collect::<Vec<_>>();
    json!({ "tools": steps })
}
