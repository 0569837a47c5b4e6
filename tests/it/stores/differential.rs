//! Runs the same random operations on every store, and compares the answers.

use std::{fmt, sync::Arc, time::Duration};

use engine::store::open_store;
use proptest::{collection::vec, option::of as some, prelude::*, test_runner::TestCaseResult};
use serde_json::json;
use shared::{
    execution::ExecutionState,
    id::{Epoch, Seq},
    labels::Labels,
    store::{
        Append, CallLimit, Command, CountGroup, CountQuery, Cursor, ExecutionFilter, ExecutionHead,
        HeadError, HeadQuery, Lease, Page, Permission, PermitAsk, RecordKind, RecordPage,
        RequestFilter, Reservation, SavedPlan, Store, WriteCondition, memory::Memory,
    },
    tool::ErrorCode,
};
use tests::conformance::{
    at, command_id, concurrency_limit, execution, head, inbox_command, permit_request, plan,
    plan_id, record, request, request_id, some_events, total_limit, worker,
};

use crate::mongod::Mongod;

/// A time that is later than the wall clock, in seconds after `at(0)`.
const FAR_FUTURE_SECONDS: i64 = 1_000_000_000;

/// An operation on a store. Its numbers are small, so that several operations concern the same
/// object.
#[derive(Clone, Debug)]
enum Operation {
    Append {
        of: usize,
        after: u64,
        events: usize,
        head: Option<HeadFields>,
        heard: usize,
    },
    PutHead {
        of: usize,
        seq: u64,
        head_fields: HeadFields,
    },
    Read {
        of: usize,
        after: u64,
    },
    Due {
        now: i64,
        limit: usize,
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
        from_end: bool,
    },
    Counts {
        groups: Vec<CountGroup>,
        states: Vec<ExecutionState>,
        first: usize,
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
        limit: usize,
    },
}

#[derive(Clone, Debug)]
struct HeadFields {
    owner: Option<usize>,
    due: Option<i64>,
    priority: i32,
    state: ExecutionState,
    finished_at: Option<i64>,
    needs_person: bool,
}

fn any_state() -> impl Strategy<Value = ExecutionState> {
    prop::sample::select(ExecutionState::ALL.to_vec())
}

fn any_head_fields() -> impl Strategy<Value = HeadFields> {
    let parts =
        (some(0..3_usize), some(0..6_i64), -1..2_i32, any_state(), some(0..6_i64), any::<bool>());
    parts.prop_map(|(owner, due, priority, state, finished_at, needs_person)| HeadFields {
        owner,
        due,
        priority,
        state,
        finished_at,
        needs_person,
    })
}

/// Names of records. Some names are prefixes of other names, and some sort between a name and its
/// prefix.
const NAMES: [&str; 6] = ["a", "a/", "a/b", "a/ö", "a0", "ö"];

fn any_kind() -> impl Strategy<Value = RecordKind> {
    prop::sample::select(vec![RecordKind::Tool, RecordKind::Memory, RecordKind::Call])
}

