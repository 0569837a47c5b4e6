//! HTTP client: checked addresses, few redirects, limited responses.

use std::{error::Error as _, sync::Arc, time::Duration};

use http_client::net::{CheckedResolver, RefusedUrl, check_url};
use reqwest::{Client, ClientBuilder, Response, StatusCode, Url, header, redirect};
use shared::{
    json::parse_lenient,
    tool::{ErrorCode, ToolError},
};
use tokio::{sync::OnceCell, time::timeout};

const MAX_REDIRECTS: usize = 5;
const USER_AGENT: &str = concat!("faber/", env!("CARGO_PKG_VERSION"));
const MAX_ERROR_BODY_BYTES: usize = 200;

#[derive(Debug)]
pub(super) struct WebClient {
    allow_private: bool,
    timeout: Duration,
    max_bytes: usize,
    client: OnceCell<Client>,
}

#[derive(Debug)]
pub(super) struct WebResponse {
    pub(super) url: Url,
    pub(super) content_type: String,
    pub(super) bytes: Vec<u8>,
    pub(super) is_cut: bool,
    pub(super) status: StatusCode,
}

impl WebClient {
    pub(super) fn new(allow_private: bool, timeout: Duration, max_bytes: usize) -> Self {
        Self { allow_private, timeout, max_bytes, client: OnceCell::new() }
    }

    pub(super) fn parse_url(&self, text: &str) -> Result<Url, RefusedUrl> {
        let url: Url = text.trim().parse().map_err(|_| RefusedUrl::not_a_url(text))?;
        check_url(&url, self.allow_private)?;
        Ok(url)
    }

    /// Fetches a URL and follows redirects. An HTTP error status is an error.
    pub(super) async fn get(&self, url: Url, accept: &str) -> Result<WebResponse, ToolError> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let fetched = timeout(self.timeout, self.follow_redirects(url, accept)).await;
        let answer = fetched.unwrap_or_else(|_| {
            let seconds = self.timeout.as_secs();
            let message = format!("`{host}` did not answer within {seconds} s");
            Err(ToolError::new(ErrorCode::TIMEOUT, message))
        })?;
        if answer.status.is_success() { Ok(answer) } else { Err(status_error(&host, &answer)) }
    }

    pub(super) async fn get_json<T: serde::de::DeserializeOwned>(
        &self,
        url: Url,
    ) -> Result<T, ToolError> {
        let answer = self.get(url, "application/json").await?;
        let host = answer.url.host_str().unwrap_or_default();
        if answer.is_cut {
            let message = format!("`{host}` answered more than {} bytes", self.max_bytes);
            return Err(ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, message));
        }
        parse_lenient(&answer.bytes)
            .map_err(|err| ToolError::failed(format!("`{host}` sent an unexpected answer: {err}")))
    }

    async fn follow_redirects(&self, mut url: Url, accept: &str) -> Result<WebResponse, ToolError> {
        let client = self.client.get_or_try_init(|| async { self.connect() }).await?;
        for _ in 0..=MAX_REDIRECTS {
            // The URL may come from a redirect, so each URL is checked.
            check_url(&url, self.allow_private).map_err(|err| refused_error(&err))?;
            let result = client.get(url.clone()).header(header::ACCEPT, accept).send().await;
            let response = result.map_err(|err| unreachable_error(&url, &err))?;
            match redirect_target(&url, &response)? {
                Some(next) => url = next,
                None => return self.read_body(url, response).await,
            }
        }
        let message = format!("`{url}` leads to more than {MAX_REDIRECTS} redirects");
        Err(ToolError::failed(message).without_retry())
    }

    async fn read_body(&self, url: Url, mut response: Response) -> Result<WebResponse, ToolError> {
        let status = response.status();
        let content_type = response.headers().get(header::CONTENT_TYPE);
        let content_type =
            content_type.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let mut bytes = Vec::new();
        let mut is_cut = false;
        // Chunks arrive decompressed, so no buffer grows beyond the limit.
        while let Some(chunk) =
            response.chunk().await.map_err(|err| unreachable_error(&url, &err))?
        {
            let room = self.max_bytes - bytes.len();
            is_cut = chunk.len() > room;
            bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if is_cut {
                break;
            }
        }
        Ok(WebResponse {
            url,
            content_type: content_type.unwrap_or_default(),
            bytes,
            is_cut,
            status,
        })
    }

    fn connect(&self) -> Result<Client, ToolError> {
        // Ignores the error, because another part of the process may have installed a provider, and
        // any provider works.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let built = self.client_builder().build().or_else(|err| {
            tracing::warn!(%err, "no certificates were found, so https cannot be used");
            self.client_builder().tls_backend_preconfigured(tls_without_certificates()).build()
        });
        built.map_err(|err| {
            let message = format!("the HTTP client cannot be created: {}", root_cause(&err));
            ToolError::new(ErrorCode::UNAVAILABLE, message)
        })
    }

    fn client_builder(&self) -> ClientBuilder {
        let resolver = CheckedResolver {
            allow_private: self.allow_private,
            allow_link_local: self.allow_private,
        };
        Client::builder()
            .user_agent(USER_AGENT)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .dns_resolver(Arc::new(resolver))
    }

    /// Resolves a name to an address and treats it as public.
    #[cfg(test)]
    pub(super) fn pin_address(&self, name: &str, address: std::net::SocketAddr) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = self.client_builder().tls_backend_preconfigured(tls_without_certificates());
        self.client.set(builder.resolve(name, address).build().unwrap()).unwrap();
    }
}

/// Configures TLS without certificates, for a machine that has none. Plain HTTP still works.
fn tls_without_certificates() -> rustls::ClientConfig {
    rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

fn redirect_target(url: &Url, response: &Response) -> Result<Option<Url>, ToolError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(header::LOCATION) else { return Ok(None) };
    let location = String::from_utf8_lossy(location.as_bytes());
    let next = url.join(&location).map_err(|_| refused_error(&RefusedUrl::not_a_url(&location)))?;
    Ok(Some(next))
}

pub(super) fn refused_error(refused: &RefusedUrl) -> ToolError {
    ToolError::failed(format!("Refused: {refused}")).without_retry()
}

fn unreachable_error(url: &Url, err: &reqwest::Error) -> ToolError {
    let mut source = err.source();
    while let Some(cause) = source {
        let inner_error = cause.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        if let Some(refusal) = inner_error.and_then(|inner| inner.downcast_ref::<RefusedUrl>()) {
            return refused_error(refusal);
        }
        source = cause.source();
    }
    let host = url.host_str().unwrap_or_default();
    ToolError::new(
        ErrorCode::UNAVAILABLE,
        format!("`{host}` cannot be reached: {}", root_cause(err)),
    )
}

/// Returns the last cause of an error, which has the most specific message.
fn root_cause(err: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = err;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Returns the error for an HTTP status. Overload and server errors can be retried.
fn status_error(host: &str, answer: &WebResponse) -> ToolError {
    let body =
        String::from_utf8_lossy(&answer.bytes[..answer.bytes.len().min(MAX_ERROR_BODY_BYTES)]);
    let is_markup = answer.content_type.contains("html");
    let detail = match body.trim() {
        text if text.is_empty() || is_markup => String::new(),
        text => format!(": {}", text.replace('\n', " ")),
    };
    let status = answer.status;
    let is_busy = status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error();
    let message = format!("`{host}` answered {status}{detail}");
    if is_busy {
        ToolError::new(ErrorCode::UNAVAILABLE, message)
    } else {
        ToolError::failed(message).without_retry()
    }
}
