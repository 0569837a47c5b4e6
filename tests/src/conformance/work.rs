use chrono::TimeDelta;
use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{Epoch, Seq, WorkerId},
    labels::{self, Labels},
    limits,
    store::{Command, ExecutionHead, HeadError, HeadQuery, Lease, QueuePosition, StoreError},
    tool::ErrorCode,
};

use super::{StorePair, at, execution, head, inbox_command, worker};

fn due_head(n: usize, seconds: i64, priority: i32) -> ExecutionHead {
    ExecutionHead { due: Some(at(seconds)), priority, ..head(n, 1) }
}

fn owned_head(n: usize, by: usize) -> ExecutionHead {
    ExecutionHead {
        owner: Some(worker(by)),
        state: ExecutionState::InProgress,
        epoch: Epoch(3),
        ..head(n, 1)
    }
}

fn make_lease(n: usize, seconds: i64) -> Lease {
    Lease { worker: worker(n), node: "örtlich".to_owned(), until: at(seconds) }
}

async fn find_due(pair: &StorePair, now: Timestamp, limit: usize) -> Vec<ExecutionHead> {
    pair.other.find_heads(HeadQuery::Due { now, turn: 0 }, limit).await.unwrap()
}

async fn find_orphans(pair: &StorePair, seconds: i64) -> Vec<ExecutionHead> {
    let mut heads =
        pair.other.find_heads(HeadQuery::Orphans { now: at(seconds) }, 100).await.unwrap();
    heads.sort_by_key(|head| head.execution);
    heads
}

async fn put_heads(pair: &StorePair, heads: impl IntoIterator<Item = ExecutionHead>) {
    for head in heads {
        pair.put_head(head).await;
    }
}

