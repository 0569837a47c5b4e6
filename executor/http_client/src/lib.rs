//! HTTP requests to configured servers, and the rules to which addresses they may go.

pub mod net;

use std::{error::Error as _, net::IpAddr, sync::Arc, time::Duration};

use reqwest::{
    Client, ClientBuilder, Method, Response, StatusCode, Url,
    header::{self, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use serde::Deserialize;
use tokio::sync::OnceCell;

use self::net::{
    CheckedResolver, RefusedUrl, check_redirect_url, check_url, is_link_local, is_public,
};

const MAX_REDIRECTS: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const USER_AGENT_TEXT: &str = concat!("faber/", env!("CARGO_PKG_VERSION"));
const DEFAULT_ACCEPT: &str = "application/json, text/*;q=0.9, */*;q=0.1";

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

    fn try_from(text: String) -> Result<Self, String> {
        let url = text.parse().map_err(|_| {
            format!("`{text}` is not a URL: write one such as `https://example.com/api`")
        })?;
        check_url(&url, true).map_err(|err| err.to_string())?;
        Ok(Self(url))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressScope {
    /// Any address, because the configuration names it.
    Anywhere,
    /// Any address that is not link-local, because a private server redirected to it.
    Near,
    /// Public addresses only, because another party chose the address.
    Public,
}

impl AddressScope {
    /// Rejects URLs with a forbidden address. Does not resolve names.
    fn check_url(self, url: &Url) -> Result<(), RefusedUrl> {
        check_url(url, self != Self::Public)?;
        if self == Self::Near { check_redirect_url(url) } else { Ok(()) }
    }
}

#[derive(Clone)]
pub struct OutgoingRequest {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Option<Vec<u8>>,
    pub reach: AddressScope,
}

#[derive(Clone, Debug)]
pub struct HttpReply {
    pub host: String,
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    pub is_cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("{0}")]
    Unsent(String),
    /// The request was not sent, because no token could be obtained. Another attempt may succeed.
    #[error("{0}")]
    Later(String),
    #[error("{0}")]
    Lost(String),
    /// The URL, or the target of a redirect, must not be requested.
    #[error("{0}")]
    Refused(RefusedUrl),
    /// The request was not sent: there is no usable token, or its URL must not get one. Another
    /// attempt would fail, too.
    #[error("{0}")]
    Denied(String),
}

impl HttpReply {
    pub fn header(&self, name: HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Http {
    /// Sends a request, follows redirects of reads, and reads at most `max_bytes` bytes of the
    /// body.
    pub async fn send(
        &self,
        mut request: OutgoingRequest,
        max_bytes: usize,
    ) -> Result<HttpReply, HttpError> {
        for _ in 0..=MAX_REDIRECTS {
            let response = self.open_response(&request).await?;
            match next_request(&request, &response)? {
                Some(next) => request = next,
                None => return read_body(&request.url, response, max_bytes).await,
            }
        }
        Err(HttpError::Unsent(format!(
            "`{}` leads to more than {MAX_REDIRECTS} redirects",
            host(&request.url)
        )))
    }

    /// Sends a request without following redirects, and reads at most `max_bytes` bytes. The body
    /// of an event stream is not read, because it may never end.
    pub async fn send_without_redirects(
        &self,
        request: &OutgoingRequest,
        max_bytes: usize,
    ) -> Result<HttpReply, HttpError> {
        let response = self.open_response(request).await?;
        let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
            let (status, headers) = (response.status(), response.headers().clone());
            let host = host(&request.url);
            return Ok(HttpReply { host, status, headers, body: Vec::new(), is_cut: false });
        }
        read_body(&request.url, response, max_bytes).await
    }

    /// Sends a request without following redirects. The caller reads the body.
    pub async fn open_response(&self, request: &OutgoingRequest) -> Result<Response, HttpError> {
        request.reach.check_url(&request.url).map_err(HttpError::Refused)?;
        let client = self.client_for(request.reach).await?;
        let mut builder = client.request(request.method.clone(), request.url.clone());
        if !request.headers.contains_key(header::ACCEPT) {
            builder = builder.header(header::ACCEPT, DEFAULT_ACCEPT);
        }
        builder = builder.headers(request.headers.clone());
        if let Some(body) = &request.body {
            builder = builder.body(body.clone());
        }
        builder.send().await.map_err(|err| send_error(&request.url, &err))
    }

    async fn client_for(&self, reach: AddressScope) -> Result<&Client, HttpError> {
        let cell = match reach {
            AddressScope::Anywhere => &self.anywhere,
            AddressScope::Near => &self.near,
            AddressScope::Public => &self.public,
        };
        cell.get_or_try_init(|| async { build_client(reach) }).await
    }
}

fn build_client(reach: AddressScope) -> Result<Client, HttpError> {
    // Ignores the error, because the process may have a provider already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let built = client_builder(reach).build().or_else(|err| {
        tracing::warn!(%err, "no certificates were found, so https cannot be used");
        client_builder(reach).tls_backend_preconfigured(tls_without_certificates()).build()
    });
    built.map_err(|err| {
        HttpError::Unsent(format!("the HTTP client cannot be created: {}", describe_error(&err)))
    })
}

fn client_builder(reach: AddressScope) -> ClientBuilder {
    Client::builder()
        .user_agent(USER_AGENT_TEXT)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_TIMEOUT)
        .dns_resolver(Arc::new(CheckedResolver {
            allow_private: reach != AddressScope::Public,
            allow_link_local: reach == AddressScope::Anywhere,
        }))
}

