mod fixtures;
mod opening;
mod values;

use std::{fmt::Write as _, sync::Arc};

use serde_json::json;
use shared::{
    id::Seq,
    sealed::show_locked_values,
    store::{
        Append, ExecutionFilter, HeadQuery, Log, Page, RecordKind, RecordPage, RequestFilter,
        Store, StoreError, WriteCondition, load_execution, memory::Memory,
    },
};

use self::fixtures::{
    SECRET, all_events, commands, execution, head, keyring, plan, records, request, request_id,
    store_with, transcript,
};
use crate::{Keyring, protect, protect_copies};

async fn protect_store(inner: &Arc<Memory>, ring: Option<Keyring>) -> Arc<dyn Store> {
    protect(Arc::clone(inner) as _, ring).await.unwrap()
}

/// Writes one object of each kind, all with the secret word in each value.
async fn write_all_objects(store: &dyn Store) {
    store.put_request(&request()).await.unwrap();
    store.add_transcript(request_id(), &transcript()).await.unwrap();
    store.put_plan(&plan()).await.unwrap();
    let append = Append { head: Some(head()), ..Append::new(execution(), Seq(0), &all_events()) };
    store.append(append).await.unwrap();
    for command in commands() {
        store.send_command(command).await.unwrap();
    }
    for record in records() {
        assert!(store.put_record(&record, WriteCondition::Never).await.unwrap());
    }
}

async fn read_all_objects(store: &dyn Store) -> String {
    let first = Page::first_items(10);
    let mut text = format!("{:?}", store.request(request_id()).await.unwrap());
    write!(text, "{:?}", store.transcript(request_id()).await.unwrap()).unwrap();
    text += &store.plan(plan().id()).await.unwrap().unwrap().to_json();
    write!(text, "{:?}", store.read(execution(), Seq(0)).await.unwrap()).unwrap();
    write!(text, "{:?}", store.list_commands(Some(execution())).await.unwrap()).unwrap();
    write!(
        text,
        "{:?}",
        store.list_heads(&ExecutionFilter::default(), &first).await.unwrap().items
    )
    .unwrap();
    for record in records() {
        let page = RecordPage::first_records(10);
        write!(text, "{:?}", store.list_records(record.kind, page).await.unwrap()).unwrap();
    }
    text
}

#[tokio::test]
async fn no_value_reaches_the_store_and_all_come_back() {
    let inner = Arc::new(Memory::new());
    let store = protect_store(&inner, Some(keyring(&["k1"], "k1"))).await;
    write_all_objects(&*store).await;
    let stored = read_all_objects(&*inner).await;
    assert!(!stored.contains(SECRET), "{stored}");
    assert!(stored.contains("$encrypted:k1:"));
    for clear in ["clear query", "shop.order", "tool.failed", "team-blue", "clear-signal"] {
        assert!(stored.contains(clear), "{clear}");
    }
    assert_eq!(store.read(execution(), Seq(0)).await.unwrap(), all_events());
    assert_eq!(store.list_commands(Some(execution())).await.unwrap(), commands());
    assert_eq!(store.list_commands(None).await.unwrap(), commands());
    assert_eq!(store.head(execution()).await.unwrap(), Some(head()));
    assert_eq!(store.request(request_id()).await.unwrap(), Some(request()));
    assert_eq!(store.transcript_after(request_id(), 0).await.unwrap(), transcript());
    for _ in 0..2 {
        let found = store.plan(plan().id()).await.unwrap().unwrap();
        assert_eq!(found.to_unchecked(), plan().to_unchecked());
    }
    for record in records() {
        let found = store.find_record(record.kind, &record.name).await.unwrap();
        assert_eq!(found, Some(record));
    }
}

