use std::{
    convert::Infallible,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::{Body, Bytes},
    http::StatusCode,
    response::IntoResponse,
};
use futures::stream;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    super::{CallResult, Message, OfferedTool, ProviderKind, http::MAX_ANSWER_BYTES, settings},
    *,
};

const PIECE_BYTES: usize = 64 << 10;
/// Far more bytes than Faber reads. Buffers of the system may hold further bytes that are never
/// read.
const MAX_SENT_BYTES: usize = 4 * MAX_ANSWER_BYTES;

/// Starts a server with an endless answer. Returns its URL and the number of bytes sent.
async fn start_endless(
    status: StatusCode,
    running: &mut JoinSet<()>,
) -> (String, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let answer = move || {
        let (piece, sent) = (Bytes::from(vec![b' '; PIECE_BYTES]), Arc::clone(&counted));
        let body = Body::from_stream(stream::repeat_with(move || {
            sent.fetch_add(PIECE_BYTES, Ordering::Relaxed);
            Ok::<_, Infallible>(piece.clone())
        }));
        async move { (status, [("content-type", "application/json")], body).into_response() }
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer);
    running.spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, sent)
}

pub(in crate::model) fn settings_of(provider: ProviderKind, base_url: Option<String>) -> Settings {
    Settings {
        provider,
        base_url,
        model: "m".to_owned(),
        key: Key::Variable("K".to_owned(), Some("sk-secret".to_owned())),
        timeout: settings::DEFAULT_TIMEOUT,
        retries: 0,
        max_tokens: None,
        temperature: None,
        price: None,
        structured_output: true,
        native_tools: true,
        fallback: None,
        starter: None,
    }
}

pub(super) fn unreachable_provider() -> Provider {
    let base_url = Some("http://127.0.0.1:1/v1".to_owned());
    Provider::new(&settings_of(ProviderKind::find_by_name("openai").unwrap(), base_url)).unwrap()
}

fn hello_question() -> Question {
    Question { messages: vec![Message::User("Well?".to_owned())], ..Question::default() }
}

#[tokio::test]
async fn an_endless_answer_is_rejected_for_every_provider() {
    for kind in ProviderKind::ALL {
        let mut running = JoinSet::new();
        let (url, sent) = start_endless(StatusCode::OK, &mut running).await;
        let provider = Provider::new(&settings_of(*kind, Some(url))).unwrap();
        let err = provider.ask(&hello_question()).await.unwrap_err();
        let name = kind.name();
        assert!(matches!(err, ModelError::Refused { .. }), "{name}: {err}");
        assert!(err.reason().starts_with("its answer has more than 16 MB"), "{name}: {err}");
        let sent = sent.load(Ordering::Relaxed);
        assert!((MAX_ANSWER_BYTES..MAX_SENT_BYTES).contains(&sent), "{name}: {sent}");
    }
}

#[tokio::test]
async fn an_endless_list_of_models_is_rejected() {
    let mut running = JoinSet::new();
    let (url, _) = start_endless(StatusCode::OK, &mut running).await;
    for name in ["openai", "anthropic"] {
        let kind = ProviderKind::find_by_name(name).unwrap();
        let provider = Provider::new(&settings_of(kind, Some(url.clone()))).unwrap();
        let err = provider.is_listed().await.unwrap_err();
        assert!(err.reason().starts_with("its answer has more than 16 MB"), "{err}");
    }
}

