//! Changes of the encryption key: which values get the active key, which are left, and writes of
//! other processes in the meantime.

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use encryption::{Key, Keyring, RekeyReport, protect, rekey};
use mongo::Mongo;
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    event::{Event, RecordedEvent},
    execution::ExecutionState,
    id::{Attempt, Part, Seq},
    plan::Plan,
    request::TranscriptEntry,
    store::{
        Append, Command, ExecutionHead, HeadError, Record, RecordKind, RecordPage, Rewrite,
        SentCommand, Store, StoredContent, StoredPart, WriteCondition,
    },
    tool::ErrorCode,
};
use sqlite::Sqlite;
use tempfile::TempDir;
use tests::conformance::{at, execution, head, inbox_command, plan_id, request, request_id};
use tokio::sync::Notify;

use crate::mongod::Mongod;

/// Long enough that encrypted bytes do not contain it by chance.
const SECRET: &str = "xyzzy-secret";
/// Bytes of a text that MongoDB keeps in two documents once it is encrypted, but in one while it is
/// clear.
const LARGE: usize = 7 << 20;
/// Bytes of a text that MongoDB keeps in two documents even while it is clear.
const HUGE: usize = 9 << 20;

fn keyring(ids: &[&str], active: &str) -> Keyring {
    // The first letters of the id make the keys differ.
    let key = |id: &str| {
        let letters: String = id.chars().filter(char::is_ascii_alphanumeric).take(2).collect();
        Key::parse(&format!("{letters}{}=", "A".repeat(41))).unwrap()
    };
    let keys = ids.iter().map(|id| ((*id).to_owned(), Some(key(id)))).collect();
    Keyring::new(keys, active, false).unwrap()
}

/// Opens a store without encryption, as a new process does. A process that has read a plan keeps it
/// in a cache, encrypted with the old key.
async fn open_raw(url: &str) -> Arc<dyn Store> {
    match url.strip_prefix("sqlite:") {
        Some(path) => Arc::new(Sqlite::open(path.as_ref()).unwrap()),
        None => Arc::new(Mongo::open(url).await.unwrap()),
    }
}

async fn open_with(url: &str, ids: &[&str]) -> Arc<dyn Store> {
    protect(open_raw(url).await, Some(keyring(ids, ids[0]))).await.unwrap()
}

async fn change_key(url: &str, ids: &[&str]) -> RekeyReport {
    rekey(open_raw(url).await, keyring(ids, ids[0]), &|_| ()).await.unwrap()
}

fn plan(n: usize, text: &str) -> Plan {
    let json = json!({
        "about": {
            "planId": plan_id(n), "requestId": request_id(n), "version": 1, "query": "q",
            "planner": "explicit", "createdAt": 1_000_000,
        },
        "steps": [
            { "stepId": "a", "toolName": "flow.echo", "parameters": { "text": text }, "policy": {} },
            { "stepId": "b", "toolName": "flow.echo", "parameters": { "x": "{{a.text}}" },
              "when": format!("a.text == '{SECRET}'"), "dependsOn": ["a"], "policy": {} },
        ],
    });
    Plan::from_json(&json.to_string()).unwrap()
}

fn entry(n: i64, text: &str) -> TranscriptEntry {
    TranscriptEntry { at: at(n), kind: "draft".to_owned(), content: json!({ "text": text }) }
}

fn event(n: u64) -> RecordedEvent {
    let event = Event::StepSucceeded {
        step: "a".parse().unwrap(),
        part: Part::WHOLE,
        attempt: Attempt::FIRST,
        output: Some(Arc::new(json!({ SECRET: n }))),
        cached: false,
        stderr: Some(SECRET.to_owned()),
    };
    RecordedEvent { seq: Seq(n), at: at(1), by: None, event }
}

fn failed_head(n: usize) -> ExecutionHead {
    let message = SECRET.into();
    let error = HeadError { code: ErrorCode::FAILED, tool: None, message };
    ExecutionHead { state: ExecutionState::Failed, error: Some(error), ..head(n, 2) }
}

fn command(n: usize) -> SentCommand {
    let payload = Arc::new(json!(SECRET));
    SentCommand {
        command: Command::Signal { name: "go".to_owned(), payload },
        ..inbox_command(n, n, Command::Pause)
    }
}

