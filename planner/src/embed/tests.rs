//! Compares encoders with the vectors of an independent implementation (numpy, 64 bits), and opens
//! broken models.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::{
    EmbedError, Embedder, Local,
    shape::ModelShape,
    transformer::Transformer,
    weights::{InvalidModel, Weights},
};

#[derive(Deserialize)]
struct ReferenceVector {
    text: String,
    vector: Vec<f32>,
}

fn reproducible_numbers(name: &str, len: usize) -> Vec<f32> {
    let seed: u64 = name.bytes().map(u64::from).sum();
    let shift = if name.ends_with("orm.weight") { 1.0 } else { 0.0 };
    let number = |index: usize| {
        let number = u16::try_from((index as u64 * 7_919 + seed * 104_729) % 2_003).unwrap();
        f32::from(number) / 2_003.0 - 0.5 + shift
    };
    (0..len).map(number).collect()
}

fn write_tensors(path: &Path, tensors: &[(String, Vec<usize>)]) {
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, shape) in tensors {
        let start = data.len();
        let numbers = reproducible_numbers(name, shape.iter().product());
        data.extend(numbers.into_iter().flat_map(f32::to_le_bytes));
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] });
        header.insert(name.clone(), entry);
    }
    let header = Value::Object(header).to_string();
    let len = (header.len() as u64).to_le_bytes();
    fs::write(path, [&len, header.as_bytes(), &data].concat()).unwrap();
}

fn make_tensors() -> Vec<(String, Vec<usize>)> {
    let parts = [
        ("attention.self.query", 8, 8),
        ("attention.self.key", 8, 8),
        ("attention.self.value", 8, 8),
        ("attention.output.dense", 8, 8),
        ("intermediate.dense", 16, 8),
        ("output.dense", 8, 16),
    ];
    let mut all = vec![
        ("embeddings.word_embeddings.weight".to_owned(), vec![11, 8]),
        ("embeddings.position_embeddings.weight".to_owned(), vec![30, 8]),
        ("embeddings.token_type_embeddings.weight".to_owned(), vec![2, 8]),
    ];
    let mut push_pair = |name: String, shape: Vec<usize>| {
        all.push((format!("{name}.bias"), shape[..1].to_vec()));
        all.push((format!("{name}.weight"), shape));
    };
    push_pair("embeddings.LayerNorm".to_owned(), vec![8]);
    for layer in 0..2 {
        for (part, to, from) in parts {
            push_pair(format!("encoder.layer.{layer}.{part}"), vec![to, from]);
        }
        for norm in ["attention.output.LayerNorm", "output.LayerNorm"] {
            push_pair(format!("encoder.layer.{layer}.{norm}"), vec![8]);
        }
    }
    all
}

fn make_config() -> Value {
    json!({
        "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 2,
        "num_attention_heads": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
        "max_position_embeddings": 30,
    })
}

fn load_transformer(tensors: &[(String, Vec<usize>)]) -> Result<Transformer, InvalidModel> {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.safetensors");
    write_tensors(&path, tensors);
    Transformer::load(&ModelShape::read(&make_config().to_string())?, &Weights::open(&path)?)
}

