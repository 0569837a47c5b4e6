//! A call is read with all its written arguments, or not at all.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{CallFormat::*, calls_as_json, check_none, check_only_call, tools};
use crate::calls::{CatalogNames, KnownTool, MissReason, parse_tool_calls, read_tool_calls};

const CLEAR_MEMORY: &str = "memory_tools.clear_memory";

#[test]
fn the_simple_form_accepts_every_argument_layout() {
    for text in [
        r#"TOOL: memory_tools.clear_memory() ARGS: {"key": "old"}"#,
        "- TOOL: memory_tools.clear_memory\n- ARGS: {\"key\": \"old\"}",
        "* TOOL: memory_tools.clear_memory\n* ARGS: {\"key\": \"old\"}",
        "1. TOOL: memory_tools.clear_memory\n2. ARGS: {\"key\": \"old\"}",
        "1) TOOL: memory_tools.clear_memory\n2) ARGS: {\"key\": \"old\"}",
        "## TOOL: memory_tools.clear_memory\n## ARGS: {\"key\": \"old\"}",
        "> TOOL: memory_tools.clear_memory\n> ARGS: {\"key\": \"old\"}",
        "> - TOOL: memory_tools.clear_memory\n>   - ARGS: {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory\n**ARGS**: {\"key\": \"old\"}",
        "**TOOL**: `memory_tools.clear_memory`\n**ARGS**: `{\"key\": \"old\"}`",
        "TOOL: memory_tools.clear_memory | ARGS: {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory - ARGS: {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory; ARGS：{\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory\nARGS {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory\nARGS - {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory\nARGS = {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory\nInputs: {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory\nARG: {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory\nTool Args: {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory\n### Arguments\n```json\n{\"key\": \"old\"}\n```",
        "TOOL: memory_tools.clear_memory\nARGS:\nkey=old",
    ] {
        check_only_call(text, CLEAR_MEMORY, json!({ "key": "old" }), Simple);
    }
}

#[test]
fn unreadable_arguments_make_no_call() {
    for text in [
        "TOOL: memory_tools.clear_memory\nARGS:\n  keys: old",
        "TOOL: memory_tools.clear_memory\nARGS:\n  key: old",
        "TOOL: memory_tools.clear_memory\nReason: stale\nARGS: {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory\nARGS:\n  key: |\n    old",
        "TOOL: memory_tools.clear_memory\nARGS:\nthe key that is old",
        "call memory_tools.clear_memory() with {\"key\":\"old\"}",
        "tree() with no arguments",
        "TOOL: memory_tools.clear_memory\nARGS: none, but key=old",
        "TOOL: memory_tools.clear_memory\nkey: old",
        "TOOL: memory_tools.clear_memory\n- key = old",
        "TOOL: memory_tools.clear_memory\nPayload: {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory\n- {\"key\": \"old\"}",
        "TOOL: memory_tools.clear_memory\nARGS: scope=project, key:old",
        "TOOL: memory_tools.clear_memory(key old)",
        r#"{"tool":"memory_tools.clear_memory","keys":"old"}"#,
        r#"{"tool":"memory_tools.clear_memory","args":{},"keys":"old"}"#,
        r#"{"tool":"memory_tools.clear_memory","data":"old"}"#,
        r#"{"function":{"name":"memory_tools.clear_memory","with":{"key":"old"}}}"#,
        "<tool_call><tool>memory_tools.clear_memory</tool><args key=old></args></tool_call>",
        r#"<tool_call><tool>memory_tools.clear_memory</tool><args key="old">{"scope": "project"}</args></tool_call>"#,
        r#"<invoke name="memory_tools.clear_memory" key="old"></invoke>"#,
        r"<tool_call><tool>memory_tools.clear_memory</tool><args><key>old</key></args><args></args></tool_call>",
        "I try memory_tools.clear_memory() with {\"key\": \"old\"}",
        "I try `memory_tools.clear_memory()` with key=old",
        "memory_tools.clear_memory() ARGS: {\"key\": \"old\"}",
        "memory_tools.clear_memory()\nARGS: {\"key\": \"old\"}",
        "memory_tools.clear_memory(scope='project'), key='old'",
        "memory_tools.clear_memory(){\"key\": \"old\"}",
        "use memory_tools.clear_memory with no arguments except key=old",
        "use memory_tools.clear_memory without arguments, but key=old",
        "use memory_tools.clear_memory with {} and key=old",
        "use memory_tools.clear_memory with scope=project, key:old",
    ] {
        check_none(text);
    }
}

