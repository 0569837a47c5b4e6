//! Servers that embed texts over HTTP, as `OpenAI`'s does: `POST /v1/embeddings`.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{HeaderValue, RETRY_AFTER},
};
use serde::Deserialize;
use serde_json::json;
use shared::limits;
use tokio::time::{Instant, sleep, timeout};

use super::{EmbedError, Embedder};

/// Texts of one request: what `OpenAI` and those that imitate it take, with room to spare.
const BATCH: usize = 256;
/// Bytes of the texts of one request: `OpenAI` takes 300,000 tokens, others a megabyte of JSON.
const BATCH_BYTES: usize = 256 << 10;
/// How long a server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long one request may take; a request that took so long with all its tries is not made again.
const TIMEOUT: Duration = Duration::from_mins(1);
/// How long a server may take to answer at all, before it is first used.
const FIRST: Duration = Duration::from_secs(15);
/// What a server is asked then: lists are what some do not know.
const PROBE: [&str; 2] = ["hello", "world"];
/// How often a request is made that a server could not answer then.
const TRIES: u32 = 4;
/// How long to wait before the second try; twice as long before each further one.
const PAUSE: Duration = Duration::from_millis(500);
/// The most that a server may ask to wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// Bytes of an answer: a request's vectors of the largest models, written out.
const ANSWER_BYTES: usize = 64 << 20;
/// Bytes of what a server says about an error that are repeated.
const SAID: usize = 300;
/// Who asks.
const AGENT: &str = concat!("faber/", env!("CARGO_PKG_VERSION"));

/// A server, and which of its models is asked.
#[derive(Clone)]
pub struct ServerConfig {
    /// What stands before `/embeddings`, such as `https://api.openai.com/v1`.
    pub base_url: String,
    /// The model's name.
    pub model: String,
    /// What is sent as bearer token.
    pub api_key: Option<String>,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base_url, model, api_key } = self;
        let api_key = api_key.as_ref().map(|_| "***");
        f.debug_struct("ServerConfig")
            .field("base_url", base_url)
            .field("model", model)
            .field("api_key", &api_key)
            .finish()
    }
}

/// An embedding server.
#[derive(Debug)]
pub struct Server {
    client: Client,
    url: Url,
    /// The model and where it is: the same name may mean another model elsewhere.
    name: String,
    model: String,
    key: Option<HeaderValue>,
    pause: Duration,
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

/// Why one try came to nothing.
enum Failed {
    /// Another may not; the server may have said how long to wait.
    Now(String, Option<Duration>),
    /// Another would, too.
    ForGood(String),
    /// Another with the same texts would, too.
    Text(String),
}

impl Server {
    /// Makes ready to ask a server. Nothing is sent yet.
    pub fn new(config: &ServerConfig) -> Result<Self, EmbedError> {
        let written = config.base_url.trim_end_matches('/');
        let refused = |why: String| EmbedError::Refused { url: written.to_owned(), why };
        let url: Url = format!("{written}/embeddings").parse().map_err(|err| {
            refused(format!("`embedding.base_url` is no address ({err}): write `http://host/v1`"))
        })?;
        if !url.username().is_empty() || url.password().is_some() {
            let why = "`embedding.base_url` has a password: name a variable by `api_key_env`";
            return Err(EmbedError::Refused { url: "…".to_owned(), why: why.to_owned() });
        }
        let key = config.api_key.as_ref().map(|it| {
            let mut value = HeaderValue::from_str(&format!("Bearer {it}")).map_err(|_| {
                refused("the API key has characters that no header can have: check it".to_owned())
            })?;
            value.set_sensitive(true);
            Ok(value)
        });
        // Whoever comes later finds it installed, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().user_agent(AGENT).connect_timeout(CONNECT);
        let client = client.redirect(reqwest::redirect::Policy::none()).build();
        let place = format!("{}{}", url.authority(), url.path().trim_end_matches("/embeddings"));
        Ok(Self {
            client: client.map_err(|err| refused(err.to_string()))?,
            url,
            name: format!("{}@{place}", config.model),
            model: config.model.clone(),
            key: key.transpose()?,
            pause: PAUSE,
        })
    }

