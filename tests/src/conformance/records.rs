//! Small documents by kind and name.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;
use serde_json::{Value, json};
use shared::{
    limits,
    store::{Record, RecordKind, RecordPage, Store, StoreError, Usage, WriteCondition},
};
use tokio::time::timeout;

use super::{World, at};

/// Longer than any store takes to point something out.
const HINT: Duration = Duration::from_secs(10);

/// Returns a record that was written so many seconds after the first moment.
pub fn record(kind: RecordKind, name: &str, value: Value, seconds: i64) -> Record {
    Record { kind, name: name.to_owned(), value: Arc::new(value), at: at(seconds) }
}

async fn put(store: &Arc<dyn Store>, kind: RecordKind, name: &str) {
    assert!(
        store.put_record(&record(kind, name, json!(name), 0), WriteCondition::Never).await.unwrap()
    );
}

async fn names(world: &World, kind: RecordKind, page: RecordPage) -> Vec<String> {
    let listed = world.other.list_records(kind, page.clone().names_only()).await.unwrap();
    let found = world.other.list_records(kind, page).await.unwrap();
    let names =
        |records: &[Record]| records.iter().map(|record| record.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found), names(&listed));
    assert!(
        found.iter().all(|record| record.kind == kind && *record.value == json!(record.name)),
        "{found:?}"
    );
    found.into_iter().map(|record| record.name).collect()
}

/// The last write counts, or the first, as its writer wants; and nothing is left of what was
/// removed.
pub async fn a_record_is_written_over_or_not(world: World) {
    use RecordKind::{Memory, Tool};
    for kind in [Memory, Tool] {
        assert_eq!(world.other.find_record(kind, "a").await.unwrap(), None);
        let [first, second, third] = [1, 2, 3].map(|n| record(kind, "a", json!(n), n));
        assert!(world.one.put_record(&first, WriteCondition::Exists).await.unwrap());
        assert!(!world.other.put_record(&second, WriteCondition::Exists).await.unwrap());
        assert_eq!(world.other.find_record(kind, "a").await.unwrap(), Some(first));
        assert!(world.other.put_record(&third, WriteCondition::Never).await.unwrap());
        assert_eq!(world.one.find_record(kind, "a").await.unwrap(), Some(third));
    }
    assert!(world.one.remove_record(Tool, "a").await.unwrap());
    assert!(!world.other.remove_record(Tool, "a").await.unwrap());
    assert_eq!(world.other.find_record(Tool, "a").await.unwrap(), None);
    assert!(world.other.find_record(Memory, "a").await.unwrap().is_some(), "of another kind");
    let anew = record(Tool, "a", json!(4), 4);
    assert!(world.other.put_record(&anew, WriteCondition::Exists).await.unwrap());
    assert_eq!(world.one.find_record(Tool, "a").await.unwrap(), Some(anew));
}

/// Of those that write the same name at the same time exactly one is the first.
pub async fn one_record_is_the_first(world: World) {
    for kind in [RecordKind::ToolSet, RecordKind::Call] {
        let records: Vec<_> = (0..8).map(|n| record(kind, "a", json!(n), n)).collect();
        let answers = join_all(records.iter().enumerate().map(async |(n, record)| {
            let store = if n % 2 == 0 { &world.one } else { &world.other };
            store.put_record(record, WriteCondition::Exists).await.unwrap()
        }))
        .await;
        let winner = answers.iter().position(|is_first| *is_first).expect("one is the first");
        assert_eq!(answers.iter().filter(|is_first| **is_first).count(), 1, "{answers:?}");
        let kept = world.other.find_record(kind, "a").await.unwrap();
        assert_eq!(kept.as_ref(), Some(&records[winner]));
        let last = join_all(
            records.iter().map(|record| world.one.put_record(record, WriteCondition::Never)),
        )
        .await;
        assert!(last.iter().all(|answer| answer == &Ok(true)), "{last:?}");
        let removed = join_all((0..4).map(|_| world.one.remove_record(kind, "a"))).await;
        assert_eq!(removed.iter().filter(|answer| **answer == Ok(true)).count(), 1, "{removed:?}");
    }
}

