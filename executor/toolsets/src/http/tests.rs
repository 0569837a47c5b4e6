pub(crate) mod trial;

use axum::{
    Router,
    body::Bytes,
    extract::Request,
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Redirect},
    routing::{any, get, post},
};
use expect_test::{Expect, expect};
use serde_json::{Value, json};
use shared::{
    id::{Attempt, Part},
    tool::{Effect, ErrorCode},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use toolbox::{StepCall, ToolContext};

use self::trial::{TestServer, TestSet};

async fn echo(method: axum::http::Method, uri: Uri, headers: HeaderMap, body: Bytes) -> String {
    let mut lines = vec![format!("{method} {uri}")];
    for name in ["accept", "authorization", "content-type", "idempotency-key", "x-a"] {
        if let Some(value) = headers.get(name) {
            lines.push(format!("{name}: {}", value.to_str().unwrap()));
        }
    }
    lines.push(String::from_utf8(body.to_vec()).unwrap());
    lines.join("\n").trim_end().to_owned()
}

fn router() -> Router {
    Router::new()
        .route("/json", get(|| async { axum::Json(json!({ "a": [1, null] })) }))
        .route("/none", any(|| async { StatusCode::NO_CONTENT }))
        .route("/large", get(|| async { "x".repeat(2 << 20) }))
        .route(
            "/secret",
            get(|headers: HeaderMap| async move {
                axum::Json(json!({ "said": headers["authorization"].to_str().unwrap() }))
            }),
        )
        .route(
            "/refused",
            get(|headers: HeaderMap| async move {
                (StatusCode::FORBIDDEN, format!("no {:?}", headers["authorization"]))
            }),
        )
        .route("/moved", any(|| async { Redirect::temporary("/json") }))
        .route("/circle", get(|| async { Redirect::temporary("/circle") }))
        .route("/never", any(|_: Request| std::future::pending::<()>()))
        .route(
            "/busy",
            post(|| async {
                (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")], "slow").into_response()
            }),
        )
        .fallback(echo)
}

fn tool(url: &str, http: Value) -> Value {
    let mut http = http;
    http["url"] = json!(format!("{url}{}", http["url"].as_str().unwrap()));
    let properties: serde_json::Map<String, Value> =
        ["a", "b", "c", "d"].iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    let parameters = json!({ "type": "object", "properties": properties });
    json!({ "tools": [{ "name": "t", "parameters": parameters, "run": { "http": http } }] })
}

async fn check_result(http: Value, parameters: Value, expected: Expect) {
    let served = TestServer::start(router()).await;
    let set = TestSet::start(&tool(&served.url, http));
    let result = set.call("t", parameters).await;
    let port = served.url.rsplit(':').next().unwrap();
    let text = match result {
        Ok(Value::String(text)) => text,
        Ok(value) => value.to_string(),
        Err(err) => err.to_string(),
    };
    expected.assert_eq(&text.replace(port, "PORT"));
}

#[tokio::test]
async fn parameters_are_sent_in_path_query_header_and_body() {
    check_result(
        json!({ "url": "/u/{{a}}/x?q={{b}}", "headers": { "x-a": "v{{c}}", "authorization": "{{d}}" }, "query": { "c": "{{c}}", "n": 1 } }),
        json!({ "a": "ü/../?#", "b": "x&y=z", "c": [1, "two"] }),
        expect![[r#"
            GET /u/%C3%BC%2F..%2F%3F%23/x?q=x%26y%3Dz&c=1&c=two&n=1
            accept: application/json, text/*;q=0.9, */*;q=0.1
            x-a: v[1,"two"]"#]],
    )
    .await;
    check_result(
        json!({ "url": "/r/{{a}}", "query": "rest" }),
        json!({ "a": 1, "b": "x y", "c": [2, null, 3], "d": null }),
        expect![[r"
            GET /r/1?b=x+y&c=2&c=3
            accept: application/json, text/*;q=0.9, */*;q=0.1"]],
    )
    .await;
    check_result(
        json!({ "method": "POST", "url": "/p", "body": { "a": "{{a}}", "t": "n={{a}}", "gone": "{{b}}", "l": ["{{c}}", true] } }),
        json!({ "a": 1, "c": { "k": [] } }),
        expect![[r#"
            POST /p
            accept: application/json, text/*;q=0.9, */*;q=0.1
            content-type: application/json
            {"a":1,"t":"n=1","l":[{"k":[]},true]}"#]],
    )
    .await;
    check_result(
        json!({ "method": "PATCH", "url": "/p/{{a}}", "body": "rest", "headers": { "content-type": "application/x-www-form-urlencoded" } }),
        json!({ "a": 1, "b": "x y", "c": ["&", 2] }),
        expect![[r"
            PATCH /p/1
            accept: application/json, text/*;q=0.9, */*;q=0.1
            content-type: application/x-www-form-urlencoded
            b=x%20y&c=%26&c=2"]],
    )
    .await;
}

#[tokio::test]
async fn a_parameter_cannot_change_the_path_or_host() {
    let path = || json!({ "method": "DELETE", "url": "/u/{{a}}" });
    for (parameters, expected) in [
        (
            json!({ "a": ".." }),
            expect!["tool.invalid_parameters: `.` and `..` cannot be a part of the address"],
        ),
        (
            json!({ "a": "" }),
            expect!["tool.invalid_parameters: `a` is part of the address and cannot be empty"],
        ),
        (
            json!({}),
            expect!["tool.invalid_parameters: `a` is part of the address and cannot be empty"],
        ),
    ] {
        check_result(path(), parameters, expected).await;
    }
    check_result(
        json!({ "url": "/", "headers": { "x-a": "{{a}}" } }),
        json!({ "a": "x\r\nauthorization: y" }),
        expect!["tool.invalid_parameters: the header `x-a` cannot have a line end or a control character"],
    )
    .await;
}

#[tokio::test]
async fn the_body_of_an_answer_becomes_the_output() {
    check_result(json!({ "url": "/json" }), json!({}), expect![[r#"{"a":[1,null]}"#]]).await;
    check_result(json!({ "method": "DELETE", "url": "/none" }), json!({}), expect!["null"]).await;
    check_result(json!({ "url": "/moved" }), json!({}), expect![[r#"{"a":[1,null]}"#]]).await;
    check_result(
        json!({ "url": "/large" }),
        json!({}),
        expect![
            "tool.output_too_large: `127.0.0.1:PORT` answered more than 1048576 bytes: request \
             less data"
        ],
    )
    .await;
    check_result(
        json!({ "method": "POST", "url": "/moved" }),
        json!({}),
        expect![
            "tool.failed: `127.0.0.1:PORT` answered 307 Temporary Redirect, a redirect to /json \
             that Faber does not follow: configure that address"
        ],
    )
    .await;
    check_result(
        json!({ "url": "/circle" }),
        json!({}),
        expect!["tool.unavailable: `127.0.0.1:PORT` leads to more than 5 redirects"],
    )
    .await;
    check_result(
        json!({ "method": "POST", "url": "/busy" }),
        json!({}),
        expect!["tool.unavailable: `127.0.0.1:PORT` answered 429 Too Many Requests, and asks to wait: 7 s: slow"],
    )
    .await;
    check_result(
        json!({ "url": "/never", "timeout_seconds": 1 }),
        json!({}),
        expect!["tool.timeout: `127.0.0.1:PORT` did not answer within 1 s"],
    )
    .await;
}

#[tokio::test]
async fn secrets_are_sent_and_redacted_in_outputs() {
    let secret = || json!({ "authorization": { "secret": "CARGO_PKG_NAME", "prefix": "Bearer " } });
    check_result(
        json!({ "url": "/secret", "headers": secret() }),
        json!({}),
        expect![[r#"{"said":"Bearer ***CARGO_PKG_NAME***"}"#]],
    )
    .await;
    check_result(
        json!({ "url": "/refused", "headers": secret() }),
        json!({}),
        expect![[r#"tool.failed: `127.0.0.1:PORT` answered 403 Forbidden: no "Bearer ***CARGO_PKG_NAME***""#]],
    )
    .await;
    check_result(
        json!({ "url": "/", "query": { "key": { "secret": "FABER_NO_SUCH" } } }),
        json!({}),
        expect![
            "tool.unavailable: the secret `FABER_NO_SUCH` is not set: set it in Faber's environment"
        ],
    )
    .await;
}

#[tokio::test]
async fn a_command_gets_a_secret_in_its_environment() {
    let run = json!({ "command": ["sh", "-c", "echo $TOKEN; echo $TOKEN >&2; exit $CODE"],
        "env": { "TOKEN": { "secret": "CARGO_PKG_NAME" }, "CODE": 0 } });
    let mut source = json!({ "tools": [{ "name": "t", "run": run }] });
    let output = TestSet::start(&source).call("t", json!({})).await;
    assert_eq!(output, Ok(json!("***CARGO_PKG_NAME***")));
    source["tools"][0]["run"]["env"]["CODE"] = json!(3);
    let err = TestSet::start(&source).call("t", json!({})).await.unwrap_err();
    assert_eq!(&*err.message, "`sh` exited with status 3: ***CARGO_PKG_NAME***");
    source["tools"][0]["run"]["env"]["CODE"] = json!({ "secret": "FABER_NO_SUCH" });
    let err = TestSet::start(&source).call("t", json!({})).await.unwrap_err();
    assert!(err.message.contains("`FABER_NO_SUCH`"), "{err}");
}

#[tokio::test]
async fn an_mcp_server_with_a_missing_secret_fails_and_names_it() {
    let env = json!({ "TOKEN": { "secret": "FABER_NO_SUCH" } });
    let set = TestSet::start(&json!({ "mcp": { "command": "true", "env": env } }));
    assert_eq!(
        set.error().await,
        "the secret `FABER_NO_SUCH` is not set: set it in Faber's environment"
    );
}

fn step() -> ToolContext {
    let call = StepCall {
        execution: "exec_1704123456_abc123def".parse().unwrap(),
        step: "s".parse().unwrap(),
        part: Part::default(),
        attempt: Attempt::FIRST,
        key: None,
    };
    ToolContext { call: Some(call), ..ToolContext::detached() }
}

#[tokio::test]
async fn a_call_carries_its_idempotency_key() {
    let served = TestServer::start(router()).await;
    let received = async |http: Value| {
        let set = TestSet::start(&tool(&served.url, http));
        set.call_in("t", json!({}), step()).await.unwrap().to_string()
    };
    let key = "idempotency-key: exec_1704123456_abc123def/s";
    assert!(received(json!({ "method": "POST", "url": "/" })).await.contains(key));
    assert!(received(json!({ "method": "PUT", "url": "/" })).await.contains(key));
    assert!(!received(json!({ "url": "/" })).await.contains("idempotency-key"));
}

async fn break_connections(listener: TcpListener) {
    while let Ok((mut connection, _)) = listener.accept().await {
        let mut bytes = [0; 4096];
        let _ = connection.read(&mut bytes).await;
        let _ = connection.shutdown().await;
    }
}

#[tokio::test]
async fn a_broken_connection_leaves_the_outcome_uncertain() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(break_connections(listener));
    for (method, code, retryable) in [
        ("POST", ErrorCode::OUTCOME_UNKNOWN, false),
        ("PUT", ErrorCode::UNAVAILABLE, true),
        ("GET", ErrorCode::UNAVAILABLE, true),
    ] {
        let set = TestSet::start(&tool(&url, json!({ "method": method, "url": "/" })));
        let err = set.call("t", json!({})).await.unwrap_err();
        assert_eq!((&err.code, err.retryable, err.is_definite), (&code, retryable, false), "{err}");
    }
    tasks.shutdown().await;
    // The listener is closed now, so that no request can be sent.
    let set = TestSet::start(&tool(&url, json!({ "method": "POST", "url": "/" })));
    let err = set.call("t", json!({})).await.unwrap_err();
    assert_eq!((&err.code, err.is_definite), (&ErrorCode::UNAVAILABLE, true), "{err}");
    assert!(err.message.contains("cannot be reached"), "{err}");
}

#[tokio::test]
async fn a_call_that_is_cancelled_ends_at_once() {
    let served = TestServer::start(router()).await;
    let set = TestSet::start(&tool(&served.url, json!({ "method": "POST", "url": "/never" })));
    let cancel = CancellationToken::new();
    let cx = ToolContext { cancel: cancel.clone(), ..ToolContext::detached() };
    let (result, ()) = tokio::join!(set.call_in("t", json!({}), cx), async { cancel.cancel() });
    let err = result.unwrap_err();
    assert_eq!((&err.code, err.is_definite), (&ErrorCode::CANCELLED, false));
}

#[test]
fn the_http_method_decides_the_default_effect() {
    let effect = |method: &str, configured: Option<&str>| {
        let mut tool = tool("http://h", json!({ "method": method, "url": "/" }));
        if let Some(effect_name) = configured {
            tool["tools"][0]["effect"] = json!(effect_name);
        }
        TestSet::start(&tool).tool("t").definition().effect
    };
    assert_eq!(effect("GET", None), Effect::Read);
    assert_eq!(effect("HEAD", None), Effect::Read);
    assert_eq!(effect("PUT", None), Effect::Idempotent);
    assert_eq!(effect("DELETE", None), Effect::Idempotent);
    assert_eq!(effect("POST", None), Effect::Once);
    assert_eq!(effect("PATCH", None), Effect::Once);
    assert_eq!(effect("POST", Some("read")), Effect::Read);
}

#[test]
fn a_wrong_http_tool_is_explained() {
    let complaint = |run: Value| {
        let source = json!({ "tools": [{ "name": "t", "run": run }] });
        let set = json!({ "name": "s", "source": source });
        serde_json::from_value::<crate::sources::SetConfig>(set).unwrap_err().to_string()
    };
    let http = |http: Value| complaint(json!({ "http": http }));
    expect!["`tools[0].run.http.url` (`t`): `ftp://x` is not an address: write `http://` or `https://` and a host, which cannot be a template"]
        .assert_eq(&http(json!({ "url": "ftp://x" })));
    expect!["`tools[0].run.http.url` (`t`): `https://{{a}}.example.com/` is not an address: write `http://` or `https://` and a host, which cannot be a template"]
        .assert_eq(&http(json!({ "url": "https://{{a}}.example.com/" })));
    assert!(http(json!({ "url": "http://h{{a}}" })).contains("cannot be a template"));
    expect![
        "`tools[0].run.http.url` (`t`): an address must not contain credentials: put them into `headers`, as `{secret: …}`"
    ]
    .assert_eq(&http(json!({ "url": "http://u:p@h/" })));
    expect!["`tools[0].run.http.query` (`t`): `query` is a map of fields, or `rest`"]
        .assert_eq(&http(json!({ "url": "http://h/", "query": "all" })));
    expect![
        "`tools[0].run` (`t`): unknown field `command` beside `http`: a tool has either `command` or \
         `http`"
    ]
    .assert_eq(&complaint(json!({ "http": { "url": "http://h/" }, "command": ["x"] })));
}

#[tokio::test]
async fn a_template_of_an_unknown_parameter_fails_the_set() {
    let source =
        json!({ "tools": [{ "name": "t", "run": { "http": { "url": "http://h/{{nmae}}" } } }] });
    expect![
        "the HTTP call of `t` contains `{{nmae}}`, but the tool has no such parameter: add it to \
         the properties in `parameters`"
    ]
    .assert_eq(&TestSet::start(&source).error().await);
}
