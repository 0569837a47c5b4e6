use std::fmt::Write as _;

use axum::http::{HeaderMap, header};

/// A cookie with a sealed text. Scripts of the page cannot read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookie {
    Login,
    Session,
}

impl Cookie {
    /// Returns the name. Over HTTPS it begins with `__Host-`, so that another subdomain cannot add
    /// a cookie of this name, and ends with the path prefix, because servers with other prefixes
    /// can have the same host.
    fn name(self, base_url: &str) -> String {
        let name = match self {
            Self::Login => "faber_login",
            Self::Session => "faber_session",
        };
        if !is_secure(base_url) {
            return name.to_owned();
        }
        format!("__Host-{name}{}", encode_path(base_path(base_url).trim_end_matches('/')))
    }

    fn path(base_url: &str) -> &str {
        if is_secure(base_url) { "/" } else { base_path(base_url) }
    }

    pub(super) fn read_from<'a>(self, headers: &'a HeaderMap, base_url: &str) -> Option<&'a str> {
        let name = self.name(base_url);
        let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = values.flat_map(|value| value.split(';'));
        let mut found = pairs.filter_map(|pair| pair.trim().split_once('='));
        found.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Returns the value of a `Set-Cookie` header. A session is sent with links from other sites,
    /// but not with their other requests.
    pub(super) fn format(self, value: &str, max_age: i64, base_url: &str) -> String {
        let secure = if is_secure(base_url) { "; Secure" } else { "" };
        format!(
            "{}={value}; Max-Age={max_age}; Path={}; HttpOnly; SameSite=Lax{secure}",
            self.name(base_url),
            Self::path(base_url),
        )
    }

    pub(super) fn format_removal(self, base_url: &str) -> String {
        self.format("", 0, base_url)
    }
}

/// Encodes a path for the name of a cookie. Different paths get different texts.
fn encode_path(path: &str) -> String {
    path.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() {
            text.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(text, "_{byte:02x}");
        }
        text
    })
}

fn is_secure(base_url: &str) -> bool {
    base_url.starts_with("https://")
}

pub(super) fn base_path(base_url: &str) -> &str {
    let rest = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
    rest.find('/').map_or("/", |start| &rest[start..])
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_cookie_is_secure_unless_the_server_uses_plain_http() {
        for (base_url, expected) in [
            ("http://127.0.0.1:4000", "faber_session=x; Max-Age=9; Path=/; HttpOnly; SameSite=Lax"),
            (
                "https://faber.example",
                "__Host-faber_session=x; Max-Age=9; Path=/; HttpOnly; SameSite=Lax; Secure",
            ),
            (
                "https://a.example/faber",
                "__Host-faber_session_2ffaber=x; Max-Age=9; Path=/; HttpOnly; SameSite=Lax; Secure",
            ),
            (
                "http://127.0.0.1:4000/faber",
                "faber_session=x; Max-Age=9; Path=/faber; HttpOnly; SameSite=Lax",
            ),
        ] {
            assert_eq!(Cookie::Session.format("x", 9, base_url), expected);
        }
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let value = HeaderValue::from_static("other=1; xfaber_session=2; faber_session=a.b=; x");
        let headers = HeaderMap::from_iter([(header::COOKIE, value)]);
        let read = |cookie: Cookie, url| cookie.read_from(&headers, url);
        assert_eq!(read(Cookie::Session, "http://localhost"), Some("a.b="));
        assert_eq!(read(Cookie::Session, "https://faber.example"), None);
        assert_eq!(read(Cookie::Login, "http://localhost"), None);
    }

    /// A sibling subdomain can set a cookie for the whole domain and a longer path, which browsers
    /// send first. It cannot set a name that begins with `__Host-`.
    #[test]
    fn cookies_of_other_hosts_and_prefixes_are_ignored() {
        let value = HeaderValue::from_static(
            "__Secure-faber_session=theirs; __Host-faber_session=root; \
             __Host-faber_session_2fa_2fb=other; __Host-faber_session_2fa_2db=own",
        );
        let headers = HeaderMap::from_iter([(header::COOKIE, value)]);
        let read = |url| Cookie::Session.read_from(&headers, url);
        assert_eq!(read("https://faber.example"), Some("root"));
        assert_eq!(read("https://faber.example/a-b"), Some("own"));
        assert_eq!(read("https://faber.example/a/b"), Some("other"));
        assert_eq!(read("https://faber.example/faber"), None);
    }
}
