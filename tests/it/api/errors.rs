use graphql::schema::{self, Limits};
use serde_json::{Value, json};
use tests::installed;

use super::test_api::{api, only_error};

#[tokio::test]
async fn a_query_for_an_unknown_id_returns_null() {
    let api = api().await;
    for id in ["", "x", "exec_1_aaaaaaaaa", "plan_1_aaaaaaaaa", "req_1_aaaaaaaaa", "req_1_😀"] {
        for (query, nothing) in [
            ("query ($id: ID!) { request(requestId: $id) { query } }", Value::Null),
            ("query ($id: ID!) { plan(planId: $id) { query } }", Value::Null),
            ("query ($id: ID!) { execution(executionId: $id) { state } }", Value::Null),
            ("query ($id: ID!) { plansByRequestId(requestId: $id) { query } }", json!([])),
        ] {
            assert_eq!(api.get(query, json!({ "id": id })).await, nothing, "{id} {query}");
        }
        for query in [
            "mutation ($id: ID!) { executePlan(planId: $id) { state } }",
            "mutation ($id: ID!) { executeByRequestId(requestId: $id) { state } }",
            "mutation ($id: ID!) { cancelExecution(executionId: $id) { state } }",
            "mutation ($id: ID!) { pauseExecution(executionId: $id) { state } }",
            "mutation ($id: ID!) { resumeExecution(executionId: $id) { state } }",
            "mutation ($id: ID!) { retryExecution(executionId: $id) { state } }",
            "mutation ($id: ID!) { approveStep(executionId: $id, stepId: \"a\", approved: true) { state } }",
            "mutation ($id: ID!) { signalExecution(executionId: $id, name: \"a\") { state } }",
            "mutation ($id: ID!) { revisePlan(planId: $id, input: { tools: [] }) { plan { query } } }",
            "mutation ($id: ID!) { createPlan(input: { requestId: $id, tools: [{ name: \"flow.noop\" }] }) {
                plan { query } } }",
        ] {
            let refusal = api.expect_error(query, json!({ "id": id })).await;
            assert_eq!(refusal["code"], "NOT_FOUND", "{id} {query} {refusal}");
        }
        for query in [
            "subscription ($id: ID!) { executionEvents(executionId: $id) { seq } }",
            "subscription ($id: ID!) { executionStatus(executionId: $id) { state } }",
            "subscription ($id: ID!) { requestEvents(requestId: $id) { type } }",
        ] {
            let refusal = subscription_error(&api, query, json!({ "id": id })).await;
            assert_eq!(refusal["code"], "NOT_FOUND", "{id} {query}");
        }
    }
}

async fn subscription_error(
    api: &super::test_api::TestApi,
    query: &str,
    variables: Value,
) -> Value {
    use async_graphql::{Request, Variables};
    use futures::StreamExt;

    let request = Request::new(query).variables(Variables::from_json(variables));
    let mut stream = api.schema.execute_stream(request);
    let response = stream.next().await.expect("an answer");
    only_error(&serde_json::to_value(response).unwrap())
}

#[tokio::test]
async fn failed_planning_keeps_the_request_with_its_transcript() {
    let api = api().await;
    let query = "mutation ($query: String!) { createPlanWithRequestId(query: $query) { planId } }";
    let unknown = json!({ "tools": [{ "name": "flow.ecko" }] }).to_string();
    for (words, code, kinds) in [
        ("water the plants", "NO_PLAN_FOUND", &["selection", "candidates", "error"][..]),
        ("a planner that is away", "PLANNER_UNAVAILABLE", &["selection", "candidates", "error"]),
        (&unknown, "INVALID_PLAN", &["selection", "candidates", "draft", "diagnostics", "error"]),
    ] {
        let refusal = api.expect_error(query, json!({ "query": words })).await;
        assert_eq!(refusal["code"], code);
        let query = "query ($id: ID!) { request(requestId: $id) {
            query plans { planId } transcript { kind content } timeline { kind } } }";
        let request = api.get(query, json!({ "id": refusal["requestId"] })).await;
        assert_eq!((&request["query"], &request["plans"]), (&json!(words), &json!([])));
        let transcript = request["transcript"].as_array().unwrap();
        assert_eq!(super::test_api::texts_of_field(transcript, "kind"), kinds);
        assert_eq!(request["timeline"].as_array().map(Vec::len), Some(1 + kinds.len()));
        match code {
            "NO_PLAN_FOUND" => assert_eq!(refusal["nearest"], json!(["flow.echo"])),
            "INVALID_PLAN" => {
                let found = &refusal["diagnostics"][0];
                assert_eq!(
                    (&found["code"], &found["severity"]),
                    (&json!("plan.unknown_tool"), &json!("ERROR"))
                );
                assert!(
                    found["help"].as_str().is_some_and(|help| help.contains("flow.echo")),
                    "{found}"
                );
            }
            _ => (),
        }
    }
}

