use axum::http::{HeaderMap, header};

/// A cookie with a sealed text. Scripts of the page cannot read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookie {
    Login,
    Session,
}

impl Cookie {
    /// Returns the name. Browsers accept the beginning `__Host-` only from this host over HTTPS, so
    /// a subdomain cannot replace the cookie. It needs the path `/`, so below a path prefix the
    /// name begins with `__Secure-`. Without HTTPS, the name has no such beginning.
    fn name(self, base_url: &str) -> String {
        let name = match self {
            Self::Login => "faber_login",
            Self::Session => "faber_session",
        };
        match (is_secure(base_url), base_path(base_url)) {
            (false, _) => name.to_owned(),
            (true, "/") => format!("__Host-{name}"),
            (true, _) => format!("__Secure-{name}"),
        }
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
            base_path(base_url),
        )
    }

    pub(super) fn format_removal(self, base_url: &str) -> String {
        self.format("", 0, base_url)
    }
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
                "__Secure-faber_session=x; Max-Age=9; Path=/faber; HttpOnly; SameSite=Lax; Secure",
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
}
