use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::{Duration, Instant},
};

use executor::{call, worker::CallPermit};
use serde_json::Value;
use shared::{
    id::{CallId, ToolName, ToolSetName},
    limits,
    store::{Cursor, StoreError, Usage},
    tool::{Effect, ToolError, set_prefix},
};
use tokio::time;
use tokio_util::sync::CancellationToken;
use toolbox::{ReadyTool, ToolContext, ToolLookup, blobs::Blobs, dispatch};

use super::{
    Tools,
    history::{self, CallListing, DirectCall},
};
use crate::error::EngineError;

const MAX_PERMIT_WAIT: Duration = Duration::from_secs(30);
/// Maximum number of calls in this process that wait for permits. Includes calls of steps.
const MAX_WAITING_CALLS: usize = 10_000;
const USAGE_WRITE_INTERVAL: Duration = Duration::from_secs(1);

enum Callee {
    Tool(ReadyTool),
    /// A tool that cannot be called now, and the reason.
    NotCallable(ToolName, ToolError),
    Unknown,
}

enum RecordedName {
    Exact(String),
    InAnySet(String),
}

impl RecordedName {
    fn matches(&self, tool: &str) -> bool {
        match self {
            Self::Exact(name) => name == tool,
            Self::InAnySet(name) => tool.split_once('.').is_some_and(|(_, plain)| plain == name),
        }
    }
}

#[derive(Debug)]
pub struct CallReport {
    pub call: DirectCall,
    /// The qualified name of the tool. `None` if no tool was called, because no tool has the name
    /// or the tool cannot be called now.
    pub called: Option<ToolName>,
}

impl Tools {
    /// Calls a tool once and stores the call in the history. The caller writes the audit entry.
    ///
    /// A call with an effect is stored before it starts, so that the history has it even if this
    /// process stops before the call returns.
    pub async fn call_tool(
        &self,
        name: &str,
        parameters: Value,
        caller_gone: CancellationToken,
    ) -> Result<CallReport, EngineError> {
        if name.len() > limits::NAME_BYTES {
            let limit = limits::NAME_BYTES;
            let reason = format!(
                "the name of a tool has at most {limit} bytes, but this name has \
                    {}",
                name.len()
            );
            return Err(EngineError::InvalidArgument(reason));
        }
        let at = self.clock.now();
        let mut call = DirectCall {
            id: CallId::draw(at).to_string(),
            tool: name.to_owned(),
            parameters,
            result: Err("the outcome is unknown: the caller did not wait for it".to_owned()),
            duration_ms: 0.0,
            at,
        };
        let tool = match self.find_callee(name).await {
            Callee::Tool(tool) => tool,
            Callee::NotCallable(tool, reason) => {
                self.grant.check_tools([&tool])?;
                self.grant.count_uses([])?;
                call.tool = tool.to_string();
                call.result = Err(reason.to_string());
                self.store_call(&call).await?;
                return Ok(CallReport { call: self.with_short_name(call), called: None });
            }
            Callee::Unknown => {
                self.grant.count_uses([])?;
                call.result = Err(format!("Tool not found: {name}"));
                self.store_call(&call).await?;
                return Ok(CallReport { call, called: None });
            }
        };
        let qualified = tool.definition().qualified_name();
        call.tool = qualified.to_string();
        self.grant.check_tools([&qualified])?;
        self.grant.count_uses([&qualified])?;
        let _permit = self.acquire_permit(&call, &qualified, &caller_gone).await?;
        if tool.definition().effect != Effect::Read {
            self.store_call(&call).await?;
        }
        let started = Instant::now();
        let parameters = Arc::new(call.parameters.clone());
        let blobs = Blobs::new(Arc::clone(&self.store), Arc::clone(&self.clock));
        let blobs = Some(blobs.of_token(self.grant.token_name()));
        let cx = ToolContext { cancel: caller_gone, blobs, ..ToolContext::detached() };
        let result =
            call::call_outside_plan(tool, parameters, cx, self.toolbox(), &self.options).await;
        call.duration_ms = started.elapsed().as_secs_f64() * 1e3;
        let result = result.map(|output| self.hide_forbidden_sets(&call.tool, output));
        call.result = result.map_err(|err| err.to_string());
        self.store_call(&call).await?;
        Ok(CallReport { call: self.with_short_name(call), called: Some(qualified) })
    }

