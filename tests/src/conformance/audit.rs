//! Audit entries: stored once with the start or the command, listed by filters, removed by age.

use std::sync::Arc;

use serde_json::{Value, json};
use shared::{
    actor::{Actor, ActorKind},
    event::{Created, Event, RecordedEvent},
    execution::ExecutionOptions,
    id::{AuditId, Seq},
    store::{
        Append, AppendError, AuditAction, AuditEntry, AuditFilter, AuditTarget, Command, Page,
        SentCommand,
    },
};

use super::{
    StorePair, all, at, command_id, execution, head, inbox_command, plan_id, request_id,
    some_events,
};

fn entry(actor: Actor, action: AuditAction, target: AuditTarget, seconds: i64) -> AuditEntry {
    AuditEntry::new(at(seconds), Arc::new(actor), action, target, Value::Null)
}

async fn find(pair: &StorePair, filter: AuditFilter) -> Vec<AuditEntry> {
    let found = pair.other.list_audit_entries(&filter, &all()).await.unwrap();
    assert!(!found.has_more);
    let count = pair.other.count_audit_entries(&filter).await.unwrap();
    assert_eq!(count, found.items.len() as u64, "{filter:?}");
    for (cursor, entry) in &found.items {
        assert_eq!((cursor.at, cursor.id.clone()), (entry.at, entry.id.to_string()));
    }
    found.items.into_iter().map(|(_, entry)| entry).collect()
}

async fn find_all(pair: &StorePair) -> Vec<AuditEntry> {
    find(pair, AuditFilter::default()).await
}

pub async fn an_audit_entry_is_stored_once_and_unchanged(pair: StorePair) {
    let target = AuditTarget {
        request: Some(request_id(1)),
        plan: Some(plan_id(2)),
        execution: Some(execution(3)),
        step: Some("größe".parse().unwrap()),
        name: Some("a\u{0}b $c.d".to_owned()),
    };
    let detail = json!({ "n": u64::MAX, "x": [0.1, null, { "a": "\u{0}" }] });
    let (actor, action) =
        (Actor::token("ops").with_client("Inspector"), AuditAction::REGISTER_TOOL);
    let full = AuditEntry::new(at(5), Arc::new(actor), action, target, detail);
    let bare = entry(Actor::local(), AuditAction::PRUNE, AuditTarget::default(), 4);
    let both = [full.clone(), bare.clone()];
    assert_eq!(pair.one.put_audit_entries(&both).await, Ok(2));
    assert_eq!(find_all(&pair).await, both);
    let third = entry(Actor::faber(), AuditAction::PRUNE, AuditTarget::default(), 3);
    assert_eq!(pair.one.put_audit_entries(&[full.clone(), third.clone()]).await, Ok(1));
    assert_eq!(pair.one.put_audit_entries(&[]).await, Ok(0));
    assert_eq!(find_all(&pair).await, [full, bare, third]);
}

pub async fn audit_entries_are_found_by_each_filter(pair: StorePair) {
    let on = |n| AuditTarget::of_execution(execution(n));
    let none = AuditTarget::default;
    let entries = [
        entry(Actor::token("ops"), AuditAction::CANCEL, on(1), 4),
        entry(Actor::user(Some("ops")), AuditAction::PAUSE, on(1), 3),
        entry(Actor::user(None), AuditAction::CANCEL, on(2), 2),
        entry(Actor::faber(), AuditAction::PRUNE, none(), 1),
        entry(Actor::local(), AuditAction::PRUNE, none(), 0),
    ];
    pair.one.put_audit_entries(&entries).await.unwrap();
    let any = AuditFilter::default;
    let kind = |kind| AuditFilter { actor_kind: Some(kind), ..any() };
    let name = |name: &str| AuditFilter { actor_name: Some(name.to_owned()), ..any() };
    let action = |action| AuditFilter { action: Some(action), ..any() };
    for (filter, expected) in [
        (any(), vec![0, 1, 2, 3, 4]),
        (kind(ActorKind::User), vec![1, 2]),
        (kind(ActorKind::Faber), vec![3]),
        (kind(ActorKind::Local), vec![4]),
        (name("ops"), vec![0, 1]),
        (name("op"), vec![]),
        (AuditFilter { actor_kind: Some(ActorKind::Token), ..name("ops") }, vec![0]),
        (action(AuditAction::CANCEL), vec![0, 2]),
        (action(AuditAction::RESUME), vec![]),
        (AuditFilter { actor_kind: Some(ActorKind::Faber), ..action(AuditAction::PRUNE) }, vec![3]),
        (AuditFilter { execution: Some(execution(1)), ..any() }, vec![0, 1]),
        (AuditFilter { execution: Some(execution(1)), ..action(AuditAction::PAUSE) }, vec![1]),
        (AuditFilter { from: Some(at(3)), ..any() }, vec![0, 1]),
        (AuditFilter { to: Some(at(1)), ..any() }, vec![4]),
        (AuditFilter { from: Some(at(1)), to: Some(at(3)), ..name("ops") }, vec![]),
    ] {
        let expected: Vec<AuditEntry> =
            expected.into_iter().map(|index: usize| entries[index].clone()).collect();
        assert_eq!(find(&pair, filter.clone()).await, expected, "{filter:?}");
    }
}

