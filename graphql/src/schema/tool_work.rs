//! What anybody may ask of tools, and do with them.

use async_graphql::{Context, InputObject, Object, Result};
use serde_json::{Value, json};
use toolbox::{Found, Toolbox};

use super::{
    ClientGone,
    error::ApiError,
    plan::Effect,
    tool::{Tool, ToolCall, ToolResult, ToolSet, ToolSetChange, ToolUsage},
};
use crate::engine::{Engine, EngineError};

/// Tools and toolsets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolQuery;

/// Tools and toolsets.
#[Object]
impl ToolQuery {
    /// Tools, in the order in which their sets were registered.
    async fn tools(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Only those of this toolset.")] tool_set: Option<String>,
        #[graphql(desc = "Only those with all of these words in name, description or examples.")]
        search: Option<String>,
        #[graphql(desc = "Only those that plans may use.", default_with = "Some(false)")]
        active_only: Option<bool>,
    ) -> Result<Vec<Tool>> {
        let engine = ctx.data::<Engine>()?;
        engine.tools.inventory.settled().await;
        let search = search.unwrap_or_default().to_lowercase();
        let words: Vec<String> = search.split_whitespace().map(str::to_owned).collect();
        let sets = engine.tools.sets();
        let asked = |name: &str| tool_set.as_ref().is_none_or(|wanted| wanted == name);
        let tools = sets.iter().filter(|set| asked(set.name.as_str())).flat_map(Tool::of);
        let tools = tools.filter(|tool| tool.is_active() || !active_only.unwrap_or(false));
        Ok(tools.filter(|tool| tool.has_words(&words)).collect())
    }

    /// One tool.
    async fn tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Its name, or `set.name`.")] name: String,
    ) -> Result<Option<Tool>> {
        let engine = ctx.data::<Engine>()?;
        if let Ok(name) = name.parse() {
            engine.tools.inventory.certain(&[name]).await;
        }
        Ok(find(engine.tools.inventory.toolbox(), &name)
            .filter(|tool| engine.grant().allows(&tool.qualified())))
    }

    /// Every toolset, in the order in which they were registered.
    async fn tool_sets(&self, ctx: &Context<'_>) -> Vec<ToolSet> {
        let engine = ctx.data_unchecked::<Engine>();
        // Those that are connecting are shown as such.
        engine.tools.inventory.catch_up().await;
        engine.tools.sets().into_iter().map(ToolSet).collect()
    }

    /// How often each tool was called, in plans and outside, by every node. Tools that were never
    /// called are not here.
    async fn tool_usage(&self, ctx: &Context<'_>) -> Result<Vec<ToolUsage>> {
        let usage = ctx.data::<Engine>()?.tools.usage().await.map_err(ApiError::from)?;
        Ok(usage.into_iter().map(ToolUsage::from).collect())
    }

    /// Calls outside plans, the newest first. What plans call is in the events of their executions.
    async fn tool_history(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Only calls of this tool.")] tool_name: Option<String>,
        #[graphql(desc = "At most so many, 1 to 1000.", default_with = "Some(100)")] first: Option<
            i32,
        >,
    ) -> Result<Vec<ToolResult>> {
        let first = first.unwrap_or(100);
        let most = usize::try_from(first).ok().filter(|first| (1..=1_000).contains(first));
        let most = most.ok_or_else(|| {
            let why = format!("`first` is {first}; it is 1 to 1000");
            ApiError::from(EngineError::InvalidArgument(why))
        })?;
        let calls = ctx.data::<Engine>()?.tools.list_calls(tool_name.as_deref(), most).await;
        Ok(calls.map_err(ApiError::from)?.into_iter().map(ToolResult).collect())
    }

    /// What models are told of tools, by the tools' names: of those that go with capabilities
    /// (`code_writing`, `debugging`, `research`, `planning`, `system_operations`, `security`), or
    /// of all where none is named.
    async fn tool_schemas(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The capabilities. An unknown one has no tools.")] capabilities: Option<
            Vec<String>,
        >,
    ) -> Result<Value> {
        let capabilities = capabilities.unwrap_or_default();
        let names: Vec<&str> = capabilities.iter().map(String::as_str).collect();
        Ok(Value::Object(ctx.data::<Engine>()?.tools.tool_schemas(&names).await))
    }

    /// The calls that a model's reply asks for, in whatever format, in their order. Only registered
    /// tools count.
    async fn parse_tool_calls(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The reply.")] text: String,
    ) -> Result<Vec<ToolCall>> {
        let calls =
            ctx.data::<Engine>()?.tools.parse_tool_calls(&text).await.map_err(ApiError::from)?;
        Ok(calls.into_iter().map(ToolCall).collect())
    }
}

/// Tools and toolsets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolMutation;

