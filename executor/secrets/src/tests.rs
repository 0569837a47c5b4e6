use serde_json::json;

use super::*;

#[test]
fn a_secret_is_read_from_its_variable_on_use() {
    let text: TextOrSecret =
        serde_json::from_value(json!({ "secret": "CARGO_PKG_NAME", "prefix": "Bearer " })).unwrap();
    let mut redaction = Redaction::default();
    assert_eq!(text.resolve(&mut redaction).unwrap(), "Bearer secrets");
    assert!(!format!("{text:?} {redaction:?}").contains("secrets"));
    let output = json!({ "secrets": ["my secrets!", 1], "b": "x" });
    let expected = json!({ "***CARGO_PKG_NAME***": ["my ***CARGO_PKG_NAME***!", 1], "b": "x" });
    assert_eq!(redaction.redact_value(output), expected);
    let failed = redaction.redact_result(Err(ToolError::failed("no secrets here").without_retry()));
    assert_eq!(failed, Err(ToolError::failed("no ***CARGO_PKG_NAME*** here").without_retry()));
}

#[test]
fn secrets_are_redacted_in_binaries() {
    let mut redaction = Redaction::default();
    redaction.add_secret("KEY", "ein größerer Schlüssel");
    let secret = "ein größerer Schlüssel";
    let encoded = percent_encode(secret);
    let cleaned =
        |bytes: &[u8]| STANDARD.decode(redaction.redact_base64(STANDARD.encode(bytes))).unwrap();
    for hidden in [secret, &encoded, &encode_base64(secret.as_bytes())] {
        let is_clean = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            text.contains("***KEY***") && !text.contains(&hidden[..8])
        };
        assert!(is_clean(&cleaned(hidden.as_bytes())), "{hidden}");
        let binary = [&[0xff, 0xd8, 0], hidden.as_bytes(), &[0, 0xff]].concat();
        let came = cleaned(&binary);
        assert!(is_clean(&came), "{hidden}");
        assert!(came.starts_with(&[0xff, 0xd8, 0]) && came.ends_with(&[0, 0xff]));
    }
    let binary: Vec<u8> = (0..=255).collect();
    assert_eq!(cleaned(&binary), binary);
    assert_eq!(redaction.redact_base64(format!("no base 64: {secret}")), "no base 64: ***KEY***");
}

#[test]
fn a_missing_secret_is_named() {
    let text: TextOrSecret = serde_json::from_value(json!({ "secret": "FABER_NO_SUCH" })).unwrap();
    let err = ToolError::from(text.resolve(&mut Redaction::default()).unwrap_err());
    assert_eq!(
        err.to_string(),
        "tool.unavailable: the secret `FABER_NO_SUCH` is not set: set it in Faber's environment"
    );
    assert!(!err.retryable && err.is_definite);
}

#[test]
fn a_secret_that_is_no_text_is_rejected() {
    for value in [json!(null), json!([]), json!({}), json!({ "secert": "X" })] {
        let err = serde_json::from_value::<TextOrSecret>(value.clone()).unwrap_err().to_string();
        assert!(err.contains("`{secret: TOKEN}`"), "{value}: {err}");
    }
    assert_eq!(
        serde_json::from_value::<TextOrSecret>(json!(1)).unwrap(),
        TextOrSecret::Plain("1".to_owned())
    );
}

#[test]
fn the_longest_secret_is_redacted_first_in_every_form() {
    let mut redaction = Redaction::default();
    redaction.add_secret("SHORT", "abc");
    redaction.add_secret("INNER", "pass");
    redaction.add_secret("OUTER", "pass/word\n");
    let cleaned = redaction.redact("abc pass pass/word pass%2Fword%0A".to_owned());
    assert_eq!(cleaned, "abc ***INNER*** ***OUTER*** ***OUTER***");
}

#[test]
fn a_secret_is_redacted_in_every_printed_form() {
    let mut redaction = Redaction::default();
    let secret = "a~b c/\"d\"*\nsecond line of it\n";
    redaction.add_secret("KEY", secret);
    let quoted = json!(secret).to_string();
    let encoded = encode_base64(format!("user:{secret}").as_bytes());
    for printed in [
        secret.to_owned(),
        secret.trim().to_owned(),
        "second line of it".to_owned(),
        "a~b%20c%2F%22d%22%2A%0Asecond%20line%20of%20it%0A".to_owned(),
        "a%7Eb+c%2F%22d%22*%0Asecond+line+of+it%0A".to_owned(),
        "a%7eb+c%2f%22d%22*%0asecond+line+of+it%0a".to_owned(),
        quoted[1..quoted.len() - 1].to_owned(),
        quoted[1..quoted.len() - 1].replace('/', "\\/"),
        encode_base64(secret.trim().as_bytes()),
        encoded.replace('+', "-").replace('/', "_"),
        encoded,
    ] {
        let cleaned = redaction.redact(format!("before {printed} behind"));
        assert!(cleaned.contains("***KEY***"), "{printed}: {cleaned}");
        assert!(!cleaned.contains("second") && cleaned.len() < 45, "{printed}: {cleaned}");
    }
}

/// JavaScript, Python, `jq` and URLs leave different characters unencoded, and programs print
/// base 64 in lines. All these forms must be redacted.
#[test]
fn a_secret_is_redacted_in_every_encoding() {
    let mut redaction = Redaction::default();
    let secret = "p@ss(w)o!rd*'x~y of a length that takes more than one line of base 64";
    redaction.add_secret("KEY", secret);
    let rest = "%20of%20a%20length%20that%20takes%20more%20than%20one%20line%20of%20base%2064";
    let in_lines = |by: usize, end: &str| {
        let encoded = encode_base64(format!("user:{secret}").as_bytes());
        let lines = encoded.as_bytes().chunks(by).map(|line| str::from_utf8(line).unwrap());
        lines.collect::<Vec<_>>().join(end)
    };
    for printed in [
        format!("p%40ss(w)o!rd*'x~y{rest}"),
        format!("p@ss(w)o!rd*%27x~y{rest}"),
        format!("p%40ss(w)o%21rd%2A'x~y{rest}"),
        secret.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat(),
        in_lines(76, "\n"),
        in_lines(64, "\r\n"),
        in_lines(60, "\n  "),
        in_lines(76, "\\n"),
    ] {
        let cleaned = redaction.redact(format!("before {printed} behind"));
        assert!(cleaned.contains("***KEY***") && cleaned.len() < 45, "{printed}: {cleaned}");
        assert!(printed.len() <= redaction.max_secret_bytes() + 10, "{printed}");
    }
    let plain = "100% of\nit";
    assert_eq!(redaction.redact(plain.to_owned()), plain);
}

#[test]
fn a_numeric_secret_is_redacted_as_a_json_number() {
    let mut redaction = Redaction::default();
    redaction.add_secret("PIN", "98765432109");
    redaction.add_secret("LONG", "987654321098765432109876");
    let output: Value =
        serde_json::from_str("[98765432109, 98765432109.0, 987654321098765432109876, 1]").unwrap();
    let expected = json!(["***PIN***", "***PIN***", "***LONG***", 1]);
    assert_eq!(redaction.redact_value(output), expected);
}

#[test]
fn encodings_match_the_standards() {
    assert_eq!(percent_encode("a b/ä~?"), "a%20b%2F%C3%A4~%3F");
    for (text, expected) in
        [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("user:pass", "dXNlcjpwYXNz")]
    {
        assert_eq!(encode_base64(text.as_bytes()), expected);
    }
}
