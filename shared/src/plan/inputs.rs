//! What a plan that a step executes is given.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::schema::{Schema, fill_defaults};

/// A JSON Schema of what a plan is given, as the name had it that the step was written with.
#[derive(Clone, Debug)]
pub struct Inputs {
    schema: Arc<Value>,
    /// Compiled when it is first needed.
    compiled: OnceLock<Result<Schema, String>>,
}

impl Inputs {
    /// Keeps a schema.
    pub fn new(schema: Arc<Value>) -> Self {
        Self { schema, compiled: OnceLock::new() }
    }

    /// Returns the schema as it was written.
    pub fn schema(&self) -> &Arc<Value> {
        &self.schema
    }

    /// Fills in what is left out and has a default, and says what does not fit then.
    pub fn fit(&self, given: Arc<Value>) -> Result<Arc<Value>, String> {
        let mut given = Arc::unwrap_or_clone(given);
        fill_defaults(&self.schema, &mut given);
        let compiled = self.compiled.get_or_init(|| Schema::new(&self.schema));
        let complaint = match compiled {
            Ok(schema) => schema.complaint(&given),
            Err(why) => Some(format!("the schema of the plan's inputs is damaged: {why}")),
        };
        complaint.map_or(Ok(Arc::new(given)), Err)
    }
}
