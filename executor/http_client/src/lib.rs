//! HTTP requests to configured servers.
//!
//! A configured address may be private. A public server cannot redirect to a private network. No
//! server can redirect to a link-local address of another host. Only reads follow redirects.

pub mod net;

use std::{error::Error as _, net::IpAddr, sync::Arc, time::Duration};

use reqwest::{
    Client, ClientBuilder, Method, Response, StatusCode, Url,
    header::{self, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use serde::Deserialize;
use tokio::sync::OnceCell;

use self::net::{PublicOnly, Refused, check, check_led, is_link_local, is_public};

const MAX_REDIRECTS: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const USER_AGENT_TEXT: &str = concat!("faber/", env!("CARGO_PKG_VERSION"));
const DEFAULT_ACCEPT: &str = "application/json, text/*;q=0.9, */*;q=0.1";

/// The HTTP client of one source. Its tools share connections.
#[derive(Debug, Default)]
pub struct Http {
    anywhere: OnceCell<Client>,
    near: OnceCell<Client>,
    public: OnceCell<Client>,
}

/// The configured address of a server: HTTP or HTTPS, without credentials.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ServerUrl(pub Url);

impl TryFrom<String> for ServerUrl {
    type Error = String;

    fn try_from(written: String) -> Result<Self, String> {
        let url = written.parse().map_err(|_| {
            format!("`{written}` is not a URL: write one such as `https://example.com/api`")
        })?;
        check(&url, true).map_err(|err| err.to_string())?;
        Ok(Self(url))
    }
}

/// The addresses to which a request may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Any address, because the configuration names it.
    Anywhere,
    /// Any address that is not link-local, because a private server redirected there.
    Near,
    /// Public addresses only, because another party chose the address.
    Public,
}

impl Reach {
    /// Rejects URLs with a forbidden address. Does not resolve names.
    fn check(self, url: &Url) -> Result<(), Refused> {
        check(url, self != Self::Public)?;
        if self == Self::Near { check_led(url) } else { Ok(()) }
    }
}

#[derive(Clone)]
pub struct Outgoing {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<Vec<u8>>,
    pub reach: Reach,
}

#[derive(Clone, Debug)]
pub struct Reply {
    /// The host and port of the server.
    pub host: String,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub is_cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The request was not sent.
    #[error("{0}")]
    Unsent(String),
    /// The request was not sent, because the login server is unavailable.
    #[error("{0}")]
    Later(String),
    /// The request may have been sent. Its outcome is unknown.
    #[error("{0}")]
    Lost(String),
    #[error("{0}")]
    Refused(Refused),
    #[error("{0}")]
    Denied(String),
}

impl Reply {
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Http {
    /// Sends a request, follows redirects of reads, and reads at most `most` bytes of the body.
    pub async fn send(&self, mut asked: Outgoing, most: usize) -> Result<Reply, Broken> {
        for _ in 0..=MAX_REDIRECTS {
            let response = self.hop(&asked).await?;
            match next(&asked, &response)? {
                Some(next) => asked = next,
                None => return read(&asked.url, response, most).await,
            }
        }
        Err(Broken::Unsent(format!(
            "`{}` is behind more than {MAX_REDIRECTS} redirects",
            host(&asked.url)
        )))
    }

    /// Sends a request without following redirects, and reads at most `most` bytes. The body of an
    /// event stream is not read, because it may never end.
    pub async fn once(&self, asked: &Outgoing, most: usize) -> Result<Reply, Broken> {
        let response = self.hop(asked).await?;
        let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
            let (status, headers) = (response.status(), response.headers().clone());
            let host = host(&asked.url);
            return Ok(Reply { host, status, headers, body: Vec::new(), is_cut: false });
        }
        read(&asked.url, response, most).await
    }

    /// Sends a request without following redirects. The caller reads the body.
    pub async fn hop(&self, asked: &Outgoing) -> Result<Response, Broken> {
        asked.reach.check(&asked.url).map_err(Broken::Refused)?;
        let client = self.client(asked.reach).await?;
        let mut request = client.request(asked.method.clone(), asked.url.clone());
        if !asked.headers.contains_key(header::ACCEPT) {
            request = request.header(header::ACCEPT, DEFAULT_ACCEPT);
        }
        request = request.headers(asked.headers.clone());
        if let Some(body) = &asked.body {
            request = request.body(body.clone());
        }
        request.send().await.map_err(|err| broken(&asked.url, &err))
    }

    async fn client(&self, reach: Reach) -> Result<&Client, Broken> {
        let cell = match reach {
            Reach::Anywhere => &self.anywhere,
            Reach::Near => &self.near,
            Reach::Public => &self.public,
        };
        cell.get_or_try_init(|| async { connect(reach) }).await
    }
}

fn connect(reach: Reach) -> Result<Client, Broken> {
    // Fails if the process has a provider already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let built = builder(reach).build().or_else(|err| {
        tracing::warn!(%err, "no certificates were found, so https cannot be used");
        builder(reach).tls_backend_preconfigured(no_roots()).build()
    });
    built.map_err(|err| Broken::Unsent(format!("nothing can be called: {}", told(&err))))
}

