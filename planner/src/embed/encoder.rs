use std::path::Path;

use ndarray::{ArrayView2, Axis};
use tokenizers::{Tokenizer, TruncationParams};

use super::{
    math,
    shape::{self, ModelShape, Pooling, PoolingMethod, TokenizerSettings},
    transformer::Transformer,
    weights::{InvalidModel, Weights},
};

pub(super) const WEIGHTS_FILE: &str = "model.safetensors";
pub(super) const TOKENIZER_FILE: &str = "tokenizer.json";
pub(super) const CONFIG_FILE: &str = "config.json";

#[derive(Debug)]
pub(super) struct Encoder {
    tokenizer: Tokenizer,
    is_lower_case: bool,
    transformer: Transformer,
    pooling: Pooling,
}

impl Encoder {
    pub(super) fn open(directory: &Path) -> Result<Self, InvalidModel> {
        let shape = ModelShape::read(&shape::read_required(directory, CONFIG_FILE)?)?;
        let pooling = shape::read_pooling(directory)?;
        let settings = shape::read_tokenizer_settings(directory, &shape)?;
        let path = directory.join(TOKENIZER_FILE);
        let tokenizer = Tokenizer::from_file(&path);
        let tokenizer = tokenizer
            .map_err(|err| InvalidModel(format!("`{}` cannot be read: {err}", path.display())))?;
        let weights = Weights::open(&directory.join(WEIGHTS_FILE))?;
        Self::new(tokenizer, settings, Transformer::load(&shape, &weights)?, pooling)
    }

    pub(super) fn new(
        mut tokenizer: Tokenizer,
        settings: TokenizerSettings,
        transformer: Transformer,
        pooling: Pooling,
    ) -> Result<Self, InvalidModel> {
        let truncation = TruncationParams { max_length: settings.max_tokens, ..Default::default() };
        tokenizer.with_padding(None).with_truncation(Some(truncation)).map_err(|err| {
            InvalidModel(format!("its `{TOKENIZER_FILE}` does not support truncation: {err}"))
        })?;
        Ok(Self { tokenizer, is_lower_case: settings.is_lower_case, transformer, pooling })
    }

    /// Returns a vector for each text. A text takes milliseconds, so call this outside of the async
    /// runtime.
    pub(super) fn encode(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, InvalidModel> {
        let tokens: Vec<Vec<u32>> =
            texts.iter().map(|text| self.tokenize_text(text)).collect::<Result<_, _>>()?;
        let rows = self.transformer.encode_tokens(&tokens)?;
        let mut start = 0;
        let vectors = tokens.iter().map(|tokens| {
            let text = start..start + tokens.len();
            start += tokens.len();
            self.pool(&math::part_of(rows.view(), text, 0..rows.ncols()))
        });
        vectors.collect()
    }

    fn tokenize_text(&self, text: &str) -> Result<Vec<u32>, InvalidModel> {
        let lowered = self.is_lower_case.then(|| text.to_lowercase());
        let text = lowered.as_deref().unwrap_or(text);
        let encoding = self.tokenizer.encode_fast(text, true);
        let encoding = encoding.map_err(|err| {
            InvalidModel(format!("its `{TOKENIZER_FILE}` cannot split a text into tokens: {err}"))
        })?;
        Ok(encoding.get_ids().to_vec())
    }

    fn pool(&self, tokens: &ArrayView2<'_, f32>) -> Result<Vec<f32>, InvalidModel> {
        let mut vector = Vec::with_capacity(tokens.ncols() * self.pooling.methods.len());
        for pooling in &self.pooling.methods {
            vector.extend(pool_by(*pooling, tokens));
        }
        if self.pooling.is_normalized {
            math::normalize_vector(&mut vector);
        }
        if vector.iter().all(|number| number.is_finite()) {
            return Ok(vector);
        }
        Err(InvalidModel("it returns values that are not numbers: download it again".to_owned()))
    }
}

/// Pools the vectors of tokens. Without tokens, the result is zero.
#[expect(clippy::cast_precision_loss, reason = "a text has some hundred tokens")]
fn pool_by(pooling: PoolingMethod, tokens: &ArrayView2<'_, f32>) -> Vec<f32> {
    let count = tokens.nrows().max(1) as f32;
    match pooling {
        PoolingMethod::First if tokens.nrows() > 0 => tokens.row(0).to_vec(),
        PoolingMethod::First => vec![0.0; tokens.ncols()],
        PoolingMethod::Largest => tokens
            .fold_axis(Axis(0), f32::NEG_INFINITY, |maximum, number| maximum.max(*number))
            .mapv(|number| if number.is_finite() { number } else { 0.0 })
            .to_vec(),
        PoolingMethod::Mean => (tokens.sum_axis(Axis(0)) / count).to_vec(),
        PoolingMethod::MeanBySquareRoot => (tokens.sum_axis(Axis(0)) / count.sqrt()).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::*;

    #[test]
    fn token_vectors_are_pooled_into_one() {
        let tokens = array![[1.0, -2.0], [3.0, 0.0], [2.0, 2.0], [6.0, -4.0]];
        let pool = |pooling| pool_by(pooling, &tokens.view());
        assert_eq!(pool(PoolingMethod::First), [1.0, -2.0]);
        assert_eq!(pool(PoolingMethod::Largest), [6.0, 2.0]);
        assert_eq!(pool(PoolingMethod::Mean), [3.0, -1.0]);
        assert_eq!(pool(PoolingMethod::MeanBySquareRoot), [6.0, -2.0]);
        let none = Array2::zeros((0, 2));
        for pooling in [
            PoolingMethod::First,
            PoolingMethod::Largest,
            PoolingMethod::Mean,
            PoolingMethod::MeanBySquareRoot,
        ] {
            assert_eq!(pool_by(pooling, &none.view()), [0.0, 0.0], "{pooling:?}");
        }
    }
}
