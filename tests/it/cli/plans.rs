use serde_json::{Value, json};

use super::workspace::Workspace;

const PLAN_WITH_MOST_FEATURES: &str = r#"{
  "query": "greet everybody",
  "tools": [
    { "id": "list", "name": "flow.echo", "parameters": { "all": [1, "yes", "1e3", 9007199254740993, 0.1], "on": "off" } },
    { "id": "each", "forEach": "{{list.all}}", "maxParallel": 2, "plan": {
        "query": "greet one",
        "tools": [{ "id": "e", "name": "flow.echo", "parameters": { "hello": "{{input.who}}", "note": "a: b\n# c" } }]
      }, "parameters": { "who": "{{item}}" } },
    { "id": "last", "name": "flow.echo", "when": "size(list.all) == 5", "onError": "continue", "timeoutMs": 5000,
      "retry": { "maxAttempts": 3 }, "dependsOn": ["each"], "outputMapping": { "x": "v" },
      "compensate": { "name": "flow.noop" }, "parameters": { "x": "{{list.on}}" } }
  ]
}"#;

async fn comparable_steps(workspace: &Workspace, plan: &str) -> Value {
    let debug = workspace.json(&["debug", plan], 0).await;
    let mut tools = debug["plans"][0]["tools"].clone();
    for step in tools.as_array_mut().unwrap() {
        if step["plan"].is_string() {
            step["plan"] = json!("a plan");
            step["toolName"] = json!("a plan");
        }
    }
    tools
}

#[tokio::test]
async fn an_exported_plan_runs_again_unchanged() {
    let workspace = Workspace::new();
    let written = workspace.file("plan.json", PLAN_WITH_MOST_FEATURES);
    let done = workspace.json(&["run", "--plan", &written], 0).await;
    let plan = done["planId"].as_str().unwrap();
    for (format, name) in [("yaml", "plan.yaml"), ("json", "again.json")] {
        let exported = workspace.run(&["export", plan, "--format", format]).await;
        assert_eq!(exported.status, 0, "{exported:?}");
        assert!(!exported.out.contains("timeoutMs: 300000"), "defaults are left out: {exported:?}");
        let file = workspace.file(name, &exported.out);
        let again = workspace.json(&["run", "--plan", &file], 0).await;
        assert_eq!(again["outputs"], done["outputs"], "{}", exported.out);
        let other = again["planId"].as_str().unwrap();
        assert_eq!(
            comparable_steps(&workspace, other).await,
            comparable_steps(&workspace, plan).await,
            "{}",
            exported.out
        );
        assert_eq!(again["plan"]["query"], "greet everybody");
    }
    // The plan is exported by its request, and into a file.
    let file = workspace.path("out.yaml").display().to_string();
    let request = done["requestId"].as_str().unwrap();
    assert_eq!(workspace.run(&["export", request, "-o", &file]).await.status, 0);
    assert_eq!(workspace.json(&["export", request, "-o", &file], 0).await["output"], file.as_str());
    assert_eq!(workspace.json(&["run", "--plan", &file], 0).await["outputs"], done["outputs"]);
    assert_eq!(
        workspace.json(&["export", "plan_1_aaaaaaaaa"], 2).await["error"]["code"],
        "NOT_FOUND"
    );
}

