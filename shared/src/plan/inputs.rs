//! Inputs of a plan that a step executes.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::schema::{Schema, fill_defaults};

/// The JSON Schema of a plan's inputs, taken from the saved plan when the step was compiled.
#[derive(Clone, Debug)]
pub struct PlanInputs {
    schema: Arc<Value>,
    compiled: OnceLock<Result<Schema, String>>,
}

impl PlanInputs {
    /// Stores a schema without compiling it.
    pub fn new(schema: Arc<Value>) -> Self {
        Self { schema, compiled: OnceLock::new() }
    }

    /// Returns the schema as it was written.
    pub fn schema(&self) -> &Arc<Value> {
        &self.schema
    }

    /// Fills in defaults, then checks the inputs. Returns a message if the inputs do not fit the
    /// schema.
    pub fn fill_and_check(&self, given: Arc<Value>) -> Result<Arc<Value>, String> {
        let mut given = Arc::unwrap_or_clone(given);
        fill_defaults(&self.schema, &mut given);
        let compiled = self.compiled.get_or_init(|| Schema::new(&self.schema));
        let complaint = match compiled {
            Ok(schema) => schema.complaint(&given),
            Err(error) => Some(format!("the schema of the plan's inputs is damaged: {error}")),
        };
        complaint.map_or(Ok(Arc::new(given)), Err)
    }
}
