use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use shared::store::{TextHash, Vectors};

use super::{EmbedError, Embedder};

/// Number of texts that are embedded before their vectors are stored. A crash loses at most these
/// vectors.
const CHUNK_TEXTS: usize = 256;
const MAX_RECENT_TEXTS: usize = 512;
const MAX_RECENT_BYTES: usize = 4 << 10;

#[derive(Debug)]
pub struct CachingEmbedder {
    inner: Arc<dyn Embedder>,
    store: Arc<dyn Vectors>,
    /// Locked while texts are embedded, so that no two tasks embed the same text.
    embed_lock: tokio::sync::Mutex<()>,
}

impl CachingEmbedder {
    pub fn new(inner: Arc<dyn Embedder>, store: Arc<dyn Vectors>) -> Self {
        Self { inner, store, embed_lock: tokio::sync::Mutex::default() }
    }

    /// Returns the stored vectors of texts. If the store fails, the texts are embedded again.
    async fn find(&self, hashes: &[TextHash]) -> Vec<Option<Vec<f32>>> {
        self.store.find_vectors(self.inner.model(), hashes).await.unwrap_or_else(|err| {
            tracing::warn!(%err, "stored vectors cannot be read, so the texts are embedded again");
            vec![None; hashes.len()]
        })
    }

    async fn make_vectors(&self, texts: &[(TextHash, &str)]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let _turn = self.embed_lock.lock().await;
        let hashes: Vec<TextHash> = texts.iter().map(|(hash, _)| *hash).collect();
        let mut vectors = self.find(&hashes).await;
        let missing = || texts.iter().zip(&vectors).filter(|(_, vector)| vector.is_none());
        let missing_texts: Vec<&str> = missing().map(|((_, text), _)| *text).collect();
        let hashes: Vec<TextHash> = missing().map(|((hash, _), _)| *hash).collect();
        let made = self.inner.embed(&missing_texts).await?;
        let made: Vec<(TextHash, Vec<f32>)> = hashes.into_iter().zip(made).collect();
        if let Err(err) = self.store.put_vectors(self.inner.model(), &made).await {
            tracing::warn!(%err, "vectors cannot be stored");
        }
        let mut made = made.into_iter().map(|(_, vector)| vector);
        for vector in vectors.iter_mut().filter(|vector| vector.is_none()) {
            *vector = made.next();
        }
        Ok(vectors.into_iter().flatten().collect())
    }
}

#[async_trait]
impl Embedder for CachingEmbedder {
    fn model(&self) -> &str {
        self.inner.model()
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let all: Vec<TextHash> = texts.iter().map(|text| hash(text)).collect();
        let by_hash: BTreeMap<TextHash, &str> =
            all.iter().copied().zip(texts.iter().copied()).collect();
        let hashes: Vec<TextHash> = by_hash.keys().copied().collect();
        let found = self.find(&hashes).await;
        let mut vectors = BTreeMap::new();
        let mut missing = Vec::new();
        for ((hash, text), vector) in by_hash.into_iter().zip(found) {
            match vector {
                Some(vector) => drop(vectors.insert(hash, vector)),
                None => missing.push((hash, text)),
            }
        }
        // Texts of similar length are embedded together, which saves padding.
        missing.sort_by_key(|(_, text)| text.len());
        for texts in missing.chunks(CHUNK_TEXTS) {
            let made = self.make_vectors(texts).await?;
            vectors.extend(texts.iter().map(|(hash, _)| *hash).zip(made));
        }
        self.check_dimensions(&vectors)?;
        Ok(all.iter().filter_map(|hash| vectors.get(hash).cloned()).collect())
    }
}

impl CachingEmbedder {
    fn check_dimensions(&self, vectors: &BTreeMap<TextHash, Vec<f32>>) -> Result<(), EmbedError> {
        let len = vectors.values().next().map_or(0, Vec::len);
        let Some(other) = vectors.values().find(|vector| vector.len() != len) else {
            return Ok(());
        };
        let model = self.inner.model().to_owned();
        let reason = format!(
            "some of its vectors have {len} numbers and some {}, so another model has the same \
             name: give the model another name",
            other.len()
        );
        Err(EmbedError::Model { model, reason })
    }
}

fn hash(text: &str) -> TextHash {
    TextHash(Sha256::digest(text).into())
}

/// Keeps the latest vectors in memory, because users repeat queries and planning embeds the same
/// query as the selection.
#[derive(Debug)]
pub struct RecentEmbedder {
    inner: Arc<dyn Embedder>,
    texts: Mutex<RecentTexts>,
}

/// Vectors by text. Each vector has the value that `use_count` had when the vector was last used.
#[derive(Debug, Default)]
struct RecentTexts {
    vectors: BTreeMap<String, (u64, Vec<f32>)>,
    by_last_use: BTreeMap<u64, String>,
    use_count: u64,
}

impl RecentTexts {
    fn find(&mut self, text: &str) -> Option<Vec<f32>> {
        let (last_use, vector) = self.vectors.get_mut(text)?;
        self.use_count += 1;
        let text = self.by_last_use.remove(last_use)?;
        self.by_last_use.insert(self.use_count, text);
        *last_use = self.use_count;
        Some(vector.clone())
    }