#[tokio::test]
async fn invalid_planning_arguments_keep_the_request_with_the_error() {
    let api = api().await;
    let long = "é".repeat(33 << 10);
    for (words, options, code, part) in [
        ("", json!({}), "INVALID_ARGUMENT", "`query` is empty"),
        (" \n", json!({}), "INVALID_ARGUMENT", "`query` is empty"),
        (&*long, json!({}), "LIMIT_EXCEEDED", "`query` has"),
        ("x", json!({ "planner": "gtp" }), "INVALID_ARGUMENT", "`gtp`"),
        (
            "x",
            json!({ "maxTools": 0 }),
            "INVALID_ARGUMENT",
            "`maxTools` must be from 1 to 1000, not 0",
        ),
        ("x", json!({ "maxTools": 1001 }), "INVALID_ARGUMENT", "1001"),
        ("x", json!({ "maxTools": -1 }), "INVALID_ARGUMENT", "-1"),
        ("x", json!({ "actions": ["no such"] }), "INVALID_ARGUMENT", "`no such`"),
        (
            "x",
            json!({ "toolSets": ["flow", "flwo"] }),
            "INVALID_ARGUMENT",
            "there is no toolset `flwo`: did you mean `flow`?",
        ),
        (
            "x",
            json!({ "toolSets": ["no set"] }),
            "INVALID_ARGUMENT",
            "there is no toolset `no set`: `faber toolsets list`",
        ),
    ] {
        for (query, of_run) in [
            (
                "mutation ($q: String!, $o: PlanningOptions) {
                createPlanWithRequestId(query: $q, options: $o) { planId } }",
                false,
            ),
            (
                "mutation ($q: String!, $o: PlanningOptions) {
                run(query: $q, planning: $o) { executionId } }",
                true,
            ),
        ] {
            let answer = api.ask(query, json!({ "q": words, "o": options })).await;
            let message = answer["errors"][0]["message"].as_str().unwrap_or_default();
            assert!(message.contains(part), "{options} {of_run} {answer}");
            let refusal = &answer["errors"][0]["extensions"];
            assert_eq!(refusal["code"], code, "{options}");
            let query = "query ($id: ID!) { request(requestId: $id) {
                query plans { planId } transcript { kind content } } }";
            let request = api.get(query, json!({ "id": refusal["requestId"] })).await;
            let kept = request["query"].as_str().unwrap_or_default();
            assert!(kept == words || (kept.len() < 300 && kept.starts_with("éé")), "{request}");
            assert_eq!(request["plans"], json!([]));
            let reason = json!({ "code": code, "message": message });
            assert_eq!(request["transcript"], json!([{ "kind": "error", "content": reason }]));
        }
    }
}

#[tokio::test]
async fn invalid_arguments_are_refused() {
    let api = api().await;
    let plan = api.plan(json!([{ "name": "flow.noop" }])).await;
    for options in [
        "{ maxParallel: 0 }",
        "{ maxParallel: -1 }",
        "{ maxParallel: 99999999999 }",
        "{ deadlineMs: 0 }",
        "{ deadlineMs: 1.5 }",
        "{ idempotencyKey: \"\" }",
        "{ startAt: \"tomorrow\" }",
        "{ mode: BOTH }",
        "{ dryRun: 1 }",
        "{ compensateOnFailure: \"yes\" }",
    ] {
        let query = format!(
            "mutation {{ executePlan(planId: \"{plan}\", options: {options}) {{ executionId }} }}"
        );
        let refusal = api.expect_error(&query, json!({})).await;
        assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{options} {refusal}");
    }
    for query in [
        "{ plans(first: 0) { nodes { query } } }",
        "{ plans(first: 201) { nodes { query } } }",
        "{ requests(first: -1) { nodes { query } } }",
        "{ executions(after: \"x\") { nodes { state } } }",
        "{ executions(after: \"1.plan_1_aaaaaaaaa\") { nodes { state } } }",
        "{ executions(filter: { from: 5 }) { nodes { state } } }",
        "{ nonsense }",
        "{",
        "mutation { createPlanWithRequestId(query: \"x\", options: { maxTools: 0 }) { planId } }",
        "mutation { createPlanWithRequestId(query: \"x\", options: { planner: \"x\" }) { planId } }",
    ] {
        let refusal = api.expect_error(query, json!({})).await;
        assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{query} {refusal}");
    }
    let id = api.start(json!([{ "name": "flow.noop" }]), json!({})).await;
    for arguments in ["afterSeq: -1", "first: 0", "first: 10001"] {
        let query =
            format!("{{ execution(executionId: \"{id}\") {{ events({arguments}) {{ seq }} }} }}");
        let refusal = api.expect_error(&query, json!({})).await;
        assert_eq!(refusal["code"], "INVALID_ARGUMENT", "{arguments}");
    }
}