#[test]
fn json_arguments_may_stand_beside_the_tool_name() {
    for text in [
        r#"{"tool":"memory_tools.clear_memory","arg":{"key":"old"}}"#,
        r#"{"tool":"memory_tools.clear_memory","data":{"key":"old"}}"#,
        r#"{"tool":"memory_tools.clear_memory","payload":{"key":"old"},"confidence":0.9}"#,
        r#"{"tool":"memory_tools.clear_memory","args":{},"key":"old"}"#,
    ] {
        check_only_call(text, CLEAR_MEMORY, json!({ "key": "old" }), Json);
    }
    check_only_call(
        r#"{"tool":"memory_tools.clear_memory","args":{"key":"old"},"scope":"project"}"#,
        CLEAR_MEMORY,
        json!({ "key": "old", "scope": "project" }),
        Json,
    );
    check_only_call(
        r#"{"tool":"tree","data":{},"reason":"look"}"#,
        "file_tools.tree",
        json!({}),
        Json,
    );
    for text in [
        r#"<tool_call><tool>memory_tools.clear_memory</tool><args key="old"></args></tool_call>"#,
        r#"<tool_call><tool>memory_tools.clear_memory</tool><args key="old"/></tool_call>"#,
        r#"<invoke name="memory_tools.clear_memory"><parameter name="key" value="old"/></invoke>"#,
        r#"<invoke name="memory_tools.clear_memory"><parameter name="key" string="true">old</parameter></invoke>"#,
    ] {
        check_only_call(text, CLEAR_MEMORY, json!({ "key": "old" }), Xml);
    }
}

#[test]
fn text_after_a_call_without_arguments_is_ignored() {
    for text in [
        "TOOL: tree\nIt lists files.",
        "TOOL: tree\nARGS: none\nThen I answer.",
        "TOOL: tree\nARGS:\n\nThen I answer: all is well.",
        "TOOL: tree\nThought: and then?",
        "- TOOL: tree\n- ARGS: {}\n- then more",
    ] {
        check_only_call(text, "file_tools.tree", json!({}), Simple);
    }
    check_only_call(
        "tree(depth=2)\npath = 'a'",
        "file_tools.tree",
        json!({ "depth": 2 }),
        FunctionCall,
    );
    let two = json!([["file_tools.tree", {}, "simple"], ["file_tools.glob", { "pattern": "a" }, "simple"]]);
    assert_eq!(calls_as_json("TOOL: tree\nTOOL: glob\nARGS: {\"pattern\": \"a\"}"), two);
    assert_eq!(calls_as_json("TOOL: tree\nARGS:\nTOOL: glob\nARGS: {\"pattern\": \"a\"}"), two);
}

#[test]
fn text_in_tags_keeps_its_indentation() {
    for (written, content) in [
        ("    return 1", "    return 1"),
        ("        return 1\n", "        return 1\n"),
        ("    def f():\n        pass", "    def f():\n        pass"),
        ("\n    def f():\n        pass\n", "    def f():\n        pass"),
        ("\nline1\n  ", "line1"),
        ("\n\nline1\n\n", "\nline1\n"),
        ("\r\nline1\r\n", "line1"),
        (" a ", " a "),
        (" 42 ", " 42 "),
        ("", ""),
    ] {
        let text = format!(
            "<invoke name=\"code_tools.write_file\"><parameter name=\"file_path\">f</parameter><parameter name=\"content\">{written}</parameter></invoke>"
        );
        check_only_call(
            &text,
            "code_tools.write_file",
            json!({ "file_path": "f", "content": content }),
            Xml,
        );
    }
    check_only_call(
        "<invoke name=\"file_tools.tree\"><parameter name=\"depth\"> 2 </parameter></invoke>",
        "file_tools.tree",
        json!({ "depth": 2 }),
        Xml,
    );
}

#[test]
fn calls_inside_thoughts_are_ignored() {
    for text in [
        "<think>TOOL: file_tools.tree ARGS: {}",
        "<think>about <think> tags TOOL: tree ARGS: {}",
        "TOOL: tree ARGS: {\"depth\":9}</think>No.",
        "TOOL: tree ARGS: {\"depth\":9}</think>I do </think>not.",
        "<tool_response>{\"tool\":\"file_tools.tree\",\"args\":{}}",
        "<tool_result>TOOL: tree ARGS: {}",
        "<function_results>tree()",
        "TOOL: tree ARGS: {} and {\"tool\": \"glob\", \"args\": {</think>No.",
    ] {
        check_none(text);
    }
    for text in [
        "TOOL: tree ARGS: {\"depth\":9}</think>TOOL: tree ARGS: {}",
        "<think>about <think> tags tree()</think>TOOL: tree ARGS: {}",
        "I do not write `<think>` here.\nTOOL: tree ARGS: {}",
        "TOOL: tree ARGS: {}\nThat is without `</think>`.",
        "nope {\"tool\": \"nope\", \"args\": 1}</think>TOOL: tree ARGS: {}",
    ] {
        check_only_call(text, "file_tools.tree", json!({}), Simple);
    }
    let written = json!({ "file_path": "f", "content": "a</think>b" });
    let text = format!("TOOL: code_tools.write_file ARGS: {written}");
    check_only_call(&text, "code_tools.write_file", written, Simple);
}

#[test]
fn namespaces_of_models_are_no_part_of_a_name() {
    for text in [
        "functions.file_tools_glob({\"pattern\": \"*.py\"})",
        "print(default_api.file_tools.glob(pattern='*.py'))",
        "file_tools_glob(pattern='*.py')",
    ] {
        check_only_call(text, "file_tools.glob", json!({ "pattern": "*.py" }), FunctionCall);
    }
}

