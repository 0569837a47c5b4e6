use std::{fs, io::ErrorKind, path::Path};

use serde::{Deserialize, de::DeserializeOwned};

use super::{math::Activation, weights::InvalidModel};

const MAX_CONFIG_BYTES: u64 = 1 << 20;
const DEFAULT_MAX_TOKENS: usize = 512;

/// The only supported architecture: `model_type` in `config.json`.
const ARCHITECTURE: &str = "bert";

/// The architecture in `config.json`. It is read before the other fields, because other
/// architectures have other fields.
#[derive(Deserialize)]
struct Architecture {
    model_type: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct ModelShape {
    pub(super) hidden_size: usize,
    pub(super) num_hidden_layers: usize,
    pub(super) num_attention_heads: usize,
    #[serde(default = "default_activation")]
    hidden_act: String,
    #[serde(default = "default_epsilon")]
    pub(super) layer_norm_eps: f32,
    pub(super) max_position_embeddings: usize,
    #[serde(default)]
    position_embedding_type: Option<String>,
}

fn default_activation() -> String {
    "gelu".to_owned()
}

fn default_epsilon() -> f32 {
    1e-12
}

impl ModelShape {
    pub(super) fn read(text: &str) -> Result<Self, InvalidModel> {
        let Architecture { model_type } = parse_json("config.json", text)?;
        if model_type != ARCHITECTURE {
            return Err(InvalidModel(format!(
                "its architecture is `{model_type}`; Faber runs only BERT models (`model_type: \
                 bert`), such as all-MiniLM-L6-v2 or BAAI/bge-small-en-v1.5: use a server for \
                 other models (`embedding.base_url`)"
            )));
        }
        let shape: Self = parse_json("config.json", text)?;
        if let Some(other) = shape.position_embedding_type.as_deref()
            && other != "absolute"
        {
            return Err(InvalidModel(format!(
                "its `position_embedding_type` is `{other}`; only `absolute` is supported"
            )));
        }
        let (size, heads) = (shape.hidden_size, shape.num_attention_heads);
        if heads == 0 || size == 0 || !size.is_multiple_of(heads) {
            let reason = format!("{size} numbers cannot be shared among {heads} heads");
            return Err(InvalidModel(format!("its `config.json` is inconsistent: {reason}")));
        }
        Ok(shape)
    }

