//! Calls of tools outside plans, their history, and usage.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

use executor::{call, worker::CallPermit};
use planner::calls::{CatalogNames, ToolCall, parse_tool_calls, schemas::schemas_for};
use serde_json::{Map, Value, json};
use shared::{
    clock::Timestamp,
    id::{CallId, ToolName, ToolSetName},
    json::json_size as json_bytes,
    limits,
    store::{Record, RecordKind, RecordPage, StoreError, Usage, WriteCondition},
    tool::{Effect, ToolDefinition, ToolError, set_prefix},
};
use tokio::time;
use tokio_util::sync::CancellationToken;
use toolbox::{Found, ReadyTool, ToolContext, blobs::Blobs, dispatch};

use super::{Engine, EngineError};

/// The most calls that one look at the history returns.
const HISTORY: usize = 1_000;

/// The most bytes that the history keeps of what a call was given, and of what it returned.
const KEPT: usize = 64 << 10;

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
    /// The tool, as it was asked for or, where there is one, by the name that is shown of it. It is
    /// kept by its qualified name.
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

/// What a name means to somebody who wants to call it.
enum Meaning {
    /// This tool.
    Tool(ReadyTool),
    /// A tool that cannot be called now, and why.
    Refused(ToolName, ToolError),
    /// Nothing.
    Unknown,
}

/// How calls of a tool are recorded.
enum Recorded {
    /// Under this name.
    Name(String),
    /// Under this name behind that of some set.
    OfAnySet(String),
}

impl Recorded {
    fn is(&self, tool: &str) -> bool {
        match self {
            Self::Name(name) => name == tool,
            Self::OfAnySet(name) => tool.split_once('.').is_some_and(|(_, it)| it == name),
        }
    }
}

impl DirectCall {
    /// Returns about how many bytes it has.
    fn bytes(&self) -> usize {
        let result = self.result.as_ref().map_or_else(String::len, json_bytes);
        json_bytes(&self.parameters) + result
    }
}

impl Engine {
    /// Returns the tool that a tool's plain name means where that is another, one that whoever asks
    /// may use.
    pub fn meaning_instead(&self, tool: &ToolDefinition) -> Option<ToolName> {
        let (Found::Tool(found) | Found::Inactive(found)) = self.toolbox.find(&tool.name) else {
            return None;
        };
        let meant = found.definition().qualified_name();
        (meant != tool.qualified_name() && self.grant.allows(&meant)).then_some(meant)
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
        if name.len() > limits::NAME_BYTES {
            let most = limits::NAME_BYTES;
            let why =
                format!("the name of a tool has at most {most} bytes, this one {}", name.len());
            return Err(EngineError::InvalidArgument(why));
        }
        let at = self.clock.now();
        let mut call = DirectCall {
            id: CallId::draw(at).to_string(),
            tool: name.to_owned(),
            parameters,
            result: Err("the outcome is unknown: whoever called did not wait for it".to_owned()),
            duration_ms: 0.0,
            at,
        };
        let tool = match self.meaning(name).await {
            Meaning::Tool(tool) => tool,
            // Nothing is called: the error says why.
            Meaning::Refused(tool, why) => {
                self.grant.check_tools([&tool])?;
                self.grant.spend([])?;
                call.tool = tool.to_string();
                call.result = Err(why.to_string());
                self.keep_call(&call).await?;
                return Ok(self.to_be_shown(call));
            }
            Meaning::Unknown => {
                self.grant.spend([])?;
                call.result = Err(format!("Tool not found: {name}"));
                self.keep_call(&call).await?;
                return Ok(call);
            }
        };
        let qualified = tool.definition().qualified_name();
        call.tool = qualified.to_string();
        self.grant.check_tools([&qualified])?;
        self.grant.spend([&qualified])?;
        let _permit = self.permit(&call, &qualified, &left).await?;
        if tool.definition().effect != Effect::Read {
            self.keep_call(&call).await?;
        }
        let started = Instant::now();
        let parameters = Arc::new(call.parameters.clone());
        let blobs = Some(Blobs::new(Arc::clone(&self.store), Arc::clone(&self.clock)));
        let cx = ToolContext { cancel: left, blobs, ..ToolContext::detached() };
        let result =
            call::call_outside_plan(tool, parameters, cx, &self.toolbox, &self.options).await;
        call.duration_ms = started.elapsed().as_secs_f64() * 1e3;
        let result = result.map(|it| self.visible(&call.tool, it));
        call.result = result.map_err(|err| err.to_string());
        self.keep_call(&call).await?;
        Ok(self.to_be_shown(call))
    }

