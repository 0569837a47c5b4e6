use engine::EngineError;
use planner::compile::may_be_in_failed_set;
use serde_json::{Map, Value, json};
use shared::{diagnostic::Diagnostic, store::StoreError};

#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub code: String,
    pub message: String,
    /// Other fields of the JSON document, such as `requestId`, `diagnostics` and `nearest`.
    pub extra_fields: Map<String, Value>,
}

impl Failure {
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), extra_fields: Map::new() }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new("INVALID_ARGUMENT", message)
    }

    pub fn not_found(kind: &str, id: &str) -> Self {
        Self::new("NOT_FOUND", format!("there is no {kind} `{id}`"))
    }

    pub fn unreachable(message: impl Into<String>) -> Self {
        Self::new("SERVER_UNAVAILABLE", message)
    }

    pub fn invalid_plan(diagnostics: &[Diagnostic]) -> Self {
        let first = diagnostics.iter().find(|diagnostic| diagnostic.is_error());
        let message = first.map_or("the plan cannot run", |diagnostic| &diagnostic.message);
        Self::new("INVALID_PLAN", message).with("diagnostics", json!(diagnostics))
    }

    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.extra_fields.insert(key.to_owned(), value);
        self
    }

    pub fn status(&self) -> u8 {
        match self.code.as_str() {
            "STORE_UNAVAILABLE"
            | "PLANNER_UNAVAILABLE"
            | "SERVER_UNAVAILABLE"
            | "TOOL_UNAVAILABLE" => 3,
            "INVALID_PLAN" if self.needs_failed_set() => 3,
            "INTERNAL" => 1,
            "DETACHED" => 130,
            _ => 2,
        }
    }

    fn needs_failed_set(&self) -> bool {
        let found = self.extra_fields.get("diagnostics").cloned().unwrap_or_default();
        let found: Vec<Diagnostic> = serde_json::from_value(found).unwrap_or_default();
        let mut errors = found.iter().filter(|diagnostic| diagnostic.is_error()).peekable();
        errors.peek().is_some() && errors.all(may_be_in_failed_set)
    }

    pub fn to_json(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".to_owned(), json!(self.code));
        error.insert("message".to_owned(), json!(self.message));
        error.extend(self.extra_fields.clone());
        json!({ "error": error })
    }
}

impl From<EngineError> for Failure {
    fn from(err: EngineError) -> Self {
        Self::new(err.code(), err.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(err: StoreError) -> Self {
        let code = match &err {
            StoreError::Address { .. } => "INVALID_ARGUMENT",
            // Uses the code of the API with the message of the store, because the message of the
            // API hides details of the store.
            other => EngineError::from(other.clone()).code(),
        };
        Self::new(code, err.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_code_has_its_exit_status() {
        for (code, status) in [
            ("NOT_FOUND", 2),
            ("NO_PLAN_FOUND", 2),
            ("INVALID_PLAN", 2),
            ("INVALID_ARGUMENT", 2),
            ("CONFLICT", 2),
            ("PLANNER_UNAVAILABLE", 3),
            ("STORE_UNAVAILABLE", 3),
            ("SERVER_UNAVAILABLE", 3),
            ("TOOL_UNAVAILABLE", 3),
            ("INTERNAL", 1),
        ] {
            assert_eq!(Failure::new(code, "").status(), status, "{code}");
        }
    }

    #[test]
    fn extra_fields_appear_beside_the_error_code() {
        let failure = Failure::not_found("plan", "plan_x").with("requestId", json!("req_x"));
        let expected = r#"{"error":{"code":"NOT_FOUND","message":"there is no plan `plan_x`","requestId":"req_x"}}"#;
        assert_eq!(failure.to_json().to_string(), expected);
    }
}
