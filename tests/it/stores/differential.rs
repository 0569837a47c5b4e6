//! The same operations on every store give the same answers.

use std::{fmt, sync::Arc};

use graphql::store::open_store;
use proptest::{collection::vec, option::of as some, prelude::*, test_runner::TestCaseResult};
use serde_json::json;
use shared::{
    execution::ExecutionState,
    id::{Epoch, Seq},
    store::{
        Append, CallLimit, Command, Cursor, ExecutionFilter, ExecutionHead, HeadQuery, Lease, Page,
        Permission, PermitAsk, RecordKind, RecordPage, RequestFilter, Reservation, SavedPlan,
        Store, WriteCondition, memory::Memory,
    },
};
use tests::conformance::{
    ask, at, at_once, command_id, envelope, execution, head, in_all, plan, plan_id, record,
    request, request_id, some_events, worker,
};

use crate::mongod::Mongod;

/// Later than now, in seconds after the first moment.
const LATER: i64 = 1_000_000_000;

/// Something that is done to a store, in small numbers so that things meet.
#[derive(Clone, Debug)]
enum Doing {
    Append {
        of: usize,
        after: u64,
        events: usize,
        head: Option<Doer>,
        heard: usize,
    },
    PutHead {
        of: usize,
        seq: u64,
        doer: Doer,
    },
    Read {
        of: usize,
        after: u64,
    },
    Due {
        now: i64,
        most: usize,
    },
    Orphans {
        now: i64,
    },
    NextDue,
    Heartbeat {
        worker: usize,
        until: i64,
    },
    Retire {
        worker: usize,
    },
    Send {
        n: usize,
        of: usize,
    },
    Inbox {
        of: Option<usize>,
    },
    Discard {
        n: usize,
    },
    PutRequest {
        n: usize,
    },
    PutPlan {
        n: usize,
        of: usize,
        version: u32,
    },
    PlansOf {
        n: usize,
    },
    Heads {
        first: usize,
        behind: Option<(i64, usize)>,
        state: Option<ExecutionState>,
        needs: Option<bool>,
        is_root: bool,
    },
    Requests {
        first: usize,
        state: Option<ExecutionState>,
        needs: Option<bool>,
    },
    Reserve {
        key: usize,
        of: usize,
    },
    Acquire {
        holder: usize,
        now: i64,
    },
    Release {
        holder: usize,
    },
    Workers {
        now: i64,
    },
    Cache {
        key: usize,
        until: i64,
    },
    Cached {
        key: usize,
        now: i64,
    },
    SavePlan {
        n: usize,
    },
    SavedPlan,
    SavedPlans,
    Unsave,
    PutRecord {
        kind: RecordKind,
        n: usize,
        unless: WriteCondition,
        at: i64,
    },
    RemoveRecord {
        kind: RecordKind,
        n: usize,
    },
    Records {
        kind: RecordKind,
        page: RecordPage,
    },
    Revision,
    Prune {
        before: i64,
        most: usize,
    },
}

/// What a head says that changes.
#[derive(Clone, Debug)]
struct Doer {
    owner: Option<usize>,
    due: Option<i64>,
    priority: i32,
    state: ExecutionState,
    finished_at: Option<i64>,
    needs_person: bool,
}

fn state() -> impl Strategy<Value = ExecutionState> {
    prop::sample::select(ExecutionState::ALL.to_vec())
}

fn doer() -> impl Strategy<Value = Doer> {
    let parts =
        (some(0..3_usize), some(0..6_i64), -1..2_i32, state(), some(0..6_i64), any::<bool>());
    parts.prop_map(|(owner, due, priority, state, finished_at, needs_person)| Doer {
        owner,
        due,
        priority,
        state,
        finished_at,
        needs_person,
    })
}

/// Names of records: some begin as others do, some lie beside them.
const NAMES: [&str; 6] = ["a", "a/", "a/b", "a/ö", "a0", "ö"];

