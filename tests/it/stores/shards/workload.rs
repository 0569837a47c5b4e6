use mongodb::{
    Database,
    bson::{Document, doc},
};
use serde_json::json;
use shared::{
    actor::{Actor, ActorKind},
    blob::{self, Blob, BlobId},
    execution::ExecutionState,
    id::Seq,
    request::TranscriptEntry,
    store::{
        Append, AuditAction, AuditEntry, AuditFilter, AuditTarget, Command, CountGroup, CountQuery,
        Cursor, ExecutionFilter, ExecutionHead, HeadError, HeadQuery, LabelFilter, Lease, Page,
        PlanFilter, QueuePosition, RecordKind, RecordPage, Removable, RequestFilter, Reservation,
        Store, TextHash, WriteCondition,
    },
    tool::ErrorCode,
};
use tests::conformance::{
    at, command_id, concurrency_limit, execution, head, inbox_command, permit_request, plan,
    plan_id, record, request, request_id, some_events, total_limit, worker,
};

/// More executions than the pages of these operations, so that the test detects an operation that
/// reads too many.
const EXECUTION_COUNT: usize = 40;
/// The plan whose text is in `parts`.
const LARGE_PLAN_NUMBER: usize = EXECUTION_COUNT + 1;

pub(super) async fn run_work(store: &dyn Store, other: &dyn Store, database: &Database) {
    let lease = Lease { worker: worker(1), node: "n".to_owned(), until: at(100) };
    store.renew_lease(lease).await.unwrap();
    for n in 1..=EXECUTION_COUNT {
        start_execution(store, n).await;
    }
    claim_work(store).await;
    for n in 1..=EXECUTION_COUNT {
        finish_execution(other, n).await;
    }
    store.put_plan(&plan(LARGE_PLAN_NUMBER, 1, 2, &["a.b"])).await.unwrap();
    move_plan_to_parts(database).await;
    assert!(other.plan(plan_id(LARGE_PLAN_NUMBER)).await.unwrap().is_some());
    take_permits(store).await;
    use_records(store).await;
    store.remove_worker(worker(1)).await.unwrap();
}

async fn start_execution(store: &dyn Store, n: usize) {
    store.put_request(&request(n, "q", 0)).await.unwrap();
    for kind in ["selection", "draft"] {
        let entry =
            TranscriptEntry { at: at(0), kind: kind.to_owned(), content: json!({ "n": n }) };
        store.add_transcript(request_id(n), &[entry]).await.unwrap();
    }
    store.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    let labels = [("team".to_owned(), "blue".to_owned())].into();
    let priority = i32::try_from(n % 3).unwrap();
    let due = ExecutionHead { due: Some(at(0)), priority, labels, ..head(n, 2) };
    store.append(Append { head: Some(due), ..some_events(execution(n), 0, 2) }).await.unwrap();
    store.send_command(inbox_command(n, n, Command::Pause)).await.unwrap();
}

async fn claim_work(store: &dyn Store) {
    let after = QueuePosition { due: at(0), execution: execution(5) };
    for after in [None, Some(after)] {
        let query = HeadQuery::DueAfter { now: at(1), after };
        assert_eq!(store.find_heads(query, 3).await.unwrap().len(), 3);
    }
    assert_eq!(store.find_heads(HeadQuery::Due { now: at(1), turn: 0 }, 3).await.unwrap().len(), 3);
    store.next_due_at().await.unwrap();
    store.list_commands(None).await.unwrap();
    for n in 1..=5 {
        let owner = Some(worker(if n < 3 { 1 } else { 9 }));
        let taken = ExecutionHead { owner, needs_person: n == 1, ..head(n, 3) };
        let append = Append { head: Some(taken), ..some_events(execution(n), 2, 1) };
        store.append(append).await.unwrap();
    }
    store.put_head(ExecutionHead { owner: Some(worker(9)), ..head(5, 3) }).await.unwrap();
    assert_eq!(store.list_workers(at(1)).await.unwrap(), [worker(1)]);
    assert_eq!(store.find_heads(HeadQuery::Orphans { now: at(1) }, 10).await.unwrap().len(), 3);
    assert_eq!(store.find_heads(HeadQuery::OwnedBy(worker(1)), 10).await.unwrap().len(), 2);
}

