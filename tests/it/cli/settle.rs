//! Calls with an unknown outcome: people settle them, and retries usually repeat them with the same
//! key.

use std::{
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{Json, Router, http::HeaderMap, routing::post};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};

use super::workspace::Workspace;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a text"))
}

/// A workspace with three tools. `own.pay` logs its idempotency key, and gives no answer while the
/// file `slow` exists. `own.refund` logs the parameters of its calls. `own.pay` and `own.check`
/// fail while the file `broken` exists.
struct Shop {
    workspace: Workspace,
}

impl Shop {
    fn new() -> Self {
        let workspace = Workspace::new();
        let (keys, slow, refunds) =
            (workspace.path("keys"), workspace.path("slow"), workspace.path("refunds"));
        let broken = workspace.path("broken");
        let pay = format!(
            "echo \"$FABER_IDEMPOTENCY_KEY\" >> {}; [ -e {} ] && sleep 60; [ -e {} ] && exit 1; \
             echo '{{\"id\": 1}}'",
            keys.display(),
            slow.display(),
            broken.display()
        );
        let check = format!("! [ -e {} ]", broken.display());
        let refund = format!("cat >> {}; echo >> {}", refunds.display(), refunds.display());
        let tool = |name: &str, script: &str| json!({ "name": name, "effect": "once", "run": { "command": ["sh", "-c", script] } });
        let tools = [tool("pay", &pay), tool("refund", &refund), tool("check", &check)];
        let set = json!({ "name": "own", "source": { "tools": tools } });
        let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
        workspace.file("faber.yaml", &config.to_string());
        workspace.file("slow", "");
        Self { workspace }
    }

    fn read_lines(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.workspace.path(name)).unwrap_or_default();
        text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    fn let_pay_answer(&self) {
        fs::remove_file(self.workspace.path("slow")).unwrap();
    }

    async fn run(&self, tools: &Value, arguments: &[&str], status: i32) -> String {
        let plan = self.workspace.file("plan.json", &json!({ "tools": tools }).to_string());
        let arguments = [&["run", "--plan", &plan][..], arguments].concat();
        text(&self.workspace.json(&arguments, status).await["executionId"]).to_owned()
    }

    async fn step(&self, id: &str, step: &str) -> Value {
        let document = self.workspace.json(&["watch", id], 1).await;
        let steps = document["steps"].as_array().expect("steps").clone();
        steps.into_iter().find(|found| found["stepId"] == step).expect("the step")
    }
}

fn pay_step(parameters: &Value) -> Value {
    json!({ "id": "pay", "name": "own.pay", "timeoutMs": 1000, "parameters": parameters,
        "compensate": { "name": "own.refund", "parameters": { "payment": "{{pay.id}}" } } })
}

#[tokio::test]
async fn a_retry_sends_the_key_of_the_call_whose_outcome_is_unknown() {
    let shop = Shop::new();
    let first = shop.run(&json!([pay_step(&json!({}))]), &[], 1).await;
    let second = shop.workspace.json(&["retry", &first, "--yes"], 1).await;
    let second = text(&second["executionId"]).to_owned();
    shop.let_pay_answer();
    shop.workspace.json(&["retry", &second, "--yes"], 0).await;
    let key = format!("{first}/pay");
    assert_eq!(
        shop.read_lines("keys"),
        [key.as_str(), &key, &key],
        "the key survives a chain of retries"
    );
}

