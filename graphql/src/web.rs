//! The web page, embedded from `web/dist`.
//!
//! Each file has compressed copies, so the server compresses nothing here. File names under
//! `/assets/` contain a checksum and never change. A browser revalidates all other files by their
//! tag.

use std::{collections::BTreeMap, sync::OnceLock};

use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use include_dir::{Dir, File, include_dir};
use sha2::{Digest, Sha256};

/// The files that `npm run build` in `web/` writes.
static PAGE_FILES: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../web/dist");

const PAGE_PATHS: [&str; 9] = [
    "/",
    "/new",
    "/requests/{id}",
    "/executions",
    "/executions/{id}",
    "/plans/{id}",
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

/// The cache control of files with a checksum in their name.
const CACHE_FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// The cache control of a path that does not exist. The path can exist in a later version.
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// The cache control of files that can change. The browser must ask the server before each use.
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");

pub fn page_routes() -> Router {
    let router = Router::new()
        .route("/graphiql", get(serve_graphiql))
        .route("/favicon.svg", get(serve_icon))
        .route("/assets/{name}", get(serve_asset));
    PAGE_PATHS.into_iter().fold(router, |router, place| router.route(place, get(serve_page)))
}

/// If a browser requests an unknown path, returns the page with status 404. Redirects a known path
/// with a trailing slash to the path without the slash.
pub fn answer_unknown_path(uri: &Uri, headers: &HeaderMap) -> Option<Response> {
    let path = uri.path();
    let trimmed = path.trim_end_matches('/');
    if trimmed.len() < path.len() && is_page_path(trimmed) {
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let to = HeaderValue::try_from(format!("{trimmed}{query}")).ok()?;
        return Some((StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, to)]).into_response());
    }
    let mut wanted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if !wanted.any(|value| value.contains("text/html")) {
        return None;
    }
    let mut plain = headers.clone();
    plain.remove(header::IF_NONE_MATCH);
    let mut response = add_policy(send_file("index.html", NO_STORE, &plain), CONTENT_POLICY);
    *response.status_mut() = StatusCode::NOT_FOUND;
    Some(response)
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

async fn serve_page(headers: HeaderMap) -> Response {
    add_policy(send_file("index.html", NO_CACHE, &headers), CONTENT_POLICY)
}

async fn serve_graphiql(headers: HeaderMap) -> Response {
    add_policy(send_file("graphiql.html", NO_CACHE, &headers), GRAPHIQL_CONTENT_POLICY)
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
    let Some(kind) = media_type_of(name) else { return not_found_response() };
    let Some((file, encoding)) = choose_encoding(name, headers) else {
        return not_found_response();
    };
    let tag = entity_tag_of(file);
    let mut fields = HeaderMap::from_iter([
        (header::CACHE_CONTROL, lifetime),
        (header::VARY, HeaderValue::from_static("accept-encoding")),
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
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
    (fields, file.contents()).into_response()
}

fn not_found_response() -> Response {
    let text = "the page has changed: reload it";
    (StatusCode::NOT_FOUND, [(header::CACHE_CONTROL, "no-store")], text).into_response()
}

/// Returns the media type of a file, or `None` for a file that is not public.
fn media_type_of(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    match ending {
        "html" => Some("text/html; charset=utf-8"),
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
        let is_it = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(encoding));
        let weight =
            parts.find_map(|text| text.strip_prefix("q=")).and_then(|text| text.parse().ok());
        is_it && weight.unwrap_or(1.0_f32) > 0.0
    })
}

/// Returns the entity tag of a file: a digest of its bytes.
fn entity_tag_of(file: &'static File<'static>) -> Option<HeaderValue> {
    static TAGS: OnceLock<BTreeMap<&'static str, HeaderValue>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = BTreeMap::new();
        collect_tags(&PAGE_FILES, &mut tags);
        tags
    });
    tags.get(file.path().to_str()?).cloned()
}

fn collect_tags(dir: &'static Dir<'static>, tags: &mut BTreeMap<&'static str, HeaderValue>) {
    for file in dir.files() {
        let digest = Sha256::digest(file.contents());
        let tag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest[..12]));
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
