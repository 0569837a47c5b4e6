//! The toolkit through the API. Each process sees the changes of other processes, and no
//! simultaneous change is lost.

use chrono::TimeDelta;
use futures::future::join_all;
use serde_json::{Value, json};

use super::test_api::{TestApi, api, apis_without_server, texts_of_field, two_processes};

const GRAPH_QUERY: &str = "{ actions { name } tools { name } edges { from to kind score } }";

async fn build_graph(api: &TestApi) {
    let add = "mutation ($input: ActionInput!) { addAction(input: $input) { warnings } }";
    for index in 1..=4 {
        let input =
            json!({ "name": format!("a{index}"), "description": format!("Action {index}.") });
        let change = api.get(add, json!({ "input": input })).await;
        assert_eq!(change["warnings"], json!([]));
    }
    for (from, to, score) in [
        ("a1", "a2", 0.8),
        ("a1", "a3", 0.6),
        ("a2", "a3", 0.7),
        ("a2", "a4", 0.9),
        ("a3", "a4", 0.7),
    ] {
        let next = json!([{ "name": to, "score": score }]);
        let input = json!({ "name": from, "description": "other words", "next": next });
        let change = api.get(add, json!({ "input": input })).await;
        assert_eq!(change["warnings"], json!([]));
    }
    for (n, score) in [(1, 0.9), (2, 0.8), (3, 0.9), (4, 0.8)] {
        let actions = json!([{ "name": format!("a{n}"), "score": score }]);
        let change = connect_tool(api, &format!("t{n}"), actions).await;
        assert_eq!(change["warnings"], json!([]));
    }
}

async fn connect_tool(api: &TestApi, name: &str, actions: Value) -> Value {
    let query = "mutation ($name: String!, $actions: [EdgeInput!]!) {
        connectTool(name: $name, actions: $actions) {
            warnings toolkit { actions { name } tools { name } } } }";
    api.get(query, json!({ "name": name, "actions": actions })).await
}

async fn read_graph(api: &TestApi) -> Value {
    api.get(&format!("{{ toolkit {GRAPH_QUERY} }}"), json!({})).await
}

async fn read_score(api: &TestApi, from: &str, to: &str) -> Value {
    let query = "query ($from: String!, $to: String!) { toolkitScore(from: $from, to: $to) }";
    api.get(query, json!({ "from": from, "to": to })).await
}

fn names_in(graph: &Value) -> [Vec<String>; 2] {
    ["actions", "tools"].map(|part| texts_of_field(graph[part].as_array().unwrap(), "name"))
}

