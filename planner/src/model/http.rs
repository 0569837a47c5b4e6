use std::time::Duration;

use reqwest::{Client, RequestBuilder, StatusCode, header::HeaderMap, redirect::Policy};

/// Maximum number of bytes of an answer, many times more than models write.
pub(super) const MAX_ANSWER_BYTES: usize = 16 << 20;
const MAX_ERROR_BYTES: usize = 64 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const USER_AGENT: &str = concat!("faber/", env!("CARGO_PKG_VERSION"));

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

#[derive(Debug)]
pub(super) enum ExchangeError {
    Unreachable(String),
    ConnectionLost(String),
    TooLong,
}

/// Makes a client. It follows no redirect, so that a key is sent to its provider only. For a model
/// on this machine it uses no proxy, so that the question does not leave the machine.
pub(super) fn build_client(is_local: bool) -> reqwest::Result<Client> {
    // Ignores the error, because the process may already have a cryptography provider, which is
    // then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(Policy::none());
    if is_local { builder.no_proxy() } else { builder }.build()
}

/// Sends a request and reads the answer. Fails if a successful answer is too long. Reads only the
/// beginning of a long error answer.
pub(super) async fn send_request(request: RequestBuilder) -> Result<Answer, ExchangeError> {
    let response = request.send().await;
    let mut response =
        response.map_err(|err| ExchangeError::Unreachable(find_innermost_cause(&err)))?;
    let status = response.status();
    let headers = std::mem::take(response.headers_mut());
    let limit = if status.is_success() { MAX_ANSWER_BYTES } else { MAX_ERROR_BYTES };
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|err| ExchangeError::ConnectionLost(find_innermost_cause(&err)))?
    {
        body.extend_from_slice(&chunk);
        if body.len() > limit {
            if status.is_success() {
                return Err(ExchangeError::TooLong);
            }
            body.truncate(limit);
            break;
        }
    }
    Ok(Answer { status, headers, body })
}

fn find_innermost_cause(err: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = err;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
