//! The web page, embedded from `web/dist`. [`Pages`] puts the path prefix of the server in front of
//! the relative URLs of the HTML files, because a page such as `/requests/…` has another folder.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use axum::{
    Router,
    body::Bytes,
    extract::Path,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use include_dir::{Dir, File, include_dir};
use sha2::{Digest, Sha256};

use crate::server::PathPrefix;

static PAGE_FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../web/dist");

const PAGE_PATHS: [&str; 17] = [
    "/",
    "/new",
    "/requests",
    "/requests/{id}",
    "/executions",
    "/executions/{id}",
    "/scheduled",
    "/approvals",
    "/compare",
    "/plans/{id}",
    "/saved",
    "/saved/{name}",
    "/nodes",
    "/usage",
    "/tools",
    "/tools/{name}",
    "/toolkit",
];

/// Content security policy of the page. It allows scripts and connections of this server only, and
/// no inline scripts.
const CONTENT_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'",
);
/// Content security policy of GraphiQL, whose libraries insert styles into the page.
const GRAPHIQL_CONTENT_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'",
);

const CACHE_FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// The cache control of a path that does not exist. The path can exist in a later version.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// The cache control of files that can change. The browser must ask the server before each use.
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

#[derive(Clone, Debug)]
pub struct Pages(Arc<HtmlFiles>);

#[derive(Debug)]
struct HtmlFiles {
    prefix: PathPrefix,
    index: HtmlFile,
    graphiql: HtmlFile,
}

#[derive(Debug)]
struct HtmlFile {
    text: Bytes,
    tag: Option<HeaderValue>,
}

impl HtmlFile {
    fn new(name: &str, prefix: &PathPrefix) -> Self {
        let text = PAGE_FILES.get_file(name).and_then(File::contents_utf8).unwrap_or_default();
        let text = text.replace("\"./", &format!("\"{prefix}/"));
        let tag = HeaderValue::try_from(format_tag(text.as_bytes())).ok();
        Self { text: text.into(), tag }
    }

    fn answer(&self, lifetime: HeaderValue, headers: &HeaderMap) -> Response {
        answer_content(
            Content {
                bytes: self.text.clone(),
                media_type: "text/html; charset=utf-8",
                tag: self.tag.clone(),
                encoding: None,
            },
            lifetime,
            headers,
        )
    }
}

impl Pages {
    pub fn new(prefix: &PathPrefix) -> Self {
        Self(Arc::new(HtmlFiles {
            prefix: prefix.clone(),
            index: HtmlFile::new("index.html", prefix),
            graphiql: HtmlFile::new("graphiql.html", prefix),
        }))
    }

    pub fn routes(&self) -> Router {
        let graphiql = self.clone();
        let router = Router::new()
            .route("/graphiql", get(async move |headers| graphiql.serve_graphiql(&headers)))
            .route("/favicon.svg", get(serve_icon))
            .route("/assets/{name}", get(serve_asset));
        PAGE_PATHS.into_iter().fold(router, |router, place| {
            let page = self.clone();
            router.route(place, get(async move |headers| page.serve_page(&headers)))
        })
    }

    /// If a browser requests an unknown path, returns the page with status 404. Redirects a known
    /// path with a trailing slash to the path without the slash.
    pub fn answer_unknown_path(&self, uri: &Uri, headers: &HeaderMap) -> Option<Response> {
        let path = uri.path();
        let trimmed = path.trim_end_matches('/');
        if trimmed.len() < path.len() && is_page_path(trimmed) {
            let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
            let prefix = &self.0.prefix;
            let to = HeaderValue::try_from(format!("{prefix}{trimmed}{query}")).ok()?;
            return Some(
                (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, to)]).into_response(),
            );
        }
        let mut wanted =
            headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        if !wanted.any(|value| value.contains("text/html")) {
            return None;
        }
        let mut plain = headers.clone();
        plain.remove(header::IF_NONE_MATCH);
        let mut response = add_policy(self.0.index.answer(NO_STORE, &plain), CONTENT_POLICY);
        *response.status_mut() = StatusCode::NOT_FOUND;
        Some(response)
    }

    fn serve_page(&self, headers: &HeaderMap) -> Response {
        add_policy(self.0.index.answer(NO_CACHE, headers), CONTENT_POLICY)
    }

    fn serve_graphiql(&self, headers: &HeaderMap) -> Response {
        add_policy(self.0.graphiql.answer(NO_CACHE, headers), GRAPHIQL_CONTENT_POLICY)
    }
}

