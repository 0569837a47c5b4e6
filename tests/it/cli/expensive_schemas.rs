//! A viewer sends schemas that need very long checks to the real binary.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::FuturesUnordered};
use serde_json::{Map, Value, json};
use tests::installed;

use super::access::{ADMIN, Server, VIEWER};

/// Maximum time for the server to stop. It is shorter than the rest of the running checks, so a
/// server that waits for them fails the test.
const MAX_STOP: Duration = Duration::from_secs(5);

const VALIDATE_QUERY: &str =
    "query ($tools: [ToolExecutionInput!]!) { validatePlan(input: { tools: $tools }) {
    diagnostics { code message } } }";

/// Returns a schema whose definitions each apply the next one ten times: 10¹⁴ evaluations in 2 KB.
fn exponential_schema() -> Value {
    let mut defs = Map::new();
    for index in 0..14 {
        let next = json!({ "$ref": format!("#/$defs/d{}", index + 1) });
        defs.insert(format!("d{index}"), json!({ "allOf": vec![next; 10] }));
    }
    defs.insert("d14".to_owned(), json!({ "type": "object" }));
    json!({ "type": "object", "$ref": "#/$defs/d0", "$defs": defs })
}

fn doubling_schema() -> Value {
    let both = json!([{ "$ref": "#/$defs/n" }, { "$ref": "#/$defs/n" }]);
    let node = json!({ "properties": { "a": { "anyOf": both } }, "not": { "type": "string" } });
    json!({ "type": "object", "$ref": "#/$defs/n", "$defs": { "n": node } })
}

fn nested_value(depth: usize) -> Value {
    (0..depth).fold(json!("end"), |inner, _| json!({ "a": inner }))
}

fn config() -> String {
    let tool = |name: &str, schema: &Value| json!({ "name": name, "parameters": schema, "run": { "command": ["true"] } });
    let tools = [
        tool("bomb", &exponential_schema()),
        tool("multiplier", &doubling_schema()),
        tool("plain", &json!({ "type": "object" })),
    ];
    let listed = |name: &str, input: &Value, output: &Value| json!({ "name": name, "inputSchema": input, "outputSchema": output });
    let plain = json!({ "type": "object" });
    let listed = json!([
        listed("in", &exponential_schema(), &plain),
        listed("out", &plain, &exponential_schema()),
        listed("fine", &plain, &plain),
    ]);
    let mut script = String::from("import json, sys\n");
    let _ = writeln!(script, "tools = json.loads({:?})", listed.to_string());
    script.push_str(
        "for line in sys.stdin:\n \
         request = json.loads(line)\n \
         if 'id' not in request: continue\n \
         asked = request.get('params', {})\n \
         result = {'tools': tools} if request['method'] == 'tools/list' else {\n  \
         'protocolVersion': asked.get('protocolVersion', '2025-06-18'), 'capabilities': {'tools': {}}, \
         'serverInfo': {'name': 's', 'version': '1'}}\n \
         print(json.dumps({'jsonrpc': '2.0', 'id': request['id'], 'result': result}), flush=True)\n",
    );
    let sets = json!([
        { "name": "local", "source": { "tools": tools } },
        { "name": "listed", "source": { "mcp": { "command": installed::find_program("python3"), "args": ["-c", script] } } },
    ]);
    let tokens = json!([
        { "name": "eyes", "token_env": "T_VIEWER", "role": "viewer" },
        { "name": "owner", "token_env": "T_ADMIN", "role": "admin" },
    ]);
    json!({ "toolsets": sets, "access": { "tokens": tokens } }).to_string()
}

/// Regression: two checks on two cores blocked the server, which then ignored SIGTERM.
#[tokio::test]
async fn expensive_schemas_do_not_block_the_server() {
    let server = Server::with_config(&config()).await;
    let listed = "{ toolSets { name status tools { name } } }";
    let names = loop {
        let answer = server.expect_data(VIEWER, listed, json!({})).await;
        if !answer.to_string().contains("\"connecting\"") {
            break answer.to_string();
        }
    };
    for (name, is_there) in [
        ("bomb", false),
        ("multiplier", true),
        ("plain", true),
        ("in", false),
        ("out", false),
        ("fine", true),
    ] {
        assert_eq!(
            names.contains(&format!("{{\"name\":\"{name}\"}}")),
            is_there,
            "{name}: {names}"
        );
    }

    let validate = async |tool: &str, parameters: Value| {
        let tools = json!([{ "name": tool, "parameters": parameters }]);
        server.expect_data(VIEWER, VALIDATE_QUERY, json!({ "tools": tools })).await
    };
    let deep = nested_value(90);
    let (first, second, third, fourth, health) = tokio::join!(
        validate("local.bomb", json!({})),
        validate("local.bomb", json!({})),
        validate("local.multiplier", deep.clone()),
        validate("local.multiplier", deep.clone()),
        server.get("/health/live", ""),
    );
    assert_eq!(health.status, 200);
    for text in [first, second] {
        assert!(text.to_string().contains("plan.unknown_tool"), "{text}");
    }
    assert_eq!(third, fourth);
    assert_eq!(server.get("/health/live", "").await.status, 200);

    let register = "mutation ($parameters: JSON!) { registerTool(input: {
        name: \"more\", description: \"\", parameters: $parameters, run: {} }) { name } }";
    let (_, text) =
        server.graphql(ADMIN, register, json!({ "parameters": exponential_schema() })).await;
    let reason = text["errors"][0]["message"].as_str().unwrap();
    assert!(reason.contains("`parameters` of `more` are refused: a check"), "{text}");
    server.wait_for_exit().await;
}

/// Regression: schema checks block their thread, so the server waited up to 28 seconds for all of
/// them.
#[tokio::test]
async fn a_stopping_server_does_not_wait_for_schema_checks_of_clients_that_left() {
    let server = Server::with_config(&config()).await;
    let tools = json!([{ "name": "local.multiplier", "parameters": nested_value(90) }]);
    let ask = || server.expect_data(VIEWER, VALIDATE_QUERY, json!({ "tools": tools }));
    let mut requests: FuturesUnordered<_> = (0..60).map(|_| ask()).collect();
    let first = requests.next().await.unwrap();
    assert!(first.to_string().contains("plan."), "{first}");
    drop(requests);
    let started_at = Instant::now();
    server.wait_for_exit().await;
    assert!(started_at.elapsed() < MAX_STOP, "the stop took {:?}", started_at.elapsed());
}