    /// Asks for the vectors of a batch, again where that may help.
    async fn ask(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let url = || self.url.to_string();
        let (mut pause, began) = (self.pause, Instant::now());
        for tried in 1.. {
            match self.try_once(texts).await {
                Ok(vectors) => return Ok(vectors),
                Err(Failed::ForGood(why)) => return Err(EmbedError::Refused { url: url(), why }),
                Err(Failed::Text(why)) => return Err(EmbedError::Text { url: url(), why }),
                Err(Failed::Now(why, _)) if tried == TRIES || began.elapsed() >= TIMEOUT => {
                    let times = if tried == 1 { "once" } else { &format!("{tried} times") };
                    let why = format!("{why}, asked {times}: see that it runs");
                    return Err(EmbedError::Unavailable { url: url(), why });
                }
                Err(Failed::Now(why, wait)) => {
                    tracing::debug!(%why, "the embedding server is asked again");
                    sleep(wait.unwrap_or(pause).min(LONGEST_PAUSE)).await;
                    pause *= 2;
                }
            }
        }
        unreachable!("the last try returns")
    }

    async fn try_once(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Failed> {
        let body = json!({ "model": self.model, "input": texts, "encoding_format": "float" });
        let mut request = self.client.post(self.url.clone()).json(&body);
        if let Some(key) = &self.key {
            request = request.header(reqwest::header::AUTHORIZATION, key);
        }
        let answered = timeout(TIMEOUT, async {
            let response = request.send().await.map_err(|err| lost(&err))?;
            let (status, wait) = (response.status(), retry_after(&response));
            Ok::<_, Failed>((status, wait, read(response).await?))
        });
        let slow = |_| Failed::Now(format!("it did not answer in {} s", TIMEOUT.as_secs()), None);
        let (status, wait, body) = answered.await.map_err(slow)??;
        if status.is_success() {
            return vectors(&body, texts.len()).map_err(Failed::ForGood);
        }
        let said = String::from_utf8_lossy(&body);
        let said = said.trim().chars().take(SAID).collect::<String>();
        let why = format!("it answered {status}: {said}");
        match status {
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
                Err(Failed::Now(why, wait))
            }
            _ if status.is_server_error() => Err(Failed::Now(why, wait)),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(Failed::ForGood(format!(
                "{why}; check the variable that `embedding.api_key_env` names"
            ))),
            StatusCode::NOT_FOUND => Err(Failed::ForGood(format!(
                "{why}; check `embedding.base_url` and `embedding.model`"
            ))),
            _ if status.is_client_error() => Err(Failed::Text(why)),
            _ => Err(Failed::ForGood(why)),
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
            let (now, later) = rest.split_at(batch(rest));
            vectors.extend(self.ask(now).await?);
            rest = later;
        }
        let len = vectors.first().map_or(0, Vec::len);
        match vectors.iter().find(|it| it.len() != len) {
            Some(other) => Err(EmbedError::Refused {
                url: self.url.to_string(),
                why: format!("its vectors have {len} numbers, or {}", other.len()),
            }),
            None => Ok(vectors),
        }
    }

    /// Asks once whether the server answers at all. One that does not like the texts is there.
    async fn probe(&self) -> Result<(), EmbedError> {
        let url = || self.url.to_string();
        let slow = |_| Failed::Now(format!("it did not answer in {} s", FIRST.as_secs()), None);
        let answered = timeout(FIRST, self.try_once(&PROBE)).await;
        match answered.unwrap_or_else(|it| Err(slow(it))) {
            // What means nothing is near to nothing: every score would be 0.
            Ok(vectors) if vectors.iter().flatten().all(|it| *it == 0.0) => {
                let why = "its vectors have nothing but zeros; check `embedding.model`".to_owned();
                Err(EmbedError::Refused { url: url(), why })
            }
            Ok(_) | Err(Failed::Text(_)) => Ok(()),
            Err(Failed::ForGood(why)) => Err(EmbedError::Refused { url: url(), why }),
            Err(Failed::Now(why, _)) => {
                let why = format!("{why}: see that it runs");
                Err(EmbedError::Unavailable { url: url(), why })
            }
        }
    }
}

/// Returns how many of the first texts make one request.
fn batch(texts: &[&str]) -> usize {
    let mut bytes = 0;
    let fit = texts.iter().take(BATCH).take_while(|it| {
        bytes += it.len();
        bytes <= BATCH_BYTES
    });
    fit.count().max(1)
}

/// Reads an answer: vectors in any order, each with its place.
fn vectors(body: &[u8], texts: usize) -> Result<Vec<Vec<f32>>, String> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|err| format!("it answered what is no list of vectors ({err})"))?;
    let mut vectors = vec![Vec::new(); texts];
    for Entry { index, embedding } in answer.data {
        let is_vector = !embedding.is_empty()
            && embedding.len() <= limits::VECTOR_LEN
            && embedding.iter().all(|it| it.is_finite());
        match vectors.get_mut(index) {
            Some(place) if is_vector && place.is_empty() => *place = embedding,
            Some(_) if is_vector => {
                return Err(format!("it gave vector number {index} twice"));
            }
            Some(_) => {
                let len = embedding.len();
                return Err(format!("its vector number {index}, of {len} numbers, cannot be"));
            }
            None => return Err(format!("it gave a vector number {index} of {texts}, from 0 on")),
        }
    }
    match vectors.iter().filter(|it| it.is_empty()).count() {
        0 => Ok(vectors),
        missing => Err(format!("it left out {missing} of {texts} vectors")),
    }
}

