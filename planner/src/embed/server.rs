//! Embedding servers with `OpenAI`'s interface: `POST /v1/embeddings`.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{HeaderValue, RETRY_AFTER},
};
use serde::Deserialize;
use serde_json::json;
use shared::{limits, secret_file::SecretFile};
use tokio::time::{Instant, sleep, timeout};

use super::{EmbedError, Embedder};

/// Maximum number of texts in one request, well below the limits of `OpenAI` and compatible
/// servers.
const MAX_BATCH_TEXTS: usize = 256;
/// Maximum number of bytes of the texts in one request. `OpenAI` allows 300,000 tokens, and other
/// servers a megabyte of JSON.
const MAX_BATCH_BYTES: usize = 256 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of one request. If all attempts together have taken this long, the request is not
/// repeated.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);
const PROBE_TIMEOUT: Duration = Duration::from_secs(15);
/// The texts of a probe. There are two, because some servers do not accept lists.
const PROBE_TEXTS: [&str; 2] = ["hello", "world"];
const MAX_ATTEMPTS: u32 = 4;
/// The wait before the second attempt. It doubles with each further attempt.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);
/// The longest wait between two attempts, even if the server asks for a longer wait.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(20);
/// Maximum number of bytes of an answer, enough for the vectors of the largest models as text.
const MAX_ANSWER_BYTES: usize = 64 << 20;
const MAX_ERROR_BYTES: usize = 300;
const USER_AGENT_NAME: &str = concat!("faber/", env!("CARGO_PKG_VERSION"));

#[derive(Clone)]
pub struct ServerConfig {
    pub base_url: String,
    pub model: String,
    pub api_key: Option<String>,
    /// A file with the key. Each request reads the file, so that the key can change.
    pub api_key_file: Option<SecretFile>,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base_url, model, api_key, api_key_file } = self;
        let api_key = api_key.as_ref().map(|_| "***");
        f.debug_struct("ServerConfig")
            .field("base_url", base_url)
            .field("model", model)
            .field("api_key", &api_key)
            .field("api_key_file", &api_key_file.as_ref().map(SecretFile::written))
            .finish()
    }
}

#[derive(Debug)]
pub struct Server {
    client: Client,
    url: Url,
    /// The model and the URL, because servers may use the same name for different models.
    name: String,
    model: String,
    key: Option<HeaderValue>,
    key_file: Option<SecretFile>,
    retry_delay: Duration,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    index: usize,
    embedding: Vec<f32>,
}

enum RequestFailure {
    Temporary(String, Option<Duration>),
    Permanent(String),
    Text(String),
}

