//! The HTTP client for authorization servers. A server that a public server names cannot be in a
//! private network, secrets go only over https or stay on this machine, and redirects are not
//! followed.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http_client::{
    AddressScope, Http, HttpError, HttpReply, OutgoingRequest, host,
    net::{RefusedUrl, is_public},
};
use oauth2::{HttpRequest, HttpResponse, http};
use reqwest::{Method, Url, header};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};
use serde::Deserialize;
use tokio::{sync::OnceCell, time::timeout};

use super::token_error::TokenError;

const MAX_ANSWER_BYTES: usize = 256 << 10;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of requests that rmcp may send to get one token. Without a limit, a server could
/// name any number of other servers, and rmcp would ask each of them.
const MAX_REQUESTS: usize = 60;

#[derive(Debug)]
pub(super) struct AuthHttp {
    shared: Arc<SharedState>,
    requests: AtomicUsize,
    /// The error of the last request that rmcp made. This field keeps the error, because rmcp drops
    /// it.
    last_error: Mutex<Option<TokenError>>,
    /// The time when the secret of the registered client expires. This field keeps the time,
    /// because rmcp drops it.
    secret_until: AtomicU64,
}

#[derive(Debug)]
struct SharedState {
    http: Http,
    server: Url,
    second_server: Option<Url>,
    is_private: OnceCell<bool>,
}

/// The expiry of a client's secret in a registration response (RFC 7591, section 3.2.1).
#[derive(Deserialize)]
struct RegistrationResponse {
    client_secret_expires_at: u64,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not used: Faber requests tokens by https only, or on this machine")]
pub(super) struct InsecureUrl(String);

impl AuthHttp {
    pub(super) fn new(server: Url) -> Self {
        Self::with_shared(SharedState {
            http: Http::default(),
            server,
            second_server: None,
            is_private: OnceCell::new(),
        })
    }

    pub(super) fn with_second_server(server: Url, second_server: Option<Url>) -> Self {
        Self::with_shared(SharedState {
            http: Http::default(),
            server,
            second_server,
            is_private: OnceCell::new(),
        })
    }

    fn with_shared(shared: impl Into<Arc<SharedState>>) -> Self {
        Self {
            shared: shared.into(),
            requests: AtomicUsize::new(0),
            last_error: Mutex::default(),
            secret_until: AtomicU64::new(0),
        }
    }

    /// Returns a client for the next token, without an error and with a new request count.
    pub(super) fn for_next_token(&self) -> Arc<Self> {
        Arc::new(Self::with_shared(Arc::clone(&self.shared)))
    }

    /// Sends a request without retries and without following redirects.
    pub(super) async fn send(&self, mut request: OutgoingRequest) -> Result<HttpReply, HttpError> {
        check_secure(&request.url).map_err(|err| HttpError::Denied(err.to_string()))?;
        let host = host(&request.url);
        if is_loopback(&request.url)
            && !is_loopback(&self.shared.server)
            && !self.shared.is_configured(&request.url)
        {
            return Err(HttpError::Refused(RefusedUrl::Private(host)));
        }
        let exchange = async {
            request.reach = self.shared.allowed_reach(&request.url).await?;
            self.shared.http.send_without_redirects(&request, MAX_ANSWER_BYTES).await
        };
        let reply = timeout(REQUEST_TIMEOUT, exchange).await.unwrap_or_else(|_| {
            let seconds = REQUEST_TIMEOUT.as_secs();
            Err(HttpError::Lost(format!("`{host}` did not answer within {seconds} s")))
        })?;
        if reply.is_cut {
            return Err(HttpError::Lost(format!(
                "`{host}` answered more than {MAX_ANSWER_BYTES} bytes"
            )));
        }
        Ok(reply)
    }

    /// Takes the error of rmcp's last request. An error exists if the request was not allowed, had
    /// no answer, or had an answer with a status from 500 to 599.
    pub(super) fn take_error(&self) -> Option<TokenError> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn secret_until(&self) -> Option<u64> {
        Some(self.secret_until.load(Ordering::Relaxed)).filter(|until| *until > 0)
    }

    pub(super) fn set_error(&self, last_error: Option<TokenError>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = last_error;
    }

