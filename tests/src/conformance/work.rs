//! Claims: who has what, who is gone, what is due.

use shared::{
    clock::Timestamp,
    execution::ExecutionState,
    id::{Epoch, WorkerId},
    limits,
    store::{Command, ExecutionHead, HeadQuery, Lease, QueuePosition, StoreError},
};

use super::{World, at, envelope, execution, head, worker};

fn due(n: usize, seconds: i64, priority: i32) -> ExecutionHead {
    ExecutionHead { due: Some(at(seconds)), priority, ..head(n, 1) }
}

fn owned(n: usize, by: usize) -> ExecutionHead {
    ExecutionHead {
        owner: Some(worker(by)),
        state: ExecutionState::InProgress,
        epoch: Epoch(3),
        ..head(n, 1)
    }
}

fn lease(n: usize, seconds: i64) -> Lease {
    Lease { worker: worker(n), node: "örtlich".to_owned(), until: at(seconds) }
}

async fn due_at(world: &World, now: Timestamp, most: usize) -> Vec<ExecutionHead> {
    world.other.find_heads(HeadQuery::Due { now }, most).await.unwrap()
}

async fn orphans(world: &World, seconds: i64) -> Vec<ExecutionHead> {
    let mut heads =
        world.other.find_heads(HeadQuery::Orphans { now: at(seconds) }, 100).await.unwrap();
    heads.sort_by_key(|head| head.execution);
    heads
}

async fn put(world: &World, heads: impl IntoIterator<Item = ExecutionHead>) {
    for head in heads {
        world.put_head(head).await;
    }
}

/// A head comes back as it is, and an older one never replaces a newer one.
pub async fn heads_only_move_forward(world: World) {
    let full = ExecutionHead {
        state: ExecutionState::Waiting,
        epoch: Epoch(u64::from(u32::MAX) + 7),
        owner: Some(worker(1)),
        due: Some(at(5)),
        priority: i32::MIN,
        finished_at: Some(at(7)),
        parent: Some(execution(8)),
        ..head(1, 5)
    };
    assert_eq!(world.other.head(execution(1)).await.unwrap(), None);
    put(&world, [full.clone()]).await;
    assert_eq!(world.other.head(execution(1)).await.unwrap(), Some(full.clone()));
    put(&world, [head(1, 4)]).await;
    assert_eq!(world.other.head(execution(1)).await.unwrap(), Some(full));
    let same = ExecutionHead { parent: Some(execution(8)), ..head(1, 5) };
    put(&world, [same.clone()]).await;
    assert_eq!(world.other.head(execution(1)).await.unwrap(), Some(same));
    let over = ExecutionHead {
        state: ExecutionState::Completed,
        finished_at: Some(at(9)),
        parent: Some(execution(8)),
        ..head(1, 6)
    };
    put(&world, [over.clone()]).await;
    assert_eq!(world.other.head(execution(1)).await.unwrap(), Some(over));
}

/// What is due comes by priority, then by time; what somebody has, or nobody waits for, does not.
pub async fn what_is_due_comes_in_order(world: World) {
    let ordered = [due(5, 9, 7), due(4, 0, 0), due(3, 1, 0), due(2, 2, 0), due(1, 0, -3)];
    put(&world, ordered.clone()).await;
    let not_yet = [due(10, 11, 7), due(11, 11, 99), due(12, 11, 0)];
    put(&world, not_yet).await;
    put(&world, [ExecutionHead { due: Some(at(0)), ..owned(20, 1) }, head(21, 1)]).await;
    for (state, n) in ExecutionState::ALL.into_iter().filter(|state| state.is_finished()).zip(30..)
    {
        put(&world, [ExecutionHead { state, ..due(n, 0, 7) }]).await;
    }
    assert_eq!(due_at(&world, at(10), 100).await, ordered);
    assert_eq!(due_at(&world, at(10), 4).await[..3], ordered[..3]);
    assert_eq!(due_at(&world, at(10), 0).await, []);
    assert_eq!(due_at(&world, at(9), 1).await, ordered[..1], "due to the moment");
    assert_eq!(due_at(&world, at(-1), 100).await, []);
}