fn format_key(key: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
        .map_err(|_| "the API key has characters that no header can have: check it".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

impl Server {
    pub fn new(config: &ServerConfig) -> Result<Self, EmbedError> {
        let written = config.base_url.trim_end_matches('/');
        let refused = |reason: String| EmbedError::Refused { url: written.to_owned(), reason };
        let url: Url = format!("{written}/embeddings").parse().map_err(|err| {
            refused(format!(
                "`embedding.base_url` is not an address ({err}): write `http://host/v1`"
            ))
        })?;
        if !url.username().is_empty() || url.password().is_some() {
            let reason = "`embedding.base_url` contains a password: remove it, and name a variable \
                       with `api_key_env`";
            return Err(EmbedError::Refused { url: "…".to_owned(), reason: reason.to_owned() });
        }
        let key = config.api_key.as_deref().map(|key| format_key(key).map_err(refused));
        // Ignores the error, because the process may already have a cryptography provider, which is
        // then used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().user_agent(USER_AGENT_NAME).connect_timeout(CONNECT_TIMEOUT);
        let client = client.redirect(reqwest::redirect::Policy::none()).build();
        let place = format!("{}{}", url.authority(), url.path().trim_end_matches("/embeddings"));
        Ok(Self {
            client: client.map_err(|err| refused(err.to_string()))?,
            url,
            name: format!("{}@{place}", config.model),
            model: config.model.clone(),
            key: key.transpose()?,
            key_file: config.api_key_file.clone(),
            retry_delay: MIN_RETRY_DELAY,
        })
    }

    async fn request_vectors(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let url = || self.url.to_string();
        let (mut retry_delay, began) = (self.retry_delay, Instant::now());
        for attempt in 1.. {
            match self.try_once(texts).await {
                Ok(vectors) => return Ok(vectors),
                Err(RequestFailure::Permanent(reason)) => {
                    return Err(EmbedError::Refused { url: url(), reason });
                }
                Err(RequestFailure::Text(reason)) => {
                    return Err(EmbedError::Text { url: url(), reason });
                }
                Err(RequestFailure::Temporary(reason, _))
                    if attempt == MAX_ATTEMPTS || began.elapsed() >= REQUEST_TIMEOUT =>
                {
                    let times = if attempt == 1 { "once" } else { &format!("{attempt} times") };
                    let reason = format!("{reason}, asked {times}: check that the server runs");
                    return Err(EmbedError::Unavailable { url: url(), reason });
                }
                Err(RequestFailure::Temporary(reason, wait)) => {
                    tracing::debug!(why = %reason, "the embedding server is asked again");
                    sleep(wait.unwrap_or(retry_delay).min(MAX_RETRY_DELAY)).await;
                    retry_delay *= 2;
                }
            }
        }
        unreachable!("the last try returns")
    }

    fn current_key(&self) -> Result<Option<HeaderValue>, String> {
        match &self.key_file {
            Some(file) => {
                let key = file.read().map_err(|reason| {
                    format!("the key that `embedding.api_key_file` names is missing: {reason}")
                })?;
                format_key(key.trim()).map(Some)
            }
            None => Ok(self.key.clone()),
        }
    }

    async fn try_once(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, RequestFailure> {
        let body = json!({ "model": self.model, "input": texts, "encoding_format": "float" });
        let mut request = self.client.post(self.url.clone()).json(&body);
        if let Some(key) = self.current_key().map_err(RequestFailure::Permanent)? {
            request = request.header(reqwest::header::AUTHORIZATION, key);
        }
        let answered = timeout(REQUEST_TIMEOUT, async {
            let response = request.send().await.map_err(|err| connection_error(&err))?;
            let (status, wait) = (response.status(), retry_after(&response));
            Ok::<_, RequestFailure>((status, wait, read_body(response).await?))
        });
        let slow = |_| {
            RequestFailure::Temporary(
                format!("it did not answer in {} s", REQUEST_TIMEOUT.as_secs()),
                None,
            )
        };
        let (status, wait, body) = answered.await.map_err(slow)??;
        if status.is_success() {
            return parse_vectors(&body, texts.len()).map_err(RequestFailure::Permanent);
        }
        let body_text = String::from_utf8_lossy(&body);
        let detail = body_text.trim().chars().take(MAX_ERROR_BYTES).collect::<String>();
        let reason = format!("it answered {status}: {detail}");
        match status {
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                Err(RequestFailure::Temporary(reason, wait))
            }
            _ if status.is_server_error() => Err(RequestFailure::Temporary(reason, wait)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(RequestFailure::Permanent(format!(
                    "{reason}; check the key that `embedding.api_key_env` or \
                     `embedding.api_key_file` names"
                )))
            }
            StatusCode::NOT_FOUND => Err(RequestFailure::Permanent(format!(
                "{reason}; check `embedding.base_url` and `embedding.model`"
            ))),
            _ if status.is_client_error() => Err(RequestFailure::Text(reason)),
            _ => Err(RequestFailure::Permanent(reason)),
        }
    }
}

#[async_trait]
impl Embedder for Server {
    #[expect(clippy::misnamed_getters, reason = "its name says which model, and where")]
    fn model(&self) -> &str {
        &self.name
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
        let mut rest = texts;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(count_batch_texts(rest));
            vectors.extend(self.request_vectors(now).await?);
            rest = later;
        }
        let len = vectors.first().map_or(0, Vec::len);
        match vectors.iter().find(|vector| vector.len() != len) {
            Some(other) => Err(EmbedError::Refused {
                url: self.url.to_string(),
                reason: format!(
                    "its vectors have different lengths: {len} and {} numbers",
                    other.len()
                ),
            }),
            None => Ok(vectors),
        }
    }

    /// Asks the server once. If the server only rejects the texts, it counts as available, because
    /// it answers.
    async fn probe(&self) -> Result<(), EmbedError> {
        let url = || self.url.to_string();
        let slow = |_| {
            RequestFailure::Temporary(
                format!("it did not answer in {} s", PROBE_TIMEOUT.as_secs()),
                None,
            )
        };
        let answered = timeout(PROBE_TIMEOUT, self.try_once(&PROBE_TEXTS)).await;
        match answered.unwrap_or_else(|elapsed| Err(slow(elapsed))) {
            // Refuses zero vectors, because every score would be 0.
            Ok(vectors) if vectors.iter().flatten().all(|number| *number == 0.0) => {
                let reason = "its vectors are all zero; check `embedding.model`".to_owned();
                Err(EmbedError::Refused { url: url(), reason })
            }
            Ok(_) | Err(RequestFailure::Text(_)) => Ok(()),
            Err(RequestFailure::Permanent(reason)) => {
                Err(EmbedError::Refused { url: url(), reason })
            }
            Err(RequestFailure::Temporary(reason, _)) => {
                let reason = format!("{reason}: check that the server runs");
                Err(EmbedError::Unavailable { url: url(), reason })
            }
        }
    }
}

fn count_batch_texts(texts: &[&str]) -> usize {
    let mut bytes = 0;
    let fit = texts.iter().take(MAX_BATCH_TEXTS).take_while(|text| {
        bytes += text.len();
        bytes <= MAX_BATCH_BYTES
    });
    fit.count().max(1)
}

fn parse_vectors(body: &[u8], texts: usize) -> Result<Vec<Vec<f32>>, String> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|err| format!("its answer is not a list of vectors ({err})"))?;
    let mut vectors = vec![Vec::new(); texts];
    for Entry { index, embedding } in answer.data {
        let is_vector = !embedding.is_empty()
            && embedding.len() <= limits::VECTOR_LEN
            && embedding.iter().all(|number| number.is_finite());
        match vectors.get_mut(index) {
            Some(place) if is_vector && place.is_empty() => *place = embedding,
            Some(_) if is_vector => {
                return Err(format!("it returned vector {index} twice"));
            }
            Some(_) => {
                let len = embedding.len();
                return Err(format!(
                    "its vector {index} is invalid: it has {len} numbers, or one that is not finite"
                ));
            }
            None => {
                return Err(format!(
                    "it returned a vector with the index {index} for {texts} texts"
                ));
            }
        }
    }
    match vectors.iter().filter(|vector| vector.is_empty()).count() {
        0 => Ok(vectors),
        missing => Err(format!("it left out {missing} of {texts} vectors")),
    }
}