    async fn execute_request(
        &self,
        request: HttpRequest,
    ) -> Result<HttpResponse, OAuthHttpClientError> {
        let record_refusal = |err: &String| self.set_error(Some(TokenError::Refused(err.clone())));
        let request = self.convert_request(request).inspect_err(record_refusal)?;
        let reply = self.send(request).await;
        let reply =
            reply.inspect_err(|err| self.set_error(Some(TokenError::from_http_error(err))))?;
        let is_server_error = reply.status.is_server_error();
        let down = || format!("`{}` answered {}", reply.host, reply.status);
        self.set_error(is_server_error.then(|| TokenError::Unreachable(down())));
        if let Ok(RegistrationResponse { client_secret_expires_at }) =
            serde_json::from_slice(&reply.body)
        {
            self.secret_until.store(client_secret_expires_at, Ordering::Relaxed);
        }
        Ok(convert_reply(reply)?)
    }

    /// Converts a request of rmcp. rmcp knows the server's URL without its query, so this function
    /// restores it.
    fn convert_request(&self, request: HttpRequest) -> Result<OutgoingRequest, String> {
        let (parts, body) = request.into_parts();
        if self.requests.fetch_add(1, Ordering::Relaxed) >= MAX_REQUESTS {
            let host = host(&self.shared.server);
            return Err(format!("`{host}` leads to more than {MAX_REQUESTS} addresses"));
        }
        let url = parts.uri.to_string().parse::<Url>().map_err(|err| err.to_string())?;
        let is_server = parts.method == Method::GET && url == resource_url(&self.shared.server);
        Ok(OutgoingRequest {
            method: parts.method,
            url: if is_server { self.shared.server.clone() } else { url },
            headers: parts.headers,
            body: Some(body).filter(|body| !body.is_empty()),
            reach: AddressScope::Public,
        })
    }
}

impl SharedState {
    fn is_configured(&self, url: &Url) -> bool {
        let mut configured_urls =
            [Some(&self.server), self.second_server.as_ref()].into_iter().flatten();
        configured_urls.any(|known_url| known_url.origin() == url.origin())
    }

    async fn allowed_reach(&self, url: &Url) -> Result<AddressScope, HttpError> {
        let is_anywhere = self.is_configured(url) || self.is_private().await?;
        Ok(if is_anywhere { AddressScope::Anywhere } else { AddressScope::Public })
    }

    /// Returns whether all addresses of the configured server are private. A public server could
    /// otherwise pass as private by adding one private address.
    async fn is_private(&self) -> Result<bool, HttpError> {
        let resolve_addresses = || async {
            let name = self.server.host_str().unwrap_or_default();
            let name = name.trim_start_matches('[').trim_end_matches(']');
            if let Ok(address) = name.parse::<IpAddr>() {
                return Ok(!is_public(address));
            }
            let found = tokio::net::lookup_host((name, 0)).await;
            let found = found.map_err(|err| {
                HttpError::Unsent(format!("`{}` cannot be found: {err}", host(&self.server)))
            })?;
            Ok(are_private(found.map(|address| address.ip())))
        };
        self.is_private.get_or_try_init(resolve_addresses).await.copied()
    }
}

fn are_private(addresses: impl IntoIterator<Item = IpAddr>) -> bool {
    let mut addresses = addresses.into_iter().peekable();
    addresses.peek().is_some() && addresses.all(|address| !is_public(address))
}

/// Returns the URL that names a server to other servers (RFC 8707). Removes the query, because it
/// may contain a secret.
pub(super) fn resource_url(server: &Url) -> Url {
    let mut url = server.clone();
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Rejects URLs to which Faber sends no secret. Allows `https`, and `http` on this machine.
pub(super) fn check_secure(url: &Url) -> Result<(), InsecureUrl> {
    if url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url)) {
        return Ok(());
    }
    Err(InsecureUrl(url.origin().ascii_serialization()))
}

/// Returns whether a URL names this machine, without a lookup.
pub(super) fn is_loopback(url: &Url) -> bool {
    let name = url.host_str().unwrap_or_default();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    // Names below `localhost` do not count, because a resolver may return any address for them.
    address.map_or_else(|_| name == "localhost", |address| address.is_loopback())
}

impl OAuthHttpClient for AuthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.execute_request(request.request))
    }
}

