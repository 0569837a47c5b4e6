//! How everything is asked that grants tokens.
//!
//! The configured server may be anywhere, as a person wrote it. What it names may be private only
//! if it is so itself. Secrets travel encrypted, or do not leave this machine. Redirects are not
//! followed, other than by whoever asks.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use oauth2::{HttpResponse, http};
use reqwest::{Url, header};
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRequest};
use tokio::{sync::OnceCell, time::timeout};

use crate::{
    net::is_public,
    tool::http::client::{Broken, Http, Outgoing, Reach, Reply, host},
};

/// Bytes of an answer: metadata and tokens have fewer.
const MOST: usize = 256 << 10;
/// How long an answer may take, where nobody says.
const PATIENCE: Duration = Duration::from_secs(30);

/// What asks for metadata and tokens, for one server.
#[derive(Debug)]
pub(super) struct Web {
    http: Http,
    server: Url,
    is_private: OnceCell<bool>,
    /// Why the last request of rmcp's came to nothing, of which rmcp does not tell.
    trouble: Mutex<Option<String>>,
}

/// Why nothing is asked there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not asked: tokens are only asked for by https, or on this machine")]
pub(super) struct Insecure(String);

impl Web {
    pub(super) fn new(server: Url) -> Self {
        Self {
            http: Http::default(),
            server,
            is_private: OnceCell::new(),
            trouble: Mutex::default(),
        }
    }

    /// Asks once.
    pub(super) async fn ask(&self, mut asked: Outgoing) -> Result<Reply, Broken> {
        check(&asked.url).map_err(|err| Broken::Unsent(err.to_string()))?;
        asked.reach = self.reach(&asked.url).await;
        let asking = timeout(PATIENCE, self.http.once(&asked, MOST));
        let reply = asking.await.unwrap_or_else(|_| {
            let (host, seconds) = (host(&asked.url), PATIENCE.as_secs());
            Err(Broken::Lost(format!("`{host}` did not answer within {seconds} s")))
        })?;
        if reply.is_cut {
            let host = &reply.host;
            return Err(Broken::Lost(format!("`{host}` answered more than {MOST} bytes")));
        }
        Ok(reply)
    }

    /// Returns why the last request of rmcp's came to nothing, if it did for want of an answer.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    async fn reach(&self, url: &Url) -> Reach {
        if url.origin() == self.server.origin() || self.is_private().await {
            Reach::Anywhere
        } else {
            Reach::Public
        }
    }

    /// Returns whether the configured server is in a private network.
    async fn is_private(&self) -> bool {
        let look = || async {
            let name = self.server.host_str().unwrap_or_default();
            let name = name.trim_start_matches('[').trim_end_matches(']');
            if let Ok(address) = name.parse::<IpAddr>() {
                return !is_public(address);
            }
            let found = tokio::net::lookup_host((name, 0)).await;
            found.is_ok_and(|mut all| all.any(|it| !is_public(it.ip())))
        };
        *self.is_private.get_or_init(look).await
    }
}

/// Says whether secrets may be sent to an address.
pub(super) fn check(url: &Url) -> Result<(), Insecure> {
    if url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url)) {
        return Ok(());
    }
    Err(Insecure(url.origin().ascii_serialization()))
}

/// Returns whether an address is on this machine by its very form.
pub(super) fn is_loopback(url: &Url) -> bool {
    let name = url.host_str().unwrap_or_default();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address
        .map_or_else(|_| name == "localhost" || name.ends_with(".localhost"), |it| it.is_loopback())
}

impl OAuthHttpClient for Web {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let (parts, body) = request.request.into_parts();
            let asked = Outgoing {
                method: parts.method,
                url: parts.uri.to_string().parse()?,
                headers: parts.headers,
                body: Some(body).filter(|it| !it.is_empty()),
                reach: Reach::Public,
            };
            let reply =
                self.ask(asked).await.inspect_err(|err| self.note(Some(err.to_string())))?;
            let is_down = reply.status.is_server_error();
            let down = || format!("`{}` answered {}", reply.host, reply.status);
            self.note(is_down.then(down));
            Ok(response(reply)?)
        })
    }
}

fn response(reply: Reply) -> Result<HttpResponse, http::Error> {
    let mut response = http::Response::builder().status(reply.status).body(reply.body)?;
    *response.headers_mut() = reply.headers;
    // What was packed has been unpacked.
    for name in [header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::TRANSFER_ENCODING] {
        response.headers_mut().remove(name);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use reqwest::{Method, header::HeaderMap};

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
            "http://a.localhost/",
        ] {
            assert_eq!(check(&good.parse().unwrap()), Ok(()), "{good}");
        }
        for bad in [
            "http://example.com/token",
            "http://10.0.0.1/",
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
        let private = Web::new("http://127.0.0.1:9/mcp".parse().unwrap());
        assert_eq!(private.reach(&"https://10.0.0.1/".parse().unwrap()).await, Reach::Anywhere);
        let named = Web::new("http://localhost:9/mcp".parse().unwrap());
        assert_eq!(named.reach(&"http://localhost:8/".parse().unwrap()).await, Reach::Anywhere);
    }
}
