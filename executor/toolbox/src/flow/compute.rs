//! `flow.compute`: evaluates a CEL expression over named values.

use std::{
    sync::{Arc, LazyLock},
    thread::available_parallelism,
};

use serde_json::{Map, Value, json};
use shared::{condition::Expression, tool::ToolError};
use tokio::sync::Semaphore;

pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "expression": {
                "type": "string",
                "description": "A CEL expression without templates, such as `sum(prices) * 1.19`.",
                "minLength": 1,
            },
            "values": {
                "type": "object",
                "description": "Values of the variables in the expression, such as `{\"prices\": \"{{list.prices}}\"}`.",
            },
        },
        "required": ["expression"],
        "additionalProperties": false,
    })
}

/// Evaluates the expression on a thread for blocking work, because an evaluation can take tens of
/// milliseconds and does not yield.
pub(super) async fn compute(parameters: Arc<Value>) -> Result<Value, ToolError> {
    static EVALUATION_PERMITS: LazyLock<Semaphore> =
        LazyLock::new(|| Semaphore::new(available_parallelism().map_or(1, usize::from)));
    let _permit = EVALUATION_PERMITS.acquire().await;
    let work = tokio::task::spawn_blocking(move || evaluate(&parameters));
    work.await.unwrap_or_else(|err| Err(ToolError::failed(err.to_string()).without_retry()))
}

/// Evaluates the expression of a `flow.compute` call. Another attempt would fail in the same way.
pub fn evaluate(parameters: &Value) -> Result<Value, ToolError> {
    let source = parameters.get("expression").and_then(Value::as_str).unwrap_or_default();
    let none = Map::new();
    let values = parameters.get("values").and_then(Value::as_object).unwrap_or(&none);
    let result = Expression::parse(source, &|name| values.contains_key(name))
        .map_err(|err| format!("the expression is wrong: {err}"))
        .and_then(|expression| expression.evaluate(values));
    result.map_err(|error| ToolError::failed(error).without_retry())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;
    use shared::tool::ErrorCode;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "so that tests can write values in place")]
    fn check_result(expression: &str, values: Value, expected: Expect) {
        let text = match evaluate(&json!({ "expression": expression, "values": values })) {
            Ok(value) => value.to_string(),
            Err(err) => {
                assert_eq!((&err.code, err.retryable), (&ErrorCode::FAILED, false));
                err.message.to_string()
            }
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn an_expression_reads_the_fields_of_values_by_name() {
        check_result("sum(prices) * 1.19", json!({ "prices": [10, 20.5] }), expect!["36.295"]);
        check_result(
            "{'n': size(l), 'first': l[0]}",
            json!({ "l": [[1], 2] }),
            expect![[r#"{"n":2,"first":[1]}"#]],
        );
        check_result(
            "steps + vars + input",
            json!({ "steps": "a", "vars": "b", "input": "c" }),
            expect![[r#""abc""#]],
        );
        check_result("1 + 1", Value::Null, expect!["2"]);
    }

    #[test]
    fn a_failed_expression_names_the_correction() {
        check_result(
            "price * 2",
            json!({ "prices": 1 }),
            expect![
                "the expression is wrong: line 1, column 1: `price` is not a field of `values`"
            ],
        );
        check_result(
            "sum(prices",
            json!({ "prices": 1 }),
            expect!["the expression is wrong: line 1, column 11: it ends too early"],
        );
        check_result(
            "sum(prices)",
            json!({ "prices": ["1"] }),
            expect!["`sum` of `prices`: item 0 is a string, not a number"],
        );
        check_result(
            "l.map(a, l.map(b, l))",
            json!({ "l": vec![1; 2_000] }),
            expect![
                "it takes too many operations, more than 1000000; use fewer items, or let a step prepare them"
            ],
        );
        check_result(
            "[t, t, t]",
            json!({ "t": "x".repeat(400_000) }),
            expect!["the result has more than 1048576 bytes; return less"],
        );
        check_result(
            "1.0 / 0",
            json!({}),
            expect!["the result contains `inf`, which JSON cannot express"],
        );
    }
}
