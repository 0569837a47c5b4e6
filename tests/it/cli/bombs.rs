//! Schemas that are written to keep a server busy: the real binary, asked as a viewer.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::FuturesUnordered};
use serde_json::{Map, Value, json};

use super::access::{ADMIN, Server, VIEWER};

/// More than a stop takes, and less than the checks that wait.
const SOON: Duration = Duration::from_secs(5);

const VALIDATE: &str =
    "query ($tools: [ToolExecutionInput!]!) { validatePlan(input: { tools: $tools }) {
    diagnostics { code message } } }";

/// Returns definitions that each apply the next one ten times: 10¹⁴ evaluations in 2 KB.
fn bomb() -> Value {
    let mut defs = Map::new();
    for at in 0..14 {
        let next = json!({ "$ref": format!("#/$defs/d{}", at + 1) });
        defs.insert(format!("d{at}"), json!({ "allOf": vec![next; 10] }));
    }
    defs.insert("d14".to_owned(), json!({ "type": "object" }));
    json!({ "type": "object", "$ref": "#/$defs/d0", "$defs": defs })
}

/// Returns a schema that costs 2ⁿ evaluations for a value that nests n levels.
fn multiplier() -> Value {
    let both = json!([{ "$ref": "#/$defs/n" }, { "$ref": "#/$defs/n" }]);
    let node = json!({ "properties": { "a": { "anyOf": both } }, "not": { "type": "string" } });
    json!({ "type": "object", "$ref": "#/$defs/n", "$defs": { "n": node } })
}

/// Nests a value in itself.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!("end"), |inner, _| json!({ "a": inner }))
}

/// Returns a configuration with tools of these schemas, and an MCP server that lists them, too.
fn config() -> String {
    let tool = |name: &str, schema: &Value| json!({ "name": name, "parameters": schema, "run": { "command": ["true"] } });
    let tools = [
        tool("bomb", &bomb()),
        tool("multiplier", &multiplier()),
        tool("plain", &json!({ "type": "object" })),
    ];
    let listed = |name: &str, input: &Value, output: &Value| json!({ "name": name, "inputSchema": input, "outputSchema": output });
    let plain = json!({ "type": "object" });
    let listed = json!([
        listed("in", &bomb(), &plain),
        listed("out", &plain, &bomb()),
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
        { "name": "listed", "source": { "mcp": { "command": "python3", "args": ["-c", script] } } },
    ]);
    let tokens = json!([
        { "name": "eyes", "token_env": "T_VIEWER", "role": "viewer" },
        { "name": "owner", "token_env": "T_ADMIN", "role": "admin" },
    ]);
    json!({ "toolsets": sets, "access": { "tokens": tokens } }).to_string()
}

/// Two checks on two cores stopped the server, which ignored SIGTERM from then on.
#[tokio::test]
async fn no_schema_stops_the_server() {
    let server = Server::of(&config()).await;
    let listed = "{ toolSets { name status tools { name } } }";
    let names = loop {
        let told = server.data(VIEWER, listed, json!({})).await;
        if !told.to_string().contains("\"connecting\"") {
            break told.to_string();
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
        server.data(VIEWER, VALIDATE, json!({ "tools": tools })).await
    };
    let deep = nested(90);
    let (first, second, third, fourth, health) = tokio::join!(
        validate("local.bomb", json!({})),
        validate("local.bomb", json!({})),
        validate("local.multiplier", deep.clone()),
        validate("local.multiplier", deep.clone()),
        server.get("/health/live", ""),
    );
    assert_eq!(health.status, 200);
    for told in [first, second] {
        assert!(told.to_string().contains("plan.unknown_tool"), "{told}");
    }
    assert_eq!(third, fourth);
    assert_eq!(server.get("/health/live", "").await.status, 200);

    let register = "mutation ($parameters: JSON!) { registerTool(input: {
        name: \"more\", description: \"\", parameters: $parameters, run: {} }) { name } }";
    let (_, told) = server.graphql(ADMIN, register, json!({ "parameters": bomb() })).await;
    let why = told["errors"][0]["message"].as_str().unwrap();
    assert!(why.contains("`parameters` of `more` are refused: a check"), "{told}");
    server.end().await;
}

/// Their tasks block, so the server waited for all of them: up to 28 seconds.
#[tokio::test]
async fn a_server_that_stops_does_not_wait_for_checks_of_clients_that_left() {
    let server = Server::of(&config()).await;
    let tools = json!([{ "name": "local.multiplier", "parameters": nested(90) }]);
    let ask = || server.data(VIEWER, VALIDATE, json!({ "tools": tools }));
    let mut asked: FuturesUnordered<_> = (0..60).map(|_| ask()).collect();
    let first = asked.next().await.unwrap();
    assert!(first.to_string().contains("plan."), "{first}");
    drop(asked);
    let begun = Instant::now();
    server.end().await;
    assert!(begun.elapsed() < SOON, "it took {:?}", begun.elapsed());
}
