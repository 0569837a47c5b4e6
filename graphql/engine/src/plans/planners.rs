use std::sync::{Arc, OnceLock};

use planner::{
    Planner,
    model::{Model, ModelError, Settings},
    writer::ModelPlanner,
};
use shared::plan::Plan;
use toolbox::Toolbox;

use crate::{
    access::Access,
    agent::{self, AgentContext},
    error::EngineError,
};

const MODEL_PLANNER: &str = "model";
pub(crate) const NO_MODEL_MESSAGE: &str = "no model is configured: write `planner: { provider: \
                                           openai, model: NAME, api_key_env: OPENAI_API_KEY }` \
                                           into the configuration, or use Anthropic, Gemini, Groq, \
                                           Ollama or a server with the API of OpenAI (`base_url`)";

#[derive(Clone)]
pub(crate) struct Planners {
    offline: Arc<dyn Planner>,
    model: Option<ConfiguredModel>,
    /// The access tokens, because the calls of agents count toward the limits of their callers. Set
    /// later, by `set_access`.
    access: Arc<OnceLock<Access>>,
}

#[derive(Clone, Debug)]
struct ConfiguredModel {
    planner: Arc<ModelPlanner>,
    provider: &'static str,
}

impl Planners {
    pub(super) fn new(offline: Arc<dyn Planner>) -> Self {
        Self { offline, model: None, access: Arc::default() }
    }

    pub(crate) fn with_model(
        self,
        settings: &Settings,
        repairs: u32,
        toolbox: &Toolbox,
    ) -> Result<Self, ModelError> {
        let model = settings.build_model()?;
        let agent_context = AgentContext {
            model: Arc::clone(&model),
            toolbox: toolbox.downgrade(),
            server_access: Arc::clone(&self.access),
            own_access: Access::default(),
            has_native_tools: settings.native_tools,
        };
        toolbox.add_internal_tools(agent::tools(&Arc::new(agent_context)));
        let planner = Arc::new(ModelPlanner::new(model, repairs));
        let provider = settings.provider.name();
        Ok(Self { model: Some(ConfiguredModel { planner, provider }), ..self })
    }

    pub(crate) fn set_access(&self, access: Access) {
        let _ = self.access.set(access);
    }

    pub(crate) fn has_model(&self) -> bool {
        self.model.is_some()
    }

    pub(crate) fn find_model(
        &self,
        requested: Option<&str>,
    ) -> Result<&Arc<dyn Model>, EngineError> {
        let is_offline = requested.is_some_and(|name| is_same_name(name, self.offline.name()));
        let model = self.model.as_ref().filter(|_| !is_offline);
        let Some(model) = model else {
            let reason = if is_offline { "an agent needs a model; " } else { "" };
            let message = format!("{reason}{NO_MODEL_MESSAGE}");
            return Err(EngineError::PlannerUnavailable { message, request: None });
        };
        match requested {
            Some(name) if !model.is_named(name) => Err(self.unknown_planner_error(name)),
            _ => Ok(model.planner.model()),
        }
    }

    pub(super) fn offline(&self) -> &Arc<dyn Planner> {
        &self.offline
    }

    /// Returns whether a name means the offline planner. `None` means the default planner.
    pub(crate) fn is_offline_choice(&self, wanted: Option<&str>) -> bool {
        self.find_planner(wanted).is_ok_and(|planner| self.is_offline(&*planner))
    }

    /// Returns whether the offline planner made this plan. It can find detours only for such a
    /// plan.
    pub(crate) fn is_made_offline(&self, plan: &Plan) -> bool {
        plan.info().planner == self.offline.name()
    }

    pub(crate) fn offline_name(&self) -> &str {
        self.offline.name()
    }

    pub(super) fn is_offline(&self, planner: &dyn Planner) -> bool {
        planner.name() == self.offline.name()
    }

    /// Returns the planner with a name. `None` means the configured model if there is one, and
    /// otherwise the offline planner.
    pub(super) fn find_planner(
        &self,
        requested: Option<&str>,
    ) -> Result<Arc<dyn Planner>, EngineError> {
        match (requested, &self.model) {
            (None, None) => Ok(Arc::clone(&self.offline)),
            (None, Some(model)) => Ok(Arc::clone(&model.planner) as _),
            (Some(name), _) if is_same_name(name, self.offline.name()) => {
                Ok(Arc::clone(&self.offline))
            }
            (Some(name), Some(model)) if model.is_named(name) => {
                Ok(Arc::clone(&model.planner) as _)
            }
            (Some(name), None) if is_same_name(name, MODEL_PLANNER) => {
                Err(EngineError::PlannerUnavailable {
                    message: NO_MODEL_MESSAGE.to_owned(),
                    request: None,
                })
            }
            (Some(name), _) => Err(self.unknown_planner_error(name)),
        }
    }

    fn unknown_planner_error(&self, name: &str) -> EngineError {
        let have = self.offline.name();
        let model = match &self.model {
            Some(model) => format!(" and `{MODEL_PLANNER}` (`{}`)", model.planner.name()),
            None => String::new(),
        };
        EngineError::InvalidArgument(format!(
            "there is no planner `{name}`; there is `{have}`{model}"
        ))
    }
}

impl ConfiguredModel {
    fn is_named(&self, name: &str) -> bool {
        let own_name = self.planner.name();
        is_same_name(name, MODEL_PLANNER)
            || name == own_name
            || is_same_name(name, self.provider)
            || own_name.split_once('/').is_some_and(|(_, model)| model == name)
    }
}

fn is_same_name(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

#[cfg(test)]
impl Planners {
    pub(crate) fn with_planner(self, planner: Arc<ModelPlanner>) -> Self {
        Self { model: Some(ConfiguredModel { planner, provider: "test" }), ..self }
    }
}