/// Configures TLS without certificates, for machines that have none. Plain HTTP still works.
fn tls_without_certificates() -> rustls::ClientConfig {
    rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth()
}

fn next_request(
    request: &OutgoingRequest,
    response: &Response,
) -> Result<Option<OutgoingRequest>, HttpError> {
    let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    let Some(location) = response.headers().get(header::LOCATION) else { return Ok(None) };
    if !is_redirect || !is_read {
        return Ok(None);
    }
    let location = String::from_utf8_lossy(location.as_bytes());
    let url = request.url.join(&location);
    let url = url.map_err(|_| HttpError::Refused(RefusedUrl::not_a_url(&location)))?;
    let from = response.remote_addr().map(|address| address.ip());
    follow_redirect(request, url, from).map(Some).map_err(HttpError::Refused)
}

/// Makes the request to a redirect's target. Another server gets no headers of the first server
/// except `accept`.
fn follow_redirect(
    request: &OutgoingRequest,
    url: Url,
    from: Option<IpAddr>,
) -> Result<OutgoingRequest, RefusedUrl> {
    let is_same_host =
        || url.host_str() == request.url.host_str() || from.is_some_and(is_link_local);
    let reach = match request.reach {
        _ if from.is_none_or(is_public) => AddressScope::Public,
        AddressScope::Anywhere if !is_same_host() => AddressScope::Near,
        reach => reach,
    };
    reach.check_url(&url)?;
    let headers = if url.origin() == request.url.origin() {
        request.headers.clone()
    } else {
        let accept = request.headers.get(header::ACCEPT).cloned();
        accept.map(|value| (header::ACCEPT, value)).into_iter().collect()
    };
    Ok(OutgoingRequest { url, headers, reach, ..request.clone() })
}

async fn read_body(
    url: &Url,
    mut response: Response,
    max_bytes: usize,
) -> Result<HttpReply, HttpError> {
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = Vec::new();
    let mut is_cut = false;
    // Chunks are decompressed one by one, so no buffer exceeds the limit.
    while let Some(chunk) = response.chunk().await.map_err(|err| lost_error(url, &err))? {
        let room = max_bytes - body.len();
        is_cut = chunk.len() > room;
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if is_cut {
            break;
        }
    }
    Ok(HttpReply { host: host(url), status, headers, body, is_cut })
}

fn send_error(url: &Url, err: &reqwest::Error) -> HttpError {
    let mut source = err.source();
    while let Some(cause) = source {
        let inner_error = cause.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        if let Some(refused) = inner_error.and_then(|error| error.downcast_ref::<RefusedUrl>()) {
            return HttpError::Refused(refused.clone());
        }
        source = cause.source();
    }
    if err.is_connect() || err.is_builder() {
        return HttpError::Unsent(format!(
            "`{}` cannot be reached: {}",
            host(url),
            describe_error(err)
        ));
    }
    lost_error(url, err)
}

