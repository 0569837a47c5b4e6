use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, time::timeout};

use super::{super::workspace::DEMO_QUERY, *};

#[tokio::test]
async fn an_mcp_client_plans_and_executes_over_stdio() {
    let workspace = Workspace::new();
    let mut client = Client::start_in(&workspace, &[]).await;
    assert_eq!(client.server_info["server"]["name"], "faber", "{}", client.server_info);
    assert!(
        client.server_info["instructions"]
            .as_str()
            .unwrap()
            .contains("Use `run` to plan and execute")
    );

    let listed = client.ask(&json!({ "do": "tools" })).await;
    let tools = listed["tools"].as_array().unwrap();
    let names: BTreeSet<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    let expected = [
        "approve",
        "cancel",
        "create_plan",
        "debug",
        "execute",
        "list_tools",
        "plan",
        "run",
        "saved_plans",
        "select_tools",
        "settle",
        "signal",
        "status",
        "validate",
    ];
    assert_eq!(names, BTreeSet::from(expected));
    assert!(tools.iter().all(|tool| tool["outputSchema"]["type"] == "object"), "{listed:#}");

    let (plan, plan_text) = client.call_ok("plan", json!({ "query": DEMO_QUERY })).await;
    assert_eq!(plan["executionOrder"], json!(["createAuthor", "createBlog"]));
    assert!(plan_text.contains("← createAuthor"), "{plan_text}");
    let answer = client.call("execute", json!({ "id": plan["planId"] })).await;
    let done = &answer["result"]["structuredContent"];
    assert_eq!((&done["state"], &done["done"]), (&json!("COMPLETED"), &json!(true)), "{answer:#}");
    assert_eq!(done["outputs"]["createBlog"]["authorId"], done["outputs"]["createAuthor"]["_id"]);
    let far = progress_values(&answer);
    assert!(!far.is_empty() && far.iter().all(|progress| *progress < 3.0), "{answer:#}");
    assert_eq!(answer["reports"][0]["total"], 2, "{answer:#}");
    assert!(text(&answer).starts_with("COMPLETED  2 of 2 steps  exec_"), "{answer:#}");

    let (again, text) = client.call_ok("run", json!({ "query": DEMO_QUERY })).await;
    assert_eq!(again["state"], "FAILED", "the e-mail address is taken");
    assert_eq!(again["errors"][0]["code"], "tool.failed");
    assert!(text.contains("error[tool.failed]: createAuthor"), "{text}");
    assert!(
        again["next"].as_str().unwrap().starts_with("call `debug` with `id: req_"),
        "{again:#}"
    );
    let (request, text) = client.call_ok("debug", json!({ "id": again["requestId"] })).await;
    assert_eq!(request["query"], DEMO_QUERY);
    let transcript = request["transcript"].as_array().unwrap();
    assert!(transcript.iter().any(|entry| entry["kind"] == "selection"), "{request:#}");
    assert!(text.contains("tools shown to the planner"), "{text}");
    let (status, _) = client.call_ok("status", json!({ "id": again["requestId"] })).await;
    assert_eq!(status["executionId"], again["executionId"]);
}

#[tokio::test]
async fn tools_can_be_listed_and_selected_over_mcp() {
    let workspace = Workspace::new();
    let mut client = Client::start_in(&workspace, &[]).await;
    let request = json!({ "toolSet": "blog", "search": "author", "withParameters": true });
    let (listed, text) = client.call_ok("list_tools", request).await;
    let create = listed["tools"].as_array().unwrap().iter();
    let create = create.clone().find(|tool| tool["name"] == "createAuthor").unwrap();
    assert_eq!(create["effect"], "ONCE");
    assert_eq!(create["parameters"]["properties"]["email"]["type"], "string");
    assert!(text.contains("createAuthor  (once)"), "{text}");
    let request = json!({ "query": "write a comment on a post", "limit": 2 });
    let (chosen, _) = client.call_ok("select_tools", request).await;
    assert_eq!(chosen["matches"].as_array().unwrap().len(), 2);
    assert_eq!(chosen["matches"][0]["name"], "createComment", "{chosen:#}");
}