#[tokio::test]
async fn only_the_beginning_of_an_endless_error_is_read() {
    let mut running = JoinSet::new();
    let (url, sent) = start_endless(StatusCode::SERVICE_UNAVAILABLE, &mut running).await;
    let kind = ProviderKind::find_by_name("openai").unwrap();
    let provider = Provider::new(&settings_of(kind, Some(url))).unwrap();
    let err = provider.ask(&hello_question()).await.unwrap_err();
    assert!(matches!(err, ModelError::Unavailable { .. }), "{err}");
    assert!(err.reason().starts_with("it answered 503"), "{err}");
    assert!(sent.load(Ordering::Relaxed) < MAX_ANSWER_BYTES);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let mut running = JoinSet::new();
    let (url, sent) = start_endless(StatusCode::OK, &mut running).await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let from = format!("http://{}/v1", listener.local_addr().unwrap());
    let router =
        Router::new().fallback(move || async move { axum::response::Redirect::temporary(&url) });
    running.spawn(async move { axum::serve(listener, router).await.unwrap() });
    let kind = ProviderKind::find_by_name("anthropic").unwrap();
    let provider = Provider::new(&settings_of(kind, Some(from))).unwrap();
    let err = provider.ask(&hello_question()).await.unwrap_err();
    assert!(err.reason().starts_with("it answered 307"), "{err}");
    assert_eq!(sent.load(Ordering::Relaxed), 0);
}

#[test]
fn an_invalid_base_url_is_rejected() {
    let kind = |name: &str| ProviderKind::find_by_name(name).unwrap();
    let url = |name: &str, written: Option<&str>| {
        parse_base_url(&settings_of(kind(name), written.map(str::to_owned)))
    };
    assert_eq!(url("openai", None).unwrap(), "https://api.openai.com/v1/");
    assert_eq!(url("openai", Some("https://h/v1")).unwrap(), "https://h/v1/");
    assert_eq!(url("vertex", Some("https://h/v1/")).unwrap(), "https://h/v1/");
    assert!(url("vertex", None).unwrap_err().contains("set `planner.base_url`"));
    for wrong in ["nowhere", "ftp://h/", "https://me:pw@h/"] {
        assert!(url("openai", Some(wrong)).unwrap_err().contains("base_url"), "{wrong}");
    }
}

#[test]
fn tool_schemas_are_sent_as_object_schemas() {
    for (schema, expected) in [
        (json!(true), json!({ "type": "object", "properties": {} })),
        (json!({}), json!({ "type": "object", "properties": {} })),
        (json!({ "type": "object" }), json!({ "type": "object", "properties": {} })),
        (
            json!({ "$schema": "x", "properties": { "a": {} } }),
            json!({ "properties": { "a": {} }, "type": "object" }),
        ),
    ] {
        assert_eq!(object_schema(&schema), expected);
    }
}

#[test]
fn call_arguments_may_be_text() {
    for (written, expected) in [
        (json!({ "a": 1 }), json!({ "a": 1 })),
        (json!("{\"a\":1}"), json!({ "a": 1 })),
        (json!(null), json!({})),
        (json!(" "), json!({})),
        (json!("{a"), json!("{a")),
    ] {
        assert_eq!(read_arguments(&written), expected);
    }
}

