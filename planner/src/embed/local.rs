//! Encoders in this process. They run on threads outside of the async runtime, on half of the
//! cores.

use std::{num::NonZero, ops::Range, path::Path, sync::Arc, thread::available_parallelism};

use async_trait::async_trait;
use tokenizers::Tokenizer;
use tokio::{
    sync::Semaphore,
    task::{JoinError, JoinSet, spawn_blocking},
};

use super::{
    EmbedError, Embedder,
    encoder::Encoder,
    fingerprint,
    shape::{ModelShape, Pooling, PoolingMethod, TokenizerSettings},
    transformer::Transformer,
    weights::{InvalidModel, Weights},
};

/// Maximum number of bytes of texts in one batch: about a thousand tokens. With batches of this
/// size, matrices are large enough to use all cores, and small enough for the caches of the cores.
const BATCH_BYTES: usize = 4 << 10;
const MAX_BATCH_TEXTS: usize = 64;

/// The name of the built-in model. Another quantisation needs another name, because vectors are
/// stored under it.
const BUILTIN_NAME: &str = "builtin/all-MiniLM-L6-v2-q4.1";
/// The configuration of the built-in model. `builtin/README.md` describes its origin.
const BUILTIN_CONFIG: &str = r#"{
    "model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "hidden_act": "gelu", "layer_norm_eps": 1e-12, "max_position_embeddings": 512
}"#;
const MAX_BUILTIN_TOKENS: usize = 256;

static BUILTIN_WEIGHTS: &[u8] = include_bytes!("builtin/model.safetensors");
static BUILTIN_TOKENIZER: &[u8] = include_bytes!("builtin/tokenizer.json");

#[derive(Debug)]
pub struct Local {
    model: String,
    encoder: Arc<Encoder>,
    threads: Arc<Semaphore>,
}

impl Local {
    /// Opens a model directory: `model.safetensors`, `tokenizer.json`, `config.json`, and the files
    /// of sentence-transformers.
    pub async fn open(directory: &Path) -> Result<Self, EmbedError> {
        let shown_path = directory.display().to_string();
        let directory = directory.to_owned();
        let opened = spawn_blocking(move || {
            let encoder = Encoder::open(&directory)?;
            Ok::<_, InvalidModel>((encoder, fingerprint::name_with_fingerprint(&directory)?))
        });
        let (encoder, model) = opened
            .await
            .map_err(|err| aborted_error(&shown_path, &err))?
            .map_err(|err| unusable_model(&shown_path, &err))?;
        Ok(Self::new(model, encoder))
    }

    pub async fn open_builtin_model() -> Result<Self, EmbedError> {
        let opened = spawn_blocking(open_builtin);
        let encoder = opened
            .await
            .map_err(|err| aborted_error(BUILTIN_NAME, &err))?
            .map_err(|err| unusable_model(BUILTIN_NAME, &err))?;
        Ok(Self::new(BUILTIN_NAME.to_owned(), encoder))
    }

    fn new(model: String, encoder: Encoder) -> Self {
        let cores = available_parallelism().map_or(1, NonZero::get);
        let threads = Arc::new(Semaphore::new(cores.div_ceil(2)));
        Self { model, encoder: Arc::new(encoder), threads }
    }
}

fn unusable_model(model: &str, reason: &InvalidModel) -> EmbedError {
    EmbedError::Model { model: model.to_owned(), reason: reason.0.clone() }
}

fn aborted_error(model: &str, err: &JoinError) -> EmbedError {
    EmbedError::Model { model: model.to_owned(), reason: format!("encoding ended early ({err})") }
}

fn open_builtin() -> Result<Encoder, InvalidModel> {
    let tokenizer =
        Tokenizer::from_bytes(BUILTIN_TOKENIZER).map_err(|err| InvalidModel(err.to_string()))?;
    let settings = TokenizerSettings { max_tokens: MAX_BUILTIN_TOKENS, is_lower_case: false };
    let transformer = Transformer::load(
        &ModelShape::read(BUILTIN_CONFIG)?,
        &Weights::from_binary(BUILTIN_WEIGHTS)?,
    )?;
    let pooling = Pooling { methods: vec![PoolingMethod::Mean], is_normalized: true };
    Encoder::new(tokenizer, settings, transformer, pooling)
}

#[async_trait]
impl Embedder for Local {
    fn model(&self) -> &str {
        &self.model
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|index| texts[*index].len());
        let lens: Vec<usize> = order.iter().map(|index| texts[*index].len()).collect();
        let mut encoded = Vec::with_capacity(texts.len());
        let mut jobs = JoinSet::new();
        for batch in batch_ranges(&lens) {
            let permit = Arc::clone(&self.threads).acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            while let Some(done) = jobs.try_join_next() {
                encoded.extend(self.collect_encoded(done)?);
            }
            let (batch, model) = (order[batch].to_vec(), Arc::clone(&self.encoder));
            let texts: Vec<String> = batch.iter().map(|index| texts[*index].to_owned()).collect();
            jobs.spawn_blocking(move || {
                let vectors = model.encode(&texts);
                drop(permit);
                vectors.map(|vectors| batch.into_iter().zip(vectors).collect::<Vec<_>>())
            });
        }
        while let Some(done) = jobs.join_next().await {
            encoded.extend(self.collect_encoded(done)?);
        }
        encoded.sort_by_key(|(index, _)| *index);
        Ok(encoded.into_iter().map(|(_, vector)| vector).collect())
    }
}

type EncodedTexts = Vec<(usize, Vec<f32>)>;

impl Local {
    fn collect_encoded(
        &self,
        done: Result<Result<EncodedTexts, InvalidModel>, JoinError>,
    ) -> Result<EncodedTexts, EmbedError> {
        let encoded = done.map_err(|err| aborted_error(&self.model, &err))?;
        encoded.map_err(|error| unusable_model(&self.model, &error))
    }
}

fn batch_ranges(lens: &[usize]) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, len) in lens.iter().enumerate() {
        if index > start && (bytes + len > BATCH_BYTES || index - start >= MAX_BATCH_TEXTS) {
            batches.push(start..index);
            (start, bytes) = (index, 0);
        }
        bytes += len;
    }
    if start < lens.len() {
        batches.push(start..lens.len());
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_limited_in_bytes_and_texts() {
        assert!(batch_ranges(&[]).is_empty());
        assert_eq!(batch_ranges(&[1, 2, 10_000, 20_000]), [0..2, 2..3, 3..4]);
        assert_eq!(batch_ranges(&[1_500; 5]), [0..2, 2..4, 4..5]);
        assert_eq!(
            batch_ranges(&[0; MAX_BATCH_TEXTS + 1]),
            [0..MAX_BATCH_TEXTS, MAX_BATCH_TEXTS..MAX_BATCH_TEXTS + 1]
        );
    }
}
