//! What models made of texts.

use futures::future::join_all;
use shared::{
    limits,
    store::{StoreError, TextHash},
};

use super::World;

/// Returns the hash of a text with a number.
fn text(n: u16) -> TextHash {
    let mut hash = [0xa5; 32];
    // The numbers are not in the order of the hashes.
    hash[..2].copy_from_slice(&n.to_le_bytes());
    TextHash(hash)
}

/// Returns a vector that only one text has.
fn vector(n: u16) -> Vec<f32> {
    (0..384_u16).map(|at| f32::from(n) + f32::from(at) / 1_024.0).collect()
}

/// What was kept comes back to the last bit, in the order in which it is asked for, by model.
pub async fn a_vector_is_exact(world: World) {
    assert_eq!(world.other.find_vectors("m", &[text(1)]).await.unwrap(), [None]);
    assert!(world.other.find_vectors("m", &[]).await.unwrap().is_empty());
    world.one.put_vectors("m", &[]).await.unwrap();
    let odd = vec![0.0, -0.0, 1e-45, f32::MAX, f32::INFINITY, f32::MIN_POSITIVE];
    let kept = [(text(1), vector(1)), (text(300), odd.clone()), (text(2), Vec::new())];
    world.one.put_vectors("m", &kept).await.unwrap();
    let asked = [300, 7, 1, 2, 300].map(text);
    let found = world.other.find_vectors("m", &asked).await.unwrap();
    assert_eq!(found, [Some(odd.clone()), None, Some(vector(1)), Some(vec![]), Some(odd)]);
    let zero = found[0].as_ref().unwrap()[1];
    assert!(zero.is_sign_negative(), "-0 is not 0");
    assert_eq!(
        world.other.find_vectors("another", &asked).await.unwrap(),
        [None, None, None, None, None]
    );
}

/// The first vector stays, whoever writes another, and however many do.
pub async fn the_first_vector_stays(world: World) {
    world.one.put_vectors("m", &[(text(1), vector(1))]).await.unwrap();
    world.other.put_vectors("m", &[(text(1), vector(2)), (text(2), vector(2))]).await.unwrap();
    world.other.put_vectors("other", &[(text(1), vector(3))]).await.unwrap();
    let found = world.one.find_vectors("m", &[text(1), text(2)]).await.unwrap();
    assert_eq!(found, [Some(vector(1)), Some(vector(2))]);
    assert_eq!(world.one.find_vectors("other", &[text(1)]).await.unwrap(), [Some(vector(3))]);
    let racing = (0..8).map(async |n| {
        let store = if n % 2 == 0 { &world.one } else { &world.other };
        let all: Vec<_> = (10..40).map(|number| (text(number), vector(number))).collect();
        store.put_vectors("m", &all).await
    });
    join_all(racing).await.into_iter().for_each(|written| written.unwrap());
    let asked: Vec<_> = (10..40).map(text).collect();
    let found = world.other.find_vectors("m", &asked).await.unwrap();
    assert_eq!(found, (10..40).map(|number| Some(vector(number))).collect::<Vec<_>>());
}

/// So many that they are neither written nor read at once.
pub async fn many_vectors_are_kept(world: World) {
    let all: Vec<_> =
        (0..6_000).map(|number| (text(number), vec![f32::from(number); 512])).collect();
    world.one.put_vectors("m", &all).await.unwrap();
    let asked: Vec<_> = all.iter().rev().map(|(text, _)| *text).collect();
    let found = world.other.find_vectors("m", &asked).await.unwrap();
    assert!(
        found.iter().rev().zip(&all).all(|(stored, (_, vector))| stored.as_ref() == Some(vector))
    );
}

/// What is too long is refused, and nothing is written.
pub async fn a_vector_has_limits(world: World) {
    let most = vec![1.0; limits::VECTOR_LEN];
    world.one.put_vectors("m", &[(text(1), most.clone())]).await.unwrap();
    let long = vec![1.0; limits::VECTOR_LEN + 1];
    let refused = world.one.put_vectors("m", &[(text(2), most.clone()), (text(3), long)]).await;
    assert!(matches!(refused, Err(StoreError::Unfit { .. })), "{refused:?}");
    let found = world.other.find_vectors("m", &[text(1), text(2), text(3)]).await.unwrap();
    assert_eq!(found, [Some(most), None, None]);
    for name in ["", "a\0b", &"x".repeat(limits::TEXT_BYTES + 1)] {
        let refused = world.one.put_vectors(name, &[(text(1), vec![])]).await;
        assert!(matches!(refused, Err(StoreError::Unfit { .. })), "{refused:?}");
    }
}