    pub(super) fn activation(&self) -> Result<Activation, InvalidModel> {
        match &*self.hidden_act {
            "gelu" => Ok(Activation::Gelu),
            "gelu_new" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
            "relu" => Ok(Activation::Relu),
            other => Err(InvalidModel(format!("its activation `{other}` is not supported"))),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pooling {
    pub(super) methods: Vec<PoolingMethod>,
    pub(super) is_normalized: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolingMethod {
    First,
    Largest,
    Mean,
    MeanBySquareRoot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenizerSettings {
    /// Maximum number of tokens of a text. Further tokens are ignored.
    pub(super) max_tokens: usize,
    pub(super) is_lower_case: bool,
}

#[derive(Deserialize)]
struct Module {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Default, Deserialize)]
struct TransformerModule {
    max_seq_length: Option<usize>,
    #[serde(default)]
    do_lower_case: bool,
}

/// `1_Pooling/config.json`, in the format up to version 5 and in the later format.
#[derive(Default, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "the fields are those of the file"
)]
struct PoolingModule {
    pooling_mode: Option<String>,
    pooling_mode_cls_token: bool,
    pooling_mode_mean_tokens: bool,
    pooling_mode_max_tokens: bool,
    pooling_mode_mean_sqrt_len_tokens: bool,
    pooling_mode_weightedmean_tokens: bool,
    pooling_mode_lasttoken: bool,
}

impl PoolingModule {
    fn pooling_modes(&self) -> Result<Vec<PoolingMethod>, InvalidModel> {
        if self.pooling_mode_weightedmean_tokens || self.pooling_mode_lasttoken {
            let reason = "its pooling is by weights or by the last token, which is not supported";
            return Err(InvalidModel(reason.to_owned()));
        }
        if let Some(mode) = &self.pooling_mode {
            return match &**mode {
                "cls" => Ok(vec![PoolingMethod::First]),
                "max" => Ok(vec![PoolingMethod::Largest]),
                "mean" => Ok(vec![PoolingMethod::Mean]),
                "mean_sqrt_len_tokens" => Ok(vec![PoolingMethod::MeanBySquareRoot]),
                other => Err(InvalidModel(format!("its pooling `{other}` is not supported"))),
            };
        }
        let all = [
            (self.pooling_mode_cls_token, PoolingMethod::First),
            (self.pooling_mode_max_tokens, PoolingMethod::Largest),
            (self.pooling_mode_mean_tokens, PoolingMethod::Mean),
            (self.pooling_mode_mean_sqrt_len_tokens, PoolingMethod::MeanBySquareRoot),
        ];
        let methods: Vec<PoolingMethod> =
            all.into_iter().filter(|(is, _)| *is).map(|(_, way)| way).collect();
        if methods.is_empty() {
            return Err(InvalidModel("its pooling configuration names no method".to_owned()));
        }
        Ok(methods)
    }
}

/// Reads the pooling of a model in a directory. A model without this setting uses the mean, as
/// sentence-transformers does.
pub(super) fn read_pooling(directory: &Path) -> Result<Pooling, InvalidModel> {
    let Some(modules) = read_optional(directory, "modules.json")? else {
        let pooling_path = directory.join("1_Pooling");
        let pooling: Option<PoolingModule> = read_optional(&pooling_path, "config.json")?;
        let methods = pooling
            .map_or_else(|| Ok(vec![PoolingMethod::Mean]), |pooling| pooling.pooling_modes())?;
        return Ok(Pooling { methods, is_normalized: false });
    };
    let modules: Vec<Module> = modules;
    let mut pooling = Pooling { methods: Vec::new(), is_normalized: false };
    for Module { path, kind } in modules {
        match kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" if path.is_empty() => (),
            "Pooling" => {
                let module_path = directory.join(&path);
                let module = read_optional::<PoolingModule>(&module_path, "config.json")?;
                let missing = || InvalidModel(format!("`{path}/config.json` is missing"));
                pooling.methods = module.ok_or_else(missing)?.pooling_modes()?;
            }
            "Normalize" => pooling.is_normalized = true,
            _ => {
                return Err(InvalidModel(format!(
                    "it has an unknown part `{kind}`: choose a model with \
                     a transformer, pooling and normalisation only"
                )));
            }
        }
    }
    if pooling.methods.is_empty() {
        pooling.methods.push(PoolingMethod::Mean);
    }
    Ok(pooling)
}

pub(super) fn read_tokenizer_settings(
    directory: &Path,
    shape: &ModelShape,
) -> Result<TokenizerSettings, InvalidModel> {
    let module: TransformerModule =
        read_optional(directory, "sentence_bert_config.json")?.unwrap_or_default();
    let max_tokens =
        module.max_seq_length.unwrap_or(DEFAULT_MAX_TOKENS).min(shape.max_position_embeddings);
    if max_tokens < 3 {
        return Err(InvalidModel(format!(
            "it reads {max_tokens} tokens of a text, which is not enough"
        )));
    }
    Ok(TokenizerSettings { max_tokens, is_lower_case: module.do_lower_case })
}

pub(super) fn read_required(directory: &Path, name: &str) -> Result<String, InvalidModel> {
    let path = directory.join(name);
    let unreadable = |err: &dyn std::fmt::Display| {
        InvalidModel(format!("`{}` cannot be read: {err}", path.display()))
    };
    let len = fs::metadata(&path).map_err(|err| unreadable(&err))?.len();
    if len > MAX_CONFIG_BYTES {
        return Err(unreadable(&format_args!(
            "it has {len} bytes; the limit is {MAX_CONFIG_BYTES}"
        )));
    }
    fs::read_to_string(&path).map_err(|err| unreadable(&err))
}

fn read_optional<T: DeserializeOwned>(
    directory: &Path,
    name: &str,
) -> Result<Option<T>, InvalidModel> {
    match fs::metadata(directory.join(name)) {
        Err(err) if err.kind() == ErrorKind::NotFound => Ok(None),
        _ => parse_json(name, &read_required(directory, name)?).map(Some),
    }
}

fn parse_json<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, InvalidModel> {
    serde_json::from_str(text)
        .map_err(|err| InvalidModel(format!("its `{name}` cannot be read: {err}")))
}