/// Who changes what it read undoes nothing that another wrote in between; also where many try.
pub async fn a_record_is_changed_unless_another_was_faster(world: World) {
    for kind in [RecordKind::Toolkit, RecordKind::Learned, RecordKind::Context] {
        let since = |n| WriteCondition::ChangedSince(at(n));
        let first = record(kind, "a", json!([]), 1);
        assert!(!world.one.put_record(&first, since(1)).await.unwrap(), "there is none");
        assert!(world.one.put_record(&first, WriteCondition::Exists).await.unwrap());
        let second = record(kind, "a", json!(["x"]), 2);
        assert!(!world.other.put_record(&second, since(2)).await.unwrap());
        let revision = world.one.records_revision().await.unwrap();
        assert!(world.other.put_record(&second, since(1)).await.unwrap());
        let grown = world.one.records_revision().await.unwrap() > revision;
        assert_eq!(grown, kind.is_shared_by_nodes());
        assert!(!world.one.put_record(&first, since(1)).await.unwrap());
        assert_eq!(world.one.find_record(kind, "a").await.unwrap(), Some(second));
        join_all((0..8).map(async |n| {
            let store = if n % 2 == 0 { &world.one } else { &world.other };
            loop {
                let before = store.find_record(kind, "a").await.unwrap().expect("it is there");
                let mut list = before.value.as_array().unwrap().clone();
                list.push(json!(n));
                let seconds = i64::try_from(list.len()).unwrap() + 1;
                let after = record(kind, "a", Value::Array(list), seconds);
                let unless = WriteCondition::ChangedSince(before.at);
                if store.put_record(&after, unless).await.unwrap() {
                    break;
                }
            }
        }))
        .await;
        let last = world.one.find_record(kind, "a").await.unwrap().expect("it is there");
        assert_eq!(last.value.as_array().map(Vec::len), Some(9), "no change is lost");
    }
    let largest = |with: &str, n| {
        record(RecordKind::Context, "b", json!(with.repeat(limits::DOCUMENT_BYTES - 2)), n)
    };
    assert!(world.one.put_record(&largest("x", 1), WriteCondition::Exists).await.unwrap());
    let since = WriteCondition::ChangedSince(at(1));
    assert!(
        world.other.put_record(&largest("y", 2), since).await.unwrap(),
        "however large both are"
    );
}

