//! Tests of the form of one encrypted value, and of its decryption.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use shared::{
    sealed::{SealedText, is_sealed},
    store::StoreError,
};

use super::fixtures::{keyring, other_key};
use crate::{
    Keyring,
    edit::{Edit, Task},
    keyring::{OpenError, Place},
};

const PLACE: Place<'_> =
    Place { collection: "events", document: "exec_1763712000_abc123def/7", field: "output" };

/// Made by an independent program, in Python, from the specification of XChaCha20-Poly1305.
const GOLDEN: &str =
    "$encrypted:k1:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7B1GN1Ydaq7ilQ-lNx6wirHnGLBDECIfyXn6OD40-U14rag";

#[test]
fn an_encrypted_value_has_the_documented_form() {
    let ring = keyring(&["k1"], "k1");
    let content = r#"{"text":"straße"}"#;
    let nonce = std::array::from_fn(|index| 100 + u8::try_from(index).unwrap());
    let sealed = ring.seal_with_nonce(nonce, PLACE, content.as_bytes()).unwrap();
    assert_eq!(sealed, GOLDEN);
    let opened = ring.open(PLACE, SealedText::parse(GOLDEN).unwrap());
    assert_eq!(opened.as_deref(), Ok(content.as_bytes()));
}

#[test]
fn the_same_value_is_never_encrypted_to_the_same_text() {
    let ring = keyring(&["k1"], "k1");
    assert_ne!(ring.seal(PLACE, b"a"), ring.seal(PLACE, b"a"));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON", |number| number.is_finite()).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(json!(GOLDEN)),
        Just(json!({ "$encrypted": "k1" })),
        Just(json!({ "$encrypted": { "key": "k1", "data": "AAAA" } })),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        let fields = prop::collection::vec((any::<String>(), inner.clone()), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(Value::from),
            fields.prop_map(|fields| Value::Object(Map::from_iter(fields))),
        ]
    })
}

fn edit_value(ring: &Keyring, task: Task, value: &Value) -> Result<Value, StoreError> {
    let mut value = value.clone();
    Edit::new(ring, task, "events", &"exec_1/1").edit_value("output", &mut value)?;
    Ok(value)
}

proptest! {
    #[test]
    fn any_value_and_any_text_come_back_unchanged(value in any_value(), text in any::<String>()) {
        let ring = keyring(&["k1"], "k1");
        let sealed = edit_value(&ring, Task::Seal, &value).unwrap();
        let is_hidden = sealed.as_str().is_some_and(is_sealed);
        prop_assert!(is_hidden || sealed == value);
        let opened = edit_value(&ring, Task::Open, &sealed).unwrap();
        prop_assert_eq!(opened.to_string(), value.to_string());
        prop_assert_eq!(edit_value(&ring, Task::Keep, &sealed).unwrap(), sealed.clone());
        prop_assert_eq!(edit_value(&ring, Task::SealClear, &sealed).unwrap(), sealed);

        let mut changed = text.clone();
        let sealing = Edit::new(&ring, Task::Seal, "events", &"exec_1/1");
        sealing.edit_text("stderr", &mut changed).unwrap();
        prop_assert!(text.is_empty() || is_sealed(&changed));
        let opening = Edit::new(&ring, Task::Open, "events", &"exec_1/1");
        opening.edit_text("stderr", &mut changed).unwrap();
        prop_assert_eq!(changed, text);
    }

    #[test]
    fn a_changed_or_moved_value_cannot_be_decrypted(
        content in prop::collection::vec(any::<u8>(), 0..40),
        at in any::<prop::sample::Index>(),
        letter in "[A-Za-z0-9_-]",
    ) {
        let ring = keyring(&["k1", "k2"], "k1");
        let sealed = ring.seal(PLACE, &content).unwrap();
        let sealed = SealedText::parse(&sealed).unwrap();
        prop_assert_eq!(ring.open(PLACE, sealed), Ok(content));
        for moved in [
            Place { collection: "inbox", ..PLACE },
            Place { document: "exec_1763712000_abc123def/8", ..PLACE },
            Place { document: "exec_1763712000_abc123deg/7", ..PLACE },
            Place { field: "stderr", ..PLACE },
            Place { document: "exec_1763712000_abc123def/7o", field: "utput", ..PLACE },
        ] {
            prop_assert_eq!(ring.open(moved, sealed), Err(OpenError::Damaged));
        }
        let mut data = sealed.data.to_owned();
        let at = at.index(data.len());
        data.replace_range(at..=at, &letter);
        let changed = SealedText { data: &data, ..sealed };
        prop_assert!(changed == sealed || ring.open(PLACE, changed) == Err(OpenError::Damaged));
        // Each letter of the id of the key counts, too.
        let other = SealedText { key: "k2", ..sealed };
        prop_assert_eq!(ring.open(PLACE, other), Err(OpenError::Damaged));
        let unknown = SealedText { key: "k3", ..sealed };
        let missing = Err(OpenError::KeyMissing("k3".to_owned()));
        prop_assert_eq!(ring.open(PLACE, unknown), missing);
        let wrong = Keyring::new(vec![("k1".to_owned(), Some(other_key()))], "k1", false).unwrap();
        prop_assert_eq!(wrong.open(PLACE, sealed), Err(OpenError::Damaged));
    }
}

#[test]
fn a_damaged_value_is_reported_with_its_place() {
    let ring = keyring(&["k1"], "k1");
    let sealed = edit_value(&ring, Task::Seal, &json!("x")).unwrap();
    let mut moved = sealed.clone();
    let edit = Edit::new(&ring, Task::Show, "events", &"exec_1/2");
    let error = edit.edit_value("output", &mut moved).unwrap_err().to_string();
    let expected = "`exec_1/2` is damaged in the store: `output` cannot be decrypted: it was \
                    changed or moved";
    assert_eq!(error, expected);
}