#[tokio::test]
async fn without_the_key_values_are_hidden_and_nothing_is_written() {
    let inner = Arc::new(Memory::new());
    write_all_objects(&*protect_store(&inner, Some(keyring(&["k1"], "k1"))).await).await;
    for ring in [None, Some(keyring(&["k2"], "k2"))] {
        let is_keyless = ring.is_none();
        let store = protect_store(&inner, ring).await;
        let locked = StoreError::Locked { what: format!("`{}/1`", execution()), key: "k1".into() };
        assert_eq!(store.read(execution(), Seq(0)).await.unwrap_err(), locked);
        assert!(store.plan(plan().id()).await.unwrap_err().is_locked());
        assert!(load_execution(&*store, execution()).await.unwrap_err().is_locked());
        assert!(store.list_commands(Some(execution())).await.unwrap_err().is_locked());
        let shown = show_locked_values(store.read(execution(), Seq(0))).await.unwrap();
        let shown = format!("{shown:?}");
        assert!(!shown.contains(SECRET) && !shown.contains("$encrypted:"), "{shown}");
        assert!(shown.contains(r#"Object {"$encrypted": String("k1")}"#), "{shown}");
        assert!(shown.contains(r#"{\"$encrypted\":\"k1\"}"#), "texts are JSON, too: {shown}");
        let plan = show_locked_values(store.plan(plan().id())).await.unwrap().unwrap();
        assert_eq!(*plan.steps()[0].parameters, json!({ "$encrypted": "k1" }));
        assert_eq!(plan.layers().len(), 2, "the dependencies are clear");
        // A read that needs the values fails, although the plan was shown before and may be cached.
        assert!(store.plan(plan.id()).await.unwrap_err().is_locked());

        let first = Page::first_items(10);
        let heads = store.list_heads(&ExecutionFilter::default(), &first).await.unwrap();
        assert_eq!(heads.items[0].1.state, head().state);
        assert_eq!(store.count_heads(&ExecutionFilter::default()).await, Ok(1));
        let requests = store.list_requests(&RequestFilter::default(), &first).await.unwrap();
        assert_eq!(requests.items[0].1, request());

        let due = HeadQuery::Due { now: head().due.unwrap(), turn: 0 };
        let due = store.find_heads(due, 10).await.unwrap();
        assert_eq!(due.is_empty(), is_keyless, "a node with another key may look");
        let readable = store.list_commands(None).await.unwrap();
        assert_eq!(readable.len(), usize::from(!is_keyless), "`pause` has no secret value");
        if is_keyless {
            let append = Append::new(execution(), Seq(99), &[]);
            let refused = store.append(append).await.unwrap_err();
            assert!(matches!(refused, shared::store::AppendError::Store(err) if err.is_locked()));
            for record in records() {
                let put = store.put_record(&record, WriteCondition::Never).await;
                assert_eq!(put, Err(StoreError::KeyMissing), "{record:?}");
            }
            // A worker without the key may write a head, and must not lose its message.
            let found = store.head(execution()).await.unwrap().unwrap();
            store.put_head(found).await.unwrap();
        }
    }
    let store = protect_store(&inner, Some(keyring(&["k1"], "k1"))).await;
    assert_eq!(store.head(execution()).await.unwrap(), Some(head()));
}

#[tokio::test]
async fn after_a_rotation_old_and_new_values_are_read() {
    let inner = Arc::new(Memory::new());
    write_all_objects(&*protect_store(&inner, Some(keyring(&["k1"], "k1"))).await).await;
    let store = protect_store(&inner, Some(keyring(&["k1", "k2"], "k2"))).await;
    let events = all_events();
    let mut more = events[2..3].to_vec();
    more[0].seq = Seq(events.len() as u64 + 1);
    let append = Append::new(execution(), Seq(events.len() as u64), &more);
    store.append(append).await.unwrap();
    assert!(read_all_objects(&*inner).await.contains("$encrypted:k2:"));
    assert_eq!(store.read(execution(), Seq(0)).await.unwrap(), [events, more].concat());
    let old = protect_store(&inner, Some(keyring(&["k1"], "k1"))).await;
    let end = Seq(all_events().len() as u64);
    let locked = old.read(execution(), end).await.unwrap_err();
    assert!(matches!(&locked, StoreError::Locked { key, .. } if key == "k2"), "{locked}");
}

#[tokio::test]
async fn a_search_in_encrypted_texts_is_refused_with_the_reason() {
    let inner = Arc::new(Memory::new());
    let store = protect_store(&inner, Some(keyring(&["k1"], "k1"))).await;
    write_all_objects(&*store).await;
    let first = Page::first_items(10);
    let text = Some("word".to_owned());
    let by_error = ExecutionFilter { error_text: text.clone(), ..ExecutionFilter::default() };
    let refused = store.list_heads(&by_error, &first).await.unwrap_err();
    let expected = "the text of errors cannot be searched, because the store is encrypted: filter \
                    by state, error code, tool, label or time";
    assert_eq!(refused.to_string(), expected);
    assert_eq!(store.count_heads(&by_error).await.unwrap_err(), refused);
    let blank = ExecutionFilter { error_text: Some(" ".to_owned()), ..by_error };
    assert_eq!(store.count_heads(&blank).await, Ok(1));

    let by_query = RequestFilter { search: Some("clear".to_owned()), ..RequestFilter::default() };
    assert_eq!(store.count_requests(&by_query).await, Ok(1));
    let ring = keyring(&["k1"], "k1").with_encrypted_queries();
    let store = protect_store(&inner, Some(ring)).await;
    assert!(store.count_requests(&by_query).await.is_err());
    let store = protect_store(&inner, None).await;
    assert!(store.count_requests(&by_query).await.is_err(), "the store knows it");
}

#[tokio::test]
async fn queries_are_encrypted_by_choice() {
    let inner = Arc::new(Memory::new());
    let ring = keyring(&["k1"], "k1").with_encrypted_queries();
    let store = protect_store(&inner, Some(ring)).await;
    write_all_objects(&*store).await;
    assert!(!read_all_objects(&*inner).await.contains("clear query"));
    assert_eq!(store.request(request_id()).await.unwrap(), Some(request()));
    assert_eq!(store.head(execution()).await.unwrap(), Some(head()));
    assert_eq!(store.plan(plan().id()).await.unwrap().unwrap().info().query, "a clear query");
    let keyless = protect_store(&inner, None).await;
    let shown = show_locked_values(keyless.request(request_id())).await.unwrap().unwrap();
    assert_eq!(shown.query, r#"{"$encrypted":"k1"}"#);
}

#[tokio::test]
async fn a_copy_needs_no_key_and_is_read_with_it() {
    let source = Arc::new(Memory::new());
    write_all_objects(&*protect_store(&source, Some(keyring(&["k1"], "k1"))).await).await;
    let from = protect_copies(Arc::clone(&source) as _, None).await.unwrap();
    let events = from.read(execution(), Seq(0)).await.unwrap();
    assert!(!format!("{events:?}").contains(SECRET));

    // The target encrypts clear values, and keeps encrypted values.
    for ring in [None, Some(keyring(&["k2"], "k2"))] {
        let target = Arc::new(Memory::new());
        let to = protect_copies(Arc::clone(&target) as _, ring).await.unwrap();
        to.put_plan(&from.plan(plan().id()).await.unwrap().unwrap()).await.unwrap();
        to.append(Append::new(execution(), Seq(0), &events)).await.unwrap();
        let page = RecordPage::first_records(9);
        for record in from.list_records(RecordKind::EncryptionKey, page).await.unwrap() {
            assert!(to.put_record(&record, WriteCondition::Exists).await.unwrap());
        }
        let opened = protect_store(&target, Some(keyring(&["k1", "k2"], "k2"))).await;
        assert_eq!(opened.read(execution(), Seq(0)).await.unwrap(), all_events());
        let found = opened.plan(plan().id()).await.unwrap().unwrap();
        assert_eq!(found.to_unchecked(), plan().to_unchecked());
    }
    let target = Arc::new(Memory::new());
    let to = protect_copies(Arc::clone(&target) as _, Some(keyring(&["k2"], "k2"))).await.unwrap();
    to.append(Append::new(execution(), Seq(0), &all_events())).await.unwrap();
    let stored = target.read(execution(), Seq(0)).await.unwrap();
    assert!(!format!("{stored:?}").contains(SECRET));
}

#[tokio::test]
async fn a_store_without_encryption_is_used_as_it_is() {
    let inner = Arc::new(Memory::new());
    let plain: Arc<dyn Store> = Arc::clone(&inner) as _;
    let same = protect(Arc::clone(&plain), None).await.unwrap();
    assert!(Arc::ptr_eq(&plain, &same));
    let copies = protect_copies(Arc::clone(&plain), None).await.unwrap();
    assert!(Arc::ptr_eq(&plain, &copies));
    write_all_objects(&*same).await;
    assert!(read_all_objects(&*inner).await.contains(SECRET));
    // Values that were written before encryption was turned on are still read.
    let store = store_with(&inner, &["k1"]).await;
    assert_eq!(store.read(execution(), Seq(0)).await.unwrap(), all_events());
    assert_eq!(store.head(execution()).await.unwrap(), Some(head()));
    let found = store.plan(plan().id()).await.unwrap().unwrap();
    assert_eq!(found.to_unchecked(), plan().to_unchecked());
}
