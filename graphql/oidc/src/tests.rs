use std::{collections::BTreeMap, sync::Arc};

use engine::access::{Access, Role, Token};
use ring::{
    rand::SystemRandom,
    rsa::KeyPair as RsaKeyPair,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
        RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding,
    },
};
use serde_json::{Value, json};
use shared::clock::{Clock, Timestamp};

use crate::{
    ClientCredentials, Rule, Settings, SignIn, SignInError, encode,
    exchange_limit::{MAX_EXCHANGES, PERIOD},
    key_set::KeySet,
    provider::Provider,
    sealed::Purpose,
    sign_in::SessionContent,
};

const ISSUER: &str = "https://login.example";
const AUDIENCE: &str = "https://faber.example/mcp";
const NOW: i64 = 1_800_000_000;
/// A key that only this test uses, because the library cannot generate RSA keys.
const RSA_KEY: &[u8] = include_bytes!("tests/rsa.pk8");

#[derive(Debug)]
struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_timestamp(NOW, 0).unwrap()
    }
}

struct Keys {
    random: SystemRandom,
    p256: EcdsaKeyPair,
    ed25519: Ed25519KeyPair,
    rsa: RsaKeyPair,
}

impl Keys {
    fn generate() -> Self {
        let random = SystemRandom::new();
        let kind = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let p256 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        Self {
            p256: EcdsaKeyPair::from_pkcs8(kind, p256.as_ref(), &random).unwrap(),
            ed25519: Ed25519KeyPair::from_pkcs8(ed25519.as_ref()).unwrap(),
            rsa: RsaKeyPair::from_pkcs8(RSA_KEY).unwrap(),
            random,
        }
    }

    fn key_set(&self) -> Value {
        let point = self.p256.public_key().as_ref();
        let public: ring::rsa::PublicKeyComponents<Vec<u8>> = self.rsa.public().into();
        json!({ "keys": [
            { "kid": "ec", "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256",
              "x": encode(&point[1..33]), "y": encode(&point[33..]) },
            { "kid": "ed", "kty": "OKP", "crv": "Ed25519",
              "x": encode(self.ed25519.public_key().as_ref()) },
            { "kid": "rsa", "kty": "RSA", "n": encode(&public.n), "e": encode(&public.e) },
            { "kid": "enc", "kty": "EC", "crv": "P-256", "use": "enc",
              "x": encode(&point[1..33]), "y": encode(&point[33..]) },
            { "kid": "hs", "kty": "oct", "k": "c2VjcmV0" },
        ] })
    }

    fn sign_token(&self, algorithm: &str, key_id: &str, claims: &Value) -> String {
        self.sign_parts(&json!({ "alg": algorithm, "kid": key_id, "typ": "at+jwt" }), claims)
    }

    fn sign_parts(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| encode(value.to_string().as_bytes());
        let message = format!("{}.{}", part(header), part(claims));
        let bytes = message.as_bytes();
        let signature = match header["alg"].as_str().unwrap() {
            "ES256" => self.p256.sign(&self.random, bytes).unwrap().as_ref().to_vec(),
            "EdDSA" => self.ed25519.sign(bytes).as_ref().to_vec(),
            name @ ("RS256" | "PS256") => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                let padding: &dyn RsaEncoding =
                    if name == "RS256" { &RSA_PKCS1_SHA256 } else { &RSA_PSS_SHA256 };
                self.rsa.sign(padding, &self.random, bytes, &mut signature).unwrap();
                signature
            }
            _ => Vec::new(),
        };
        format!("{message}.{}", encode(&signature))
    }
}

fn rule(claim: &str, value: &str, role: Role) -> Rule {
    Rule { claim: claim.to_owned(), value: value.to_owned(), rights: Token::new("", "", role) }
}

fn sign_in_with(keys: &Keys) -> SignIn {
    let settings = Settings {
        issuer: ISSUER.to_owned(),
        audience: vec!["other".to_owned(), AUDIENCE.to_owned()],
        client: Some(ClientCredentials { id: "faber".to_owned(), secret: Some("s".repeat(32)) }),
        scopes: vec!["openid".to_owned()],
        name_claim: "sub".to_owned(),
        rules: vec![
            rule("realm.roles", "boss", Role::Admin),
            rule("groups", "ops", Role::Operator),
            rule("scope", "faber:read", Role::Viewer),
        ],
        public_url: None,
    };
    let access = Access::default().with_identities();
    let mut sign_in = SignIn::new(settings, access, Arc::new(FixedClock)).unwrap();
    let provider = Provider::with_keys(ISSUER, KeySet::read(&keys.key_set()).unwrap());
    sign_in.provider = Arc::new(provider);
    sign_in
}

