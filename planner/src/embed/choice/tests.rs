//! Sources of embeddings that fail and return, on paused time.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use shared::store::memory::Memory;
use tokio::time::advance;

use super::*;

#[derive(Debug)]
struct Mood {
    name: &'static str,
    is_away: AtomicBool,
}

#[async_trait]
impl Embedder for Mood {
    fn model(&self) -> &str {
        self.name
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|_| vec![1.0]).collect())
    }

    async fn probe(&self) -> Result<(), EmbedError> {
        if self.is_away.load(Ordering::SeqCst) { Err(away()) } else { Ok(()) }
    }
}

fn away() -> EmbedError {
    EmbedError::Unavailable { url: "u".to_owned(), why: "it is away".to_owned() }
}

fn moods(names: &[&'static str]) -> (Vec<Arc<Mood>>, Embedders) {
    let mood = |name: &&'static str| Arc::new(Mood { name, is_away: AtomicBool::new(false) });
    let moods: Vec<Arc<Mood>> = names.iter().map(mood).collect();
    let wanted = moods.iter().map(|it| Source::Own(Arc::clone(it) as _)).collect();
    (moods, Embedders::new(wanted, Arc::new(Memory::new())))
}

fn model(choice: &Choice) -> &str {
    choice.embedding.as_ref().map_or("", |it| it.texts.model())
}

/// Returns the seconds until another embedder than this one is used.
async fn lasts(embedders: &Embedders, name: &str) -> u64 {
    let mut seconds = 0;
    while model(&*embedders.choose().await) == name {
        advance(Duration::from_secs(1)).await;
        seconds += 1;
    }
    seconds
}

#[tokio::test(start_paused = true)]
async fn a_failed_source_is_skipped_for_growing_pauses() {
    let (_, embedders) = moods(&["a", "b"]);
    let first = embedders.choose().await;
    assert_eq!(model(&first), "a");
    for minutes in [1, 2, 4, 8, 15, 15] {
        let failed = embedders.choose().await;
        assert_eq!(model(&failed), "a");
        let next = embedders.instead(&failed, &away()).await.unwrap();
        let passed = PassedOver { source: "the program's own model `a`".to_owned(), why: away() };
        assert_eq!((model(&next), next.passed_over.as_slice()), ("b", [passed].as_slice()));
        // A second caller with the same failure does not lengthen the pause.
        assert_eq!(model(&embedders.instead(&failed, &away()).await.unwrap()), "b");
        assert_eq!(lasts(&embedders, "b").await, minutes * 60);
    }
    let back = embedders.choose().await;
    let is_same = |one: &Choice, other: &Choice| {
        one.embedding.as_ref().unwrap().is(other.embedding.as_ref().unwrap())
    };
    assert!(is_same(&first, &back), "what is known by its vectors stays");
    // A source that has worked for long gets a short pause again.
    advance(Duration::from_mins(16)).await;
    embedders.instead(&*embedders.choose().await, &away()).await.unwrap();
    assert_eq!(lasts(&embedders, "b").await, 60);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_still_unavailable_is_not_used() {
    let (moods, embedders) = moods(&["a", "b", "c"]);
    moods[0].is_away.store(true, Ordering::SeqCst);
    let second = embedders.choose().await;
    assert_eq!((model(&second), second.passed_over.len()), ("b", 1));
    let third = embedders.instead(&second, &away()).await.unwrap();
    assert_eq!((model(&third), third.passed_over.len()), ("c", 2));
    // Both are tried again. The first is still unavailable, so its pause grows.
    assert_eq!(lasts(&embedders, "c").await, 60);
    assert_eq!(model(&*embedders.choose().await), "b");
    moods[0].is_away.store(false, Ordering::SeqCst);
    assert_eq!(lasts(&embedders, "b").await, 120);
    assert_eq!(model(&*embedders.choose().await), "a");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_rejects_one_text_stays_in_use() {
    let (_, embedders) = moods(&["a", "b"]);
    let choice = embedders.choose().await;
    let long = EmbedError::Text { url: "u".to_owned(), why: "too long".to_owned() };
    assert_eq!(model(&embedders.instead(&choice, &long).await.unwrap()), "b");
    assert_eq!(model(&*embedders.choose().await), "a");
}

#[tokio::test(start_paused = true)]
async fn the_last_source_has_no_replacement() {
    let (moods, embedders) = moods(&["a", "b"]);
    moods[1].is_away.store(true, Ordering::SeqCst);
    let choice = embedders.choose().await;
    assert!(embedders.instead(&choice, &away()).await.is_none());
    assert_eq!(model(&*embedders.choose().await), "a");
    let (_, none) = self::moods(&[]);
    assert!(none.instead(&*none.choose().await, &away()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_broken_source_is_not_tried_again() {
    let (_, embedders) = moods(&["a", "b"]);
    let broken = EmbedError::Model { model: "a".to_owned(), why: "it is broken".to_owned() };
    embedders.instead(&*embedders.choose().await, &broken).await.unwrap();
    advance(Duration::from_hours(24)).await;
    assert_eq!(model(&*embedders.choose().await), "b");
}
