//! Toolsets and single calls: what is asked for outside any plan.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use executor::{
    call,
    registry::{Registry, RegistryError, Switched},
    toolbox::Found,
    worker::CallPermit,
};
use planner::calls::{CatalogNames, ToolCall, parse_tool_calls, schemas::schemas_for};
use serde_json::{Map, Value, json};
use shared::{
    clock::Timestamp,
    id::{CallId, ToolName, ToolSetName},
    limits,
    store::{Record, RecordKind, RecordPage, StoreError, Unless, Usage},
    tool::Effect,
};
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{Engine, EngineError};

/// The most calls that one look at the history returns.
const HISTORY: usize = 1_000;

/// How long a call waits for room within the limits on calls: whoever asks waits, too.
const PERMIT_WAIT: Duration = Duration::from_secs(30);
/// Calls that may wait for such room in this process, those of steps included.
const WAITING: usize = 10_000;
/// How often what was counted is added to the store.
const FLUSH: Duration = Duration::from_secs(1);

/// A call outside any plan.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectCall {
    /// Identifies it.
    pub id: String,
    /// The tool, as it was asked for or, where there is one, by its qualified name.
    pub tool: String,
    /// What it was given.
    pub parameters: Value,
    /// What it returned, or why it failed.
    pub result: Result<Value, String>,
    /// How long it took, in milliseconds.
    pub duration_ms: f64,
    /// When it began.
    pub at: Timestamp,
}

impl Engine {
    /// Returns which toolsets there are.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Calls a tool once, and keeps what became of it.
    ///
    /// A tool that changes something is called once the store has it that it will be: a call that
    /// nobody saw the end of is in the history, too.
    pub async fn call_tool(
        &self,
        name: &str,
        parameters: Value,
        left: CancellationToken,
    ) -> Result<DirectCall, EngineError> {
        let at = self.clock.now();
        let mut call = DirectCall {
            id: CallId::draw(at).to_string(),
            tool: name.to_owned(),
            parameters,
            result: Err("the outcome is unknown: whoever called did not wait for it".to_owned()),
            duration_ms: 0.0,
            at,
        };
        let Some((tool, effect)) = self.known_tool(name).await else {
            self.grant.spend([])?;
            call.result = Err(format!("Tool not found: {name}"));
            self.keep_call(&call).await?;
            return Ok(call);
        };
        call.tool = tool.to_string();
        self.grant.check_tools([&tool])?;
        self.grant.spend([&tool])?;
        let _permit = self.permit(&call, &tool, &left).await?;
        if effect != Effect::Read {
            self.keep_call(&call).await?;
        }
        let started = Instant::now();
        let parameters = Arc::new(call.parameters.clone());
        let result = call::outside(tool, parameters, left, &self.toolbox, &self.options).await;
        call.duration_ms = started.elapsed().as_secs_f64() * 1e3;
        call.result = result.map_err(|err| err.to_string());
        self.keep_call(&call).await?;
        Ok(call)
    }

    /// Waits until a call fits into the limits that all nodes share, as a step of a plan does, but
    /// no longer than whoever calls can be expected to.
    async fn permit(
        &self,
        call: &DirectCall,
        tool: &ToolName,
        left: &CancellationToken,
    ) -> Result<Option<CallPermit>, EngineError> {
        let limits = self.options.calls.of(tool, &call.parameters);
        if limits.is_empty() {
            return Ok(None);
        }
        let keys: Vec<_> = limits.iter().map(|it| format!("`{}`", it.key)).collect();
        let keys = keys.join(", ");
        let refused = |why: String| {
            EngineError::LimitExceeded(format!("calls of `{tool}` are limited by {keys}: {why}"))
        };
        let Some(worker) = self.control.worker() else {
            let why = "this process cannot count them, so let a server call it";
            return Err(refused(why.to_owned()));
        };
        if worker.waiting_for_permits() >= WAITING {
            return Err(refused(format!("{WAITING} calls wait already; try again later")));
        }
        let permit = tokio::select! {
            permit = worker.permit(call.id.clone(), limits, PERMIT_WAIT) => permit,
            () = left.cancelled() => return Err(refused("nobody waits for it any more".to_owned())),
        };
        let seconds = PERMIT_WAIT.as_secs();
        let late = || refused(format!("there was no room within {seconds} s; try again later"));
        permit.ok_or_else(late).map(Some)
    }

    /// Returns what a name means, once the set that may have it is known.
    async fn known_tool(&self, name: &str) -> Option<(ToolName, Effect)> {
        let name: ToolName = name.parse().ok()?;
        if matches!(self.toolbox.find(&name), Found::Connecting) {
            self.settled().await;
        }
        match self.toolbox.find(&name) {
            Found::Tool(it) | Found::Inactive(it) => {
                Some((it.definition().qualified(), it.definition().effect))
            }
            // The call itself says what is wrong with the set.
            Found::Connecting | Found::Failed { .. } => Some((name, Effect::Read)),
            Found::Unknown => None,
        }
    }

    async fn keep_call(&self, call: &DirectCall) -> Result<(), StoreError> {
        let (result, error) = match &call.result {
            Ok(result) => (result.clone(), Value::Null),
            Err(why) => (Value::Null, Value::from(why.as_str())),
        };
        let value = json!({
            "tool": call.tool,
            "parameters": call.parameters,
            "result": result,
            "error": error,
            "durationMs": call.duration_ms,
        });
        let record = Record {
            kind: RecordKind::Call,
            // They are listed by their names, and these order by time.
            name: format!("{:020} {}", call.at.timestamp_micros(), call.id),
            value: Arc::new(value),
            at: call.at,
        };
        self.store.put_record(&record, Unless::Never).await.map(drop)
    }