fn builder(reach: Reach) -> ClientBuilder {
    Client::builder()
        .user_agent(USER_AGENT_TEXT)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .dns_resolver(Arc::new(PublicOnly {
            allow_private: reach != Reach::Public,
            allow_link_local: reach == Reach::Anywhere,
        }))
}

/// Configures TLS without certificates, for machines that have none. Plain HTTP still works.
fn no_roots() -> rustls::ClientConfig {
    rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

fn next(asked: &Outgoing, response: &Response) -> Result<Option<Outgoing>, Broken> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let only_looks = matches!(asked.method, Method::GET | Method::HEAD);
    let Some(location) = response.headers().get(header::LOCATION) else { return Ok(None) };
    if !is_redirect || !only_looks {
        return Ok(None);
    }
    let location = String::from_utf8_lossy(location.as_bytes());
    let url = asked.url.join(&location);
    let url = url.map_err(|_| Broken::Refused(Refused::no_url(&location)))?;
    let from = response.remote_addr().map(|address| address.ip());
    led(asked, url, from).map(Some).map_err(Broken::Refused)
}

/// Makes the request to a redirect's target. A public server cannot lead into a private network,
/// and no server to a link-local address of another host. Another server gets no headers of the
/// first one except `accept`.
fn led(asked: &Outgoing, url: Url, from: Option<IpAddr>) -> Result<Outgoing, Refused> {
    let stays = || url.host_str() == asked.url.host_str() || from.is_some_and(is_link_local);
    let reach = match asked.reach {
        _ if from.is_none_or(is_public) => Reach::Public,
        Reach::Anywhere if !stays() => Reach::Near,
        reach => reach,
    };
    reach.check(&url)?;
    let headers = if url.origin() == asked.url.origin() {
        asked.headers.clone()
    } else {
        let accept = asked.headers.get(header::ACCEPT).cloned();
        accept.map(|value| (header::ACCEPT, value)).into_iter().collect()
    };
    Ok(Outgoing { url, headers, reach, ..asked.clone() })
}

async fn read(url: &Url, mut response: Response, most: usize) -> Result<Reply, Broken> {
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    let mut is_cut = false;
    // Chunks are decompressed one by one, so no buffer exceeds the limit.
    while let Some(chunk) = response.chunk().await.map_err(|err| lost(url, &err))? {
        let room = most - body.len();
        is_cut = chunk.len() > room;
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if is_cut {
            break;
        }
    }
    Ok(Reply { host: host(url), status, headers, body, is_cut })
}

fn broken(url: &Url, err: &reqwest::Error) -> Broken {
    let mut source = err.source();
    while let Some(cause) = source {
        let own = cause.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        if let Some(refused) = own.and_then(|error| error.downcast_ref::<Refused>()) {
            return Broken::Refused(refused.clone());
        }
        source = cause.source();
    }
    if err.is_connect() || err.is_builder() {
        return Broken::Unsent(format!("`{}` cannot be reached: {}", host(url), told(err)));
    }
    lost(url, err)
}

