//! A server of embeddings like `OpenAI`'s, over real HTTP.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use planner::embed::{ConfiguredEmbedder, EmbedError, Embedder, Server, ServerConfig, Source};
use serde_json::{Value, json};
use shared::store::memory::Memory;
use tokio::{net::TcpListener, task::JoinSet};

#[derive(Default)]
pub(crate) struct ServerState {
    batch_sizes: Vec<usize>,
    pub(crate) first_answers: Vec<(StatusCode, &'static str)>,
}

/// Returns a vector for each text: the length of the text, and 1. Lists the last text first, so
/// that a client that ignores the indexes fails.
fn embed_lengths(texts: &[Value]) -> Value {
    let data = texts.iter().enumerate().rev().map(|(index, text)| {
        let len = text.as_str().unwrap().len();
        json!({ "object": "embedding", "index": index, "embedding": [len, 1.0] })
    });
    json!({ "object": "list", "data": data.collect::<Vec<_>>(), "usage": { "total_tokens": 1 } })
}

/// Serves the model `small` for the key `sk-test`. Returns the URL.
pub(crate) async fn serve(
    first_answers: Vec<(StatusCode, &'static str)>,
) -> (String, Arc<Mutex<ServerState>>, JoinSet<()>) {
    let seen = Arc::new(Mutex::new(ServerState { first_answers, ..ServerState::default() }));
    let state = Arc::clone(&seen);
    let embeddings = async move |headers: HeaderMap, Json(body): Json<Value>| -> Response {
        let texts = body["input"].as_array().unwrap();
        let mut seen = state.lock().unwrap();
        seen.batch_sizes.push(texts.len());
        if headers.get("authorization").map(|value| value.to_str().unwrap())
            != Some("Bearer sk-test")
        {
            return (StatusCode::UNAUTHORIZED, "no key").into_response();
        }
        assert_eq!(body["model"], "small");
        if !seen.first_answers.is_empty() {
            let (status, text) = seen.first_answers.remove(0);
            return (status, [("retry-after", "0")], text).into_response();
        }
        Json(embed_lengths(texts)).into_response()
    };
    let app = Router::new().route("/v1/embeddings", post(embeddings));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, seen, tasks)
}

fn server_embedder(url: &str, key: Option<&str>) -> Server {
    let config = ServerConfig {
        base_url: url.to_owned(),
        model: "small".to_owned(),
        api_key: key.map(ToOwned::to_owned),
        api_key_file: None,
    };
    Server::new(&config).unwrap()
}

#[tokio::test]
async fn texts_are_embedded_in_batches_and_temporary_errors_are_retried() {
    let busy = vec![(StatusCode::TOO_MANY_REQUESTS, "slow down"), (StatusCode::BAD_GATEWAY, "")];
    let (url, seen, _tasks) = serve(busy).await;
    let server = server_embedder(&url, Some("sk-test"));
    let texts: Vec<String> = (0..600).map(|n| "x".repeat(n)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let vectors = server.embed(&texts).await.unwrap();
    let len = |n: u16| vec![f32::from(n), 1.0];
    assert_eq!(vectors, (0..600).map(len).collect::<Vec<_>>());
    assert_eq!(seen.lock().unwrap().batch_sizes, [256, 256, 256, 256, 88]);
    assert!(server.embed(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_refused_request_fails_at_once_with_a_remedy() {
    let wrong =
        vec![(StatusCode::NOT_FOUND, "no such model"), (StatusCode::OK, "<html>hello</html>")];
    let (url, seen, _tasks) = serve(wrong).await;
    let refused = async |server: &Server| match server.embed(&["a"]).await {
        Err(EmbedError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let server = server_embedder(&url, Some("sk-test"));
    let reason = refused(&server).await;
    assert!(reason.contains("no such model") && reason.contains("embedding.model"), "{reason}");
    assert!(refused(&server).await.contains("not a list of vectors"));
    let reason = refused(&server_embedder(&url, None)).await;
    assert!(reason.contains("401") && reason.contains("embedding.api_key_env"), "{reason}");
    assert_eq!(seen.lock().unwrap().batch_sizes.len(), 3, "no request is repeated");
}

#[tokio::test]
async fn a_missing_embedding_server_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let server = server_embedder(&url, None);
    let batch_sizes =
        tokio::time::timeout(Duration::from_secs(30), server.embed(&["a"])).await.unwrap();
    let Err(EmbedError::Unavailable { reason, .. }) = batch_sizes else {
        panic!("{batch_sizes:?}")
    };
    assert!(reason.contains("refused"), "{reason}");
}

/// Regression: if a server returned only zeros, all scores were 0, without an explanation.
#[tokio::test]
async fn a_server_that_returns_only_zeros_is_refused() {
    let zeros =
        r#"{"data": [{"index": 0, "embedding": [0, 0.0]}, {"index": 1, "embedding": [0, -0.0]}]}"#;
    let one = r#"{"data": [{"index": 0, "embedding": [0, 0]}, {"index": 1, "embedding": [0, 1]}]}"#;
    let (url, _seen, _tasks) = serve(vec![(StatusCode::OK, zeros), (StatusCode::OK, one)]).await;
    let key = Some("sk-test".to_owned());
    let config =
        ServerConfig { base_url: url, model: "small".to_owned(), api_key: key, api_key_file: None };
    let configured = ConfiguredEmbedder::new(Some(Source::Server(config)), Arc::new(Memory::new()));
    let error = configured.open().await.unwrap_err().to_string();
    assert!(error.contains("vectors are all zero"), "{error}");
    assert!(configured.open().await.unwrap().is_some(), "a single zero vector is allowed");
}

/// Regression: a server that rejected the first text was refused.
#[tokio::test]
async fn a_server_that_rejects_the_first_text_is_still_used() {
    let (url, seen, _tasks) = serve(vec![(StatusCode::BAD_REQUEST, "unknown text")]).await;
    let key = Some("sk-test".to_owned());
    let config = ServerConfig {
        base_url: url.clone(),
        model: "small".to_owned(),
        api_key: key,
        api_key_file: None,
    };
    let configured = ConfiguredEmbedder::new(Some(Source::Server(config)), Arc::new(Memory::new()));
    let embedding = configured.open().await.unwrap().expect("a server is configured");
    assert_eq!(embedding.queries.embed(&["four"]).await.unwrap(), [vec![4.0, 1.0]]);
    assert_eq!(seen.lock().unwrap().batch_sizes, [2, 1], "the first request tests batches");
}