fn record_page() -> impl Strategy<Value = RecordPage> {
    let name = || some(prop::sample::select(NAMES.to_vec()));
    (name(), name(), 0..4_usize, any::<bool>()).prop_map(|(prefix, after, first, newest)| {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        RecordPage { prefix: owned(prefix), after: owned(after), first, newest, names_only: false }
    })
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let of = 0..4_usize;
    prop_oneof![
        6 => (of.clone(), 0..6_u64, 1..4_usize, some(any_head_fields()), 0..4_usize).prop_map(
            |(of, after, events, head, heard)| Operation::Append { of, after, events, head, heard }),
        2 => (of.clone(), 0..6_u64, any_head_fields())
            .prop_map(|(of, seq, head_fields)| Operation::PutHead { of, seq, head_fields }),
        2 => (of.clone(), 0..6_u64).prop_map(|(of, after)| Operation::Read { of, after }),
        2 => (0..6_i64, 0..4_usize).prop_map(|(now, limit)| Operation::Due { now, limit }),
        1 => (0..6_i64).prop_map(|now| Operation::Orphans { now }),
        1 => Just(Operation::NextDue),
        1 => (0..3_usize, 0..6_i64).prop_map(|(worker, until)| Operation::Heartbeat { worker, until }),
        1 => (0..3_usize).prop_map(|worker| Operation::Retire { worker }),
        1 => (0..4_usize, of.clone()).prop_map(|(n, of)| Operation::Send { n, of }),
        1 => some(of.clone()).prop_map(|of| Operation::Inbox { of }),
        1 => (0..4_usize).prop_map(|n| Operation::Discard { n }),
        1 => of.clone().prop_map(|n| Operation::PutRequest { n }),
        1 => (of.clone(), of.clone(), 1..3_u32)
            .prop_map(|(n, of, version)| Operation::PutPlan { n, of, version }),
        1 => of.clone().prop_map(|n| Operation::PlansOf { n }),
        2 => (0..4_usize, some((0..2_i64, of.clone())), some(any_state()), some(any::<bool>()),
                any::<bool>(), any::<bool>())
            .prop_map(|(first, behind, state, needs, is_root, from_end)|
                Operation::Heads { first, behind, state, needs, is_root, from_end }),
        3 => (vec(any_group(), 1..3), some(any_state()), 0..4_usize).prop_map(
            |(groups, state, first)| Operation::Counts { groups, states: state.into_iter().collect(), first }),
        1 => (0..4_usize, some(any_state()), some(any::<bool>()))
            .prop_map(|(first, state, needs)| Operation::Requests { first, state, needs }),
        1 => (0..2_usize, of.clone()).prop_map(|(key, of)| Operation::Reserve { key, of }),
        5 => (0..6_usize, 0..6_i64).prop_map(|(holder, now)| Operation::Acquire { holder, now }),
        2 => (0..6_usize).prop_map(|holder| Operation::Release { holder }),
        1 => (0..6_i64).prop_map(|now| Operation::Workers { now }),
        1 => (0..2_usize, 0..6_i64).prop_map(|(key, until)| Operation::Cache { key, until }),
        1 => (0..2_usize, 0..6_i64).prop_map(|(key, now)| Operation::Cached { key, now }),
        1 => of.prop_map(|n| Operation::SavePlan { n }),
        1 => Just(Operation::SavedPlan),
        1 => Just(Operation::SavedPlans),
        1 => Just(Operation::Unsave),
        4 => (any_kind(), 0..NAMES.len(), any_condition(), 0..6_i64)
            .prop_map(|(kind, n, unless, at)| Operation::PutRecord { kind, n, unless, at }),
        1 => (any_kind(), 0..NAMES.len()).prop_map(|(kind, n)| Operation::RemoveRecord { kind, n }),
        2 => (any_kind(), record_page()).prop_map(|(kind, page)| Operation::Records { kind, page }),
        1 => Just(Operation::Revision),
        2 => (0..7_i64, 0..4_usize).prop_map(|(before, limit)| Operation::Prune { before, limit }),
    ]
}

fn any_group() -> impl Strategy<Value = CountGroup> {
    use CountGroup::{Bucket, Error, Label, Plan, State, Tool};
    let buckets = [1_000, 60_000, 86_400_000].map(|ms| Bucket(Duration::from_millis(ms)));
    let others = [State, Tool, Error, Plan, Label("team".to_owned())];
    prop::sample::select([buckets.to_vec(), others.to_vec()].concat())
}

fn any_condition() -> impl Strategy<Value = WriteCondition> {
    prop_oneof![
        Just(WriteCondition::Never),
        Just(WriteCondition::Exists),
        (0..6_i64).prop_map(|n| WriteCondition::ChangedSince(at(n))),
    ]
}

fn head_of(of: usize, seq: u64, head_fields: &HeadFields) -> ExecutionHead {
    ExecutionHead {
        state: head_fields.state,
        epoch: Epoch(seq),
        owner: head_fields.owner.map(worker),
        due: head_fields.due.map(at),
        priority: head_fields.priority,
        finished_at: head_fields.finished_at.map(at),
        parent: (of == 3).then(|| execution(0)),
        needs_person: head_fields.needs_person,
        labels: if of == 1 {
            [("team".to_owned(), "a=b".to_owned())].into()
        } else {
            Labels::new()
        },
        error: (head_fields.priority < 0).then(|| HeadError {
            code: ErrorCode::FAILED,
            tool: (of == 2).then(|| "set.tool".parse().unwrap()),
            message: "no".into(),
        }),
        ..head(of, seq)
    }
}

