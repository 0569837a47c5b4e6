use std::sync::{Arc, Mutex};

use futures::future::join_all;
use serde_json::json;
use shared::{
    request::{Request, TranscriptEntry},
    store::{RequestFilter, Reservation, StoreError},
};

use super::{
    StorePair, all, at, execution, plan, plan_id, plan_with, request, request_id, take_all,
};

pub async fn a_request_is_stored_once(pair: StorePair) {
    assert_eq!(pair.other.request(request_id(1)).await.unwrap(), None);
    let first = request(1, "Grüße an \u{0} \"alle\" 👋", 5);
    pair.one.put_request(&first).await.unwrap();
    let again = pair.other.put_request(&request(1, "another", 6)).await;
    assert_eq!(again, Err(StoreError::Taken));
    assert_eq!(pair.other.request(request_id(1)).await.unwrap(), Some(first));
}

pub async fn a_request_keeps_its_labels(pair: StorePair) {
    let labels = [("app.io/team", "a=b"), ("none", ""), ("zone", "x\u{0}ö")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let labelled = Request { labels, ..request(2, "q", 6) };
    pair.one.put_request(&labelled).await.unwrap();
    assert_eq!(pair.other.request(request_id(2)).await.unwrap(), Some(labelled.clone()));
    let listed = pair.other.list_requests(&RequestFilter::default(), &all()).await.unwrap();
    assert_eq!(listed.items[0].1, labelled);
}

pub async fn transcript_entries_are_appended_in_order(pair: StorePair) {
    let entry = |n: i64| TranscriptEntry {
        at: at(n % 2),
        kind: format!("kind {n}"),
        content: json!({ "z": n, "a": ["\u{0}", u64::MAX, 0.1] }),
    };
    assert_eq!(pair.other.transcript(request_id(1)).await.unwrap(), []);
    pair.one.add_transcript(request_id(1), &[entry(3), entry(1)]).await.unwrap();
    pair.other.add_transcript(request_id(2), &[entry(8)]).await.unwrap();
    pair.other.add_transcript(request_id(1), &[]).await.unwrap();
    pair.other.add_transcript(request_id(1), &[entry(2)]).await.unwrap();
    let large = TranscriptEntry { content: json!("ö\"".repeat(3 << 20)), ..entry(5) };
    pair.one.add_transcript(request_id(1), std::slice::from_ref(&large)).await.unwrap();
    let all = [entry(3), entry(1), entry(2), large];
    assert!(pair.other.transcript(request_id(1)).await.unwrap() == all);
    for known in 0..6 {
        let found = pair.other.transcript_after(request_id(1), known).await.unwrap();
        assert!(found == all[known.min(4)..], "{known}");
    }
}

/// No two plans have the same id, or the same request and version.
pub async fn a_plan_is_stored_once(pair: StorePair) {
    assert!(pair.other.plan(plan_id(1)).await.unwrap().is_none());
    let first = plan(1, 1, 1, &["set.one", "flow.echo"]);
    pair.one.put_plan(&first).await.unwrap();
    for taken in [plan(1, 2, 1, &["a.b"]), plan(1, 1, 2, &["a.b"]), plan(2, 1, 1, &["a.b"])] {
        assert_eq!(pair.other.put_plan(&taken).await, Err(StoreError::Taken));
    }
    pair.one.put_plan(&plan(3, 1, 10, &["a.b"])).await.unwrap();
    pair.one.put_plan(&plan(9, 1, 9, &["a.b"])).await.unwrap();
    pair.one.put_plan(&plan(4, 2, 1, &["a.b"])).await.unwrap();
    let versions = pair.other.plan_versions(request_id(1)).await.unwrap();
    assert_eq!(versions, [plan_id(1), plan_id(9), plan_id(3)]);
    assert_eq!(pair.other.plan_versions(request_id(7)).await.unwrap(), []);
    for _ in 0..2 {
        let found = pair.other.plan(plan_id(1)).await.unwrap().expect("the plan is stored");
        assert_eq!(found.to_json(), first.to_json());
    }
    assert!(pair.other.plan(plan_id(2)).await.unwrap().is_none());
}

pub async fn exactly_one_writer_gets_a_plan_version(pair: StorePair) {
    let plans: Vec<_> = (0..8).map(|n| plan(n, 1, 1, &["a.b"])).collect();
    let answers = join_all(plans.iter().map(|plan| pair.one.put_plan(plan))).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1, "{answers:?}");
    assert_eq!(pair.other.plan_versions(request_id(1)).await.unwrap().len(), 1);
}

pub async fn a_plan_of_any_size_is_stored_whole(pair: StorePair) {
    let parameters = json!({ "z": "ö{{{{".repeat(500_000), "a": [u64::MAX, 0.1, "\u{0}"] });
    let large = plan_with(1, 1, 1, &["set.tool"; 6], &parameters);
    let json = large.to_json();
    assert!(json.len() > 17 << 20, "{}", json.len());
    pair.one.put_plan(&large).await.unwrap();
    let found = pair.other.plan(plan_id(1)).await.unwrap().expect("the plan is stored");
    assert!(found.to_json() == json);
    assert_eq!(pair.other.put_plan(&large).await, Err(StoreError::Taken));
}

pub async fn a_key_stays_with_the_first_execution(pair: StorePair) {
    let reservation = |key: &str, n| Reservation {
        key: key.to_owned(),
        execution: execution(n),
        fingerprint: format!("print {n}"),
    };
    for key in ["k", "", "\u{0}$a.b", "ключ"] {
        assert_eq!(pair.other.find_reservation(key).await.unwrap(), None);
        let answers = Mutex::new(Vec::new());
        join_all((1..=8).map(async |n| {
            let store = Arc::clone(if n % 2 == 0 { &pair.one } else { &pair.other });
            let there = store.reserve_key(&reservation(key, n)).await.unwrap();
            answers.lock().unwrap().push((n, there));
        }))
        .await;
        let answers = take_all(&answers);
        let winners: Vec<usize> =
            answers.iter().filter(|(_, answer)| answer.is_none()).map(|(n, _)| *n).collect();
        let [winner] = winners[..] else { panic!("`{key}` was reserved by {winners:?}") };
        let kept = Some(reservation(key, winner));
        assert!(answers.iter().all(|(n, answer)| *n == winner || *answer == kept), "{answers:?}");
        assert_eq!(pair.other.find_reservation(key).await.unwrap(), kept);
    }
}

pub async fn a_working_store_is_writable(pair: StorePair) {
    pair.one.check_writable().await.unwrap();
    pair.other.check_writable().await.unwrap();
}