#[test]
fn a_transformer_computes_the_same_as_numpy() {
    let long: Vec<u32> = (0..20).map(|index| (index * 3) % 11).collect();
    let last = [0.57258, -0.89545, -1.4437, -0.19341, 1.70882, -0.96274, -1.3629, 0.84066];
    let first = [0.79872, -1.01991, -1.25976, -0.43506, 1.11634, 0.20387, -1.5099, 0.28742];
    let transformer = load_transformer(&make_tensors()).unwrap();
    let rows = transformer.encode_tokens(&[long, vec![4, 2]]).unwrap();
    assert_eq!(rows.dim(), (22, 8));
    for (row, want) in [(19, last), (20, first)] {
        let row = rows.row(row);
        let is_near = row.iter().zip(&want).all(|(number, want)| (number - want).abs() < 2e-5);
        assert!(is_near, "{row} is not {want:?}");
    }
    // The vector of a text must not depend on the other texts of its batch.
    let alone = transformer.encode_tokens(&[vec![4, 2]]).unwrap();
    let beside = rows.rows().into_iter().skip(20);
    assert!(alone.iter().zip(beside.flatten()).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn tensor_prefixes_and_old_names_are_supported() {
    let renamed = |name: &str| {
        let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
        format!("bert.{}", name.replace("LayerNorm.bias", "LayerNorm.beta"))
    };
    let tensors: Vec<_> =
        make_tensors().iter().map(|(name, to)| (renamed(name), to.clone())).collect();
    load_transformer(&tensors).unwrap();
}

#[test]
fn a_broken_model_is_explained() {
    let without = |name: &str| {
        let all = make_tensors().into_iter();
        all.filter(|(tensor, _)| tensor != name).collect::<Vec<_>>()
    };
    let reshaped = |name: &str, shape: &[usize]| {
        let all = make_tensors().into_iter();
        let shape = |tensor: &str, was| if tensor == name { shape.to_vec() } else { was };
        all.map(|(tensor, was)| (tensor.clone(), shape(&tensor, was))).collect::<Vec<_>>()
    };
    let positions = "embeddings.position_embeddings.weight";
    for (tensors, want) in [
        (without("embeddings.word_embeddings.weight"), "it is not a BERT model"),
        (without(positions), "position_embeddings.weight` is missing"),
        (
            without("encoder.layer.1.output.dense.bias"),
            "`encoder.layer.1.output.dense.bias` is missing",
        ),
        (reshaped(positions, &[30, 3]), "is (30, 3)"),
        (reshaped(positions, &[64]), "has the shape [64]"),
        (reshaped("encoder.layer.0.attention.self.key.weight", &[8, 9]), "is (8, 9), not (8, 8)"),
        (reshaped("encoder.layer.0.output.LayerNorm.bias", &[7]), "does not have 8 numbers"),
        (reshaped("embeddings.position_embeddings.weight", &[29, 8]), "is (29, 8), not (30, 8)"),
    ] {
        let message = load_transformer(&tensors).unwrap_err().to_string();
        assert!(message.contains(want), "{message}");
    }
    let transformer = load_transformer(&make_tensors()).unwrap();
    let message = transformer.encode_tokens(&[vec![11]]).unwrap_err().to_string();
    assert!(message.contains("tokenizer.json"), "{message}");
    transformer.encode_tokens(&[vec![1; 31]]).unwrap_err();
    assert_eq!(transformer.encode_tokens(&[vec![]]).unwrap().dim(), (0, 8));
}

#[test]
fn a_file_without_tensors_is_rejected() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.safetensors");
    write_tensors(&path, &make_tensors());
    let whole = fs::read(&path).unwrap();
    let cut = &whole[..whole.len() - 1];
    for bytes in [
        &b""[..],
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"version https://git-lfs",
        cut,
        &whole[..100],
    ] {
        fs::write(&path, bytes).unwrap();
        let message = Weights::open(&path).unwrap_err().to_string();
        assert!(message.contains("safetensors"), "{message}");
    }
}

#[tokio::test]
async fn the_built_in_encoder_returns_its_reference_vectors() {
    let golden: Vec<ReferenceVector> =
        serde_json::from_str(include_str!("builtin/golden.json")).unwrap();
    let embedder = Local::open_builtin_model().await.unwrap();
    let texts: Vec<&str> = golden.iter().map(|reference| &*reference.text).collect();
    let vectors = embedder.embed(&texts).await.unwrap();
    for (ReferenceVector { text, vector: want }, vector) in golden.iter().zip(vectors) {
        assert_eq!(vector.len(), 384);
        let furthest =
            vector.iter().zip(want).map(|(is, want)| (is - want).abs()).fold(0.0, f32::max);
        assert!(furthest < 5e-6, "{text}: {furthest}");
    }
}

#[tokio::test]
async fn a_directory_without_a_model_is_rejected() {
    let folder = TempDir::new().unwrap();
    let open = async || match Local::open(folder.path()).await {
        Err(EmbedError::Model { model, reason }) => {
            assert_eq!(model, folder.path().display().to_string());
            reason
        }
        other => panic!("{other:?}"),
    };
    assert!(open().await.contains("config.json` cannot be read"));
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    for other in ["gpt2", "mpnet", "distilbert", "roberta"] {
        put("config.json", &json!({ "model_type": other }).to_string());
        let reason = open().await;
        assert!(
            reason.contains(&format!("its architecture is `{other}`; Faber runs only BERT models")),
            "{reason}"
        );
    }
    put("config.json", &make_config().to_string());
    assert!(open().await.contains("tokenizer.json` cannot be read"));
    let dense = r#"[{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}]"#;
    put("modules.json", dense);
    assert!(open().await.contains("unknown part `sentence_transformers.models.Dense`"));
}