/// Nobody waits for ever: a part of the places goes to the longest due, whatever its priority.
pub async fn nobody_starves(world: World) {
    put(&world, (1..=30).map(|n| due(n, 5, 9))).await;
    let patient = [due(41, 1, -9), due(42, 2, 0), due(43, 3, -3)];
    put(&world, patient.clone()).await;
    let found = due_at(&world, at(10), 16).await;
    assert_eq!(found.len(), 16);
    assert!(found[..14].iter().all(|head| head.priority == 9), "{found:?}");
    assert_eq!(found[14..], patient[..2]);
    assert_eq!(due_at(&world, at(10), 2).await, [due(1, 5, 9), due(41, 1, -9)]);
    assert_eq!(due_at(&world, at(10), 1).await, [due(1, 5, 9)]);
    let all = due_at(&world, at(10), 100).await;
    assert_eq!(all.len(), 33);
    assert_eq!(all[30..], [due(42, 2, 0), due(43, 3, -3), due(41, 1, -9)]);
}

/// However many priorities there are, a look goes through so many of them, the highest first; then
/// it is the longest due that comes.
pub async fn many_priorities_cost_no_more(world: World) {
    let most = i32::try_from(limits::PRIORITIES).unwrap();
    let asleep = (1..most).map(|n| due(n.unsigned_abs() as usize, 1_000, n + 100));
    put(&world, asleep).await;
    let [high, middle, low] = [due(101, 5, 3), due(102, 4, 2), due(103, 3, 1)];
    put(&world, [high.clone(), middle.clone(), low.clone()]).await;
    assert_eq!(due_at(&world, at(10), 100).await, [high.clone(), low.clone(), middle]);
    assert_eq!(due_at(&world, at(10), 2).await, [high.clone(), low]);
    assert_eq!(due_at(&world, at(10), 1).await, [high]);
}

/// What is due can be gone through to its end, the longest due first, however much there is.
pub async fn what_is_due_can_be_paged_through(world: World) {
    let some = |n: i32| due(n.unsigned_abs() as usize, i64::from(n / 3), n % 2);
    put(&world, (1..=9).map(some)).await;
    put(&world, [due(20, 11, 0), ExecutionHead { due: Some(at(0)), ..owned(21, 1) }, head(22, 1)])
        .await;
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let query = HeadQuery::DueAfter { now: at(10), after };
        let part = world.other.find_heads(query, 4).await.unwrap();
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
    assert_eq!(world.other.find_heads(query, 0).await.unwrap(), []);
}

/// A head belongs to a log: what was removed does not come back with a late word about it.
pub async fn a_head_without_a_log_is_not_kept(world: World) {
    world.one.put_head(due(1, 0, 0)).await.unwrap();
    assert_eq!(world.other.head(execution(1)).await.unwrap(), None);
    assert_eq!(due_at(&world, at(10), 10).await, []);
    // A log without a head gets one.
    world.append(execution(1), 0, 1).await;
    world.one.put_head(due(1, 0, 0)).await.unwrap();
    assert_eq!(due_at(&world, at(10), 10).await, [due(1, 0, 0)]);
    let over = ExecutionHead {
        state: ExecutionState::Completed,
        finished_at: Some(at(1)),
        seq: shared::id::Seq(2),
        ..head(1, 2)
    };
    world.one.put_head(over.clone()).await.unwrap();
    assert_eq!(world.one.prune(at(5), 10).await.unwrap().executions, 1);
    world.other.put_head(over).await.unwrap();
    assert_eq!(world.one.head(execution(1)).await.unwrap(), None, "it was removed");
}

