//! Steps that begin while a model still writes the plan.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Json, Router,
    body::Body,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore, task::JoinSet};

use super::{Home, Model, configure, kinds};

/// A model that writes on when it may, and a place with weather.
struct World {
    address: String,
    /// How often it was looked at.
    looks: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// A piece of an answer, and whether the one behind it waits for a look at the weather.
type Piece = (&'static str, bool);
/// In the place of a piece: here the connection breaks.
const BROKEN: &str = "\0";

impl World {
    async fn new(answers: Vec<Vec<Piece>>) -> Self {
        let (looks, looked) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let look = {
            let (looks, looked) = (Arc::clone(&looks), Arc::clone(&looked));
            move || async move {
                looks.fetch_add(1, Ordering::SeqCst);
                looked.add_permits(1);
                Json(json!({ "degrees": 7 }))
            }
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let answer = move |Json(question): Json<Value>| {
            let number = asked.fetch_add(1, Ordering::SeqCst);
            let pieces = answers[number.min(answers.len() - 1)].clone();
            let looked = Arc::clone(&looked);
            async move { answer(&question, pieces, looked) }
        };
        let router = Router::new()
            .route("/look/{city}", get(look))
            .route("/v1/chat/completions", post(answer));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, looks, _tasks: tasks }
    }

    fn home(&self) -> Home {
        let home = Home::new();
        let config = format!(
            "store: sqlite:./faber.db
planner: {{ provider: openai, model: m, base_url: 'http://{address}/v1', timeout_ms: 60000 }}
toolsets:
  - name: weather
    description: The weather of cities.
    source:
      tools:
        - name: look
          description: Looks at the weather of a city.
          parameters: {{ type: object, properties: {{ city: {{ type: string }} }}, required: [city] }}
          run: {{ http: {{ url: 'http://{address}/look/{{{{city}}}}' }} }}
        - name: note
          description: Notes the weather of a city.
          parameters: {{ type: object, properties: {{ text: {{}} }} }}
          run: {{ command: [echo, noted] }}
",
            address = self.address
        );
        home.file("faber.yaml", &config);
        home
    }

    fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }
}

/// Answers as `OpenAI` does: in pieces if it is asked to.
fn answer(question: &Value, pieces: Vec<Piece>, looked: Arc<Semaphore>) -> Response {
    if question["stream"] != true {
        let text: String = pieces.iter().map(|(text, _)| *text).collect();
        let message = json!({ "role": "assistant", "content": text });
        let choice = json!({ "index": 0, "message": message, "finish_reason": "stop" });
        return Json(json!({ "id": "1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [choice], "usage": { "prompt_tokens": 3, "completion_tokens": 4 } }))
        .into_response();
    }
    let event = |delta: Value, why: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": why });
        let chunk = json!({ "id": "1", "object": "chat.completion.chunk", "created": 1,
            "model": "m", "choices": [choice] });
        format!("data: {chunk}\n\n")
    };
    let last = format!("{}data: [DONE]\n\n", event(json!({}), json!("stop")));
    let pieces = pieces.into_iter().map(move |(text, waits)| {
        let event = event(json!({ "role": "assistant", "content": text }), Value::Null);
        (if text == BROKEN { Err(io::Error::other("broken")) } else { Ok(event) }, waits)
    });
    let pieces = stream::iter(pieces).flat_map(move |(piece, waits)| {
        let looked = Arc::clone(&looked);
        let wait = stream::once(async move {
            if waits {
                looked.acquire().await.unwrap().forget();
            }
            Ok(String::new())
        });
        stream::iter([piece]).chain(wait)
    });
    let body = pieces.chain(stream::iter([Ok(last)]));
    ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(body)).into_response()
}

/// The model goes on only once the first step was called: without that this would never end.
#[tokio::test]
async fn what_only_reads_is_called_while_the_plan_is_being_written() {
    let first =
        r#"{"tools": [{"id": "oslo", "name": "weather.look", "parameters": {"city": "Oslo"}}"#;
    let rest = r#", {"name": "weather.note", "dependsOn": ["oslo"],
        "parameters": {"text": "{{oslo.degrees}} degrees"}}]}"#;
    let world = World::new(vec![vec![(first, true), (rest, false)]]).await;
    let home = world.home();
    let ran = home.json(&["run", "--streaming", "Look at Oslo and note it"], 0).await;
    assert_eq!((&ran["state"], &ran["successful"]), (&json!("COMPLETED"), &json!(2)), "{ran:#}");
    assert_eq!(ran["outputs"]["oslo"]["degrees"], 7);
    assert_eq!(world.looks(), 1, "the step takes what came of it");

    let request = home.json(&["debug", ran["requestId"].as_str().unwrap()], 0).await;
    let expected = ["selection", "ahead", "prompt", "reply", "usage", "draft", "plan"];
    assert_eq!(kinds(&request), expected);
    let ahead = &request["transcript"][1]["content"];
    let told = json!({ "step": "oslo", "tool": "weather.look", "parameters": { "city": "Oslo" } });
    assert_eq!(*ahead, told);
    let log = home.json(&["debug", ran["executionId"].as_str().unwrap()], 0).await.to_string();
    assert!(log.contains(r#""cached":true"#), "the log says that it was not called then: {log}");

    // A query that is known has its plan at once.
    let again = home.json(&["run", "--streaming", "Look at Oslo and note it"], 0).await;
    assert_eq!((&again["state"], world.looks()), (&json!("COMPLETED"), 2));
}

#[tokio::test]
async fn nothing_is_called_early_that_should_not_be() {
    let note = r#"{"name": "weather.note", "parameters": {"text": "first"}}"#;
    let look = r#"{"id": "oslo", "name": "weather.look", "parameters": {"city": "Oslo"}}"#;
    let held = r#"{"id": "oslo", "name": "weather.look", "parameters": {"city": "Oslo"}, "requiresApproval": true}"#;
    let later =
        r#"{"id": "oslo", "name": "weather.look", "parameters": {"city": "{{input.city}}"}}"#;
    let plan = |steps: &[&str]| -> &'static str {
        Box::leak(format!(r#"{{"tools": [{}]}}"#, steps.join(", ")).into_boxed_str())
    };
    let flags: [&[&str]; 6] = [
        &["--streaming"],
        &["--streaming"],
        &["--streaming", "--input", r#"{"city": "Oslo"}"#],
        &[],
        &["--streaming", "--dry-run"],
        &["--streaming", "--mode", "sequential"],
    ];
    let answers = [
        (plan(&[note, look]), 0, 1),
        (plan(&[held]), 4, 0),
        (plan(&[later]), 0, 1),
        (plan(&[look]), 0, 1),
        (plan(&[look]), 0, 0),
        (plan(&[note, look]), 0, 1),
    ];
    for (flags, (answer, status, looks)) in flags.iter().zip(answers) {
        let world = World::new(vec![vec![(answer, false)]]).await;
        let home = world.home();
        let arguments: Vec<&str> =
            ["run", "Look at Oslo"].into_iter().chain(flags.iter().copied()).collect();
        let ran = home.json(&arguments, status).await;
        assert_eq!(world.looks(), looks, "{answer} {flags:?}: {ran:#}");
        let request = home.json(&["debug", ran["requestId"].as_str().unwrap()], 0).await;
        assert!(!kinds(&request).contains(&"ahead".to_owned()), "{answer} {flags:?}");
    }
}

/// What was called for a plan that never came is on record, and nothing else happens.
#[tokio::test]
async fn a_plan_that_never_comes_leaves_only_what_was_read() {
    let look = r#"{"tools": [{"name": "weather.look", "parameters": {"city": "Oslo"}}"#;
    let wrong = r#", {"name": "weather.sendMail", "parameters": {}}]}"#;
    let impossible = r#"{"impossible": "there is no mail"}"#;
    let answers = vec![vec![(look, true), (wrong, false)], vec![(impossible, false)]];
    let world = World::new(answers).await;
    let home = world.home();
    let failed = home.json(&["run", "--streaming", "Mail the weather of Oslo"], 2).await;
    assert_eq!(failed["error"]["code"], "NO_PLAN_FOUND", "{failed:#}");
    assert_eq!(world.looks(), 1);
    let request = home.json(&["debug", failed["error"]["requestId"].as_str().unwrap()], 0).await;
    let expected =
        ["selection", "ahead", "prompt", "reply", "repair", "prompt", "reply", "usage", "error"];
    assert_eq!(kinds(&request), expected);
    assert_eq!(home.json(&["list", "executions"], 0).await, json!([]));
}

#[tokio::test]
async fn every_language_of_a_provider_is_heard_in_pieces() {
    let plan = r#"{"tools": [{"name": "listAuthors", "parameters": {}}]}"#;
    for provider in ["openai", "openai_resp", "anthropic", "gemini", "ollama", "groq"] {
        let home = Home::new();
        let script = json!({ "answers": [{ "content": plan }], "chunkSize": 7 });
        let model = Model::begin(&home, "model", script).await;
        configure(&home, &model.speaking(provider));
        let ran = home.json(&["run", "--streaming", "List all authors"], 0).await;
        assert_eq!(ran["state"], "COMPLETED", "{provider}: {ran:#}");
        let request = home.json(&["debug", ran["requestId"].as_str().unwrap()], 0).await;
        let entries = request["transcript"].as_array().unwrap();
        let of = |kind: &str| entries.iter().find(|it| it["kind"] == kind).map(|it| &it["content"]);
        assert_eq!(of("ahead").unwrap()["tool"], "blog.listAuthors", "{provider}");
        let reply = of("reply").unwrap();
        assert_eq!((&reply["text"], &reply["stop"]), (&json!(plan), &json!("end")), "{provider}");
    }
}

#[tokio::test]
async fn a_stream_that_fails_is_asked_for_again() {
    let plan = r#"{"tools": [{"name": "listAuthors", "parameters": {}}]}"#;
    let home = Home::new();
    let answers = json!([
        { "error": { "message": "slow down" }, "status": 429, "retryAfter": 1 },
        { "error": { "message": "overloaded" }, "status": 503 },
        { "content": plan },
    ]);
    let model = Model::answering(&home, "model", answers).await;
    configure(&home, &model.speaking("openai"));
    let ran = home.json(&["run", "--streaming", "List all authors"], 0).await;
    assert_eq!(ran["state"], "COMPLETED");
    assert_eq!(model.asked().await.len(), 3);

    for (script, expected) in [
        (
            json!({ "answers": [{ "error": { "message": "no such model" }, "status": 404 }] }),
            "no such model",
        ),
        (json!({ "answers": [{ "content": "x".repeat(17 << 20) }] }), "more than 16 MB"),
    ] {
        let home = Home::new();
        let model = Model::begin(&home, "model", script).await;
        configure(&home, &format!("{}, max_retries: 0", model.speaking("openai")));
        let failed = home.json(&["run", "--streaming", "List all authors"], 3).await;
        assert_eq!(failed["error"]["code"], "PLANNER_UNAVAILABLE", "{failed:#}");
        let message = failed["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
}

/// Whoever was heard once and is lost is asked again; what was called meanwhile is not called again.
#[tokio::test]
async fn a_stream_that_breaks_off_is_begun_again() {
    let first =
        r#"{"tools": [{"id": "oslo", "name": "weather.look", "parameters": {"city": "Oslo"}}"#;
    let answers = vec![vec![(first, true), (BROKEN, false)], vec![(first, false), ("]}", false)]];
    let world = World::new(answers).await;
    let home = world.home();
    let ran = home.json(&["run", "--streaming", "Look at Oslo"], 0).await;
    assert_eq!((&ran["state"], world.looks()), (&json!("COMPLETED"), 1), "{ran:#}");
    let request = home.json(&["debug", ran["requestId"].as_str().unwrap()], 0).await;
    assert_eq!(kinds(&request).iter().filter(|it| *it == "ahead").count(), 1);
    let reply = request["transcript"].as_array().unwrap().iter().find(|it| it["kind"] == "reply");
    let missed = reply.unwrap()["content"]["missed"].to_string();
    assert!(missed.contains("its answer broke off before its end"), "{missed}");
}