/// Records come by name, byte by byte, from any place, in either direction.
pub async fn records_come_in_order(world: World) {
    let kind = RecordKind::Memory;
    let mut all =
        ["a", "a/", "a/b", "a/Ö", "a/ö", "a0", "b", "$x.y", "日本", "a/\u{d7ff}x", "a/👋", "_id"];
    join_all(all.iter().map(|name| put(&world.one, kind, name))).await;
    put(&world.one, RecordKind::Call, "a/other").await;
    put(&world.one, RecordKind::Context, "a/another").await;
    all.sort_unstable();
    let ask = |prefix: &str, after: Option<&str>, first, newest| RecordPage {
        prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
        after: after.map(str::to_owned),
        first,
        newest,
        names_only: false,
    };
    assert_eq!(names(&world, kind, RecordPage::first_records(100)).await, all);
    for prefix in ["", "a", "a/", "a/Ö", "日", "z", "\u{10ffff}"] {
        for newest in [false, true] {
            let mut expected: Vec<&str> =
                all.iter().copied().filter(|name| name.starts_with(prefix)).collect();
            if newest {
                expected.reverse();
            }
            let (mut found, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
            loop {
                let page = names(&world, kind, ask(prefix, after.as_deref(), 2, newest)).await;
                let is_last = page.len() < 2;
                found.extend(page);
                after = found.last().cloned();
                if is_last {
                    break;
                }
            }
            assert_eq!(found, expected, "`{prefix}` {newest}");
            let count = async |most| world.other.count_records(kind, prefix, most).await.unwrap();
            assert_eq!(count(100).await, expected.len());
            assert_eq!([count(0).await, count(1).await], [0, expected.len().min(1)]);
        }
    }
    assert_eq!(names(&world, kind, ask("a/", Some("a/c"), 1, false)).await, ["a/Ö"]);
    assert_eq!(names(&world, kind, ask("a/", Some("a/c"), 9, true)).await, ["a/b", "a/"]);
    assert_eq!(names(&world, kind, ask("a/", Some("Z"), 1, false)).await, ["a/"]);
    assert!(names(&world, kind, ask("a/", Some("b"), 9, false)).await.is_empty());
    assert!(names(&world, kind, ask("a/", Some("a"), 9, true)).await.is_empty());
    assert!(names(&world, kind, RecordPage::first_records(0)).await.is_empty());
    assert!(names(&world, RecordKind::Switch, RecordPage::first_records(9)).await.is_empty());
}

/// A record comes back exactly, whatever JSON it is and however it is called.
pub async fn a_record_is_exact(world: World) {
    let values = [
        json!({ "z": 1, "a": { "$set": null, "b.c": [true] }, "": "\u{0}" }),
        json!([u64::MAX, i64::MIN, 0.1, 5e-324, 1e300, -0.0, 1.0, "👋"]),
        json!(null),
        (1..limits::JSON_DEPTH).fold(json!([]), |inner, _| json!([inner])),
    ];
    for (value, n) in values.into_iter().zip(0..) {
        let name = format!("{n} Grüße $x.y/'\"\\%_* 日本 👋");
        let kept = record(RecordKind::Context, &name, value, n);
        assert!(world.one.put_record(&kept, WriteCondition::Never).await.unwrap());
        let found = world.other.find_record(RecordKind::Context, &name).await.unwrap().unwrap();
        assert_eq!(found, kept);
        assert_eq!(found.value.to_string(), kept.value.to_string(), "also the order of its keys");
    }
    let long = "ö".repeat(limits::NAME_BYTES / 2);
    put(&world.one, RecordKind::Tool, &long).await;
    assert!(world.other.find_record(RecordKind::Tool, &long).await.unwrap().is_some());
    assert_eq!(world.other.find_record(RecordKind::Tool, "a\u{0}").await.unwrap(), None);
}

/// What no store can keep is refused as such, and what is as large as may be is kept.
pub async fn a_record_has_limits(world: World) {
    let long = "x".repeat(limits::NAME_BYTES + 1);
    for name in ["", "a\u{0}b", "a\nb", "\u{85}", &long] {
        for kind in [RecordKind::Memory, RecordKind::Tool] {
            let answer =
                world.one.put_record(&record(kind, name, json!(1), 0), WriteCondition::Never).await;
            assert!(matches!(answer, Err(StoreError::Unfit { .. })), "`{name}`: {answer:?}");
            assert!(!world.one.remove_record(kind, name).await.unwrap());
        }
    }
    let text = |bytes: usize| record(RecordKind::Tool, "a", json!("x".repeat(bytes - 2)), 0);
    let bytes = limits::DOCUMENT_BYTES + 1;
    let answer = world.one.put_record(&text(bytes), WriteCondition::Never).await;
    assert_eq!(answer, Err(StoreError::TooLarge { bytes }));
    assert_eq!(world.other.find_record(RecordKind::Tool, "a").await.unwrap(), None);
    let largest = text(limits::DOCUMENT_BYTES);
    assert!(world.one.put_record(&largest, WriteCondition::Exists).await.unwrap());
    assert!(world.other.find_record(RecordKind::Tool, "a").await.unwrap() == Some(largest));
}

/// The revision says that something changed on which all must agree, and nothing else.
pub async fn a_revision_says_what_changed(world: World) {
    let revision = async || world.other.records_revision().await.unwrap();
    for kind in RecordKind::DOCUMENTS {
        let mut hint = world.other.hints().subscribe_records();
        let before = revision().await;
        put(&world.one, kind, "a").await;
        let written = revision().await;
        assert_eq!(written > before, kind.is_shared_by_nodes(), "{kind:?} is new");
        if kind.is_shared_by_nodes() {
            timeout(HINT, hint.changed()).await.expect("the change is pointed out").unwrap();
        }
        let again = record(kind, "a", json!(2), 1);
        assert!(!world.one.put_record(&again, WriteCondition::Exists).await.unwrap());
        assert!(!world.one.remove_record(kind, "b").await.unwrap());
        assert_eq!(revision().await, written, "{kind:?}: nothing has changed");
        assert!(world.one.put_record(&again, WriteCondition::Never).await.unwrap());
        let replaced = revision().await;
        assert_eq!(replaced > written, kind.is_shared_by_nodes(), "{kind:?} is another");
        assert!(world.one.remove_record(kind, "a").await.unwrap());
        assert_eq!(revision().await > replaced, kind.is_shared_by_nodes(), "{kind:?} is gone");
    }
    assert!(RecordKind::DOCUMENTS.iter().filter(|kind| kind.is_shared_by_nodes()).count() == 5);
}

/// Calls are added up, whoever counts them.
pub async fn calls_are_added_up(world: World) {
    let usage = |tool: &str, calls, failures, seconds, times: &[(u16, u64)]| Usage {
        tool: tool.parse().unwrap(),
        calls,
        failures,
        last: at(seconds),
        times: times.iter().copied().collect(),
    };
    assert_eq!(world.other.list_usage().await.unwrap(), []);
    let first = vec![usage("b.t", 2, 1, 5, &[(3, 2)]), usage("a.ü \"$x.y\"", 1, 0, 9, &[(0, 1)])];
    for usage in first {
        world.one.add_usage(&usage).await.unwrap();
    }
    let second = vec![usage("b.t", 3, 0, 4, &[(3, 1), (320, 2)])];
    for usage in second {
        world.other.add_usage(&usage).await.unwrap();
    }
    let expected =
        [usage("a.ü \"$x.y\"", 1, 0, 9, &[(0, 1)]), usage("b.t", 5, 1, 5, &[(3, 3), (320, 2)])];
    assert_eq!(world.one.list_usage().await.unwrap(), expected);
    assert_eq!(world.other.list_usage().await.unwrap(), expected);
}

/// Changes at the same time are all there, and all counted.
pub async fn every_change_is_counted(world: World) {
    let before = world.other.records_revision().await.unwrap();
    join_all((0..12).map(async |n| {
        let store = if n % 2 == 0 { &world.one } else { &world.other };
        put(store, RecordKind::Switch, &format!("{n:02}")).await;
    }))
    .await;
    assert!(world.other.records_revision().await.unwrap() >= before + 12);
    let all = names(&world, RecordKind::Switch, RecordPage::first_records(100)).await;
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 12);
}