fn kind() -> impl Strategy<Value = RecordKind> {
    prop::sample::select(vec![RecordKind::Tool, RecordKind::Memory, RecordKind::Call])
}

fn record_page() -> impl Strategy<Value = RecordPage> {
    let name = || some(prop::sample::select(NAMES.to_vec()));
    (name(), name(), 0..4_usize, any::<bool>()).prop_map(|(prefix, after, first, newest)| {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        RecordPage { prefix: owned(prefix), after: owned(after), first, newest, names_only: false }
    })
}

fn doing() -> impl Strategy<Value = Doing> {
    let of = 0..4_usize;
    prop_oneof![
        6 => (of.clone(), 0..6_u64, 1..4_usize, some(doer()), 0..4_usize).prop_map(
            |(of, after, events, head, heard)| Doing::Append { of, after, events, head, heard }),
        2 => (of.clone(), 0..6_u64, doer())
            .prop_map(|(of, seq, doer)| Doing::PutHead { of, seq, doer }),
        2 => (of.clone(), 0..6_u64).prop_map(|(of, after)| Doing::Read { of, after }),
        2 => (0..6_i64, 0..4_usize).prop_map(|(now, most)| Doing::Due { now, most }),
        1 => (0..6_i64).prop_map(|now| Doing::Orphans { now }),
        1 => Just(Doing::NextDue),
        1 => (0..3_usize, 0..6_i64).prop_map(|(worker, until)| Doing::Heartbeat { worker, until }),
        1 => (0..3_usize).prop_map(|worker| Doing::Retire { worker }),
        1 => (0..4_usize, of.clone()).prop_map(|(n, of)| Doing::Send { n, of }),
        1 => some(of.clone()).prop_map(|of| Doing::Inbox { of }),
        1 => (0..4_usize).prop_map(|n| Doing::Discard { n }),
        1 => of.clone().prop_map(|n| Doing::PutRequest { n }),
        1 => (of.clone(), of.clone(), 1..3_u32)
            .prop_map(|(n, of, version)| Doing::PutPlan { n, of, version }),
        1 => of.clone().prop_map(|n| Doing::PlansOf { n }),
        2 => (0..4_usize, some((0..2_i64, of.clone())), some(state()), some(any::<bool>()),
                any::<bool>())
            .prop_map(|(first, behind, state, needs, is_root)|
                Doing::Heads { first, behind, state, needs, is_root }),
        1 => (0..4_usize, some(state()), some(any::<bool>()))
            .prop_map(|(first, state, needs)| Doing::Requests { first, state, needs }),
        1 => (0..2_usize, of.clone()).prop_map(|(key, of)| Doing::Reserve { key, of }),
        5 => (0..6_usize, 0..6_i64).prop_map(|(holder, now)| Doing::Acquire { holder, now }),
        2 => (0..6_usize).prop_map(|holder| Doing::Release { holder }),
        1 => (0..6_i64).prop_map(|now| Doing::Workers { now }),
        1 => (0..2_usize, 0..6_i64).prop_map(|(key, until)| Doing::Cache { key, until }),
        1 => (0..2_usize, 0..6_i64).prop_map(|(key, now)| Doing::Cached { key, now }),
        1 => of.prop_map(|n| Doing::SavePlan { n }),
        1 => Just(Doing::SavedPlan),
        1 => Just(Doing::SavedPlans),
        1 => Just(Doing::Unsave),
        4 => (kind(), 0..NAMES.len(), unless(), 0..6_i64)
            .prop_map(|(kind, n, unless, at)| Doing::PutRecord { kind, n, unless, at }),
        1 => (kind(), 0..NAMES.len()).prop_map(|(kind, n)| Doing::RemoveRecord { kind, n }),
        2 => (kind(), record_page()).prop_map(|(kind, page)| Doing::Records { kind, page }),
        1 => Just(Doing::Revision),
        2 => (0..7_i64, 0..4_usize).prop_map(|(before, most)| Doing::Prune { before, most }),
    ]
}