fn changed_claims(changes: &Value) -> Value {
    let mut claims = json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": NOW + 300, "groups": ["x", "ops"] });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn good_claims() -> Value {
    changed_claims(&json!({}))
}

fn role_of(sign_in: &SignIn, caller: &crate::SignedIn) -> Option<Role> {
    assert!(sign_in.has_client());
    Role::ALL.into_iter().rev().find(|role| {
        let (root, field) = match role {
            Role::Admin => ("Mutation", "registerTool"),
            Role::Operator => ("Mutation", "run"),
            Role::Viewer => ("Query", "tools"),
        };
        caller.grant.check_field(root, field).is_ok()
    })
}

#[tokio::test]
async fn every_algorithm_with_a_public_key_is_accepted() {
    let keys = Keys::generate();
    let sign_in = sign_in_with(&keys);
    for (algorithm, key) in [("ES256", "ec"), ("EdDSA", "ed"), ("RS256", "rsa"), ("PS256", "rsa")] {
        let token = keys.sign_token(algorithm, key, &good_claims());
        assert!(sign_in.is_signed_token(&token));
        let caller = sign_in.authenticate_token(&token).await.unwrap();
        assert_eq!(caller.grant.name(), Some("oidc:ada"), "{algorithm}");
        assert_eq!(caller.valid_for.as_secs(), 360);
    }
    let without_id = keys.sign_parts(&json!({ "alg": "ES256" }), &good_claims());
    assert!(sign_in.authenticate_token(&without_id).await.is_ok());
    assert!(!sign_in.is_signed_token("a-token.of-the.configuration"));
}