fn records(n: usize) -> Vec<Record> {
    let call = json!({
        "tool": "flow.echo", "parameters": { "a": SECRET }, "result": SECRET, "error": null,
        "durationMs": 1.5,
    });
    let key = json!({ "executionId": execution(n), "fingerprint": SECRET });
    let saved = json!({ "planId": plan_id(n), "inputs": { "default": SECRET } });
    let settled = json!({ "outcome": "succeeded", "output": [SECRET], "comment": SECRET });
    let values = [
        (RecordKind::Memory, json!({ "text": SECRET })),
        (RecordKind::BlobPart, json!(SECRET.repeat(20_000))),
        (RecordKind::Output, json!([SECRET])),
        (RecordKind::Call, call),
        (RecordKind::Settlement, settled),
        (RecordKind::Key, key),
        (RecordKind::SavedPlan, saved),
    ];
    let record = |(kind, value): (RecordKind, Value)| Record {
        kind,
        name: format!("r{n}"),
        value: value.into(),
        // Keys have no time. The time of an output is its end, and must be in the future.
        at: if kind == RecordKind::Key { Timestamp::UNIX_EPOCH } else { at(1_000_000_000) },
    };
    values.into_iter().map(record).collect()
}

/// Returns texts of two sizes. Only the objects 1 and 2 are large, because large ones are slow.
fn large_texts(n: usize) -> [String; 2] {
    let (large, huge) = if n < 3 { (LARGE, HUGE) } else { (300, 400) };
    [format!("{SECRET}{}", "x".repeat(large)), format!("{SECRET}{}", "ö".repeat(huge / 2))]
}

async fn write_objects(store: &dyn Store, n: usize) {
    store.put_request(&request(n, "q", 1)).await.unwrap();
    let [large, huge] = large_texts(n);
    let entries = [entry(1, &huge), entry(2, SECRET), entry(3, &large), entry(4, SECRET)];
    store.add_transcript(request_id(n), &entries).await.unwrap();
    store.put_plan(&plan(n, SECRET)).await.unwrap();
    store.put_plan(&plan(n + 100, &large)).await.unwrap();
    let append = Append::new(execution(n), Seq(0), &[event(1), event(2)]);
    store.append(Append { head: Some(failed_head(n)), ..append }).await.unwrap();
    store.send_command(command(n)).await.unwrap();
    for record in records(n) {
        store.put_record(&record, WriteCondition::Never).await.unwrap();
    }
}

async fn check_objects(store: &dyn Store, n: usize) {
    let [large, huge] = large_texts(n);
    let transcript = store.transcript_after(request_id(n), 0).await.unwrap();
    let entries = [entry(1, &huge), entry(2, SECRET), entry(3, &large), entry(4, SECRET)];
    assert!(transcript == entries, "the transcript of {n}");
    for plan in [plan(n, SECRET), plan(n + 100, &large)] {
        let found = store.plan(plan.id()).await.unwrap().unwrap();
        assert!(found.to_unchecked() == plan.to_unchecked(), "{}", plan.id());
    }
    assert_eq!(store.read(execution(n), Seq(0)).await.unwrap(), [event(1), event(2)]);
    assert_eq!(store.head(execution(n)).await.unwrap(), Some(failed_head(n)));
    assert_eq!(store.list_commands(Some(execution(n))).await.unwrap(), [command(n)]);
    for record in records(n) {
        let found = store.find_record(record.kind, &record.name).await.unwrap();
        assert_eq!(found, Some(record));
    }
}

