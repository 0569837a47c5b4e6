//! Names of models, derived from their files: equal on all nodes, and different after a change.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
};

use sha2::{Digest, Sha256};
use shared::hex::to_hex;

use super::{
    encoder::{CONFIG_FILE, TOKENIZER_FILE, WEIGHTS_FILE},
    weights::InvalidModel,
};

const VECTOR_FILES: [&str; 6] = [
    WEIGHTS_FILE,
    TOKENIZER_FILE,
    CONFIG_FILE,
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
];
const CHUNK_BYTES: usize = 1 << 20;
const FINGERPRINT_BYTES: usize = 8;

pub(super) fn name_with_fingerprint(directory: &Path) -> Result<String, InvalidModel> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    for name in VECTOR_FILES {
        let path = directory.join(name);
        let unreadable = |err| InvalidModel(format!("`{}` cannot be read: {err}", path.display()));
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(err) if err.kind() == ErrorKind::NotFound => continue,
            Err(err) => return Err(unreadable(err)),
        };
        hash.update(name);
        let len = file.metadata().map_err(unreadable)?.len();
        hash.update(len.to_le_bytes());
        loop {
            match file.read(&mut chunk).map_err(unreadable)? {
                0 => break,
                read => hash.update(&chunk[..read]),
            }
        }
    }
    let name = directory.canonicalize().ok();
    let name = name.as_deref().unwrap_or(directory).file_name().unwrap_or_default();
    Ok(format!("{}@{}", name.to_string_lossy(), to_hex(&hash.finalize()[..FINGERPRINT_BYTES])))
}
