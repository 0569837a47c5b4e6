//! A running server: queries and mutations by POST, subscriptions as server-sent events.

use std::time::Duration;

use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use reqwest::{Response, Url, header};
use serde_json::{Value, json};
use shared::trace::current_scope;
use tokio::time;

use crate::{Secret, failure::Failure};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without data after which a stream counts as broken: four times the interval in which the
/// server sends comments.
const MAX_QUIET_TIME: Duration = Duration::from_mins(1);
/// Maximum number of bytes of one event. The state of a large plan is far smaller.
const MAX_EVENT_BYTES: usize = 256 << 20;

const ACCEPTED_TYPES: &str = "application/graphql-response+json, application/json;q=0.9";

#[derive(Clone, Debug)]
pub struct Remote {
    http: reqwest::Client,
    url: Url,
    token: Option<Secret>,
}

impl Remote {
    /// Prepares a client that sends the token. Sends nothing yet.
    pub fn new(address: &str, token: Option<&Secret>) -> Result<Self, Failure> {
        let url = parse_endpoint(address)?;
        // Responses have no timeout, because a model can need minutes. TCP keep-alive detects a
        // lost server.
        let builder = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT);
        let builder = if url.scheme() == "https" {
            // Fails if another part of the process has installed a provider before. That provider
            // works, too.
            let _ = rustls::crypto::ring::default_provider().install_default();
            builder
        } else {
            builder.no_proxy().tls_backend_preconfigured(config_without_roots())
        };
        let unusable = |err| Failure::unreachable(format!("no connection can be prepared: {err}"));
        Ok(Self { http: builder.build().map_err(unusable)?, url, token: token.cloned() })
    }

    pub async fn execute(&self, query: &str, variables: &Value) -> Result<Value, Failure> {
        let response = self.post_operation(query, variables, ACCEPTED_TYPES).await?;
        let status = response.status();
        let broken = |err| self.unreachable_failure(&err);
        let text = response.text().await.map_err(broken)?;
        let answer: Value = serde_json::from_str(&text).map_err(|_| {
            let description =
                if status.is_success() { "something that is not JSON" } else { status.as_str() };
            self.not_faber_failure(description)
        })?;
        self.take_data(answer)
    }

    /// Starts a subscription. If the connection is lost, the stream ends with an error.
    pub fn subscribe(
        self,
        query: String,
        variables: Value,
    ) -> BoxStream<'static, Result<Value, Failure>> {
        let opened = async move { self.open_stream(&query, &variables).await };
        stream::once(opened).try_flatten().boxed()
    }

    async fn open_stream(
        self,
        query: &str,
        variables: &Value,
    ) -> Result<BoxStream<'static, Result<Value, Failure>>, Failure> {
        let posted = self.post_operation(query, variables, "text/event-stream");
        let response = self.wait_for_data(posted).await??;
        if !is_stream(&response) {
            let text = response.text().await.map_err(|err| self.unreachable_failure(&err))?;
            let document = serde_json::from_str(&text);
            self.take_data(document.map_err(|_| self.not_faber_failure("no stream"))?)?;
            return Err(self.not_faber_failure("no stream"));
        }
        let events = EventStream { server: self, response, buffer: Vec::new(), searched_bytes: 0 };
        let read = stream::try_unfold(events, |mut events| async move {
            let Some(document) = events.next().await? else { return Ok(None) };
            Ok(Some((events.server.take_data(document)?, events)))
        });
        Ok(read.boxed())
    }

    pub async fn check_readiness(&self) -> Result<(), Failure> {
        let page = self.url.join("health/ready").unwrap_or_else(|_| self.url.clone());
        let sent = self.http.get(page).timeout(CONNECT_TIMEOUT).send().await;
        let response = sent.map_err(|err| self.unreachable_failure(&err))?;
        let status = response.status();
        let answer: Value = response.json().await.unwrap_or_default();
        match answer.get("status").and_then(Value::as_str) {
            Some("ready") if status.is_success() => Ok(()),
            Some(_) => {
                let reason = answer.get("reason").and_then(Value::as_str);
                let reason = reason.unwrap_or("the server gave no reason");
                Err(Failure::unreachable(format!("`{}` is not ready: {reason}", self.url)))
            }
            None => Err(self.not_faber_failure(status.as_str())),
        }
    }

    async fn post_operation(
        &self,
        query: &str,
        variables: &Value,
        accept: &str,
    ) -> Result<Response, Failure> {
        let body = json!({ "query": query, "variables": variables });
        let mut request =
            self.http.post(self.url.clone()).header(header::ACCEPT, accept).json(&body);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some(scope) = current_scope() {
            request = request.header("traceparent", scope.span.traceparent());
            if let Some(state) = &scope.span.state {
                request = request.header("tracestate", &**state);
            }
        }
        request.send().await.map_err(|err| self.unreachable_failure(&err))
    }

    async fn wait_for_data<T>(&self, response_part: impl Future<Output = T>) -> Result<T, Failure> {
        time::timeout(MAX_QUIET_TIME, response_part).await.map_err(|_| {
            Failure::unreachable(format!("the server at `{}` stopped answering", self.url))
        })
    }

    fn take_data(&self, mut answer: Value) -> Result<Value, Failure> {
        let error = answer.get("errors").and_then(|errors| errors.get(0));
        if let Some(error) = error {
            let message =
                error.get("message").and_then(Value::as_str).unwrap_or("the server gave no reason");
            let extensions = error.get("extensions").and_then(Value::as_object);
            return Err(super::make_failure(message, extensions));
        }
        match answer.get_mut("data") {
            Some(data) => Ok(data.take()),
            None => Err(self.not_faber_failure("no GraphQL answer")),
        }
    }

    fn unreachable_failure(&self, err: &reqwest::Error) -> Failure {
        let mut reason = err.to_string();
        let mut source = std::error::Error::source(err);
        while let Some(err) = source {
            reason = err.to_string();
            source = err.source();
        }
        let url = &self.url;
        Failure::unreachable(format!(
            "the server at `{url}` cannot be reached: {reason}; is `faber serve` running there?"
        ))
    }

    fn not_faber_failure(&self, description: &str) -> Failure {
        let url = &self.url;
        Failure::unreachable(format!(
            "`{url}` answers with {description}: check that `faber serve` runs there"
        ))
    }
}

