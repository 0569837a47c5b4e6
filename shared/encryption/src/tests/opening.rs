//! Tests of opening an encrypted store: with a wrong key, with malformed keys, and while workers
//! run.

use std::sync::Arc;

use chrono::TimeDelta;
use shared::{
    id::Seq,
    sealed::show_locked_values,
    store::{Append, Lease, Log, Store, StoreError, memory::Memory},
};

use super::{
    fixtures::{all_events, execution, keyring, other_key, worker},
    protect_store,
};
use crate::{Key, KeyError, Keyring, protect};

#[tokio::test]
async fn another_key_with_the_same_id_counts_as_missing() {
    let inner = Arc::new(Memory::new());
    let store = protect_store(&inner, Some(keyring(&["k1"], "k1"))).await;
    store.append(Append::new(execution(), Seq(0), &all_events())).await.unwrap();
    let wrong = Keyring::new(vec![("k1".to_owned(), Some(other_key()))], "k1", false).unwrap();
    let store = protect_store(&inner, Some(wrong)).await;
    assert!(store.read(execution(), Seq(0)).await.unwrap_err().is_locked());
    let shown = show_locked_values(store.read(execution(), Seq(0))).await.unwrap();
    assert!(format!("{shown:?}").contains(r#"{"$encrypted": String("k1")}"#));
    let append = Append::new(execution(), Seq(99), &[]);
    let refused = store.append(append).await.unwrap_err();
    assert_eq!(refused, StoreError::KeyMissing.into());
}

#[tokio::test]
async fn encryption_does_not_begin_while_workers_run() {
    let inner = Arc::new(Memory::new());
    let now = inner.shared_time().await.unwrap();
    let until = now + TimeDelta::minutes(1);
    let lease = Lease { worker: worker(), node: "n".to_owned(), until };
    inner.renew_lease(lease.clone()).await.unwrap();
    let refused = protect(Arc::clone(&inner) as _, Some(keyring(&["k1"], "k1"))).await;
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains(&worker().to_string()), "{refused}");
    inner.remove_worker(worker()).await.unwrap();
    protect_store(&inner, Some(keyring(&["k1"], "k1"))).await;
    // Once a store is encrypted, its workers know about it.
    inner.renew_lease(lease).await.unwrap();
    protect_store(&inner, Some(keyring(&["k1"], "k1"))).await;
}

#[test]
fn wrong_keys_are_refused() {
    let key = || Some(other_key());
    let ids = |ids: &[&str]| ids.iter().map(|id| ((*id).to_owned(), key())).collect();
    for (keys, active, expected) in [
        (ids(&["a"]), "b", KeyError::NotActive("b".to_owned())),
        (ids(&["a", "a"]), "a", KeyError::Repeated("a".to_owned())),
        (ids(&["a:b"]), "a:b", KeyError::Id("a:b".to_owned())),
        (ids(&[""]), "", KeyError::Id(String::new())),
    ] {
        assert_eq!(Keyring::new(keys, active, false).map(drop).unwrap_err(), expected);
    }
    for text in ["", "x", "AAAA", &"A".repeat(43), &"A".repeat(44)] {
        assert_eq!(Key::parse(text).map(drop).unwrap_err(), KeyError::Form, "{text}");
    }
    assert!(Key::parse(&format!(" {}=\n", "A".repeat(43))).is_ok());
}
