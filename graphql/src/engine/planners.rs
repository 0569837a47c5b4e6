//! Who makes plans of words: the planner that needs no model, and a model where one is configured.

use std::sync::Arc;

use async_trait::async_trait;
use planner::{
    Judge, Planner,
    catalog::Catalog,
    draft::Draft,
    model::{Model, ModelError, Settings},
    writer::ModelPlanner,
};
use shared::{diagnostic::Diagnostic, id::RequestId, plan::Plan};

use super::{Engine, EngineError};
use crate::agent::{self, Mind};

/// What a model is called, whichever it is.
const MODEL: &str = "model";
/// What to configure where there is none.
pub(super) const NO_MODEL: &str = "no model is configured: write `planner: { provider: openai, model: NAME, \
                        api_key_env: OPENAI_API_KEY }` into the configuration; Anthropic, Gemini, \
                        Groq, Ollama and whatever imitates OpenAI with a `base_url` go, too";

/// A model that plans, and drives agents.
#[derive(Clone, Debug)]
pub(super) struct Modelled {
    pub(super) planner: Arc<ModelPlanner>,
    /// What its provider is called.
    pub(super) provider: &'static str,
}

/// Says what is wrong with a draft by compiling it as the plan of a request.
pub(super) struct Compiling<'a> {
    pub(super) engine: &'a Engine,
    pub(super) request: RequestId,
    pub(super) catalog: &'a Catalog,
}

#[async_trait]
impl Judge for Compiling<'_> {
    async fn judge(&self, draft: &Draft) -> Vec<Diagnostic> {
        self.compiled(draft).await.err().unwrap_or_default()
    }
}

impl Compiling<'_> {
    /// Returns the plan that a draft makes, or what is wrong with it. There is neither where the
    /// store cannot be asked: that is said when the draft becomes a plan.
    pub(super) async fn compiled(&self, draft: &Draft) -> Result<Option<Plan>, Vec<Diagnostic>> {
        let about = self.engine.about(self.request, 1, String::new(), MODEL);
        match self.engine.compile(draft, about, self.catalog).await {
            Ok(Ok(mut plans)) => Ok(plans.pop()),
            Ok(Err(diagnostics)) => Err(diagnostics),
            Err(_) => Ok(None),
        }
    }
}

impl Engine {
    /// Lets a model plan where nothing else is asked for, which may mend each plan so many times,
    /// and lets it drive agents.
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
        Ok(Self { modelled: Some(Modelled { planner, provider }), ..self })
    }

    /// Returns the model that drives agents.
    pub(super) fn model(&self, wanted: Option<&str>) -> Result<&Arc<dyn Model>, EngineError> {
        let is_offline = wanted.is_some_and(|it| is_same(it, self.planner.name()));
        let modelled = self.modelled.as_ref().filter(|_| !is_offline);
        let Some(modelled) = modelled else {
            let why = if is_offline { "an agent needs a model; " } else { "" };
            let message = format!("{why}{NO_MODEL}");
            return Err(EngineError::PlannerUnavailable { message, request: None });
        };
        match wanted {
            Some(name) if !modelled.is_called(name) => Err(self.no_planner(name)),
            _ => Ok(modelled.planner.model()),
        }
    }

    /// Returns the planner of a name: a model where one is configured and nothing else is wanted.
    pub(super) fn planner(&self, wanted: Option<&str>) -> Result<Arc<dyn Planner>, EngineError> {
        let modelled = self.modelled.as_ref();
        match (wanted, modelled) {
            (None, None) => Ok(Arc::clone(&self.planner)),
            (None, Some(modelled)) => Ok(Arc::clone(&modelled.planner) as _),
            (Some(name), _) if is_same(name, self.planner.name()) => Ok(Arc::clone(&self.planner)),
            (Some(name), Some(modelled)) if modelled.is_called(name) => {
                Ok(Arc::clone(&modelled.planner) as _)
            }
            (Some(name), None) if is_same(name, MODEL) => {
                Err(EngineError::PlannerUnavailable { message: NO_MODEL.to_owned(), request: None })
            }
            (Some(name), _) => Err(self.no_planner(name)),
        }
    }

    fn no_planner(&self, name: &str) -> EngineError {
        let have = self.planner.name();
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
    /// Returns whether a name means this model: `model`, its provider's, or its own.
    fn is_called(&self, name: &str) -> bool {
        let own = self.planner.name();
        is_same(name, MODEL)
            || name == own
            || is_same(name, self.provider)
            || own.split_once('/').is_some_and(|(_, model)| model == name)
    }
}

/// Returns whether two words are the same but for their case, as those are that choose.
fn is_same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}