fn is_page_path(path: &str) -> bool {
    let fits = |(part, is): (&str, &str)| match part.strip_prefix('{') {
        Some(_) => !is.is_empty(),
        None => part == is,
    };
    PAGE_PATHS.into_iter().chain(["/graphiql"]).any(|place| {
        let (parts, path) = (place.split('/'), path.split('/'));
        parts.clone().count() == path.clone().count() && parts.zip(path).all(fits)
    })
}

async fn serve_icon(headers: HeaderMap) -> Response {
    send_file("favicon.svg", NO_CACHE, &headers)
}

async fn serve_asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    send_file(&format!("assets/{name}"), CACHE_FOREVER, &headers)
}

fn add_policy(mut response: Response, policy: HeaderValue) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let same_origin = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-opener-policy", same_origin);
    response
}

fn send_file(name: &str, lifetime: HeaderValue, headers: &HeaderMap) -> Response {
    let Some(media_type) = media_type_of(name) else { return not_found_response() };
    let Some((file, encoding)) = choose_encoding(name, headers) else {
        return not_found_response();
    };
    let (bytes, tag) = (Bytes::from_static(file.contents()), entity_tag_of(file));
    answer_content(Content { bytes, media_type, tag, encoding }, lifetime, headers)
}

struct Content {
    bytes: Bytes,
    media_type: &'static str,
    tag: Option<HeaderValue>,
    encoding: Option<&'static str>,
}

fn answer_content(content: Content, lifetime: HeaderValue, headers: &HeaderMap) -> Response {
    let Content { bytes, media_type, tag, encoding } = content;
    let mut fields = HeaderMap::from_iter([
        (header::CACHE_CONTROL, lifetime),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
    ]);
    if let Some(encoding) = encoding {
        fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    fields.extend(tag.clone().map(|tag| (header::ETAG, tag)));
    let tag_headers = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut known_tags =
        tag_headers.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    if tag.is_some_and(|tag| known_tags.any(|known| known.trim() == tag)) {
        fields.remove(header::CONTENT_TYPE);
        return (StatusCode::NOT_MODIFIED, fields).into_response();
    }
    (fields, bytes).into_response()
}

fn not_found_response() -> Response {
    let text = "the page has changed: reload it";
    (StatusCode::NOT_FOUND, [(header::CACHE_CONTROL, "no-store")], text).into_response()
}

fn media_type_of(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    match ending {
        "js" => Some("text/javascript; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

fn choose_encoding(
    name: &str,
    headers: &HeaderMap,
) -> Option<(&'static File<'static>, Option<&'static str>)> {
    for (encoding, ending) in [("br", ".br"), ("gzip", ".gz")] {
        if let Some(file) = PAGE_FILES
            .get_file(format!("{name}{ending}"))
            .filter(|_| accepts_encoding(headers, encoding))
        {
            return Some((file, Some(encoding)));
        }
    }
    Some((PAGE_FILES.get_file(name)?, None))
}

fn accepts_encoding(headers: &HeaderMap, encoding: &str) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut offers =
        values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    offers.any(|offer| {
        let mut parts = offer.split(';').map(str::trim);
        let is_same_encoding = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(encoding));
        let weight =
            parts.find_map(|text| text.strip_prefix("q=")).and_then(|text| text.parse().ok());
        is_same_encoding && weight.unwrap_or(1.0_f32) > 0.0
    })
}

fn entity_tag_of(file: &'static File<'static>) -> Option<HeaderValue> {
    static TAGS: OnceLock<BTreeMap<&'static str, HeaderValue>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = BTreeMap::new();
        collect_tags(&PAGE_FILES, &mut tags);
        tags
    });
    tags.get(file.path().to_str()?).cloned()
}

fn format_tag(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest[..12]))
}

fn collect_tags(dir: &'static Dir<'static>, tags: &mut BTreeMap<&'static str, HeaderValue>) {
    for file in dir.files() {
        let tag = format_tag(file.contents());
        if let (Some(name), Ok(tag)) = (file.path().to_str(), HeaderValue::try_from(tag)) {
            tags.insert(name, tag);
        }
    }
    for inner in dir.dirs() {
        collect_tags(inner, tags);
    }
}

#[cfg(test)]
mod tests;
