//! The signature keys of a provider (RFC 7517), and the check of signatures with them.

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde_json::Value;

use crate::decode;

/// Maximum number of keys of a provider. Further keys are ignored.
const MAX_KEYS: usize = 100;

/// The algorithms of accepted signatures. `none` and algorithms with a shared secret are missing,
/// because everyone who can check such a signature can also make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Ps256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "PS256" => Some(Self::Ps256),
            "ES256" => Some(Self::Es256),
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

#[derive(Debug)]
enum PublicKey {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Debug)]
struct Key {
    id: Option<String>,
    algorithm: Option<Algorithm>,
    public: PublicKey,
}

#[derive(Debug, Default)]
pub(crate) struct KeySet(Vec<Key>);

impl KeySet {
    /// Reads a key set. Ignores keys for encryption and keys of unknown kinds, as RFC 7517 asks.
    /// Returns `None` if the document is not a key set.
    pub(crate) fn read(document: &Value) -> Option<Self> {
        let keys = document.get("keys")?.as_array()?;
        Some(Self(keys.iter().filter_map(read_key).take(MAX_KEYS).collect()))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether a key has this id and fits the algorithm. A token without an id can have
    /// been signed with any key.
    pub(crate) fn has_key(&self, id: Option<&str>, algorithm: Algorithm) -> bool {
        self.matching_keys(id, algorithm).next().is_some()
    }

    pub(crate) fn verifies(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        self.matching_keys(id, algorithm)
            .any(|key| key.public.verifies(algorithm, message, signature))
    }

    fn matching_keys(&self, id: Option<&str>, algorithm: Algorithm) -> impl Iterator<Item = &Key> {
        self.0.iter().filter(move |key| {
            (id.is_none() || key.id.as_deref() == id)
                && key.algorithm.is_none_or(|only| only == algorithm)
                && key.public.fits(algorithm)
        })
    }
}

impl PublicKey {
    fn fits(&self, algorithm: Algorithm) -> bool {
        match self {
            Self::Rsa { .. } => matches!(algorithm, Algorithm::Rs256 | Algorithm::Ps256),
            Self::P256(_) => algorithm == Algorithm::Es256,
            Self::Ed25519(_) => algorithm == Algorithm::EdDsa,
        }
    }

    fn verifies(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            Self::Rsa { modulus: n, exponent: e } => {
                let parameters = match algorithm {
                    Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
                    _ => &RSA_PKCS1_2048_8192_SHA256,
                };
                RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
            }
            Self::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Self::Ed25519(point) => {
                UnparsedPublicKey::new(&ED25519, point).verify(message, signature)
            }
        };
        verified.is_ok()
    }
}

fn read_key(document: &Value) -> Option<Key> {
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    let bytes = |name: &str| decode(text(name)?);
    if text("use").is_some_and(|purpose| purpose != "sig") {
        return None;
    }
    let algorithm = match text("alg") {
        Some(name) => Some(Algorithm::parse(name)?),
        None => None,
    };
    let public = match (text("kty")?, text("crv")) {
        ("RSA", _) => PublicKey::Rsa {
            modulus: read_number(&bytes("n")?),
            exponent: read_number(&bytes("e")?),
        },
        ("EC", Some("P-256")) => {
            let point = [vec![4], bytes("x")?, bytes("y")?].concat();
            PublicKey::P256(point)
        }
        ("OKP", Some("Ed25519")) => PublicKey::Ed25519(bytes("x")?),
        _ => return None,
    };
    Some(Key { id: text("kid").map(str::to_owned), algorithm, public })
}

/// Removes leading zeros, which the cryptography library rejects.
fn read_number(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().skip_while(|byte| *byte == 0).collect()
}