struct EventStream {
    server: Remote,
    response: Response,
    buffer: Vec<u8>,
    /// Number of bytes at the start of `buffer` that were already searched for the end of an event.
    searched_bytes: usize,
}

impl EventStream {
    async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            while let Some(event) = self.take_event() {
                match event {
                    Event::Next(answer) => return Ok(Some(answer)),
                    Event::Complete => return Ok(None),
                    Event::Other => (),
                }
            }
            let chunk = self.server.wait_for_data(self.response.chunk()).await?;
            match chunk.map_err(|err| self.server.unreachable_failure(&err))? {
                Some(chunk) if self.buffer.len() + chunk.len() > MAX_EVENT_BYTES => {
                    return Err(self.server.not_faber_failure("an endless event"));
                }
                Some(chunk) => self.buffer.extend_from_slice(&chunk),
                None => {
                    let url = &self.server.url;
                    let reason = format!("the server at `{url}` closed the stream early");
                    return Err(Failure::unreachable(reason));
                }
            }
        }
    }

    fn take_event(&mut self) -> Option<Event> {
        let Some(end) =
            self.buffer[self.searched_bytes..].windows(2).position(|bytes| bytes == b"\n\n")
        else {
            self.searched_bytes = self.buffer.len().saturating_sub(1);
            return None;
        };
        let end = self.searched_bytes + end;
        let event = Event::parse(&self.buffer[..end]);
        self.buffer.drain(..end + 2);
        self.searched_bytes = 0;
        Some(event)
    }
}

#[derive(Debug, PartialEq)]
enum Event {
    Next(Value),
    Complete,
    /// A comment, which servers send as a keep-alive, or an unknown event.
    Other,
}

impl Event {
    fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut kind = "";
        let mut data = String::new();
        for line in text.lines() {
            if let Some(buffer) = line.strip_prefix("event:") {
                kind = buffer.trim();
            } else if let Some(buffer) = line.strip_prefix("data:") {
                if !data.is_empty() {
                    data.push('\n');
                }
                data.push_str(buffer.strip_prefix(' ').unwrap_or(buffer));
            }
        }
        match kind {
            "next" => serde_json::from_str(&data).map_or(Self::Other, Self::Next),
            "complete" => Self::Complete,
            _ => Self::Other,
        }
    }
}

fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

fn parse_endpoint(address: &str) -> Result<Url, Failure> {
    let refuse = |reason: &str| {
        Failure::usage(format!(
            "`{address}` is not the address of a server: {reason}; write an address such as \
             `http://127.0.0.1:8080`"
        ))
    };
    let text =
        if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let mut url: Url = text.parse().map_err(|err| refuse(&format!("{err}")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse("its scheme is neither `http` nor `https`"));
    }
    if !url.path().ends_with("/graphql") {
        let path = format!("{}/graphql", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url)
}

/// Configures TLS without root certificates. HTTP without TLS needs none, so the client also works
/// on a machine where none are installed.
fn config_without_roots() -> rustls::ClientConfig {
    let provider = rustls::crypto::ring::default_provider();
    rustls::ClientConfig::builder_with_provider(std::sync::Arc::new(provider))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default protocol versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        task::{JoinHandle, LocalSet},
    };

    use super::*;

    #[test]
    fn the_api_url_is_derived_from_any_server_address() {
        for (address, expected) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/graphql"),
            ("http://host:1/", "http://host:1/graphql"),
            ("https://host/faber", "https://host/faber/graphql"),
            ("http://host/graphql", "http://host/graphql"),
        ] {
            assert_eq!(parse_endpoint(address).unwrap().as_str(), expected);
        }
        assert!(parse_endpoint("ftp://host").is_err());
        assert!(parse_endpoint("").is_err());
    }

    async fn connect_to_server<T: 'static>(
        ask: impl AsyncFnOnce(Remote) -> T + 'static,
    ) -> (JoinHandle<T>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asking =
            tokio::task::spawn_local(
                async move { ask(Remote::new(&address, None).unwrap()).await },
            );
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut read = Vec::new();
        while !read.ends_with(b"}") {
            connection.read_buf(&mut read).await.unwrap();
        }
        (asking, connection)
    }

    async fn advance_time(duration: Duration) {
        time::pause();
        time::advance(duration).await;
        time::resume();
    }

    #[tokio::test]
    async fn a_slow_answer_is_awaited() {
        let local = LocalSet::new();
        local
            .run_until(async {
                let (asking, mut connection) =
                    connect_to_server(async |server| server.execute("{ q }", &json!({})).await)
                        .await;
                advance_time(Duration::from_mins(20)).await;
                let answer = r#"{"data":{"q":1}}"#;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
                let text = format!("{head} {}\r\n\r\n{answer}", answer.len());
                connection.write_all(text.as_bytes()).await.unwrap();
                assert_eq!(asking.await.unwrap().unwrap(), json!({ "q": 1 }));
            })
            .await;
    }

    #[tokio::test]
    async fn a_silent_stream_fails() {
        let local = LocalSet::new();
        local
            .run_until(async {
                let (asking, mut connection) = connect_to_server(async |server| {
                    let events = server.subscribe("subscription { q }".to_owned(), json!({}));
                    events.collect::<Vec<_>>().await
                })
                .await;
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
                let text = format!("{head}event: next\ndata: {{\"data\":{{\"q\":1}}}}\n\n");
                connection.write_all(text.as_bytes()).await.unwrap();
                let mut turns = 0;
                while !asking.is_finished() {
                    advance_time(MAX_QUIET_TIME).await;
                    tokio::task::yield_now().await;
                    turns += 1;
                    assert!(turns < 100_000, "the client waits forever");
                }
                let events = asking.await.unwrap();
                let lost = events.last().unwrap().as_ref().unwrap_err();
                assert!(lost.message.ends_with("stopped answering"), "{}", lost.message);
            })
            .await;
    }

    #[test]
    fn server_sent_events_are_parsed_in_pieces() {
        let answer = Event::parse(b"event: next\ndata: {\"data\":{\"n\":1}}");
        assert_eq!(answer, Event::Next(json!({ "data": { "n": 1 } })));
        assert_eq!(Event::parse(b"event: complete\ndata:"), Event::Complete);
        assert_eq!(Event::parse(b":"), Event::Other);
    }
}