    /// Returns a call that is kept as people are shown it.
    fn to_be_shown(&self, call: DirectCall) -> DirectCall {
        let shown = call.tool.parse().map(|it| self.toolbox.shown_of(&it).to_string());
        DirectCall { tool: shown.unwrap_or_else(|_| call.tool.clone()), ..call }
    }

    /// Waits until a call fits into the limits that all nodes share, as a step of a plan does, but
    /// no longer than whoever calls can be expected to.
    async fn permit(
        &self,
        call: &DirectCall,
        tool: &ToolName,
        left: &CancellationToken,
    ) -> Result<Option<CallPermit>, EngineError> {
        let limits = self.options.calls.limits_of_call(tool, &call.parameters);
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
        if worker.waiting_call_count() >= WAITING {
            return Err(refused(format!("{WAITING} calls wait already; try again later")));
        }
        let permit = tokio::select! {
            permit = worker.acquire_permit(call.id.clone(), limits, PERMIT_WAIT) => permit,
            () = left.cancelled() => return Err(refused("nobody waits for it any more".to_owned())),
        };
        let seconds = PERMIT_WAIT.as_secs();
        let late = || refused(format!("there was no room within {seconds} s; try again later"));
        permit.ok_or_else(late).map(Some)
    }

    /// Returns what a name means, once the sets are known that may have it.
    async fn meaning(&self, name: &str) -> Meaning {
        let Ok(name) = name.parse::<ToolName>() else { return Meaning::Unknown };
        self.certain(std::slice::from_ref(&name)).await;
        let is_of = |set: &ToolSetName| set_prefix(name.as_str()) == Some(set.as_str());
        match self.toolbox.find(&name) {
            Found::Tool(tool) => Meaning::Tool(tool),
            Found::Inactive(tool) => {
                let tool = tool.definition();
                let why = call::inactive_error(&self.toolbox.shown(tool), &tool.set);
                Meaning::Refused(tool.qualified_name(), why)
            }
            Found::Connecting => {
                let why = call::connect_timeout_error(&name, self.options.connect);
                Meaning::Refused(name, why)
            }
            Found::Failed { set, error } if is_of(&set) => {
                Meaning::Refused(name, call::failed_set_error(&set, &error))
            }
            Found::Failed { .. } | Found::Unknown => Meaning::Unknown,
        }
    }

    /// Keeps a call in the history; of what is long its beginning.
    async fn keep_call(&self, call: &DirectCall) -> Result<(), StoreError> {
        match self.put_call(call, &kept(&call.parameters), call.result.as_ref().map(kept)).await {
            Err(StoreError::TooLarge { .. } | StoreError::Unfit { .. }) => {
                // It has happened, so whoever asked gets what came of it all the same.
                let why = "what it was given or returned cannot be kept".to_owned();
                let why = call.result.as_ref().err().unwrap_or(&why);
                self.put_call(call, &Value::Null, Err(why)).await
            }
            kept => kept,
        }
    }

    async fn put_call(
        &self,
        call: &DirectCall,
        parameters: &Value,
        result: Result<Value, &String>,
    ) -> Result<(), StoreError> {
        let (result, error) = match result {
            Ok(result) => (result, Value::Null),
            Err(why) => (Value::Null, Value::from(why.as_str())),
        };
        let value = json!({
            "tool": call.tool,
            "parameters": parameters,
            "result": result,
            "error": error,
            "durationMs": call.duration_ms,
        });
        // They are listed by their names: these order by time, and say which tool it was, where
        // what was asked for can be one.
        let tool = call.tool.parse::<ToolName>().map(|it| format!(" {it}")).unwrap_or_default();
        let record = Record {
            kind: RecordKind::Call,
            name: format!("{:020} {}{tool}", call.at.timestamp_micros(), call.id),
            value: Arc::new(value),
            at: call.at,
        };
        self.store.put_record(&record, WriteCondition::Never).await.map(drop)
    }

    /// Returns the last calls outside plans, the newest first.
    pub async fn history(
        &self,
        tool: Option<&str>,
        first: usize,
    ) -> Result<Vec<DirectCall>, EngineError> {
        let wanted = tool.map(|name| self.recorded_as(name));
        let is_wanted = |tool: &str| {
            let is_asked = wanted.as_ref().is_none_or(|it| it.iter().any(|it| it.is(tool)));
            is_asked && self.may_see(tool)
        };
        let (mut calls, mut bytes, mut after) = (Vec::new(), 0, None);
        let most = first.min(HISTORY);
        loop {
            let page = RecordPage { after, newest: true, ..RecordPage::first_records(HISTORY) };
            let page = page.names_only();
            let names = self.store.list_records(RecordKind::Call, page).await?;
            let names: Vec<String> = names.into_iter().map(|record| record.name).collect();
            after = names.last().cloned();
            let is_last = names.len() < HISTORY;
            for name in names.iter().filter(|it| tool_of(it).is_none_or(&is_wanted)) {
                if calls.len() >= most || bytes >= limits::ANSWER_BYTES {
                    return Ok(calls);
                }
                // It may have been removed since.
                let found = self.store.find_record(RecordKind::Call, name).await?.and_then(read);
                if let Some(call) = found.filter(|it| is_wanted(&it.tool)) {
                    bytes += call.bytes();
                    calls.push(self.to_be_shown(call));
                }
            }
            if is_last {
                return Ok(calls);
            }
        }
    }

