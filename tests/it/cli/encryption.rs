//! Encryption of a store by the real binary: the values in the raw store, `rekey`, and processes
//! without the key.

use std::{fmt::Write as _, fs, time::Instant};

use engine::store::{Key, Keyring, open_encrypted_store, open_store_for_copies};
use futures::TryStreamExt as _;
use mongodb::{Client, bson::Document};
use rusqlite::Connection;
use serde_json::{Value, json};
use shared::{
    event::Event,
    id::Seq,
    request::{Request, TranscriptEntry},
};
use tests::{conformance::at, toolset::MAX_WAIT};

use super::workspace::Workspace;
use crate::mongod::Mongod;

/// Start of every value that must not be in the raw store.
const SECRET: &str = "xyzzy";
const KEYS: [(&str, &str); 2] = [
    ("k1", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
    ("k2", "/////////////////////////////////////////wA="),
];
/// Files of configurations. In `WRONG_KEY_CONFIG`, another key has the id of the first key.
const FIRST_KEY_CONFIG: &str = "first.json";
const BOTH_KEYS_CONFIG: &str = "both.json";
const WRONG_KEY_CONFIG: &str = "wrong.json";
const SECOND_KEY_CONFIG: &str = "other.json";
const KEYLESS_CONFIG: &str = "keyless.json";

struct EncryptionCase {
    workspace: Workspace,
    store: String,
    copy: String,
}

impl EncryptionCase {
    fn new(store: String, copy: String) -> Self {
        let case = Self { workspace: Workspace::new(), store, copy };
        let [first, second] = KEYS.map(|(id, key)| json!({ "id": id, "command": ["printf", key] }));
        let wrong = json!({ "id": "k1", "command": ["printf", KEYS[1].1] });
        case.configure(FIRST_KEY_CONFIG, &json!({ "keys": [first] }));
        case.configure(BOTH_KEYS_CONFIG, &json!({ "keys": [first, second], "active": "k2" }));
        case.configure(SECOND_KEY_CONFIG, &json!({ "keys": [second] }));
        case.configure(WRONG_KEY_CONFIG, &json!({ "keys": [wrong] }));
        case.configure(KEYLESS_CONFIG, &Value::Null);
        case.workspace.file("plan.json", &plan().to_string());
        case
    }

    fn url(&self) -> String {
        match self.store.strip_prefix("sqlite:") {
            Some(path) => format!("sqlite:{}", self.workspace.path(path).display()),
            None => self.store.clone(),
        }
    }

    fn configure(&self, file: &str, encryption: &Value) {
        let script = "cat > /dev/null; echo xyzzy-stderr >&2; echo xyzzy-stdout; exit 1";
        let tool = json!({
            "name": "fail", "effect": "read", "parameters": { "type": "object" },
            "run": { "command": ["sh", "-c", script] },
        });
        let config = json!({
            "store": self.store,
            "toolsets": [
                { "name": "local", "source": { "tools": [tool] } },
                { "name": "memory", "source": { "builtin": "memory_tools" } },
            ],
            "encryption": encryption,
        });
        self.workspace.file(file, &config.to_string());
    }

    async fn json(&self, config: &str, arguments: &[&str], status: i32) -> Value {
        self.workspace.json(&[arguments, &["--config", config]].concat(), status).await
    }

    async fn execute_with_secrets(&self, config: &str) -> Value {
        let input = r#"{"word":"xyzzy-input"}"#;
        let run = ["run", "--plan", "plan.json", "--input", input, "--label", "team=blue"];
        let waiting = self.json(config, &run, 4).await;
        let id = waiting["executionId"].as_str().unwrap();
        let signal = ["signal", id, "go", r#"{"word":"xyzzy-signal"}"#, "--no-run"];
        self.json(config, &signal, 0).await;
        let approve = ["approve", id, "ask", "--comment", "xyzzy-comment"];
        let done = self.json(config, &approve, 0).await;
        assert_eq!(done["state"], "COMPLETED", "{done:#}");
        done
    }

    async fn debug(&self, config: &str, execution: &Value) -> String {
        let request = execution["requestId"].as_str().unwrap();
        self.json(config, &["debug", request], 0).await.to_string()
    }

    async fn assert_hidden(&self, store: &str, key: &str) {
        let raw = match store.strip_prefix("sqlite:") {
            Some(path) => self.read_file(path),
            None => dump_mongodb(store).await,
        };
        assert!(raw.contains(&format!("$encrypted:{key}:")), "values of {key} are stored");
        for word in [SECRET, "eHl6enk"] {
            let place = raw.find(word).map(|at| {
                let start = raw.floor_char_boundary(at.saturating_sub(500));
                &raw[start..raw.floor_char_boundary(at + 100)]
            });
            assert_eq!(place, None);
        }
        assert!(raw.contains("flow.echo") && raw.contains("team"), "names and labels are clear");
    }

    fn read_file(&self, path: &str) -> String {
        let suffixes = ["", "-wal"];
        let files = suffixes.iter().map(|suffix| self.workspace.path(&format!("{path}{suffix}")));
        let bytes: Vec<u8> = files.flat_map(|file| fs::read(file).unwrap_or_default()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn keyring(key: (&str, &str)) -> Keyring {
    let (id, key) = key;
    let key = Key::parse(key).unwrap();
    Keyring::new(vec![(id.to_owned(), Some(key))], id, false).unwrap()
}

fn plan() -> Value {
    json!({ "tools": [
        { "id": "greet", "name": "flow.echo",
          "parameters": { "text": "xyzzy-plan {{input.word}}", "n": 1 } },
        { "id": "skip", "name": "flow.echo", "when": "greet.text == 'xyzzy-condition'",
          "parameters": {} },
        { "id": "ask", "name": "flow.echo", "dependsOn": ["greet"], "requiresApproval": true,
          "parameters": { "text": "{{greet.text}}" } },
        { "id": "keep", "name": "memory.save_context", "dependsOn": ["ask"],
          "parameters": { "key": "k", "value": "xyzzy-memory" } },
        { "id": "wait", "name": "flow.wait", "dependsOn": ["keep"], "parameters": { "name": "go" } },
        { "id": "fail", "name": "local.fail", "dependsOn": ["wait"], "onError": "continue",
          "parameters": {} },
        { "id": "last", "name": "flow.echo", "parameters": { "word": "{{wait.word}}" },
          "outputMapping": { "word": "w" }, "cacheTtlMs": 60_000 },
    ] })
}

async fn dump_mongodb(url: &str) -> String {
    let database = Client::with_uri_str(url).await.unwrap().default_database().unwrap();
    let mut text = String::new();
    for name in database.list_collection_names().await.unwrap() {
        let mut found = database.collection::<Document>(&name).find(Document::new()).await.unwrap();
        while let Some(document) = found.try_next().await.unwrap() {
            writeln!(text, "{document:?}").unwrap();
        }
    }
    text
}

fn sqlite_case() -> EncryptionCase {
    EncryptionCase::new("sqlite:faber.db".to_owned(), "sqlite:copy.db".to_owned())
}

async fn mongodb_case() -> EncryptionCase {
    let mongod = Mongod::shared().await;
    EncryptionCase::new(mongod.new_database_url(), mongod.new_database_url())
}

async fn check_that_no_value_is_stored_in_clear(case: EncryptionCase) {
    let done = case.execute_with_secrets(FIRST_KEY_CONFIG).await;
    let call = ["tools", "call", "flow.echo", r#"{"text":"xyzzy-call"}"#];
    case.json(FIRST_KEY_CONFIG, &call, 0).await;
    case.assert_hidden(&case.store, "k1").await;
    let shown = case.debug(FIRST_KEY_CONFIG, &done).await;
    for part in ["plan", "input", "condition", "comment", "memory", "signal", "stderr"] {
        assert!(shown.contains(&format!("{SECRET}-{part}")), "{part}: {shown}");
    }

    for config in [KEYLESS_CONFIG, WRONG_KEY_CONFIG] {
        let list = ["list", "executions", "--label", "team=blue", "--state", "COMPLETED"];
        let listed = case.json(config, &list, 0).await;
        assert_eq!(listed[0]["executionId"], done["executionId"], "{listed:#}");
        let shown = case.debug(config, &done).await;
        assert!(shown.contains(r#"{"$encrypted":"k1"}"#), "{shown}");
        assert!(!shown.contains(SECRET) && !shown.contains("$encrypted:"), "{shown}");
        let by_text = ["list", "executions", "--error-text", "stderr"];
        let refused = case.json(config, &by_text, 2).await;
        assert_eq!(refused["error"]["code"], "INVALID_ARGUMENT");
        let id = done["executionId"].as_str().unwrap();
        for command in [&["retry", id][..], &["run", "--plan", "plan.json"]] {
            let refused = case.json(config, command, 3).await;
            assert_eq!(refused["error"]["code"], "STORE_UNAVAILABLE", "{refused}");
            assert!(refused["error"]["message"].as_str().unwrap().contains("key"), "{refused}");
        }
    }
    let by_text = ["list", "executions", "--error-text", "stderr"];
    let refused = case.json(FIRST_KEY_CONFIG, &by_text, 2).await;
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("because the store is encrypted"), "{message}");

    // After a second key became active, a process with both keys reads old and new values.
    let second = case.execute_with_secrets(BOTH_KEYS_CONFIG).await;
    case.assert_hidden(&case.store, "k2").await;
    for execution in [&done, &second] {
        assert!(case.debug(BOTH_KEYS_CONFIG, execution).await.contains("xyzzy-input"));
    }
    let old = case.debug(FIRST_KEY_CONFIG, &second).await;
    assert!(old.contains(r#"{"$encrypted":"k2"}"#), "{old}");

    check_that_one_key_is_left(&case, [&done, &second]).await;

    // A backup and a restore need no key.
    case.json(KEYLESS_CONFIG, &["backup", "b.fbk"], 0).await;
    let restore = ["restore", "b.fbk", "--store", &case.copy];
    case.json(KEYLESS_CONFIG, &restore, 0).await;
    case.assert_hidden(&case.copy, "k2").await;
    let request = done["requestId"].as_str().unwrap();
    let debug = ["debug", request, "--store", &case.copy];
    assert!(case.json(BOTH_KEYS_CONFIG, &debug, 0).await.to_string().contains("xyzzy-signal"));
    let export = case.workspace.run(&["export", "--since", "1h", "--config", KEYLESS_CONFIG]).await;
    assert_eq!(export.status, 0, "{export:?}");
    assert!(!export.out.contains(SECRET) && export.out.contains("$encrypted:k2:"));
}

async fn check_that_one_key_is_left(case: &EncryptionCase, executions: [&Value; 2]) {
    let report = case.json(BOTH_KEYS_CONFIG, &["rekey"], 0).await;
    assert!(report["encrypted"]["values"]["k1"].as_u64().unwrap() > 10, "{report}");
    assert_eq!(report["left"], json!({ "clear": 0, "values": {}, "damaged": 0 }));
    case.assert_hidden(&case.store, "k2").await;
    for execution in executions {
        let shown = case.debug(SECOND_KEY_CONFIG, execution).await;
        assert!(shown.contains("xyzzy-input") && !shown.contains("$encrypted"), "{shown}");
    }
    let raw = match case.store.strip_prefix("sqlite:") {
        Some(path) => {
            // The copy lacks the old bytes that earlier changes left in the free space of the file.
            let file = Connection::open(case.workspace.path(path)).unwrap();
            let copy = case.workspace.path("vacuumed.db").display().to_string();
            file.execute("VACUUM INTO ?1", [copy]).unwrap();
            case.read_file("vacuumed.db")
        }
        None => dump_mongodb(&case.store).await,
    };
    let places = raw.matches("$encrypted:k1:").count();
    assert_eq!(places, 1, "only the record that knows the key");
    let audit = case.json(KEYLESS_CONFIG, &["audit", "--action", "rekey"], 0).await;
    assert_eq!(audit[0]["detail"]["key"], "k2", "{audit}");
    let refused = case.json(KEYLESS_CONFIG, &["rekey"], 2).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("`encryption`"), "{refused}");
    // Without the second key, `rekey` leaves its values.
    let ended = case.json(FIRST_KEY_CONFIG, &["rekey"], 1).await;
    assert!(ended["left"]["values"]["k2"].as_u64().unwrap() > 10, "{ended}");
}

async fn check_that_a_killed_rekey_is_completed(case: EncryptionCase) {
    let store = open_encrypted_store(&case.url(), keyring(KEYS[0])).await.unwrap();
    // `rekey` reads the small transcript first, and the large one in several pages.
    let text = |len| format!("xyzzy{}", "x".repeat(len));
    let entry =
        |n, len| TranscriptEntry { at: at(n), kind: "draft".to_owned(), content: json!(text(len)) };
    let small = Request::new("req_1_aaaaaaaaa".parse().unwrap(), "q".to_owned(), at(1));
    let large = Request::new("req_2_aaaaaaaaa".parse().unwrap(), "q".to_owned(), at(1));
    let entries: Vec<_> = (0..24).map(|n| entry(n, 500 << 10)).collect();
    for (request, entries) in [(&small, &vec![entry(1, 9)]), (&large, &entries)] {
        store.put_request(request).await.unwrap();
        store.add_transcript(request.id, entries).await.unwrap();
    }
    drop(store);

    let raw = open_store_for_copies(&case.url(), None).await.unwrap();
    let count_old = async |request: &Request| {
        let transcript = raw.transcript_after(request.id, 0).await.unwrap();
        let is_old = |entry: &&TranscriptEntry| {
            entry.content.as_str().unwrap().starts_with("$encrypted:k1:")
        };
        transcript.iter().filter(is_old).count()
    };
    let run = case.workspace.spawn(&["rekey", "--config", BOTH_KEYS_CONFIG]);
    let deadline = Instant::now() + MAX_WAIT;
    while count_old(&small).await > 0 {
        assert!(Instant::now() < deadline, "no value was encrypted again");
    }
    run.signal("-KILL");
    run.wait_for_exit().await;
    let old = count_old(&large).await;
    assert!(old > 0 && old < entries.len(), "killed in the middle: {old}");
    case.json(BOTH_KEYS_CONFIG, &["rekey"], 0).await;
    let store = open_encrypted_store(&case.url(), keyring(KEYS[1])).await.unwrap();
    let transcript = store.transcript_after(large.id, 0).await.unwrap();
    assert!(transcript == entries, "every entry has the second key");
}

/// A worker without the key does not claim an execution, even if a command for it arrives.
async fn check_that_only_a_worker_with_the_key_claims(case: EncryptionCase) {
    let plan = case.workspace.file(
        "wait.json",
        r#"{"tools":[{"name":"flow.wait","parameters":{"name":"go"}},{"name":"flow.echo","dependsOn":["flow.wait"],"parameters":{"a":"xyzzy"}}]}"#,
    );
    let mut run = case.workspace.spawn(&["run", "--plan", &plan, "--config", FIRST_KEY_CONFIG]);
    run.wait_for_line("waits for signal go").await;
    run.signal("-INT");
    assert_eq!(run.wait_for_exit().await.status, 130);
    let all = case.json(FIRST_KEY_CONFIG, &["list", "executions"], 0).await;
    let id = all[0]["executionId"].as_str().unwrap();
    let mut workers = Vec::new();
    for config in [KEYLESS_CONFIG, WRONG_KEY_CONFIG, SECOND_KEY_CONFIG] {
        let mut worker = case.workspace.spawn(&["worker", "--config", config]);
        worker.wait_for_line("working on").await;
        workers.push(worker);
    }
    let mut server =
        case.workspace.spawn(&["serve", "--listen", "127.0.0.1:0", "--config", KEYLESS_CONFIG]);
    server.wait_for_line("listening on http://").await;
    workers.push(server);
    case.json(FIRST_KEY_CONFIG, &["signal", id, "go", r#""xyzzy""#, "--no-run"], 0).await;
    let mut worker = case.workspace.spawn(&["worker", "--config", FIRST_KEY_CONFIG]);
    worker.wait_for_line("working on").await;
    workers.push(worker);
    let watched = case.json(FIRST_KEY_CONFIG, &["watch", id], 0).await;
    assert_eq!(watched["state"], "COMPLETED");
    let store = open_store_for_copies(&case.url(), None).await.unwrap();
    let events = store.read(id.parse().unwrap(), Seq::START).await.unwrap();
    let claims = events.iter().filter(|recorded| matches!(recorded.event, Event::Claimed(_)));
    assert_eq!(claims.count(), 2, "one by `run`, and one by the worker with the key: {events:?}");
    drop(store);
    for worker in workers {
        worker.signal("-TERM");
        assert_eq!(worker.wait_for_exit().await.status, 0);
    }
}

#[tokio::test]
async fn no_value_is_stored_in_clear_in_sqlite() {
    check_that_no_value_is_stored_in_clear(sqlite_case()).await;
}

#[tokio::test]
async fn no_value_is_stored_in_clear_in_mongodb() {
    check_that_no_value_is_stored_in_clear(mongodb_case().await).await;
}

#[tokio::test]
async fn a_killed_rekey_is_completed_in_sqlite() {
    check_that_a_killed_rekey_is_completed(sqlite_case()).await;
}

#[tokio::test]
async fn a_killed_rekey_is_completed_in_mongodb() {
    check_that_a_killed_rekey_is_completed(mongodb_case().await).await;
}

#[tokio::test]
async fn only_a_worker_with_the_key_claims_in_sqlite() {
    check_that_only_a_worker_with_the_key_claims(sqlite_case()).await;
}

#[tokio::test]
async fn only_a_worker_with_the_key_claims_in_mongodb() {
    check_that_only_a_worker_with_the_key_claims(mongodb_case().await).await;
}
