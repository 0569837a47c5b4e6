use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use planner::model::{Model, ModelError, NativeCall, Question, Reply, Stop, Tokens};
use serde_json::Value;
use shared::tool::{Effect, ToolError};
use toolbox::{ToolContext, ToolSet, Toolbox, flow, function};

use super::AgentContext;
use crate::access::Access;

#[derive(Debug)]
pub(crate) struct ScriptedModel {
    answers: Mutex<VecDeque<Reply>>,
    pub(crate) questions: Mutex<Vec<Question>>,
}

impl ScriptedModel {
    pub(crate) fn new(answers: Vec<Reply>) -> Self {
        Self { answers: Mutex::new(answers.into()), questions: Mutex::default() }
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn ask(&self, question: &Question) -> Result<Reply, ModelError> {
        self.questions.lock().unwrap().push(question.clone());
        let next = self.answers.lock().unwrap().pop_front();
        next.ok_or_else(|| ModelError::Unavailable {
            model: "scripted".to_owned(),
            reason: "it has said everything".to_owned(),
            wait: None,
        })
    }
}

pub(crate) fn reply_with(text: &str, calls: &[(&str, Value)]) -> Reply {
    let calls = calls.iter().enumerate().map(|(n, (tool, arguments))| NativeCall {
        id: format!("call_{n}"),
        tool: (*tool).to_owned(),
        arguments: arguments.clone(),
        signatures: Vec::new(),
    });
    Reply {
        text: text.to_owned(),
        calls: calls.collect(),
        stop: Stop::End,
        tokens: Tokens { input: 10, output: 1 },
        cost: None,
        model: "scripted".to_owned(),
        missed: Vec::new(),
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoArguments {}

pub(super) fn make_toolbox() -> Toolbox {
    let make = |set, name, effect| {
        let run = |NoArguments {}, _: ToolContext| async { Ok::<_, ToolError>("done") };
        function(set, name, "Does it.", effect, run)
    };
    let blog = ToolSet::ready(
        "blog".parse().unwrap(),
        "local",
        "",
        [
            make("blog", "look", Effect::Read),
            make("blog", "keep", Effect::Idempotent),
            make("blog", "make", Effect::Once),
        ],
    );
    let off =
        ToolSet::ready("off".parse().unwrap(), "local", "", [make("off", "hidden", Effect::Read)]);
    let switch = make("ToolSet", "activate_toolset", Effect::Idempotent);
    let switches = ToolSet::ready("ToolSet".parse().unwrap(), "builtin", "", [switch]);
    Toolbox::new([flow::flow(), blog, ToolSet { is_active: false, ..off }, switches])
}

/// Returns a context, its toolbox and its model. The caller must keep the toolbox, because the
/// context has only a weak reference to it.
pub(super) fn make_agent_context(
    answers: Vec<Reply>,
) -> (Arc<AgentContext>, Toolbox, Arc<ScriptedModel>) {
    let toolbox = make_toolbox();
    let model = Arc::new(ScriptedModel::new(answers));
    let agent_context = AgentContext {
        model: Arc::clone(&model) as _,
        toolbox: toolbox.downgrade(),
        server_access: Arc::default(),
        own_access: Access::default(),
        has_native_tools: true,
    };
    (Arc::new(agent_context), toolbox, model)
}
