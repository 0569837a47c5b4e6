//! Embedders with real models, over real HTTP and real stores.

mod pull;
pub(crate) mod server;

use std::{path::PathBuf, sync::Arc};

use planner::embed::{
    CachingEmbedder, ConfiguredEmbedder, EmbedError, Embedder, Local, ServerConfig, Source,
};
use serde::Deserialize;
use shared::store::memory::Memory;
use sqlite::Sqlite;
use tempfile::TempDir;
use tests::installed;

/// Returns the folder of the model that `tests/run` installs.
fn model_folder() -> PathBuf {
    installed::find_path("FABER_TEST_MODEL", "model")
}

/// A text with its vector, which numpy computed from the same weights with 64 bits.
#[derive(Deserialize)]
struct ReferenceVector {
    text: String,
    vector: Vec<f32>,
}

fn dot_product(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

#[tokio::test]
async fn a_local_model_computes_the_reference_vectors() {
    let golden: Vec<ReferenceVector> =
        serde_json::from_str(include_str!("embed/minilm.json")).unwrap();
    let local = Local::open(&model_folder()).await.unwrap();
    assert!(local.model().starts_with("model@"), "{}", local.model());
    let texts: Vec<&str> = golden.iter().map(|example| &*example.text).collect();
    let vectors = local.embed(&texts).await.unwrap();
    for (ReferenceVector { text, vector: want }, vector) in golden.iter().zip(&vectors) {
        assert_eq!(vector.len(), 384);
        let off = vector.iter().zip(want).map(|(is, want)| (is - want).abs());
        let furthest = off.fold(0.0, f32::max);
        assert!(furthest < 1e-5, "{text}: {furthest}");
        assert!(dot_product(vector, want) > 0.999_99, "{text}");
    }
    // A vector must not depend on the other texts of its batch.
    let many: Vec<String> = (0..100).map(|n| format!("{} {n}", "word ".repeat(n % 30))).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).chain(texts.iter().copied()).collect();
    let beside = local.embed(&many).await.unwrap();
    for (alone, beside) in vectors.iter().zip(&beside[100..]) {
        assert!(dot_product(alone, beside) > 0.999_99);
    }
}

#[tokio::test]
async fn the_built_in_encoder_agrees_with_its_original_model() {
    let (real, builtin) =
        (Local::open(&model_folder()).await.unwrap(), Local::open_builtin_model().await.unwrap());
    let texts = [
        "What time is it?",
        "Tell me the current date.",
        "Find the highest-rated movies in the 'movies' table.",
        "Create a new event called 'Birthday Party' on June 10th.",
        "What buses are arriving at Times Square?",
    ];
    let (real, builtin) = (real.embed(&texts).await.unwrap(), builtin.embed(&texts).await.unwrap());
    for (real, builtin) in real.iter().zip(&builtin) {
        assert!(dot_product(real, builtin) > 0.9, "{}", dot_product(real, builtin));
    }
    // If two texts have similar vectors in one model, they must have similar vectors in the other
    // model.
    for one in 0..texts.len() {
        for other in 0..texts.len() {
            let (is, was) = (
                dot_product(&builtin[one], &builtin[other]),
                dot_product(&real[one], &real[other]),
            );
            assert!((is - was).abs() < 0.1, "{} and {}: {is}, {was}", texts[one], texts[other]);
        }
    }
}

/// An embedder with the name of the real model. It fails if it must compute a vector, so all
/// vectors must come from the store.
#[derive(Debug)]
struct FailingEmbedder(String);
#[async_trait::async_trait]
impl Embedder for FailingEmbedder {
    fn model(&self) -> &str {
        &self.0
    }
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        assert!(texts.is_empty(), "{texts:?} are embedded again");
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn stored_vectors_are_used_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let local = Arc::new(Local::open_builtin_model().await.unwrap());
    let made = {
        let store = Arc::new(Sqlite::open(&path).unwrap());
        CachingEmbedder::new(local.clone(), store).embed(&["one", "two"]).await.unwrap()
    };
    let failing = Arc::new(FailingEmbedder(local.model().to_owned()));
    let kept = CachingEmbedder::new(failing, Arc::new(Sqlite::open(&path).unwrap()));
    assert_eq!(
        kept.embed(&["two", "one", "two"]).await.unwrap(),
        [1, 0, 1].map(|at: usize| made[at].clone())
    );
}

#[tokio::test]
async fn a_source_of_embeddings_works_or_says_why_not() {
    let configured = |source| ConfiguredEmbedder::new(Some(source), Arc::new(Memory::new()));
    let folder = TempDir::new().unwrap();
    let nobody = ServerConfig {
        base_url: "nowhere".to_owned(),
        model: "m".to_owned(),
        api_key: None,
        api_key_file: None,
    };
    for (source, expected) in [
        (Source::Directory(folder.path().to_owned()), "config.json` cannot be read"),
        (Source::Server(nobody), "`embedding.base_url` is not an address"),
    ] {
        let error = configured(source).open().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let embedding = configured(Source::Directory(model_folder())).open().await.unwrap().unwrap();
    assert!(embedding.texts.model().starts_with("model@"));
}
