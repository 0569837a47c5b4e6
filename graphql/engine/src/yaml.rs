mod places;

use serde_json::Value;
use serde_saphyr::{Error, budget::BudgetBreach};

pub use self::places::find_line;

/// Parses a document. Only `true` and `false` are booleans, as in YAML 1.2, so a country called
/// `NO` stays a text.
pub fn parse(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|err| describe_error(&err))
}

fn describe_error(err: &serde_saphyr::Error) -> String {
    let plain = describe_rule(err.without_snippet());
    let text = plain.unwrap_or_else(|| err.without_snippet().to_string());
    let reason = text.lines().next().unwrap_or_default();
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    match err.location() {
        Some(location) if !reason.contains("line ") => {
            format!(
                "this is not YAML: line {}, column {}: {reason}",
                location.line(),
                location.column()
            )
        }
        _ => format!("this is not YAML: {reason}"),
    }
}

fn describe_rule(err: &Error) -> Option<String> {
    let aliases = "its aliases (`*name`) expand to too many values: write the values out";
    Some(match err {
        Error::AliasError { error, .. } => return describe_rule(error),
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key `{key}` occurs twice in one map: remove one of them")
        }
        Error::DuplicateMappingKey { key: None, .. } => {
            "a key occurs twice in one map: remove one of them".to_owned()
        }
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Depth { depth } => {
                format!("it is nested too deeply ({depth} levels): use fewer levels")
            }
            BudgetBreach::Aliases { .. }
            | BudgetBreach::Anchors { .. }
            | BudgetBreach::AliasAnchorRatio { .. } => aliases.to_owned(),
            BudgetBreach::MergeKeys { .. } => {
                "it has too many merge keys (`<<`): write the values out".to_owned()
            }
            BudgetBreach::Documents { .. } => describe_several_documents(),
            BudgetBreach::SequenceUnbalanced => "a list or a map does not end".to_owned(),
            _ => {
                "it is too large to be read: split it, or write its long values shorter".to_owned()
            }
        },
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => aliases.to_owned(),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "an alias (`*name`) is inside the value that it names: write the value out".to_owned()
        }
        Error::UnknownAnchor { .. } => {
            "an alias (`*name`) has no anchor (`&name`) before it".to_owned()
        }
        Error::MultipleDocuments { .. } => describe_several_documents(),
        Error::ExternalMessage { msg, .. } | Error::Message { msg, .. }
            if msg.contains("recursion limit") =>
        {
            "it is nested too deeply: use fewer levels".to_owned()
        }
        Error::InvalidBinaryBase64 { .. } => "a value marked `!!binary` is not base64".to_owned(),
        _ => return None,
    })
}

fn describe_several_documents() -> String {
    "it has several documents (`---`): write one".to_owned()
}

