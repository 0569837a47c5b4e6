use std::{process::Command, time::Instant};

use axum::{
    Router,
    extract::{Path, RawQuery},
    http::{StatusCode, header},
    response::{IntoResponse, Redirect},
    routing::get,
};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use shared::tool::ErrorCode;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use toolbox::{ToolLookup, ToolSet, Toolbox};

use super::*;

struct WebTools {
    toolbox: Toolbox,
    base: String,
    _server: JoinSet<()>,
}

impl WebTools {
    async fn new() -> Self {
        Self::with_config(|_| ()).await
    }

    async fn with_config(change: impl FnOnce(&mut WebConfig)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, services()).await.unwrap() });
        let mut config = WebConfig {
            allow_private: true,
            duckduckgo: format!("{base}/ddg/"),
            docs: format!("{base}/ddg"),
            github: format!("{base}/github"),
            stack_overflow: format!("{base}/so/2.3"),
            wikipedia: format!("{base}/wiki/"),
            ..WebConfig::default()
        };
        change(&mut config);
        let set = ToolSet::ready(SET.parse().unwrap(), "builtin", "", tools(&config).unwrap());
        Self { toolbox: Toolbox::new([set]), base, _server: server }
    }

    /// Tools with the default configuration, which cannot reach the server.
    async fn with_default_config() -> Self {
        Self::with_config(|config| {
            let usual = WebConfig::default();
            *config = usual;
        })
        .await
    }

    async fn call(&self, name: &str, parameters: Value) -> Result<String, ToolError> {
        self.call_in(name, parameters, ToolContext::detached()).await
    }

    async fn call_in(
        &self,
        name: &str,
        parameters: Value,
        cx: ToolContext,
    ) -> Result<String, ToolError> {
        let ToolLookup::Tool(tool) = self.toolbox.find(&name.parse().unwrap()) else {
            panic!("{name}")
        };
        let value = tool.tool().call(Arc::new(parameters), cx).await?;
        Ok(value.as_str().unwrap().to_owned())
    }

    async fn check(&self, name: &str, parameters: Value, expected: Expect) {
        let text = match self.call(name, parameters).await {
            Ok(text) => text,
            Err(err) => format!("{err} (retryable: {})", err.retryable),
        };
        expected.assert_eq(&text.replace(&self.base, "BASE"));
    }

    async fn fetch(&self, path: &str) -> Result<String, ToolError> {
        self.call("fetch_url", json!({ "url": format!("{}{path}", self.base) })).await
    }
}

fn services() -> Router {
    let html = |text: &'static str| ([(header::CONTENT_TYPE, "text/html")], text);
    Router::new()
        .route("/page", get(move || async move {
            html("<title>A page</title><nav>menu</nav><h1>Hello</h1><p>World &amp; <a href=/x>more</a>")
        }))
        .route("/latin", get(|| async {
            ([(header::CONTENT_TYPE, "text/html; charset=iso-8859-1")], b"<p>caf\xe9".to_vec())
        }))
        .route("/image", get(|| async { ([(header::CONTENT_TYPE, "image/png")], vec![0_u8; 9]) }))
        .route("/long", get(|| async { "line\n".repeat(1 << 20) }))
        .route("/gone", get(|| async { (StatusCode::GONE, "no more") }))
        .route("/busy", get(|| async { (StatusCode::TOO_MANY_REQUESTS, "later") }))
        .route("/slow", get(std::future::pending::<()>))
        .route("/bomb", get(gzip_bomb))
        .route("/hops/{n}", get(|Path(n): Path<u32>| async move {
            let next = if n == 0 { "/page".to_owned() } else { format!("/hops/{}", n - 1) };
            Redirect::temporary(&next)
        }))
        .route("/to", get(|RawQuery(to): RawQuery| async move {
            (StatusCode::FOUND, [(header::LOCATION, to.unwrap())])
        }))
        .route("/ddg/", get(ddg))
        .route("/github/search/repositories", get(github))
        .route("/so/2.3/search/advanced", get(stack_overflow))
        .route("/wiki/w/api.php", get(wiki))
}

/// 64 MB of zeros, compressed to about 64 kB.
async fn gzip_bomb() -> impl IntoResponse {
    let packed = Command::new("sh").args(["-c", "head -c 67108864 /dev/zero | gzip -9"]).output();
    let headers = [(header::CONTENT_TYPE, "text/plain"), (header::CONTENT_ENCODING, "gzip")];
    (headers, packed.unwrap().stdout)
}