async fn finish_execution(other: &dyn Store, n: usize) {
    for after in [0, 1, 2, 7] {
        other.read(execution(n), Seq(after)).await.unwrap();
    }
    assert!(other.head(execution(n)).await.unwrap().is_some());
    assert!(other.request(request_id(n)).await.unwrap().is_some());
    assert!(other.plan(plan_id(n)).await.unwrap().is_some());
    assert_eq!(other.transcript_after(request_id(n), 1).await.unwrap().len(), 1);
    assert_eq!(other.transcript_after(request_id(n), 0).await.unwrap().len(), 2);
    assert_eq!(other.list_commands(Some(execution(n))).await.unwrap().len(), 1);
    let tool = Some("a.b".parse().unwrap());
    let code = ErrorCode::custom("tool.timeout".to_owned());
    let error = n.is_multiple_of(4).then(|| HeadError { code, tool, message: "too late".into() });
    let state = if error.is_some() { ExecutionState::Failed } else { ExecutionState::Completed };
    let seq = if n <= 5 { 3 } else { 2 };
    let finished_at = Some(at(1));
    let over = ExecutionHead { state, finished_at, error, ..head(n, seq + 1) };
    let handled_commands = vec![command_id(n)];
    let append = Append { head: Some(over), handled_commands, ..some_events(execution(n), seq, 1) };
    // The other node appends to a log that it has read, but not written.
    other.append(append).await.unwrap();
}

/// Changes a plan as if its text were too long for one document.
async fn move_plan_to_parts(database: &Database) {
    let id = plan_id(LARGE_PLAN_NUMBER).to_string();
    let text = plan(LARGE_PLAN_NUMBER, 1, 2, &["a.b"]).to_unchecked();
    let text = serde_json::to_string(&text).unwrap();
    let plans = database.collection::<Document>("plans");
    let update = doc! { "$set": { "parts": 1_i64 }, "$unset": { "steps": "" } };
    plans.update_one(doc! { "_id": &id }, update).await.unwrap();
    let part = doc! { "_id": { "of": &id, "n": 0_i64 }, "text": text };
    database.collection::<Document>("parts").insert_one(part).await.unwrap();
}

async fn take_permits(store: &dyn Store) {
    for holder in 1..=5 {
        let limits = [concurrency_limit("k", 1), total_limit("t", 100)];
        let request = permit_request(&format!("h{holder}"), 1, &limits);
        store.acquire_permits(&request, at(0)).await.unwrap();
        if holder > 2 {
            store.release_permits(vec![request.permit]).await.unwrap();
        }
    }
}

async fn use_records(store: &dyn Store) {
    for kind in [RecordKind::Output, RecordKind::Memory, RecordKind::Tool, RecordKind::Call] {
        let value = record(kind, "a", json!({ "x": 1 }), 50);
        store.put_record(&value, WriteCondition::Never).await.unwrap();
        assert!(store.find_record(kind, "a").await.unwrap().is_some());
    }
    store.records_revision().await.unwrap();
    let page = RecordPage::first_records(10);
    store.list_records(RecordKind::Tool, page).await.unwrap();
    let fingerprint = "f".to_owned();
    let key = Reservation { key: "key".to_owned(), execution: execution(1), fingerprint };
    store.reserve_key(&key).await.unwrap();
    assert!(store.find_reservation("key").await.unwrap().is_some());
    let id = BlobId::new(Some(execution(1)), &"1".repeat(64)).unwrap();
    let blob = Blob { id, mime_type: "image/png".to_owned(), bytes: 3, at: at(0) };
    blob::save_blob(store, &blob, "AQID").await.unwrap();
    assert!(blob::load_blob(store, &blob.id).await.unwrap().is_some());
    let hashes = [1, 2, 3].map(|n| TextHash([n; 32]));
    store.put_vectors("m", &hashes.map(|hash| (hash, vec![0.5]))).await.unwrap();
    assert_eq!(store.find_vectors("m", &hashes).await.unwrap().len(), 3);
    let target = AuditTarget { execution: Some(execution(1)), ..AuditTarget::default() };
    let actor = Actor::token("ops").into();
    let entry = AuditEntry::new(at(0), actor, AuditAction::PRUNE, target, json!({}));
    assert_eq!(store.put_audit_entries(&[entry]).await, Ok(1));
}

