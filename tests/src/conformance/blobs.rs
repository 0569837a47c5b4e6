//! Large binaries: when a store removes them, and which tokens own a binary of several calls.

use futures::future::join_all;
use shared::{
    blob::{self, Blob, BlobId},
    execution::ExecutionState::Completed,
    store::{ExecutionHead, RecordKind, RecordPage},
};

use super::{StorePair, at, execution, head};

fn make_blob(of: Option<usize>, digit: char, bytes: usize, seconds: i64) -> Blob {
    let id = BlobId::new(of.map(execution), &digit.to_string().repeat(64)).unwrap();
    Blob { id, mime_type: "image/png".to_owned(), bytes, at: at(seconds) }
}

async fn exists(pair: &StorePair, blob: &Blob) -> bool {
    blob::load_blob(&*pair.other, &blob.id).await.unwrap().is_some()
}

pub async fn a_blob_is_removed_with_its_execution(pair: StorePair) {
    let over = |n| ExecutionHead { state: Completed, finished_at: Some(at(10)), ..head(n, 2) };
    pair.put_head(over(1)).await;
    pair.put_head(head(2, 2)).await;
    let (old, running) = (make_blob(Some(1), '1', 9, 5), make_blob(Some(2), '1', 8, 5));
    let (outside, later) = (make_blob(None, '1', 7, 5), make_blob(None, '2', 6, 20));
    let large = "A".repeat((9 << 20) + 4);
    for (blob, content) in
        [(&old, large.as_str()), (&running, "AQID"), (&outside, ""), (&later, "AQID")]
    {
        blob::save_blob(&*pair.one, blob, content).await.unwrap();
        // A second write changes nothing.
        blob::save_blob(&*pair.one, blob, content).await.unwrap();
        let found = blob::load_blob(&*pair.other, &blob.id).await.unwrap();
        assert!(found == Some((blob.clone(), content.to_owned())), "{}", blob.id);
    }
    let forgotten = blob::remove_old_blobs(&*pair.one, at(15)).await.unwrap();
    assert_eq!(forgotten, 1, "the blob of a single call");
    assert!(exists(&pair, &old).await && !exists(&pair, &outside).await);
    pair.one.prune(at(15), 10).await.unwrap();
    assert_eq!(blob::remove_old_blobs(&*pair.one, at(15)).await.unwrap(), 1);
    assert!(!exists(&pair, &old).await);
    assert!(exists(&pair, &running).await && exists(&pair, &later).await);
    let parts =
        pair.other.list_records(RecordKind::BlobPart, RecordPage::first_records(10)).await.unwrap();
    assert_eq!(parts.len(), 2, "no part of the other blobs is left");
}

/// Calls outside plans that return equal blobs at the same time all keep their tokens.
pub async fn a_blob_of_concurrent_calls_keeps_their_tokens(pair: StorePair) {
    let tokens = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let blob = make_blob(None, '3', 3, 5);
    let saves = tokens.into_iter().enumerate().map(|(n, token)| {
        let store = if n % 2 == 0 { &pair.one } else { &pair.other };
        blob::save_blob_of(&**store, &blob, "AQID", Some(token))
    });
    for saved in join_all(saves).await {
        saved.unwrap();
    }
    for (token, expected) in tokens.map(|token| (token, true)).into_iter().chain([("i", false)]) {
        let is_own = blob::is_call_blob_of(&*pair.other, &blob.id, token).await.unwrap();
        assert_eq!(is_own, expected, "{token}");
    }
    let later = Blob { at: at(20), ..blob.clone() };
    blob::save_blob_of(&*pair.one, &later, "AQID", None).await.unwrap();
    assert_eq!(blob::remove_old_blobs(&*pair.one, at(15)).await.unwrap(), 0, "it was saved again");
    assert!(blob::is_call_blob_of(&*pair.other, &blob.id, "a").await.unwrap());
}