/// Tools and toolsets.
#[Object]
impl ToolMutation {
    /// Registers a tool, on every node and for good. One that exists is not overwritten.
    async fn register_tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The tool.")] input: ToolInput,
    ) -> Result<Tool> {
        let engine = ctx.data::<Engine>()?;
        let set = input.tool_set.clone();
        let name = engine.tools.register_tool(set.as_deref(), input.into_written()).await;
        let name = name.map_err(ApiError::from)?;
        let missing = || EngineError::not_found("tool", &name);
        let tool = find(engine.tools.inventory.toolbox(), name.as_str());
        Ok(tool.ok_or_else(missing).map_err(ApiError::from)?)
    }

    /// Removes a tool that was registered; false where there is none.
    async fn remove_tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Its name, or `set.name`.")] name: String,
    ) -> Result<bool> {
        let Ok(name) = name.parse() else { return Ok(false) };
        let registry = ctx.data::<Engine>()?.tools.inventory.registry();
        Ok(registry.unregister(&name).await.map_err(ApiError::from)?)
    }

    /// Adds a toolset, on every node and for good. It connects in its own time: ask for its
    /// `status`. Where its condition does not hold yet it is not active and has no tools.
    async fn add_tool_set(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The toolset.")] input: ToolSetInput,
    ) -> Result<ToolSet> {
        let engine = ctx.data::<Engine>()?;
        let set = engine.tools.add_tool_set(input.into_written()).await.map_err(ApiError::from)?;
        Ok(ToolSet(set))
    }

    /// Removes a toolset that was added, with the tools that were registered into it; false where
    /// there is none.
    async fn remove_tool_set(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Its name.")] name: String,
    ) -> Result<bool> {
        let Ok(name) = name.parse() else { return Ok(false) };
        let registry = ctx.data::<Engine>()?.tools.inventory.registry();
        Ok(registry.remove_set(&name).await.map_err(ApiError::from)?)
    }

    /// Switches toolsets on, so that plans may use their tools. Unknown names are reported, and
    /// the rest is done.
    async fn activate_tool_sets(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Their names.")] names: Vec<String>,
    ) -> Result<ToolSetChange> {
        switch(ctx.data::<Engine>()?, &names, true).await
    }

    /// Switches toolsets off: their tools can neither be planned nor called. Unknown names are
    /// reported, and the rest is done.
    async fn deactivate_tool_sets(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Their names.")] names: Vec<String>,
    ) -> Result<ToolSetChange> {
        switch(ctx.data::<Engine>()?, &names, false).await
    }

    /// Calls a tool once, outside any plan, and waits for what it returns. The call is kept in the
    /// history.
    async fn call_tool(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Its name, or `set.name`.")] name: String,
        #[graphql(desc = "What it is given; nothing, where it is left out.")] parameters: Option<
            Value,
        >,
    ) -> Result<ToolResult> {
        let left = ctx.data_opt::<ClientGone>().map(|gone| gone.0.clone()).unwrap_or_default();
        let parameters =
            parameters.filter(|parameters| !parameters.is_null()).unwrap_or_else(|| json!({}));
        let called = ctx.data::<Engine>()?.tools.call_tool(&name, parameters, left).await;
        Ok(ToolResult(called.map_err(ApiError::from)?))
    }

    /// Changes the data of a context: fields are replaced, those that are null removed. Toolsets
    /// with a condition appear or go as it then says.
    async fn set_context(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The context.")] name: String,
        #[graphql(desc = "Its new data, an object.")] data: Value,
    ) -> Result<bool> {
        let registry = ctx.data::<Engine>()?.tools.inventory.registry();
        registry.set_context(&name, &data).await.map_err(ApiError::from)?;
        Ok(true)
    }
}

fn find(toolbox: &Toolbox, name: &str) -> Option<Tool> {
    let name = name.parse().ok()?;
    let (Found::Tool(found) | Found::Inactive(found)) = toolbox.find(&name) else { return None };
    let definition = found.definition();
    let set = toolbox.set(&definition.set)?;
    Some(Tool::new(definition, &set))
}

async fn switch(engine: &Engine, names: &[String], on: bool) -> Result<ToolSetChange> {
    let switched = engine.tools.inventory.switch(names, on).await.map_err(ApiError::from)?;
    let tool_sets = engine.tools.sets().into_iter().map(ToolSet).collect();
    Ok(ToolSetChange { switched, tool_sets })
}

/// A tool to be registered.
#[derive(InputObject)]
pub(super) struct ToolInput {
    /// Its name within its toolset.
    name: String,
    /// What it does, in words.
    description: String,
    /// The JSON Schema of its parameters.
    parameters: Value,
    /// The toolset it goes into: a new one, or one whose tools are written down. `local` where it
    /// is left out; then nothing may have the name yet.
    tool_set: Option<String>,
    /// What a second call does. Where it is left out an HTTP call is what its method says (GET and
    /// HEAD: READ, PUT and DELETE: IDEMPOTENT), and everything else ONCE.
    effect: Option<Effect>,
    /// Sentences that people would say when they want it.
    examples: Option<Vec<String>>,
    /// What it runs, as in the configuration: `{"command": ["date", "-u"]}`. With `{}` it can be
    /// selected, but neither planned nor called.
    run: Value,
}

impl ToolInput {
    /// Returns it as the configuration has it.
    fn into_written(self) -> Value {
        let effect = self.effect.map(shared::tool::Effect::from);
        let is_callable = self.run.as_object().is_none_or(|fields| !fields.is_empty());
        json!({
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "effect": effect,
            "examples": self.examples.unwrap_or_default(),
            "run": is_callable.then_some(self.run),
        })
    }
}

/// A toolset to be added.
#[derive(InputObject)]
pub(super) struct ToolSetInput {
    /// Its name.
    name: String,
    /// What it is for, in words.
    description: String,
    /// Whether plans may use it at first.
    #[graphql(default_with = "Some(true)")]
    active: Option<bool>,
    /// Where its tools come from, as in the configuration: `{"mcp": {"command": "…"}}`.
    source: Value,
    /// The context that it comes from, whose data its condition asks for; all contexts, where it is
    /// left out.
    context: Option<String>,
    /// When it is there: CEL over the data of its context, such as `adminMode == true`. Always,
    /// where it is left out.
    condition: Option<String>,
}

impl ToolSetInput {
    /// Returns it as the configuration has it.
    fn into_written(self) -> Value {
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
