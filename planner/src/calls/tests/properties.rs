use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Map, Value, json};

use super::{calls_as_json, parse_and_count_reads};

/// Pieces of calls. Random sequences of them are almost valid calls.
const PIECES: [&str; 63] = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "\"",
    "'",
    "\\",
    ",",
    ":",
    "=",
    "<",
    ">",
    "\n",
    " ",
    "`",
    "*",
    "\"\"\"",
    "//",
    "/*",
    "*/",
    "#",
    "TOOL:",
    "ARGS:",
    "use ",
    " with ",
    " and ",
    "file_tools.glob",
    "tree",
    "\"tool\"",
    "\"args\"",
    "name",
    "arguments",
    "<tool_call>",
    "</tool_call>",
    "<args>",
    "</args>",
    "<tool>",
    "</tool>",
    "<![CDATA[",
    "]]>",
    "&lt;",
    "é",
    "1e9",
    "true",
    "pattern",
    "pattern=",
    "path: ",
    "“",
    "”",
    ". ",
    "$",
    "Tool execution failed:",
    "- ",
    "not ",
    "n't ",
    "</think>",
    "<think>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
];

const CALLS: [&str; 9] = [
    r#"{"tool": "file_tools.glob", "args": {"pattern": "*.py"}}"#,
    "file_tools.grep(pattern=\"TODO\", case_insensitive=true, context_lines=2)",
    r#"TOOL: file_tools.glob ARGS: {"pattern": "*.py"}"#,
    "use file_tools.glob with pattern=*.py and path=/tmp",
    "<tool_call><tool>file_tools.glob</tool><args><pattern>*.py</pattern></args></tool_call>",
    r#"{"tool_calls":[{"type":"function","function":{"name":"tree","arguments":"{}"}}]}"#,
    r#"{"type":"tool_use","name":"tree","input":{"path":"é"}}"#,
    "<function=tree><parameter=path>a &amp; b</parameter></function>",
    "- TOOL: file_tools.glob\n- ARGS:\n  - pattern: é\n",
];

const PARAMETERS: [&str; 4] = ["pattern", "path", "output_mode", "context_lines"];
const VALUES: [&str; 24] = [
    "*.py",
    "/tmp",
    "src",
    "3",
    "3 apples",
    "C++ rocks",
    "/a b.txt",
    "a, b and c",
    "\"a b\"",
    "'it's'",
    "`x y`",
    "“x”",
    "TODO: fix",
    "I said \"x=1\" today",
    "true",
    "a=b",
    "f(b, a)",
    "[ab]*.py",
    "what is new?",
    "Hello. Bye",
    "x to see it",
    "main.py and then",
    "https://a.b/?c=d",
    "(a)",
];
const SEPARATORS: [&str; 20] = [
    " and ",
    ", ",
    ", and ",
    "; ",
    " ",
    " & ",
    " plus ",
    " with ",
    " in ",
    " (",
    "\n",
    "\n- ",
    "\n1. ",
    ",\n",
    ", then ",
    " | ",
    " -> ",
    " as well as ",
    " to look at ",
    ". Then ",
];

