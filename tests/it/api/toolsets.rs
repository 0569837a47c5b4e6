//! Toolsets and single calls through the API. Each process sees the changes of other processes.

use serde_json::{Value, json};

use super::test_api::{TestApi, api, apis_without_server, texts_of_field, two_processes};

const SETS_QUERY: &str = "{ toolSets { name active source status tools { name } } }";

fn echo_tool(name: &str) -> Value {
    json!({
        "name": name,
        "description": "Says it again.",
        "parameters": { "type": "object", "properties": { "word": { "type": "string" } },
                        "required": ["word"] },
        "run": { "command": ["cat"] },
    })
}

async fn register_tool(api: &TestApi, input: Value) -> Value {
    let query = "mutation ($input: ToolInput!) { registerTool(input: $input) {
        name toolSet qualifiedName active effect callable } }";
    api.get(query, json!({ "input": input })).await
}

async fn call_tool(api: &TestApi, name: &str, parameters: Value) -> Value {
    let query = "mutation ($name: String!, $parameters: JSON) {
        callTool(name: $name, parameters: $parameters) { tool status result error durationMs } }";
    api.get(query, json!({ "name": name, "parameters": parameters })).await
}

async fn switch_toolsets(api: &TestApi, mutation: &str, names: &[&str]) -> Value {
    let query = format!(
        "mutation ($names: [String!]!) {{ {mutation}(names: $names) {{
            changed notFound refused toolSets {{ name active }} }} }}"
    );
    api.get(&query, json!({ "names": names })).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_tool_can_be_called_and_its_calls_are_counted() {
    for api in apis_without_server().await {
        let tool = register_tool(&api, echo_tool("again")).await;
        let expected = json!({
            "name": "again", "toolSet": "local", "qualifiedName": "local.again", "active": true,
            "effect": "ONCE", "callable": true,
        });
        assert_eq!(tool, expected);
        let called = call_tool(&api, "again", json!({ "word": "hi" })).await;
        assert_eq!(called["status"], "success", "{called}");
        assert_eq!(called["result"], json!({ "word": "hi" }));
        let failed = call_tool(&api, "local.again", json!({})).await;
        assert_eq!((&failed["status"], &failed["result"]), (&json!("error"), &Value::Null));
        let unknown = call_tool(&api, "nonexistent_tool.fake", json!({})).await;
        assert_eq!(unknown["error"], "Tool not found: nonexistent_tool.fake");
        let id =
            api.start(json!([{ "name": "again", "parameters": { "word": "x" } }]), json!({})).await;
        api.events(&id).await;
        let history = api.get("{ toolHistory { tool status parameters } }", json!({})).await;
        let expected = json!([
            { "tool": "nonexistent_tool.fake", "status": "error", "parameters": {} },
            { "tool": "local.again", "status": "error", "parameters": {} },
            { "tool": "local.again", "status": "success", "parameters": { "word": "hi" } },
        ]);
        assert_eq!(history, expected, "the history has only single calls");
        let one = "{ toolHistory(toolName: \"again\", first: 1) { tool status } }";
        let expected = json!([{ "tool": "local.again", "status": "error" }]);
        assert_eq!(api.get(one, json!({})).await, expected);
        let usage = "{ tool(name: \"again\") { usage { toolName calls failures p50Ms } } }";
        let usage = &api.get(usage, json!({})).await["usage"];
        assert_eq!(
            (&usage["calls"], &usage["failures"], &usage["toolName"]),
            (&json!(3), &json!(1), &json!("local.again"))
        );
        assert!(usage["p50Ms"].as_f64().unwrap() > 0.0);
        let all = api.get("{ toolUsage { toolName calls } }", json!({})).await;
        assert_eq!(all, json!([{ "toolName": "local.again", "calls": 3 }]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_stay_in_the_history_after_their_tool_is_removed() {
    for api in apis_without_server().await {
        let get = json!({ "http": { "method": "GET", "url": "http://127.0.0.1:9/" } });
        let mut page = echo_tool("page");
        page["run"] = get;
        assert_eq!(register_tool(&api, page).await["effect"], "READ");
        register_tool(&api, echo_tool("again")).await;
        // The value has the maximum depth of an output, and the response adds more levels around
        // the value.
        let deep = (1..95).fold(json!("x"), |inner, _| json!([inner]));
        let mut free = echo_tool("free");
        free["parameters"] = json!({ "type": "object" });
        register_tool(&api, free).await;
        let called = call_tool(&api, "free", json!({ "deep": deep })).await;
        assert_eq!((&called["status"], &called["result"]["deep"]), (&json!("success"), &deep));
        call_tool(&api, "again", json!({ "word": "hi" })).await;
        let remove = "mutation { removeTool(name: \"again\") }";
        assert_eq!(api.get(remove, json!({})).await, true);
        let history = async |name: &str| {
            let query = "query ($name: String) { toolHistory(toolName: $name) { tool } }";
            api.get(query, json!({ "name": name })).await
        };
        for name in ["again", "local.again"] {
            assert_eq!(history(name).await, json!([{ "tool": "local.again" }]), "{name}");
        }
        assert_eq!(history("nope").await, json!([]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn registering_an_existing_name_is_refused() {
    let api = api().await;
    register_tool(&api, echo_tool("again")).await;
    let query = "mutation ($input: ToolInput!) { registerTool(input: $input) { name } }";
    for name in ["again", "flow.echo", "local.again"] {
        let refused = api.expect_error(query, json!({ "input": echo_tool(name) })).await;
        assert_eq!(refused["code"], "CONFLICT", "{refused}");
    }
    let mut odd = echo_tool("odd");
    odd["run"] = json!({ "command": [] });
    let refused = api.expect_error(query, json!({ "input": odd })).await;
    assert_eq!(refused["code"], "INVALID_ARGUMENT", "{refused}");
    let remove = "mutation ($name: String!) { removeTool(name: $name) }";
    for (name, removed) in [("again", true), ("again", false), ("", false)] {
        assert_eq!(api.get(remove, json!({ "name": name })).await, removed, "{name}");
    }
    let refused = api.expect_error(remove, json!({ "name": "flow.echo" })).await;
    assert_eq!(refused["code"], "CONFLICT");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_with_an_ambiguous_name_names_the_tool_that_shadows_it() {
    let api = api().await;
    let query = "mutation ($input: ToolInput!) {
        registerTool(input: $input) { qualifiedName shadowedBy } }";
    let into = |set: &str| {
        let mut tool = echo_tool("again");
        tool["toolSet"] = json!(set);
        json!({ "input": tool })
    };
    let first = api.get(query, into("one")).await;
    assert_eq!(first, json!({ "qualifiedName": "one.again", "shadowedBy": null }));
    let second = api.get(query, into("two")).await;
    assert_eq!(second, json!({ "qualifiedName": "two.again", "shadowedBy": "one.again" }));
    let refused = "mutation ($input: ToolInput!) { registerTool(input: $input) { name } }";
    for input in [into("one"), into("two"), json!({ "input": echo_tool("again") })] {
        assert_eq!(api.expect_error(refused, input).await["code"], "CONFLICT");
    }
    // The short name means the earlier tool until the earlier tool is removed.
    let meant = "{ tool(name: \"again\") { qualifiedName shadowedBy } }";
    assert_eq!(api.get(meant, json!({})).await, first);
    let remove = "mutation { removeTool(name: \"one.again\") }";
    assert_eq!(api.get(remove, json!({})).await, true);
    let second = json!({ "qualifiedName": "two.again", "shadowedBy": null });
    assert_eq!(api.get(meant, json!({})).await, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inactive_tool_can_be_neither_planned_nor_called() {
    let [one, other] = two_processes().await;
    register_tool(&one, echo_tool("again")).await;
    let change = switch_toolsets(&one, "deactivateToolSets", &["nope", "local", "ToolSet"]).await;
    assert_eq!(change["changed"], json!(["local"]));
    assert_eq!(change["notFound"], json!(["nope"]));
    assert_eq!(
        change["refused"],
        json!(["ToolSet"]),
        "`ToolSet` cannot be deactivated, because it activates the others"
    );
    let tools = json!([{ "name": "again", "parameters": { "word": "x" } }]);
    let query = "query ($input: PlanInput!) { validatePlan(input: $input) {
        plan { planId } diagnostics { code message help } } }";
    let verdict = other.get(query, json!({ "input": { "tools": tools } })).await;
    let diagnostic = &verdict["diagnostics"][0];
    assert_eq!(diagnostic["code"], "plan.inactive_tool", "{verdict}");
    let called = call_tool(&other, "again", json!({ "word": "x" })).await;
    assert_eq!(called["status"], "error");
    assert!(called["error"].as_str().unwrap().contains("activate the toolset `local`"), "{called}");
    let all = other.get("{ toolUsage { toolName calls } }", json!({})).await;
    assert_eq!(all, json!([]), "an inactive tool is not called");
    let again = switch_toolsets(&other, "activateToolSets", &["local", "local"]).await;
    assert_eq!(again["changed"], json!(["local"]));
    assert_eq!(switch_toolsets(&one, "activateToolSets", &["local"]).await["changed"], json!([]));
    let verdict = one.get(query, json!({ "input": { "tools": tools } })).await;
    assert!(verdict["diagnostics"].as_array().unwrap().is_empty(), "{verdict}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_toolset_is_visible_while_its_condition_holds() {
    let [one, other] = two_processes().await;
    let add =
        "mutation ($input: ToolSetInput!) { addToolSet(input: $input) { name active status } }";
    let source = json!({ "tools": [{ "name": "wipe", "run": { "command": ["cat"] } }] });
    let admin = json!({
        "name": "admin", "description": "Only for admins.", "source": source, "context": "shop",
        "condition": "adminMode == true",
    });
    let added = one.get(add, json!({ "input": admin })).await;
    let hidden = json!({ "name": "admin", "active": false, "status": "hidden" });
    assert_eq!(added, hidden, "the hidden set is stored");
    // A condition that names no context reads the values of all contexts.
    let mut anywhere = admin.clone();
    anywhere["name"] = json!("anywhere");
    anywhere.as_object_mut().unwrap().remove("context");
    let added = one.get(add, json!({ "input": anywhere })).await;
    assert_eq!(added["status"], "hidden");
    let refused = one.expect_error(add, json!({ "input": admin })).await;
    assert_eq!(refused["code"], "CONFLICT");
    let names = async |api: &TestApi| {
        let sets = api.get(SETS_QUERY, json!({})).await;
        texts_of_field(sets.as_array().unwrap(), "name")
    };
    assert!(!names(&other).await.contains(&"admin".to_owned()));
    let set = "mutation ($data: JSON!) { setContext(name: \"shop\", data: $data) }";
    assert_eq!(other.get(set, json!({ "data": { "adminMode": true } })).await, true);
    for name in ["admin", "anywhere"] {
        assert!(names(&one).await.contains(&name.to_owned()), "{name}");
    }
    let sets = one.get(SETS_QUERY, json!({})).await;
    let admin = sets.as_array().unwrap().iter().find(|set| set["name"] == "admin").unwrap();
    assert_eq!((&admin["source"], &admin["status"]), (&json!("shop"), &json!("ready")));
    assert_eq!(one.get(set, json!({ "data": { "adminMode": false } })).await, true);
    assert!(!names(&other).await.contains(&"admin".to_owned()));
    let refused = one.expect_error(set, json!({ "data": [1] })).await;
    assert_eq!(refused["code"], "INVALID_ARGUMENT");
}

/// Regression: a step failed although its tool was available again after a short time.
#[tokio::test(flavor = "multi_thread")]
async fn an_execution_waits_when_the_condition_of_its_toolset_fails_meanwhile() {
    for api in apis_without_server().await {
        let add = "mutation ($input: ToolSetInput!) { addToolSet(input: $input) { name } }";
        let source = json!({ "tools": [{ "name": "wipe", "run": { "command": ["cat"] } }] });
        let admin = json!({
            "name": "admin", "description": "Only for admins.", "source": source,
            "context": "shop", "condition": "adminMode == true",
        });
        api.get(add, json!({ "input": admin })).await;
        let open = async |is_open: bool| {
            let set = "mutation ($data: JSON!) { setContext(name: \"shop\", data: $data) }";
            api.get(set, json!({ "data": { "adminMode": is_open } })).await;
        };
        open(true).await;
        let wait = json!({ "id": "go", "name": "flow.wait", "parameters": { "name": "go" } });
        let each = json!({ "id": "each", "name": "wipe", "dependsOn": "go",
            "parameters": { "n": "{{item}}" }, "forEach": "{{go}}" });
        let call = json!({ "id": "call", "name": "admin.wipe", "parameters": { "n": 3 } });
        let part = json!({ "id": "part", "dependsOn": "each", "inlinePlan": { "tools": [call] } });
        let id = api.start(json!([wait, each, part]), json!({})).await;
        let done = json!({ "id": "done", "name": "flow.noop", "compensate": { "name": "wipe" } });
        let wait = json!({ "id": "go", "name": "flow.wait", "dependsOn": "done",
            "parameters": { "name": "go" } });
        let undo = json!({ "compensateOnFailure": true });
        let undone = api.start(json!([done, wait]), undo).await;
        for id in [&id, &undone] {
            api.wait_for_step(id, "go", "WAITING").await;
        }
        open(false).await;
        let signal = "mutation ($id: ID!) {
            signalExecution(executionId: $id, name: \"go\", payload: [1, 2]) { state } }";
        api.get(signal, json!({ "id": id })).await;
        let cancel = "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }";
        api.get(cancel, json!({ "id": undone })).await;
        api.wait_for_step(&id, "go", "SUCCEEDED").await;
        api.wait_for_execution(&undone, "state", |execution| execution["state"] == "COMPENSATING")
            .await;
        assert_eq!(api.execution(&id, "state").await["state"], "IN_PROGRESS");
        open(true).await;
        let kinds = |events: Vec<Value>| texts_of_field(&events, "type");
        for (id, state) in [(&id, "COMPLETED"), (&undone, "CANCELLED")] {
            let kinds = kinds(api.events(id).await);
            assert!(!kinds.iter().any(|kind| kind.contains("failed")), "{kinds:?}");
            assert_eq!(api.execution(id, "state").await["state"], state, "{kinds:?}");
        }
        let outputs = api.execution(&id, "outputs").await;
        let expected = json!([[{ "n": 1 }, { "n": 2 }], { "call": { "n": 3 } }]);
        assert_eq!(json!([outputs["outputs"]["each"], outputs["outputs"]["part"]]), expected);
        let steps = api.execution(&undone, "steps { state }").await;
        assert_eq!(steps["steps"][0]["state"], "COMPENSATED");
    }
}

/// Regression: one tool was called `files.file_tools.glob` in one place and `file_tools.glob` in
/// another.
#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_built_in_toolset_shows_one_name_for_each_tool() {
    let api = api().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "words").unwrap();
    let add = async |name: &str| {
        let query = "mutation ($input: ToolSetInput!) { addToolSet(input: $input) { name } }";
        let source = json!({ "builtin": "file_tools", "root": folder.path() });
        let set = json!({ "name": name, "description": "Files.", "source": source });
        api.get(query, json!({ "input": set })).await;
    };
    add("files").await;
    let glob = json!("file_tools.glob");
    let find = json!({ "pattern": "*.txt" });
    let names = ["file_tools.glob", "files.file_tools.glob", "files.glob"];
    for name in names {
        let called = call_tool(&api, name, find.clone()).await;
        assert_eq!((&called["tool"], &called["status"]), (&glob, &json!("success")), "{called}");
        let query = "query ($name: String!) { tool(name: $name) { name usage { toolName } } }";
        let tool = api.get(query, json!({ "name": name })).await;
        assert_eq!(tool, json!({ "name": glob, "usage": { "toolName": glob } }), "{name}");
        // The new plan stores the qualified name for each of these names.
        let id =
            api.start(json!([{ "id": "g", "name": name, "parameters": find }]), json!({})).await;
        api.wait_for_step(&id, "g", "SUCCEEDED").await;
        let steps = api.execution(&id, "steps { toolName }").await;
        assert_eq!(steps["steps"], json!([{ "toolName": "files.file_tools.glob" }]));
    }
    for name in names {
        let query = "query ($name: String) { toolHistory(toolName: $name) { tool } }";
        let history = api.get(query, json!({ "name": name })).await;
        assert_eq!(history, json!([{ "tool": glob }, { "tool": glob }, { "tool": glob }]));
    }
    let usage = api.get("{ toolUsage { toolName calls } }", json!({})).await;
    assert_eq!(usage, json!([{ "toolName": glob, "calls": 6 }]));
    let schemas = api.get("{ toolSchemas(capabilities: [\"code_writing\"]) }", json!({})).await;
    let schemas = schemas.as_object().unwrap();
    assert_eq!(schemas.len(), 5, "{schemas:?}");
    for (name, schema) in schemas {
        assert!(name.starts_with("file_tools.") && schema["name"] == *name, "{name}: {schema}");
    }
    let parse = "query ($text: String!) { parseToolCalls(text: $text) { tool } }";
    let text = json!({ "text": "TOOL: file_tools.glob ARGS: {\"pattern\": \"*.py\"}" });
    assert_eq!(api.get(parse, text).await, json!([{ "tool": glob }]));
    let select = "{ selectTools(query: \"find files by a glob pattern\", by: LEXICAL, limit: 30) {
        tool { name } } }";
    let selected = api.get(select, json!({})).await;
    assert!(
        selected.as_array().unwrap().iter().any(|entry| entry["tool"]["name"] == glob),
        "{selected}"
    );
    let action = json!({ "name": "look", "description": "Looks for files.",
                         "tools": [{ "name": glob }, { "name": "files.tree" }] });
    let learn = "mutation ($input: ActionInput!) { addAction(input: $input) { warnings } }";
    api.get(learn, json!({ "input": action })).await;
    // The toolkit must show the tool under the name that its author wrote, and not under the
    // qualified name.
    let recommend = "{ recommendToolsActions(actions: [\"look\"]) {
        tools { name usage { toolName calls } } } }";
    let recommended = api.get(recommend, json!({})).await;
    let expected = json!([
        { "name": glob, "usage": { "toolName": glob, "calls": 6 } },
        { "name": "files.tree", "usage": { "toolName": "file_tools.tree", "calls": 0 } },
    ]);
    assert_eq!(recommended["tools"], expected);
    api.get("mutation { deactivateToolSets(names: [\"files\"]) { changed } }", json!({})).await;
    let off = call_tool(&api, "files.glob", find.clone()).await;
    let error = "tool.inactive: `file_tools.glob` is inactive: activate the toolset `files`";
    assert_eq!((&off["tool"], &off["error"]), (&glob, &json!(error)));
    // The short name means the tool of the earlier set, even if the earlier set is inactive.
    add("others").await;
    for name in ["others.file_tools.glob", "others.glob"] {
        let called = call_tool(&api, name, find.clone()).await;
        assert_eq!(called["tool"], "others.file_tools.glob", "{called}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_toolset_added_through_the_api_cannot_read_secrets() {
    let api = api().await;
    let add = "mutation ($input: ToolSetInput!) { addToolSet(input: $input) { name } }";
    let secret = json!({ "x": { "secret": "HOME" } });
    for source in [
        json!({ "mcp": { "url": "http://127.0.0.1:1/", "headers": secret } }),
        json!({ "tools": [{ "name": "t", "run": { "command": ["cat"], "env": secret } }] }),
    ] {
        let input = json!({ "name": "spy", "description": "Looks around.", "source": source });
        let refused = api.expect_error(add, json!({ "input": input })).await;
        assert_eq!(refused["code"], "FORBIDDEN");
        assert_eq!(
            refused["message"],
            "added toolsets and tools may not use the variable `HOME` of Faber's environment: add \
             it to `access.secrets` in the configuration"
        );
    }
    let sets = api.get(SETS_QUERY, json!({})).await;
    assert!(!texts_of_field(sets.as_array().unwrap(), "name").contains(&"spy".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_a_context_can_be_queried_by_steps_and_single_calls() {
    let api = api().await;
    let set = "mutation ($name: String!, $data: JSON!) { setContext(name: $name, data: $data) }";
    let rag = json!({ "rag": { "manual": [{ "id": "tea", "content": "Tea is sent today." }] } });
    assert_eq!(api.get(set, json!({ "name": "shop", "data": rag })).await, true);
    assert_eq!(api.get(set, json!({ "name": "club", "data": { "rag": { "x": [] } } })).await, true);
    let call = "mutation ($name: String!, $p: JSON) {
        callTool(name: $name, parameters: $p) { status result error } }";
    let ask = |id: &str| json!({ "ragId": id, "query": "tea" });
    let found = api.get(call, json!({ "name": "shop_rag.query_rag", "p": ask("manual") })).await;
    assert_eq!(found["result"][0]["id"], "tea", "{found}");
    let missing = api.get(call, json!({ "name": "club_rag.query_rag", "p": ask("manual") })).await;
    let error = missing["error"].as_str().unwrap();
    assert!(error.contains("RAG with ID manual not found in context club"), "{error}");
    let step = json!({ "id": "q", "name": "shop_rag.query_rag", "parameters": ask("manual") });
    let echo =
        json!({ "name": "flow.echo", "id": "e", "parameters": { "text": "{{q[0].content}}" } });
    let id = api.start(json!([step, echo]), json!({})).await;
    api.wait_for_step(&id, "e", "SUCCEEDED").await;
    let outputs = api.execution(&id, "outputs").await;
    assert_eq!(outputs["outputs"]["e"], json!({ "text": "Tea is sent today." }));
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_calls_in_replies_of_models_are_parsed() {
    let api = api().await;
    register_tool(&api, echo_tool("mine.again")).await;
    let query = "query ($text: String!) { parseToolCalls(text: $text) { tool args format } }";
    let text = "I'll use mine.again(word=hi) now, and example.com(foo), and then\n\
                TOOL: flow.echo ARGS: {\"a\": [1, {}]}";
    let calls = api.get(query, json!({ "text": text })).await;
    let expected = json!([
        { "tool": "mine.again", "args": { "word": "hi" }, "format": "function_call" },
        { "tool": "flow.echo", "args": { "a": [1, {}] }, "format": "simple" },
    ]);
    assert_eq!(calls, expected);
    let schemas = api.get("{ toolSchemas }", json!({})).await;
    assert!(schemas.as_object().unwrap().contains_key("flow.echo"), "{schemas}");
}
