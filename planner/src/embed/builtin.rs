//! The encoder whose weights are part of this program: all-MiniLM-L6-v2 in four bits a number.
//!
//! `builtin/README.md` says where it comes from and how it was made.

use tokenizers::Tokenizer;

use super::{
    encoder::Encoder,
    shape::{Pooling, Reading, Shape, Way},
    transformer::Transformer,
    weights::{Broken, Weights},
};

/// The model's name: another quantisation is another model.
pub(super) const MODEL: &str = "builtin/all-MiniLM-L6-v2-q4.1";
/// What the transformer is like.
const CONFIG: &str = r#"{
    "model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "hidden_act": "gelu", "layer_norm_eps": 1e-12, "max_position_embeddings": 512
}"#;
/// Tokens of a text.
const TOKENS: usize = 256;

static WEIGHTS: &[u8] = include_bytes!("builtin/model.safetensors");
static TOKENIZER: &[u8] = include_bytes!("builtin/tokenizer.json");

/// Reads the encoder.
pub(super) fn open() -> Result<Encoder, Broken> {
    let tokenizer = Tokenizer::from_bytes(TOKENIZER).map_err(|err| Broken(err.to_string()))?;
    let reading = Reading { tokens: TOKENS, is_lowered: false };
    let transformer = Transformer::load(&Shape::read(CONFIG)?, &Weights::included(WEIGHTS)?)?;
    let pooling = Pooling { ways: vec![Way::Mean], is_normalized: true };
    Encoder::new(tokenizer, reading, transformer, pooling)
}
