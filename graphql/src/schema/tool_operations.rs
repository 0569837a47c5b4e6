use async_graphql::{Context, InputObject, Object, Result};
use engine::{CallReport, DirectCall, Engine, EngineError};
use serde_json::{Value, json};
use shared::{
    id::{ToolName, ToolSetName},
    store::{AuditAction, AuditTarget},
};
use toolbox::{ToolLookup, Toolbox};

use super::{
    ClientGone,
    error::ApiError,
    plan::Effect,
    tool::{Tool, ToolCall, ToolResult, ToolSet, ToolSetChange, ToolUsage},
};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolQuery;

#[Object]
impl ToolQuery {
    /// Tools, in the order of their toolsets.
    async fn tools(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Returns tools of this toolset only. Default: all toolsets.")]
        tool_set: Option<String>,
        #[graphql(
            desc = "Words or parts of words that the name, the description or the examples \
                    must contain, ignoring case."
        )]
        search: Option<String>,
        #[graphql(desc = "True: tools of active toolsets only.", default_with = "Some(false)")]
        active_only: Option<bool>,
    ) -> Result<Vec<Tool>> {
        let engine = ctx.data::<Engine>()?;
        engine.tools.inventory.wait_until_connected().await;
        let search = search.unwrap_or_default().to_lowercase();
        let words: Vec<String> = search.split_whitespace().map(str::to_owned).collect();
        let sets = engine.tools.sets();
        let requested = |name: &str| tool_set.as_ref().is_none_or(|wanted| wanted == name);
        let tools =
            sets.iter().filter(|set| requested(set.name.as_str())).flat_map(Tool::list_of_set);
        let tools = tools.filter(|tool| tool.is_active() || !active_only.unwrap_or(false));
        Ok(tools.filter(|tool| tool.has_words(&words)).collect())
    }

    /// One tool. Null if no tool has the name.
    async fn tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the tool, or `set.name`.")] name: String,
    ) -> Result<Option<Tool>> {
        let engine = ctx.data::<Engine>()?;
        if let Ok(name) = name.parse() {
            engine.tools.inventory.wait_for_tools(&[name]).await;
        }
        Ok(find_tool(engine.tools.inventory.toolbox(), &name)
            .filter(|tool| engine.grant().allows(&tool.qualified_tool_name())))
    }

    /// All toolsets, in the order in which a tool name without a toolset is looked up.
    async fn tool_sets(&self, ctx: &Context<'_>) -> Vec<ToolSet> {
        let engine = ctx.data_unchecked::<Engine>();
        // Does not wait for toolsets that are connecting, because the list shows their status.
        engine.tools.inventory.read_changes().await;
        engine.tools.sets().into_iter().map(ToolSet).collect()
    }

    /// Usage of each tool, in plans and outside plans, on all nodes. Tools that were never called
    /// are missing.
    async fn tool_usage(&self, ctx: &Context<'_>) -> Result<Vec<ToolUsage>> {
        let usage = ctx.data::<Engine>()?.tools.load_usage().await.map_err(ApiError::from)?;
        Ok(usage.into_iter().map(ToolUsage::from).collect())
    }

    /// Calls outside plans, newest first. Faber keeps the newest 10000 calls. Calls in plans are
    /// events of their executions.
    async fn tool_history(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Returns calls of this tool only, by its name or as `set.name`.")]
        tool_name: Option<String>,
        #[graphql(desc = "Page size, from 1 to 1000.", default_with = "Some(100)")] first: Option<
            i32,
        >,
    ) -> Result<Vec<ToolResult>> {
        let first = first.unwrap_or(100);
        let maximum = usize::try_from(first).ok().filter(|first| (1..=1_000).contains(first));
        let maximum = maximum.ok_or_else(|| {
            let reason = format!("`first` is {first}; write a number from 1 to 1000");
            ApiError::from(EngineError::InvalidArgument(reason))
        })?;
        let calls = ctx.data::<Engine>()?.tools.list_calls(tool_name.as_deref(), maximum).await;
        Ok(calls.map_err(ApiError::from)?.into_iter().map(ToolResult).collect())
    }

    /// JSON object that maps the name of each tool to its schema for models. Contains the tools of
    /// the given capabilities (`code_writing`, `debugging`, `research`, `planning`,
    /// `system_operations`, `security`), or all tools.
    async fn tool_schemas(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Capabilities. An unknown one adds no tools. Default: all tools.")]
        capabilities: Option<Vec<String>>,
    ) -> Result<Value> {
        let capabilities = capabilities.unwrap_or_default();
        let names: Vec<&str> = capabilities.iter().map(String::as_str).collect();
        Ok(Value::Object(ctx.data::<Engine>()?.tools.tool_schemas(&names).await))
    }

    /// Tool calls that a model's reply contains, in the order of the reply. Each call can have any
    /// supported format. Calls of tools that are not registered are ignored.
    async fn parse_tool_calls(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Reply of the model, at most 4 MiB.")] text: String,
    ) -> Result<Vec<ToolCall>> {
        let calls =
            ctx.data::<Engine>()?.tools.parse_tool_calls(&text).await.map_err(ApiError::from)?;
        Ok(calls.into_iter().map(ToolCall).collect())
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolMutation;

#[Object]
impl ToolMutation {
    /// Registers a tool permanently, on all nodes. Fails with `CONFLICT` if the name is taken.
    async fn register_tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Tool to register.")] input: ToolInput,
    ) -> Result<Tool> {
        let engine = ctx.data::<Engine>()?;
        let set = input.tool_set.clone();
        let name = engine.tools.register_tool(set.as_deref(), input.into_configuration()).await;
        let name = name.map_err(ApiError::from)?;
        record_change(engine, AuditAction::REGISTER_TOOL, name.as_str()).await;
        let missing = || EngineError::not_found("tool", &name);
        let tool = find_tool(engine.tools.inventory.toolbox(), name.as_str());
        Ok(tool.ok_or_else(missing).map_err(ApiError::from)?)
    }

    /// Removes a registered tool. Returns false if no tool has the name. Fails with `CONFLICT` if
    /// the tool was not registered through the API.
    async fn remove_tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the tool, or `set.name`.")] name: String,
    ) -> Result<bool> {
        let Ok(name) = name.parse::<ToolName>() else { return Ok(false) };
        let engine = ctx.data::<Engine>()?;
        let removed = engine.tools.inventory.registry().unregister(&name).await;
        let removed = removed.map_err(ApiError::from)?;
        if removed {
            record_change(engine, AuditAction::REMOVE_TOOL, name.as_str()).await;
        }
        Ok(removed)
    }

    /// Adds a toolset permanently, on all nodes. It connects in the background (see `status`).
    /// Fails with `CONFLICT` if the name is taken.
    async fn add_tool_set(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Toolset to add.")] input: ToolSetInput,
    ) -> Result<ToolSet> {
        let engine = ctx.data::<Engine>()?;
        let set =
            engine.tools.add_tool_set(input.into_configuration()).await.map_err(ApiError::from)?;
        record_change(engine, AuditAction::ADD_TOOL_SET, set.name.as_str()).await;
        Ok(ToolSet(set))
    }

    /// Removes an added toolset and the tools that were registered in it. Returns false if no
    /// toolset has the name. Fails with `CONFLICT` if the toolset is configured.
    async fn remove_tool_set(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the toolset.")] name: String,
    ) -> Result<bool> {
        let Ok(name) = name.parse::<ToolSetName>() else { return Ok(false) };
        let engine = ctx.data::<Engine>()?;
        let removed = engine.tools.inventory.registry().remove_set(&name).await;
        let removed = removed.map_err(ApiError::from)?;
        if removed {
            record_change(engine, AuditAction::REMOVE_TOOL_SET, name.as_str()).await;
        }
        Ok(removed)
    }

    /// Activates toolsets on all nodes, so that plans can use their tools. Unknown names are
    /// returned in `notFound`.
    async fn activate_tool_sets(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Names of the toolsets.")] names: Vec<String>,
    ) -> Result<ToolSetChange> {
        switch_sets(ctx.data::<Engine>()?, &names, true).await
    }

    /// Deactivates toolsets on all nodes. Their tools can then neither be planned nor called.
    /// Unknown names are returned in `notFound`.
    async fn deactivate_tool_sets(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Names of the toolsets.")] names: Vec<String>,
    ) -> Result<ToolSetChange> {
        switch_sets(ctx.data::<Engine>()?, &names, false).await
    }

    /// Calls one tool outside plans, and returns when the call has finished. An error of the tool
    /// is part of the result. The history records the call, and the audit log records it if the tool
    /// was called.
    async fn call_tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the tool, or `set.name`.")] name: String,
        #[graphql(desc = "Parameters of the call, a JSON object. Default: `{}`.")]
        parameters: Option<Value>,
    ) -> Result<ToolResult> {
        let client_gone =
            ctx.data_opt::<ClientGone>().map(|gone| gone.0.clone()).unwrap_or_default();
        let parameters =
            parameters.filter(|parameters| !parameters.is_null()).unwrap_or_else(|| json!({}));
        let engine = ctx.data::<Engine>()?;
        let called = engine.tools.call_tool(&name, parameters, client_gone).await;
        let CallReport { call, called } = called.map_err(ApiError::from)?;
        if let Some(tool) = called {
            record_call(engine, &tool, &call).await;
        }
        Ok(ToolResult(call))
    }

    /// Changes the data of a context by JSON Merge Patch, on all nodes: fields are replaced, and
    /// null removes a field. Toolsets whose `condition` reads the context appear or disappear.
    /// Always returns true.
    async fn set_context(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Name of the context.")] name: String,
        #[graphql(desc = "Patch for the data, a JSON object.")] data: Value,
    ) -> Result<bool> {
        let engine = ctx.data::<Engine>()?;
        let registry = engine.tools.inventory.registry();
        registry.set_context(&name, &data).await.map_err(ApiError::from)?;
        record_change(engine, AuditAction::SET_CONTEXT, &name).await;
        Ok(true)
    }
}