/// Calls go with their time, and nothing else does.
pub async fn old_calls_are_forgotten(world: World) {
    for n in 0..600 {
        let call = record(RecordKind::Call, &format!("{n:04}"), json!(format!("{n:04}")), n);
        assert!(world.one.put_record(&call, WriteCondition::Never).await.unwrap());
    }
    // One that was written again is as new as that.
    let again = record(RecordKind::Call, "0000", json!("0000"), 700);
    assert!(world.one.put_record(&again, WriteCondition::Never).await.unwrap());
    for kind in RecordKind::DOCUMENTS.into_iter().filter(|kind| *kind != RecordKind::Call) {
        put(&world.one, kind, "0001").await;
    }
    world.one.prune(at(590), 1).await.unwrap();
    let mut left: Vec<String> = (590..600).map(|n| format!("{n:04}")).collect();
    left.insert(0, "0000".to_owned());
    assert_eq!(names(&world, RecordKind::Call, RecordPage::first_records(1_000)).await, left);
    let newest = RecordPage { newest: true, ..RecordPage::first_records(2) };
    assert_eq!(names(&world, RecordKind::Call, newest).await, ["0599", "0598"]);
    for kind in RecordKind::DOCUMENTS.into_iter().filter(|kind| *kind != RecordKind::Call) {
        assert!(world.other.find_record(kind, "0001").await.unwrap().is_some(), "{kind:?}");
    }
}
