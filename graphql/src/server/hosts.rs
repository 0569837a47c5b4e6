//! Checks the `Host` and `Origin` headers, because every web page that a user opens can send
//! requests to a server on this machine.

use std::{
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use axum::{
    extract::Request,
    http::{header, uri::Authority},
};

use super::refusal::Refusal;

/// A name under which clients reach this server, such as the name of a proxy: `name` or
/// `name:port`. A name without a port allows all ports of the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost(HostAndPort);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a host: write `name` or `name:port`, without `https://`")]
pub struct InvalidAllowedHost(String);

impl FromStr for AllowedHost {
    type Err = InvalidAllowedHost;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let host = HostAndPort::parse(text).filter(|host| !host.has_wildcard());
        host.map(Self).ok_or_else(|| InvalidAllowedHost(text.to_owned()))
    }
}

impl AllowedHost {
    fn covers(&self, host: &HostAndPort) -> bool {
        self.0.name == host.name && (self.0.port.is_none() || self.0.port == host.port)
    }
}

/// An origin whose pages may use this server: `scheme://name` or `scheme://name:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedOrigin(Origin);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an origin: write `https://name` or `https://name:port`, without a path")]
pub struct InvalidAllowedOrigin(String);

impl FromStr for AllowedOrigin {
    type Err = InvalidAllowedOrigin;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let origin = Origin::parse(text.strip_suffix('/').unwrap_or(text));
        let origin =
            origin.filter(|origin| !origin.scheme.is_empty() && !origin.host.has_wildcard());
        origin.map(Self).ok_or_else(|| InvalidAllowedOrigin(text.to_owned()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostAndPort {
    name: HostName,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostName {
    Address(IpAddr),
    Domain(String),
}

impl HostAndPort {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let authority: Authority = text.parse().ok().filter(|_| !text.contains('@'))?;
        let host = authority.host();
        let rest = authority.as_str().strip_prefix(host)?;
        let port = match rest.strip_prefix(':') {
            Some(port) => Some(port.parse().ok()?),
            None if rest.is_empty() => None,
            None => return None,
        };
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let name = match bracketed {
            Some(address) => HostName::Address(address.parse::<Ipv6Addr>().ok()?.to_canonical()),
            None => match host.parse::<IpAddr>() {
                Ok(address) => HostName::Address(address),
                Err(_) => parse_domain(host)?,
            },
        };
        Some(Self { name, port })
    }

    fn has_wildcard(&self) -> bool {
        matches!(&self.name, HostName::Domain(name) if name.contains('*'))
    }

    pub(super) fn is_loopback(&self) -> bool {
        match &self.name {
            HostName::Address(address) => address.is_loopback(),
            HostName::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        }
    }
}

fn parse_domain(host: &str) -> Option<HostName> {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    (!name.is_empty()).then_some(HostName::Domain(name))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    scheme: String,
    host: HostAndPort,
}

impl Origin {
    /// Parses the `Origin` header. Returns `None` for `null` and other invalid values. Removes the
    /// default port of the scheme, as browsers do.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (scheme, mut host) = (scheme.to_ascii_lowercase(), HostAndPort::parse(rest)?);
        let default_port = match scheme.as_str() {
            "http" => Some(80),
            "https" => Some(443),
            _ => None,
        };
        if host.port == default_port {
            host.port = None;
        }
        Some(Self { scheme, host })
    }

    fn is_web(&self) -> bool {
        matches!(self.scheme.as_str(), "http" | "https")
    }
}

#[derive(Debug, Clone)]
pub(super) struct HostPolicy {
    listen_address: IpAddr,
    allowed_hosts: Vec<AllowedHost>,
    allowed_origins: Vec<AllowedOrigin>,
}

impl HostPolicy {
    pub(super) fn new(
        listen_address: IpAddr,
        allowed_hosts: Vec<AllowedHost>,
        allowed_origins: Vec<AllowedOrigin>,
    ) -> Self {
        Self { listen_address: listen_address.to_canonical(), allowed_hosts, allowed_origins }
    }

    /// Returns whether the server accepts requests whose `Host` header is `host`. A server that
    /// listens on all addresses accepts every IP address, because DNS rebinding needs a name.
    pub(super) fn accepts_host(&self, host: &HostAndPort) -> bool {
        let address = match host.name {
            HostName::Address(address) => {
                self.listen_address.is_unspecified() || address == self.listen_address
            }
            HostName::Domain(_) => false,
        };
        address || host.is_loopback() || self.allowed_hosts.iter().any(|entry| entry.covers(host))
    }

    /// Returns whether a page from `origin` is allowed to send requests to this server under the
    /// name `host`.
    pub(super) fn accepts_origin(&self, origin: &Origin, host: &HostAndPort) -> bool {
        let is_known_host = origin.host == *host
            || origin.host.is_loopback()
            || origin.host.name == HostName::Address(self.listen_address)
            || self.allowed_hosts.iter().any(|entry| entry.covers(&origin.host));
        (is_known_host && origin.is_web())
            || self.allowed_origins.iter().any(|entry| entry.0 == *origin)
    }
}

pub(super) fn requested_host(request: &Request) -> Result<&str, Refusal> {
    if let Some(authority) = request.uri().authority() {
        return Ok(authority.as_str());
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => Ok(host.to_str().unwrap_or_default()),
        _ => Err(Refusal::malformed_request("exactly one `Host` header is needed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen_policy(listen: &str) -> HostPolicy {
        let hosts = ["faber.example", "proxy.example:8443"];
        let origins = ["https://app.example", "https://other.example:443", "app://desktop"];
        HostPolicy::new(
            listen.parse().unwrap(),
            hosts.iter().map(|entry| entry.parse().unwrap()).collect(),
            origins.iter().map(|entry| entry.parse().unwrap()).collect(),
        )
    }

    #[track_caller]
    fn accepts_host(listen: &str, host: &str) -> bool {
        HostAndPort::parse(host).is_some_and(|host| listen_policy(listen).accepts_host(&host))
    }

    #[track_caller]
    fn accepts_origin(listen: &str, host: &str, origin: &str) -> bool {
        let host = HostAndPort::parse(host).unwrap();
        Origin::parse(origin)
            .is_some_and(|origin| listen_policy(listen).accepts_origin(&origin, &host))
    }

    #[test]
    fn the_servers_own_names_are_accepted() {
        for name in [
            "localhost",
            "LOCALHOST:4000",
            "localhost.",
            "faber.localhost:1",
            "127.0.0.1:4000",
            "127.9.9.9",
            "[::1]:4000",
            "[::ffff:127.0.0.1]",
            "faber.example",
            "faber.example:99",
            "proxy.example:8443",
        ] {
            assert!(accepts_host("127.0.0.1", name), "{name}");
        }
        assert!(accepts_host("192.168.1.5", "192.168.1.5:4000"));
        assert!(accepts_host("0.0.0.0", "192.168.1.5:4000"));
        assert!(accepts_host("::", "192.168.1.5:4000"));
    }

    #[test]
    fn foreign_host_names_are_rejected() {
        for name in [
            "evil.example",
            "localhost.evil.example",
            "evillocalhost",
            "127.0.0.1.evil.example",
            "192.168.1.5",
            "proxy.example",
            "proxy.example:1",
            "app.example",
            "user@localhost",
            "",
            "localhost:",
            "localhost:99999",
            "0x7f.1",
            "[::2]",
            "a b",
        ] {
            assert!(!accepts_host("127.0.0.1", name), "{name}");
        }
        assert!(!accepts_host("0.0.0.0", "evil.example"), "rebinding");
    }

    #[test]
    fn the_servers_own_origins_are_accepted() {
        let here = "127.0.0.1:4000";
        for page in [
            "http://127.0.0.1:4000",
            "http://localhost:3000",
            "https://faber.example",
            "http://faber.example:81",
            "https://proxy.example:8443",
            "https://app.example",
            "https://other.example",
            "app://desktop",
            "http://[::1]",
        ] {
            assert!(accepts_origin("127.0.0.1", here, page), "{page}");
        }
        assert!(
            accepts_origin("0.0.0.0", "192.168.1.5:4000", "http://192.168.1.5:4000"),
            "same origin"
        );
    }

    #[test]
    fn foreign_origins_are_rejected() {
        for page in [
            "null",
            "http://evil.example",
            "http://app.example",
            "https://app.example:444",
            "https://proxy.example",
            "ftp://faber.example",
            "file://",
            "moz-extension://localhost",
            "http://localhost.evil.example",
            "",
        ] {
            assert!(!accepts_origin("127.0.0.1", "127.0.0.1:4000", page), "{page}");
        }
        assert!(
            !accepts_origin("0.0.0.0", "192.168.1.5:4000", "http://6.6.6.6"),
            "another address"
        );
        assert!(
            !accepts_origin("0.0.0.0", "192.168.1.5:4000", "http://192.168.1.5:80"),
            "another port"
        );
    }

    #[test]
    fn a_wrong_entry_is_an_error() {
        for wrong in ["https://faber.example", "", "a/b", "user@a", "*.example", "*"] {
            assert_eq!(
                wrong.parse::<AllowedHost>().unwrap_err().to_string(),
                format!("`{wrong}` is not a host: write `name` or `name:port`, without `https://`")
            );
        }
        for wrong in ["faber.example", "https://", "://a", "https://a/b", "https://*.example"] {
            assert_eq!(
                wrong.parse::<AllowedOrigin>().unwrap_err().to_string(),
                format!(
                    "`{wrong}` is not an origin: write `https://name` or `https://name:port`, \
                     without a path"
                )
            );
        }
    }
}
