//! Large binaries, which a store keeps as long as an object refers to them.

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