#[tokio::test]
async fn a_plan_printed_as_json_runs_from_a_file() {
    let workspace = Workspace::new();
    let query = "Create author Ada with email ada@test.com, then create blog by Ada titled Salt \
                 about the sea";
    let printed = workspace.run(&["plan", query, "--format", "json"]).await;
    assert_eq!(printed.status, 0, "{printed:?}");
    let plan: Value = serde_json::from_str(&printed.out).unwrap();
    let file = workspace.file("plan.json", &printed.out);
    let done = workspace.json(&["run", "--plan", &file], 0).await;
    assert_eq!(done["outputs"]["createBlog"]["title"], "Salt", "{done:#}");
    assert_ne!(done["planId"], plan["planId"], "the file becomes a new plan");
    assert_eq!(done["plan"]["query"], query);
    let other = done["planId"].as_str().unwrap();
    assert_eq!(comparable_steps(&workspace, other).await, plan["tools"]);

    // A plan with most features and a sub-plan is read from a JSON file and from a YAML file.
    let written = workspace.file("written.json", PLAN_WITH_MOST_FEATURES);
    let done = workspace.json(&["run", "--plan", &written], 0).await;
    let printed = workspace.file("printed.yaml", &format!("# JSON is YAML\n{:#}", done["plan"]));
    let again = workspace.json(&["run", "--plan", &printed], 0).await;
    assert_eq!(again["outputs"], done["outputs"]);
    let (one, other) = (done["planId"].as_str().unwrap(), again["planId"].as_str().unwrap());
    assert_eq!(comparable_steps(&workspace, other).await, comparable_steps(&workspace, one).await);

    let execution = workspace.file("execution.json", &done.to_string());
    let refused = workspace.json(&["run", "--plan", &execution], 2).await;
    let reason = refused["error"]["message"].as_str().unwrap();
    assert!(reason.contains("this is an execution, not a plan: `faber export plan_"), "{reason}");
}

#[tokio::test]
async fn plans_can_be_saved_listed_and_unsaved_by_name() {
    let workspace = Workspace::new();
    let plan = workspace
        .file("plan.yaml", "tools:\n- name: flow.echo\n  parameters: { to: '{{input.who}}' }\n");
    let inputs = r#"{"who":"string","n":{"type":"integer","default":1}}"#;
    let saved = workspace.json(&["save", "greet", "--plan", &plan, "--inputs", inputs], 0).await;
    let id = saved["planId"].as_str().unwrap();
    workspace.json(&["save", "copy", id], 0).await;
    let listed = workspace.json(&["list", "saved"], 0).await;
    let names: Vec<_> = listed.as_array().unwrap().iter().map(|plan| &plan["name"]).collect();
    assert_eq!(names, ["copy", "greet"]);
    let output = workspace.run(&["list", "saved"]).await;
    assert!(output.out.contains("who, n?"), "{output:?}");
    let done = workspace.json(&["run", "--saved", "greet", "--input", r#"{"who":"Ada"}"#], 0).await;
    assert_eq!(done["outputs"]["flow.echo"]["to"], "Ada", "{done:#}");
    let exported = workspace.json(&["export", "greet", "--format", "json"], 0).await;
    assert_eq!(exported["tools"][0]["parameters"], json!({ "to": "{{input.who}}" }));
    // The name of a saved plan can look like an id.
    for name in ["plan", "plan_weekly", "req", "req_x"] {
        workspace.json(&["save", name, id], 0).await;
        assert_eq!(
            workspace.json(&["export", name, "--format", "json"], 0).await,
            exported,
            "{name}"
        );
        workspace.json(&["unsave", name], 0).await;
    }
    let missing = workspace.json(&["export", "gret"], 2).await;
    let reason = missing["error"]["message"].as_str().unwrap();
    assert!(reason.contains("did you mean `greet`?"), "{reason}");

    assert_eq!(workspace.run(&["unsave", "greet"]).await.status, 0);
    assert_eq!(workspace.json(&["unsave", "greet"], 2).await["error"]["code"], "NOT_FOUND");
    assert_eq!(workspace.json(&["run", "--saved", "greet"], 2).await["error"]["code"], "NOT_FOUND");
    assert_eq!(workspace.json(&["run", "--saved", "copy"], 0).await["state"], "COMPLETED");
    let bad = workspace.file("bad.yaml", "tools:\n- name: flow.eco\n");
    let refused = workspace.json(&["save", "x", "--plan", &bad], 2).await;
    assert_eq!(refused["error"]["code"], "INVALID_PLAN");
    assert_eq!(workspace.json(&["save", "x"], 2).await["error"]["code"], "INVALID_ARGUMENT");
}