async fn read(mut response: Response) -> Result<Vec<u8>, Failed> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|err| lost(&err))? {
        if body.len() + chunk.len() > ANSWER_BYTES {
            return Err(Failed::ForGood(format!("it answered more than {ANSWER_BYTES} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Returns how long a server wants one to wait, where it says so in seconds.
fn retry_after(response: &Response) -> Option<Duration> {
    let value = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

/// Says what happened on the way, to its cause.
fn lost(err: &reqwest::Error) -> Failed {
    let mut why = String::from("it cannot be asked");
    let mut cause: Option<&dyn std::error::Error> = Some(err);
    while let Some(err) = cause {
        if err.source().is_none() {
            why = format!("{why} ({err})");
        }
        cause = err.source();
    }
    Failed::Now(why, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_few_texts_and_few_bytes() {
        assert_eq!(batch(&["a"; 3]), 3);
        assert_eq!(batch(&["a"; BATCH + 1]), BATCH);
        let half = "x".repeat(BATCH_BYTES / 2);
        assert_eq!(batch(&[&half, &half, "a"]), 2);
        assert_eq!(batch(&[&format!("{half}{half}!"), "a"]), 1, "one at least");
    }

    #[test]
    fn vectors_come_in_any_order() {
        let read = |body: &str| vectors(body.as_bytes(), 2);
        let body = r#"{"object": "list", "data": [
            {"object": "embedding", "index": 1, "embedding": [3, 4.5]},
            {"object": "embedding", "index": 0, "embedding": [1e-3, 2]}]}"#;
        assert_eq!(read(body).unwrap(), [vec![0.001, 2.0], vec![3.0, 4.5]]);
        for (body, why) in [
            ("<html>", "it answered what is no list of vectors"),
            (r#"{"data": []}"#, "it left out 2 of 2 vectors"),
            (r#"{"data": [{"index": 0, "embedding": [1]}]}"#, "it left out 1 of 2 vectors"),
            (
                r#"{"data": [{"index": 2, "embedding": [1]}]}"#,
                "it gave a vector number 2 of 2, from 0 on",
            ),
            (r#"{"data": [{"index": 0, "embedding": []}]}"#, "its vector number 0, of 0 numbers"),
            (
                r#"{"data": [{"index": 0, "embedding": [1e99]}]}"#,
                "it answered what is no list of vectors",
            ),
            (
                r#"{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}"#,
                "it gave vector number 0 twice",
            ),
        ] {
            let said = read(body).unwrap_err();
            assert!(said.starts_with(why), "{said}");
        }
    }

    #[test]
    fn keys_are_shown_nowhere() {
        let config = ServerConfig {
            base_url: "http://127.0.0.1:1/v1/".to_owned(),
            model: "m".to_owned(),
            api_key: Some("sk-secret".to_owned()),
        };
        let server = Server::new(&config).unwrap();
        assert_eq!(server.model(), "m@127.0.0.1:1/v1");
        assert!(!format!("{config:?} {server:?}").contains("sk-secret"));
        let wrong = ServerConfig { base_url: "nowhere".to_owned(), ..config };
        assert!(Server::new(&wrong).unwrap_err().to_string().contains("embedding.base_url"));
    }
}