/// A head is returned unchanged, and an older head never replaces a newer head.
pub async fn an_older_head_never_replaces_a_newer_one(pair: StorePair) {
    let labels = [("team", "a=b"), ("app.io/name", "x\u{0}ö"), ("none", "")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    // These fields are the same in each head of an execution.
    let head = |n, seq| ExecutionHead {
        query: "Grüße \u{0} \"an\" alle".into(),
        steps_total: 7,
        labels: labels.clone().into(),
        is_dry_run: true,
        ..head(n, seq)
    };
    let error = |tool: Option<&str>| HeadError {
        code: ErrorCode::custom("golden.no".to_owned()),
        tool: tool.map(|tool| tool.parse().unwrap()),
        message: "never \u{0}".into(),
    };
    let full = ExecutionHead {
        started_at: Some(at(6) + TimeDelta::microseconds(17)),
        steps_done: 3,
        error: Some(error(Some("set.tool"))),
        state: ExecutionState::Waiting,
        epoch: Epoch(u64::from(u32::MAX) + 7),
        owner: Some(worker(1)),
        due: Some(at(5)),
        priority: i32::MIN,
        finished_at: Some(at(7)),
        parent: Some(execution(8)),
        ..head(1, 5)
    };
    assert_eq!(pair.other.head(execution(1)).await.unwrap(), None);
    put_heads(&pair, [full.clone()]).await;
    assert_eq!(pair.other.head(execution(1)).await.unwrap(), Some(full.clone()));
    put_heads(&pair, [head(1, 4)]).await;
    assert_eq!(pair.other.head(execution(1)).await.unwrap(), Some(full));
    let same = ExecutionHead { parent: Some(execution(8)), error: Some(error(None)), ..head(1, 5) };
    put_heads(&pair, [same.clone()]).await;
    assert_eq!(pair.other.head(execution(1)).await.unwrap(), Some(same));
    let over = ExecutionHead {
        state: ExecutionState::Completed,
        finished_at: Some(at(9)),
        parent: Some(execution(8)),
        ..head(1, 6)
    };
    put_heads(&pair, [over.clone()]).await;
    assert_eq!(pair.other.head(execution(1)).await.unwrap(), Some(over));
}

/// Due executions are listed by priority, then by time. Executions with an owner or without a due
/// time are not listed.
pub async fn due_executions_are_listed_by_priority_and_time(pair: StorePair) {
    let ordered = [
        due_head(5, 9, 7),
        due_head(4, 0, 0),
        due_head(3, 1, 0),
        due_head(2, 2, 0),
        due_head(1, 0, -3),
    ];
    put_heads(&pair, ordered.clone()).await;
    let not_yet = [due_head(10, 11, 7), due_head(11, 11, 99), due_head(12, 11, 0)];
    put_heads(&pair, not_yet).await;
    put_heads(&pair, [ExecutionHead { due: Some(at(0)), ..owned_head(20, 1) }, head(21, 1)]).await;
    for (state, n) in ExecutionState::ALL.into_iter().filter(|state| state.is_finished()).zip(30..)
    {
        put_heads(&pair, [ExecutionHead { state, ..due_head(n, 0, 7) }]).await;
    }
    assert_eq!(find_due(&pair, at(10), 100).await, ordered);
    assert_eq!(find_due(&pair, at(10), 4).await[..3], ordered[..3]);
    assert_eq!(find_due(&pair, at(10), 0).await, []);
    assert_eq!(
        find_due(&pair, at(9), 1).await,
        ordered[..1],
        "an execution that is due now is listed"
    );
    assert_eq!(find_due(&pair, at(-1), 100).await, []);
}

/// Lists contain some executions that have been due longest, at any priority, so that no execution
/// starves. A list of one execution has such an execution only in every eighth turn.
pub async fn the_longest_due_are_listed_whatever_their_priority(pair: StorePair) {
    put_heads(&pair, (1..=30).map(|n| due_head(n, 5, 9))).await;
    let patient = [due_head(41, 1, -9), due_head(42, 2, 0), due_head(43, 3, -3)];
    put_heads(&pair, patient.clone()).await;
    let found = find_due(&pair, at(10), 16).await;
    assert_eq!(found.len(), 16);
    assert!(found[..14].iter().all(|head| head.priority == 9), "{found:?}");
    assert_eq!(found[14..], patient[..2]);
    assert_eq!(find_due(&pair, at(10), 2).await, [due_head(1, 5, 9), due_head(41, 1, -9)]);
    assert_eq!(find_due(&pair, at(10), 1).await, [due_head(1, 5, 9)]);
    let eighth = HeadQuery::Due { now: at(10), turn: 7 };
    assert_eq!(pair.other.find_heads(eighth, 1).await.unwrap(), patient[..1]);
    let all = find_due(&pair, at(10), 100).await;
    assert_eq!(all.len(), 33);
    assert_eq!(all[30..], [due_head(42, 2, 0), due_head(43, 3, -3), due_head(41, 1, -9)]);
}

fn labels_of(token: &str) -> Labels {
    let mut labels = Labels::new();
    labels::set_token(&mut labels, Some(token));
    labels
}

/// A token with many due executions does not hide the execution of another token, whatever their
/// priorities. The turn says which token is first.
pub async fn tokens_take_turns_in_a_list_of_due_executions(pair: StorePair) {
    let of = |token: &str, head: ExecutionHead| ExecutionHead { labels: labels_of(token), ..head };
    put_heads(&pair, (1..=30).map(|n| of("a", due_head(n, 0, 9)))).await;
    put_heads(&pair, [of("b", due_head(41, 8, -1)), of("b", due_head(42, 9, 3))]).await;
    put_heads(&pair, [due_head(51, 7, 0), of("c", due_head(61, 99, 0))]).await;
    let list = async |turn, most| {
        let query = HeadQuery::Due { now: at(10), turn };
        let found = pair.other.find_heads(query, most).await.unwrap();
        found.iter().map(|head| head.execution).collect::<Vec<_>>()
    };
    // The tokens are: none, `a`, `b`, and `c`, which has nothing due.
    assert_eq!(list(0, 1).await, [execution(51)]);
    assert_eq!(list(1, 1).await, [execution(1)]);
    assert_eq!(list(2, 1).await, [execution(42)]);
    assert_eq!(list(3, 1).await, [execution(51)]);
    assert_eq!(list(5, 1).await, [execution(1)]);
    let found = list(0, 16).await;
    assert_eq!(found.len(), 16);
    assert_eq!(found[..4], [51, 1, 42, 2].map(execution));
    assert!(found.contains(&execution(41)), "{found:?}");
    assert_eq!(list(1, 100).await.len(), 33, "nothing is hidden");
}

/// A token whose executions are not due yet leaves its places to the executions of other tokens, the
/// highest priority first.
pub async fn tokens_without_due_executions_leave_their_places(pair: StorePair) {
    let of = |token: &str, head: ExecutionHead| ExecutionHead { labels: labels_of(token), ..head };
    put_heads(&pair, (1..=20).map(|n| of("a", due_head(n, 0, 0)))).await;
    put_heads(&pair, (21..=40).map(|n| of("a", due_head(n, 5, 9)))).await;
    put_heads(&pair, [of("b", due_head(51, 6, 3)), of("b", due_head(52, 99, 3))]).await;
    put_heads(&pair, [of("c", due_head(61, 99, 0)), due_head(71, 99, 0)]).await;
    let found = find_due(&pair, at(10), 16).await;
    let found: Vec<_> = found.iter().map(|head| head.execution).collect();
    // The last places are for the executions that have been due longest.
    let expected = [21, 51].into_iter().chain(22..=33).chain([1, 2]);
    assert_eq!(found, expected.map(execution).collect::<Vec<_>>());
}

/// The executions of a token are counted until they finish, and their bytes until they are removed.
pub async fn the_executions_and_bytes_of_a_token_are_counted(pair: StorePair) {
    let of = |token: &str, n, stored_bytes| ExecutionHead {
        labels: labels_of(token),
        stored_bytes,
        ..head(n, 1)
    };
    put_heads(&pair, [of("a", 1, 100), of("a", 2, 20), of("b", 3, 7), head(4, 1)]).await;
    let counts = async |token: &str| {
        let active = pair.other.count_active(token).await.unwrap();
        (active, pair.other.sum_stored_bytes(token).await.unwrap())
    };
    assert_eq!(counts("a").await, (2, 120));
    assert_eq!(counts("b").await, (1, 7));
    assert_eq!(counts("c").await, (0, 0));
    let over = ExecutionHead {
        state: ExecutionState::Completed,
        finished_at: Some(at(1)),
        seq: Seq(2),
        ..of("a", 1, 1_000)
    };
    pair.put_head(over.clone()).await;
    assert_eq!(counts("a").await, (1, 1_020));
    assert_eq!(pair.other.head(execution(1)).await.unwrap(), Some(over));
    assert_eq!(pair.one.prune(at(5), 10).await.unwrap().executions, 1);
    assert_eq!(counts("a").await, (1, 20), "the bytes fall when the execution is removed");
}

/// A list contains a limited number of priorities, the highest first. The executions that have been
/// due longest follow.
pub async fn a_due_list_reads_a_limited_number_of_priorities(pair: StorePair) {
    let limit = i32::try_from(limits::PRIORITIES).unwrap();
    let asleep = (1..limit).map(|n| due_head(n.unsigned_abs() as usize, 1_000, n + 100));
    put_heads(&pair, asleep).await;
    let [high, middle, low] = [due_head(101, 5, 3), due_head(102, 4, 2), due_head(103, 3, 1)];
    put_heads(&pair, [high.clone(), middle.clone(), low.clone()]).await;
    assert_eq!(find_due(&pair, at(10), 100).await, [high.clone(), low.clone(), middle]);
    assert_eq!(find_due(&pair, at(10), 2).await, [high.clone(), low]);
    assert_eq!(find_due(&pair, at(10), 1).await, [high]);
}

/// The executions that have been due longest come first.
pub async fn due_executions_can_be_paged_through(pair: StorePair) {
    let some = |n: i32| due_head(n.unsigned_abs() as usize, i64::from(n / 3), n % 2);
    put_heads(&pair, (1..=9).map(some)).await;
    put_heads(
        &pair,
        [due_head(20, 11, 0), ExecutionHead { due: Some(at(0)), ..owned_head(21, 1) }, head(22, 1)],
    )
    .await;
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let query = HeadQuery::DueAfter { now: at(10), after };
        let part = pair.other.find_heads(query, 4).await.unwrap();
        after = part
            .last()
            .and_then(|head| Some(QueuePosition { due: head.due?, execution: head.execution }));
        found.extend(part.iter().map(|head| head.execution));
        if part.len() < 4 {
            break;
        }
    }
    assert_eq!(found, (1..=9).map(execution).collect::<Vec<_>>());
    let query = HeadQuery::DueAfter { now: at(10), after: None };
    assert_eq!(pair.other.find_heads(query, 0).await.unwrap(), []);
}