/// The arguments of these formats may contain text that looks like a call, which must not run.
#[test]
fn formats_of_other_models_are_no_calls() {
    let value = "TOOL: tree ARGS: {}";
    for text in [
        format!("[TOOL_CALLS]file_tools.glob{{\"pattern\": \"{value}\"}}"),
        format!(
            "<|tool_call_begin|>functions.file_tools_glob:0<|tool_call_argument_begin|>{{\"pattern\": \"{value}\"}}<|tool_call_end|>"
        ),
        format!(
            "<｜tool▁call▁begin｜>file_tools.glob<｜tool▁sep｜>{{\"pattern\": \"{value}\"}}<｜tool▁call▁end｜>"
        ),
        format!(
            "<tool_call>glob\n<arg_key>pattern</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>"
        ),
        format!("<tool_call>glob<arg_key>pattern</arg_key><arg_value>{value}"),
        "Thought: look\nAction: file_tools.glob\nAction Input: {\"pattern\": \"*.py\"}".to_owned(),
        "<tool_call>tree\n</tool_call>".to_owned(),
    ] {
        check_none(&text);
    }
}

#[test]
fn a_name_with_underscores_must_mean_one_tool() {
    let names = CatalogNames::new(tools::catalog());
    let found = |name: &str| names.find(name).map(|tool| tool.name.to_string());
    assert_eq!(found("file_tools_glob").as_deref(), Some("file_tools.glob"));
    assert_eq!(found("FILE_TOOLS_GLOB").as_deref(), Some("file_tools.glob"));
    assert_eq!(found("blog_createAuthor").as_deref(), Some("blog.createAuthor"));
    assert_eq!(found("a_b_c"), None);
    let twins = ["a.b_c", "a_b.c"].map(|name| tools::parse_definition(name, ""));
    let twins = tools::catalog_of(twins);
    assert_eq!(CatalogNames::new(&twins).find("a_b_c"), None);
}

#[test]
fn a_failed_call_is_reported_with_its_reason() {
    let names = CatalogNames::new(tools::catalog());
    let missed = |text: &str| -> Vec<(String, MissReason)> {
        let found = read_tool_calls(text, &|name| names.find(name)).unwrap();
        found.missed.into_iter().map(|call| (call.tool, call.reason)).collect()
    };
    for (text, tool, reason) in [
        ("TOOL: nope.nope ARGS: {\"a\":1}", "nope.nope", MissReason::Unknown),
        ("TOOL: nope.nope ARGS: a=1", "nope.nope", MissReason::Unknown),
        ("TOOL: nope.nope", "nope.nope", MissReason::Unknown),
        (r#"{"tool": "nope", "args": {}}"#, "nope", MissReason::Unknown),
        (r#"{"type":"tool_use","name":"nope","input":{}}"#, "nope", MissReason::Unknown),
        ("<tool_call><tool>nope</tool><args></args></tool_call>", "nope", MissReason::Unknown),
        (
            r#"<tool_call>{"name": "nope", "arguments": {}}</tool_call>"#,
            "nope",
            MissReason::Unknown,
        ),
        ("<tool_call>glob<arg_key>pattern</arg_key></tool_call>", "glob", MissReason::Unreadable),
        ("TOOL: file_tools.glob ARGS: {\"pattern\": \"*.py", "file_tools.glob", MissReason::Cut),
        ("{\"tool\": \"glob\", \"args\": {\"pattern\": \"*.py", "glob", MissReason::Cut),
        ("<tool_call><tool>glob</tool><args>{\"pattern\": ", "glob", MissReason::Cut),
        ("file_tools.glob(pattern='*.py", "file_tools.glob", MissReason::Cut),
        ("TOOL: glob ARGS: *.py", "glob", MissReason::Unreadable),
        (r#"{"tool": "glob", "args": "*.py"}"#, "glob", MissReason::Unreadable),
    ] {
        assert_eq!(missed(text), [(tool.to_owned(), reason)], "{text}");
    }
    for text in [
        "example.com(foo) and nope.nope(a=1)",
        "use nope.nope with a=1",
        "TOOL: hammer",
        "Action: wait",
        r#"{"name": "Bob", "parameters": {"a": 1}}"#,
        r#"{"tool": "hammer"}"#,
        "TOOL: tree ARGS: {}",
        "<think>TOOL: nope.nope ARGS: {}",
        "TOOL: nope.nope ARGS: {}</think>Done.",
        "Do not call file_tools.glob(pattern='*')",
    ] {
        assert!(missed(text).is_empty(), "{text}");
    }
}

#[test]
fn a_tool_name_with_spaces_keeps_its_arguments() {
    let known = |name: &str| {
        let parameters = Vec::new();
        (name == "x y").then(|| Arc::new(KnownTool { name: name.parse().unwrap(), parameters }))
    };
    for text in ["TOOL: x y ARGS: {\"a\": 1}", "- TOOL: x y\n- **ARGS**: {\"a\": 1}"] {
        let calls = parse_tool_calls(text, &known).unwrap();
        let args: Vec<_> = calls.into_iter().map(|call| Value::Object(call.args)).collect();
        assert_eq!(args, [json!({ "a": 1 })], "{text}");
    }
}
