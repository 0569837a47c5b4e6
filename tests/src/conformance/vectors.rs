use futures::future::join_all;
use shared::{
    limits,
    store::{StoreError, TextHash},
};

use super::StorePair;

fn text_hash(n: u16) -> TextHash {
    let mut hash = [0xa5; 32];
    // Little-endian bytes sort in another sequence than numbers, so a store that sorts its answer
    // by hash is found.
    hash[..2].copy_from_slice(&n.to_le_bytes());
    TextHash(hash)
}

fn vector_of(n: u16) -> Vec<f32> {
    (0..384_u16).map(|index| f32::from(n) + f32::from(index) / 1_024.0).collect()
}

/// Vectors are unchanged to the last bit, in the sequence of the requested hashes, and separate for
/// each model.
pub async fn vectors_are_stored_unchanged_by_model(pair: StorePair) {
    assert_eq!(pair.other.find_vectors("m", &[text_hash(1)]).await.unwrap(), [None]);
    assert!(pair.other.find_vectors("m", &[]).await.unwrap().is_empty());
    pair.one.put_vectors("m", &[]).await.unwrap();
    let odd = vec![0.0, -0.0, 1e-45, f32::MAX, f32::INFINITY, f32::MIN_POSITIVE];
    let kept =
        [(text_hash(1), vector_of(1)), (text_hash(300), odd.clone()), (text_hash(2), Vec::new())];
    pair.one.put_vectors("m", &kept).await.unwrap();
    let hashes = [300, 7, 1, 2, 300].map(text_hash);
    let found = pair.other.find_vectors("m", &hashes).await.unwrap();
    assert_eq!(found, [Some(odd.clone()), None, Some(vector_of(1)), Some(vec![]), Some(odd)]);
    let zero = found[0].as_ref().unwrap()[1];
    assert!(zero.is_sign_negative(), "-0 is not 0");
    assert_eq!(
        pair.other.find_vectors("another", &hashes).await.unwrap(),
        [None, None, None, None, None]
    );
}

/// The first vector stays even with many simultaneous writers.
pub async fn the_first_vector_of_a_text_stays(pair: StorePair) {
    pair.one.put_vectors("m", &[(text_hash(1), vector_of(1))]).await.unwrap();
    pair.other
        .put_vectors("m", &[(text_hash(1), vector_of(2)), (text_hash(2), vector_of(2))])
        .await
        .unwrap();
    pair.other.put_vectors("other", &[(text_hash(1), vector_of(3))]).await.unwrap();
    let found = pair.one.find_vectors("m", &[text_hash(1), text_hash(2)]).await.unwrap();
    assert_eq!(found, [Some(vector_of(1)), Some(vector_of(2))]);
    assert_eq!(
        pair.one.find_vectors("other", &[text_hash(1)]).await.unwrap(),
        [Some(vector_of(3))]
    );
    let racing = (0..8).map(async |n| {
        let store = if n % 2 == 0 { &pair.one } else { &pair.other };
        let all: Vec<_> = (10..40).map(|number| (text_hash(number), vector_of(number))).collect();
        store.put_vectors("m", &all).await
    });
    join_all(racing).await.into_iter().for_each(|written| written.unwrap());
    let hashes: Vec<_> = (10..40).map(text_hash).collect();
    let found = pair.other.find_vectors("m", &hashes).await.unwrap();
    assert_eq!(found, (10..40).map(|number| Some(vector_of(number))).collect::<Vec<_>>());
}

/// Uses more vectors than one write or read of a store can hold.
pub async fn many_vectors_are_stored_and_read(pair: StorePair) {
    let all: Vec<_> =
        (0..6_000).map(|number| (text_hash(number), vec![f32::from(number); 512])).collect();
    pair.one.put_vectors("m", &all).await.unwrap();
    let hashes: Vec<_> = all.iter().rev().map(|(text, _)| *text).collect();
    let found = pair.other.find_vectors("m", &hashes).await.unwrap();
    assert!(
        found.iter().rev().zip(&all).all(|(stored, (_, vector))| stored.as_ref() == Some(vector))
    );
}

/// A vector that is too long is rejected, and nothing is written.
pub async fn invalid_and_oversized_vectors_are_refused(pair: StorePair) {
    let longest_vector = vec![1.0; limits::VECTOR_LEN];
    pair.one.put_vectors("m", &[(text_hash(1), longest_vector.clone())]).await.unwrap();
    let long = vec![1.0; limits::VECTOR_LEN + 1];
    let refused = pair
        .one
        .put_vectors("m", &[(text_hash(2), longest_vector.clone()), (text_hash(3), long)])
        .await;
    assert!(matches!(refused, Err(StoreError::Unfit { .. })), "{refused:?}");
    let found =
        pair.other.find_vectors("m", &[text_hash(1), text_hash(2), text_hash(3)]).await.unwrap();
    assert_eq!(found, [Some(longest_vector), None, None]);
    for name in ["", "a\0b", &"x".repeat(limits::TEXT_BYTES + 1)] {
        let refused = pair.one.put_vectors(name, &[(text_hash(1), vec![])]).await;
        assert!(matches!(refused, Err(StoreError::Unfit { .. })), "{refused:?}");
    }
}