    async fn store_call(&self, call: &DirectCall) -> Result<(), StoreError> {
        history::store_call(&*self.store, call, self.grant.token_name()).await
    }

    fn with_short_name(&self, call: DirectCall) -> DirectCall {
        let shown_name =
            call.tool.parse().map(|tool| self.toolbox().display_name_of(&tool).to_string());
        DirectCall { tool: shown_name.unwrap_or_else(|_| call.tool.clone()), ..call }
    }

    async fn acquire_permit(
        &self,
        call: &DirectCall,
        tool: &ToolName,
        caller_gone: &CancellationToken,
    ) -> Result<Option<CallPermit>, EngineError> {
        let limits = self.options.calls.get().limits_of_call(tool, &call.parameters);
        if limits.is_empty() {
            return Ok(None);
        }
        let keys: Vec<_> = limits.iter().map(|limit| format!("`{}`", limit.key)).collect();
        let keys = keys.join(", ");
        let refused = |reason: String| {
            EngineError::LimitExceeded(format!("calls of `{tool}` are limited by {keys}: {reason}"))
        };
        let Some(worker) = &self.worker else {
            let reason = "this process cannot count its calls: call it through a server";
            return Err(refused(reason.to_owned()));
        };
        if worker.waiting_call_count() >= MAX_WAITING_CALLS {
            return Err(refused(format!(
                "{MAX_WAITING_CALLS} calls are waiting already; try again later"
            )));
        }
        let token = self.grant.name().map(Arc::from);
        let permit = tokio::select! {
            permit = worker.acquire_permit(call.id.clone(), limits, MAX_PERMIT_WAIT, token) => permit,
            () = caller_gone.cancelled() => {
                return Err(refused("the caller no longer waits".to_owned()));
            }
        };
        let seconds = MAX_PERMIT_WAIT.as_secs();
        let late = || refused(format!("no call could start within {seconds} s; try again later"));
        permit.ok_or_else(late).map(Some)
    }

    /// Finds the tool with a name. First waits for the toolsets that could contain the tool.
    async fn find_callee(&self, name: &str) -> Callee {
        let Ok(name) = name.parse::<ToolName>() else { return Callee::Unknown };
        self.inventory.wait_for_tools(std::slice::from_ref(&name)).await;
        let is_of = |set: &ToolSetName| set_prefix(name.as_str()) == Some(set.as_str());
        match self.toolbox().find(&name) {
            ToolLookup::Tool(tool) => Callee::Tool(tool),
            ToolLookup::Inactive(tool) => {
                let tool = tool.definition();
                let reason = call::inactive_error(&self.toolbox().display_name(tool), &tool.set);
                Callee::NotCallable(tool.qualified_name(), reason)
            }
            ToolLookup::Connecting => {
                let reason = call::connect_timeout_error(&name, self.options.connect);
                Callee::NotCallable(name, reason)
            }
            ToolLookup::Failed { set, error } if is_of(&set) => {
                Callee::NotCallable(name, call::failed_set_error(&set, &error))
            }
            ToolLookup::Failed { .. } | ToolLookup::Unknown => Callee::Unknown,
        }
    }

    pub async fn list_calls(
        &self,
        tool: Option<&str>,
        first: usize,
    ) -> Result<Vec<DirectCall>, EngineError> {
        Ok(self.list_calls_after(tool, None, first).await?.calls)
    }