/// Returns the stored form of everything that `write_objects` writes.
async fn dump(inner: &dyn Store) -> String {
    let mut text = String::new();
    for part in StoredPart::ALL {
        let mut after = None;
        loop {
            let page = inner.list_stored(part, after).await.unwrap();
            assert_eq!(page.damaged, 0);
            for document in page.documents {
                match document.content {
                    StoredContent::Plan(plan) => text += &plan.to_json(),
                    other => write!(text, "{other:?}").unwrap(),
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    for record in records(0) {
        let page = RecordPage::first_records(100);
        let records = inner.list_records(record.kind, page).await.unwrap();
        write!(text, "{records:?}").unwrap();
    }
    text
}

/// `clear` and `first` are the numbers of the objects that are clear and that have the first key.
async fn check_that_all_values_get_the_active_key(url: &str, clear: usize, first: usize) {
    write_objects(&*open_raw(url).await, clear).await;
    write_objects(&*open_with(url, &["k1"]).await, first).await;
    let report = change_key(url, &["k2", "k1"]).await;
    assert!(report.left.is_empty(), "{report:?}");
    assert!(report.clear > 10 && report.values["k1"] == report.clear, "{report:?}");
    let dumped = dump(&*open_raw(url).await).await;
    for old in [SECRET, "$encrypted:k1:", r#"\"k1\""#] {
        assert!(!dumped.contains(old), "{old}");
    }
    let store = open_with(url, &["k2"]).await;
    for n in [clear, first] {
        check_objects(&*store, n).await;
    }
    let again = change_key(url, &["k2"]).await;
    assert_eq!((again.documents, again.clear, again.values.len()), (0, 0, 0), "{again:?}");
}

async fn check_that_values_without_their_key_are_left(url: &str) {
    let store = open_with(url, &["k1"]).await;
    write_objects(&*store, 3).await;
    let report = change_key(url, &["k2"]).await;
    assert_eq!(report.documents, 0);
    assert!(report.left.values["k1"] > 10 && report.left.clear == 0, "{report:?}");
    check_objects(&*store, 3).await;
}

async fn check_that_an_interrupted_run_is_completed(url: &str) {
    for n in 3..6 {
        write_objects(&*open_with(url, &["k1"]).await, n).await;
    }
    for last_step in [2, 4, 9, 14] {
        let (steps, stop) = (AtomicUsize::new(0), Notify::new());
        let show = |_| {
            if steps.fetch_add(1, Ordering::Relaxed) == last_step {
                stop.notify_one();
            }
        };
        let keys = keyring(&["k2", "k1"], "k2");
        tokio::select! {
            biased;
            () = stop.notified() => (),
            ended = rekey(open_raw(url).await, keys, &show) => panic!("ended early: {ended:?}"),
        }
        let store = open_with(url, &["k2", "k1"]).await;
        for n in 3..6 {
            check_objects(&*store, n).await;
        }
    }
    let report = change_key(url, &["k2", "k1"]).await;
    assert!(report.left.is_empty() && report.documents > 0, "{report:?}");
    let store = open_with(url, &["k2"]).await;
    for n in 3..6 {
        check_objects(&*store, n).await;
    }
}

/// A head or a command that another process changed or removed after the read is not written again.
async fn check_that_a_newer_document_stays(url: &str) {
    let inner = open_raw(url).await;
    write_objects(&*inner, 3).await;
    for part in [StoredPart::Executions, StoredPart::Inbox] {
        let page = inner.list_stored(part, None).await.unwrap();
        let before = page.documents.into_iter().next().unwrap();
        let after = match &before.content {
            StoredContent::Head(read) => {
                let mut newer = read.clone();
                newer.error.as_mut().unwrap().message = "newer".into();
                inner.put_head(*newer).await.unwrap();
                let mut rekeyed = read.clone();
                rekeyed.error.as_mut().unwrap().message = "rekeyed".into();
                StoredContent::Head(rekeyed)
            }
            StoredContent::Command(read) => {
                inner.remove_commands(vec![read.id]).await.unwrap();
                StoredContent::Command(read.clone())
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(inner.replace_stored(vec![Rewrite { before, after }]).await, Ok(0));
    }
    let head = inner.head(execution(3)).await.unwrap().unwrap();
    assert_eq!(&*head.error.unwrap().message, "newer");
    assert_eq!(inner.list_commands(Some(execution(3))).await, Ok(Vec::new()));
}

/// Returns the address of a new file, in a folder that must stay until the test ends.
fn new_sqlite() -> (String, TempDir) {
    let folder = TempDir::new().unwrap();
    (format!("sqlite:{}", folder.path().join("faber.db").display()), folder)
}

async fn new_mongodb() -> String {
    Mongod::shared().await.new_database_url()
}

#[tokio::test]
async fn all_values_get_the_active_key_in_sqlite() {
    let (url, _folder) = new_sqlite();
    check_that_all_values_get_the_active_key(&url, 3, 4).await;
    change_key(&url, &["a-key-with-a-long-id", "k2"]).await;
    check_objects(&*open_with(&url, &["a-key-with-a-long-id"]).await, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_values_get_the_active_key_in_mongodb() {
    check_that_all_values_get_the_active_key(&new_mongodb().await, 1, 2).await;
}

#[tokio::test]
async fn values_without_their_key_are_left_in_sqlite() {
    let (url, _folder) = new_sqlite();
    check_that_values_without_their_key_are_left(&url).await;
}

#[tokio::test]
async fn values_without_their_key_are_left_in_mongodb() {
    check_that_values_without_their_key_are_left(&new_mongodb().await).await;
}

#[tokio::test]
async fn an_interrupted_run_is_completed_in_sqlite() {
    let (url, _folder) = new_sqlite();
    check_that_an_interrupted_run_is_completed(&url).await;
}

#[tokio::test]
async fn an_interrupted_run_is_completed_in_mongodb() {
    check_that_an_interrupted_run_is_completed(&new_mongodb().await).await;
}

#[tokio::test]
async fn a_newer_document_stays_in_sqlite() {
    let (url, _folder) = new_sqlite();
    check_that_a_newer_document_stays(&url).await;
}

#[tokio::test]
async fn a_newer_document_stays_in_mongodb() {
    check_that_a_newer_document_stays(&new_mongodb().await).await;
}
