use std::{sync::Arc, time::Duration};

use axum::Router;
use serde_json::{Value, json};
use shared::{limits, tool::ToolError};
use tokio::{net::TcpListener, task::JoinSet};
use toolbox::{ReadyTool, SetStatus, ToolContext, ToolLookup, Toolbox};

use crate::sources::{SetConfig, Sources};

/// Limit of each wait, longer than the set's own time limit, so that the set reports the error
/// before the test fails.
const TEST_TIMEOUT: Duration = Duration::from_mins(2);

pub(crate) struct TestServer {
    pub(crate) url: String,
    _tasks: JoinSet<()>,
}

impl TestServer {
    pub(crate) async fn start(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, _tasks: tasks }
    }
}

/// A toolset called `s`, connected to its source.
pub(crate) struct TestSet {
    pub(crate) toolbox: Toolbox,
    _sources: Sources,
}

impl TestSet {
    pub(crate) fn start(source: &Value) -> Self {
        let set: SetConfig =
            serde_json::from_value(json!({ "name": "s", "source": source })).unwrap();
        let toolbox = Toolbox::default();
        let sources = Sources::new(&toolbox, limits::OUTPUT_BYTES);
        sources.put(set);
        Self { toolbox, _sources: sources }
    }

    pub(crate) async fn ready(source: &Value) -> Self {
        let set = Self::start(source);
        assert_eq!(set.status().await, SetStatus::Ready);
        set
    }

    pub(crate) async fn status(&self) -> SetStatus {
        let name = "s".parse().unwrap();
        self.toolbox.reconnect_set(&name);
        self.toolbox.wait_for_set(&name, TEST_TIMEOUT).await.unwrap()
    }

    pub(crate) async fn error(&self) -> String {
        match self.status().await {
            SetStatus::Failed { error } => error,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let tools = self.toolbox.sets().remove(0).tools;
        tools.iter().map(|tool| tool.definition().name.to_string()).collect()
    }

    pub(crate) fn tool(&self, name: &str) -> ReadyTool {
        match self.toolbox.find(&name.parse().unwrap()) {
            ToolLookup::Tool(tool) => tool,
            other => panic!("`{name}`: {other:?}"),
        }
    }

    pub(crate) async fn call(&self, name: &str, parameters: Value) -> Result<Value, ToolError> {
        self.call_in(name, parameters, ToolContext::detached()).await
    }

    pub(crate) async fn call_in(
        &self,
        name: &str,
        parameters: Value,
        cx: ToolContext,
    ) -> Result<Value, ToolError> {
        let tool = self.tool(name);
        assert_eq!(tool.complaint(&parameters), None, "{name}");
        tool.tool().call(Arc::new(parameters), cx).await
    }
}