#[tokio::test(flavor = "multi_thread")]
async fn recommendations_follow_thresholds_and_hops() {
    for api in apis_without_server().await {
        build_graph(&api).await;
        let all = read_graph(&api).await;
        assert_eq!(names_in(&all), [vec!["a1", "a2", "a3", "a4"], vec!["t1", "t2", "t3", "t4"]]);
        assert_eq!(all["edges"].as_array().unwrap().len(), 9);
        let first = json!({ "from": "a1", "to": "a2", "kind": "next", "score": 0.8 });
        assert_eq!(all["edges"][0], first);
        let query = format!(
            "query ($actions: [String!]!, $threshold: Float, $hops: Int) {{
                recommendSubgraph(actions: $actions, threshold: $threshold, hops: $hops) {GRAPH_QUERY} }}"
        );
        for (start, threshold, hops, vertices, edges) in [
            (json!(["a1"]), json!(0.5), json!(0), "a1 t1", 1),
            (json!(["a1"]), json!(0.5), json!(1), "a1 a2 a3 t1 t2 t3", 6),
            (json!(["a1"]), json!(0.5), json!(2), "a1 a2 a3 a4 t1 t2 t3 t4", 9),
            (json!(["a1"]), json!(0.7), json!(1), "a1 a2 t1 t2", 3),
            (json!(["a1"]), json!(0.7), json!(2), "a1 a2 a3 a4 t1 t2 t3 t4", 8),
            (json!(["a1"]), json!(0.8), json!(2), "a1 a2 a4 t1 t2 t4", 5),
            (json!(["a1"]), json!(0.9), json!(0), "a1 t1", 1),
            (json!(["a1"]), json!(0.9), json!(3), "a1 t1", 1),
            (json!(["a1", "a3"]), json!(0.6), json!(1), "a1 a2 a3 a4 t1 t2 t3 t4", 9),
            (json!(["a1", "nope"]), Value::Null, Value::Null, "a1 t1", 1),
            (json!(["a1"]), json!(0.5), json!(-3), "a1 t1", 1),
            (json!(["nope"]), json!(0.5), json!(9), "", 0),
        ] {
            let given = json!({ "actions": start, "threshold": threshold, "hops": hops });
            let found = api.get(&query, given.clone()).await;
            let near =
                (names_in(&found).concat().join(" "), found["edges"].as_array().unwrap().len());
            assert_eq!(near, (vertices.to_owned(), edges), "{given}");
            let lists = query.replacen("recommendSubgraph", "recommendToolsActions", 1);
            let lists = lists.replacen(GRAPH_QUERY, "{ actions { name } tools { name } }", 1);
            assert_eq!(
                names_in(&api.get(&lists, given.clone()).await).concat().join(" "),
                vertices
            );
        }
        let query = "{ recommendToolsActions(actions: [\"a1\"], hops: 1) {
            tools { name source active } actions { name description } } }";
        let found = api.get(query, json!({})).await;
        assert_eq!(names_in(&found), [vec!["a1", "a2", "a3"], vec!["t1", "t2", "t3"]]);
        assert_eq!(found["tools"][0]["source"], "toolkit", "the tool is not registered");
        assert_eq!(found["actions"][0]["description"], "Action 1.");
        let part = api
            .get(
                &format!("{{ toolkitSubgraph(names: [\"t2\", \"a2\", \"x\"]) {GRAPH_QUERY} }}"),
                json!({}),
            )
            .await;
        assert_eq!(
            (names_in(&part), part["edges"].as_array().unwrap().len()),
            ([vec!["a2".into()], vec!["t2".into()]], 1)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misspelled_tool_in_the_toolkit_is_a_warning() {
    let api = api().await;
    let add = "mutation ($input: ActionInput!) { addAction(input: $input) { warnings } }";
    let misspelt = |name: &str, meant: &str| {
        json!([format!("no tool `{name}` is registered: did you mean `{meant}`?")])
    };
    let tools = json!([{ "name": "flow.ecko" }, { "name": "flow.noop" }, { "name": "later" }]);
    let input = json!({ "name": "say", "description": "", "tools": tools });
    let change = api.get(add, json!({ "input": input })).await;
    assert_eq!(change["warnings"], misspelt("flow.ecko", "flow.echo"));
    let action = || json!([{ "name": "say" }]);
    let change = connect_tool(&api, "flow.slep", action()).await;
    assert_eq!(change["warnings"], misspelt("flow.slep", "flow.sleep"));
    assert_eq!(names_in(&change["toolkit"])[1], ["flow.ecko", "flow.noop", "later", "flow.slep"]);
    assert_eq!(connect_tool(&api, "flow.sleep", action()).await["warnings"], json!([]));
    let update = "mutation ($yaml: String!) { updateToolkit(yaml: $yaml) { warnings } }";
    let yaml = "tools:\n- &t\n  name: flow.wiat\n  type: MCP\nactions:\n- &a\n  name: pause\n  desc: d\n  tools: [*t]\ntoolkit:\n- [*a]\n";
    let change = api.get(update, json!({ "yaml": yaml })).await;
    assert_eq!(change["warnings"], misspelt("flow.wiat", "flow.wait"));
}

#[tokio::test(flavor = "multi_thread")]
async fn recommendations_end_on_cycles_and_skip_weak_tools() {
    let api = api().await;
    let add = "mutation ($input: ActionInput!) { addAction(input: $input) { warnings } }";
    for (name, before) in [("c0", None), ("c1", Some("c0")), ("c2", Some("c1"))] {
        let before = before.map(|name| json!([{ "name": name, "score": 0.9 }]));
        let input = json!({ "name": name, "description": "", "prev": before });
        api.get(add, json!({ "input": input })).await;
    }
    let close = json!({ "name": "c2", "description": "", "next": [{ "name": "c0", "score": 0.9 }],
        "tools": [{ "name": "weak", "score": 0.3 }] });
    api.get(add, json!({ "input": close })).await;
    let near = async |hops: i32, threshold: f64| {
        let query = format!(
            "{{ recommendSubgraph(actions: [\"c0\"], hops: {hops}, threshold: {threshold}) {GRAPH_QUERY} }}"
        );
        let found = api.get(&query, json!({})).await;
        (names_in(&found).concat().join(" "), found["edges"].as_array().unwrap().len())
    };
    for (hops, threshold, vertices, edges) in [
        (1, 0.5, "c0 c1", 1),
        (10, 0.5, "c0 c1 c2", 3),
        (10, 0.3, "c0 c1 c2 weak", 4),
        (10, 0.91, "c0", 0),
    ] {
        assert_eq!(near(hops, threshold).await, (vertices.to_owned(), edges), "{hops} {threshold}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn toolkit_changes_are_visible_to_other_processes() {
    let [one, other] = two_processes().await;
    build_graph(&one).await;
    assert_eq!(read_score(&other, "a1", "a2").await, 0.8);
    let set =
        "mutation ($from: String!, $to: String!) { setScore(from: $from, to: $to, score: 0.3) }";
    assert_eq!(other.get(set, json!({ "from": "a1", "to": "a2" })).await, true);
    assert_eq!(other.get(set, json!({ "from": "a2", "to": "a1" })).await, false);
    assert_eq!(other.get(set, json!({ "from": "", "to": "\n" })).await, false);
    assert_eq!(read_score(&one, "a1", "a2").await, 0.3);
    assert_eq!(read_score(&one, "a2", "a1").await, 1.0);
    let remove = "mutation ($name: String!) { removeAction(name: $name) }";
    for (name, removed) in [("t1", false), ("a1", true), ("a1", false), ("nope", false)] {
        assert_eq!(other.get(remove, json!({ "name": name })).await, removed, "{name}");
    }
    let left = read_graph(&one).await;
    assert_eq!(names_in(&left), [vec!["a2", "a3", "a4"], vec!["t2", "t3", "t4"]]);
    assert_eq!(left["edges"].as_array().unwrap().len(), 6);
    assert_eq!(read_score(&one, "a1", "a2").await, 1.0);
    let disconnect = "mutation ($name: String!) { disconnectTool(name: $name) }";
    for (name, removed) in [("a2", false), ("t2", true), ("t2", false)] {
        assert_eq!(one.get(disconnect, json!({ "name": name })).await, removed, "{name}");
    }
    assert_eq!(names_in(&read_graph(&other).await)[1], ["t3", "t4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_toolkit_changes_are_all_kept() {
    let apis = two_processes().await;
    let add = "mutation ($input: ActionInput!) { addAction(input: $input) { warnings } }";
    let hub = json!({ "name": "hub", "description": "" });
    apis[0].get(add, json!({ "input": hub })).await;
    join_all((0..24).map(async |index| {
        let input = json!({
            "name": format!("a{index}"), "description": "", "prev": [{ "name": "hub" }],
            "tools": [{ "name": format!("t{index}"), "score": 0.5 }],
        });
        let change = apis[index % 2].get(add, json!({ "input": input })).await;
        assert_eq!(change["warnings"], json!([]));
    }))
    .await;
    for api in &apis {
        let all = read_graph(api).await;
        let [actions, tools] = names_in(&all);
        let edges = all["edges"].as_array().unwrap().len();
        assert_eq!((actions.len(), tools.len(), edges), (25, 24, 48));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_names_are_warnings_and_conflicting_names_are_refused() {
    let api = api().await;
    build_graph(&api).await;
    let change = connect_tool(&api, "t9", json!([{ "name": "nope" }])).await;
    let expected = json!([
        "action `nope` is not in the toolkit: its edge with `t9` was left out",
        "tool `t9` has no connected actions and was left out",
    ]);
    assert_eq!(change["warnings"], expected);
    assert_eq!(names_in(&change["toolkit"])[1].len(), 4);
    let add = "mutation ($input: ActionInput!) { addAction(input: $input) { warnings } }";
    let odd = json!({ "name": "a5", "description": "", "next": [{ "name": "nope" }] });
    let change = api.get(add, json!({ "input": odd })).await;
    let expected = json!(["action `nope` is not in the toolkit: its edge with `a5` was left out"]);
    assert_eq!(change["warnings"], expected);
    for (name, code) in [
        ("t1", "CONFLICT"),
        ("flow.echo", "CONFLICT"),
        ("", "INVALID_ARGUMENT"),
        ("  ", "INVALID_ARGUMENT"),
    ] {
        let input = json!({ "name": name, "description": "" });
        let refused = api.expect_error(add, json!({ "input": input })).await;
        assert_eq!(refused["code"], code, "{refused}");
    }
    let query = "mutation { connectTool(name: \"a1\", actions: [{name: \"a2\"}]) { warnings } }";
    assert_eq!(api.expect_error(query, json!({})).await["code"], "CONFLICT");
    let register = "mutation ($input: ToolInput!) { registerTool(input: $input) { name } }";
    let tool = |name: &str| {
        json!({ "input": { "name": name, "description": "Says it again.",
            "parameters": { "type": "object" }, "run": { "command": ["cat"] } } })
    };
    assert_eq!(api.expect_error(register, tool("a1")).await["code"], "CONFLICT");
    let add_set = "mutation ($input: ToolSetInput!) { addToolSet(input: $input) { name } }";
    let source = json!({ "tools": [{ "name": "other" }, { "name": "a1" }] });
    let set = json!({ "input": { "name": "clash", "description": "", "source": source } });
    assert_eq!(api.expect_error(add_set, set).await["code"], "CONFLICT");
    // The toolkit already names `t1`. After the registration, `t1` and `local.t1` both mean the
    // registered tool.
    api.get(register, tool("t1")).await;
    let change = connect_tool(&api, "local.t1", json!([{ "name": "a2" }])).await;
    assert_eq!(names_in(&change["toolkit"])[1], ["t1", "t2", "t3", "t4"]);
    let query = "{ toolkit { tools { name source description toolSet qualifiedName } } }";
    let tools = api.get(query, json!({})).await;
    let expected = json!({ "name": "t1", "source": "local", "description": "Says it again.",
        "toolSet": "local", "qualifiedName": "local.t1" });
    assert_eq!(tools["tools"][0], expected);
    let gone = "mutation { removeAction(name: \"a1\") }";
    api.get(gone, json!({})).await;
    let still = api.get("{ tool(name: \"t1\") { name } }", json!({})).await;
    assert_eq!(still["name"], "t1", "removing a tool from the graph keeps it registered");
}

/// Regression: the toolkit found the tool only by the name that was used first.
#[tokio::test(flavor = "multi_thread")]
async fn the_toolkit_finds_a_tool_by_each_of_its_names() {
    let api = api().await;
    let register = "mutation ($input: ToolInput!) { registerTool(input: $input) { name } }";
    let tool = json!({ "name": "brew", "toolSet": "kitchen", "description": "Brews.",
        "parameters": { "type": "object" }, "run": {} });
    api.get(register, json!({ "input": tool })).await;
    for [first, second] in [["kitchen.brew", "brew"], ["brew", "kitchen.brew"]] {
        let add = "mutation ($input: ActionInput!) { addAction(input: $input) { warnings } }";
        let tools = json!([{ "name": first, "score": 1.0 }, { "name": second, "score": 0.2 }]);
        let input = json!({ "name": "rest", "description": "", "tools": tools });
        assert_eq!(api.get(add, json!({ "input": input })).await["warnings"], json!([]));
        let set = "mutation ($to: String!) { setScore(from: \"rest\", to: $to, score: 0.4) }";
        let part = format!(
            "query ($names: [String!]!) {{ toolkitSubgraph(names: $names) {GRAPH_QUERY} }}"
        );
        for name in [first, second] {
            assert_eq!(read_score(&api, "rest", name).await, 0.2, "{name}");
            let found = api.get(&part, json!({ "names": ["rest", name, "nope"] })).await;
            assert_eq!(names_in(&found), [vec!["rest"], vec![first]], "{name}");
            assert_eq!(found["edges"].as_array().map(Vec::len), Some(1));
        }
        assert_eq!(api.get(set, json!({ "to": second })).await, true);
        assert_eq!(read_score(&api, "rest", first).await, 0.4);
        // A toolkit file can contain both names of the tool, too.
        let update = "mutation ($yaml: String!) { updateToolkit(yaml: $yaml) { warnings } }";
        let yaml = "tools: [&a { name: brew }, &b { name: kitchen.brew }]\nactions: \
            [&r { name: rest, tools: [*a] }, &s { name: sip, tools: [*b] }]\ntoolkit: [[*r, *s]]";
        api.get(update, json!({ "yaml": yaml })).await;
        assert_eq!(names_in(&read_graph(&api).await), [vec!["rest", "sip"], vec![first]]);
        assert_eq!(read_score(&api, "rest", second).await, 0.4, "an edge keeps its score");
        let disconnect = "mutation ($name: String!) { disconnectTool(name: $name) }";
        for removed in [true, false] {
            assert_eq!(api.get(disconnect, json!({ "name": second })).await, removed);
        }
        api.get(update, json!({ "yaml": yaml })).await;
        assert_eq!(
            names_in(&read_graph(&api).await)[1],
            ["brew"],
            "within a file the first name counts"
        );
        api.get("mutation { removeAction(name: \"rest\") }", json!({})).await;
        api.get("mutation { removeAction(name: \"sip\") }", json!({})).await;
        assert_eq!(names_in(&read_graph(&api).await)[1], [""; 0]);
    }
}

/// Regression: if more than two thousand executions had finished since the last run of the
/// learning, the learning counted only the newest of them.
#[tokio::test(flavor = "multi_thread")]
async fn learning_counts_every_execution_of_a_large_backlog() {
    let api = api().await;
    let plan = api.plan(json!([{ "name": "flow.noop" }])).await;
    let run = async |times: usize| {
        let query = "mutation ($id: ID!) { executePlan(planId: $id) { executionId } }";
        for _ in 0..times {
            api.get(query, json!({ "id": plan })).await;
        }
        let open = "{ executions(filter: { state: [PENDING, IN_PROGRESS] }) { nodes { state } } }";
        let mut look = tokio::time::interval(std::time::Duration::from_millis(20));
        while api.get(open, json!({})).await["nodes"] != json!([]) {
            look.tick().await;
        }
        api.engine.clock().now()
    };
    for _ in 0..2 {
        let until = run(2_300).await;
        assert_eq!(api.engine.selection.learning.learn(until).await.unwrap(), 2_300);
        assert_eq!(api.engine.selection.learning.learn(until).await.unwrap(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn learning_counts_each_execution_once() {
    let [asking, api] = two_processes().await;
    let add = "mutation ($input: ActionInput!) { addAction(input: $input) { warnings } }";
    for (name, tool) in [("say", "flow.echo"), ("rest", "flow.noop"), ("act", "flow.effect")] {
        let input = json!({ "name": name, "description": "", "tools": [{ "name": tool }] });
        api.get(add, json!({ "input": input })).await;
    }
    let next = json!([{ "name": "rest", "score": 0.5 }, { "name": "act", "score": 0.5 }]);
    let input = json!({ "name": "say", "description": "", "next": next });
    api.get(add, json!({ "input": input })).await;
    let edges = "{ toolkit { edges { from to score learned } } }";
    let learned = async |from: &str, to: &str| {
        let all = asking.get(edges, json!({})).await;
        let edges = all["edges"].as_array().unwrap();
        let found = edges.iter().find(|edge| edge["from"] == from && edge["to"] == to).unwrap();
        (found["score"].as_f64(), found["learned"].as_f64())
    };
    assert_eq!(learned("say", "rest").await, (Some(0.5), None), "nothing is learned yet");
    let good = json!([{ "name": "flow.echo", "parameters": { "x": 1 } },
        { "name": "flow.noop", "dependsOn": "flow.echo" }]);
    for _ in 0..6 {
        let id = api.start(good.clone(), json!({})).await;
        api.events(&id).await;
    }
    let bad = json!([{ "name": "flow.echo" },
        { "name": "flow.effect", "dependsOn": "flow.echo" },
        { "name": "flow.fail", "parameters": { "message": "no" }, "dependsOn": "flow.effect" }]);
    for (tools, options) in [(bad, json!({})), (good, json!({ "dryRun": true }))] {
        let id = api.start(tools, options).await;
        api.events(&id).await;
    }
    let until = api.engine.clock().now() + TimeDelta::minutes(1);
    assert_eq!(api.engine.selection.learning.learn(until).await.unwrap(), 6);
    assert_eq!(
        asking.engine.selection.learning.learn(until).await.unwrap(),
        0,
        "an execution counts once"
    );
    let (score, rest) = learned("say", "rest").await;
    let (_, act) = learned("say", "act").await;
    assert_eq!(score, Some(0.5), "the configured score stays");
    assert!(rest > Some(0.8) && act < Some(0.2), "{rest:?} {act:?}");
    let query = "{ toolFollowers(name: \"echo\", first: 1) { toolName score } }";
    let followers = asking.get(query, json!({})).await;
    assert_eq!(followers[0]["toolName"], "flow.noop", "{followers}");
    // Regression: for a tool without followers and for unknown names, the query returned the most
    // called tools.
    for name in ["flow.noop", "nope", "a b"] {
        let query = "query ($name: String!) { toolFollowers(name: $name) { toolName } }";
        assert_eq!(asking.get(query, json!({ "name": name })).await, json!([]), "{name}");
    }
}

const TOOLKIT_FILE: &str = r#"
tools:
  - &reader
    name: Reader
    module_path: a.b
  - &writer { name: Writer, type: MCP }
actions:
  - &look
    name: look
    desc: "Looks <b>\"everywhere\"</b>."
    tools: [*reader]
  - &think
    name: think
    tools:
      - *reader
      - *writer
  - &say { name: "say: ][ #1", desc: 说 }
toolkit:
  - [*look, *think]
  - [*say, { name: nobody }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_toolkit_file_is_imported_and_exported() {
    let api = api().await;
    let update = "mutation ($yaml: String!) { updateToolkit(yaml: $yaml) { warnings } }";
    let change = api.get(update, json!({ "yaml": TOOLKIT_FILE })).await;
    let expected = json!(["`toolkit[1][1]`: there is no action `nobody`; the name was left out"]);
    assert_eq!(change["warnings"], expected);
    let set = "mutation { setScore(from: \"look\", to: \"think\", score: 0.25) }";
    assert_eq!(api.get(set, json!({})).await, true);
    api.get(update, json!({ "yaml": TOOLKIT_FILE })).await;
    assert_eq!(read_score(&api, "look", "think").await, 0.25, "an edge keeps its score");
    let before = read_graph(&api).await;
    assert_eq!(names_in(&before), [vec!["look", "say: ][ #1", "think"], vec!["Reader", "Writer"]]);
    let yaml = api.get("{ toolkit { yaml } }", json!({})).await["yaml"].clone();
    let other = self::api().await;
    let change = other.get(update, json!({ "yaml": yaml })).await;
    assert_eq!(change["warnings"], json!([]));
    assert_eq!(read_graph(&other).await, before);
    let again = other.get("{ toolkit { yaml } }", json!({})).await["yaml"].clone();
    assert_eq!(again, yaml);
    let query = "{ toolkit { mermaid dot svg(title: \"A & B\") actions { description } } }";
    let drawn = other.get(query, json!({})).await;
    assert_eq!(drawn["actions"][0]["description"], "Looks <b>\"everywhere\"</b>.");
    let part = |format: &str, part: &str| {
        assert!(drawn[format].as_str().unwrap().contains(part), "{part}: {drawn:#}");
    };
    part("mermaid", "n0[\"look\"]:::action");
    part("dot", "label=\"0.25\"");
    part("svg", "<title>A &amp; B</title>");
    for (yaml, part) in [
        ("tools: [x]", "`tools[0]` must be a map"),
        ("tools: [{ name: x, type: y }]", "must be either LOCAL_TOOL or MCP"),
        ("[", "this is not YAML"),
    ] {
        let refused = api.expect_error(update, json!({ "yaml": yaml })).await;
        assert_eq!(refused["code"], "INVALID_ARGUMENT");
        assert!(refused["message"].as_str().unwrap().contains(part), "{refused}");
    }
    assert_eq!(read_graph(&api).await, before, "a refusal changes nothing");
}

/// Actions on a cycle are recommended in the sequence of their insertion. Regression: exported
/// files lost this sequence.
#[tokio::test(flavor = "multi_thread")]
async fn an_exported_toolkit_file_keeps_the_order_of_recommendations() {
    let [api, other] = [api().await, api().await];
    build_graph(&api).await;
    connect_tool(&api, "t0", json!([{ "name": "a4" }])).await;
    let add = "mutation ($input: ActionInput!) { addAction(input: $input) { warnings } }";
    let back = json!({ "name": "a0", "description": "", "prev": [{ "name": "a4" }],
        "next": [{ "name": "a1" }] });
    api.get(add, json!({ "input": back })).await;
    let before = read_graph(&api).await;
    assert_eq!(names_in(&before)[0], ["a1", "a2", "a3", "a4", "a0"]);
    let yaml = api.get("{ toolkit { yaml } }", json!({})).await["yaml"].clone();
    let update = "mutation ($yaml: String!) { updateToolkit(yaml: $yaml) { warnings } }";
    other.get(update, json!({ "yaml": yaml })).await;
    assert_eq!(read_graph(&other).await, before);
    for action in ["a1", "a2", "a3", "a4", "a0"] {
        let remove = "mutation ($name: String!) { removeAction(name: $name) }";
        api.get(remove, json!({ "name": action })).await;
    }
    assert_eq!(names_in(&read_graph(&api).await).concat(), [""; 0]);
    api.get(update, json!({ "yaml": yaml })).await;
    assert_eq!(read_graph(&api).await, before);
}