/// A head without a log is not stored, so a late write does not bring a removed execution back.
pub async fn a_head_without_a_log_is_not_stored(pair: StorePair) {
    pair.one.put_head(due_head(1, 0, 0)).await.unwrap();
    assert_eq!(pair.other.head(execution(1)).await.unwrap(), None);
    assert_eq!(find_due(&pair, at(10), 10).await, []);
    // Now the log exists, so the head is stored.
    pair.append(execution(1), 0, 1).await;
    pair.one.put_head(due_head(1, 0, 0)).await.unwrap();
    assert_eq!(find_due(&pair, at(10), 10).await, [due_head(1, 0, 0)]);
    let over = ExecutionHead {
        state: ExecutionState::Completed,
        finished_at: Some(at(1)),
        seq: shared::id::Seq(2),
        ..head(1, 2)
    };
    pair.one.put_head(over.clone()).await.unwrap();
    assert_eq!(pair.one.prune(at(5), 10).await.unwrap().executions, 1);
    pair.other.put_head(over).await.unwrap();
    assert_eq!(pair.one.head(execution(1)).await.unwrap(), None, "the execution was removed");
}

/// A finished execution keeps its owner until the parent is informed. If the owner is lost before
/// that, the execution is an orphan.
pub async fn a_finished_execution_with_an_owner_can_be_an_orphan(pair: StorePair) {
    let over = ExecutionHead {
        state: ExecutionState::Failed,
        finished_at: Some(at(3)),
        parent: Some(execution(2)),
        ..owned_head(1, 1)
    };
    let mut append = super::some_events(execution(1), 0, 1);
    append.head = Some(over.clone());
    pair.one.append(append).await.unwrap();
    assert_eq!(pair.other.head(execution(1)).await.unwrap(), Some(over.clone()));
    assert_eq!(find_orphans(&pair, 0).await, std::slice::from_ref(&over));
    pair.one.renew_lease(make_lease(1, 10)).await.unwrap();
    assert_eq!(find_orphans(&pair, 0).await, []);
    assert_eq!(find_orphans(&pair, 10).await, std::slice::from_ref(&over));
    put_heads(&pair, [ExecutionHead { owner: None, ..over }]).await;
    assert_eq!(find_orphans(&pair, 10).await, []);
    assert_eq!(find_due(&pair, at(10), 10).await, []);
}

