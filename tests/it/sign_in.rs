//! Sign-in through a real OpenID provider, the npm package `oidc-provider`.

mod browser;

use std::{process::Stdio, sync::Arc, time::Duration};

use chrono::TimeDelta;
use engine::access::{Access, Role, Token};
use oidc::{Rule, Settings, SignIn, SignInError};
use serde_json::{Value, json};
use shared::clock::{Clock, Timestamp, WallClock};
use tests::{installed, toolset::MAX_WAIT};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use self::browser::{Answer, Browser, join_url};
use crate::cli::{running_command::RunningCommand, workspace::Workspace};

const AUDIENCE: &str = "urn:faber:test";
const PAGE: &str = "X-Faber-Page: 1";
const JSON: &str = "Content-Type: application/json";
const CLIENT_SECRET: &str = "a secret: of the client";

struct Provider {
    issuer: String,
    /// Keeps the pipe open, because the provider ends when it cannot print a warning.
    _output: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Provider {
    async fn start() -> Self {
        let modules = installed::find_path("FABER_TEST_SIGN_IN_MODULES", "sign_in/node_modules");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/sign_in/provider.mjs");
        let mut command = Command::new(installed::find_program("node"));
        command.arg(script).arg(modules).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let find_issuer = async {
            loop {
                let line =
                    lines.next_line().await.unwrap().expect("the provider prints its issuer");
                if line.starts_with("http://") {
                    return line;
                }
            }
        };
        let issuer = timeout(MAX_WAIT, find_issuer).await.expect("the provider starts in time");
        Self { issuer, _output: lines, _child: child }
    }

    async fn issue_token(&self, client: &str, resource: &str) -> String {
        let form = format!(
            "grant_type=client_credentials&client_id={client}&client_secret=machine-secret&\
             resource={resource}"
        );
        let answer = Browser::default().post_form(&format!("{}/token", self.issuer), &form).await;
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    async fn rotate_keys(&self) {
        assert_eq!(Browser::default().get(&format!("{}/rotate", self.issuer)).await.status, 200);
    }

    fn sign_in(&self, clock: Arc<dyn Clock>) -> SignIn {
        let settings = Settings {
            issuer: self.issuer.clone(),
            audience: vec![AUDIENCE.to_owned()],
            client: None,
            scopes: Vec::new(),
            name_claim: "sub".to_owned(),
            rules: vec![Rule {
                claim: "groups".to_owned(),
                value: "ops".to_owned(),
                rights: Token::new("", "", Role::Operator),
            }],
            public_url: None,
        };
        SignIn::new(settings, Access::default().with_identities(), clock).unwrap()
    }
}

/// A clock that is ahead of the machine's clock by this number of seconds.
#[derive(Debug)]
struct LateClock(i64);

impl Clock for LateClock {
    fn now(&self) -> Timestamp {
        WallClock.now() + TimeDelta::seconds(self.0)
    }
}

#[tokio::test]
async fn a_token_of_the_provider_is_checked() {
    let provider = Provider::start().await;
    let sign_in = provider.sign_in(Arc::new(WallClock));
    let token = provider.issue_token("machine", AUDIENCE).await;
    let caller = sign_in.authenticate_token(&token).await.unwrap();
    assert_eq!(caller.grant.name(), Some("oidc:machine"));
    let other = provider.issue_token("machine", "urn:other").await;
    let outcome = sign_in.authenticate_token(&other).await;
    assert!(matches!(outcome, Err(SignInError::InvalidToken(_))), "wrong audience: {outcome:?}");
    let stranger = provider.issue_token("stranger", AUDIENCE).await;
    let outcome = sign_in.authenticate_token(&stranger).await;
    assert!(matches!(outcome, Err(SignInError::NoRule { .. })), "{outcome:?}");
    // The tokens are valid for 300 seconds, and the clocks may differ by 60 seconds.
    for (late, expected) in [(350, true), (370, false)] {
        let sign_in = provider.sign_in(Arc::new(LateClock(late)));
        let outcome = sign_in.authenticate_token(&token).await;
        assert_eq!(outcome.is_ok(), expected, "{late} s later: {outcome:?}");
    }
}

#[tokio::test]
async fn rotated_keys_are_fetched_after_a_minute() {
    let provider = Provider::start().await;
    let sign_in = provider.sign_in(Arc::new(WallClock));
    let old = provider.issue_token("machine", AUDIENCE).await;
    assert!(sign_in.authenticate_token(&old).await.is_ok());
    provider.rotate_keys().await;
    let new = provider.issue_token("machine", AUDIENCE).await;
    let outcome = sign_in.authenticate_token(&new).await;
    assert!(matches!(outcome, Err(SignInError::InvalidToken(_))), "too early: {outcome:?}");
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(1)).await;
    tokio::time::resume();
    assert!(sign_in.authenticate_token(&new).await.is_ok());
    let outcome = sign_in.authenticate_token(&old).await;
    assert!(matches!(outcome, Err(SignInError::InvalidToken(_))), "withdrawn: {outcome:?}");
}

/// A running `faber serve` whose only callers are those of the provider.
struct Faber {
    url: String,
    _process: RunningCommand,
    _workspace: Workspace,
}

impl Faber {
    async fn start(provider: &Provider) -> Self {
        let workspace = Workspace::new();
        workspace.file("secret", &format!("{CLIENT_SECRET}\n"));
        let config = json!({
            "store": "memory:",
            "server": { "oidc": {
                "issuer": provider.issuer,
                "audience": AUDIENCE,
                "client_id": "faber",
                "client_secret_file": "secret",
                "scopes": ["openid", "groups"],
                "rules": [{ "claim": "groups", "value": "ops", "role": "operator", "tools": ["flow.*"] }],
            } },
        });
        workspace.file("faber.yaml", &config.to_string());
        let mut process = workspace.spawn(&["serve", "--listen", "127.0.0.1:0"]);
        let line = process.wait_for_line("listening on http://").await;
        let (_, address) = line.split_once("http://").unwrap();
        Self { url: format!("http://{address}"), _process: process, _workspace: workspace }
    }

