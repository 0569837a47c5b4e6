//! Large binaries: there as long as what refers to them, and no longer.

use shared::{
    blob::{self, Blob, BlobId},
    execution::ExecutionState::Completed,
    store::{Head, RecordKind, RecordPage},
};

use super::{World, at, execution, head};

fn blob(of: Option<usize>, digit: char, bytes: usize, seconds: i64) -> Blob {
    let id = BlobId::new(of.map(execution), &digit.to_string().repeat(64)).unwrap();
    Blob { id, mime_type: "image/png".to_owned(), bytes, at: at(seconds), is_ahead: false }
}

async fn is_there(world: &World, blob: &Blob) -> bool {
    blob::get(&*world.other, &blob.id).await.unwrap().is_some()
}

/// A blob is kept whole, whatever its size, and goes with its execution.
pub async fn a_blob_goes_with_its_execution(world: World) {
    let over = |n| Head { state: Completed, finished_at: Some(at(10)), ..head(n, 2) };
    world.put_head(over(1)).await;
    world.put_head(head(2, 2)).await;
    let (old, running) = (blob(Some(1), '1', 9, 5), blob(Some(2), '1', 8, 5));
    let (outside, later) = (blob(None, '1', 7, 5), blob(None, '2', 6, 20));
    let large = "A".repeat((9 << 20) + 4);
    for (blob, content) in
        [(&old, large.as_str()), (&running, "AQID"), (&outside, ""), (&later, "AQID")]
    {
        blob::put(&*world.one, blob, content).await.unwrap();
        // Written twice it is the same.
        blob::put(&*world.one, blob, content).await.unwrap();
        let found = blob::get(&*world.other, &blob.id).await.unwrap();
        assert!(found == Some((blob.clone(), content.to_owned())), "{}", blob.id);
    }
    assert_eq!(
        blob::forget(&*world.one, at(15), at(15)).await.unwrap(),
        1,
        "that of a call outside plans"
    );
    assert!(is_there(&world, &old).await && !is_there(&world, &outside).await);
    world.one.prune(at(15), 10).await.unwrap();
    assert_eq!(blob::forget(&*world.one, at(15), at(15)).await.unwrap(), 1);
    assert!(!is_there(&world, &old).await);
    assert!(is_there(&world, &running).await && is_there(&world, &later).await);
    let parts = world.other.records(RecordKind::BlobPart, RecordPage::first(10)).await.unwrap();
    assert_eq!(parts.len(), 2, "nothing is left of the others");
}

/// A blob whose execution is still to be waits for it, whatever is removed in between.
pub async fn a_blob_waits_for_its_execution(world: World) {
    let ahead = |of, digit| Blob { is_ahead: true, ..blob(Some(of), digit, 3, 5) };
    let (comes, never, again) = (ahead(1, '1'), ahead(2, '2'), ahead(3, '3'));
    let at_last = Blob { is_ahead: false, ..again.clone() };
    for blob in [&comes, &never, &again, &at_last] {
        blob::put(&*world.one, blob, "AQID").await.unwrap();
    }
    let kept = blob::about(&*world.other, &comes.id).await.unwrap();
    assert_eq!(kept.as_ref(), Some(&comes));
    let hour = i64::try_from(blob::AHEAD.as_secs()).unwrap();
    let most = at(5 + hour - 1);
    assert_eq!(blob::forget(&*world.one, most, most).await.unwrap(), 1, "who is there no more");
    assert!(!is_there(&world, &again).await);
    assert!(is_there(&world, &comes).await && is_there(&world, &never).await);
    world.put_head(head(1, 2)).await;
    let later = at(5 + hour);
    assert_eq!(blob::forget(&*world.one, later, later).await.unwrap(), 1);
    assert!(is_there(&world, &comes).await && !is_there(&world, &never).await);
}