fn unless() -> impl Strategy<Value = WriteCondition> {
    prop_oneof![
        Just(WriteCondition::Never),
        Just(WriteCondition::Exists),
        (0..6_i64).prop_map(|n| WriteCondition::ChangedSince(at(n))),
    ]
}

fn head_of(of: usize, seq: u64, doer: &Doer) -> ExecutionHead {
    ExecutionHead {
        state: doer.state,
        epoch: Epoch(seq),
        owner: doer.owner.map(worker),
        due: doer.due.map(at),
        priority: doer.priority,
        finished_at: doer.finished_at.map(at),
        parent: (of == 3).then(|| execution(0)),
        needs_person: doer.needs_person,
        ..head(of, seq)
    }
}

fn text(answer: impl fmt::Debug) -> String {
    format!("{answer:?}")
}

/// Does it, and returns the answer as text.
async fn act(store: &dyn Store, doing: &Doing) -> String {
    match doing {
        Doing::Append { of, after, events, head, heard } => {
            let mut append: Append = some_events(execution(*of), *after, *events);
            append.head = head.as_ref().map(|head| head_of(*of, append.end().0, head));
            append.heard = vec![command_id(*heard)];
            text(store.append(append).await)
        }
        Doing::PutHead { of, seq, doer } => text(store.put_head(head_of(*of, *seq, doer)).await),
        Doing::Read { of, after } => text(store.read(execution(*of), Seq(*after)).await),
        Doing::Due { now, most } => {
            text(store.find_heads(HeadQuery::Due { now: at(*now) }, *most).await)
        }
        Doing::Orphans { now } => {
            let heads = store.find_heads(HeadQuery::Orphans { now: at(*now) }, 100).await;
            text(heads.map(|mut heads| {
                heads.sort_by_key(|head| head.execution);
                heads
            }))
        }
        Doing::NextDue => text(store.next_due_at().await),
        Doing::Heartbeat { worker: n, until } => {
            let lease = Lease { worker: worker(*n), node: "n".to_owned(), until: at(*until) };
            text(store.renew_lease(lease).await)
        }
        Doing::Retire { worker: n } => text(store.remove_worker(worker(*n)).await),
        Doing::Send { n, of } => text(store.send_command(envelope(*n, *of, Command::Resume)).await),
        Doing::Inbox { of } => text(store.list_commands(of.map(execution)).await),
        Doing::Discard { n } => text(store.remove_commands(vec![command_id(*n)]).await),
        Doing::Acquire { holder, now } => acquire(store, &ask_of(*holder), *now).await,
        Doing::Release { holder } => {
            text(store.release_permits(vec![ask_of(*holder).permit]).await)
        }
        Doing::Workers { now } => text(store.list_workers(at(*now)).await),
        other => act_on_documents(store, other).await,
    }
}

/// Asks for permits. Stores may go by clocks of their own when they count calls, and those do not
/// go back: so where there is a rate it is always the same time.
async fn acquire(store: &dyn Store, ask: &PermitAsk, now: i64) -> String {
    let has_rate = ask.limits.iter().any(|limit| limit.rate.is_some());
    match store.acquire_permits(ask, at(if has_rate { 2 } else { now })).await {
        Ok(Permission::NotBefore(_)) => "not now".to_owned(),
        other => text(other),
    }
}

/// A holder asks for the same, whenever it asks.
fn ask_of(holder: usize) -> PermitAsk {
    let both = CallLimit { concurrency: Some(2), ..in_all("both", 4) };
    let limits = match holder % 4 {
        0 => vec![at_once("k", 2)],
        1 => vec![at_once("k", 1), in_all("rate", 3)],
        2 => vec![both, at_once("k", 2)],
        _ => vec![both],
    };
    ask(&format!("holder {holder}"), holder % 3, &limits)
}

