//! The protection of sessions against other sites (CSRF). A browser adds the cookie also to
//! requests that another site causes, so a request with a session must show that a page of this
//! server sent it.

use axum::http::{HeaderMap, Method, header};

use super::super::{hosts::Origin, refusal::Refusal};

/// The page sends this header. Another site cannot, because the server does not allow the header
/// for other origins.
const PAGE_HEADER: &str = "x-faber-page";

/// Rejects a request with a session unless a page of this server sent it. A request that only reads
/// needs no proof, unless its headers name another site.
pub(super) fn check_own_page(
    method: &Method,
    headers: &HeaderMap,
    base_url: &str,
) -> Result<(), Refusal> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let refuse = |reason: &str| {
        Err(Refusal::forbidden(format!(
            "{reason}: with a session, only the page of this server may send requests; other \
             programs send a token"
        )))
    };
    let origin = text(header::ORIGIN.as_str());
    if origin.is_some_and(|page| !is_own_origin(page, base_url)) {
        return refuse("the request comes from another origin");
    }
    let is_socket = headers.contains_key(header::UPGRADE);
    let is_stream =
        text(header::ACCEPT.as_str()).is_some_and(|kinds| kinds.contains("text/event-stream"));
    let only_reads = matches!(*method, Method::GET | Method::HEAD) && !is_socket && !is_stream;
    let site = text("sec-fetch-site");
    match site {
        Some("same-origin") => {}
        // The user has typed the address or has opened a bookmark.
        Some("none") if only_reads => {}
        Some(_) => return refuse("the request comes from another site"),
        None if origin.is_none() && !only_reads => {
            return refuse("the request has neither `Origin` nor `Sec-Fetch-Site`");
        }
        None => {}
    }
    if !only_reads && !is_socket && !headers.contains_key(PAGE_HEADER) {
        return refuse("the request has no header `X-Faber-Page`");
    }
    Ok(())
}

fn is_own_origin(page: &str, base_url: &str) -> bool {
    let Some((scheme, rest)) = base_url.split_once("://") else { return false };
    let host = rest.split('/').next().unwrap_or_default();
    let own = Origin::parse(&format!("{scheme}://{host}"));
    own.is_some() && Origin::parse(page) == own
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const BASE_URL: &str = "https://faber.example/prefix";

    fn is_accepted(method: &Method, headers: &[(&'static str, &'static str)]) -> bool {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        check_own_page(method, &headers.collect(), BASE_URL).is_ok()
    }

    #[test]
    fn only_the_own_page_uses_a_session() {
        let own = ("origin", "https://faber.example");
        let page = (PAGE_HEADER, "1");
        let same = ("sec-fetch-site", "same-origin");
        let stream = ("accept", "text/event-stream");
        let socket = ("upgrade", "websocket");
        for (method, headers, expected) in [
            (Method::POST, vec![own, page], true),
            (Method::POST, vec![same, page], true),
            (Method::POST, vec![own, same, page], true),
            (Method::POST, vec![own], false),
            (Method::POST, vec![page], false),
            (Method::POST, vec![("origin", "https://evil.example"), page], false),
            (Method::POST, vec![("origin", "http://faber.example"), page], false),
            (Method::POST, vec![("origin", "https://faber.example:8443"), page], false),
            (Method::POST, vec![("origin", "null"), page], false),
            (Method::POST, vec![own, ("sec-fetch-site", "same-site"), page], false),
            (Method::POST, vec![("sec-fetch-site", "none"), page], false),
            (Method::DELETE, vec![own], false),
            (Method::GET, vec![], true),
            (Method::GET, vec![("sec-fetch-site", "none")], true),
            (Method::GET, vec![("sec-fetch-site", "cross-site")], false),
            (Method::GET, vec![stream], false),
            (Method::GET, vec![stream, same], false),
            (Method::GET, vec![stream, same, page], true),
            (Method::GET, vec![socket], false),
            (Method::GET, vec![socket, own], true),
            (Method::GET, vec![socket, ("origin", "http://127.0.0.1:3000")], false),
        ] {
            assert_eq!(is_accepted(&method, &headers), expected, "{method} {headers:?}");
        }
    }
}