/// Whoever has to tell a parent that a child is over is looked for when he is gone.
pub async fn what_is_over_may_have_an_owner(world: World) {
    let over = ExecutionHead {
        state: ExecutionState::Failed,
        finished_at: Some(at(3)),
        parent: Some(execution(2)),
        ..owned(1, 1)
    };
    let mut append = super::some_events(execution(1), 0, 1);
    append.head = Some(over.clone());
    world.one.append(append).await.unwrap();
    assert_eq!(world.other.head(execution(1)).await.unwrap(), Some(over.clone()));
    assert_eq!(orphans(&world, 0).await, std::slice::from_ref(&over));
    world.one.renew_lease(lease(1, 10)).await.unwrap();
    assert_eq!(orphans(&world, 0).await, []);
    assert_eq!(orphans(&world, 10).await, std::slice::from_ref(&over));
    put(&world, [ExecutionHead { owner: None, ..over }]).await;
    assert_eq!(orphans(&world, 10).await, []);
    assert_eq!(due_at(&world, at(10), 10).await, []);
}

/// The next moment to look is that of whatever nobody has and comes due first.
pub async fn the_next_due_is_the_first(world: World) {
    assert_eq!(world.other.next_due_at().await.unwrap(), None);
    put(&world, [ExecutionHead { due: Some(at(1)), ..owned(1, 1) }, head(2, 1)]).await;
    assert_eq!(world.other.next_due_at().await.unwrap(), None);
    put(&world, [due(3, 9, 5), due(4, 7, -5), due(5, 8, 0)]).await;
    assert_eq!(world.other.next_due_at().await.unwrap(), Some(at(7)));
    put(&world, [ExecutionHead { owner: Some(worker(1)), ..due(4, 7, -5) }]).await;
    assert_eq!(world.other.next_due_at().await.unwrap(), Some(at(8)));
}

/// What a worker has is free when its lease has run out, and not before.
pub async fn a_lease_that_ran_out_frees_what_it_held(world: World) {
    world.one.renew_lease(lease(1, 10)).await.unwrap();
    world.one.renew_lease(lease(2, 20)).await.unwrap();
    put(&world, [owned(1, 1), owned(2, 1), owned(3, 2), due(4, 0, 0)]).await;
    assert_eq!(orphans(&world, 9).await, []);
    assert_eq!(orphans(&world, 10).await, [owned(1, 1), owned(2, 1)]);
    let mut its = world.other.find_heads(HeadQuery::OwnedBy(worker(1)), 10).await.unwrap();
    its.sort_by_key(|head| head.execution);
    assert_eq!(its, [owned(1, 1), owned(2, 1)]);
    assert_eq!(world.other.find_heads(HeadQuery::OwnedBy(worker(1)), 1).await.unwrap().len(), 1);
    assert_eq!(world.other.find_heads(HeadQuery::OwnedBy(worker(3)), 10).await.unwrap(), []);
    assert_eq!(
        world.other.find_heads(HeadQuery::Orphans { now: at(10) }, 1).await.unwrap().len(),
        1
    );
    world.one.renew_lease(lease(1, 30)).await.unwrap();
    assert_eq!(orphans(&world, 10).await, []);
    assert_eq!(orphans(&world, 20).await, [owned(3, 2)]);
    put(&world, [ExecutionHead { owner: None, seq: shared::id::Seq(2), ..owned(3, 2) }]).await;
    assert_eq!(orphans(&world, 20).await, []);
}

/// What a worker has is free at once when it says that it has ended, or was never heard of.
pub async fn a_retired_worker_has_nothing(world: World) {
    world.one.renew_lease(lease(1, 10)).await.unwrap();
    put(&world, [owned(1, 1), owned(2, 2)]).await;
    assert_eq!(orphans(&world, 0).await, [owned(2, 2)]);
    world.one.remove_worker(worker(1)).await.unwrap();
    assert_eq!(orphans(&world, 0).await, [owned(1, 1), owned(2, 2)]);
    let nobody: WorkerId = worker(9);
    world.one.remove_worker(nobody).await.unwrap();
}