fn debug_text(answer: impl fmt::Debug) -> String {
    format!("{answer:?}")
}

async fn run_operation(store: &dyn Store, operation: &Operation) -> String {
    match operation {
        Operation::Append { of, after, events, head, heard } => {
            let mut append: Append = some_events(execution(*of), *after, *events);
            append.head = head.as_ref().map(|head| head_of(*of, append.end().0, head));
            append.handled_commands = vec![command_id(*heard)];
            debug_text(store.append(append).await)
        }
        Operation::PutHead { of, seq, head_fields } => {
            debug_text(store.put_head(head_of(*of, *seq, head_fields)).await)
        }
        Operation::Read { of, after } => debug_text(store.read(execution(*of), Seq(*after)).await),
        Operation::Due { now, limit } => {
            debug_text(store.find_heads(HeadQuery::Due { now: at(*now), turn: 0 }, *limit).await)
        }
        Operation::Orphans { now } => {
            let heads = store.find_heads(HeadQuery::Orphans { now: at(*now) }, 100).await;
            debug_text(heads.map(|mut heads| {
                heads.sort_by_key(|head| head.execution);
                heads
            }))
        }
        Operation::NextDue => debug_text(store.next_due_at().await),
        Operation::Heartbeat { worker: n, until } => {
            let lease = Lease { worker: worker(*n), node: "n".to_owned(), until: at(*until) };
            debug_text(store.renew_lease(lease).await)
        }
        Operation::Retire { worker: n } => debug_text(store.remove_worker(worker(*n)).await),
        Operation::Send { n, of } => {
            debug_text(store.send_command(inbox_command(*n, *of, Command::Resume)).await)
        }
        Operation::Inbox { of } => debug_text(store.list_commands(of.map(execution)).await),
        Operation::Discard { n } => debug_text(store.remove_commands(vec![command_id(*n)]).await),
        Operation::Acquire { holder, now } => {
            acquire_permits(store, &permits_of(*holder), *now).await
        }
        Operation::Release { holder } => {
            debug_text(store.release_permits(vec![permits_of(*holder).permit]).await)
        }
        Operation::Workers { now } => debug_text(store.list_workers(at(*now)).await),
        other => run_on_documents(store, other).await,
    }
}

/// Asks for permits. With a rate limit, the time is always the same, because some stores count
/// calls by their own clock, which never goes back.
async fn acquire_permits(store: &dyn Store, ask: &PermitAsk, now: i64) -> String {
    let has_rate = ask.limits.iter().any(|limit| limit.rate.is_some());
    match store.acquire_permits(ask, at(if has_rate { 2 } else { now })).await {
        Ok(Permission::NotBefore(_)) => "not now".to_owned(),
        other => debug_text(other),
    }
}

fn permits_of(holder: usize) -> PermitAsk {
    let both = CallLimit { concurrency: Some(2), ..total_limit("both", 4) };
    let limits = match holder % 4 {
        0 => vec![concurrency_limit("k", 2)],
        1 => vec![concurrency_limit("k", 1), total_limit("rate", 3)],
        2 => vec![both, concurrency_limit("k", 2)],
        _ => vec![both],
    };
    permit_request(&format!("holder {holder}"), holder % 3, &limits)
}