    /// Returns the last calls outside plans, the newest first.
    pub async fn history(
        &self,
        tool: Option<&str>,
        first: usize,
    ) -> Result<Vec<DirectCall>, EngineError> {
        let name = match tool {
            Some(name) => self.known_tool(name).await.map(|(it, _)| it.to_string()),
            None => None,
        };
        let name = name.or_else(|| tool.map(str::to_owned));
        let mut calls = Vec::new();
        let mut after = None;
        let most = first.min(HISTORY);
        while calls.len() < most {
            let page = RecordPage { after, newest: true, ..RecordPage::first(HISTORY) };
            let records = self.store.records(RecordKind::Call, page).await?;
            after = records.last().map(|it| it.name.clone());
            let is_last = records.len() < HISTORY;
            let found = records.into_iter().filter_map(read);
            let found = found.filter(|it| self.may_see(&it.tool));
            calls.extend(found.filter(|it| name.as_ref().is_none_or(|name| it.tool == *name)));
            if is_last {
                break;
            }
        }
        calls.truncate(most);
        Ok(calls)
    }

    /// Reads the calls that a model's reply asks for.
    pub async fn tool_calls(&self, text: &str) -> Result<Vec<ToolCall>, EngineError> {
        let catalog = self.catalog().await;
        let names = CatalogNames::new(&catalog);
        parse_tool_calls(text, &|it| names.find(it))
            .map_err(|err| EngineError::LimitExceeded(err.to_string()))
    }

    /// Returns what models are told of the tools that go with capabilities; of all, where none is
    /// named.
    pub async fn tool_schemas(&self, capabilities: &[&str]) -> Map<String, Value> {
        let catalog = self.catalog().await;
        let tools: Vec<_> = catalog.tools().iter().map(|it| &*it.definition).collect();
        schemas_for(capabilities, tools)
    }

    /// Returns how often tools were called, by all nodes, in plans and outside.
    pub async fn usage(&self) -> Result<Vec<Usage>, EngineError> {
        self.toolbox.meter().flush(&*self.store, self.clock.now()).await?;
        let mut usage = self.store.usage().await?;
        usage.retain(|it| self.grant.allows(&it.tool));
        Ok(usage)
    }

    /// Returns whether whoever asks may know of calls of a tool. What is no name was never called.
    fn may_see(&self, tool: &str) -> bool {
        self.grant.allows_every_tool() || tool.parse().is_ok_and(|it| self.grant.allows(&it))
    }

    /// Adds what is counted of calls to the store every now and then, until `stop`.
    pub async fn keep_usage(self, stop: CancellationToken) {
        loop {
            let is_last = tokio::select! {
                () = stop.cancelled() => true,
                () = time::sleep(FLUSH) => false,
            };
            if let Err(err) = self.toolbox.meter().flush(&*self.store, self.clock.now()).await {
                tracing::warn!(%err, "cannot count the calls of tools");
            }
            if is_last {
                return;
            }
        }
    }

    /// Adds a toolset.
    pub async fn add_tool_set(&self, written: Value) -> Result<(), EngineError> {
        Ok(self.registry.add_set(written).await?)
    }

    /// Removes a toolset that was added; returns whether there was one.
    pub async fn remove_tool_set(&self, name: &str) -> Result<bool, EngineError> {
        let Ok(name) = name.parse::<ToolSetName>() else { return Ok(false) };
        Ok(self.registry.remove_set(&name).await?)
    }

    /// Registers a tool, and returns the name that always means it.
    pub async fn register_tool(
        &self,
        set: Option<&str>,
        written: Value,
    ) -> Result<ToolName, EngineError> {
        Ok(self.registry.register(set, written).await?)
    }

    /// Removes a tool that was registered; returns whether there was one.
    pub async fn remove_tool(&self, name: &str) -> Result<bool, EngineError> {
        let Ok(name) = name.parse() else { return Ok(false) };
        Ok(self.registry.unregister(&name).await?)
    }

    /// Switches toolsets on or off.
    pub async fn switch(&self, names: &[String], on: bool) -> Result<Switched, EngineError> {
        if names.len() > limits::TOOL_SETS {
            let why = format!("{} names at once; the most is {}", names.len(), limits::TOOL_SETS);
            return Err(EngineError::LimitExceeded(why));
        }
        Ok(self.registry.switch(names, on).await?)
    }

    /// Changes the data of a context.
    pub async fn set_context(&self, name: &str, data: &Value) -> Result<(), EngineError> {
        Ok(self.registry.set_context(name, data).await?)
    }
}

fn read(record: Record) -> Option<DirectCall> {
    let Record { name, value, at, .. } = record;
    let mut value = Arc::unwrap_or_clone(value);
    let result = match value["error"].as_str() {
        Some(why) => Err(why.to_owned()),
        None => Ok(value["result"].take()),
    };
    Some(DirectCall {
        id: name.split_once(' ')?.1.to_owned(),
        tool: value["tool"].as_str()?.to_owned(),
        parameters: value["parameters"].take(),
        result,
        duration_ms: value["durationMs"].as_f64().unwrap_or_default(),
        at,
    })
}

impl From<RegistryError> for EngineError {
    fn from(err: RegistryError) -> Self {
        let message = err.to_string();
        match err {
            RegistryError::Exists { .. } | RegistryError::Elsewhere { .. } => {
                Self::Conflict(message)
            }
            RegistryError::Invalid(why) => Self::InvalidArgument(why),
            RegistryError::Secret(_) => Self::Forbidden(message),
            RegistryError::Full { .. } => Self::LimitExceeded(message),
            RegistryError::Store(err) => Self::Store(err),
        }
    }
}