fn lost(url: &Url, err: &reqwest::Error) -> Broken {
    Broken::Lost(format!("the connection to `{}` broke: {}", host(url), told(err)))
}

/// Returns the host and the port of a URL for messages. The rest of a URL may be secret.
pub fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Returns the innermost cause, which describes the failure best.
fn told(err: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = err;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Parses a header. The error names an invalid header.
pub fn header_of(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = HeaderName::from_bytes(name.as_bytes());
    let name = parsed.map_err(|_| format!("`{name}` cannot be the name of a header"))?;
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        format!("the header `{name}` cannot have a line end or a control character")
    })?;
    // Logs do not show sensitive values.
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PUBLIC: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)));
    const PRIVATE: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));

    fn asked() -> Outgoing {
        let (name, value) = header_of("authorization", "Bearer x").unwrap();
        Outgoing {
            method: Method::GET,
            url: "http://10.0.0.1:80/a".parse().unwrap(),
            headers: [(name, value)].into_iter().collect(),
            body: None,
            reach: Reach::Anywhere,
        }
    }

    #[test]
    fn a_redirect_from_a_public_server_to_a_private_one_is_rejected() {
        let metadata: Url = "http://169.254.169.254/latest".parse().unwrap();
        assert!(matches!(led(&asked(), metadata, PUBLIC), Err(Refused::Private(_))));
        let named: Url = "http://localhost/x".parse().unwrap();
        // The name is checked when it is resolved.
        assert_eq!(led(&asked(), named, PUBLIC).unwrap().reach, Reach::Public);
        assert!(led(&asked(), "file:///etc/passwd".parse().unwrap(), PRIVATE).is_err());
    }

    /// A configured private server must not lead to the metadata service of a cloud.
    #[test]
    fn only_a_link_local_server_redirects_to_link_local_addresses() {
        let reach = |from: &str, to: &str, at: Option<IpAddr>| {
            let asked = Outgoing { url: from.parse().unwrap(), ..asked() };
            led(&asked, to.parse().unwrap(), at).map(|outgoing| outgoing.reach)
        };
        let (near, cloud) = ("http://10.0.0.1/a", "http://169.254.169.254/latest");
        for to in [cloud, "http://[::ffff:169.254.169.254]/", "http://[fe80::1]/"] {
            assert!(matches!(reach(near, to, PRIVATE), Err(Refused::LinkLocal(_))), "{to}");
        }
        assert_eq!(reach(near, "http://10.0.0.2/b", PRIVATE), Ok(Reach::Near));
        assert_eq!(reach(near, "http://10.0.0.1:81/b", PRIVATE), Ok(Reach::Anywhere));
        let led_once = Outgoing { reach: Reach::Near, ..asked() };
        let again = led(&led_once, cloud.parse().unwrap(), PRIVATE);
        assert!(matches!(again, Err(Refused::LinkLocal(_))));
        let own = Some(IpAddr::from([169, 254, 169, 254]));
        assert_eq!(reach(cloud, "http://169.254.169.253/", own), Ok(Reach::Anywhere));
    }

    #[test]
    fn a_redirect_to_another_origin_drops_the_headers() {
        let keeps =
            |url: &str| !led(&asked(), url.parse().unwrap(), PRIVATE).unwrap().headers.is_empty();
        assert!(keeps("http://10.0.0.1/b"));
        for other in ["https://10.0.0.1/b", "http://10.0.0.1:81/b", "http://10.0.0.2/b"] {
            assert!(!keeps(other), "{other}");
        }
    }

    #[tokio::test]
    async fn a_redirect_to_a_name_with_a_private_address_is_rejected() {
        let asked = Outgoing {
            url: "http://localhost:9/x".parse().unwrap(),
            reach: Reach::Public,
            ..asked()
        };
        let err = Http::default().send(asked, 100).await.unwrap_err();
        assert!(matches!(err, Broken::Refused(Refused::Private(_))), "{err}");
    }
}
