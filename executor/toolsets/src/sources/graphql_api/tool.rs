use std::sync::Arc;

use async_trait::async_trait;
use secrets::Redaction;
use serde_json::Value;
use shared::{
    id::ToolSetName,
    tool::{Effect, ToolDefinition, ToolError},
};
use toolbox::{Tool, ToolContext};

use super::{Endpoint, answer::read_data, arguments, introspection::Types, select::select};
use crate::sources::offer::{MAX_TOOLS, UniqueNames, clip_description};

/// The kind of a GraphQL operation. It is stored beside the effect, because the configuration can
/// set the effect of a mutation to `read`.
#[derive(Clone, Copy, Debug)]
enum OperationKind {
    Query,
    Mutation,
}

impl OperationKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Mutation => "mutation",
        }
    }

    fn effect(self) -> Effect {
        match self {
            Self::Query => Effect::Read,
            Self::Mutation => Effect::Once,
        }
    }
}

#[derive(Debug)]
struct FieldTool {
    definition: Arc<ToolDefinition>,
    kind: OperationKind,
    endpoint: Arc<Endpoint>,
    /// The field of the operation. The tool's name can differ, because a number may follow the
    /// field's name.
    field: String,
    arguments: Vec<(String, String)>,
    selection: String,
}

pub(super) fn tools(
    set: &ToolSetName,
    endpoint: &Arc<Endpoint>,
    types: &Types,
    is_wanted: &dyn Fn(&str) -> bool,
) -> Result<Vec<Arc<dyn Tool>>, String> {
    let (queries, mutations) =
        (types.fields(types.query_type.as_deref()), types.fields(types.mutation_type.as_deref()));
    let max_nodes = arguments::nodes_per_tool(queries.len() + mutations.len());
    let mut names = UniqueNames::new(set);
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    let queries = queries.iter().map(|field| (OperationKind::Query, field));
    let mutations = mutations.iter().map(|field| (OperationKind::Mutation, field));
    for (kind, field) in queries.chain(mutations) {
        let name = names.take(&field.name);
        if !is_wanted(&name) {
            continue;
        }
        if tools.len() == MAX_TOOLS {
            return Err(format!(
                "the endpoint offers more than {MAX_TOOLS} queries and mutations: choose fewer \
                 with `include`"
            ));
        }
        let Ok(name) = name.parse() else {
            tracing::warn!(%set, %name, "a field of the endpoint is left out");
            continue;
        };
        let (selection, output) = select(types, &field.type_ref, endpoint.config.depth);
        let definition = ToolDefinition {
            name,
            set: set.clone(),
            description: clip_description(field.description.as_deref().unwrap_or_default()),
            input_schema: arguments::build_schema(types, &field.args, max_nodes),
            output_schema: Some(output),
            effect: kind.effect(),
            examples: Vec::new(),
            is_callable: true,
        };
        tools.push(Arc::new(FieldTool {
            definition: Arc::new(endpoint.effects.apply(definition)),
            kind,
            endpoint: Arc::clone(endpoint),
            field: field.name.clone(),
            arguments: field
                .args
                .iter()
                .map(|argument| (argument.name.clone(), argument.type_ref.to_graphql()))
                .collect(),
            selection,
        }));
    }
    Ok(tools)
}

impl FieldTool {
    /// Writes the GraphQL document of a call. Leaves out absent arguments, because some servers
    /// treat a variable without a value as null.
    fn write_document(&self, parameters: &Value) -> String {
        let Self { kind, field, arguments, selection, .. } = self;
        let kind = kind.as_str();
        let given: Vec<_> =
            arguments.iter().filter(|(name, _)| parameters.get(name).is_some()).collect();
        if given.is_empty() {
            return format!("{kind} {field} {{ {field}{selection} }}");
        }
        let join = |all: Vec<String>| all.join(", ");
        let variables =
            join(given.iter().map(|(name, type_ref)| format!("${name}: {type_ref}")).collect());
        let values = join(given.iter().map(|(name, _)| format!("{name}: ${name}")).collect());
        format!("{kind} {field}({variables}) {{ {field}({values}){selection} }}")
    }
}

#[async_trait]
impl Tool for FieldTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        let mut redaction = Redaction::default();
        let request = self.endpoint.request(
            &self.write_document(&parameters),
            &parameters,
            &mut redaction,
        )?;
        let caller = &self.endpoint.caller;
        let reply = caller.call(&self.definition, request, &cx, &redaction).await?;
        read_data(reply, &self.field, self.definition.effect, caller.max_bytes, &redaction)
    }
}