    fn keep_vector(&mut self, text: &str, vector: Vec<f32>) {
        if text.len() > MAX_RECENT_BYTES {
            return;
        }
        self.use_count += 1;
        if let Some((last_use, _)) = self.vectors.insert(text.to_owned(), (self.use_count, vector))
        {
            self.by_last_use.remove(&last_use);
        }
        self.by_last_use.insert(self.use_count, text.to_owned());
        if self.vectors.len() > MAX_RECENT_TEXTS
            && let Some((_, oldest)) = self.by_last_use.pop_first()
        {
            self.vectors.remove(&oldest);
        }
    }
}

impl RecentEmbedder {
    pub fn new(inner: Arc<dyn Embedder>) -> Self {
        Self { inner, texts: Mutex::default() }
    }
}

#[async_trait]
impl Embedder for RecentEmbedder {
    fn model(&self) -> &str {
        self.inner.model()
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let lock = || self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut vectors: Vec<Option<Vec<f32>>> = {
            let mut recent = lock();
            texts.iter().map(|text| recent.find(text)).collect()
        };
        let missing: Vec<usize> =
            (0..texts.len()).filter(|index| vectors[*index].is_none()).collect();
        if !missing.is_empty() {
            let missing_texts: Vec<&str> = missing.iter().map(|index| texts[*index]).collect();
            let made = self.inner.embed(&missing_texts).await?;
            let mut recent = lock();
            for (index, vector) in missing.into_iter().zip(made) {
                recent.keep_vector(texts[index], vector.clone());
                vectors[index] = Some(vector);
            }
        }
        Ok(vectors.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use shared::store::memory::Memory;

    use super::*;

    #[derive(Debug, Default)]
    struct LengthEmbedder {
        asked_texts: Mutex<Vec<String>>,
        is_longer: bool,
    }

    #[async_trait]
    impl Embedder for LengthEmbedder {
        fn model(&self) -> &'static str {
            "lengths"
        }

        async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
            self.asked_texts.lock().unwrap().extend(texts.iter().map(|text| (*text).to_owned()));
            let more = usize::from(self.is_longer);
            Ok(texts
                .iter()
                .map(|text| [&make_vector(text)[..], &vec![0.0; more]].concat())
                .collect())
        }
    }

    fn make_vector(text: &str) -> Vec<f32> {
        let len = u16::try_from(text.len()).unwrap();
        vec![f32::from(len), text.bytes().next().map_or(0.0, f32::from)]
    }

    fn asked_texts(of: &LengthEmbedder) -> Vec<String> {
        std::mem::take(&mut *of.asked_texts.lock().unwrap())
    }

    #[tokio::test]
    async fn a_stored_vector_is_not_computed_again() {
        let store: Arc<Memory> = Arc::default();
        let length_embedder = Arc::new(LengthEmbedder::default());
        let kept = CachingEmbedder::new(length_embedder.clone(), store.clone());
        let all: Vec<String> = (0..200).map(|n| format!("{}{}", n % 7, "x".repeat(n))).collect();
        let mut texts: Vec<&str> = all.iter().rev().map(String::as_str).collect();
        texts.extend(["", "0", "0"]);
        let want: Vec<Vec<f32>> = texts.iter().map(|text| make_vector(text)).collect();
        assert_eq!(kept.embed(&texts).await.unwrap(), want);
        let mut once = asked_texts(&length_embedder);
        once.sort();
        let count = once.len();
        once.dedup();
        assert_eq!((count, once.len()), (201, 201));
        let kept = CachingEmbedder::new(length_embedder.clone(), store);
        assert_eq!(kept.embed(&texts).await.unwrap(), want);
        assert_eq!(
            kept.embed(&["new", "0"]).await.unwrap(),
            [make_vector("new"), make_vector("0")]
        );
        assert_eq!(asked_texts(&length_embedder), ["new"]);
        assert!(kept.embed(&[]).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_different_model_under_a_known_name_is_rejected() {
        let store: Arc<Memory> = Arc::default();
        let before = CachingEmbedder::new(Arc::new(LengthEmbedder::default()), store.clone());
        before.embed(&["a"]).await.unwrap();
        let other = LengthEmbedder { is_longer: true, ..LengthEmbedder::default() };
        let after = CachingEmbedder::new(Arc::new(other), store);
        let err = after.embed(&["a", "b"]).await.unwrap_err();
        assert!(err.to_string().contains("give the model another name"), "{err}");
    }

    #[tokio::test]
    async fn the_latest_query_vectors_stay_in_memory() {
        let length_embedder = Arc::new(LengthEmbedder::default());
        let recent = RecentEmbedder::new(length_embedder.clone());
        let long = "l".repeat(MAX_RECENT_BYTES + 1);
        for _ in 0..2 {
            let found = recent.embed(&["a", &long, "bb"]).await.unwrap();
            assert_eq!(found, ["a", &long, "bb"].map(make_vector));
        }
        assert_eq!(asked_texts(&length_embedder), ["a", &long, "bb", &long]);
        let many: Vec<String> = (0..MAX_RECENT_TEXTS).map(|n| format!("text {n}")).collect();
        for text in &many[1..] {
            recent.embed(&[text, "a"]).await.unwrap();
        }
        recent.embed(&["a", &many[1], "bb"]).await.unwrap();
        assert_eq!(asked_texts(&length_embedder).last().unwrap(), "bb", "the longest unused went");
        assert_eq!(recent.texts.lock().unwrap().by_last_use.len(), MAX_RECENT_TEXTS);
    }
}
