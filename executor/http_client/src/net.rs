//! Checks of network addresses, because a model or a page could name an address that only this
//! machine can reach.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

/// Returns `true` for an address of the public internet. Includes IPv4 addresses inside IPv6
/// addresses.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

/// Follows the registry of special-purpose addresses (RFC 6890 and updates).
fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0 | 10 | 127 | 240..=255, ..]
        | [169, 254, ..]
        | [192, 168, ..]
        | [192, 88, 99, _]
        | [192, 0, 0 | 2, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => true,
        [100, b, ..] => b & 0xc0 == 64,
        [172, b, ..] => b & 0xf0 == 16,
        [198, b, ..] => b & 0xfe == 18,
        _ => address.is_multicast(),
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(embedded) = embedded_v4(address) {
        return is_public_v4(embedded);
    }
    match address.segments() {
        // The address is public unless it is a protocol assignment, such as Teredo, or is for
        // documentation.
        [0x2001, b, ..] => b > 0x01ff && b != 0x0db8,
        [0x3fff, b, ..] => b > 0x0fff,
        // All global addresses are in this range.
        [a, ..] => a & 0xe000 == 0x2000,
    }
}

/// Returns `true` for a link-local address. Metadata services of clouds have such addresses and
/// return secrets.
pub fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => match embedded_v4(v6) {
            Some(embedded) => embedded.is_link_local(),
            None => v6.is_unicast_link_local(),
        },
    }
}

/// Returns the IPv4 address inside a mapped, translated (NAT64) or tunnelled (6to4) IPv6 address.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let first = match segments {
        [0, 0, 0, 0, 0, 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => 6,
        [0x2002, ..] => 1,
        _ => return None,
    };
    let [a, b] = segments[first].to_be_bytes();
    let [c, d] = segments[first + 1].to_be_bytes();
    Some(Ipv4Addr::new(a, b, c, d))
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusedUrl {
    #[error("`{0}` is not a URL: write one such as `https://example.com/page`")]
    NotUrl(String),
    #[error("`{0}` is neither `http` nor `https`")]
    Scheme(Url),
    #[error("the URL of `{0}` contains credentials: remove them")]
    Credentials(String),
    #[error(
        "`{0}` is not a public address: private addresses are refused unless the configuration \
         allows them (`allow_private` of web tools, `base_url` of an OpenAPI document)"
    )]
    Private(String),
    #[error(
        "`{0}` is a link-local address, to which other servers may not redirect: to use the \
         address, write it into the configuration"
    )]
    LinkLocal(String),
}

impl RefusedUrl {
    /// Makes the error for a text that is not a URL. Leaves out credentials.
    pub fn not_a_url(text: &str) -> Self {
        let (scheme, rest) = text.split_once("//").unwrap_or(("", text));
        let masked = match rest.rsplit_once('@') {
            Some((_, rest)) => format!("{scheme}//…@{rest}"),
            None => text.to_owned(),
        };
        Self::NotUrl(masked)
    }
}

/// Checks the scheme, the credentials and a literal address of a URL. [`CheckedResolver`] checks
/// names.
pub fn check_url(url: &Url, allow_private: bool) -> Result<(), RefusedUrl> {
    if !matches!(url.scheme(), "http" | "https") {
        let mut url = url.clone();
        // Ignores the errors, because these calls fail only for URLs that cannot have credentials.
        let _ = (url.set_username(""), url.set_password(None));
        return Err(RefusedUrl::Scheme(url));
    }
    let host = url.host_str().unwrap_or_default();
    if !url.username().is_empty() || url.password().is_some() {
        return Err(RefusedUrl::Credentials(host.to_owned()));
    }
    match literal_address(url) {
        Some(address) if !allow_private && !is_public(address) => {
            Err(RefusedUrl::Private(host.to_owned()))
        }
        _ if host.is_empty() => Err(RefusedUrl::not_a_url(url.as_str())),
        _ => Ok(()),
    }
}

/// Rejects redirects to link-local addresses. Checks literal addresses only.
pub fn check_redirect_url(url: &Url) -> Result<(), RefusedUrl> {
    match literal_address(url) {
        Some(address) if is_link_local(address) => {
            Err(RefusedUrl::LinkLocal(url.host_str().unwrap_or_default().to_owned()))
        }
        _ => Ok(()),
    }
}