    async fn ask(&self, browser: &mut Browser, headers: &[&str], query: &str) -> Answer {
        let body = json!({ "query": query }).to_string();
        let url = format!("{}/graphql", self.url);
        browser.send("POST", &url, &[&[JSON], headers].concat(), &body).await
    }

    async fn ask_with_token(&self, token: &str, query: &str) -> Answer {
        let header = format!("Authorization: Bearer {token}");
        self.ask(&mut Browser::default(), &[&header], query).await
    }
}

#[track_caller]
fn assert_answer(answer: &Answer, status: u16, part: &str) {
    assert!(
        answer.status == status && answer.body.contains(part),
        "no {status} `{part}`: {answer:?}"
    );
}

#[tokio::test]
async fn the_server_accepts_tokens_of_the_provider() {
    let provider = Provider::start().await;
    let faber = Faber::start(&provider).await;
    let token = provider.issue_token("machine", AUDIENCE).await;
    let query = "{ __typename }";
    assert_answer(&faber.ask_with_token(&token, query).await, 200, "Query");
    let add = "mutation { removeToolSet(name: \"x\") }";
    let answer = faber.ask_with_token(&token, add).await;
    assert!(
        answer.body.contains("FORBIDDEN") && answer.body.contains("oidc:machine"),
        "{answer:?}"
    );
    let stranger = provider.issue_token("stranger", AUDIENCE).await;
    assert_answer(&faber.ask_with_token(&stranger, query).await, 403, "server.oidc.rules");
    let other = provider.issue_token("machine", "urn:other").await;
    let answer = faber.ask_with_token(&other, query).await;
    assert_answer(&answer, 401, "audience");
    assert!(answer.header("www-authenticate").unwrap().contains("error=\"invalid_token\""));
    assert_answer(&faber.ask_with_token("no-signed-token", query).await, 401, "does not know");
    assert_answer(&faber.ask(&mut Browser::default(), &[], query).await, 401, "access token");
}

#[tokio::test]
async fn mcp_clients_find_the_issuer() {
    let provider = Provider::start().await;
    let faber = Faber::start(&provider).await;
    let mut client = Browser::default();
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
    } })
    .to_string();
    let mcp = format!("{}/mcp", faber.url);
    let accept = "Accept: application/json, text/event-stream";
    let answer = client.send("POST", &mcp, &[JSON, accept], &hello).await;
    assert_eq!(answer.status, 401);
    let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", faber.url);
    let challenge = format!("Bearer realm=\"faber\", resource_metadata=\"{metadata}\"");
    assert_eq!(answer.header("www-authenticate"), Some(challenge.as_str()));
    let document: Value = serde_json::from_str(&client.get(&metadata).await.body).unwrap();
    assert_eq!(document["resource"], json!(mcp));
    assert_eq!(document["authorization_servers"], json!([provider.issuer]));
    let root: Value =
        serde_json::from_str(&client.get(metadata.strip_suffix("/mcp").unwrap()).await.body)
            .unwrap();
    assert_eq!(root["resource"], json!(faber.url));
    assert_eq!(client.get(&format!("{metadata}x")).await.status, 404);
    let token =
        format!("Authorization: Bearer {}", provider.issue_token("machine", AUDIENCE).await);
    let answer = client.send("POST", &mcp, &[JSON, accept, &token], &hello).await;
    assert_answer(&answer, 200, "serverInfo");
}