#[tokio::test]
async fn a_call_settled_as_succeeded_is_reused_and_compensated_by_a_retry() {
    let shop = Shop::new();
    let next = json!({ "id": "ship", "name": "flow.fail", "parameters": { "message": "no" },
        "dependsOn": "pay" });
    let id = shop.run(&json!([pay_step(&json!({})), next]), &["--compensate"], 1).await;
    let workspace = &shop.workspace;
    for (arguments, code) in [
        (&["ship", "--failed"][..], "CONFLICT"),
        (&["pay", "--succeeded", "no JSON"], "INVALID_ARGUMENT"),
        (&["pay", "--failed", "--item", "1"], "INVALID_ARGUMENT"),
        (&["none", "--failed"], "NOT_FOUND"),
    ] {
        let refused = workspace.json(&[&["settle", &id], arguments].concat(), 2).await;
        assert_eq!(refused["error"]["code"], code, "{arguments:?} {refused}");
    }
    let settle = ["settle", &id, "pay", "--succeeded", r#"{"id": 7}"#, "--comment", "seen"];
    let output = workspace.run(&settle).await;
    assert_eq!(output.status, 0, "{output:?}");
    assert!(
        output.err.contains("own.refund") && output.err.contains(r#"{"payment":7}"#),
        "{output:?}"
    );
    assert_eq!(workspace.run(&settle).await.status, 0, "the same answer twice");
    let other = workspace.json(&["settle", &id, "pay", "--failed"], 2).await;
    assert_eq!(other["error"]["code"], "CONFLICT", "{other}");
    let step = shop.step(&id, "pay").await;
    assert_eq!((&step["state"], &step["settled"]), (&json!("FAILED"), &json!("SUCCEEDED")));

    let retried = workspace.json(&["retry", &id], 1).await;
    assert_eq!(retried["steps"][0]["reused"], true, "{retried}");
    assert_eq!(shop.read_lines("keys").len(), 1, "the payment is not repeated");
    assert_eq!(
        shop.read_lines("refunds"),
        [r#"{"payment":7}"#],
        "the retry compensated the payment"
    );
}

/// The step has a timeout of a millisecond. The demo's `createAuthor` takes longer, so the outcome
/// of its call is unknown. The tool has an output schema.
#[tokio::test]
async fn settle_rejects_an_output_that_violates_the_schema_of_the_tool() {
    let workspace = Workspace::new();
    let author = json!({ "name": "Eve", "email": "eve@example.com" });
    let step = json!({ "id": "author", "name": "createAuthor", "parameters": author,
        "timeoutMs": 1 });
    let plan = workspace.file("plan.json", &json!({ "tools": [step] }).to_string());
    let ended = workspace.json(&["run", "--plan", &plan], 1).await;
    let error = &ended["executionResults"]["errors"][0];
    assert_eq!(error["code"], "tool.outcome_unknown", "{error}");
    let id = text(&ended["executionId"]);
    let refused = workspace.json(&["settle", id, "author", "--succeeded", r#"["Eve"]"#], 2).await;
    assert_eq!(refused["error"]["code"], "INVALID_ARGUMENT");
    assert!(text(&refused["error"]["message"]).contains("outputSchema"), "{refused}");
    workspace.json(&["settle", id, "author", "--succeeded"], 0).await;
}

#[tokio::test]
async fn a_call_settled_as_failed_is_repeated_with_a_new_key() {
    let shop = Shop::new();
    let id = shop.run(&json!([pay_step(&json!({}))]), &[], 1).await;
    shop.let_pay_answer();
    shop.workspace.json(&["settle", &id, "pay", "--failed"], 0).await;
    let retried = shop.workspace.json(&["retry", &id], 0).await;
    let again = format!("{}/pay", text(&retried["executionId"]));
    assert_eq!(shop.read_lines("keys"), [format!("{id}/pay"), again]);
}

#[tokio::test]
async fn settling_a_step_that_waits_for_a_decision_continues_the_execution() {
    let shop = Shop::new();
    let mut waits = pay_step(&json!({}));
    waits["onError"] = json!("wait");
    let next = json!({ "id": "ship", "name": "flow.echo", "parameters": { "of": "{{pay.id}}" } });
    let id = shop.run(&json!([waits, next]), &[], 4).await;
    let refused = shop.workspace.json(&["approve", &id, "pay"], 2).await;
    let message = text(&refused["error"]["message"]);
    for part in [&format!("`faber settle {id} pay --succeeded`"), "`--yes`"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(shop.read_lines("keys").len(), 1, "the payment is not repeated");
    let done = shop.workspace.json(&["settle", &id, "pay", "--succeeded", r#"{"id": 7}"#], 0).await;
    assert_eq!(done["outputs"], json!({ "pay": { "id": 7 }, "ship": { "of": 7 } }), "{done}");
    assert_eq!(done["steps"][0]["settled"], "SUCCEEDED", "{done}");
}

#[tokio::test]
async fn an_approved_repetition_of_an_unknown_call_sends_its_key() {
    let shop = Shop::new();
    let mut waits = pay_step(&json!({}));
    waits["onError"] = json!("wait");
    let id = shop.run(&json!([waits]), &[], 4).await;
    shop.let_pay_answer();
    shop.workspace.json(&["approve", &id, "pay", "--yes"], 0).await;
    let key = format!("{id}/pay");
    assert_eq!(shop.read_lines("keys"), [key.as_str(), &key]);
}

#[tokio::test]
async fn items_of_a_loop_are_settled_one_by_one() {
    let shop = Shop::new();
    let each = json!({ "id": "each", "name": "own.pay", "timeoutMs": 300,
        "forEach": "{{input.list}}", "parameters": { "n": "{{item}}" }, "maxParallel": 2 });
    let input = ["--input", r#"{"list": [5, 6]}"#];
    let id = shop.run(&json!([each]), &input, 1).await;
    let report = shop.workspace.run(&["debug", &id]).await.out;
    for item in 0..2 {
        let settle = format!("faber settle {id} each --item {item} --succeeded");
        assert!(report.contains(&settle), "{report}");
    }
    let refused = shop.workspace.json(&["settle", &id, "each", "--failed"], 2).await;
    assert_eq!(refused["error"]["code"], "INVALID_ARGUMENT");
    assert!(text(&refused["error"]["message"]).contains("0, 1"), "{refused}");
    shop.workspace
        .json(&["settle", &id, "each", "--item", "1", "--succeeded", r#"{"id": 9}"#], 0)
        .await;
    shop.let_pay_answer();
    let output = shop.workspace.run(&["retry", &id]).await;
    assert_eq!(output.status, 2, "{output:?}");
    assert!(output.err.contains("1 call, with an unknown outcome"), "{output:?}");
    let settle = format!("`faber settle {id} each --item 0 --succeeded`");
    assert!(output.err.contains(&settle), "{output:?}");
    let retried = shop.workspace.json(&["retry", &id, "--yes"], 0).await;
    assert_eq!(retried["outputs"], json!({ "each": [{ "id": 1 }, { "id": 9 }] }), "{retried}");
    let mut keys = shop.read_lines("keys");
    let last = keys.pop().expect("a key");
    assert_eq!((keys.len(), last), (2, format!("{id}/each[0]")), "item 0 keeps its key");
}

#[tokio::test]
async fn a_retry_with_other_parameters_uses_a_new_key_and_warns() {
    let shop = Shop::new();
    let workspace = &shop.workspace;
    // The tool returns 1 at the first call and 2 at later calls.
    workspace.file("n", "1");
    let n = workspace.path("n").display().to_string();
    let script = format!("cat {n}; echo 2 > {n}");
    let read =
        json!({ "name": "read", "effect": "read", "run": { "command": ["sh", "-c", script] } });
    let config: Value =
        serde_json::from_str(&fs::read_to_string(workspace.path("faber.yaml")).unwrap()).unwrap();
    let mut config = config;
    config["toolsets"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "more", "source": { "tools": [read] } }));
    workspace.file("faber.yaml", &config.to_string());
    let sum = json!({ "id": "sum", "name": "more.read" });
    let id = shop.run(&json!([sum, pay_step(&json!({ "sum": "{{sum}}" }))]), &[], 1).await;
    shop.let_pay_answer();
    let retried = workspace.json(&["retry", &id, "--all", "--yes"], 0).await;
    let again = format!("{}/pay", text(&retried["executionId"]));
    assert_eq!(shop.read_lines("keys"), [format!("{id}/pay"), again]);
    let warnings = retried["steps"][1]["warnings"].to_string();
    assert!(warnings.contains("new idempotency key"), "{warnings}");
}

#[tokio::test]
async fn the_call_of_a_sub_plan_is_settled_in_the_child() {
    let shop = Shop::new();
    let inner = json!({ "tools": [pay_step(&json!({}))] });
    let sub = json!({ "id": "sub", "plan": inner, "parameters": {} });
    let id = shop.run(&json!([sub]), &[], 1).await;
    let step = shop.step(&id, "sub").await;
    let child = text(&step["childExecutionId"]).to_owned();
    let refused = shop.workspace.json(&["settle", &id, "sub", "--failed"], 2).await;
    assert!(text(&refused["error"]["message"]).contains(&child), "{refused}");
    let result = shop.workspace.run(&["retry", &id]).await;
    assert_eq!(result.status, 2, "{result:?}");
    assert!(result.err.contains(&format!("`faber settle {child} pay --succeeded`")), "{result:?}");
    let output = shop.workspace.run(&["debug", &id]).await.out;
    assert!(output.contains(&format!("faber settle {child} pay --succeeded")), "{output}");
    // If no person settles the call, the new child sends the key of the old child, so that the
    // service can recognise the repetition.
    let second = shop.workspace.json(&["retry", &id, "--yes"], 1).await;
    let key = format!("{child}/pay");
    assert_eq!(shop.read_lines("keys"), [key.as_str(), &key]);
    let second = text(&second["executionId"]).to_owned();
    let child = text(&shop.step(&second, "sub").await["childExecutionId"]).to_owned();
    shop.workspace.json(&["settle", &child, "pay", "--succeeded", r#"{"id": 3}"#], 0).await;
    let output = shop.workspace.run(&["debug", &second]).await.out;
    let expected = "`sub` failed: `pay` failed: ";
    assert!(
        output.contains(expected) && output.contains("a person settled it as succeeded"),
        "{output}"
    );
    assert!(!output.contains("faber settle"), "{output}");
    let done = shop.workspace.json(&["retry", &second], 0).await;
    assert_eq!(done["outputs"], json!({ "sub": { "pay": { "id": 3 } } }), "{done}");
    assert_eq!(shop.read_lines("keys").len(), 2, "the payment is not repeated");
}

/// The second execution repeats the call, and this call certainly fails. The first call has perhaps
/// taken effect, so a person must settle it.
#[tokio::test]
async fn an_open_call_is_settled_in_the_execution_that_repeated_it() {
    let shop = Shop::new();
    let workspace = &shop.workspace;
    let check = json!({ "id": "check", "name": "own.check" });
    let mut paid = pay_step(&json!({}));
    paid["dependsOn"] = json!("check");
    let first = shop.run(&json!([check, paid]), &[], 1).await;
    shop.let_pay_answer();
    workspace.file("broken", "");
    let second = workspace.json(&["retry", &first, "--yes"], 1).await;
    let second = text(&second["executionId"]).to_owned();
    assert_eq!(shop.step(&second, "pay").await["error"]["code"], "tool.failed");
    let third = workspace.json(&["retry", &second, "--all", "--yes"], 1).await;
    let third = text(&third["executionId"]).to_owned();
    let refused = workspace.json(&["settle", &third, "pay", "--failed"], 2).await;
    assert_eq!(refused["error"]["code"], "CONFLICT", "it did not repeat the call: {refused}");
    let message = text(&refused["error"]["message"]);
    assert!(message.contains(&format!("`faber settle {first} pay`")), "{message}");
    let output = workspace.run(&["debug", &second]).await;
    assert!(output.out.contains(&format!("faber settle {second} pay --succeeded")), "{output:?}");
    workspace.json(&["settle", &second, "pay", "--succeeded", r#"{"id": 7}"#], 0).await;
    assert_eq!(shop.step(&second, "pay").await["settled"], "SUCCEEDED");
    let retried = workspace.json(&["retry", &second], 0).await;
    assert_eq!(retried["outputs"]["pay"]["id"], 7, "{retried}");
    assert_eq!(shop.read_lines("keys").len(), 2, "nothing was paid again");
}

/// An HTTP service that records the idempotency keys of its calls. It answers none of them while
/// `is_silent` is set.
struct PaymentService {
    url: String,
    keys: Arc<Mutex<Vec<String>>>,
    is_silent: Arc<AtomicBool>,
    _server: JoinSet<()>,
}

impl PaymentService {
    async fn open() -> Self {
        let (keys, is_silent) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(true.into()));
        let (noted, silent) = (Arc::clone(&keys), Arc::<AtomicBool>::clone(&is_silent));
        let pay = async move |headers: HeaderMap| {
            let key = headers.get("idempotency-key").map(|key| key.to_str().unwrap().to_owned());
            noted.lock().unwrap().push(key.unwrap_or_default());
            if silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            Json(json!({ "id": 1 }))
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/pay", listener.local_addr().unwrap());
        let mut server = JoinSet::new();
        let router = Router::new().route("/pay", post(pay));
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, keys, is_silent, _server: server }
    }
}

/// The first execution is pruned while its retry waits for a person. The retry must still know the
/// key of the first call.
#[tokio::test]
async fn an_http_tool_sends_the_key_of_the_unknown_call_after_a_prune() {
    let bank = PaymentService::open().await;
    let workspace = Workspace::new();
    let http = json!({ "method": "POST", "url": bank.url });
    let tool = json!({ "name": "pay", "run": { "http": http } });
    let set = json!({ "name": "bank", "source": { "tools": [tool] } });
    let config = json!({ "store": "sqlite:./faber.db", "toolsets": [set] });
    workspace.file("faber.yaml", &config.to_string());
    let plan = json!({ "tools": [
        { "id": "ask", "name": "flow.noop", "requiresApproval": true },
        { "id": "pay", "name": "bank.pay", "timeoutMs": 500, "dependsOn": "ask" },
    ] });
    let plan = workspace.file("plan.json", &plan.to_string());
    let id = |answer: &Value| text(&answer["executionId"]).to_owned();
    let first = id(&workspace.json(&["run", "--plan", &plan], 4).await);
    workspace.json(&["approve", &first, "ask"], 1).await;
    let second = id(&workspace.json(&["retry", &first, "--all", "--yes"], 4).await);
    workspace.json(&["prune", "--older-than", "0s"], 0).await;
    assert_eq!(workspace.json(&["watch", &first], 2).await["error"]["code"], "NOT_FOUND");
    bank.is_silent.store(false, Ordering::SeqCst);
    let done = workspace.json(&["approve", &second, "ask"], 0).await;
    assert_eq!(done["outputs"]["pay"]["id"], 1, "{done}");
    let key = format!("{first}/pay");
    assert_eq!(*bank.keys.lock().unwrap(), [key.clone(), key]);
}
