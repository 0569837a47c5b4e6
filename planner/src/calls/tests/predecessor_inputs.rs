use serde_json::json;

use super::{CallFormat::*, check_none, check_only_call};

#[test]
fn each_of_the_five_formats_is_parsed() {
    let glob = "file_tools.glob";
    let py = json!({ "pattern": "*.py" });
    check_only_call(
        r#"Let me search: {"tool": "file_tools.glob", "args": {"pattern": "*.py"}}"#,
        glob,
        py.clone(),
        Json,
    );
    check_only_call(
        "I'll use file_tools.glob(pattern=*.py, path=/home/user)",
        glob,
        json!({ "pattern": "*.py", "path": "/home/user" }),
        FunctionCall,
    );
    for text in [
        r#"TOOL: file_tools.glob ARGS: {"pattern": "*.py"}"#,
        r#"tool: file_tools.glob args: {"pattern": "*.py"}"#,
        "TOOL: file_tools.glob\nARGS: {\"pattern\": \"*.py\"}",
    ] {
        check_only_call(text, glob, py.clone(), Simple);
    }
    check_only_call(
        "I will use file_tools.glob with pattern=*.py and path=/tmp",
        glob,
        json!({ "pattern": "*.py", "path": "/tmp" }),
        NaturalLanguage,
    );
    check_only_call(
        r#"use file_tools.glob with {"pattern": "*.rs"}"#,
        glob,
        json!({ "pattern": "*.rs" }),
        NaturalLanguage,
    );
    for text in [
        r#"<tool_call><tool>file_tools.glob</tool><args>{"pattern": "*.py"}</args></tool_call>"#,
        "<tool_call>\n  <tool>file_tools.glob</tool>\n  <args>\n{\"pattern\": \"*.py\"}\n  </args>\n</tool_call>",
        "<tool_call><tool>file_tools.glob</tool><args><pattern>*.py</pattern></args></tool_call>",
    ] {
        check_only_call(text, glob, py.clone(), Xml);
    }
}

#[test]
fn argument_values_are_parsed_unchanged() {
    let grep = "file_tools.grep";
    check_only_call(
        r#"file_tools.grep(pattern="TODO", case_insensitive=true, context_lines=2)"#,
        grep,
        json!({ "pattern": "TODO", "case_insensitive": true, "context_lines": 2 }),
        FunctionCall,
    );
    check_only_call(
        r#"file_tools.grep(pattern='foo bar', path="/x y")"#,
        grep,
        json!({ "pattern": "foo bar", "path": "/x y" }),
        FunctionCall,
    );
    check_only_call(
        r#"file_tools.glob("*.py")"#,
        "file_tools.glob",
        json!({ "pattern": "*.py" }),
        FunctionCall,
    );
    check_only_call(
        r#"TOOL: file_tools.grep ARGS: {"pattern": "a } b", "path": "x"}"#,
        grep,
        json!({ "pattern": "a } b", "path": "x" }),
        Simple,
    );
}

#[test]
fn calls_without_arguments_are_parsed() {
    let info = "system_tools.system_info";
    check_only_call("TOOL: system_tools.system_info ARGS: {}", info, json!({}), Simple);
    check_only_call(r#"{"tool": "system_tools.system_info", "args": {}}"#, info, json!({}), Json);
    check_only_call(r#"{"tool": "system_tools.system_info"}"#, info, json!({}), Json);
    check_only_call("system_tools.system_info()", info, json!({}), FunctionCall);
    check_only_call("TOOL: system_tools.system_info ARGS: ()", info, json!({}), Simple);
    check_only_call("TOOL: system_tools.system_info", info, json!({}), Simple);
    check_only_call("TOOL: system_tools.system_info\nARGS:\n", info, json!({}), Simple);
    check_only_call("use system_tools.system_info with {}", info, json!({}), NaturalLanguage);
    for text in [
        "<tool_call><tool>system_tools.system_info</tool><args></args></tool_call>",
        "<tool_call><tool>system_tools.system_info</tool><args/></tool_call>",
        "<tool_call><tool>system_tools.system_info</tool></tool_call>",
    ] {
        check_only_call(text, info, json!({}), Xml);
    }
}

#[test]
fn field_order_whitespace_and_nesting_do_not_matter() {
    let todo = "system_tools.todo_write";
    let todos = json!({ "todos": [{ "task": "a", "more": { "b": [1, {}] } }] });
    for text in [
        r#"{"tool": "system_tools.todo_write", "args": {"todos": [{"task": "a", "more": {"b": [1, {}]}}]}}"#,
        r#"{"args": {"todos": [{"task": "a", "more": {"b": [1, {}]}}]}, "tool": "system_tools.todo_write"}"#,
        "{ \"tool\" : \"system_tools.todo_write\" ,\n\t\"args\" : {\"todos\":[{\"task\":\"a\",\"more\":{\"b\":[1,{}]}}]}\n}",
    ] {
        check_only_call(text, todo, todos.clone(), Json);
    }
}

#[test]
fn text_inside_an_explicit_call_is_no_call() {
    check_only_call(
        r#"TOOL: code_tools.edit_file ARGS: {"file_path": "a", "old_string": "file_tools.glob(x='y')", "new_string": "use file_tools.glob with pattern=*"}"#,
        "code_tools.edit_file",
        json!({
            "file_path": "a",
            "old_string": "file_tools.glob(x='y')",
            "new_string": "use file_tools.glob with pattern=*",
        }),
        Simple,
    );
}

#[test]
fn prose_about_tools_contains_no_call() {
    for text in [
        "see example.com(foo) for details",
        "Just a regular response without any tool usage",
        "",
        "I could use file_tools.glob with care.",
        "file_tools.glob(pattern, path) finds files; foo.bar(x) does not",
        "TOOL: tool_name ARGS: {\"arg1\": \"value1\"}",
        "TOOL: file_tools.glob is the one I like",
        "do not use file_tools.glob with pattern=*.py",
        "We used file_tools.glob with pattern=*.py before.",
    ] {
        check_none(text);
    }
}

#[test]
fn tool_names_may_have_digits_and_no_set() {
    check_only_call(
        "rag2_tools.find(what='x')",
        "rag2_tools.find",
        json!({ "what": "x" }),
        FunctionCall,
    );
    check_only_call(
        r#"TOOL: glob ARGS: {"pattern": "*"}"#,
        "file_tools.glob",
        json!({ "pattern": "*" }),
        Simple,
    );
    check_only_call(
        r#"{"tool": "createAuthor", "args": {"name": "Alice"}}"#,
        "createAuthor",
        json!({ "name": "Alice" }),
        Json,
    );
}

#[test]
fn a_name_in_another_case_means_the_only_matching_tool() {
    check_only_call("CREATEAUTHOR(name='A')", "createAuthor", json!({ "name": "A" }), FunctionCall);
    check_only_call(
        "File_Tools.Glob(pattern='*')",
        "file_tools.glob",
        json!({ "pattern": "*" }),
        FunctionCall,
    );
    check_only_call(r#"{"tool": "ECHO", "args": {}}"#, "ECHO", json!({}), Json);
    check_only_call(r#"{"tool": "Echo", "args": {}}"#, "Echo", json!({}), Json);
    check_none(r#"{"tool": "echo", "args": {}}"#);
}
