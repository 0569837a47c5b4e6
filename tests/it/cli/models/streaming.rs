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
    extract::Path,
    http::{StatusCode, header::CONTENT_TYPE},
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
    /// How often it was looked at while somebody else did.
    crowds: Arc<AtomicUsize>,
    /// How often the model was asked.
    asked: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

/// What a provider makes of the wish to have an answer in pieces.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pieces {
    Given,
    Refused,
    Ignored,
}

/// The weather of a city that cannot be told the first time.
const FOGGY: &str = "Ulm";
/// Those of cities that are told once the model was asked a second time.
const SLOW: [&str; 2] = ["Bergen", "Trondheim"];

/// A piece of an answer, and whether the one behind it waits for a look at the weather.
type Piece = (&'static str, bool);
/// In the place of a piece: here the connection breaks.
const BROKEN: &str = "\0";

impl World {
    async fn new(answers: Vec<Vec<Piece>>) -> Self {
        Self::with(Pieces::Given, answers).await
    }

    async fn with(given: Pieces, answers: Vec<Vec<Piece>>) -> Self {
        let (looks, looked) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (now, crowds) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (asked, twice) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let look = {
            let (looks, looked) = (Arc::clone(&looks), Arc::clone(&looked));
            let (now, crowds, twice) = (Arc::clone(&now), Arc::clone(&crowds), Arc::clone(&twice));
            move |Path(city): Path<String>| async move {
                let before = looks.fetch_add(1, Ordering::SeqCst);
                crowds.fetch_add(now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                looked.add_permits(1);
                if SLOW.contains(&city.as_str()) {
                    drop(twice.acquire().await.unwrap());
                }
                now.fetch_sub(1, Ordering::SeqCst);
                if city == FOGGY && before == 0 {
                    return StatusCode::SERVICE_UNAVAILABLE.into_response();
                }
                Json(json!({ "degrees": 7 })).into_response()
            }
        };
        let answer = {
            let asked = Arc::clone(&asked);
            move |Json(question): Json<Value>| {
                let number = asked.fetch_add(1, Ordering::SeqCst);
                twice.add_permits(usize::from(number == 1));
                let pieces = answers[number.min(answers.len() - 1)].clone();
                let looked = Arc::clone(&looked);
                async move {
                    match given {
                        Pieces::Refused if question["stream"] == true => {
                            let why = json!({ "error": { "message": "`stream`: no" } });
                            (StatusCode::BAD_REQUEST, Json(why)).into_response()
                        }
                        Pieces::Ignored => answer(&Value::Null, pieces, looked),
                        _ => answer(&question, pieces, looked),
                    }
                }
            }
        };
        let router = Router::new()
            .route("/look/{city}", get(look))
            .route("/v1/chat/completions", post(answer));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, looks, crowds, asked, _tasks: tasks }
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
        - name: who
          description: Says whose call it is.
          effect: read
          parameters: {{ type: object }}
          run: {{ command: [sh, -c, 'echo $FABER_EXECUTION_ID $FABER_STEP_ID $FABER_ATTEMPT $FABER_IDEMPOTENCY_KEY'] }}
",
            address = self.address
        );
        home.file("faber.yaml", &config);
        home
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
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
    let other = r#"{"name": "weather.look", "parameters": {"city": "Paris"}}"#;
    let plan = |steps: &[&str]| -> &'static str {
        Box::leak(format!(r#"{{"tools": [{}]}}"#, steps.join(", ")).into_boxed_str())
    };
    let thought: &str = Box::leak(
        format!("<think>Perhaps {}? No.</think>{}", plan(&[look]), plan(&[note])).into_boxed_str(),
    );
    let sudden: &str = Box::leak(
        format!("The user wants {}? No.</think>{}", plan(&[look]), plan(&[note])).into_boxed_str(),
    );
    let flags: [&[&str]; 9] = [
        &["--streaming"],
        &["--streaming"],
        &["--streaming", "--input", r#"{"city": "Oslo"}"#],
        &[],
        &["--streaming", "--dry-run"],
        &["--streaming", "--mode", "sequential"],
        &["--streaming", "--mode", "sequential", "--input", r#"{"city": "Oslo"}"#],
        &["--streaming"],
        &["--streaming"],
    ];
    let answers = [
        (plan(&[note, look]), 0, 1),
        (plan(&[held]), 4, 0),
        (plan(&[later]), 0, 1),
        (plan(&[look]), 0, 1),
        (plan(&[look]), 0, 0),
        (plan(&[note, look]), 0, 1),
        (plan(&[later, other]), 0, 2),
        (thought, 0, 0),
        (sudden, 0, 0),
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

/// Nobody can tell a call that was made ahead from the first attempt of its step.
#[tokio::test]
async fn what_is_called_ahead_knows_whose_call_it_is() {
    let plan = r#"{"tools": [{"name": "weather.who"}, {"name": "weather.who"},
        {"id": "x", "name": "weather.who", "parameters": {}}]}"#;
    for flags in [&["--streaming"] as &[&str], &["--streaming", "--idempotency-key", "k"]] {
        let world = World::new(vec![vec![(plan, false)]]).await;
        let home = world.home();
        let ran = home.json(&[&["run", "Who is it?"], flags].concat(), 0).await;
        let id = ran["executionId"].as_str().unwrap();
        for step in ["weather.who", "weather.who_2", "x"] {
            let expected = format!("{id} {step} 1 {id}/{step}");
            assert!(ran["outputs"][step].to_string().contains(&expected), "{expected}: {ran:#}");
        }
        let request = home.json(&["debug", ran["requestId"].as_str().unwrap()], 0).await;
        assert_eq!(kinds(&request).iter().filter(|it| *it == "ahead").count(), 3);
        let log = home.json(&["debug", id], 0).await.to_string();
        assert_eq!(log.matches(r#""cached":true"#).count(), 3, "{log}");
        let again = home.json(&[&["run", "Who is it?"], flags].concat(), 0).await;
        assert_eq!(again["executionId"] == ran["executionId"], flags.len() > 1);
    }
}

#[tokio::test]
async fn a_call_ahead_that_fails_is_no_attempt() {
    let plan = r#"{"tools": [{"id": "ulm", "name": "weather.look", "parameters": {"city": "Ulm"},
        "retry": {"maxAttempts": 1}}]}"#;
    let world = World::new(vec![vec![(plan, true)]]).await;
    let home = world.home();
    let ran = home.json(&["run", "--streaming", "Look at Ulm"], 0).await;
    assert_eq!((&ran["state"], world.looks()), (&json!("COMPLETED"), 2), "{ran:#}");
}

/// The second step is there while the first is under way: that ends when the model, which has
/// written both, is asked a second time.
#[tokio::test]
async fn no_more_is_called_ahead_than_may_be_at_the_same_time() {
    let first =
        r#"{"tools": [{"id": "a", "name": "weather.look", "parameters": {"city": "Bergen"}}"#;
    let second = r#", {"id": "b", "name": "weather.look", "parameters": {"city": "Trondheim"}}"#;
    let wrong = r#", {"name": "weather.sendMail", "parameters": {}}]}"#;
    let flags: [&[&str]; 3] =
        [&["--max-parallel", "1"], &["--mode", "sequential"], &["--max-parallel", "2"]];
    for (flags, is_crowded) in flags.into_iter().zip([false, false, true]) {
        let answers = vec![
            vec![(first, true), (second, false), (wrong, false)],
            vec![(first, false), (second, false), ("]}", false)],
        ];
        let world = World::new(answers).await;
        let home = world.home();
        let arguments = [&["run", "--streaming", "Look at Bergen"], flags].concat();
        let ran = home.json(&arguments, 0).await;
        assert_eq!((&ran["state"], world.looks()), (&json!("COMPLETED"), 2), "{ran:#}");
        let crowds = world.crowds.load(Ordering::SeqCst);
        assert!(is_crowded || crowds == 0, "{flags:?}: {crowds}");
    }
}

/// Without `--streaming` these providers are as good as any.
#[tokio::test]
async fn a_provider_that_does_not_answer_in_pieces_is_asked_for_the_whole() {
    let look = r#"{"tools": [{"name": "weather.look", "parameters": {"city": "Oslo"}}"#;
    let wrong = r#", {"name": "weather.sendMail", "parameters": {}}]}"#;
    for given in [Pieces::Refused, Pieces::Ignored] {
        let first = vec![(look, false), (wrong, false)];
        let whole = vec![(look, false), ("]}", false)];
        let world = World::with(given, vec![first.clone(), first, whole]).await;
        let home = world.home();
        let ran = home.json(&["run", "--streaming", "Look at Oslo"], 0).await;
        assert_eq!((&ran["state"], world.looks()), (&json!("COMPLETED"), 1), "{given:?} {ran:#}");
        assert_eq!(world.asked(), 3, "once in pieces, and from then on for the whole");
        let request = home.json(&["debug", ran["requestId"].as_str().unwrap()], 0).await;
        assert!(!kinds(&request).contains(&"ahead".to_owned()), "{given:?}");
    }
}
