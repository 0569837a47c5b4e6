use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::join_all;
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    limits,
    store::{Record, RecordKind, RecordPage, Store, StoreError, Usage, WriteCondition},
};
use tokio::time::timeout;

use super::{StorePair, at};

/// Longest time that a hint needs from one process to another.
const MAX_HINT_DELAY: Duration = Duration::from_secs(10);

pub fn record(kind: RecordKind, name: &str, value: Value, seconds: i64) -> Record {
    Record { kind, name: name.to_owned(), value: Arc::new(value), at: at(seconds) }
}

async fn put_named(store: &Arc<dyn Store>, kind: RecordKind, name: &str) {
    assert!(
        store.put_record(&record(kind, name, json!(name), 0), WriteCondition::Never).await.unwrap()
    );
}

async fn listed_names(pair: &StorePair, kind: RecordKind, page: RecordPage) -> Vec<String> {
    let listed = pair.other.list_records(kind, page.clone().names_only()).await.unwrap();
    let found = pair.other.list_records(kind, page).await.unwrap();
    let names =
        |records: &[Record]| records.iter().map(|record| record.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found), names(&listed));
    assert!(
        found.iter().all(|record| record.kind == kind && *record.value == json!(record.name)),
        "{found:?}"
    );
    found.into_iter().map(|record| record.name).collect()
}

/// The write condition decides whether the first or the last write counts. After a removal, nothing
/// of the record is left.
pub async fn the_write_condition_decides_which_record_stays(pair: StorePair) {
    use RecordKind::{Memory, Tool};
    for kind in [Memory, Tool] {
        assert_eq!(pair.other.find_record(kind, "a").await.unwrap(), None);
        let [first, second, third] = [1, 2, 3].map(|n| record(kind, "a", json!(n), n));
        assert!(pair.one.put_record(&first, WriteCondition::Exists).await.unwrap());
        assert!(!pair.other.put_record(&second, WriteCondition::Exists).await.unwrap());
        assert_eq!(pair.other.find_record(kind, "a").await.unwrap(), Some(first));
        assert!(pair.other.put_record(&third, WriteCondition::Never).await.unwrap());
        assert_eq!(pair.one.find_record(kind, "a").await.unwrap(), Some(third));
    }
    assert!(pair.one.remove_record(Tool, "a").await.unwrap());
    assert!(!pair.other.remove_record(Tool, "a").await.unwrap());
    assert_eq!(pair.other.find_record(Tool, "a").await.unwrap(), None);
    assert!(
        pair.other.find_record(Memory, "a").await.unwrap().is_some(),
        "the record of another kind stays"
    );
    let anew = record(Tool, "a", json!(4), 4);
    assert!(pair.other.put_record(&anew, WriteCondition::Exists).await.unwrap());
    assert_eq!(pair.one.find_record(Tool, "a").await.unwrap(), Some(anew));
}

pub async fn exactly_one_writer_creates_a_record(pair: StorePair) {
    for kind in [RecordKind::ToolSet, RecordKind::Call] {
        let records: Vec<_> = (0..8).map(|n| record(kind, "a", json!(n), n)).collect();
        let answers = join_all(records.iter().enumerate().map(async |(n, record)| {
            let store = if n % 2 == 0 { &pair.one } else { &pair.other };
            store.put_record(record, WriteCondition::Exists).await.unwrap()
        }))
        .await;
        let winner = answers.iter().position(|is_first| *is_first).expect("one writer comes first");
        assert_eq!(answers.iter().filter(|is_first| **is_first).count(), 1, "{answers:?}");
        let kept = pair.other.find_record(kind, "a").await.unwrap();
        assert_eq!(kept.as_ref(), Some(&records[winner]));
        let last = join_all(
            records.iter().map(|record| pair.one.put_record(record, WriteCondition::Never)),
        )
        .await;
        assert!(last.iter().all(|answer| answer == &Ok(true)), "{last:?}");
        let removed = join_all((0..4).map(|_| pair.one.remove_record(kind, "a"))).await;
        assert_eq!(removed.iter().filter(|answer| **answer == Ok(true)).count(), 1, "{removed:?}");
    }
}

