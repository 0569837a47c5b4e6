//! The planners: one that needs no model, and a model if one is configured.

use std::sync::Arc;

use async_trait::async_trait;
use planner::{
    PlanCompiler, Planner, Rejection,
    catalog::Catalog,
    compile::Compiled,
    draft::Draft,
    model::{Model, ModelError, Settings},
    writer::ModelPlanner,
};
use shared::{diagnostic::Diagnostic, id::RequestId};

use super::{Engine, EngineError};
use crate::agent::{self, Mind};

/// The name of any model.
const MODEL: &str = "model";
/// The message where no model is configured.
pub(super) const NO_MODEL: &str = "no model is configured: write `planner: { provider: openai, model: NAME, \
                        api_key_env: OPENAI_API_KEY }` into the configuration; Anthropic, Gemini, \
                        Groq, Ollama and whatever imitates OpenAI with a `base_url` go, too";

/// The planners by name.
#[derive(Clone)]
pub(super) struct Planners {
    /// The planner without a model.
    offline: Arc<dyn Planner>,
    modelled: Option<Modelled>,
}

/// A model that plans and drives agents.
#[derive(Clone, Debug)]
struct Modelled {
    planner: Arc<ModelPlanner>,
    /// The name of its provider.
    provider: &'static str,
}

/// Compiles drafts as plans of a request.
pub(super) struct RequestCompiler<'a> {
    pub(super) engine: &'a Engine,
    pub(super) request: RequestId,
    pub(super) query: &'a str,
    pub(super) catalog: &'a Catalog,
}

#[async_trait]
impl PlanCompiler for RequestCompiler<'_> {
    async fn compile(&self, draft: &Draft, author: &str) -> Result<Compiled, Rejection> {
        let about = self.engine.about(self.request, 1, self.query.to_owned(), author);
        match self.engine.compile(draft, about, self.catalog).await {
            Ok(compiled) => Ok(compiled),
            Err(EngineError::InvalidPlan { diagnostics, .. }) => {
                Err(Rejection::Invalid(diagnostics))
            }
            Err(EngineError::Store(err)) => Err(Rejection::Store(err)),
            // The draft names more plans than one may.
            Err(err) => {
                let found = Diagnostic::error("plan.too_large", "tools", err.to_string());
                Err(Rejection::Invalid(vec![found]))
            }
        }
    }
}

impl Engine {
    /// Returns an engine whose model plans by default, corrects each plan up to `repairs` times,
    /// and drives agents.
    pub fn with_model(self, settings: &Settings, repairs: u32) -> Result<Self, ModelError> {
        let model = settings.model()?;
        let mind = Mind {
            model: Arc::clone(&model),
            toolbox: self.toolbox.downgrade(),
            holders: Arc::clone(&self.holders),
            has_native_tools: settings.native_tools,
        };
        self.toolbox.keep(agent::tools(&Arc::new(mind)));
        let planner = Arc::new(ModelPlanner::new(model, repairs));
        let provider = settings.provider.name();
        let planners = Planners { modelled: Some(Modelled { planner, provider }), ..self.planners };
        Ok(Self { planners, ..self })
    }
}

impl Planners {
    pub(super) fn new(offline: Arc<dyn Planner>) -> Self {
        Self { offline, modelled: None }
    }

    pub(super) fn has_model(&self) -> bool {
        self.modelled.is_some()
    }

    /// Returns the model that drives agents.
    pub(super) fn find_model(&self, wanted: Option<&str>) -> Result<&Arc<dyn Model>, EngineError> {
        let is_offline = wanted.is_some_and(|name| is_same(name, self.offline.name()));
        let modelled = self.modelled.as_ref().filter(|_| !is_offline);
        let Some(modelled) = modelled else {
            let why = if is_offline { "an agent needs a model; " } else { "" };
            let message = format!("{why}{NO_MODEL}");
            return Err(EngineError::PlannerUnavailable { message, request: None });
        };
        match wanted {
            Some(name) if !modelled.is_called(name) => Err(self.unknown(name)),
            _ => Ok(modelled.planner.model()),
        }
    }

    /// Returns the planner of a name. The default is a model, if one is configured.
    pub(super) fn find(&self, wanted: Option<&str>) -> Result<Arc<dyn Planner>, EngineError> {
        let modelled = self.modelled.as_ref();
        match (wanted, modelled) {
            (None, None) => Ok(Arc::clone(&self.offline)),
            (None, Some(modelled)) => Ok(Arc::clone(&modelled.planner) as _),
            (Some(name), _) if is_same(name, self.offline.name()) => Ok(Arc::clone(&self.offline)),
            (Some(name), Some(modelled)) if modelled.is_called(name) => {
                Ok(Arc::clone(&modelled.planner) as _)
            }
            (Some(name), None) if is_same(name, MODEL) => {
                Err(EngineError::PlannerUnavailable { message: NO_MODEL.to_owned(), request: None })
            }
            (Some(name), _) => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> EngineError {
        let have = self.offline.name();
        let model = match &self.modelled {
            Some(modelled) => format!(" and `{MODEL}` (`{}`)", modelled.planner.name()),
            None => String::new(),
        };
        EngineError::InvalidArgument(format!(
            "there is no planner `{name}`; there is `{have}`{model}"
        ))
    }
}

impl Modelled {
    /// Returns whether a name is `model`, the provider's, or the model's own.
    fn is_called(&self, name: &str) -> bool {
        let own = self.planner.name();
        is_same(name, MODEL)
            || name == own
            || is_same(name, self.provider)
            || own.split_once('/').is_some_and(|(_, model)| model == name)
    }
}

/// Compares names of planners, which ignore case.
fn is_same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns an engine with a model planner.
    pub(in crate::engine) fn with_planner(engine: Engine, planner: Arc<ModelPlanner>) -> Engine {
        let modelled = Some(Modelled { planner, provider: "test" });
        Engine { planners: Planners { modelled, ..engine.planners }, ..engine }
    }
}