/// Formats a document so that [`parse`] reads the same value.
pub fn format(value: &Value) -> Result<String, String> {
    serde_saphyr::to_string(value)
        .map_err(|err| format!("this value cannot be written as YAML: {err}"))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use serde_json::json;

    use super::*;

    fn document() -> impl Strategy<Value = Value> {
        let text = || prop_oneof!["[ -~]{0,12}", "[{}:#'\"|>&*!%@`\\n\\t\\[\\],?-]{0,8}", ".{0,8}"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter_map("JSON has no such number", |number| {
                serde_json::Number::from_f64(number).map(Value::Number)
            }),
            text().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            let fields = vec((text(), inner.clone()), 0..4);
            prop_oneof![
                vec(inner, 0..4).prop_map(Value::from),
                fields.prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn random_values_are_formatted_and_parsed_unchanged(document in document()) {
            let written = super::format(&document).unwrap();
            prop_assert_eq!(super::parse(&written), Ok(document), "{}", written);
        }
    }

    #[test]
    fn special_values_are_formatted_and_parsed_unchanged() {
        let hostile = [
            "",
            " ",
            "~",
            "null",
            "yes",
            "No",
            "1",
            "1.0",
            "0x10",
            "1e3",
            "-",
            "- a",
            "a: b",
            "a #b",
            "#a",
            "*a",
            "&a",
            "!a",
            "|",
            ">",
            "%a",
            "@a",
            "`a",
            "{a",
            "[a",
            "'a",
            "\"a",
            "a\\b",
            "a\nb",
            "a\n",
            "\na",
            "\t",
            "a\t",
            "\r\n",
            "---",
            "...",
            "--- a",
            "? a",
            ": a",
            "2024-01-01",
            "<<",
            "=",
            "\u{0}",
            "\u{7f}",
            "\u{85}",
            "\u{2028}",
            "\u{feff}a",
            "日本",
            "👋",
            ".inf",
            ".nan",
        ];
        for text in hostile {
            let value = json!({ "name": text, text: [text, { text: 0.1 }, true, null, 7, -0.5] });
            let written = super::format(&value).unwrap();
            assert_eq!(super::parse(&written), Ok(value), "{written}");
        }
    }

    #[test]
    fn a_yaml_error_is_one_line_with_its_place() {
        let error = parse("tools:\n  - name: flow.echo\n   id: x\n").unwrap_err();
        assert!(error.starts_with("this is not YAML: ") && !error.contains('\n'), "{error}");
        assert!(error.contains("line 3") && error.contains("column 4"), "{error}");
        assert!(!error.contains("<input>"), "{error}");
    }

    #[test]
    fn yaml_errors_have_no_terms_of_the_library() {
        let deep = "[".repeat(5_000);
        let bomb = (1..12).fold("a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(), |text, n| {
            let last = n - 1;
            let all = vec![format!("*a{last}"); 8].join(", ");
            format!("{text}a{n}: &a{n} [{all}]\n")
        });
        let large = format!("[{}]", "1,".repeat(400_000));
        for (text, expected) in [
            ("a: 1\nb: 2\na: 3\n", "line 3, column 1: the key `a` occurs twice in one map"),
            ("a: 1\n---\nb: 2\n", "it has several documents"),
            ("a: *nobody", "has no anchor"),
            (bomb.as_str(), "it is too large to be read"),
            (deep.as_str(), "too deep"),
            (large.as_str(), "it is too large to be read"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
            for word in ["budget", "Options", "Policy", "from_multiple", "exceeded", "Breach"] {
                assert!(!error.contains(word), "{error}");
            }
        }
    }

    #[test]
    fn only_true_and_false_are_booleans() {
        let text = "{ y: 1, on: [y, N, NO, off, yes, On], is: [true, false] }";
        let expected = json!({
            "y": 1, "on": ["y", "N", "NO", "off", "yes", "On"], "is": [true, false],
        });
        assert_eq!(parse(text), Ok(expected));
    }

    #[test]
    fn an_alias_has_the_value_of_its_anchor() {
        let text = "a: &x { name: m, of: &y [1] }\nb: [*x, *y]\n";
        let expected =
            json!({ "a": { "name": "m", "of": [1] }, "b": [{ "name": "m", "of": [1] }, [1]] });
        assert_eq!(parse(text), Ok(expected));
        assert!(parse("a: *nobody").is_err());
        let bomb = (1..12).fold("a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(), |text, n| {
            let last = n - 1;
            let all = vec![format!("*a{last}"); 8].join(", ");
            format!("{text}a{n}: &a{n} [{all}]\n")
        });
        assert!(parse(&bomb).unwrap_err().starts_with("this is not YAML"));
    }
    /// The document has many aliases of one long text, and so many anchors that a limit on the
    /// ratio of aliases to anchors does not reject it.
    #[test]
    fn aliases_of_long_texts_need_bounded_memory() {
        let anchors: Vec<_> = (0..5_000).map(|index| format!("n{index}: &n{index} x\n")).collect();
        let anchors = anchors.concat();
        let aliases = vec!["*long"; 40_000].join(", ");
        let long = "x".repeat(1 << 20);
        assert!(parse(&format!("long: &long {long}\n{anchors}all: [{aliases}]\n")).is_err());
    }
}