/// A writer that changes a record never overwrites a change that another writer made after the
/// first writer read the record.
pub async fn a_conditional_write_never_overwrites_a_newer_record(pair: StorePair) {
    for kind in [RecordKind::Toolkit, RecordKind::Learned, RecordKind::Context] {
        let since = |n| WriteCondition::ChangedSince(at(n));
        let first = record(kind, "a", json!([]), 1);
        assert!(!pair.one.put_record(&first, since(1)).await.unwrap(), "no record exists");
        assert!(pair.one.put_record(&first, WriteCondition::Exists).await.unwrap());
        let second = record(kind, "a", json!(["x"]), 2);
        assert!(!pair.other.put_record(&second, since(2)).await.unwrap());
        let revision = pair.one.records_revision().await.unwrap();
        assert!(pair.other.put_record(&second, since(1)).await.unwrap());
        let grown = pair.one.records_revision().await.unwrap() > revision;
        assert_eq!(grown, kind.is_shared_by_nodes());
        assert!(!pair.one.put_record(&first, since(1)).await.unwrap());
        assert_eq!(pair.one.find_record(kind, "a").await.unwrap(), Some(second));
        join_all((0..8).map(async |n| {
            let store = if n % 2 == 0 { &pair.one } else { &pair.other };
            loop {
                let before =
                    store.find_record(kind, "a").await.unwrap().expect("the record exists");
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
        let last = pair.one.find_record(kind, "a").await.unwrap().expect("the record exists");
        assert_eq!(last.value.as_array().map(Vec::len), Some(9), "no change is lost");
    }
    let largest = |with: &str, n| {
        record(RecordKind::Context, "b", json!(with.repeat(limits::DOCUMENT_BYTES - 2)), n)
    };
    assert!(pair.one.put_record(&largest("x", 1), WriteCondition::Exists).await.unwrap());
    let since = WriteCondition::ChangedSince(at(1));
    assert!(
        pair.other.put_record(&largest("y", 2), since).await.unwrap(),
        "large records can also be replaced"
    );
}

/// A writer that keeps the time of a record compares its value. So a change that another writer made
/// after the first writer read the record is never overwritten.
pub async fn a_record_is_replaced_while_it_has_the_value_that_was_read(pair: StorePair) {
    if pair.is_encrypted().await {
        // Only the store behind the encryption can compare stored values.
        return;
    }
    let values = [
        (RecordKind::Memory, json!({ "a": [1, "ö", null, 1e300] }), json!("x")),
        (RecordKind::Output, json!({ "$a": 1 }), json!(["y"])),
        (
            RecordKind::Key,
            json!({ "executionId": "exec_1_aaaaaaaaa", "fingerprint": "{\"a\":\"\\n\"}" }),
            json!({ "executionId": "exec_1_aaaaaaaaa", "fingerprint": "y" }),
        ),
        (
            RecordKind::SavedPlan,
            json!({ "planId": "plan_1_aaaaaaaaa", "inputs": { "a": [1.5, "é"] } }),
            json!({ "planId": "plan_1_aaaaaaaaa", "inputs": "z" }),
        ),
    ];
    for (kind, before, after) in values {
        let [before, after] = [before, after].map(|value| Record {
            kind,
            name: "a".to_owned(),
            value: value.into(),
            at: if kind == RecordKind::Key { Timestamp::UNIX_EPOCH } else { at(1) },
        });
        let unless = |record: &Record| WriteCondition::ValueDiffers(Arc::clone(&record.value));
        assert!(!pair.one.put_record(&after, unless(&before)).await.unwrap(), "no record exists");
        assert!(pair.one.put_record(&before, WriteCondition::Exists).await.unwrap());
        assert!(!pair.other.put_record(&after, unless(&after)).await.unwrap(), "{kind:?}");
        assert!(pair.other.put_record(&after, unless(&before)).await.unwrap(), "{kind:?}");
        assert!(!pair.one.put_record(&after, unless(&before)).await.unwrap(), "{kind:?}");
        assert_eq!(pair.one.find_record(kind, "a").await.unwrap(), Some(after));
    }
}

/// Records are sorted by the bytes of their names. A list can start after any name, in both
/// directions.
pub async fn records_are_listed_by_name_in_both_directions(pair: StorePair) {
    let kind = RecordKind::Memory;
    let mut all =
        ["a", "a/", "a/b", "a/Ö", "a/ö", "a0", "b", "$x.y", "日本", "a/\u{d7ff}x", "a/👋", "_id"];
    join_all(all.iter().map(|name| put_named(&pair.one, kind, name))).await;
    put_named(&pair.one, RecordKind::Call, "a/other").await;
    put_named(&pair.one, RecordKind::Context, "a/another").await;
    all.sort_unstable();
    let ask = |prefix: &str, after: Option<&str>, first, newest| RecordPage {
        prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
        after: after.map(str::to_owned),
        first,
        newest,
        names_only: false,
    };
    assert_eq!(listed_names(&pair, kind, RecordPage::first_records(100)).await, all);
    for prefix in ["", "a", "a/", "a/Ö", "日", "z", "\u{10ffff}"] {
        for newest in [false, true] {
            let mut expected: Vec<&str> =
                all.iter().copied().filter(|name| name.starts_with(prefix)).collect();
            if newest {
                expected.reverse();
            }
            let (mut found, mut after): (Vec<String>, Option<String>) = (Vec::new(), None);
            loop {
                let page =
                    listed_names(&pair, kind, ask(prefix, after.as_deref(), 2, newest)).await;
                let is_last = page.len() < 2;
                found.extend(page);
                after = found.last().cloned();
                if is_last {
                    break;
                }
            }
            assert_eq!(found, expected, "`{prefix}` {newest}");
            let count =
                async |maximum| pair.other.count_records(kind, prefix, maximum).await.unwrap();
            assert_eq!(count(100).await, expected.len());
            assert_eq!([count(0).await, count(1).await], [0, expected.len().min(1)]);
        }
    }
    assert_eq!(listed_names(&pair, kind, ask("a/", Some("a/c"), 1, false)).await, ["a/Ö"]);
    assert_eq!(listed_names(&pair, kind, ask("a/", Some("a/c"), 9, true)).await, ["a/b", "a/"]);
    assert_eq!(listed_names(&pair, kind, ask("a/", Some("Z"), 1, false)).await, ["a/"]);
    assert!(listed_names(&pair, kind, ask("a/", Some("b"), 9, false)).await.is_empty());
    assert!(listed_names(&pair, kind, ask("a/", Some("a"), 9, true)).await.is_empty());
    assert!(listed_names(&pair, kind, RecordPage::first_records(0)).await.is_empty());
    assert!(listed_names(&pair, RecordKind::Switch, RecordPage::first_records(9)).await.is_empty());
}

pub async fn a_record_is_stored_unchanged(pair: StorePair) {
    let values = [
        json!({ "z": 1, "a": { "$set": null, "b.c": [true] }, "": "\u{0}" }),
        json!([u64::MAX, i64::MIN, 0.1, 5e-324, 1e300, -0.0, 1.0, "👋"]),
        json!(null),
        (1..limits::JSON_DEPTH).fold(json!([]), |inner, _| json!([inner])),
    ];
    for (value, n) in values.into_iter().zip(0..) {
        let name = format!("{n} Grüße $x.y/'\"\\%_* 日本 👋");
        let kept = record(RecordKind::Context, &name, value, n);
        assert!(pair.one.put_record(&kept, WriteCondition::Never).await.unwrap());
        let found = pair.other.find_record(RecordKind::Context, &name).await.unwrap().unwrap();
        assert_eq!(found, kept);
        assert_eq!(found.value.to_string(), kept.value.to_string(), "the order of keys is kept");
    }
    let long = "ö".repeat(limits::NAME_BYTES / 2);
    put_named(&pair.one, RecordKind::Tool, &long).await;
    assert!(pair.other.find_record(RecordKind::Tool, &long).await.unwrap().is_some());
    assert_eq!(pair.other.find_record(RecordKind::Tool, "a\u{0}").await.unwrap(), None);
}

/// Invalid or oversized records are rejected, and the largest allowed one is stored.
pub async fn invalid_and_oversized_records_are_refused(pair: StorePair) {
    let long = "x".repeat(limits::NAME_BYTES + 1);
    for name in ["", "a\u{0}b", "a\nb", "\u{85}", &long] {
        for kind in [RecordKind::Memory, RecordKind::Tool] {
            let answer =
                pair.one.put_record(&record(kind, name, json!(1), 0), WriteCondition::Never).await;
            assert!(matches!(answer, Err(StoreError::Unfit { .. })), "`{name}`: {answer:?}");
            assert!(!pair.one.remove_record(kind, name).await.unwrap());
        }
    }
    let text = |bytes: usize| record(RecordKind::Tool, "a", json!("x".repeat(bytes - 2)), 0);
    let bytes = limits::DOCUMENT_BYTES + 1;
    let answer = pair.one.put_record(&text(bytes), WriteCondition::Never).await;
    assert_eq!(answer, Err(StoreError::TooLarge { bytes }));
    assert_eq!(pair.other.find_record(RecordKind::Tool, "a").await.unwrap(), None);
    let largest = text(limits::DOCUMENT_BYTES);
    assert!(pair.one.put_record(&largest, WriteCondition::Exists).await.unwrap());
    assert!(pair.other.find_record(RecordKind::Tool, "a").await.unwrap() == Some(largest));
}

pub async fn the_revision_changes_with_shared_records_only(pair: StorePair) {
    let revision = async || pair.other.records_revision().await.unwrap();
    for kind in RecordKind::DOCUMENTS {
        let mut hint = pair.other.hints().subscribe_records();
        let before = revision().await;
        put_named(&pair.one, kind, "a").await;
        let written = revision().await;
        assert_eq!(written > before, kind.is_shared_by_nodes(), "{kind:?} is new");
        if kind.is_shared_by_nodes() {
            timeout(MAX_HINT_DELAY, hint.changed()).await.expect("a hint about records").unwrap();
        }
        let again = record(kind, "a", json!(2), 1);
        assert!(!pair.one.put_record(&again, WriteCondition::Exists).await.unwrap());
        assert!(!pair.one.remove_record(kind, "b").await.unwrap());
        assert_eq!(revision().await, written, "{kind:?}: no record changed");
        assert!(pair.one.put_record(&again, WriteCondition::Never).await.unwrap());
        let replaced = revision().await;
        assert_eq!(replaced > written, kind.is_shared_by_nodes(), "{kind:?} is another");
        assert!(pair.one.remove_record(kind, "a").await.unwrap());
        assert_eq!(revision().await > replaced, kind.is_shared_by_nodes(), "{kind:?} is gone");
    }
    assert!(RecordKind::DOCUMENTS.iter().filter(|kind| kind.is_shared_by_nodes()).count() == 5);
}

pub async fn usage_adds_the_counts_of_all_nodes(pair: StorePair) {
    let usage = |tool: &str, calls, failures, seconds, times: &[(u16, u64)]| Usage {
        tool: tool.parse().unwrap(),
        calls,
        failures,
        last: at(seconds),
        times: times.iter().copied().collect(),
    };
    assert_eq!(pair.other.list_usage().await.unwrap(), []);
    let first = vec![usage("b.t", 2, 1, 5, &[(3, 2)]), usage("a.ü \"$x.y\"", 1, 0, 9, &[(0, 1)])];
    for usage in first {
        pair.one.add_usage(&usage).await.unwrap();
    }
    let second = vec![usage("b.t", 3, 0, 4, &[(3, 1), (320, 2)])];
    for usage in second {
        pair.other.add_usage(&usage).await.unwrap();
    }
    let expected =
        [usage("a.ü \"$x.y\"", 1, 0, 9, &[(0, 1)]), usage("b.t", 5, 1, 5, &[(3, 3), (320, 2)])];
    assert_eq!(pair.one.list_usage().await.unwrap(), expected);
    assert_eq!(pair.other.list_usage().await.unwrap(), expected);
}

pub async fn simultaneous_record_changes_all_count(pair: StorePair) {
    let before = pair.other.records_revision().await.unwrap();
    join_all((0..12).map(async |n| {
        let store = if n % 2 == 0 { &pair.one } else { &pair.other };
        put_named(store, RecordKind::Switch, &format!("{n:02}")).await;
    }))
    .await;
    assert!(pair.other.records_revision().await.unwrap() >= before + 12);
    let all = listed_names(&pair, RecordKind::Switch, RecordPage::first_records(100)).await;
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), 12);
}

pub async fn only_old_calls_are_pruned_from_records(pair: StorePair) {
    for n in 0..600 {
        let call = record(RecordKind::Call, &format!("{n:04}"), json!(format!("{n:04}")), n);
        assert!(pair.one.put_record(&call, WriteCondition::Never).await.unwrap());
    }
    // The record of a call gets a new time when it is written again.
    let again = record(RecordKind::Call, "0000", json!("0000"), 700);
    assert!(pair.one.put_record(&again, WriteCondition::Never).await.unwrap());
    for kind in RecordKind::DOCUMENTS.into_iter().filter(|kind| *kind != RecordKind::Call) {
        put_named(&pair.one, kind, "0001").await;
    }
    pair.one.prune(at(590), 1).await.unwrap();
    let mut left: Vec<String> = (590..600).map(|n| format!("{n:04}")).collect();
    left.insert(0, "0000".to_owned());
    assert_eq!(listed_names(&pair, RecordKind::Call, RecordPage::first_records(1_000)).await, left);
    let newest = RecordPage { newest: true, ..RecordPage::first_records(2) };
    assert_eq!(listed_names(&pair, RecordKind::Call, newest).await, ["0599", "0598"]);
    for kind in RecordKind::DOCUMENTS.into_iter().filter(|kind| *kind != RecordKind::Call) {
        assert!(pair.other.find_record(kind, "0001").await.unwrap().is_some(), "{kind:?}");
    }
}