/// The next due time is the earliest of the executions without owner.
pub async fn the_next_due_time_is_the_earliest(pair: StorePair) {
    assert_eq!(pair.other.next_due_at().await.unwrap(), None);
    put_heads(&pair, [ExecutionHead { due: Some(at(1)), ..owned_head(1, 1) }, head(2, 1)]).await;
    assert_eq!(pair.other.next_due_at().await.unwrap(), None);
    put_heads(&pair, [due_head(3, 9, 5), due_head(4, 7, -5), due_head(5, 8, 0)]).await;
    assert_eq!(pair.other.next_due_at().await.unwrap(), Some(at(7)));
    put_heads(&pair, [ExecutionHead { owner: Some(worker(1)), ..due_head(4, 7, -5) }]).await;
    assert_eq!(pair.other.next_due_at().await.unwrap(), Some(at(8)));
}

pub async fn executions_are_orphans_after_the_lease_expired(pair: StorePair) {
    pair.one.renew_lease(make_lease(1, 10)).await.unwrap();
    pair.one.renew_lease(make_lease(2, 20)).await.unwrap();
    put_heads(&pair, [owned_head(1, 1), owned_head(2, 1), owned_head(3, 2), due_head(4, 0, 0)])
        .await;
    assert_eq!(find_orphans(&pair, 9).await, []);
    assert_eq!(find_orphans(&pair, 10).await, [owned_head(1, 1), owned_head(2, 1)]);
    let mut owned_heads = pair.other.find_heads(HeadQuery::OwnedBy(worker(1)), 10).await.unwrap();
    owned_heads.sort_by_key(|head| head.execution);
    assert_eq!(owned_heads, [owned_head(1, 1), owned_head(2, 1)]);
    assert_eq!(pair.other.find_heads(HeadQuery::OwnedBy(worker(1)), 1).await.unwrap().len(), 1);
    assert_eq!(pair.other.find_heads(HeadQuery::OwnedBy(worker(3)), 10).await.unwrap(), []);
    assert_eq!(
        pair.other.find_heads(HeadQuery::Orphans { now: at(10) }, 1).await.unwrap().len(),
        1
    );
    pair.one.renew_lease(make_lease(1, 30)).await.unwrap();
    assert_eq!(find_orphans(&pair, 10).await, []);
    assert_eq!(find_orphans(&pair, 20).await, [owned_head(3, 2)]);
    put_heads(&pair, [ExecutionHead { owner: None, seq: shared::id::Seq(2), ..owned_head(3, 2) }])
        .await;
    assert_eq!(find_orphans(&pair, 20).await, []);
}