/// Many entries have the same time.
pub async fn audit_pages_have_no_gaps_and_no_repeats(pair: StorePair) {
    let seconds = |n: i64| n / 5;
    let entries = (0..23)
        .map(|n| entry(Actor::local(), AuditAction::PLAN, AuditTarget::default(), seconds(n)));
    pair.one.put_audit_entries(&entries.collect::<Vec<_>>()).await.unwrap();
    let (mut found, mut page) = (Vec::new(), Page::first_items(4));
    loop {
        let part = pair.other.list_audit_entries(&AuditFilter::default(), &page).await.unwrap();
        found.extend(part.items.iter().map(|(_, entry)| entry.clone()));
        page.after = part.items.last().map(|(cursor, _)| cursor.clone());
        if !part.has_more {
            break;
        }
        assert_eq!(part.items.len(), 4);
    }
    assert_eq!(found.len(), 23);
    assert_eq!(found, find_all(&pair).await);
}

fn first_event(by: Option<Actor>, seconds: i64) -> RecordedEvent {
    let created = Created::new(plan_id(1), request_id(1), ExecutionOptions::default());
    let event = Event::Created(Box::new(created));
    RecordedEvent { seq: Seq(1), at: at(seconds), by: by.map(Arc::new), event }
}

pub async fn a_start_is_stored_with_its_audit_entry(pair: StorePair) {
    let start = |n, by, seconds| Append {
        head: Some(head(n, 1)),
        ..Append::new(execution(n), Seq::START, &[first_event(by, seconds)])
    };
    let ops = || Some(Actor::token("ops"));
    pair.one.append(start(1, ops(), 1)).await.unwrap();
    pair.one.append(start(2, None, 2)).await.unwrap();
    // The execution already exists, so this start must fail and add no entry.
    let late = start(1, Some(Actor::token("late")), 3);
    assert_eq!(pair.one.append(late).await, Err(AppendError::Conflict));
    pair.one.append(some_events(execution(1), 1, 2)).await.unwrap();
    let found = find_all(&pair).await;
    let [started] = found.as_slice() else { panic!("one start has an actor: {found:?}") };
    assert_eq!(started.id, AuditId::of_start(execution(1)));
    assert_eq!((&*started.actor, &started.action), (&Actor::token("ops"), &AuditAction::EXECUTE));
    let target = AuditTarget {
        request: Some(request_id(1)),
        plan: Some(plan_id(1)),
        ..AuditTarget::of_execution(execution(1))
    };
    assert_eq!((started.at, &started.target), (at(1), &target));
}

pub async fn a_command_is_stored_with_its_audit_entry(pair: StorePair) {
    pair.put_head(head(1, 1)).await;
    let by =
        |actor, command| SentCommand { by: Some(Arc::new(actor)), ..inbox_command(1, 1, command) };
    let reject = Command::Approve {
        step: "a".parse().unwrap(),
        item: Some(2),
        approved: false,
        comment: Some("no".to_owned()),
    };
    let rejected = by(Actor::token("ops"), reject);
    pair.one.send_command(rejected.clone()).await.unwrap();
    pair.one.send_command(rejected.clone()).await.unwrap();
    pair.one.send_command(inbox_command(2, 1, Command::Pause)).await.unwrap();
    let found = find_all(&pair).await;
    assert_eq!(found, [AuditEntry::of_command(&rejected).unwrap()]);
    assert_eq!(found[0].id, AuditId::of_command(command_id(1)));
    assert_eq!(json!(found[0].detail), json!({ "index": 2 }));
    // The entry stays after the command has left the inbox.
    pair.one.remove_commands(vec![command_id(1), command_id(2)]).await.unwrap();
    assert_eq!(find_all(&pair).await, found);
}

pub async fn the_oldest_audit_entries_are_removed_in_parts(pair: StorePair) {
    let entries =
        (0..100).map(|n| entry(Actor::local(), AuditAction::PLAN, AuditTarget::default(), n));
    let entries: Vec<_> = entries.collect();
    pair.one.put_audit_entries(&entries).await.unwrap();
    assert_eq!(pair.one.remove_audit_entries(at(90), 0).await, Ok(0));
    assert_eq!(pair.one.remove_audit_entries(at(90), 40).await, Ok(40));
    let left = find_all(&pair).await;
    assert_eq!((left.len(), left.last()), (60, entries.get(40)));
    assert_eq!(pair.one.remove_audit_entries(at(90), 1_000).await, Ok(50));
    assert_eq!(pair.one.remove_audit_entries(at(90), 1_000).await, Ok(0));
    assert_eq!(find_all(&pair).await.len(), 10);
}
