//! A query or a mutation as a tool.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use shared::{
    id::ToolSetName,
    tool::{Effect, ToolDefinition, ToolError},
};

use super::{
    Endpoint,
    answer::data,
    arguments,
    introspection::{Field, Types},
    select::select,
};
use crate::{
    secret::Redaction,
    sources::offer::{Names, TOOLS, described},
    tool::{Tool, ToolContext},
};

#[derive(Debug)]
struct FieldTool {
    definition: Arc<ToolDefinition>,
    endpoint: Arc<Endpoint>,
    /// The field, which is not the tool's name where two have that.
    field: String,
    document: String,
}

/// Makes the tools of an endpoint: queries, then mutations.
pub(super) fn tools(
    set: &ToolSetName,
    endpoint: &Arc<Endpoint>,
    types: &Types,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Result<Vec<Arc<dyn Tool>>, String> {
    let queries = types.fields(types.query.as_deref()).iter().map(|it| (Effect::Read, it));
    let mutations = types.fields(types.mutation.as_deref()).iter().map(|it| (Effect::Once, it));
    let mut names = Names::default();
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    for (effect, field) in queries.chain(mutations) {
        let name = names.take(&field.name);
        if !is_wanted(&name) {
            continue;
        }
        if tools.len() == TOOLS {
            return Err(format!("it has more than {TOOLS} fields: choose some by `include`"));
        }
        let Ok(name) = name.parse() else {
            tracing::warn!(%set, %name, "a field of the endpoint is left out");
            continue;
        };
        let (selection, output) = select(types, &field.of, endpoint.config.depth);
        let definition = ToolDefinition {
            name,
            set: set.clone(),
            description: described(field.description.as_deref().unwrap_or_default()),
            input_schema: arguments::schema(types, &field.args),
            output_schema: Some(output),
            effect,
            examples: Vec::new(),
            is_callable: true,
        };
        tools.push(Arc::new(FieldTool {
            definition: Arc::new(definition),
            endpoint: Arc::clone(endpoint),
            field: field.name.clone(),
            document: document(effect, field, &selection),
        }));
    }
    Ok(tools)
}

/// Writes the document: `mutation createAuthor($name: String!) { createAuthor(name: $name) { id } }`.
fn document(effect: Effect, field: &Field, selection: &str) -> String {
    let kind = if effect == Effect::Read { "query" } else { "mutation" };
    let name = &field.name;
    let listed = |all: Vec<String>| match all.is_empty() {
        true => String::new(),
        false => format!("({})", all.join(", ")),
    };
    let variables = field.args.iter().map(|it| format!("${}: {}", it.name, it.variable()));
    let arguments = field.args.iter().map(|it| format!("{0}: ${0}", it.name));
    let (variables, arguments) = (listed(variables.collect()), listed(arguments.collect()));
    format!("{kind} {name}{variables} {{ {name}{arguments}{selection} }}")
}

#[async_trait]
impl Tool for FieldTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        let mut seen = Redaction::default();
        let asked = self.endpoint.request(&self.document, &parameters, &mut seen)?;
        let caller = &self.endpoint.caller;
        let reply = caller.call(&self.definition, asked, &cx, &seen).await?;
        data(reply, &self.field, self.definition.effect, (caller.most, &seen))
    }
}