async fn read_body(mut response: Response) -> Result<Vec<u8>, RequestFailure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|err| connection_error(&err))? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(RequestFailure::Permanent(format!(
                "it answered more than {MAX_ANSWER_BYTES} bytes"
            )));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns the wait that a server asks for. Reads only waits in seconds.
fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

fn connection_error(err: &reqwest::Error) -> RequestFailure {
    let mut reason = String::from("the request failed");
    let mut cause: Option<&dyn std::error::Error> = Some(err);
    while let Some(err) = cause {
        if err.source().is_none() {
            reason = format!("{reason} ({err})");
        }
        cause = err.source();
    }
    RequestFailure::Temporary(reason, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_limited_in_texts_and_bytes() {
        assert_eq!(count_batch_texts(&["a"; 3]), 3);
        assert_eq!(count_batch_texts(&["a"; MAX_BATCH_TEXTS + 1]), MAX_BATCH_TEXTS);
        let half = "x".repeat(MAX_BATCH_BYTES / 2);
        assert_eq!(count_batch_texts(&[&half, &half, "a"]), 2);
        assert_eq!(
            count_batch_texts(&[&format!("{half}{half}!"), "a"]),
            1,
            "a batch has at least one text"
        );
    }

    #[test]
    fn vectors_are_accepted_in_any_order() {
        let parse_body = |body: &str| parse_vectors(body.as_bytes(), 2);
        let body = r#"{"object": "list", "data": [
            {"object": "embedding", "index": 1, "embedding": [3, 4.5]},
            {"object": "embedding", "index": 0, "embedding": [1e-3, 2]}]}"#;
        assert_eq!(parse_body(body).unwrap(), [vec![0.001, 2.0], vec![3.0, 4.5]]);
        for (body, reason) in [
            ("<html>", "its answer is not a list of vectors"),
            (r#"{"data": []}"#, "it left out 2 of 2 vectors"),
            (r#"{"data": [{"index": 0, "embedding": [1]}]}"#, "it left out 1 of 2 vectors"),
            (
                r#"{"data": [{"index": 2, "embedding": [1]}]}"#,
                "it returned a vector with the index 2 for 2 texts",
            ),
            (r#"{"data": [{"index": 0, "embedding": []}]}"#, "its vector 0 is invalid"),
            (
                r#"{"data": [{"index": 0, "embedding": [1e99]}]}"#,
                "its answer is not a list of vectors",
            ),
            (
                r#"{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}"#,
                "it returned vector 0 twice",
            ),
        ] {
            let message = parse_body(body).unwrap_err();
            assert!(message.starts_with(reason), "{message}");
        }
    }

    #[test]
    fn debug_output_hides_the_key() {
        let config = ServerConfig {
            base_url: "http://127.0.0.1:1/v1/".to_owned(),
            model: "m".to_owned(),
            api_key: Some("sk-secret".to_owned()),
            api_key_file: None,
        };
        let server = Server::new(&config).unwrap();
        assert_eq!(server.model(), "m@127.0.0.1:1/v1");
        assert!(!format!("{config:?} {server:?}").contains("sk-secret"));
        let wrong = ServerConfig { base_url: "nowhere".to_owned(), ..config };
        assert!(Server::new(&wrong).unwrap_err().to_string().contains("embedding.base_url"));
    }
}
