//! A configured toolset, connected for one test.

use std::{fs, sync::Arc, time::Duration};

use sandbox::Launcher;
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    id::{Attempt, ExecutionId, Part, ToolSetName},
    limits,
    tool::ToolError,
};
use toolbox::{ReadyTool, SetStatus, StepCall, ToolContext, ToolLookup, Toolbox};
use toolsets::sources::{SetConfig, Sources};

/// Limit for everything that a test waits for. It is longer than every time limit of Faber, such as
/// the limit for connecting, so that Faber reports its own error first.
pub const MAX_WAIT: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub struct Connected {
    pub toolbox: Toolbox,
    pub sources: Sources,
}

impl Connected {
    /// Starts to connect the toolset of a source, as in a configuration.
    ///
    /// # Panics
    ///
    /// If the source is invalid.
    pub fn start_connecting(source: &Value) -> Self {
        Self::start_connecting_with(source, Launcher::unconfined())
    }

    /// Like [`start_connecting`](Self::start_connecting), with a launcher for confined commands.
    ///
    /// # Panics
    ///
    /// If the source is invalid.
    pub fn start_connecting_with(source: &Value, launcher: Launcher) -> Self {
        let set: SetConfig = serde_json::from_value(json!({ "name": "s", "source": source }))
            .expect("a source that a configuration could have");
        Self::start_connecting_set(set, launcher)
    }

    /// Starts to connect a toolset.
    ///
    /// # Panics
    ///
    /// If the toolset cannot be added.
    pub fn start_connecting_set(set: SetConfig, launcher: Launcher) -> Self {
        let toolbox = Toolbox::default();
        let sources = Sources::new(&toolbox, limits::OUTPUT_BYTES).with_launcher(launcher);
        sources.put(set);
        Self { toolbox, sources }
    }

    /// Connects a toolset and waits until it is ready.
    ///
    /// # Panics
    ///
    /// If the toolset fails to connect.
    pub async fn connect(source: &Value) -> Self {
        let connected = Self::start_connecting(source);
        assert_eq!(connected.status().await, SetStatus::Ready);
        connected
    }

    /// Connects the toolset again if it has failed, and waits until it is ready or has failed.
    pub async fn status(&self) -> SetStatus {
        self.toolbox.reconnect_set(&toolset_name());
        self.toolbox.wait_for_set(&toolset_name(), MAX_WAIT).await.expect("the set is registered")
    }

    /// Returns a tool.
    ///
    /// # Panics
    ///
    /// If no tool has this name.
    pub fn tool(&self, name: &str) -> ReadyTool {
        match self.toolbox.find(&name.parse().expect("a tool's name")) {
            ToolLookup::Tool(tool) => tool,
            other => panic!("`{name}` is {other:?}"),
        }
    }

    pub async fn call(&self, name: &str, parameters: Value) -> Result<Value, ToolError> {
        self.call_in(name, parameters, second_attempt()).await
    }

    pub async fn call_in(
        &self,
        name: &str,
        parameters: Value,
        cx: ToolContext,
    ) -> Result<Value, ToolError> {
        let tool = Arc::clone(self.tool(name).tool());
        let call = tool.call(Arc::new(parameters), cx);
        tokio::time::timeout(MAX_WAIT, call).await.expect("the call ends")
    }
}

fn toolset_name() -> ToolSetName {
    "s".parse().expect("a name")
}

pub fn second_attempt() -> ToolContext {
    let call = StepCall {
        execution: ExecutionId::draw(Timestamp::UNIX_EPOCH),
        step: "x".parse().expect("a step id"),
        part: Part::WHOLE,
        attempt: Attempt::FIRST.next(),
        key: None,
    };
    ToolContext { call: Some(call), ..ToolContext::detached() }
}

/// Returns whether a process still runs. A zombie process counts as ended.
pub fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| {
        let state = rest.trim_start().chars().next();
        state.is_some_and(|state| state != 'Z' && state != 'X')
    })
}

/// Polls until a condition holds.
///
/// # Panics
///
/// If the condition does not hold within [`MAX_WAIT`].
pub async fn wait_until(description: &str, mut is_expected: impl FnMut() -> bool) {
    let look = async {
        while !is_expected() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(MAX_WAIT, look)
        .await
        .unwrap_or_else(|_| panic!("not in time: {description}"));
}
