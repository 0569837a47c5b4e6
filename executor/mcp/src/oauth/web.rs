//! The HTTP client for authorization servers.
//!
//! - A configured server or identity provider may have any address.
//! - A server that they name may be in a private network only if the configured server is. rmcp
//!   accepts no private addresses from it, only names.
//! - Secrets are sent over https, or stay on this machine.
//! - Redirects are not followed here.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http_client::{
    Broken, Http, Outgoing, Reach, Reply, host,
    net::{Refused, is_public},
};
use oauth2::{HttpRequest, HttpResponse, http};
use reqwest::{Method, Url, header};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};
use serde::Deserialize;
use tokio::{sync::OnceCell, time::timeout};

use super::denied::Denied;

/// Bytes of an answer.
const MOST: usize = 256 << 10;
/// Default time limit for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests by rmcp for one token. A server can name many others, and each gets a request.
const REQUESTS: usize = 60;

/// Requests metadata and tokens for one server.
#[derive(Debug)]
pub(super) struct Web {
    net: Arc<Net>,
    /// Requests by rmcp so far.
    requests: AtomicUsize,
    /// The error of rmcp's last request. rmcp itself drops it.
    trouble: Mutex<Option<Denied>>,
    /// When the secret of the registered client expires. rmcp itself drops it.
    secret_until: AtomicU64,
}

/// State that all requests for one server share.
#[derive(Debug)]
struct Net {
    http: Http,
    server: Url,
    /// The configured identity provider.
    also: Option<Url>,
    is_private: OnceCell<bool>,
}

/// The expiry of a client's secret in a registration response (RFC 7591, section 3.2.1).
#[derive(Deserialize)]
struct Registered {
    client_secret_expires_at: u64,
}

/// The URL is not secure enough for secrets.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not asked: tokens are only asked for by https, or on this machine")]
pub(super) struct Insecure(String);

impl Web {
    pub(super) fn new(server: Url) -> Self {
        Self::of(Net { http: Http::default(), server, also: None, is_private: OnceCell::new() })
    }

    /// Creates a client with a second configured server.
    pub(super) fn with_also(server: Url, also: Option<Url>) -> Self {
        Self::of(Net { http: Http::default(), server, also, is_private: OnceCell::new() })
    }

    fn of(net: impl Into<Arc<Net>>) -> Self {
        Self {
            net: net.into(),
            requests: AtomicUsize::new(0),
            trouble: Mutex::default(),
            secret_until: AtomicU64::new(0),
        }
    }

    /// Returns a client for the next token, without an error and with a new request count.
    pub(super) fn anew(&self) -> Arc<Self> {
        Arc::new(Self::of(Arc::clone(&self.net)))
    }

    /// Sends a request once.
    pub(super) async fn ask(&self, mut asked: Outgoing) -> Result<Reply, Broken> {
        check(&asked.url).map_err(|err| Broken::Denied(err.to_string()))?;
        let host = host(&asked.url);
        if is_loopback(&asked.url)
            && !is_loopback(&self.net.server)
            && !self.net.is_ours(&asked.url)
        {
            return Err(Broken::Refused(Refused::Private(host)));
        }
        let asking = async {
            asked.reach = self.net.reach(&asked.url).await?;
            self.net.http.once(&asked, MOST).await
        };
        let reply = timeout(PATIENCE, asking).await.unwrap_or_else(|_| {
            let seconds = PATIENCE.as_secs();
            Err(Broken::Lost(format!("`{host}` did not answer within {seconds} s")))
        })?;
        if reply.is_cut {
            return Err(Broken::Lost(format!("`{host}` answered more than {MOST} bytes")));
        }
        Ok(reply)
    }

    /// Takes the error of rmcp's last request. There is one if the request had no answer, or was not
    /// allowed.
    pub(super) fn trouble(&self) -> Option<Denied> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns when the secret of the last registered client expires.
    pub(super) fn secret_until(&self) -> Option<u64> {
        Some(self.secret_until.load(Ordering::Relaxed)).filter(|until| *until > 0)
    }

