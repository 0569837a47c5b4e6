//! Tools that answer from a script and record their calls.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use serde_json::Value;
use shared::{
    event::Event,
    id::{ExecutionId, Part, Seq},
    store::{Log, memory::Memory},
    tool::{ToolDefinition, ToolError},
};
use toolbox::{StepCall, Tool, ToolContext, ToolSet};

use super::{
    MockCall,
    file::{Outcome, Script},
    plans::{Recording, TaskPath},
};

/// The script of all tools of one test, and what the tools were called with.
#[derive(Debug)]
pub(super) struct MockServer {
    store: Arc<Memory>,
    recording: Option<Arc<Recording>>,
    state: Mutex<ServerState>,
}

#[derive(Debug, Default)]
struct ServerState {
    /// Scripts by the qualified names of tools.
    scripts: BTreeMap<String, Script<Outcome>>,
    calls: Vec<MockCall>,
    unmocked: Vec<MockCall>,
}

#[derive(Debug)]
struct MockTool {
    definition: Arc<ToolDefinition>,
    server: Arc<MockServer>,
}

impl MockServer {
    pub(super) fn new(
        store: Arc<Memory>,
        recording: Option<Arc<Recording>>,
        scripts: BTreeMap<String, Script<Outcome>>,
    ) -> Self {
        let state = ServerState { scripts, ..ServerState::default() };
        Self { store, recording, state: Mutex::new(state) }
    }

    /// Returns the toolsets whose tools this server answers.
    pub(super) fn make_sets(self: &Arc<Self>, definitions: &[Arc<ToolDefinition>]) -> Vec<ToolSet> {
        let mut sets: BTreeMap<_, Vec<Arc<dyn Tool>>> = BTreeMap::new();
        for definition in definitions {
            let (definition, server) = (Arc::clone(definition), Arc::clone(self));
            let set = definition.set.clone();
            sets.entry(set).or_default().push(Arc::new(MockTool { definition, server }));
        }
        let make = |(name, tools)| ToolSet::ready(name, "mocks", "Mocked tools.", tools);
        sets.into_iter().map(make).collect()
    }

    pub(super) fn calls(&self) -> Vec<MockCall> {
        self.lock().calls.clone()
    }

    /// Returns the calls for which the test has no outcome.
    pub(super) fn unmocked_calls(&self) -> Vec<MockCall> {
        self.lock().unmocked.clone()
    }

    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer_call(
        &self,
        tool: &ToolDefinition,
        parameters: &Value,
        call: Option<&StepCall>,
    ) -> Result<Value, ToolError> {
        let name = tool.qualified_name().to_string();
        let path = match call {
            Some(StepCall { execution, step, part, .. }) => {
                let mut path = self.find_path(*execution).await;
                path.steps.push((step.clone(), part.item));
                TaskPath { is_undo: part.undo, ..path }
            }
            None => TaskPath::default(),
        };
        let call =
            MockCall { tool: name.clone(), step: path.to_string(), parameters: parameters.clone() };
        let mut state = self.lock();
        state.calls.push(call.clone());
        let scripted = match state.scripts.get_mut(&name) {
            Some(script) => script.take_next(),
            None => self.recording.as_ref().and_then(|recording| recording.find_outcome(&path)),
        };
        match scripted {
            Some(Outcome::Output(output)) => Ok(output),
            Some(Outcome::Error(error)) => Err(error),
            None => {
                state.unmocked.push(call);
                Err(ToolError::failed(format!("the test has no mock of `{name}`")).without_retry())
            }
        }
    }

    /// Returns the path from the root to an execution: the steps that started its ancestors.
    pub(super) async fn find_path(&self, execution: ExecutionId) -> TaskPath {
        let mut steps = Vec::new();
        let mut next = Some(execution);
        while let Some(id) = next {
            let events = self.store.read(id, Seq::START).await.unwrap_or_default();
            let parent = match events.first().map(|first| &first.event) {
                Some(Event::Created(created)) => created.parent.clone(),
                _ => None,
            };
            if let Some(parent) = &parent {
                let Part { item, .. } = parent.part;
                steps.push((parent.step.clone(), item));
            }
            next = parent.map(|parent| parent.execution);
        }
        steps.reverse();
        TaskPath { steps, is_undo: false }
    }
}

#[async_trait]
impl Tool for MockTool {
    fn definition(&self) -> &Arc<ToolDefinition> {
        &self.definition
    }

    async fn call(&self, parameters: Arc<Value>, cx: ToolContext) -> Result<Value, ToolError> {
        self.server.answer_call(&self.definition, &parameters, cx.call.as_ref()).await
    }
}