#[tokio::test]
async fn oversized_operations_are_refused_and_full_introspection_is_not() {
    let api = api().await;
    let deep = nested_selections("plans { nodes { executions { plan { ", 6);
    let fragments = format!("{{ ...on Query {} }}", nested_selections("{ ...on Query ", 40));
    let directives = format!("{{ toolSets {} {{ name }} }}", "@skip(if: false) ".repeat(9));
    let aliases: Vec<String> =
        (0..10_000).map(|n| format!("a{n}: executions {{ nodes {{ state }} }}")).collect();
    let aliases = format!("{{ {} }}", aliases.join(" "));
    let lists = "{ requests(first: 200) { nodes { executions(last: 200) { steps { stepId } } } } }";
    let brackets = format!("{{ tool(name: {}) {{ name }} }}", "[".repeat(100_000));
    let type_names: Vec<String> = (0..1_000).map(|n| format!("t{n}: __typename ")).collect();
    let type_names = type_names.concat();
    let type_names = format!("{{ executions(first: 200) {{ nodes {{ {type_names} }} }} }}");
    let types = nested_selections("fields { type { ", 6).replace("planId", "name");
    let introspection = format!("{{ __schema {{ types {types} }} }}");
    let layouts: Vec<String> = (0..800)
        .map(|n| format!("a{n}: plan(planId: \"plan_1_aaaaaaaaa\") {{ layout {{ width }} }} "))
        .collect();
    let layouts = format!("{{ {} }}", layouts.concat());
    let doubling: Vec<String> = (0..30)
        .map(|n| format!("fragment f{n} on Query {{ ...f{next} ...f{next} }} ", next = n + 1))
        .collect();
    let doubling = doubling.concat();
    let bomb = format!("{{ ...f0 }} {doubling} fragment f30 on Query {{ __typename }}");
    let long = format!("{{ {} }}", "a".repeat(1 << 20));
    let all = [deep, fragments, directives, aliases, lists.to_owned(), brackets];
    let more = [type_names, introspection, layouts, bomb, long];
    for query in all.into_iter().chain(more) {
        let refusal = api.expect_error(&query, json!({})).await;
        let start: String = query.chars().take(60).collect();
        assert_eq!(refusal["code"], "LIMIT_EXCEEDED", "{start} {refusal}");
    }
    let of_type =
        (0..9).fold("kind name".to_owned(), |inner, _| format!("kind name ofType {{ {inner} }}"));
    let query = format!(
        "{{ __schema {{ queryType {{ name }} types {{ name description
            fields(includeDeprecated: true) {{ name args {{ name type {{ {of_type} }} defaultValue }}
                type {{ {of_type} }} }}
            inputFields {{ name type {{ {of_type} }} }} enumValues {{ name }}
            possibleTypes {{ {of_type} }} }} }} }}"
    );
    let schema = api.get(&query, json!({})).await;
    assert!(schema["types"].as_array().is_some_and(|types| types.len() > 20));
}

fn nested_selections(one: &str, times: usize) -> String {
    let ends = "}".repeat(one.matches('{').count() * times);
    let selection = format!("{}planId {ends}", one.repeat(times));
    if one.starts_with('{') {
        selection.replace("planId", "{ __typename }")
    } else {
        format!("{{ {selection} }}")
    }
}

#[tokio::test]
async fn a_failed_field_nulls_its_nullable_parent_and_errors_follow_the_order_of_fields() {
    let api = api().await;
    let id = api.start(json!([{ "name": "flow.noop" }]), json!({})).await;
    api.events(&id).await;
    let execution = |fields: &str| format!("execution(executionId: \"{id}\") {{ {fields} }}");
    let call = "callTool(name: \"flow.echo\", parameters: { value: 1 }) { status }";
    let none = "plan(planId: \"plan_1_aaaaaaaaa\") { planId }";
    for (query, data, errors) in [
        (
            "{ toolkitScore(from: \"a\", to: \"b\") selectTools(query: \"\", limit: -1) { score } }"
                .to_owned(),
            "null",
            json!([["selectTools"]]),
        ),
        (
            "{ executions(first: 1) { nodes { state events(first: -1) { seq } } } }".to_owned(),
            "null",
            json!([["executions", "nodes", 0, "events"]]),
        ),
        (
            format!(
                "mutation {{ a: {call} b: addAction(input: {{
                    name: \"flow.echo\", description: \"Says it.\" }}) {{ warnings }} c: {call} }}"
            ),
            "null",
            json!([["b"]]),
        ),
        (
            format!("{{ a: {} {none} }}", execution("state events(first: -1) { seq }")),
            r#"{"a":null,"plan":null}"#,
            json!([["a", "events"]]),
        ),
        (
            format!("{{ {} {none} request(requestId: \"\") {{ query }} __typename }}", {
                execution("steps { state toolName } state")
            }),
            r#"{"execution":{"steps":[{"state":"SUCCEEDED","toolName":"flow.noop"}],"state":"COMPLETED"},"plan":null,"request":null,"__typename":"Query"}"#,
            json!([]),
        ),
    ] {
        let answer = api.ask(&query, json!({})).await;
        let paths: Vec<&Value> =
            answer["errors"].as_array().into_iter().flatten().map(|error| &error["path"]).collect();
        assert_eq!((answer["data"].to_string().as_str(), json!(paths)), (data, errors), "{query}");
    }
    let mut events = api.schema.execute_stream(format!(
        "subscription {{ executionStatus(executionId: \"{id}\") {{ state events(first: -1) {{ seq }} }} }}"
    ));
    let first = serde_json::to_value(super::test_api::next_item(&mut events).await).unwrap();
    assert_eq!(first["data"], Value::Null, "{first}");
    assert_eq!(first["errors"][0]["path"], json!(["executionStatus", "events"]));
}