async fn act_on_documents(store: &dyn Store, doing: &Doing) -> String {
    match doing {
        Doing::PutRequest { n } => text(store.put_request(&request(*n, "q", 0)).await),
        Doing::PutPlan { n, of, version } => {
            text(store.put_plan(&plan(*n, *of, *version, &["a.b"])).await)
        }
        Doing::PlansOf { n } => text(store.plan_versions(request_id(*n)).await),
        Doing::Heads { first, behind, state, needs, is_root } => {
            let cursor = |(seconds, n)| Cursor { at: at(seconds), id: execution(n).to_string() };
            let page = Page { first: *first, after: behind.map(cursor) };
            let states = state.iter().copied().collect();
            let (needs_person, is_root) = (*needs, *is_root);
            let filter = ExecutionFilter { states, needs_person, is_root, ..Default::default() };
            text(store.list_heads(&filter, &page).await)
        }
        Doing::Requests { first, state, needs } => {
            let (state, needs_person) = (*state, *needs);
            let filter = RequestFilter { state, needs_person, ..Default::default() };
            text(store.list_requests(&filter, &Page { first: *first, after: None }).await)
        }
        Doing::Reserve { key, of } => {
            let key = format!("key {key}");
            let execution = execution(*of);
            text(
                store
                    .reserve_key(&Reservation { key, execution, fingerprint: "f".to_owned() })
                    .await,
            )
        }
        Doing::Cache { key, until } => {
            // In the future, so that no store's own clock has passed it.
            text(store.cache_output(&format!("key {key}"), &json!(until), at(LATER + *until)).await)
        }
        Doing::Cached { key, now } => {
            text(store.find_output(&format!("key {key}"), at(LATER + *now)).await)
        }
        Doing::SavePlan { n } => {
            let name = "name".to_owned();
            let saved = SavedPlan { name, plan: plan_id(*n), inputs: None, at: at(0) };
            text(store.save_plan(&saved).await)
        }
        Doing::SavedPlan => text(store.find_saved_plan("name").await),
        Doing::SavedPlans => text(store.list_saved_plans(None, 5).await),
        Doing::Unsave => text(store.remove_saved_plan("name").await),
        Doing::PutRecord { .. }
        | Doing::RemoveRecord { .. }
        | Doing::Records { .. }
        | Doing::Revision => act_on_records(store, doing).await,
        Doing::Prune { before, most } => text(store.prune(at(*before), *most).await),
        other => unreachable!("{other:?} is no document"),
    }
}

async fn act_on_records(store: &dyn Store, doing: &Doing) -> String {
    match doing {
        Doing::PutRecord { kind, n, unless, at } => {
            text(store.put_record(&record(*kind, NAMES[*n], json!(at), *at), unless.clone()).await)
        }
        Doing::RemoveRecord { kind, n } => text(store.remove_record(*kind, NAMES[*n]).await),
        Doing::Records { kind, page } => text(store.list_records(*kind, page.clone()).await),
        Doing::Revision => text(store.records_revision().await),
        other => unreachable!("{other:?} is about no record"),
    }
}

async fn compare(doings: &[Doing], store: Arc<dyn Store>) -> TestCaseResult {
    let memory = Memory::new();
    for (n, doing) in doings.iter().enumerate() {
        let (expected, found) = (act(&memory, doing).await, act(&*store, doing).await);
        prop_assert_eq!(expected, found, "{}: {:?}", n, doing);
    }
    Ok(())
}

fn block_on(test: impl Future<Output = TestCaseResult>) -> TestCaseResult {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_file_answers_as_memory_does(doings in vec(doing(), 1..60)) {
        block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("sqlite:{}", folder.path().join("faber.db").display());
            compare(&doings, open_store(&url).await.unwrap()).await
        })?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn mongodb_answers_as_memory_does(doings in vec(doing(), 1..60)) {
        block_on(async {
            let url = Mongod::shared().await.fresh_url();
            compare(&doings, open_store(&url).await.unwrap()).await
        })?;
    }
}
