//! The last resort where an answer is too large all the same: clients read no more.

use serde_json::{Value, json};

use super::{
    super::render::clip,
    bounds::{first, written},
};

/// The most bytes of a document.
const MOST: usize = 4 << 20;
/// Bytes that any field may have.
const FIELD: usize = 32;
/// Bytes that a letter may have.
const LETTER: usize = 6;

/// Cuts a document that does not fit, and says so in it: each of its fields gets the same room. What
/// a schema says of it still holds. Returns whether it did not fit.
pub(super) fn fitted(mut document: Value) -> (Value, bool) {
    if written(&document) <= MOST {
        return (document, false);
    }
    confine(&mut document, MOST - FIELD);
    if let Some(fields) = document.as_object_mut() {
        fields.insert("cut".to_owned(), json!(true));
    }
    (document, true)
}

/// Cuts a value so that it has no more than so many bytes.
fn confine(value: &mut Value, bytes: usize) {
    if written(value) <= bytes {
        return;
    }
    match value {
        Value::String(text) => *text = clip(text, bytes.saturating_sub(FIELD) / LETTER),
        Value::Array(_) => {
            first(value, usize::MAX, bytes);
        }
        Value::Object(fields) => {
            let names: usize = fields.keys().map(|it| LETTER * it.len() + FIELD).sum();
            let room = bytes.checked_sub(names).map_or(0, |it| it / fields.len().max(1));
            if room < FIELD {
                return fields.clear();
            }
            fields.values_mut().for_each(|it| confine(it, room));
        }
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    #[test]
    fn what_fits_is_left_as_it_is() {
        let document = json!({ "a": "x".repeat(MOST / 2), "b": (0..5_000).collect::<Vec<_>>() });
        assert_eq!(fitted(document.clone()), (document, false));
    }

    #[test]
    fn what_is_too_large_keeps_its_shape() {
        let text = "\u{1}ö".repeat(3_000);
        let step = json!({ "stepId": "a", "output": { "deep": [text.clone(), [text.clone()]] } });
        let many: Map<_, _> = (0..900).map(|it| (it.to_string(), step.clone())).collect();
        // Each part of a part has as many again.
        let wide = (0..5).fold(json!("x".repeat(60)), |it, _| json!(vec![it; 10]));
        let fields =
            |of: Value| -> Value { (0..40).map(|n| (n.to_string(), of.clone())).collect() };
        let full = (0..3).fold(json!("x".repeat(63)), |it, _| fields(it));
        for document in [
            json!({ "id": "i", "n": 7, "text": text.repeat(1_000) }),
            json!({ "id": "i", "n": 7, "steps": vec![step.clone(); 900] }),
            json!({ "id": "i", "n": 7, "outputs": many }),
            json!({ "id": "i", "n": 7, "wide": wide }),
            json!({ "id": "i", "n": 7, "full": full }),
        ] {
            let (short, is_cut) = fitted(document.clone());
            assert!(is_cut && short.to_string().len() <= MOST);
            assert_eq!((&short["id"], &short["n"]), (&json!("i"), &json!(7)));
            assert_eq!(short["cut"], true);
            for (name, value) in document.as_object().unwrap() {
                let kind = std::mem::discriminant(value);
                assert_eq!(std::mem::discriminant(&short[name]), kind, "{name}");
            }
        }
        // Of what was cut gently, the beginning is there.
        let (short, _) = fitted(json!({ "steps": vec![step.clone(); 900] }));
        assert_eq!(short["steps"][0]["stepId"], "a");
    }
}
