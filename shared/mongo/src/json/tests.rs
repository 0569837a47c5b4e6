use mongodb::bson::{Bson, doc, raw::cstr, rawdoc};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn convert(text: &str, times: Times) -> (Bson, String) {
    let value = Value::from_json(text, times).unwrap();
    let mut row = rawdoc! { "_id": 1 };
    value.append_to(&mut row, cstr!("v"));
    let again = to_text(row.get("v").unwrap().unwrap(), "a test").unwrap();
    let stored = value.into_bson().unwrap();
    assert_eq!(bson_to_text(&stored, "a test").unwrap(), again);
    (stored, again)
}

#[test]
fn values_that_bson_can_hold_are_stored_as_bson() {
    let json = json!({
        "text": "a \"quoted\" ö\u{0}\n", "int": 5, "long": 5_000_000_000_i64, "half": 0.5, "whole": 1.0,
        "list": [1, [], {}], "none": null, "yes": true, "a.b": false, "": {},
    });
    let (stored, text) = convert(&json.to_string(), Times::None);
    assert_eq!(text, json.to_string());
    let expected = doc! {
        "text": "a \"quoted\" ö\u{0}\n", "int": 5_i32, "long": 5_000_000_000_i64, "half": 0.5,
        "whole": 1.0, "list": [1_i32, Bson::Array(vec![]), doc! {}], "none": Bson::Null,
        "yes": true, "a.b": false, "": {},
    };
    assert_eq!(stored, Bson::Document(expected));
}

#[test]
fn values_that_bson_cannot_hold_are_stored_as_marked_text() {
    let code = |text: &str| Bson::JavaScriptCode(text.to_owned());
    for text in [
        "18446744073709551615",
        "-0",
        "1e5",
        "1.50",
        "123456789012345678901234567890",
        r#"{"a\u0000b":1}"#,
        r#"{"a":{"x":[1,"}"]},"$ref":"y"}"#,
    ] {
        let (stored, again) = convert(text, Times::None);
        assert_eq!((stored, again.as_str()), (code(text), text));
    }
    let inner = (0..200).fold("1".to_owned(), |inner, _| format!("[{inner}]"));
    assert_eq!(convert(&inner, Times::None).1, inner);
    let (stored, _) = convert(r#"{"code":{"$where":1},"b":2}"#, Times::None);
    assert_eq!(stored, Bson::from(doc! { "code": code(r#"{"$where":1}"#), "b": 2_i32 }));
}

#[test]
fn a_value_that_grows_too_large_in_bson_keeps_its_larger_parts_as_text() {
    let numbers = vec!["1"; 3 << 20].join(",");
    let event = format!(r#"[{{"type":"step_succeeded","stepId":"a","output":[{numbers}]}}]"#);
    let value = Value::from_json(&event, Times::Events).unwrap();
    assert!(value.bytes() < MAX_BYTES);
    let (stored, again) = convert(&event, Times::Events);
    assert!(again == event);
    let first = stored.as_array().unwrap()[0].as_document().unwrap();
    assert_eq!(first.get_str("type").unwrap(), "step_succeeded");
    assert!(matches!(first.get("output"), Some(Bson::JavaScriptCode(_))));
}

#[test]
fn times_of_events_are_dates_and_keep_their_microseconds() {
    let text = r#"[{"at":1704123456000000,"type":"created","options":{"startAt":-1},"parameters":{"at":7}},{"at":1704123456000001,"type":"step_waiting","reason":{"until":2000,"for":"x"},"until":null}]"#;
    let (stored, again) = convert(text, Times::Events);
    assert_eq!(again, text);
    let date = |millis| Bson::DateTime(mongodb::bson::DateTime::from_millis(millis));
    let expected = vec![
        Bson::from(doc! {
            "at": date(1_704_123_456_000), "type": "created",
            "options": { "startAt": date(-1), "startAtMicros": -1_i64 }, "parameters": { "at": 7_i32 },
        }),
        Bson::from(doc! {
            "at": date(1_704_123_456_000), "atMicros": 1_704_123_456_000_001_i64,
            "type": "step_waiting", "reason": { "until": date(2), "for": "x" }, "until": Bson::Null,
        }),
    ];
    assert_eq!(stored, Bson::Array(expected));
}

#[test]
fn a_text_that_is_not_json_is_refused() {
    for text in ["", "{", "[1", "[1,]x", "{\"a\"}", "\"a", "nul", "1 2", "{,}"] {
        assert!(Value::from_json(text, Times::None).is_err(), "{text}");
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let text = || {
        prop_oneof![
            any::<String>(),
            prop::collection::vec(0..0x80_u8, 0..8)
                .prop_map(|ascii| ascii.into_iter().map(char::from).collect()),
            prop::sample::select(vec!["$a", "at", "until", "atMicros", "reason", "options", "a.b"])
                .prop_map(str::to_owned),
        ]
    };
    let leaf = prop_oneof![
        any::<Option<bool>>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<i16>().prop_map(serde_json::Value::from),
        any::<u64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        any::<i32>().prop_map(|whole| serde_json::Value::from(f64::from(whole))),
        text().prop_map(serde_json::Value::from),
    ];
    leaf.prop_recursive(5, 48, 5, move |inside| {
        let fields = prop::collection::vec((text(), inside.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inside, 0..5).prop_map(serde_json::Value::from),
            fields.prop_map(|fields| fields.into_iter().collect::<serde_json::Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_comes_back_as_the_same_text(json in any_json(), max_text in 0..64_usize) {
        let text = json.to_string();
        prop_assert_eq!(&convert(&text, Times::None).1, &text);
        let bytes = encode::encode(&text, Times::None, max_text).unwrap();
        let document = RawDocumentBuf::from_bytes(bytes).unwrap();
        prop_assert_eq!(&to_text(document.get("v").unwrap().unwrap(), "a test").unwrap(), &text);
    }

    #[test]
    fn any_events_come_back_as_the_same_text(
        output in any_json(),
        at in any::<i64>(),
        until in any::<i64>(),
    ) {
        // Faber writes its own fields before the values of users, so `output` comes last.
        let event = json!({ "at": at, "type": "t", "until": until, "output": output });
        let text = json!([event]).to_string();
        prop_assert_eq!(&convert(&text, Times::Events).1, &text);
    }
}
