//! The API does not change JSON: keys keep their sequence, and numbers of up to 64 bits keep every
//! bit.

use serde_json::{Value, json};

use super::test_api::{TestApi, apis_without_server};

const NUMBERS_JSON: &str = r#"{"z":1,"a":{"y":null,"b":[true,"ü\u0001\"\\",""]},"max":18446744073709551615,"min":-9223372036854775808,"beyond":9007199254740993,"tenth":0.1,"sum":0.30000000000000004,"one":1.0,"zero":-0.0,"tiny":5e-324,"huge":1.7976931348623157e308,"small":1e-7}"#;

/// The same value as `NUMBERS_JSON`, written as a GraphQL literal.
const NUMBERS_LITERAL: &str = r#"{z:1,a:{y:null,b:[true,"ü\u0001\"\\",""]},max:18446744073709551615,min:-9223372036854775808,beyond:9007199254740993,tenth:0.1,sum:0.30000000000000004,one:1.0,zero:-0.0,tiny:5e-324,huge:1.7976931348623157e308,small:1e-7}"#;

#[tokio::test]
async fn json_passes_plans_executions_and_outputs_unchanged() {
    let value: Value = serde_json::from_str(NUMBERS_JSON).unwrap();
    let written = value.to_string();
    for api in apis_without_server().await {
        let by_variable =
            api.plan(json!([{ "name": "flow.echo", "id": "e", "parameters": value }]));
        let literal = format!(
            "mutation {{ createPlan(input: {{ tools: [{{ name: \"flow.echo\", id: \"e\",
                parameters: {NUMBERS_LITERAL} }}] }}) {{ plan {{ planId }} }} }}"
        );
        let by_literal = api.get(&literal, json!({})).await;
        let plans = [json!(by_variable.await), by_literal["plan"]["planId"].clone()];
        for plan in plans {
            assert_unchanged(&api, &plan, &written).await;
        }
    }
}

async fn assert_unchanged(api: &TestApi, plan: &Value, written: &str) {
    let query = "query ($id: ID!) { plan(planId: $id) { tools { parameters } } }";
    let planned = api.get(query, json!({ "id": plan })).await;
    assert_eq!(planned["tools"][0]["parameters"].to_string(), written);
    let query = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
    let id = api.get(query, json!({ "id": plan })).await["executionId"].clone();
    let events = api.events(id.as_str().unwrap()).await;
    let succeeded = events.iter().find(|event| event["type"] == "step_succeeded").unwrap();
    assert_eq!(succeeded["data"]["output"].to_string(), written);
    let fields = "outputs step(stepId: \"e\") { output resolvedParameters }";
    let execution = api.execution(id.as_str().unwrap(), fields).await;
    for value in [
        &execution["outputs"]["e"],
        &execution["step"]["output"],
        &execution["step"]["resolvedParameters"],
    ] {
        assert_eq!(value.to_string(), written);
    }
}

#[tokio::test]
async fn an_integer_beyond_64_bits_becomes_a_double_with_a_warning() {
    let [api, _] = apis_without_server().await;
    let query = "{ validatePlan(input: { tools: [{ name: \"flow.echo\",
        parameters: { a: [18446744073709551616], b: 18446744073709551615, c: 0.5 } }] }) {
        plan { tools { parameters } } diagnostics { severity code path } } }";
    let payload = api.get(query, json!({})).await;
    let parameters = r#"{"a":[1.8446744073709552e+19],"b":18446744073709551615,"c":0.5}"#;
    assert_eq!(payload["plan"]["tools"][0]["parameters"].to_string(), parameters);
    let warning = json!([{
        "severity": "WARNING", "code": "plan.number_rounded", "path": "tools[0].parameters.a[0]",
    }]);
    assert_eq!(payload["diagnostics"], warning);
}