#[tokio::test]
async fn validate_and_create_plan_return_every_diagnostic() {
    let workspace = Workspace::new();
    let mut client = Client::start_in(&workspace, &[]).await;
    let bad = json!({ "tools": [
        { "name": "createAuthr", "parameters": {} },
        { "name": "flow.echo", "parameters": { "x": "{{nobody.y}}" } },
    ] });
    let (verdict, text) = client.call_ok("validate", json!({ "plan": bad })).await;
    assert_eq!(verdict["valid"], false);
    let codes =
        verdict["diagnostics"].as_array().unwrap().iter().map(|diagnostic| &diagnostic["code"]);
    let codes: Vec<_> = codes.collect();
    assert_eq!(codes, ["plan.unknown_tool", "plan.unknown_step_in_template"]);
    assert!(text.contains("did you mean `createAuthor`?"), "{text}");
    let good = json!({ "tools": [{ "name": "flow.echo" }] });
    let (verdict, _) = client.call_ok("validate", json!({ "plan": good })).await;
    assert_eq!((&verdict["valid"], &verdict["layers"]), (&json!(true), &json!([["flow.echo"]])));

    let (error, text) = client.call_refused("create_plan", json!({ "plan": bad })).await;
    assert_eq!(error["code"], "INVALID_PLAN");
    assert_eq!(error["diagnostics"].as_array().unwrap().len(), 2);
    assert!(text.contains("error[INVALID_PLAN]") && text.contains("plan.unknown_tool"), "{text}");
}