#[tokio::test]
async fn a_token_that_another_party_made_is_rejected() {
    let keys = Keys::generate();
    let sign_in = sign_in_with(&keys);
    let stranger = Keys::generate();
    let good = keys.sign_token("ES256", "ec", &good_claims());
    let (message, signature) = good.rsplit_once('.').unwrap();
    let (header, _) = message.split_once('.').unwrap();
    let payload = encode(changed_claims(&json!({ "sub": "eve" })).to_string().as_bytes());
    let critical = json!({ "alg": "ES256", "kid": "ec", "crit": ["b64"] });
    let large = changed_claims(&json!({ "x": "x".repeat(20_000) }));
    for (fault, token) in [
        ("no signature", keys.sign_token("none", "ec", &good_claims())),
        ("shared secret", keys.sign_token("HS256", "hs", &good_claims())),
        ("key of a stranger", stranger.sign_token("ES256", "ec", &good_claims())),
        ("key for another algorithm", keys.sign_token("RS256", "ec", &good_claims())),
        ("changed payload", format!("{header}.{payload}.{signature}")),
        ("empty signature", format!("{message}.")),
        ("unknown extension", keys.sign_parts(&critical, &good_claims())),
        ("too large", keys.sign_token("ES256", "ec", &large)),
    ] {
        let outcome = sign_in.authenticate_token(&token).await;
        assert!(matches!(outcome, Err(SignInError::InvalidToken(_))), "{fault}: {outcome:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unknown_key_causes_at_most_one_fetch_in_a_minute() {
    let keys = Keys::generate();
    let sign_in = sign_in_with(&keys);
    assert_eq!(sign_in.provider.fetches(), 0);
    // No provider listens, so each fetch fails and the known keys stay.
    for (pause, expected) in [(0, 1), (0, 1), (59, 1), (1, 2), (3_600, 3)] {
        tokio::time::advance(std::time::Duration::from_secs(pause)).await;
        let token = keys.sign_token("ES256", "enc", &good_claims());
        assert!(sign_in.authenticate_token(&token).await.is_err());
        assert_eq!(sign_in.provider.fetches(), expected, "after {pause} s");
        let token = keys.sign_token("ES256", "ec", &good_claims());
        assert!(sign_in.authenticate_token(&token).await.is_ok());
        assert_eq!(sign_in.provider.fetches(), expected, "a known key needs no fetch");
    }
}

#[tokio::test]
async fn the_claims_must_fit_within_a_minute() {
    let keys = Keys::generate();
    let sign_in = sign_in_with(&keys);
    for (changes, expected) in [
        (json!({ "exp": NOW - 59 }), true),
        (json!({ "exp": NOW - 60 }), false),
        (json!({ "exp": null }), false),
        (json!({ "exp": "soon" }), false),
        (json!({ "exp": 1_800_000_300.5 }), true),
        (json!({ "nbf": NOW + 60 }), true),
        (json!({ "nbf": NOW + 61 }), false),
        (json!({ "iss": "https://login.example/" }), false),
        (json!({ "iss": null }), false),
        (json!({ "aud": ["a", AUDIENCE] }), true),
        (json!({ "aud": "https://faber.example" }), false),
        (json!({ "aud": [] }), false),
        (json!({ "aud": null }), false),
        (json!({ "sub": "" }), false),
        (json!({ "sub": 7 }), false),
        (json!({ "sub": "a\nb" }), false),
        (json!({ "sub": "a".repeat(121) }), false),
    ] {
        let token = keys.sign_token("ES256", "ec", &changed_claims(&changes));
        let outcome = sign_in.authenticate_token(&token).await;
        assert_eq!(outcome.is_ok(), expected, "{changes}: {outcome:?}");
        let is_invalid = matches!(outcome, Err(SignInError::InvalidToken(_)));
        assert_eq!(is_invalid, !expected, "{changes}");
    }
}

#[tokio::test]
async fn the_first_rule_that_matches_gives_the_role() {
    let keys = Keys::generate();
    let sign_in = sign_in_with(&keys);
    for (changes, expected) in [
        (json!({ "realm": { "roles": ["boss"] } }), Some(Role::Admin)),
        (json!({}), Some(Role::Operator)),
        (json!({ "groups": "ops" }), Some(Role::Operator)),
        (json!({ "groups": [], "scope": "openid faber:read" }), Some(Role::Viewer)),
        (json!({ "groups": "ops team" }), None),
        (json!({ "groups": null }), None),
        (json!({ "groups": { "ops": true } }), None),
    ] {
        let token = keys.sign_token("EdDSA", "ed", &changed_claims(&changes));
        let found = match sign_in.authenticate_token(&token).await {
            Ok(caller) => role_of(&sign_in, &caller),
            Err(SignInError::NoRule { name }) if name == "ada" => None,
            Err(err) => panic!("{changes}: {err}"),
        };
        assert_eq!(found, expected, "{changes}");
    }
}

#[test]
fn a_session_is_valid_until_it_expires_and_while_its_rule_exists() {
    let sign_in = sign_in_with(&Keys::generate());
    let seal = |purpose, claim: &str, expires_at| {
        let (name, claim, value) = ("ada".to_owned(), claim.to_owned(), "ops".to_owned());
        let session = SessionContent { name, claim, value, expires_at };
        sign_in.sealer.seal(purpose, &serde_json::to_string(&session).unwrap()).unwrap()
    };
    let session = seal(Purpose::Session, "groups", NOW + 1);
    assert_eq!(sign_in.authenticate_session(&session).unwrap().grant.name(), Some("oidc:ada"));
    let restarted = sign_in_with(&Keys::generate());
    assert!(restarted.authenticate_session(&session).is_ok(), "the key follows from the secret");
    let mut changed = session.clone();
    changed.replace_range(20..21, if &session[20..21] == "A" { "B" } else { "A" });
    for (fault, cookie) in [
        ("expired", seal(Purpose::Session, "groups", NOW)),
        ("of a sign-in", seal(Purpose::Login, "groups", NOW + 1)),
        ("changed", changed),
        ("cut", session[..10].to_owned()),
        ("empty", String::new()),
    ] {
        let outcome = sign_in.authenticate_session(&cookie).map(|caller| caller.valid_for);
        assert_eq!(outcome, Err(SignInError::SessionEnded), "{fault}");
    }
    let outcome = sign_in.authenticate_session(&seal(Purpose::Session, "teams", NOW + 1));
    assert!(matches!(outcome, Err(SignInError::NoRule { .. })));
}

#[tokio::test(start_paused = true)]
async fn invented_codes_cause_a_limited_number_of_requests() {
    let sign_in = sign_in_with(&Keys::generate());
    let callback = "https://faber.example/auth/callback";
    let started = sign_in.start(callback, "/").await.unwrap();
    let url: reqwest::Url = started.url.parse().unwrap();
    let (_, state) = url.query_pairs().find(|(name, _)| name == "state").unwrap();
    let answer = [("state", &*state), ("code", "invented")];
    let answer: BTreeMap<_, _> =
        answer.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    for _ in 0..2 {
        for n in 0..2 * MAX_EXCHANGES {
            // Without the cookie, the answer causes no request and is not counted.
            let foreign = sign_in.finish(callback, &answer, None).await;
            assert!(matches!(foreign, Err(SignInError::Failed(_))), "{foreign:?}");
            let outcome = sign_in.finish(callback, &answer, Some(&started.cookie)).await;
            match outcome.unwrap_err() {
                SignInError::Busy => assert!(n >= MAX_EXCHANGES, "{n}"),
                // The issuer of this test has no token endpoint.
                err => assert!(n < MAX_EXCHANGES, "{n}: {err}"),
            }
        }
        tokio::time::advance(PERIOD).await;
    }
}

#[test]
fn debug_output_hides_the_secret() {
    let sign_in = sign_in_with(&Keys::generate());
    assert!(!format!("{sign_in:?}").contains(&"s".repeat(32)));
}