    /// Lists calls that are older than the call with the cursor `after`, the newest first. The
    /// cursor has the time and the id of a call.
    pub async fn list_calls_after(
        &self,
        tool: Option<&str>,
        after: Option<&Cursor>,
        first: usize,
    ) -> Result<CallListing, EngineError> {
        let is_wanted = self.call_filter(tool);
        let listing = history::list_calls(&*self.store, after, first, is_wanted).await?;
        let calls = listing.calls.into_iter().map(|call| self.with_short_name(call)).collect();
        Ok(CallListing { calls, ..listing })
    }

    pub async fn count_calls(&self, tool: Option<&str>) -> Result<usize, EngineError> {
        Ok(history::count_calls(&*self.store, self.call_filter(tool)).await?)
    }

    /// Returns a function that selects calls by the recorded name of their tool.
    fn call_filter(&self, tool: Option<&str>) -> impl Fn(&str) -> bool {
        let names = tool.map(|name| self.recorded_names(name));
        move |tool: &str| {
            let is_named =
                names.as_ref().is_none_or(|names| names.iter().any(|name| name.matches(tool)));
            // A caller with tool patterns does not see calls that are recorded under an invalid
            // tool name, because no pattern can match such a name.
            let is_visible = self.grant.allows_every_tool()
                || tool.parse().is_ok_and(|tool| self.grant.allows(&tool));
            is_named && is_visible
        }
    }

    /// Returns the names under which calls of a tool are recorded. If no tool has the name, it was
    /// perhaps removed, so its calls in any toolset count.
    fn recorded_names(&self, name: &str) -> Vec<RecordedName> {
        let mut names = vec![RecordedName::Exact(name.to_owned())];
        match name.parse().map(|name| self.toolbox().find(&name)) {
            Ok(ToolLookup::Tool(tool) | ToolLookup::Inactive(tool)) => {
                let qualified = tool.definition().qualified_name();
                names.push(RecordedName::Exact(qualified.to_string()));
            }
            _ => names.push(RecordedName::InAnySet(name.to_owned())),
        }
        names
    }

    /// Returns the usage of each tool that the caller is allowed to use, on all nodes. The usage
    /// under a former name of a toolset counts under the current name.
    pub async fn load_usage(&self) -> Result<Vec<Usage>, EngineError> {
        self.flush_usage().await?;
        let mut usages: BTreeMap<ToolName, Usage> = BTreeMap::new();
        // The tools that only agents use are left out, because callers cannot look them up.
        let is_internal = |usage: &Usage| set_prefix(usage.tool.as_str()) == Some(dispatch::SET);
        for usage in self.store.list_usage().await? {
            if !self.grant.allows(&usage.tool) || is_internal(&usage) {
                continue;
            }
            let tool = self.toolbox().display_name_of(&usage.tool);
            match usages.entry(tool.clone()) {
                Entry::Occupied(mut entry) => entry.get_mut().add(&usage),
                Entry::Vacant(entry) => drop(entry.insert(Usage { tool, ..usage })),
            }
        }
        Ok(usages.into_values().collect())
    }

    /// Adds the counted calls to the store. The write completes even if the caller disconnects, so
    /// that no call is lost or counted twice unless the process ends.
    #[expect(clippy::disallowed_methods, reason = "awaited, and ends soon if the caller leaves")]
    async fn flush_usage(&self) -> Result<(), StoreError> {
        let (toolbox, store) = (self.toolbox().clone(), Arc::clone(&self.store));
        let now = self.clock.now();
        let added = tokio::spawn(async move { toolbox.meter().flush(&*store, now).await });
        let lost = |_| StoreError::Unavailable("the process is about to end".to_owned());
        added.await.map_err(lost)?
    }

    pub async fn flush_usage_regularly(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let is_last = tokio::select! {
                () = stop.cancelled() => true,
                () = time::sleep(USAGE_WRITE_INTERVAL) => false,
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