fn conversation() -> Question {
    let call = NativeCall {
        id: "c1".to_owned(),
        tool: "blog.list".to_owned(),
        arguments: json!({ "n": 1 }),
        signatures: vec![r#"{"google":{"thought_signature":"s"}}"#.to_owned()],
    };
    let result =
        CallResult { id: "c1".to_owned(), tool: "blog.list".to_owned(), text: "[]".to_owned() };
    Question {
        messages: vec![
            Message::System("rules".to_owned()),
            Message::User("list".to_owned()),
            Message::Assistant { text: String::new(), calls: vec![call] },
            Message::Results(vec![result]),
        ],
        tools: vec![OfferedTool {
            name: "blog.list".parse().unwrap(),
            description: "Lists blogs.".to_owned(),
            schema: json!({}),
        }],
        answer: None,
    }
}

#[test]
fn a_conversation_is_converted_to_the_openai_format() {
    let question = conversation();
    let names = WireNames::for_tools(&question.tools);
    let mut settings = settings_of(ProviderKind::find_by_name("gemini").unwrap(), None);
    settings.max_tokens = Some(9);
    let form = AnswerForm { name: "plan", schema: json!({ "type": "object" }), typed: None };
    let body = openai::write_request(&question, &names, &settings, Some(&form));
    let function = json!({ "name": "blog_list", "arguments": "{\"n\":1}" });
    let expected = json!({
        "model": "m",
        "tools": [{ "type": "function", "function": { "name": "blog_list",
            "description": "Lists blogs.", "parameters": { "type": "object", "properties": {} } } }],
        "messages": [
            { "role": "system", "content": "rules" },
            { "role": "user", "content": "list" },
            { "role": "assistant", "content": "", "tool_calls": [{ "id": "c1", "type": "function",
                "function": function, "extra_content": { "google": { "thought_signature": "s" } } }] },
            { "role": "tool", "tool_call_id": "c1", "content": "[]" },
        ],
        "response_format": { "type": "json_schema", "json_schema":
            { "name": "plan", "strict": false, "schema": { "type": "object" } } },
        "max_tokens": 9,
    });
    assert_eq!(body, expected);
    let extra = json!({ "google": 1 });
    let answer = openai::read_answer(
        &json!({
            "choices": [{ "finish_reason": "tool_calls", "message": {
                "content": "<think>hm</think>\nNow.",
                "tool_calls": [{ "id": "c2", "function": function, "extra_content": extra }] } }],
            "usage": { "prompt_tokens": 3, "completion_tokens": 4 },
        }),
        &names,
    );
    assert_eq!((answer.text.as_str(), answer.stop), ("Now.", Some(Stop::Calls)));
    assert_eq!(answer.tokens, Tokens { input: 3, output: 4 });
    let call = &answer.calls[0];
    assert_eq!((call.tool.as_str(), &call.arguments), ("blog.list", &json!({ "n": 1 })));
    assert_eq!(call.signatures, [r#"{"google":1}"#]);
}

#[test]
fn a_refusal_becomes_the_text_of_an_empty_answer() {
    let text = |message: Value| {
        let answer = json!({ "choices": [{ "message": message, "finish_reason": "stop" }] });
        openai::read_answer(&answer, &WireNames::default()).text
    };
    assert_eq!(text(json!({ "content": null, "refusal": "I will not." })), "I will not.");
    assert_eq!(text(json!({ "content": "Yes.", "refusal": null })), "Yes.");
}

#[test]
fn a_conversation_is_converted_to_the_anthropic_format() {
    let question = conversation();
    let names = WireNames::for_tools(&question.tools);
    let settings = settings_of(ProviderKind::find_by_name("anthropic").unwrap(), None);
    let expected = json!({
        "model": "m",
        "max_tokens": 32_000,
        "system": "rules",
        "tools": [{ "name": "blog_list", "description": "Lists blogs.",
            "input_schema": { "type": "object", "properties": {} } }],
        "messages": [
            { "role": "user", "content": "list" },
            { "role": "assistant", "content":
                [{ "type": "tool_use", "id": "c1", "name": "blog_list", "input": { "n": 1 } }] },
            { "role": "user", "content":
                [{ "type": "tool_result", "tool_use_id": "c1", "content": "[]" }] },
        ],
    });
    assert_eq!(anthropic::write_request(&question, &names, &settings), expected);
    let answer = anthropic::read_answer(
        &json!({
            "content": [
                { "type": "thinking", "thinking": "hm" },
                { "type": "text", "text": "Now." },
                { "type": "tool_use", "id": "c2", "name": "blog_list", "input": { "n": 1 } },
            ],
            "stop_reason": "tool_use",
            "usage": { "input_tokens": 1, "cache_read_input_tokens": 2, "output_tokens": 4 },
        }),
        &names,
    );
    assert_eq!((answer.text.as_str(), answer.stop), ("Now.", Some(Stop::Calls)));
    assert_eq!(answer.tokens, Tokens { input: 3, output: 4 });
    assert_eq!((answer.calls[0].id.as_str(), answer.calls[0].tool.as_str()), ("c2", "blog.list"));
}
