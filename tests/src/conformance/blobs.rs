//! Large binaries: there as long as what refers to them, and no longer.

use shared::{
    blob::{self, Blob, BlobId},
    execution::ExecutionState::Completed,
    store::{ExecutionHead, RecordKind, RecordPage},
};

use super::{World, at, execution, head};

fn blob(of: Option<usize>, digit: char, bytes: usize, seconds: i64) -> Blob {
    let id = BlobId::new(of.map(execution), &digit.to_string().repeat(64)).unwrap();
    Blob { id, mime_type: "image/png".to_owned(), bytes, at: at(seconds) }
}

async fn is_there(world: &World, blob: &Blob) -> bool {
    blob::load_blob(&*world.other, &blob.id).await.unwrap().is_some()
}

/// A blob is kept whole, whatever its size, and goes with its execution.
pub async fn a_blob_goes_with_its_execution(world: World) {
    let over = |n| ExecutionHead { state: Completed, finished_at: Some(at(10)), ..head(n, 2) };
    world.put_head(over(1)).await;
    world.put_head(head(2, 2)).await;
    let (old, running) = (blob(Some(1), '1', 9, 5), blob(Some(2), '1', 8, 5));
    let (outside, later) = (blob(None, '1', 7, 5), blob(None, '2', 6, 20));
    let large = "A".repeat((9 << 20) + 4);
    for (blob, content) in
        [(&old, large.as_str()), (&running, "AQID"), (&outside, ""), (&later, "AQID")]
    {
        blob::save_blob(&*world.one, blob, content).await.unwrap();
        // Written twice it is the same.
        blob::save_blob(&*world.one, blob, content).await.unwrap();
        let found = blob::load_blob(&*world.other, &blob.id).await.unwrap();
        assert!(found == Some((blob.clone(), content.to_owned())), "{}", blob.id);
    }
    let forgotten = blob::remove_old_blobs(&*world.one, at(15)).await.unwrap();
    assert_eq!(forgotten, 1, "that of a call outside plans");
    assert!(is_there(&world, &old).await && !is_there(&world, &outside).await);
    world.one.prune(at(15), 10).await.unwrap();
    assert_eq!(blob::remove_old_blobs(&*world.one, at(15)).await.unwrap(), 1);
    assert!(!is_there(&world, &old).await);
    assert!(is_there(&world, &running).await && is_there(&world, &later).await);
    let parts = world
        .other
        .list_records(RecordKind::BlobPart, RecordPage::first_records(10))
        .await
        .unwrap();
    assert_eq!(parts.len(), 2, "nothing is left of the others");
}