fn check_only_call(text: &str) -> Result<(), TestCaseError> {
    let (calls, steps) = parse_and_count_reads(text);
    prop_assert!(steps <= 16 * text.len() + 1_000, "{steps} steps for {} bytes", text.len());
    for call in calls.unwrap_or_default() {
        prop_assert!(text.contains(&call.raw), "{}", call.raw);
    }
    Ok(())
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((any::<String>(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn arguments() -> impl Strategy<Value = Map<String, Value>> {
    vec(("[a-z_]{1,8}", json_value()), 0..4).prop_map(|fields| fields.into_iter().collect())
}

proptest! {
    #[test]
    fn random_text_neither_panics_nor_takes_long(text in any::<String>()) {
        check_only_call(&text)?;
    }

    #[test]
    fn almost_valid_calls_neither_panic_nor_take_long(pieces in vec(select(&PIECES[..]), 0..120)) {
        check_only_call(&pieces.concat())?;
    }

    #[test]
    fn mutated_calls_do_not_panic(
        call in select(&CALLS[..]),
        at in any::<prop::sample::Index>(),
        piece in select(&PIECES[..]),
        removed in 0..6_usize,
    ) {
        let chars: Vec<char> = call.chars().collect();
        let at = at.index(chars.len());
        let rest = chars[at..].iter().skip(removed);
        let text: String = chars[..at].iter().copied().chain(piece.chars()).chain(rest.copied()).collect();
        check_only_call(&text)?;
    }

    #[test]
    fn no_written_argument_is_dropped(
        keys in prop::sample::subsequence(&PARAMETERS[..], 2..=4),
        values in vec(select(&VALUES[..]), 4),
        between in vec(select(&SEPARATORS[..]), 4),
        around in select(&[("use file_tools.grep with ", "."), ("Use `grep` with ", " now"), ("TOOL: grep ARGS: ", "")][..]),
        mark in select(&["", "", "`", "**"][..]),
    ) {
        let mut pairs = String::new();
        for (n, key) in keys.iter().enumerate() {
            let end = if n + 1 < keys.len() { between[n] } else { "" };
            pairs.extend([mark, key, "=", values[n], mark, end]);
        }
        let mut text = format!("{}{pairs}{}", around.0, around.1);
        if text.starts_with("TOOL") {
            // Removes line breaks, because arguments in a line of text end with the line.
            text = text.replace('\n', " ");
        }
        for call in calls_as_json(&text).as_array().into_iter().flatten() {
            for key in &keys {
                prop_assert!(call[1].get(*key).is_some(), "{key} of {text}: {call}");
            }
        }
    }

    #[test]
    fn truncated_calls_do_not_panic(call in select(&CALLS[..]), at in any::<prop::sample::Index>()) {
        let chars: Vec<char> = call.chars().collect();
        let text: String = chars[..at.index(chars.len())].iter().collect();
        check_only_call(&text)?;
    }

    #[test]
    fn formatted_arguments_are_parsed_unchanged(args in arguments()) {
        let value = Value::Object(args);
        let text = value.to_string();
        let tool = "rag2_tools.find";
        let call = json!({ "tool": tool, "args": value }).to_string();
        prop_assert_eq!(calls_as_json(&format!("so {call} it is")), json!([[tool, value, "json"]]));
        let call = json!({ "function": { "name": tool, "arguments": text } }).to_string();
        prop_assert_eq!(calls_as_json(&call), json!([[tool, value, "openai"]]));
        let call = json!({ "type": "tool_use", "name": tool, "input": value }).to_string();
        prop_assert_eq!(calls_as_json(&call), json!([[tool, value, "anthropic"]]));
        prop_assert_eq!(calls_as_json(&format!("TOOL: {tool} ARGS: {text}")), json!([[tool, value, "simple"]]));
        let call = format!("<tool_call>{{\"name\": \"{tool}\", \"arguments\": {text}}}</tool_call>");
        prop_assert_eq!(calls_as_json(&call), json!([[tool, value, "xml"]]));
        let call = format!("use {tool} with {text}");
        prop_assert_eq!(calls_as_json(&call), json!([[tool, value, "natural_language"]]));
    }

    #[test]
    fn quoted_and_tagged_strings_are_parsed_unchanged(text in any::<String>()) {
        let quoted = Value::from(text.as_str());
        let expected = |format: &str| json!([["rag2_tools.find", { "what": text }, format]]);
        prop_assert_eq!(calls_as_json(&format!("rag2_tools.find(what={quoted})")), expected("function_call"));
        prop_assert_eq!(calls_as_json(&format!("rag2_tools.find({quoted})")), expected("function_call"));
        if !text.contains("]]>") {
            let call = format!("<invoke name=\"rag2_tools.find\"><parameter name=\"what\"><![CDATA[{text}]]></parameter></invoke>");
            prop_assert_eq!(calls_as_json(&call), expected("xml"));
        }
    }
}
