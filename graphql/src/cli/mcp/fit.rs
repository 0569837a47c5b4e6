//! How large an answer may be: what a client can read, and a model is never shown.

use serde_json::{Value, json};

use super::super::render::clip;

/// The most bytes of a document.
const MOST: usize = 4 << 20;
/// How many letters a text and how many parts a list or an object keeps, the gentlest first.
const ROUNDS: [(usize, usize); 5] = [(8_192, 1_000), (1_024, 200), (256, 100), (128, 50), (64, 8)];
/// The fields that an object keeps whatever a list does: those that a schema asks for are among
/// the first, and fewer.
const FIELDS: usize = 64;

/// Cuts a document until it fits, and says so in it: long texts and lists end sooner. What a schema
/// says of it still holds. Returns whether it did not fit.
pub(super) fn fitted(mut document: Value) -> (Value, bool) {
    if fits(&document) {
        return (document, false);
    }
    for (letters, parts) in ROUNDS {
        cut(&mut document, letters, parts);
        if fits(&document) {
            break;
        }
    }
    if !fits(&document) {
        for (_, value) in document.as_object_mut().into_iter().flatten() {
            empty(value);
        }
    }
    if let Some(fields) = document.as_object_mut() {
        fields.insert("cut".to_owned(), json!(true));
    }
    (document, true)
}

fn fits(document: &Value) -> bool {
    document.to_string().len() <= MOST
}

fn cut(value: &mut Value, letters: usize, parts: usize) {
    match value {
        Value::String(text) if text.len() > letters => *text = clip(text, letters),
        Value::Array(items) => {
            items.truncate(parts);
            for it in items {
                cut(it, letters, parts);
            }
        }
        Value::Object(fields) => {
            let most = parts.max(FIELDS);
            let mut n = 0;
            fields.retain(|_, _| {
                n += 1;
                n <= most
            });
            for it in fields.values_mut() {
                cut(it, letters, parts);
            }
        }
        _ => (),
    }
}

fn empty(value: &mut Value) {
    match value {
        Value::Array(items) => items.clear(),
        Value::Object(fields) => fields.clear(),
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
        let many: Map<_, _> = (0..9_000).map(|it| (it.to_string(), step.clone())).collect();
        // Each part of a part has as many again.
        let wide = (0..5).fold(json!("x".repeat(60)), |it, _| json!(vec![it; 10]));
        let fields =
            |of: Value| -> Value { (0..40).map(|n| (n.to_string(), of.clone())).collect() };
        let full = (0..3).fold(json!("x".repeat(63)), |it, _| fields(it));
        for document in [
            json!({ "id": "i", "n": 7, "text": text.repeat(1_000) }),
            json!({ "id": "i", "n": 7, "steps": vec![step.clone(); 9_000] }),
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
        let (short, _) = fitted(json!({ "steps": vec![step.clone(); 9_000] }));
        assert_eq!(short["steps"][0]["stepId"], "a");
    }
}