pub(super) async fn read_lists(store: &dyn Store) {
    let cursor = || Some(Cursor { at: at(0), id: execution(20).to_string() });
    for page in [
        Page::first_items(3),
        Page { after: cursor(), ..Page::first_items(3) },
        Page { before: cursor(), ..Page::last_items(3) },
    ] {
        list_executions(store, &page).await;
        list_requests(store, &page).await;
        list_audit_entries(store, &page).await;
    }
    let first = Page::first_items(3);
    for request in [None, Some(request_id(1))] {
        let filter = PlanFilter { request, ..PlanFilter::default() };
        store.list_plans(&filter, &first).await.unwrap();
        store.count_plans(&filter).await.unwrap();
    }
    let filter = ExecutionFilter::default();
    let count = CountQuery { filter, groups: vec![CountGroup::State], first: 10 };
    assert_eq!(store.count_executions(&count).await.unwrap().len(), 2);
    store.list_records(RecordKind::Output, RecordPage::first_records(10)).await.unwrap();
}

async fn list_executions(store: &dyn Store, page: &Page) {
    let all = ExecutionFilter::default;
    let label = LabelFilter { key: "team".to_owned(), value: Some("blue".to_owned()) };
    let tool = "a.b".parse().unwrap();
    for filter in [
        all(),
        ExecutionFilter { states: vec![ExecutionState::Completed], ..all() },
        ExecutionFilter { request: Some(request_id(1)), ..all() },
        ExecutionFilter { plan: Some(plan_id(1)), ..all() },
        ExecutionFilter { from: Some(at(0)), is_root: true, ..all() },
        ExecutionFilter { needs_person: Some(true), is_root: true, ..all() },
        ExecutionFilter { labels: vec![label], ..all() },
        ExecutionFilter { error_code: Some("tool.timeout".to_owned()), ..all() },
        ExecutionFilter { error_text: Some("late".to_owned()), ..all() },
        ExecutionFilter { failed_tool: Some("a.b".parse().unwrap()), ..all() },
        ExecutionFilter { tool: Some(tool), ..all() },
        ExecutionFilter { ids: Some(vec![execution(1)]), ..all() },
    ] {
        store.list_heads(&filter, page).await.unwrap();
        store.count_heads(&filter).await.unwrap();
    }
}

async fn list_requests(store: &dyn Store, page: &Page) {
    let all = RequestFilter::default;
    for filter in [
        all(),
        RequestFilter { search: Some("q".to_owned()), ..all() },
        RequestFilter { from: Some(at(0)), ..all() },
        RequestFilter { state: Some(ExecutionState::Completed), ..all() },
        RequestFilter { state: Some(ExecutionState::Failed), ..all() },
        RequestFilter { needs_person: Some(true), ..all() },
        RequestFilter { needs_person: Some(false), ..all() },
    ] {
        store.list_requests(&filter, page).await.unwrap();
        store.count_requests(&filter).await.unwrap();
    }
}

async fn list_audit_entries(store: &dyn Store, page: &Page) {
    let all = AuditFilter::default;
    for filter in [
        all(),
        AuditFilter { actor_kind: Some(ActorKind::Faber), ..all() },
        AuditFilter { actor_name: Some("ops".to_owned()), ..all() },
        AuditFilter { action: Some(AuditAction::PRUNE), ..all() },
        AuditFilter { execution: Some(execution(1)), ..all() },
    ] {
        store.list_audit_entries(&filter, page).await.unwrap();
        store.count_audit_entries(&filter).await.unwrap();
    }
}

pub(super) async fn run_retention(store: &dyn Store) {
    let finished = HeadQuery::Finished { after: at(0), until: at(50) };
    assert_eq!(store.find_heads(finished, 3).await.unwrap().len(), 3);
    let of = [1, 2];
    store.remove_unused(&Removable::Executions(of.map(execution).to_vec())).await.unwrap();
    store.remove_unused(&Removable::Plans(of.map(plan_id).to_vec())).await.unwrap();
    store.remove_unused(&Removable::Requests(of.map(request_id).to_vec())).await.unwrap();
    let pruned = store.prune(at(60), 100).await.unwrap();
    assert_eq!(pruned.executions, EXECUTION_COUNT - 2);
    assert!(pruned.plans > 0 && pruned.requests > 0);
    assert_eq!(store.remove_audit_entries(at(60), 10).await, Ok(1));
}
