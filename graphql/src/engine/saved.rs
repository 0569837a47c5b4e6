//! Plans under a name, and what they are given.

use std::sync::Arc;

use planner::suggest::did_you_mean;
use serde_json::Value;
use shared::{
    id::{ExecutionId, PlanId},
    store::SavedPlan,
};

use super::{Engine, EngineError, Order, inputs};

/// The most bytes of a name.
pub(super) const NAME: usize = 128;
/// The most names that are compared with one that is not there.
const LOOKED_AT: usize = 1_000;

impl Engine {
    /// Gives a plan a name, in the place of what had it. `inputs` says what it is given.
    pub async fn save_plan(
        &self,
        name: &str,
        plan: PlanId,
        inputs: Option<&Value>,
    ) -> Result<(), EngineError> {
        check_name(name)?;
        let inputs = match inputs {
            None | Some(Value::Null) => None,
            Some(written) => Some(
                inputs::schema(written)
                    .map_err(|why| EngineError::InvalidArgument(format!("`inputs`: {why}")))?,
            ),
        };
        if self.plan(plan).await?.is_none() {
            return Err(EngineError::not_found("plan", plan));
        }
        let saved = SavedPlan { name: name.to_owned(), plan, inputs, at: self.clock.now() };
        Ok(self.store.save_plan(&saved).await?)
    }

    /// Returns the first few saved plans behind a name, by name.
    pub async fn saved_plans(
        &self,
        after: Option<&str>,
        first: usize,
    ) -> Result<Vec<SavedPlan>, EngineError> {
        Ok(self.store.saved_plans(after, first).await?)
    }

    /// Returns the plan that was saved under a name, if there is one.
    pub async fn saved_plan(&self, name: &str) -> Result<Option<SavedPlan>, EngineError> {
        if name.is_empty() || name.len() > NAME {
            return Ok(None);
        }
        Ok(self.store.saved_plan(name).await?)
    }

    /// Says that no plan has a name, and which name may be meant.
    async fn no_saved_plan(&self, name: &str) -> Result<EngineError, EngineError> {
        let name: String = name.chars().take(NAME).collect();
        let known = self.store.saved_plans(None, LOOKED_AT).await?;
        let help = did_you_mean(&name, known.iter().map(|saved| saved.name.as_str()));
        let help = help.map(|help| format!(": {help}")).unwrap_or_default();
        Ok(EngineError::NotFound(format!("no plan was saved as `{name}`{help}")))
    }

    /// Takes a name away from its plan, which stays. Returns whether it had one.
    pub async fn remove_saved_plan(&self, name: &str) -> Result<bool, EngineError> {
        if name.is_empty() || name.len() > NAME {
            return Ok(false);
        }
        Ok(self.store.remove_saved_plan(name).await?)
    }

    /// Starts an execution of the plan that a name means now. What it is given is checked, and
    /// what is left out is filled in where the inputs have a default.
    pub async fn run_saved(
        &self,
        name: &str,
        input: Option<Value>,
        mut order: Order,
    ) -> Result<ExecutionId, EngineError> {
        let Some(saved) = self.store.saved_plan(name).await? else {
            return Err(self.no_saved_plan(name).await?);
        };
        if let Some(input) = input.filter(|it| !it.is_null()) {
            if !order.options.input.is_null() && *order.options.input != input {
                let why = "`input` is given twice, and differs: leave `options.input` out";
                return Err(EngineError::InvalidArgument(why.to_owned()));
            }
            order.options.input = Arc::new(input);
        }
        if let Some(schema) = &saved.inputs {
            let given = Arc::unwrap_or_clone(order.options.input);
            let fitted = inputs::fit(schema, given).map_err(|why| {
                EngineError::InvalidArgument(format!("the input of `{name}` does not fit: {why}"))
            })?;
            order.options.input = Arc::new(fitted);
        }
        self.execute(saved.plan, order).await
    }
}

fn check_name(name: &str) -> Result<(), EngineError> {
    let invalid = |why: &str| Err(EngineError::InvalidArgument(format!("`name` {why}")));
    if name.is_empty() || name.len() > NAME {
        return invalid(&format!("has {} bytes; write 1 to {NAME}", name.len()));
    }
    if name.trim() != name || name.chars().any(char::is_control) {
        return invalid("must not begin or end with a space, nor hold control characters");
    }
    if name.parse::<PlanId>().is_ok() {
        return invalid("is the id of a plan: choose another");
    }
    Ok(())
}