fn find_tool(toolbox: &Toolbox, name: &str) -> Option<Tool> {
    let name = name.parse().ok()?;
    let (ToolLookup::Tool(found) | ToolLookup::Inactive(found)) = toolbox.find(&name) else {
        return None;
    };
    let definition = found.definition();
    let set = toolbox.set(&definition.set)?;
    Some(Tool::new(definition, &set))
}

/// Records a call outside plans in the audit log. Parameters and output stay out, because an audit
/// entry outlives the call's entry in the history and is never encrypted.
async fn record_call(engine: &Engine, tool: &ToolName, call: &DirectCall) {
    let outcome = if call.result.is_ok() { "SUCCEEDED" } else { "FAILED" };
    let detail = json!({ "callId": call.id, "outcome": outcome });
    let target = AuditTarget::named(tool.as_str());
    engine.executions.record_action(AuditAction::CALL_TOOL, target, detail).await;
}

async fn record_change(engine: &Engine, action: AuditAction, name: &str) {
    engine.executions.record_action(action, AuditTarget::named(name), Value::Null).await;
}

async fn switch_sets(engine: &Engine, names: &[String], is_active: bool) -> Result<ToolSetChange> {
    let switch_result =
        engine.tools.inventory.switch(names, is_active).await.map_err(ApiError::from)?;
    for name in &switch_result.changed {
        let action = if is_active {
            AuditAction::ACTIVATE_TOOL_SET
        } else {
            AuditAction::DEACTIVATE_TOOL_SET
        };
        record_change(engine, action, name).await;
    }
    let tool_sets = engine.tools.sets().into_iter().map(ToolSet).collect();
    Ok(ToolSetChange { switch_result, tool_sets })
}