async fn ddg(RawQuery(query): RawQuery) -> impl IntoResponse {
    let query = query.unwrap();
    let text = match query.as_str() {
        "q=nothing" => "<div id=links class=results><div class='result results_links \
                        result--no-result'><div class=no-results>No results.</div></div></div>"
            .to_owned(),
        "q=adverts" => "<a class=result__a href=/y.js?ad_domain=x>Buy</a>".to_owned(),
        "q=blocked" => "<h1>blocked</h1>".to_owned(),
        "q=json" => "{}".to_owned(),
        "q=robot" => "<div class=anomaly-modal>prove it</div>".to_owned(),
        _ => format!(
            "<a class=result__a href=//d.example/l/?uddg=https%3A%2F%2Fa.example%2F>First</a>\
             <a class=result__snippet>You asked {query}</a>\
             <a class=result__a href=https://b.example/>Second</a>"
        ),
    };
    ([(header::CONTENT_TYPE, "text/html")], text)
}

async fn github(RawQuery(query): RawQuery) -> impl IntoResponse {
    if query.unwrap().starts_with("q=nothing") {
        return axum::Json(json!({ "total_count": 0, "items": [] }));
    }
    axum::Json(json!({ "items": [
        { "full_name": "a/b", "html_url": "https://github.com/a/b", "description": "Does\nthings",
          "stargazers_count": 12, "language": "Rust", "private": false },
        { "full_name": "c/d", "html_url": "https://github.com/c/d", "description": null,
          "stargazers_count": 3, "language": null },
    ] }))
}

async fn stack_overflow(RawQuery(query): RawQuery) -> impl IntoResponse {
    axum::Json(json!({ "items": [{
        "title": "Why &lt;T&gt; &amp; &#39;a?", "link": "https://stackoverflow.com/q/1",
        "score": -1, "is_answered": true, "answer_count": 2, "view_count": 345,
        "tags": [query],
    }], "has_more": false }))
}

async fn wiki(RawQuery(query): RawQuery) -> impl IntoResponse {
    let query = query.unwrap();
    let page =
        json!({ "title": "Rust", "extract": "Rust is a language.", "fullurl": "https://w/Rust" });
    axum::Json(if query.contains("titles=Rust") || query.contains("gsrsearch=rusty") {
        json!({ "query": { "pages": [page] } })
    } else if query.contains("titles=") {
        json!({ "query": { "pages": [{ "title": "x", "missing": true }] } })
    } else {
        json!({ "batchcomplete": true })
    })
}

