use super::*;

fn request_headers(fields: &[(header::HeaderName, &'static str)]) -> HeaderMap {
    fields.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
}

fn response_header(response: &Response, name: header::HeaderName) -> Option<&str> {
    response.headers().get(name).and_then(|value| value.to_str().ok())
}

fn pages_below(prefix: &str) -> Pages {
    Pages::new(&prefix.parse().unwrap())
}

fn quoted_parts(file: &HtmlFile) -> Vec<String> {
    let text = String::from_utf8(file.text.to_vec()).unwrap();
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn assets_in(file: &HtmlFile) -> Vec<String> {
    let parts = quoted_parts(file);
    parts.iter().filter_map(|part| Some(part.strip_prefix("/assets/")?.to_owned())).collect()
}

fn page_assets() -> Vec<String> {
    assets_in(&pages_below("").0.index)
}

#[tokio::test]
async fn the_page_and_its_files_are_served() {
    let pages = pages_below("");
    let response = pages.serve_page(&HeaderMap::new());
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response_header(&response, header::CACHE_CONTROL), Some("no-cache"));
    let policy = response_header(&response, header::CONTENT_SECURITY_POLICY).unwrap();
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(page_assets().len() >= 2, "a script and a style");
    for name in page_assets().into_iter().chain(assets_in(&pages.0.graphiql)) {
        let response = serve_asset(Path(name.clone()), HeaderMap::new()).await;
        assert_eq!(response.status(), StatusCode::OK, "{name}");
        assert!(response_header(&response, header::CACHE_CONTROL).unwrap().contains("immutable"));
    }
}

#[test]
fn a_prefix_is_in_front_of_every_url_of_a_page() {
    let pages = pages_below("/a/faber");
    for file in [&pages.0.index, &pages.0.graphiql] {
        let parts = quoted_parts(file);
        let urls: Vec<_> = parts.iter().filter(|part| part.contains('/')).collect();
        let urls: Vec<_> = urls.into_iter().filter(|part| !part.starts_with("image/")).collect();
        assert!(urls.len() >= 4, "{parts:?}");
        for url in urls {
            let is_page = ["/a/faber/", "/a/faber/favicon.svg"].contains(&url.as_str());
            assert!(url.starts_with("/a/faber/assets/") || is_page, "{url}");
        }
    }
    let root = pages_below("");
    assert_ne!(root.0.index.tag, pages.0.index.tag, "the prefix changes the tag");
    let uri = Uri::from_static("/tools/?view=selection");
    let response = pages.answer_unknown_path(&uri, &HeaderMap::new()).unwrap();
    assert_eq!(response_header(&response, header::LOCATION), Some("/a/faber/tools?view=selection"));
}

#[test]
fn no_prefix_can_begin_like_a_path_of_the_page() {
    for path in PAGE_PATHS.iter().filter(|path| **path != "/") {
        let first = path.split('/').nth(1).unwrap();
        assert!(crate::server::OWN_SEGMENTS.contains(&first), "{first}");
    }
}

#[test]
fn pages_contain_nothing_their_policies_forbid() {
    for page in ["index.html", "graphiql.html"] {
        let text = PAGE_FILES.get_file(page).and_then(File::contents_utf8).unwrap();
        for forbidden in ["<style", "style=", "onload=", "<script>", "https://"] {
            assert!(!text.contains(forbidden), "{page}: {forbidden}");
        }
    }
}

#[tokio::test]
async fn files_are_compressed_if_the_client_accepts_it() {
    let name = page_assets().into_iter().find(|asset| asset.contains(".js")).unwrap();
    for (accepted, encoding) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip, deflate", Some("gzip")),
        ("br;q=0, gzip;q=0.5", Some("gzip")),
        ("BR", Some("br")),
        ("br; q=0,gzip ;q=0", None),
        ("identity", None),
    ] {
        let headers = request_headers(&[(header::ACCEPT_ENCODING, accepted)]);
        let response = serve_asset(Path(name.clone()), headers).await;
        assert_eq!(response_header(&response, header::CONTENT_ENCODING), encoding, "{accepted}");
        assert_eq!(response_header(&response, header::VARY), Some("accept-encoding"));
        let kind = response_header(&response, header::CONTENT_TYPE);
        assert_eq!(kind, Some("text/javascript; charset=utf-8"));
    }
}

#[tokio::test]
async fn a_known_entity_tag_is_answered_with_not_modified() {
    let name = page_assets().into_iter().find(|asset| asset.contains(".js")).unwrap();
    let file = async |headers| serve_asset(Path(name.clone()), headers).await;
    let response = file(HeaderMap::new()).await;
    let tag = response.headers()[header::ETAG].clone();
    let mut headers = HeaderMap::from_iter([(header::IF_NONE_MATCH, tag)]);
    assert_eq!(file(headers.clone()).await.status(), StatusCode::NOT_MODIFIED);
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("br"));
    assert_eq!(file(headers).await.status(), StatusCode::OK, "another form has another tag");
}

#[tokio::test]
async fn unknown_files_are_not_found() {
    for name in ["../index.html", "..", "", "no.js", "../../Cargo.toml", "index.html"] {
        let response = serve_asset(Path(name.to_owned()), HeaderMap::new()).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{name}");
    }
}

#[test]
fn an_unknown_path_serves_the_page_to_browsers_only() {
    let browser = request_headers(&[(header::ACCEPT, "text/html,application/xhtml+xml,*/*;q=0.8")]);
    for path in ["/foo", "/requests/x/y", "//evil.example/"] {
        let response =
            pages_below("").answer_unknown_path(&path.parse().unwrap(), &browser).unwrap();
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
        assert_eq!(
            response_header(&response, header::CONTENT_TYPE),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(response_header(&response, header::CACHE_CONTROL), Some("no-store"));
        assert!(response_header(&response, header::CONTENT_SECURITY_POLICY).is_some());
    }
    let program = request_headers(&[(header::ACCEPT, "application/json")]);
    for headers in [program, HeaderMap::new()] {
        let pages = pages_below("");
        assert!(pages.answer_unknown_path(&Uri::from_static("/foo"), &headers).is_none());
    }
}

#[test]
fn a_trailing_slash_serves_the_same_page() {
    for (path, to) in [
        ("/executions/", Some("/executions")),
        ("/tools/?view=selection", Some("/tools?view=selection")),
        ("/executions/exec_1_aaaaaaaaa//", Some("/executions/exec_1_aaaaaaaaa")),
        ("/graphiql/", Some("/graphiql")),
        ("/requests/", Some("/requests")),
        ("/nothing/", None),
        ("//evil.example/", None),
        ("//", None),
    ] {
        let response =
            pages_below("").answer_unknown_path(&path.parse().unwrap(), &HeaderMap::new());
        let location =
            response.as_ref().and_then(|response| response_header(response, header::LOCATION));
        assert_eq!(location, to, "{path}");
    }
}
