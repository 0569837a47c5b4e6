//! A plan that a person or a model wrote, read and not compiled yet.

use planner::draft::Draft;
use serde_json::{Value, json};
use shared::diagnostic::Diagnostic;

use super::{client::Client, failure::Failure};
use crate::engine::as_input;

/// A plan that was read from JSON.
#[derive(Debug)]
pub(super) struct WrittenPlan {
    /// The plan as the API takes it. It has no field that the API does not know.
    pub(super) input: Value,
    /// What reading it found. An error here, such as an unknown field, leaves the plan readable.
    pub(super) notices: Vec<Diagnostic>,
}

impl WrittenPlan {
    /// Takes a draft that was read from `written`.
    pub(super) fn new(draft: &Draft, written: Value) -> Self {
        let notices = draft.notices.clone();
        // With an unknown field the API would refuse all of it: the draft has none.
        let is_readable = !notices.iter().any(Diagnostic::is_error);
        let mut input = if is_readable { written } else { json!(draft) };
        as_input(&mut input);
        Self { input, notices }
    }

    /// Returns the plan as the API takes it. If reading it found an error, all that is wrong with
    /// the plan is returned: the compiler checks the rest of it.
    pub(super) async fn check(self, client: &Client) -> Result<Value, Failure> {
        let mut wrong = self.errors();
        if wrong.is_empty() {
            return Ok(self.input);
        }
        let query = "query($input: PlanInput!) { validatePlan(input: $input) \
                     { diagnostics { severity code path message help } } }";
        let compiled = client.field(query, json!({ "input": self.input })).await;
        // What reading found is reported also if nobody can compile the rest.
        if let Some(Value::Array(found)) =
            compiled.ok().map(|mut payload| payload["diagnostics"].take())
        {
            wrong.extend(found);
        }
        wrong.sort_by_key(step_of);
        Err(Failure::invalid_plan(Value::Array(wrong)))
    }

    /// Returns why a plan cannot be used where its tools cannot be reached: because of its errors,
    /// if it has any.
    pub(super) fn prefer_errors(&self, unreachable: Failure) -> Failure {
        match self.errors() {
            wrong if wrong.is_empty() => unreachable,
            wrong => Failure::invalid_plan(Value::Array(wrong)),
        }
    }

    /// Returns whether reading the plan found an error.
    pub(super) fn has_errors(&self) -> bool {
        self.notices.iter().any(Diagnostic::is_error)
    }

    fn errors(&self) -> Vec<Value> {
        let errors = self.notices.iter().filter(|notice| notice.is_error());
        errors.map(|error| json!(error)).collect()
    }
}

/// Returns the step that a diagnostic is about, and the first one if it is about no step.
fn step_of(diagnostic: &Value) -> usize {
    let path = diagnostic["path"].as_str().unwrap_or_default();
    let inside = path.strip_prefix("tools[").and_then(|rest| rest.split_once(']'));
    inside.and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
}
