//! Which `Host` and `Origin` headers come from somebody who may talk to this server.
//!
//! A server on this machine can be reached by every web page that the user opens: directly, and by
//! names that an attacker points at 127.0.0.1 (DNS rebinding). Both show in the headers that
//! browsers set and pages cannot change.

use std::{
    net::{IpAddr, Ipv6Addr},
    str::FromStr,
};

use axum::http::uri::Authority;

/// A host or an origin that may talk to the server: `name`, `name:port` or `scheme://name[:port]`.
///
/// A bare name means every port of it, as host and as origin; an origin with its scheme means
/// exactly that origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHost {
    scheme: Option<String>,
    place: Place,
}

/// An entry that names no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no host; write `name`, `name:port` or `https://name`")]
pub struct InvalidAllowedHost(String);

impl FromStr for AllowedHost {
    type Err = InvalidAllowedHost;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidAllowedHost(text.to_owned());
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
            None => (None, text),
        };
        let place = Place::parse(rest.strip_suffix('/').unwrap_or(rest)).ok_or_else(invalid)?;
        Ok(Self { scheme, place })
    }
}

impl AllowedHost {
    fn covers_host(&self, host: &Place) -> bool {
        self.place.name == host.name
            && (self.scheme.is_some() || self.place.port.is_none() || self.place.port == host.port)
    }

    fn covers_origin(&self, origin: &Origin) -> bool {
        match &self.scheme {
            Some(scheme) => *scheme == origin.scheme && self.place == origin.place,
            None => self.covers_host(&origin.place),
        }
    }
}

/// A host name or address, in one spelling, and a port if one was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    name: Name,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Address(IpAddr),
    /// In lower case, without the dot that may end it.
    Domain(String),
}

impl Place {
    /// Reads the `Host` header, or the part of an origin that follows the scheme.
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
            Some(address) => Name::Address(address.parse::<Ipv6Addr>().ok()?.to_canonical()),
            None => match host.parse::<IpAddr>() {
                Ok(address) => Name::Address(address),
                Err(_) => domain(host)?,
            },
        };
        Some(Self { name, port })
    }

    /// Whether this is the machine itself, by a name that no name server answers for.
    fn is_loopback(&self) -> bool {
        match &self.name {
            Name::Address(address) => address.is_loopback(),
            Name::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        }
    }
}

fn domain(host: &str) -> Option<Name> {
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    (!name.is_empty()).then_some(Name::Domain(name))
}

/// Where a web page comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    scheme: String,
    place: Place,
}

impl Origin {
    /// Reads the `Origin` header; `None` for `null` and whatever else is no place.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        Some(Self { scheme: scheme.to_ascii_lowercase(), place: Place::parse(rest)? })
    }

    fn is_web(&self) -> bool {
        matches!(self.scheme.as_str(), "http" | "https")
    }
}

/// Who may talk to the server.
#[derive(Debug, Clone)]
pub(super) struct HostPolicy {
    listen: IpAddr,
    allowed: Vec<AllowedHost>,
}

impl HostPolicy {
    pub(super) fn new(listen: IpAddr, allowed: Vec<AllowedHost>) -> Self {
        Self { listen: listen.to_canonical(), allowed }
    }

    /// Whether the server answers to `host`.
    ///
    /// A server that listens everywhere answers to any address: rebinding needs a name.
    pub(super) fn accepts_host(&self, host: &Place) -> bool {
        let address = match host.name {
            Name::Address(address) => self.listen.is_unspecified() || address == self.listen,
            Name::Domain(_) => false,
        };
        address || host.is_loopback() || self.allowed.iter().any(|entry| entry.covers_host(host))
    }

    /// Whether a page from `origin` may talk to the server as `host`.
    pub(super) fn accepts_origin(&self, origin: &Origin, host: &Place) -> bool {
        let known = origin.place == *host
            || origin.place.is_loopback()
            || origin.place.name == Name::Address(self.listen);
        (known && origin.is_web()) || self.allowed.iter().any(|entry| entry.covers_origin(origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(listen: &str) -> HostPolicy {
        let allowed = ["faber.example", "proxy.example:8443", "https://app.example"];
        HostPolicy::new(
            listen.parse().unwrap(),
            allowed.iter().map(|entry| entry.parse().unwrap()).collect(),
        )
    }

    #[track_caller]
    fn host(listen: &str, host: &str) -> bool {
        Place::parse(host).is_some_and(|host| policy(listen).accepts_host(&host))
    }

    #[track_caller]
    fn origin(listen: &str, host: &str, origin: &str) -> bool {
        let host = Place::parse(host).unwrap();
        Origin::parse(origin).is_some_and(|origin| policy(listen).accepts_origin(&origin, &host))
    }

    #[test]
    fn own_names_are_hosts() {
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
            "app.example",
        ] {
            assert!(host("127.0.0.1", name), "{name}");
        }
        assert!(host("192.168.1.5", "192.168.1.5:4000"));
        assert!(host("0.0.0.0", "192.168.1.5:4000"));
        assert!(host("::", "192.168.1.5:4000"));
    }

    #[test]
    fn foreign_names_are_not() {
        for name in [
            "evil.example",
            "localhost.evil.example",
            "evillocalhost",
            "127.0.0.1.evil.example",
            "192.168.1.5",
            "proxy.example",
            "proxy.example:1",
            "user@localhost",
            "",
            "localhost:",
            "localhost:99999",
            "0x7f.1",
            "[::2]",
            "a b",
        ] {
            assert!(!host("127.0.0.1", name), "{name}");
        }
        assert!(!host("0.0.0.0", "evil.example"), "rebinding");
    }

    #[test]
    fn own_pages_are_origins() {
        let here = "127.0.0.1:4000";
        for page in [
            "http://127.0.0.1:4000",
            "http://localhost:3000",
            "https://faber.example",
            "http://faber.example:81",
            "https://app.example",
            "http://[::1]",
        ] {
            assert!(origin("127.0.0.1", here, page), "{page}");
        }
        assert!(origin("0.0.0.0", "192.168.1.5:4000", "http://192.168.1.5:4000"), "same origin");
    }

    #[test]
    fn foreign_pages_are_not() {
        for page in [
            "null",
            "http://evil.example",
            "http://app.example",
            "https://app.example:444",
            "file://",
            "moz-extension://localhost",
            "http://localhost.evil.example",
            "",
        ] {
            assert!(!origin("127.0.0.1", "127.0.0.1:4000", page), "{page}");
        }
        assert!(!origin("0.0.0.0", "192.168.1.5:4000", "http://6.6.6.6"), "another address");
        assert!(!origin("0.0.0.0", "192.168.1.5:4000", "http://192.168.1.5:80"), "another port");
    }

    #[test]
    fn an_entry_without_a_host_says_so() {
        assert_eq!(
            "https://".parse::<AllowedHost>().unwrap_err().to_string(),
            "`https://` names no host; write `name`, `name:port` or `https://name`"
        );
    }
}