/// Returns the literal address in a URL. The parser has converted decimal and hexadecimal forms.
fn literal_address(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Resolves names to allowed addresses. The connection uses the checked address.
#[derive(Clone, Copy, Debug)]
pub struct CheckedResolver {
    pub allow_private: bool,
    pub allow_link_local: bool,
}

impl CheckedResolver {
    async fn resolve_addresses(self, name: &str) -> io::Result<Vec<SocketAddr>> {
        let all = tokio::net::lookup_host((name, 0)).await?;
        let mut found: Vec<_> = all.collect();
        let is_known = !found.is_empty();
        found.retain(|address| self.allow_private || is_public(address.ip()));
        let is_private = found.is_empty();
        found.retain(|address| self.allow_link_local || !is_link_local(address.ip()));
        if is_known && found.is_empty() {
            let name = name.to_owned();
            let refused =
                if is_private { RefusedUrl::Private(name) } else { RefusedUrl::LinkLocal(name) };
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, refused));
        }
        Ok(found)
    }
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let resolver = *self;
        Box::pin(async move {
            let found = resolver.resolve_addresses(name.as_str()).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn public_addresses_are_recognised() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:0808:0808::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn private_and_reserved_addresses_are_not_public() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:0001::1",
            "2002:a9fe:a9fe::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn private_addresses_in_urls_are_rejected_in_every_notation() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.0.0.1/",
            "http://0177.0.0.1/",
            "http://0/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]:8080/",
            "https://169.254.169.254/latest/meta-data",
            "http://１２７.0.0.1/",
        ] {
            let url: Url = url.parse().unwrap();
            assert!(matches!(check_url(&url, false), Err(RefusedUrl::Private(_))), "{url}");
            assert_eq!(check_url(&url, true), Ok(()), "{url}");
        }
        for url in ["http://1.1.1.1/", "https://example.com:8443/x?y#z", "http://[2606:4700::1]/"] {
            assert_eq!(check_url(&url.parse().unwrap(), false), Ok(()), "{url}");
        }
    }

    #[test]
    fn link_local_addresses_are_recognised_in_every_notation() {
        for address in [
            "169.254.169.254",
            "169.254.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "fe80::1",
            "febf::1",
        ] {
            assert!(is_link_local(address.parse().unwrap()), "{address}");
        }
        for address in ["169.253.1.1", "10.0.0.1", "127.0.0.1", "::1", "fec0::1", "fd00::1"] {
            assert!(!is_link_local(address.parse().unwrap()), "{address}");
        }
        for url in ["http://169.254.169.254/latest", "http://0xa9fea9fe/", "http://[fe80::1]:80/"] {
            let refused = check_redirect_url(&url.parse().unwrap());
            assert!(matches!(refused, Err(RefusedUrl::LinkLocal(_))), "{url}");
        }
        assert_eq!(check_redirect_url(&"http://10.0.0.1/".parse().unwrap()), Ok(()));
    }

    #[test]
    fn a_rejected_url_is_explained() {
        let error_text =
            |url: &str| check_url(&url.parse().unwrap(), false).unwrap_err().to_string();
        expect!["`ftp://host/` is neither `http` nor `https`"]
            .assert_eq(&error_text("ftp://host/"));
        expect!["the URL of `host` contains credentials: remove them"]
            .assert_eq(&error_text("https://me:secret@host/"));
        expect!["`10.0.0.1` is not a public address: private addresses are refused unless the configuration allows them (`allow_private` of web tools, `base_url` of an OpenAPI document)"]
            .assert_eq(&error_text("http://10.0.0.1/"));
    }

    #[tokio::test]
    async fn names_of_private_addresses_do_not_resolve() {
        let all = CheckedResolver { allow_private: true, allow_link_local: false };
        let found = all.resolve_addresses("localhost").await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()) && !found.is_empty());
        let refused =
            CheckedResolver { allow_private: false, ..all }.resolve_addresses("localhost").await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().starts_with("`localhost` is not a public address"));
    }
}