/// Commands wait in the order in which they came, each once, until they are discarded.
pub async fn commands_wait_in_order(world: World) {
    let step = "a.b".parse().unwrap();
    let approve =
        Command::Approve { step, item: None, approved: false, comment: Some("nein".to_owned()) };
    let commands = [
        envelope(9, 1, Command::Cancel { reason: Some("\u{0}".to_owned()) }),
        envelope(3, 2, Command::Pause),
        envelope(7, 1, Command::Resume),
        envelope(1, 1, approve),
    ];
    for command in &commands {
        world.one.send_command(command.clone()).await.unwrap();
    }
    // Again: it counts once.
    world.one.send_command(commands[0].clone()).await.unwrap();
    assert_eq!(world.other.list_commands(None).await.unwrap(), commands);
    let [first, _, third, fourth] = commands.clone();
    let of_one = world.other.list_commands(Some(execution(1))).await.unwrap();
    assert_eq!(of_one, [first.clone(), third.clone(), fourth.clone()]);
    assert_eq!(world.other.list_commands(Some(execution(5))).await.unwrap(), []);
    world.one.remove_commands(vec![first.id, third.id, super::command_id(99)]).await.unwrap();
    world.one.remove_commands(Vec::new()).await.unwrap();
    assert_eq!(world.other.list_commands(Some(execution(1))).await.unwrap(), [fourth]);
}

/// No inbox grows without bound, and one that is full says so; others are not concerned.
pub async fn an_inbox_has_a_bound(world: World) {
    let send = |n| world.one.send_command(envelope(n, 1, Command::Pause));
    for chunk in (0..limits::INBOX).collect::<Vec<_>>().chunks(100) {
        futures::future::join_all(chunk.iter().map(|number| send(*number)))
            .await
            .into_iter()
            .for_each(|sent| sent.unwrap());
    }
    let refused = send(limits::INBOX).await;
    assert!(matches!(refused, Err(StoreError::Full { .. })), "{refused:?}");
    send(5).await.expect("it waits there already");
    let to_another = envelope(limits::INBOX, 2, Command::Pause);
    world.one.send_command(to_another).await.unwrap();
    assert_eq!(world.other.list_commands(Some(execution(1))).await.unwrap().len(), limits::INBOX);
    assert_eq!(world.other.list_commands(None).await.unwrap().len(), limits::INBOX + 1);
    world.one.remove_commands(vec![super::command_id(3)]).await.unwrap();
    world.one.send_command(envelope(limits::INBOX + 1, 1, Command::Pause)).await.unwrap();
}

/// A look at all inboxes is bounded, by number and by bytes: it is done again and again.
pub async fn a_look_at_all_inboxes_is_bounded(world: World) {
    let payload = std::sync::Arc::new(serde_json::json!("x".repeat(1 << 20)));
    let large = |n| {
        let command = Command::Signal { name: "s".to_owned(), payload: payload.clone() };
        envelope(n, n, command)
    };
    for n in 0..20 {
        world.one.send_command(large(n)).await.unwrap();
    }
    let seen = world.other.list_commands(None).await.unwrap();
    assert_eq!(seen.len(), 16, "the first of them");
    assert!(seen.iter().zip(0..).all(|(head, n)| head.execution == execution(n)));
    world.one.remove_commands((0..20).map(super::command_id).collect()).await.unwrap();
    let small = |n: usize| world.one.send_command(envelope(n, n / 100, Command::Resume));
    for chunk in (0..limits::INBOX_LOOK + 50).collect::<Vec<_>>().chunks(500) {
        futures::future::join_all(chunk.iter().map(|number| small(*number)))
            .await
            .into_iter()
            .for_each(|sent| sent.unwrap());
    }
    assert_eq!(world.other.list_commands(None).await.unwrap().len(), limits::INBOX_LOOK);
}