    /// Records the error of a request, or its success.
    pub(super) fn note(&self, trouble: Option<Denied>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Sends a request of rmcp, and records its error.
    async fn carry_out(&self, request: HttpRequest) -> Result<HttpResponse, OAuthHttpClientError> {
        let never = |err: &String| self.note(Some(Denied::Refused(err.clone())));
        let asked = self.outgoing(request).inspect_err(never)?;
        let reply = self.ask(asked).await;
        let reply = reply.inspect_err(|err| self.note(Some(Denied::unasked(err))))?;
        let is_down = reply.status.is_server_error();
        let down = || format!("`{}` answered {}", reply.host, reply.status);
        self.note(is_down.then(|| Denied::Unreachable(down())));
        if let Ok(Registered { client_secret_expires_at }) = serde_json::from_slice(&reply.body) {
            self.secret_until.store(client_secret_expires_at, Ordering::Relaxed);
        }
        Ok(response(reply)?)
    }

    /// Converts a request of rmcp. rmcp knows the server's URL without its query, so this function
    /// restores it.
    fn outgoing(&self, request: HttpRequest) -> Result<Outgoing, String> {
        let (parts, body) = request.into_parts();
        if self.requests.fetch_add(1, Ordering::Relaxed) >= REQUESTS {
            let host = host(&self.net.server);
            return Err(format!("`{host}` leads to more than {REQUESTS} addresses"));
        }
        let url = parts.uri.to_string().parse::<Url>().map_err(|err| err.to_string())?;
        let is_server = parts.method == Method::GET && url == resource(&self.net.server);
        Ok(Outgoing {
            method: parts.method,
            url: if is_server { self.net.server.clone() } else { url },
            headers: parts.headers,
            body: Some(body).filter(|body| !body.is_empty()),
            reach: Reach::Public,
        })
    }
}

impl Net {
    /// Returns whether the server of a URL is configured.
    fn is_ours(&self, url: &Url) -> bool {
        let mut ours = [Some(&self.server), self.also.as_ref()].into_iter().flatten();
        ours.any(|own| own.origin() == url.origin())
    }

    async fn reach(&self, url: &Url) -> Result<Reach, Broken> {
        let is_anywhere = self.is_ours(url) || self.is_private().await?;
        Ok(if is_anywhere { Reach::Anywhere } else { Reach::Public })
    }

    /// Returns whether the configured server is in a private network. All of its addresses must be
    /// private. Otherwise a public server could claim it by adding one private address.
    async fn is_private(&self) -> Result<bool, Broken> {
        let look = || async {
            let name = self.server.host_str().unwrap_or_default();
            let name = name.trim_start_matches('[').trim_end_matches(']');
            if let Ok(address) = name.parse::<IpAddr>() {
                return Ok(!is_public(address));
            }
            let found = tokio::net::lookup_host((name, 0)).await;
            let found = found.map_err(|err| {
                Broken::Unsent(format!("`{}` cannot be found: {err}", host(&self.server)))
            })?;
            Ok(are_private(found.map(|address| address.ip())))
        };
        self.is_private.get_or_try_init(look).await.copied()
    }
}

fn are_private(addresses: impl IntoIterator<Item = IpAddr>) -> bool {
    let mut addresses = addresses.into_iter().peekable();
    addresses.peek().is_some() && addresses.all(|address| !is_public(address))
}

/// Returns the URL that names a server to others (RFC 8707). Its query may be secret and is removed.
pub(super) fn resource(server: &Url) -> Url {
    let mut url = server.clone();
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// Rejects URLs to which no secret may be sent.
pub(super) fn check(url: &Url) -> Result<(), Insecure> {
    if url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url)) {
        return Ok(());
    }
    Err(Insecure(url.origin().ascii_serialization()))
}

/// Returns whether a URL names this machine, without a lookup.
pub(super) fn is_loopback(url: &Url) -> bool {
    let name = url.host_str().unwrap_or_default();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    // A resolver may return any address for names below `localhost`.
    address.map_or_else(|_| name == "localhost", |address| address.is_loopback())
}

impl OAuthHttpClient for Web {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(self.carry_out(request.request))
    }
}