    /// Returns how calls of a tool are recorded: by what its name means now, and as one that is
    /// not there any more.
    fn recorded_as(&self, name: &str) -> Vec<Recorded> {
        let now = name.parse().map(|it| self.toolbox.find(&it));
        let mut all = vec![Recorded::Name(name.to_owned())];
        match now {
            Ok(Found::Tool(it) | Found::Inactive(it)) => {
                all.push(Recorded::Name(it.definition().qualified_name().to_string()));
            }
            _ => all.push(Recorded::OfAnySet(name.to_owned())),
        }
        all
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
        schemas_for(capabilities, tools, |it| catalog.shown(it))
    }

    /// Returns how often tools were called, by all nodes, in plans and outside, by the names that
    /// are shown of them: a set may have had another name once.
    pub async fn usage(&self) -> Result<Vec<Usage>, EngineError> {
        self.flush_usage().await?;
        let mut shown: BTreeMap<ToolName, Usage> = BTreeMap::new();
        // What only agents have is no tool that anybody could look up.
        let is_own = |it: &Usage| set_prefix(it.tool.as_str()) == Some(dispatch::SET);
        for usage in self.store.list_usage().await? {
            if !self.grant.allows(&usage.tool) || is_own(&usage) {
                continue;
            }
            let tool = self.toolbox.shown_of(&usage.tool);
            match shown.entry(tool.clone()) {
                Entry::Occupied(mut there) => there.get_mut().add(&usage),
                Entry::Vacant(place) => drop(place.insert(Usage { tool, ..usage })),
            }
        }
        Ok(shown.into_values().collect())
    }

    /// Adds what is counted of calls to the store. Whoever asks for it may leave: what was begun is
    /// done, and nothing is lost or counted twice.
    #[expect(clippy::disallowed_methods, reason = "awaited, and at an end soon where nobody waits")]
    async fn flush_usage(&self) -> Result<(), StoreError> {
        let (toolbox, store) = (self.toolbox.clone(), Arc::clone(&self.store));
        let now = self.clock.now();
        let added = tokio::spawn(async move { toolbox.meter().flush(&*store, now).await });
        let lost = |_| StoreError::Unavailable("the process is about to end".to_owned());
        added.await.map_err(lost)?
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
            if let Err(err) = self.flush_usage().await {
                tracing::warn!(%err, "cannot count the calls of tools");
            }
            if is_last {
                return;
            }
        }
    }
}

/// Returns a value as the history has it: one that is long is a text, which says how long it was
/// and how it began.
fn kept(value: &Value) -> Value {
    let bytes = json_bytes(value);
    if bytes <= KEPT {
        return value.clone();
    }
    let text = value.to_string();
    let head = &text[..text.floor_char_boundary(KEPT)];
    Value::from(format!("{bytes} bytes, of which the history keeps the first {KEPT}: {head}…"))
}

/// Returns the tool that the name of a call's record says.
fn tool_of(name: &str) -> Option<&str> {
    name.splitn(3, ' ').nth(2)
}

fn read(record: Record) -> Option<DirectCall> {
    let Record { name, value, at, .. } = record;
    let mut value = Arc::unwrap_or_clone(value);
    let result = match value["error"].as_str() {
        Some(why) => Err(why.to_owned()),
        None => Ok(value["result"].take()),
    };
    Some(DirectCall {
        id: name.split(' ').nth(1)?.to_owned(),
        tool: value["tool"].as_str()?.to_owned(),
        parameters: value["parameters"].take(),
        result,
        duration_ms: value["durationMs"].as_f64().unwrap_or_default(),
        at,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_keeps_the_beginning_of_what_is_long() {
        let short = json!({ "text": "x".repeat(KEPT / 2) });
        assert_eq!(kept(&short), short);
        let long = json!({ "text": "ü".repeat(KEPT) });
        let Value::String(text) = kept(&long) else { panic!("a text") };
        assert!(text.len() < KEPT + 200, "{}", text.len());
        let expected = format!("{} bytes, of which the history keeps the first", json_bytes(&long));
        assert!(text.starts_with(&expected) && text.contains(r#"{"text":"üü"#));
    }
}