/// Tool to register.
#[derive(InputObject)]
pub(super) struct ToolInput {
    /// Name of the tool within its toolset.
    name: String,
    /// Description of what the tool does.
    description: String,
    /// JSON Schema of the parameters.
    parameters: Value,
    /// JSON Schema of the output. Plans are checked against it, and a call fails if its output does
    /// not fit. Default: any output.
    output_schema: Option<Value>,
    /// Toolset to which the tool is added: a new toolset, or a toolset whose source is a list of
    /// tools. Default: `local`. Without `toolSet`, the name must not be the name of any other tool,
    /// because plans then use it without the name of a toolset.
    tool_set: Option<String>,
    /// Effect of the tool: what a second call does. Default: `READ` for an HTTP call with `GET`,
    /// `HEAD` or `OPTIONS`, `IDEMPOTENT` for an HTTP call with `PUT` or `DELETE`, otherwise `ONCE`.
    effect: Option<Effect>,
    /// Sentences with which people ask for the tool. Tool selection uses them.
    examples: Option<Vec<String>>,
    /// Command or HTTP call of the tool, as in the configuration, such as
    /// `{"command": ["date", "-u"]}`. With `{}`, the tool can be selected, but not called.
    run: Value,
}

impl ToolInput {
    fn into_configuration(self) -> Value {
        let effect = self.effect.map(shared::tool::Effect::from);
        let is_callable = self.run.as_object().is_none_or(|fields| !fields.is_empty());
        let mut settings = json!({
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "effect": effect,
            "examples": self.examples.unwrap_or_default(),
            "run": is_callable.then_some(self.run),
        });
        if let Some(schema) = self.output_schema {
            settings["outputSchema"] = schema;
        }
        settings
    }
}

/// Toolset to add.
#[derive(InputObject)]
pub(super) struct ToolSetInput {
    /// Name of the toolset.
    name: String,
    /// Purpose of the toolset, in words.
    description: String,
    /// True if plans can use the toolset at once, without `activateToolSets`.
    #[graphql(default_with = "Some(true)")]
    active: Option<bool>,
    /// Source of the tools, as in the configuration, such as `{"mcp": {"command": "…"}}`.
    source: Value,
    /// Name of the context that `condition` reads. Default: each field is read from the first
    /// context that has it.
    context: Option<String>,
    /// Condition in CEL over the data of the context, such as `adminMode == true`. The toolset
    /// exists while the condition is true. Default: the toolset always exists.
    condition: Option<String>,
}

impl ToolSetInput {
    fn into_configuration(self) -> Value {
        let mut written = json!({
            "name": self.name,
            "description": self.description,
            "active": self.active.unwrap_or(true),
            "source": self.source,
        });
        for (key, value) in [("context", self.context), ("condition", self.condition)] {
            if let Some(value) = value {
                written[key] = Value::from(value);
            }
        }
        written
    }
}