#[tokio::test]
async fn tool_errors_have_a_code_and_a_remedy() {
    let workspace = Workspace::new();
    let mut client = Client::start_in(&workspace, &[]).await;
    for (tool, arguments, code, part) in [
        ("status", json!({ "id": "exec_1_aaaaaaaaa" }), "NOT_FOUND", "exec_1_aaaaaaaaa"),
        ("debug", json!({ "id": "req_1_aaaaaaaaa" }), "NOT_FOUND", "req_1_aaaaaaaaa"),
        ("execute", json!({ "id": "no such name" }), "NOT_FOUND", "no plan was saved as"),
        ("execute", json!({ "id": "exec_1_aaaaaaaaa" }), "NOT_FOUND", "exec_1_aaaaaaaaa"),
        ("plan", json!({}), "INVALID_ARGUMENT", "missing field `query`"),
        ("plan", json!({ "query": "x", "qurey": 1 }), "INVALID_ARGUMENT", "unknown field `qurey`"),
        ("plan", json!({ "query": "" }), "INVALID_ARGUMENT", "describe the task"),
        ("validate", json!({ "plan": [] }), "INVALID_ARGUMENT", "expected a map"),
    ] {
        let (error, text) = client.call_refused(tool, arguments.clone()).await;
        assert_eq!(error["code"], code, "{tool} {arguments}: {error}");
        assert!(text.contains(part) && text.contains(code), "{tool} {arguments}: {text}");
    }
    let (error, text) = client.call_refused("run", json!({ "query": "dance the tango" })).await;
    assert_eq!(error["code"], "NO_PLAN_FOUND");
    let request = error["requestId"].as_str().unwrap();
    assert!(text.contains(request), "{text}");
    let (debug, _) = client.call_ok("debug", json!({ "id": request })).await;
    assert_eq!(debug["query"], "dance the tango");
    let answer = client.call("no_such_tool", json!({})).await;
    assert_eq!(answer["refused"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn an_execution_continues_when_the_client_stops_waiting() {
    let workspace = Workspace::new();
    let mut client = Client::start_in(&workspace, &[]).await;
    let plan = client.create_plan(WAITING_PLAN).await;
    // A client that does not want to wait gets the answer without a delay.
    let (started, _) = client.call_ok("execute", json!({ "id": plan, "wait": false })).await;
    assert_eq!(started["done"], false);
    let (started, text) = client.call_ok("execute", json!({ "id": plan, "timeoutMs": 0 })).await;
    assert_eq!(started["done"], false);
    assert!(text.contains("`status` with"), "{text}");
    let id = started["executionId"].clone();
    client.call_ok("signal", json!({ "id": id, "name": "go", "payload": 7 })).await;
    let (done, _) = client.call_ok("status", json!({ "id": id, "wait": true })).await;
    assert_eq!((&done["state"], &done["outputs"]["w"]), (&json!("COMPLETED"), &json!(7)));

    // If the client cancels the call, only the wait ends, and the execution continues.
    let leaves =
        json!({ "do": "call", "name": "execute", "arguments": { "id": plan }, "leave": true });
    let left = client.ask(&leaves).await;
    assert!(left["refused"]["message"].as_str().unwrap().contains("enough"), "{left:#}");
    let (status, _) = client.call_ok("status", json!({ "id": plan })).await;
    assert_eq!(status["done"], false, "{status:#}");
    let id = status["executionId"].clone();
    let (done, _) = client.call_ok("cancel", json!({ "id": id, "reason": "enough" })).await;
    assert_eq!((&done["state"], &done["cancelled"]), (&json!("CANCELLED"), &json!(1)));
}

#[tokio::test]
async fn another_mcp_server_continues_an_execution_of_a_closed_one() {
    let workspace = Workspace::new();
    let mut client = Client::start_in(&workspace, &[]).await;
    let plan = client.create_plan(WAITING_PLAN).await;
    let (started, _) = client.call_ok("execute", json!({ "id": plan, "wait": false })).await;
    let id = started["executionId"].clone();
    drop(client);
    let mut other = Client::start_in(&workspace, &[]).await;
    other.call_ok("signal", json!({ "id": id, "name": "go", "payload": 1 })).await;
    let (done, _) = other.call_ok("execute", json!({ "id": id })).await;
    assert_eq!((&done["state"], &done["outputs"]["w"]), (&json!("COMPLETED"), &json!(1)));
}

#[tokio::test]
async fn execute_returns_at_an_approval_and_approve_continues() {
    let workspace = Workspace::new();
    let mut client = Client::start_in(&workspace, &[]).await;
    let plan =
        r#"{"tools":[{"id":"a","name":"flow.echo","parameters":{"y":1},"requiresApproval":true}]}"#;
    let plan = client.create_plan(plan).await;
    for (approved, state) in [(true, "COMPLETED"), (false, "FAILED")] {
        let (waits, text) = client.call_ok("execute", json!({ "id": plan })).await;
        assert_eq!((&waits["state"], &waits["done"]), (&json!("WAITING"), &json!(false)));
        assert!(text.contains("`approve` with") && text.contains("`stepId: a`"), "{text}");
        let id = waits["executionId"].clone();
        let output = json!({ "id": id, "stepId": "a", "approved": approved });
        client.call_ok("approve", output).await;
        let (done, _) = client.call_ok("status", json!({ "id": id, "wait": true })).await;
        assert_eq!(done["state"], state, "{done:#}");
    }
}

/// The step has a timeout of a millisecond. The demo's `createAuthor` takes longer, so the outcome
/// of its call is unknown.
#[tokio::test]
async fn a_call_with_an_unknown_outcome_is_settled() {
    let workspace = Workspace::new();
    let mut client = Client::start_in(&workspace, &[]).await;
    let plan = json!({ "tools": [{ "id": "a", "name": "createAuthor", "timeoutMs": 1,
        "onError": "wait", "parameters": { "name": "Eve", "email": "eve@example.com" } }] });
    let plan = client.create_plan(&plan.to_string()).await;
    let (waits, text) = client.call_ok("execute", json!({ "id": plan })).await;
    assert_eq!(waits["state"], "WAITING", "{text}");
    let settle = |output: Value| json!({ "id": waits["executionId"], "stepId": "a", "outcome": "SUCCEEDED", "output": output });
    let (error, text) = client.call_refused("settle", settle(json!(["Eve"]))).await;
    assert_eq!(error["code"], "INVALID_ARGUMENT", "{text}");
    assert!(text.contains("outputSchema"), "{text}");
    let author = json!({ "_id": "6b08798b14f7402e6a74d3db", "name": "Eve",
        "email": "eve@example.com", "createdAt": "2026-01-01T00:00:00Z",
        "updatedAt": "2026-01-01T00:00:00Z" });
    client.call_ok("settle", settle(author.clone())).await;
    let status = json!({ "id": waits["executionId"], "wait": true });
    let (done, output) = client.call_ok("status", status).await;
    assert_eq!((&done["state"], &done["outputs"]["a"]), (&json!("COMPLETED"), &author), "{output}");
}

#[tokio::test]
async fn saved_plans_are_listed_and_executed_by_name() {
    let workspace = Workspace::new();
    let plan =
        r#"{"tools":[{"id":"e","name":"flow.echo","parameters":{"text":"Hello {{input.name}}"}}]}"#;
    let plan = workspace.file("plan.json", plan);
    let inputs = r#"{"name":{"type":"string"}}"#;
    workspace.json(&["save", "greet", "--plan", &plan, "--inputs", inputs], 0).await;
    let mut client = Client::start_in(&workspace, &[]).await;
    let (saved, _) = client.call_ok("saved_plans", json!({})).await;
    assert_eq!(saved["plans"][0]["name"], "greet");
    assert_eq!(saved["plans"][0]["inputs"]["required"], json!(["name"]));
    let request = json!({ "id": "greet", "input": { "name": "Ada" } });
    let (done, _) = client.call_ok("execute", request).await;
    assert_eq!(done["outputs"]["e"]["text"], "Hello Ada", "{done:#}");
    let (error, text) = client.call_refused("execute", json!({ "id": "greet", "input": {} })).await;
    assert_eq!(error["code"], "INVALID_ARGUMENT");
    assert!(text.contains("`name` is missing"), "{text}");
}

/// Regression: invalid parameters were reported as unknown methods.
#[tokio::test]
async fn invalid_parameters_and_unknown_methods_get_different_errors() {
    let workspace = Workspace::new();
    let mut process =
        workspace.command(&["mcp"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let ask = |id: usize, method: &str, params: &Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let cases = [
        ("tools/call", json!({ "name": 5 }), -32602, "the parameters of `tools/call`"),
        ("tools/call", json!({ "arguments": {} }), -32602, "missing field `name`"),
        ("tools/call", json!({ "name": "run", "arguments": [1] }), -32602, "are invalid"),
        ("tools/none", json!({}), -32601, "tools/none"),
    ];
    let greeting = ask(99, "initialize", &initialize_message());
    let requests =
        cases.iter().enumerate().map(|(id, (method, params, ..))| ask(id, method, params));
    for message in [greeting, initialized].into_iter().chain(requests) {
        stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
    let mut answers = std::collections::BTreeMap::new();
    while answers.len() <= cases.len() {
        let line = timeout(MAX_WAIT, lines.next_line()).await.unwrap().unwrap();
        let message: Value = serde_json::from_str(&line.expect("another line")).unwrap();
        answers.insert(message["id"].as_u64(), message);
    }
    for (id, (method, params, code, part)) in (0_u64..).zip(&cases) {
        let error = &answers[&Some(id)]["error"];
        assert_eq!(error["code"], *code, "{method} {params}: {error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{method} {params}: {error}");
    }
}

#[tokio::test]
async fn invalid_messages_on_stdio_get_an_error() {
    let workspace = Workspace::new();
    let mut process =
        workspace.command(&["mcp"]).stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let greeting = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize_message() });
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":108,"method":"tools/call","params":{{"name":"validate","arguments":{{"plan":{deep}}}}}}}"#
    );
    let output = [greeting.to_string(), initialized.to_string(), "not json".to_owned(), call];
    for line in output {
        stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }
    let mut answers = Vec::new();
    while answers.len() < 3 {
        let line = timeout(MAX_WAIT, lines.next_line()).await.unwrap().unwrap();
        let message: Value = serde_json::from_str(&line.expect("another line")).unwrap();
        answers.push((message["id"].clone(), message["error"]["code"].clone()));
    }
    let expected =
        [(json!(1), Value::Null), (Value::Null, json!(-32700)), (json!(108), json!(-32600))];
    assert_eq!(answers, expected);
}

fn initialize_message() -> Value {
    json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "t", "version": "1" } })
}

#[tokio::test]
async fn standard_output_has_only_messages_and_the_log_goes_to_standard_error() {
    let workspace = Workspace::new();
    let mut command = workspace.command(&["mcp"]);
    command.stdin(std::process::Stdio::piped()).env("FABER_LOG", "debug");
    let mut process = command.spawn().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    let version = initialize_message();
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": version }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": { "name": "run", "arguments": { "query": DEMO_QUERY } } }),
    ] {
        stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut answered = Vec::new();
    while answered.last() != Some(&json!(2)) {
        let line = timeout(MAX_WAIT, lines.next_line()).await.unwrap().unwrap();
        let message: Value = serde_json::from_str(&line.expect("another line")).unwrap();
        assert_eq!(message["jsonrpc"], "2.0");
        answered.extend(message.get("id").cloned());
    }
    drop(stdin);
    let ended = timeout(MAX_WAIT, process.wait_with_output()).await.unwrap().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert!(!ended.stderr.is_empty(), "the log goes to standard error");
}