async fn sign_in_at_provider(faber: &Faber, browser: &mut Browser, user: &str) -> String {
    let answer = browser.get(&format!("{}/auth/login?return_to=/tools", faber.url)).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    let login = answer.cookie("faber_login").unwrap();
    assert!(login.contains("HttpOnly; SameSite=Lax"), "{login}");
    let mut at_provider = Browser::default();
    let start = answer.header("location").unwrap();
    assert!(start.contains("code_challenge_method=S256"), "{start}");
    let (mut form, _) = at_provider.follow(start, &faber.url).await;
    for fields in [format!("prompt=login&login={user}&password=x"), "prompt=consent".to_owned()] {
        let answer = at_provider.post_form(&form, &fields).await;
        let next = join_url(&form, answer.header("location").unwrap());
        (form, _) = at_provider.follow(&next, &faber.url).await;
    }
    assert!(form.starts_with(&format!("{}/auth/callback?code=", faber.url)), "{form}");
    form
}

#[tokio::test]
async fn a_user_signs_in_on_the_page() {
    let provider = Provider::start().await;
    let faber = Faber::start(&provider).await;
    let (mut browser, own) = (Browser::default(), format!("Origin: {}", faber.url));
    let status = format!("{}/auth/status", faber.url);
    assert_answer(&browser.get(&status).await, 200, r#"{"canSignIn":true,"caller":null}"#);
    let callback = sign_in_at_provider(&faber, &mut browser, "ada").await;
    let answer = Browser::default().get(&callback).await;
    assert_answer(&answer, 400, "this browser has not started it");
    let answer = browser.get(&callback.replace("state=", "state=x")).await;
    assert_answer(&answer, 400, "another sign-in");
    let callback = sign_in_at_provider(&faber, &mut browser, "ada").await;
    let answer = browser.get(&callback).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/tools")), "{answer:?}");
    let session = answer.cookie("faber_session").unwrap();
    assert!(session.contains("Path=/; HttpOnly; SameSite=Lax") && !session.contains("ada"));
    assert!(!browser.has_cookie("faber_login"));
    assert_answer(&browser.get(&status).await, 200, r#""caller":"oidc:ada""#);
    check_session(&faber, &mut browser, &own).await;
    let logout = format!("{}/auth/logout", faber.url);
    assert_eq!(
        browser.send("POST", &logout, &["Origin: https://evil.example"], "").await.status,
        403
    );
    assert_eq!(browser.send("POST", &logout, &[&own, PAGE], "").await.status, 204);
    assert!(!browser.has_cookie("faber_session"));
    assert_eq!(faber.ask(&mut browser, &[&own, PAGE], "{ __typename }").await.status, 401);
}

async fn check_session(faber: &Faber, browser: &mut Browser, own: &str) {
    let query = "{ __typename }";
    assert_answer(&faber.ask(browser, &[own, PAGE], query).await, 200, "Query");
    let same_site = "Sec-Fetch-Site: same-origin";
    assert_answer(&faber.ask(browser, &[same_site, PAGE], query).await, 200, "Query");
    for headers in [
        vec![own],
        vec![PAGE],
        vec!["Origin: https://evil.example", PAGE],
        // Pages of this machine may use tokens, but not the session.
        vec!["Origin: http://localhost:3000", PAGE],
        vec!["Sec-Fetch-Site: same-site", PAGE],
        vec![own, same_site],
    ] {
        assert_eq!(faber.ask(browser, &headers, query).await.status, 403, "{headers:?}");
    }
    let socket = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: graphql-transport-ws",
    ];
    let url = format!("{}/graphql", faber.url);
    let answer = browser.send("GET", &url, &socket, "").await;
    assert_eq!(answer.status, 403, "a WebSocket without an origin: {answer:?}");
    let stream = "Accept: text/event-stream";
    let url = format!("{url}?query=subscription%7B__typename%7D");
    assert_eq!(browser.send("GET", &url, &[stream, own], "").await.status, 403);
}

#[tokio::test]
async fn a_user_without_a_matching_claim_has_no_access() {
    let provider = Provider::start().await;
    let faber = Faber::start(&provider).await;
    let mut browser = Browser::default();
    let callback = sign_in_at_provider(&faber, &mut browser, "eve").await;
    let answer = browser.get(&callback).await;
    assert_answer(&answer, 403, "`eve` is signed in, but no rule matches its claims");
    assert!(!browser.has_cookie("faber_session"));
}