fn response(reply: Reply) -> Result<HttpResponse, http::Error> {
    let mut response = http::Response::builder().status(reply.status).body(reply.body)?;
    *response.headers_mut() = reply.headers;
    // The body is decoded already.
    for name in [header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::TRANSFER_ENCODING] {
        response.headers_mut().remove(name);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderMap;

    use super::*;

    fn asked(url: &str) -> Outgoing {
        let url = url.parse().unwrap();
        let headers = HeaderMap::new();
        Outgoing { method: Method::GET, url, headers, body: None, reach: Reach::Anywhere }
    }

    #[test]
    fn secrets_travel_by_https_or_stay_here() {
        for good in [
            "https://example.com/token",
            "https://10.0.0.1/token",
            "http://127.0.0.1:1/",
            "http://[::1]/",
            "http://localhost:3/",
        ] {
            assert_eq!(check(&good.parse().unwrap()), Ok(()), "{good}");
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
            assert!(check(&bad.parse().unwrap()).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_public_server_does_not_lead_into_a_private_network() {
        let web = Web::new("https://1.1.1.1/mcp".parse().unwrap());
        for url in ["https://10.0.0.1/token", "https://localhost:1/token", "http://127.0.0.1:1/"] {
            let err = web.ask(asked(url)).await.unwrap_err();
            assert!(matches!(err, Broken::Refused(_)), "{url}: {err}");
        }
        for server in ["http://127.0.0.1:9/mcp", "http://localhost:9/mcp", "https://10.0.0.2/mcp"] {
            let private = Web::new(server.parse().unwrap());
            for url in ["https://10.0.0.1/", "https://sso.internal/"] {
                let reach = private.net.reach(&url.parse().unwrap()).await.unwrap();
                assert_eq!(reach, Reach::Anywhere, "{server} {url}");
            }
        }
    }

    /// What is never asked will not be later either.
    #[tokio::test]
    async fn what_is_never_asked_is_no_trouble_that_passes() {
        let web = Web::new("https://1.1.1.1/mcp".parse().unwrap());
        let ask = async |url: &str| {
            let request = http::Request::get(url).body(Vec::new()).unwrap();
            assert!(web.carry_out(request).await.is_err(), "{url}");
            web.trouble().unwrap()
        };
        for never in ["http://example.com/token", "https://10.0.0.1/token", "https://localhost:1/"]
        {
            assert!(matches!(ask(never).await, Denied::Refused(_)), "{never}");
        }
        let closed = Web::new("https://127.0.0.1:1/mcp".parse().unwrap());
        let request = http::Request::get("https://127.0.0.1:1/token").body(Vec::new()).unwrap();
        assert!(closed.carry_out(request).await.is_err());
        assert!(matches!(closed.trouble(), Some(Denied::Unreachable(_))), "it may be there later");
        web.requests.store(REQUESTS, Ordering::Relaxed);
        let many = ask("https://1.1.1.1/token").await;
        assert_eq!(many, Denied::Refused("`1.1.1.1` leads to more than 60 addresses".to_owned()));
    }

    #[tokio::test]
    async fn what_a_person_wrote_may_be_anywhere() {
        let company = Some("https://10.0.0.1/token".parse().unwrap());
        let web = Web::with_also("https://1.1.1.1/mcp".parse().unwrap(), company);
        let reach = async |url: &str| web.net.reach(&url.parse().unwrap()).await.unwrap();
        assert_eq!(reach("https://10.0.0.1/other").await, Reach::Anywhere);
        assert_eq!(reach("https://1.1.1.1/token").await, Reach::Anywhere);
        assert_eq!(reach("https://10.0.0.1:444/token").await, Reach::Public);
        assert_eq!(reach("https://10.0.0.2/token").await, Reach::Public);
    }

    #[test]
    fn one_private_address_among_others_makes_nobody_private() {
        let is = |all: &[&str]| are_private(all.iter().map(|address| address.parse().unwrap()));
        assert!(is(&["10.0.0.1"]) && is(&["10.0.0.1", "fd00::1"]));
        assert!(!is(&["1.1.1.1", "10.0.0.1"]) && !is(&["10.0.0.1", "1.1.1.1"]) && !is(&[]));
    }

    #[tokio::test]
    async fn a_name_that_is_not_found_is_looked_for_again() {
        let web = Web::new("https://nobody.invalid/mcp".parse().unwrap());
        let err = web.ask(asked("https://1.1.1.1:1/token")).await.unwrap_err();
        assert!(matches!(&err, Broken::Unsent(why) if why.contains("cannot be found")), "{err}");
        assert!(web.net.is_private.get().is_none());
    }
}