fn lost_error(url: &Url, err: &reqwest::Error) -> HttpError {
    HttpError::Lost(format!("the connection to `{}` broke: {}", host(url), describe_error(err)))
}

/// Returns the host and the port of a URL for messages. The rest of a URL may be secret.
pub fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Returns the innermost cause, which describes the failure best.
fn describe_error(err: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = err;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}

/// Parses a header. The error names an invalid header.
pub fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let parsed = HeaderName::from_bytes(name.as_bytes());
    let name = parsed.map_err(|_| format!("`{name}` cannot be the name of a header"))?;
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        format!("the header `{name}` cannot have a line end or a control character")
    })?;
    // Marks the value as sensitive, so that logs do not show it.
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PUBLIC: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)));
    const PRIVATE: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));

    fn request() -> OutgoingRequest {
        let (name, value) = parse_header("authorization", "Bearer x").unwrap();
        OutgoingRequest {
            method: Method::GET,
            url: "http://10.0.0.1:80/a".parse().unwrap(),
            headers: [(name, value)].into_iter().collect(),
            body: None,
            reach: AddressScope::Anywhere,
        }
    }

    #[test]
    fn a_redirect_from_a_public_server_to_a_private_one_is_rejected() {
        let metadata: Url = "http://169.254.169.254/latest".parse().unwrap();
        assert!(matches!(
            follow_redirect(&request(), metadata, PUBLIC),
            Err(RefusedUrl::Private(_))
        ));
        let named: Url = "http://localhost/x".parse().unwrap();
        // A redirect to a name is accepted, because the resolver rejects private addresses later.
        assert_eq!(follow_redirect(&request(), named, PUBLIC).unwrap().reach, AddressScope::Public);
        assert!(
            follow_redirect(&request(), "file:///etc/passwd".parse().unwrap(), PRIVATE).is_err()
        );
    }

    /// A configured private server must not lead to the metadata service of a cloud.
    #[test]
    fn only_a_link_local_server_redirects_to_link_local_addresses() {
        let reach = |from: &str, to: &str, address: Option<IpAddr>| {
            let request = OutgoingRequest { url: from.parse().unwrap(), ..request() };
            follow_redirect(&request, to.parse().unwrap(), address).map(|outgoing| outgoing.reach)
        };
        let (near, cloud) = ("http://10.0.0.1/a", "http://169.254.169.254/latest");
        for to in [cloud, "http://[::ffff:169.254.169.254]/", "http://[fe80::1]/"] {
            assert!(matches!(reach(near, to, PRIVATE), Err(RefusedUrl::LinkLocal(_))), "{to}");
        }
        assert_eq!(reach(near, "http://10.0.0.2/b", PRIVATE), Ok(AddressScope::Near));
        assert_eq!(reach(near, "http://10.0.0.1:81/b", PRIVATE), Ok(AddressScope::Anywhere));
        let redirected_once = OutgoingRequest { reach: AddressScope::Near, ..request() };
        let again = follow_redirect(&redirected_once, cloud.parse().unwrap(), PRIVATE);
        assert!(matches!(again, Err(RefusedUrl::LinkLocal(_))));
        let own_address = Some(IpAddr::from([169, 254, 169, 254]));
        assert_eq!(
            reach(cloud, "http://169.254.169.253/", own_address),
            Ok(AddressScope::Anywhere)
        );
    }

    #[test]
    fn a_redirect_to_another_origin_drops_the_headers() {
        let keeps = |url: &str| {
            !follow_redirect(&request(), url.parse().unwrap(), PRIVATE).unwrap().headers.is_empty()
        };
        assert!(keeps("http://10.0.0.1/b"));
        for other in ["https://10.0.0.1/b", "http://10.0.0.1:81/b", "http://10.0.0.2/b"] {
            assert!(!keeps(other), "{other}");
        }
    }

    #[tokio::test]
    async fn a_redirect_to_a_name_with_a_private_address_is_rejected() {
        let request = OutgoingRequest {
            url: "http://localhost:9/x".parse().unwrap(),
            reach: AddressScope::Public,
            ..request()
        };
        let err = Http::default().send(request, 100).await.unwrap_err();
        assert!(matches!(err, HttpError::Refused(RefusedUrl::Private(_))), "{err}");
    }
}
