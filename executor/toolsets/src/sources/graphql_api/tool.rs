//! A query or a mutation as a tool.

use std::sync::Arc;

use async_trait::async_trait;
use secrets::Redaction;
use serde_json::Value;
use shared::{
    id::ToolSetName,
    tool::{Effect, ToolDefinition, ToolError},
};
use toolbox::{Tool, ToolContext};

use super::{Endpoint, answer::data, arguments, introspection::Types, select::select};
use crate::sources::offer::{Names, TOOLS, described};

#[derive(Debug)]
struct FieldTool {
    definition: Arc<ToolDefinition>,
    endpoint: Arc<Endpoint>,
    /// The field, which is not the tool's name where two have that.
    field: String,
    /// Its arguments, each with the type that a variable of it has.
    arguments: Vec<(String, String)>,
    selection: String,
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
    let share = arguments::share(queries.len() + mutations.len());
    let mut names = Names::of(set);
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
            input_schema: arguments::schema(types, &field.args, share),
            output_schema: Some(output),
            effect,
            examples: Vec::new(),
            is_callable: true,
        };
        tools.push(Arc::new(FieldTool {
            definition: Arc::new(definition),
            endpoint: Arc::clone(endpoint),
            field: field.name.clone(),
            arguments: field.args.iter().map(|it| (it.name.clone(), it.of.written())).collect(),
            selection,
        }));
    }
    Ok(tools)
}

impl FieldTool {
    /// Writes the document of a call, with the arguments that are given and no others, because
    /// some servers take a variable without a value for null: `mutation createAuthor($name:
    /// String!) { createAuthor(name: $name) { id } }`.
    fn document(&self, parameters: &Value) -> String {
        let Self { definition, field, arguments, selection, .. } = self;
        let kind = if definition.effect == Effect::Read { "query" } else { "mutation" };
        let given: Vec<_> =
            arguments.iter().filter(|(name, _)| parameters.get(name).is_some()).collect();
        if given.is_empty() {
            return format!("{kind} {field} {{ {field}{selection} }}");
        }
        let listed = |all: Vec<String>| all.join(", ");
        let variables = listed(given.iter().map(|(it, of)| format!("${it}: {of}")).collect());
        let values = listed(given.iter().map(|(it, _)| format!("{it}: ${it}")).collect());
        format!("{kind} {field}({variables}) {{ {field}({values}){selection} }}")
    }
}

#[async_trait]
impl Tool for FieldTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        let mut seen = Redaction::default();
        let asked = self.endpoint.request(&self.document(&parameters), &parameters, &mut seen)?;
        let caller = &self.endpoint.caller;
        let reply = caller.call(&self.definition, asked, &cx, &seen).await?;
        data(reply, &self.field, self.definition.effect, (caller.most, &seen))
    }
}
