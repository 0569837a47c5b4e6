//! Signed assertions by which a program authenticates (RFC 7523).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::{SecureRandom, SystemRandom},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        Ed25519KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};

/// Lifetime of an assertion in seconds. Long enough for clocks that differ.
const LIFETIME_SECONDS: u64 = 300;

/// Why an assertion cannot be signed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignError {
    #[error(
        "the `private_key` of `auth` is no key of RSA, P-256, P-384 or Ed25519 in PEM (PKCS#8, which \
         `openssl pkcs8 -topk8 -nocrypt` writes)"
    )]
    Key,
    #[error("the `private_key` of `auth` does not sign")]
    Sign,
}

/// A key that signs.
enum SigningKey {
    Ecdsa(EcdsaKeyPair, &'static str),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    fn from_pem(pem: &str, random: &SystemRandom) -> Result<Self, SignError> {
        match PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| SignError::Key)? {
            PrivateKeyDer::Pkcs8(der) => Self::from_pkcs8(der.secret_pkcs8_der(), random),
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der())
                .map(Self::Rsa)
                .map_err(|_| SignError::Key),
            _ => Err(SignError::Key),
        }
    }

    /// Detects the kind of the key by parsing it.
    fn from_pkcs8(der: &[u8], random: &SystemRandom) -> Result<Self, SignError> {
        for (kind, name) in [
            (&ECDSA_P256_SHA256_FIXED_SIGNING, "ES256"),
            (&ECDSA_P384_SHA384_FIXED_SIGNING, "ES384"),
        ] {
            if let Ok(key) = EcdsaKeyPair::from_pkcs8(kind, der, random) {
                return Ok(Self::Ecdsa(key, name));
            }
        }
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Ok(Self::Ed25519(key));
        }
        RsaKeyPair::from_pkcs8(der).map(Self::Rsa).map_err(|_| SignError::Key)
    }

    /// Returns the name of the algorithm (RFC 7518).
    fn algorithm(&self) -> &'static str {
        match self {
            Self::Ecdsa(_, name) => name,
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        }
    }

    fn sign(&self, message: &[u8], random: &SystemRandom) -> Result<Vec<u8>, SignError> {
        match self {
            Self::Ecdsa(key, _) => {
                let signed = key.sign(random, message).map_err(|_| SignError::Sign)?;
                Ok(signed.as_ref().to_vec())
            }
            Self::Ed25519(key) => Ok(key.sign(message).as_ref().to_vec()),
            Self::Rsa(key) => {
                let mut signed = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, random, message, &mut signed)
                    .map_err(|_| SignError::Sign)?;
                Ok(signed)
            }
        }
    }
}

/// Signs an assertion of a client's identity for one server. It is valid for a short time from `now`.
pub(super) fn sign_assertion(
    pem: &str,
    client: &str,
    audience: &str,
    now: u64,
) -> Result<String, SignError> {
    let random = SystemRandom::new();
    let key = SigningKey::from_pem(pem, &random)?;
    let mut id = [0_u8; 16];
    random.fill(&mut id).map_err(|_| SignError::Sign)?;
    let header = json!({ "alg": key.algorithm(), "typ": "JWT" });
    let claims = json!({
        "iss": client,
        "sub": client,
        "aud": audience,
        "iat": now,
        "exp": now.saturating_add(LIFETIME_SECONDS),
        "jti": URL_SAFE_NO_PAD.encode(id),
    });
    let part = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let message = format!("{}.{}", part(&header), part(&claims));
    let signed = key.sign(message.as_bytes(), &random)?;
    Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signed)))
}

#[cfg(test)]
mod tests {
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ED25519, KeyPair, UnparsedPublicKey, VerificationAlgorithm,
    };

    use super::*;

    fn pem(der: &[u8]) -> String {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
    }

    fn check(
        assertion: &str,
        algorithm: &str,
        verify: &'static dyn VerificationAlgorithm,
        key: &[u8],
    ) {
        let parts: Vec<&str> = assertion.split('.').collect();
        let read = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let json = |part: &str| serde_json::from_slice::<Value>(&read(part)).unwrap();
        assert_eq!(json(parts[0]), json!({ "alg": algorithm, "typ": "JWT" }));
        let claims = json(parts[1]);
        assert_eq!((&claims["iss"], &claims["sub"]), (&json!("me"), &json!("me")));
        assert_eq!((&claims["aud"], &claims["exp"]), (&json!("https://as"), &json!(1_300)));
        assert_eq!(claims["jti"].as_str().unwrap().len(), 22);
        let message = format!("{}.{}", parts[0], parts[1]);
        UnparsedPublicKey::new(verify, key).verify(message.as_bytes(), &read(parts[2])).unwrap();
    }

    #[test]
    fn what_is_signed_can_be_verified() {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &random);
        let assertion = sign_assertion(&pem(der.as_ref()), "me", "https://as", 1_000).unwrap();
        check(&assertion, "ES256", &ECDSA_P256_SHA256_FIXED, key.unwrap().public_key().as_ref());

        let der = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let key = Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap();
        let assertion = sign_assertion(&pem(der.as_ref()), "me", "https://as", 1_000).unwrap();
        check(&assertion, "EdDSA", &ED25519, key.public_key().as_ref());
        let again = sign_assertion(&pem(der.as_ref()), "me", "https://as", 1_000).unwrap();
        assert_ne!(assertion, again, "nobody can use it twice");
    }

    #[test]
    fn what_is_no_key_is_not_repeated() {
        for written in [
            "",
            "the key",
            &pem(b"no key"),
            "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----",
        ] {
            let err = sign_assertion(written, "me", "a", 0).unwrap_err();
            assert_eq!(err, SignError::Key);
            assert!(!err.to_string().contains("the key"));
        }
    }
}