/// Executions of a worker that was removed, or never had a lease, are orphans without a delay.
pub async fn executions_of_a_removed_worker_are_orphans_at_once(pair: StorePair) {
    pair.one.renew_lease(make_lease(1, 10)).await.unwrap();
    put_heads(&pair, [owned_head(1, 1), owned_head(2, 2)]).await;
    assert_eq!(find_orphans(&pair, 0).await, [owned_head(2, 2)]);
    pair.one.remove_worker(worker(1)).await.unwrap();
    assert_eq!(find_orphans(&pair, 0).await, [owned_head(1, 1), owned_head(2, 2)]);
    let nobody: WorkerId = worker(9);
    pair.one.remove_worker(nobody).await.unwrap();
}

pub async fn commands_are_listed_in_order_until_discarded(pair: StorePair) {
    let step = "a.b".parse().unwrap();
    let approve =
        Command::Approve { step, item: None, approved: false, comment: Some("nein".to_owned()) };
    let commands = [
        inbox_command(9, 1, Command::Cancel { reason: Some("\u{0}".to_owned()) }),
        inbox_command(3, 2, Command::Pause),
        inbox_command(7, 1, Command::Resume),
        inbox_command(1, 1, approve),
    ];
    for command in &commands {
        pair.one.send_command(command.clone()).await.unwrap();
    }
    // The same command is sent again, and must be listed only once.
    pair.one.send_command(commands[0].clone()).await.unwrap();
    assert_eq!(pair.other.list_commands(None).await.unwrap(), commands);
    let [first, _, third, fourth] = commands.clone();
    let of_one = pair.other.list_commands(Some(execution(1))).await.unwrap();
    assert_eq!(of_one, [first.clone(), third.clone(), fourth.clone()]);
    assert_eq!(pair.other.list_commands(Some(execution(5))).await.unwrap(), []);
    pair.one.remove_commands(vec![first.id, third.id, super::command_id(99)]).await.unwrap();
    pair.one.remove_commands(Vec::new()).await.unwrap();
    assert_eq!(pair.other.list_commands(Some(execution(1))).await.unwrap(), [fourth]);
}

pub async fn a_full_inbox_refuses_commands(pair: StorePair) {
    let send = |n| pair.one.send_command(inbox_command(n, 1, Command::Pause));
    for chunk in (0..limits::INBOX_COMMANDS).collect::<Vec<_>>().chunks(100) {
        futures::future::join_all(chunk.iter().map(|number| send(*number)))
            .await
            .into_iter()
            .for_each(|sent| sent.unwrap());
    }
    let refused = send(limits::INBOX_COMMANDS).await;
    assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
    send(5).await.expect("the command is in the inbox already");
    let to_another = inbox_command(limits::INBOX_COMMANDS, 2, Command::Pause);
    pair.one.send_command(to_another).await.unwrap();
    assert_eq!(
        pair.other.list_commands(Some(execution(1))).await.unwrap().len(),
        limits::INBOX_COMMANDS
    );
    assert_eq!(pair.other.list_commands(None).await.unwrap().len(), limits::INBOX_COMMANDS + 1);
    pair.one.remove_commands(vec![super::command_id(3)]).await.unwrap();
    pair.one
        .send_command(inbox_command(limits::INBOX_COMMANDS + 1, 1, Command::Pause))
        .await
        .unwrap();
}

/// The list of all inboxes is limited by number and bytes, because workers poll it.
pub async fn the_list_of_all_inboxes_is_bounded(pair: StorePair) {
    let payload = std::sync::Arc::new(serde_json::json!("x".repeat(1 << 20)));
    let large = |n| {
        let command = Command::Signal { name: "s".to_owned(), payload: payload.clone() };
        inbox_command(n, n, command)
    };
    for n in 0..20 {
        pair.one.send_command(large(n)).await.unwrap();
    }
    let seen = pair.other.list_commands(None).await.unwrap();
    let expected = if pair.is_encrypted().await { 12 } else { 16 };
    assert_eq!(seen.len(), expected, "the first commands");
    assert!(seen.iter().zip(0..).all(|(head, n)| head.execution == execution(n)));
    pair.one.remove_commands((0..20).map(super::command_id).collect()).await.unwrap();
    let small = |n: usize| pair.one.send_command(inbox_command(n, n / 100, Command::Resume));
    for chunk in (0..limits::INBOX_POLL_COMMANDS + 50).collect::<Vec<_>>().chunks(500) {
        futures::future::join_all(chunk.iter().map(|number| small(*number)))
            .await
            .into_iter()
            .for_each(|sent| sent.unwrap());
    }
    assert_eq!(pair.other.list_commands(None).await.unwrap().len(), limits::INBOX_POLL_COMMANDS);
}