async fn run_on_documents(store: &dyn Store, operation: &Operation) -> String {
    match operation {
        Operation::PutRequest { n } => debug_text(store.put_request(&request(*n, "q", 0)).await),
        Operation::PutPlan { n, of, version } => {
            debug_text(store.put_plan(&plan(*n, *of, *version, &["a.b"])).await)
        }
        Operation::PlansOf { n } => debug_text(store.plan_versions(request_id(*n)).await),
        Operation::Heads { first, behind, state, needs, is_root, from_end } => {
            let cursor = |(seconds, n)| Cursor { at: at(seconds), id: execution(n).to_string() };
            let page = Page {
                after: behind.map(cursor),
                first: *first,
                before: None,
                from_end: *from_end,
            };
            let states = state.iter().copied().collect();
            let (needs_person, is_root) = (*needs, *is_root);
            let filter = ExecutionFilter { states, needs_person, is_root, ..Default::default() };
            debug_text(store.list_heads(&filter, &page).await)
        }
        Operation::Counts { groups, states, first } => {
            let filter = ExecutionFilter { states: states.clone(), ..Default::default() };
            let total = store.count_heads(&filter).await;
            let query = CountQuery { filter, groups: groups.clone(), first: *first };
            debug_text((store.count_executions(&query).await, total))
        }
        Operation::Requests { first, state, needs } => {
            let (state, needs_person) = (*state, *needs);
            let filter = RequestFilter { state, needs_person, ..Default::default() };
            debug_text(store.list_requests(&filter, &Page::first_items(*first)).await)
        }
        Operation::Reserve { key, of } => {
            let key = format!("key {key}");
            let execution = execution(*of);
            debug_text(
                store
                    .reserve_key(&Reservation { key, execution, fingerprint: "f".to_owned() })
                    .await,
            )
        }
        Operation::Cache { key, until } => {
            // The time is in the future, so that no store's own clock has passed it.
            debug_text(
                store
                    .cache_output(
                        &format!("key {key}"),
                        &json!(until),
                        at(FAR_FUTURE_SECONDS + *until),
                    )
                    .await,
            )
        }
        Operation::Cached { key, now } => debug_text(
            store.find_output(&format!("key {key}"), at(FAR_FUTURE_SECONDS + *now)).await,
        ),
        Operation::SavePlan { n } => {
            let name = "name".to_owned();
            let saved = SavedPlan { name, plan: plan_id(*n), inputs: None, at: at(0) };
            debug_text(store.save_plan(&saved).await)
        }
        Operation::SavedPlan => debug_text(store.find_saved_plan("name").await),
        Operation::SavedPlans => debug_text(store.list_saved_plans(None, 5).await),
        Operation::Unsave => debug_text(store.remove_saved_plan("name").await),
        Operation::PutRecord { .. }
        | Operation::RemoveRecord { .. }
        | Operation::Records { .. }
        | Operation::Revision => run_on_records(store, operation).await,
        Operation::Prune { before, limit } => debug_text(store.prune(at(*before), *limit).await),
        other => unreachable!("{other:?} is not a document"),
    }
}

async fn run_on_records(store: &dyn Store, operation: &Operation) -> String {
    match operation {
        Operation::PutRecord { kind, n, unless, at } => debug_text(
            store.put_record(&record(*kind, NAMES[*n], json!(at), *at), unless.clone()).await,
        ),
        Operation::RemoveRecord { kind, n } => {
            debug_text(store.remove_record(*kind, NAMES[*n]).await)
        }
        Operation::Records { kind, page } => {
            debug_text(store.list_records(*kind, page.clone()).await)
        }
        Operation::Revision => debug_text(store.records_revision().await),
        other => unreachable!("{other:?} is not an operation on records"),
    }
}

async fn compare_with_memory(operations: &[Operation], store: Arc<dyn Store>) -> TestCaseResult {
    let memory = Memory::new();
    for (n, operation) in operations.iter().enumerate() {
        let (expected, found) =
            (run_operation(&memory, operation).await, run_operation(&*store, operation).await);
        prop_assert_eq!(expected, found, "{}: {:?}", n, operation);
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
    fn sqlite_answers_like_the_memory_store(operations in vec(any_operation(), 1..60)) {
        block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("sqlite:{}", folder.path().join("faber.db").display());
            compare_with_memory(&operations, open_store(&url).await.unwrap()).await
        })?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn mongodb_answers_like_the_memory_store(operations in vec(any_operation(), 1..60)) {
        block_on(async {
            let url = Mongod::shared().await.new_database_url();
            compare_with_memory(&operations, open_store(&url).await.unwrap()).await
        })?;
    }
}