#[tokio::test]
async fn web_tools_have_their_documented_names_and_parameters() {
    let web_tools = WebTools::new().await;
    let shape: Vec<_> = web_tools.toolbox.sets()[0]
        .tools
        .iter()
        .map(|tool| {
            let schema = &tool.definition().input_schema;
            let names: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
            assert_eq!(tool.definition().effect, Effect::Read);
            format!("{} {names:?} {}", tool.definition().name, schema["required"])
        })
        .collect();
    expect![[r#"
        docs_search ["library", "query"] ["library","query"]
        fetch_url ["url", "extract_text"] ["url"]
        github_search ["query", "max_results"] ["query"]
        stack_overflow_search ["query", "max_results"] ["query"]
        web_search ["query", "max_results"] ["query"]
        wiki_lookup ["topic"] ["topic"]"#]]
    .assert_eq(&shape.join("\n"));
}

#[tokio::test]
async fn fetch_url_returns_the_text_of_a_page() {
    let web_tools = WebTools::new().await;
    let url = |path: &str| json!({ "url": format!("{}{path}", web_tools.base) });
    web_tools
        .check(
            "fetch_url",
            url("/page"),
            expect![[r"
        A page
        BASE/page

        # Hello

        World & [more](BASE/x)"]],
        )
        .await;
    let raw = json!({ "url": format!("{}/page", web_tools.base), "extract_text": false });
    web_tools.check("fetch_url", raw, expect!["<title>A page</title><nav>menu</nav><h1>Hello</h1><p>World &amp; <a href=/x>more</a>"]).await;
    web_tools
        .check(
            "fetch_url",
            url("/latin"),
            expect![[r"
        No title
        BASE/latin

        café"]],
        )
        .await;
    web_tools
        .check(
            "fetch_url",
            url("/hops/4"),
            expect![[r"
        A page
        BASE/page

        # Hello

        World & [more](BASE/x)"]],
        )
        .await;
}

#[tokio::test]
async fn fetch_url_explains_why_a_page_cannot_be_read() {
    let web_tools = WebTools::new().await;
    let url = |path: &str| json!({ "url": format!("{}{path}", web_tools.base) });
    web_tools
        .check(
            "fetch_url",
            url("/image"),
            expect![
                "tool.failed: `BASE/image` is not text: its type is image/png (retryable: false)"
            ],
        )
        .await;
    web_tools
        .check(
            "fetch_url",
            url("/gone"),
            expect!["tool.failed: `127.0.0.1` answered 410 Gone: no more (retryable: false)"],
        )
        .await;
    web_tools.check("fetch_url", url("/busy"), expect!["tool.unavailable: `127.0.0.1` answered 429 Too Many Requests: later (retryable: true)"]).await;
    web_tools
        .check(
            "fetch_url",
            url("/hops/5"),
            expect!["tool.failed: `BASE/page` leads to more than 5 redirects (retryable: false)"],
        )
        .await;
    web_tools.check("fetch_url", url("/to?file:///etc/passwd"), expect!["tool.failed: Refused: `file:///etc/passwd` is neither `http` nor `https` (retryable: false)"]).await;
    web_tools.check("fetch_url", json!({ "url": "file:///etc/passwd" }), expect!["tool.failed: Refused: `file:///etc/passwd` is neither `http` nor `https` (retryable: false)"]).await;
    web_tools.check("fetch_url", json!({ "url": "example" }), expect!["tool.failed: Refused: `example` is not a URL: write one such as `https://example.com/page` (retryable: false)"]).await;
    web_tools
        .check(
            "fetch_url",
            json!({ "url": "http://a:b@1.1.1.1" }),
            expect![
                "tool.failed: Refused: the URL of `1.1.1.1` contains credentials: remove them \
                 (retryable: false)"
            ],
        )
        .await;
    web_tools.check("fetch_url", json!({ "url": "http://127.0.0.1:1/" }), expect!["tool.unavailable: `127.0.0.1` cannot be reached: Connection refused (os error 111) (retryable: true)"]).await;
}

#[tokio::test]
async fn private_addresses_are_rejected_in_every_notation() {
    let web_tools = WebTools::with_default_config().await;
    let port = web_tools.base.rsplit(':').next().unwrap();
    for host in [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "0.0.0.0",
        "0",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "127.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "169.254.169.254",
        "10.0.0.1",
        "[fe80::1]",
        "[fd00::1]",
    ] {
        let url = json!({ "url": format!("http://{host}:{port}/page") });
        let err = web_tools.call("fetch_url", url).await.unwrap_err();
        assert!(err.message.contains("is not a public address"), "{host}: {err}");
        assert!(!err.retryable, "{host}");
    }
}

/// A name with a pinned address stands for a public server, because the tests cannot connect to a
/// public server.
#[tokio::test]
async fn redirects_to_private_addresses_are_rejected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, services()).await.unwrap() });
    let web = WebClient::new(false, Duration::from_secs(10), 1 << 20);
    web.pin_address("public.example", address);
    for target in [
        "http://127.0.0.1/",
        "http://[::ffff:127.0.0.1]/",
        "http://169.254.169.254/",
        "http://0.0.0.0/",
        "http://2130706433/",
        "http://0x7f.1/",
        "//localhost/",
        "http://[::1]/",
    ] {
        let url = format!("http://public.example:{}/to?{target}", address.port());
        let err = web.get(url.parse().unwrap(), "*/*").await.unwrap_err();
        assert!(err.message.contains("is not a public address"), "{target}: {err}");
    }
    let url = format!("http://public.example:{}/hops/2", address.port());
    assert_eq!(web.get(url.parse().unwrap(), "*/*").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_too_large_answer_is_cut_or_rejected() {
    let web_tools = WebTools::with_config(|config| config.max_bytes = 1 << 20).await;
    for path in ["/long", "/bomb"] {
        let text = web_tools.fetch(path).await.unwrap();
        assert!(text.ends_with("… (cut off: the page is longer)"), "{path}");
        assert!(text.len() < 200 << 10, "{path}");
    }
}

#[tokio::test]
async fn a_slow_answer_times_out() {
    let web_tools = WebTools::with_config(|config| config.timeout_seconds = 1).await;
    let start = Instant::now();
    web_tools
        .check(
            "fetch_url",
            json!({ "url": format!("{}/slow", web_tools.base) }),
            expect!["tool.timeout: `127.0.0.1` did not answer within 1 s (retryable: true)"],
        )
        .await;
    // The timeout also applies to a server that sends one byte at a time.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut server = JoinSet::new();
    server.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n").await.unwrap();
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let err = web_tools.call("fetch_url", json!({ "url": url })).await.unwrap_err();
    assert_eq!(err.code, ErrorCode::TIMEOUT);
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_cancelled_fetch_stops() {
    let web_tools = WebTools::new().await;
    let cx = ToolContext::detached();
    let cancel = cx.cancel.clone();
    let url = json!({ "url": format!("{}/slow", web_tools.base) });
    let (result, ()) =
        tokio::join!(web_tools.call_in("fetch_url", url, cx), async { cancel.cancel() });
    assert_eq!(result.unwrap_err().code, ErrorCode::CANCELLED);
}

#[tokio::test]
async fn a_web_search_returns_a_list_of_results() {
    let web_tools = WebTools::new().await;
    let query = |query: &str| json!({ "query": query });
    web_tools
        .check(
            "web_search",
            query("rust lang"),
            expect![[r"
        Results for: rust lang

        1. First
           https://a.example/
           You asked q=rust+lang

        2. Second
           https://b.example/"]],
        )
        .await;
    web_tools
        .check(
            "web_search",
            json!({ "query": "x", "max_results": 1 }),
            expect![[r"
        Results for: x

        1. First
           https://a.example/
           You asked q=x"]],
        )
        .await;
    web_tools.check("web_search", query("nothing"), expect!["No results found for: nothing"]).await;
    web_tools.check("web_search", query("adverts"), expect!["No results found for: adverts"]).await;
    for odd in ["blocked", "json"] {
        web_tools
            .check(
                "web_search",
                query(odd),
                expect![
                    "tool.failed: `127.0.0.1` sent an unexpected answer without a list of results \
                     (retryable: true)"
                ],
            )
            .await;
    }
    web_tools.check("web_search", query("robot"), expect!["tool.unavailable: `127.0.0.1` requires a CAPTCHA: try again later, or configure another search service (retryable: true)"]).await;
    let docs =
        web_tools.call("docs_search", json!({ "library": "Flask", "query": "sse" })).await.unwrap();
    assert!(docs.starts_with("Results for: site:flask.palletsprojects.com sse\n"), "{docs}");
    let docs =
        web_tools.call("docs_search", json!({ "library": "axum", "query": "sse" })).await.unwrap();
    assert!(docs.starts_with("Results for: axum documentation sse\n"), "{docs}");
}

#[tokio::test]
async fn each_search_tool_queries_its_service() {
    let web_tools = WebTools::new().await;
    let query = |query: &str| json!({ "query": query });
    web_tools
        .check(
            "github_search",
            query("x"),
            expect![[r"
        Results for: x

        1. a/b
           https://github.com/a/b
           12 stars, Rust: Does things

        2. c/d
           https://github.com/c/d
           3 stars, Unknown: No description"]],
        )
        .await;
    web_tools
        .check("github_search", query("nothing"), expect!["No results found for: nothing"])
        .await;
    web_tools
        .check(
            "stack_overflow_search",
            query("x"),
            expect![[r"
        Results for: x

        1. Why <T> & 'a?
           https://stackoverflow.com/q/1
           score -1, answered, 2 answers, 345 views"]],
        )
        .await;
    for (tool, name) in [
        ("web_search", "query"),
        ("github_search", "query"),
        ("stack_overflow_search", "query"),
        ("wiki_lookup", "topic"),
    ] {
        let error = web_tools.call(tool, json!({ name: " \n" })).await.expect_err(tool).to_string();
        let expected = format!("tool.invalid_parameters: `{name}` is empty: enter a search term");
        assert_eq!(error, expected, "{tool}");
    }
    for topic in ["Rust", "rusty"] {
        web_tools
            .check(
                "wiki_lookup",
                json!({ "topic": topic }),
                expect![[r"
            Rust
            https://w/Rust

            Rust is a language."]],
            )
            .await;
    }
    web_tools
        .check("wiki_lookup", json!({ "topic": "qqq" }), expect!["No results found for: qqq"])
        .await;
}

#[test]
fn a_service_with_a_private_address_is_rejected() {
    let config = WebConfig { github: "http://10.0.0.1/".to_owned(), ..WebConfig::default() };
    expect!["`github` of `web_tools`: `10.0.0.1` is not a public address: private addresses are refused unless the configuration allows them (`allow_private` of web tools, `base_url` of an OpenAPI document)"].assert_eq(&tools(&config).unwrap_err().to_string());
}