fn convert_reply(reply: HttpReply) -> Result<HttpResponse, http::Error> {
    let mut response = http::Response::builder().status(reply.status).body(reply.body)?;
    *response.headers_mut() = reply.headers;
    // Removes these headers, because the body is decoded already.
    for name in [header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::TRANSFER_ENCODING] {
        response.headers_mut().remove(name);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    fn request(url: &str) -> OutgoingRequest {
        let url = url.parse().unwrap();
        let headers = HeaderMap::new();
        OutgoingRequest {
            method: Method::GET,
            url,
            headers,
            body: None,
            reach: AddressScope::Anywhere,
        }
    }

    #[test]
    fn secrets_are_sent_by_https_or_to_this_machine_only() {
        for good in [
            "https://example.com/token",
            "https://10.0.0.1/token",
            "http://127.0.0.1:1/",
            "http://[::1]/",
            "http://localhost:3/",
        ] {
            assert_eq!(check_secure(&good.parse().unwrap()), Ok(()), "{good}");
        }
        for bad in [
            "http://example.com/token",
            "http://10.0.0.1/",
            "http://a.localhost/",
            "http://localhost.example.com/",
            "http://127.0.0.1.example.com/",
            "ftp://localhost/",
            "file:///etc/passwd",
        ] {
            assert!(check_secure(&bad.parse().unwrap()).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_public_server_leads_to_no_private_address() {
        let web = AuthHttp::new("https://1.1.1.1/mcp".parse().unwrap());
        for url in ["https://10.0.0.1/token", "https://localhost:1/token", "http://127.0.0.1:1/"] {
            let err = web.send(request(url)).await.unwrap_err();
            assert!(matches!(err, HttpError::Refused(_)), "{url}: {err}");
        }
        for server in ["http://127.0.0.1:9/mcp", "http://localhost:9/mcp", "https://10.0.0.2/mcp"] {
            let private = AuthHttp::new(server.parse().unwrap());
            for url in ["https://10.0.0.1/", "https://sso.internal/"] {
                let reach = private.shared.allowed_reach(&url.parse().unwrap()).await.unwrap();
                assert_eq!(reach, AddressScope::Anywhere, "{server} {url}");
            }
        }
    }

    /// A retry cannot help, because the address stays forbidden.
    #[tokio::test]
    async fn a_forbidden_address_is_a_permanent_error() {
        let web = AuthHttp::new("https://1.1.1.1/mcp".parse().unwrap());
        let ask = async |url: &str| {
            let request = http::Request::get(url).body(Vec::new()).unwrap();
            assert!(web.execute_request(request).await.is_err(), "{url}");
            web.take_error().unwrap()
        };
        for url in ["http://example.com/token", "https://10.0.0.1/token", "https://localhost:1/"] {
            assert!(matches!(ask(url).await, TokenError::Refused(_)), "{url}");
        }
        let closed = AuthHttp::new("https://127.0.0.1:1/mcp".parse().unwrap());
        let request = http::Request::get("https://127.0.0.1:1/token").body(Vec::new()).unwrap();
        assert!(closed.execute_request(request).await.is_err());
        assert!(
            matches!(closed.take_error(), Some(TokenError::Unreachable(_))),
            "the server may be reachable later"
        );
        web.requests.store(MAX_REQUESTS, Ordering::Relaxed);
        let many = ask("https://1.1.1.1/token").await;
        assert_eq!(
            many,
            TokenError::Refused("`1.1.1.1` leads to more than 60 addresses".to_owned())
        );
    }

    #[tokio::test]
    async fn configured_urls_may_be_private() {
        let company = Some("https://10.0.0.1/token".parse().unwrap());
        let web = AuthHttp::with_second_server("https://1.1.1.1/mcp".parse().unwrap(), company);
        let reach =
            async |url: &str| web.shared.allowed_reach(&url.parse().unwrap()).await.unwrap();
        assert_eq!(reach("https://10.0.0.1/other").await, AddressScope::Anywhere);
        assert_eq!(reach("https://1.1.1.1/token").await, AddressScope::Anywhere);
        assert_eq!(reach("https://10.0.0.1:444/token").await, AddressScope::Public);
        assert_eq!(reach("https://10.0.0.2/token").await, AddressScope::Public);
    }

    #[test]
    fn a_host_is_private_only_if_all_its_addresses_are() {
        let is = |all: &[&str]| are_private(all.iter().map(|address| address.parse().unwrap()));
        assert!(is(&["10.0.0.1"]) && is(&["10.0.0.1", "fd00::1"]));
        assert!(!is(&["1.1.1.1", "10.0.0.1"]) && !is(&["10.0.0.1", "1.1.1.1"]) && !is(&[]));
    }

    #[tokio::test]
    async fn an_unresolved_name_is_resolved_again() {
        let web = AuthHttp::new("https://nobody.invalid/mcp".parse().unwrap());
        let err = web.send(request("https://1.1.1.1:1/token")).await.unwrap_err();
        assert!(
            matches!(&err, HttpError::Unsent(reason) if reason.contains("cannot be found")),
            "{err}"
        );
        assert!(web.shared.is_private.get().is_none());
    }
}