/// Graphical clients and code generators send these queries before any other.
#[tokio::test]
async fn introspection_queries_of_real_clients_are_answered() {
    let script = "const { getIntrospectionQuery } = require('graphql');
        const all = [{}, { schemaDescription: true, inputValueDeprecation: true },
            { descriptions: true, schemaDescription: true, specifiedByUrl: true,
              directiveIsRepeatable: true, inputValueDeprecation: true }];
        console.log(JSON.stringify(all.map((options) => getIntrospectionQuery(options))));";
    let mut node = tokio::process::Command::new(installed::find_program("node"));
    node.args(["-e", script]).env("NODE_PATH", crate::protocol::node_modules());
    let output = node.output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let queries: Vec<String> = serde_json::from_slice(&output.stdout).unwrap();
    let api = api().await;
    for query in queries {
        let schema = api.get(&query, json!({})).await;
        assert!(schema["types"].as_array().is_some_and(|types| types.len() > 20), "{query}");
        let answers = api.schema.execute_stream(query);
        let answers: Vec<_> = futures::StreamExt::collect(answers).await;
        assert!(answers[0].errors.is_empty(), "{:?}", answers[0].errors);
    }
}

#[tokio::test]
async fn errors_of_a_large_operation_are_short() {
    let api = api().await;
    let unknown: Vec<String> = (0..9_000).map(|n| format!("{}{n}", "x".repeat(100))).collect();
    let answer = api.ask(&format!("{{ {} }}", unknown.join(" ")), json!({})).await;
    let errors = answer["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 21, "twenty errors, and the number of the others");
    assert!(answer.to_string().len() < 20_000, "{}", answer.to_string().len());
    let text = "x".repeat(1 << 20);
    let broken = format!("{{ tool(name: \"{text}\") ");
    let answer = api.ask(&broken, json!({})).await;
    assert!(answer.to_string().len() < 2_000, "{}", answer.to_string().len());
}

#[tokio::test]
async fn an_answer_over_the_byte_limit_becomes_an_error() {
    let limits = Limits { answer_bytes: 100_000, ..Limits::default() };
    let mut api = api().await;
    let call = "mutation ($text: String!) {
        callTool(name: \"flow.echo\", parameters: { text: $text }) { status result } }";
    api.get(call, json!({ "text": "x".repeat(40_000) })).await;
    api.schema = schema::build(api.engine.clone(), limits);
    let of = |fields: &str| format!("{{ toolHistory(first: 1) {{ {fields} }} }}");
    let one = api.get(&of("result"), json!({})).await;
    assert_eq!(one[0]["result"]["text"].as_str().map(str::len), Some(40_000));
    for fields in ["a: result b: result c: result", "status result parameters c: result"] {
        let answer = api.ask(&of(fields), json!({})).await;
        assert_eq!(answer["data"], Value::Null);
        assert_eq!(answer["errors"].as_array().map(Vec::len), Some(1), "{answer}");
        let error = &answer["errors"][0];
        assert_eq!(error["extensions"]["code"], "LIMIT_EXCEEDED");
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|message| message.contains("limits.answer_bytes"))
        );
        assert_eq!(error["path"][0], "toolHistory", "the error names the field: {answer}");
        assert!(!answer.to_string().contains("took effect"), "{answer}");
    }
    let twice = call.replace("status result", "a: result b: result c: result");
    let answer = api.ask(&twice, json!({ "text": "z".repeat(40_000) })).await;
    let message = answer["errors"][0]["message"].as_str().unwrap();
    assert!(message.contains("the mutation took effect"), "{answer}");
    let again = api.get(call, json!({ "text": "y".repeat(40_000) })).await;
    assert_eq!(again["status"], "success", "the limit counts each answer alone");
}
