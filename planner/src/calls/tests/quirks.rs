use std::sync::Arc;

use serde_json::{Value, json};

use super::{CallFormat, CallFormat::*, calls_as_json, check_none, check_only_call, parse_calls};
use crate::calls::{KnownTool, parse_tool_calls};

fn check_glob(texts: &[&str], format: CallFormat) {
    for text in texts {
        check_only_call(text, "file_tools.glob", json!({ "pattern": "*.py" }), format);
    }
}

#[test]
fn tool_names_may_have_spaces_and_letters_of_any_script() {
    let known = |name: &str| {
        let name = ["show one", "Größe"].into_iter().find(|known| *known == name)?;
        Some(Arc::new(KnownTool { name: name.parse().unwrap(), parameters: Vec::new() }))
    };
    let calls_as_text = |text: &str| {
        let calls = parse_tool_calls(text, &known).unwrap();
        calls
            .iter()
            .map(|call| format!("{} {}", call.tool, Value::from(call.args.clone())))
            .collect()
    };
    for text in [
        r#"TOOL: show one ARGS: {"id": 1}"#,
        r#"**TOOL:** `show one` **ARGS:** {"id": 1}"#,
        r#"TOOL: "show one", Tool Input: {"id": 1}"#,
        "TOOL: show one\nARGS: {\"id\": 1}",
    ] {
        let found: Vec<String> = calls_as_text(text);
        assert_eq!(found, [r#"show one {"id":1}"#], "{text}");
    }
    for text in ["TOOL: Größe ARGS: {\"id\": 1}", "use Größe with {\"id\": 1}"] {
        let found: Vec<String> = calls_as_text(text);
        assert_eq!(found, [r#"Größe {"id":1}"#], "{text}");
    }
    let found: Vec<String> = calls_as_text("TOOL: show one\nIt has no arguments.");
    assert_eq!(found, ["show one {}"]);
    for text in ["TOOL: show one more ARGS: {}", "TOOL: show one RESULT: 1", "use Größen with {}"]
    {
        assert_eq!(calls_as_text(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn the_json_form_accepts_other_field_names() {
    check_glob(
        &[
            r#"{"name": "file_tools.glob", "arguments": {"pattern": "*.py"}}"#,
            r#"{"name": "file_tools.glob", "parameters": {"pattern": "*.py"}}"#,
            r#"{"parameters": {"pattern": "*.py"}, "name": "file_tools.glob"}"#,
            r#"{"tool": "file_tools.glob", "input": {"pattern": "*.py"}}"#,
            r#"{"tool_name": "file_tools.glob", "tool_input": {"pattern": "*.py"}}"#,
            r#"{"action": "file_tools.glob", "action_input": {"pattern": "*.py"}}"#,
            r#"{"Tool": "file_tools.glob", "Args": {"pattern": "*.py"}}"#,
            r#"{"tool": "file_tools.glob", "pattern": "*.py"}"#,
            r#"{"tool": "file_tools.glob", "thought": "hm", "pattern": "*.py"}"#,
            r#"{"tool": "file_tools.glob", "args": "{\"pattern\": \"*.py\"}"}"#,
            r#"{"tool": "file_tools.glob", "args": "pattern=*.py"}"#,
            r#"{"thought": "look", "action": {"tool": "file_tools.glob", "args": {"pattern": "*.py"}}}"#,
            r#"[{"tool": "file_tools.glob", "args": {"pattern": "*.py"}}]"#,
        ],
        Json,
    );
    check_none(r#"{"name": "file_tools.glob"}"#);
    check_none(r#"{"name": "file_tools.glob", "description": "Finds files."}"#);
    check_none(r#"{"tool": "file_tools.glob", "pattern": "*", "colour": "red"}"#);
}

#[test]
fn almost_valid_json_is_parsed() {
    check_glob(
        &[
            r"{'tool': 'file_tools.glob', 'args': {'pattern': '*.py'}}",
            r#"{"tool": "file_tools.glob", "args": {"pattern": "*.py",},}"#,
            "{\n  // find them\n  \"tool\": \"file_tools.glob\", /* all */\n  \"args\": {\"pattern\": \"*.py\"} // done\n}",
            "{\"tool\": \"file_tools.glob\", # python\n \"args\": {\"pattern\": \"*.py\"}}",
            "{tool: 'file_tools.glob', args: {pattern: '*.py'}}",
            "{tool: file_tools.glob, args: {pattern: *.py}}",
            "```json\n{\"tool\": \"file_tools.glob\", \"args\": {\"pattern\": \"*.py\"}}\n```",
            "For example:\n```\n{\"tool\": \"file_tools.glob\", \"args\": {\"pattern\": \"*.py\"}}\n```",
        ],
        Json,
    );
    check_only_call(
        r#"{"tool": "rag2_tools.find", "args": {"what": [True, False, None, true, null, 1_0]}}"#,
        "rag2_tools.find",
        json!({ "what": [true, false, null, true, null, "1_0"] }),
        Json,
    );
}

#[test]
fn values_keep_their_types() {
    for (written, value) in [
        ("true", json!(true)),
        ("2", json!(2)),
        ("-2.5", json!(-2.5)),
        ("1e3", json!(1000.0)),
        ("null", json!(null)),
        ("\"2\"", json!("2")),
        ("18446744073709551615", json!(u64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("123456789012345678901234567890", json!("123456789012345678901234567890")),
        (r#""a } b ) c , d 'e' \"f\"""#, json!("a } b ) c , d 'e' \"f\"")),
        (r"'it\'s'", json!("it's")),
        (r#""\d+\.\w""#, json!(r"\d+\.\w")),
        (r#""\u00e9\ud83d\ude00\ud800""#, json!("é😀\u{fffd}")),
        ("\"two\nlines\"", json!("two\nlines")),
        ("\"\"\"three \"quotes\" \"\"\"", json!("three \"quotes\" ")),
        (r#"r"\n""#, json!(r"\n")),
        ("http://a.b/c", json!("http://a.b/c")),
        ("*.{rs,toml}", json!("*.{rs,toml}")),
        ("", json!("")),
    ] {
        let expected = json!([["rag2_tools.find", { "what": value }, "json"]]);
        if written.is_empty() {
            continue;
        }
        let text = format!("{{\"tool\": \"rag2_tools.find\", \"args\": {{\"what\": {written}}}}}");
        assert_eq!(calls_as_json(&text), expected, "{text}");
        let text = format!("rag2_tools.find(what={written})");
        let expected = json!([["rag2_tools.find", { "what": value }, "function_call"]]);
        assert_eq!(calls_as_json(&text), expected, "{text}");
    }
}

#[test]
fn unquoted_words_follow_the_parameter_schema() {
    let text = "use system_tools.process_kill with pid_or_name=1234 and force=true";
    let args = json!({ "pid_or_name": "1234", "force": true });
    check_only_call(text, "system_tools.process_kill", args.clone(), NaturalLanguage);
    check_only_call(
        "system_tools.process_kill(pid_or_name=1234, force=True)",
        "system_tools.process_kill",
        args,
        FunctionCall,
    );
}

#[test]
fn openai_responses_are_parsed() {
    let function = r#"{"name": "file_tools.glob", "arguments": "{\"pattern\": \"*.py\"}"}"#;
    check_glob(
        &[
            &format!(r#"{{"tool_calls":[{{"id":"c","type":"function","function":{function}}}]}}"#),
            &format!(
                r#"{{"choices":[{{"message":{{"role":"assistant","content":null,"tool_calls":[{{"id":"c","type":"function","function":{function}}}]}}}}]}}"#
            ),
            &format!(r#"{{"type":"function","function":{function}}}"#),
            &format!(r#"{{"role":"assistant","function_call":{function}}}"#),
            r#"{"type":"function_call","call_id":"c","name":"file_tools.glob","arguments":"{\"pattern\": \"*.py\"}"}"#,
            r#"{"output":[{"type":"reasoning"},{"type":"function_call","name":"file_tools.glob","arguments":{"pattern": "*.py"}}]}"#,
            r#"{"tool_calls":[{"name":"file_tools.glob","arguments":{"pattern":"*.py"}}]}"#,
            r#"{"tool_uses":[{"recipient_name":"functions.file_tools_glob","parameters":{"pattern":"*.py"}}]}"#,
        ],
        Openai,
    );
    check_only_call(
        r#"{"type":"function","function":{"name":"system_tools.system_info","arguments":""}}"#,
        "system_tools.system_info",
        json!({}),
        Openai,
    );
}

#[test]
fn anthropic_responses_are_parsed() {
    let block =
        r#"{"type":"tool_use","id":"t","name":"file_tools.glob","input":{"pattern":"*.py"}}"#;
    check_glob(
        &[
            block,
            &format!(r#"{{"role":"assistant","content":[{{"type":"text","text":"ok"}},{block}]}}"#),
        ],
        Anthropic,
    );
    check_glob(
        &[
            r#"<function_calls><invoke name="file_tools.glob"><parameter name="pattern">*.py</parameter></invoke></function_calls>"#,
        ],
        Xml,
    );
}

#[test]
fn tags_accept_every_content_format() {
    check_glob(
        &[
            r#"<function_call>{"name": "file_tools.glob", "args": {"pattern": "*.py"}}</function_call>"#,
            "<tool_call>\n{\"name\": \"file_tools.glob\", \"arguments\": {\"pattern\": \"*.py\"}}\n</tool_call>",
            r#"<tool_call>{"name": "file_tools.glob", "arguments": {"pattern": "*.py"}}"#,
            "<tool_call>\n```json\n{\"name\": \"file_tools.glob\", \"arguments\": {\"pattern\": \"*.py\"}}\n```\n</tool_call>",
            "<TOOL_CALL><Tool> file_tools.glob </Tool><Args>{'pattern': '*.py',}</Args></TOOL_CALL>",
            "<tool_call><args><pattern>*.py</pattern></args><tool>file_tools.glob</tool></tool_call>",
            "<tool_call><name>file_tools.glob</name><arguments>pattern=*.py</arguments></tool_call>",
            "<tool_call><tool>file_tools.glob</tool><args>{&quot;pattern&quot;: &quot;*.py&quot;}</args></tool_call>",
            "<tool_call><tool>file_tools.glob</tool><args><![CDATA[{\"pattern\": \"*.py\"}]]></args></tool_call>",
            "<tool_call><tool>file_tools.glob</tool><args><pattern><![CDATA[*.py]]></pattern></args></tool_call>",
            "<tool_call><tool>file_tools.glob</tool><args>{\"pattern\": \"*.py\"}</args>",
            "<tool_call>\n<function=file_tools.glob>\n<parameter=pattern>\n*.py\n</parameter>\n</function>\n</tool_call>",
            r#"<function=file_tools.glob>{"pattern": "*.py"}</function>"#,
            r#"<tool_call>[{"name": "file_tools.glob", "arguments": {"pattern": "*.py"}}]</tool_call>"#,
        ],
        Xml,
    );
    check_glob(&["<tool_call>file_tools.glob(pattern='*.py')</tool_call>"], FunctionCall);
}

#[test]
fn text_in_argument_tags_is_parsed() {
    for (written, content) in [
        ("a &lt;b&gt; &amp;&amp; c &#65;&#x42; &nope;", "a <b> && c AB &nope;"),
        ("<![CDATA[a </content> &lt; b]]>", "a </content> &lt; b"),
        ("\n  if a < b: <p>x</p>\n", "  if a < b: <p>x</p>"),
        ("{\"a\": 1}", "{\"a\": 1}"),
        ("42", "42"),
    ] {
        let text = format!(
            "<tool_call><tool>code_tools.write_file</tool><args><file_path>f</file_path><content>{written}</content></args></tool_call>"
        );
        let args = json!({ "file_path": "f", "content": content });
        check_only_call(&text, "code_tools.write_file", args, Xml);
    }
    check_only_call(
        "<tool_call><tool>file_tools.tree</tool><args><depth>2</depth></args></tool_call>",
        "file_tools.tree",
        json!({ "depth": 2 }),
        Xml,
    );
    check_only_call(
        r#"<tool_call><tool>file_tools.glob</tool><args>{"pattern": "a</args>b &amp; c"}</args></tool_call>"#,
        "file_tools.glob",
        json!({ "pattern": "a</args>b & c" }),
        Xml,
    );
}

#[test]
fn the_simple_form_is_parsed_inside_markdown() {
    check_glob(
        &[
            "**TOOL:** `file_tools.glob` **ARGS:** `{\"pattern\": \"*.py\"}`",
            "TOOL: file_tools.glob\nARGS:\n```json\n{\n  \"pattern\": \"*.py\"\n}\n```",
            "TOOL: \"file_tools.glob\", ARGS: {'pattern': '*.py'}",
            "TOOL: file_tools.glob ARGS: pattern=*.py",
            "TOOL: file_tools.glob ARGS: {pattern=*.py}",
            "TOOL: file_tools.glob ARGUMENTS: {\"pattern\": \"*.py\"}",
            "TOOL: file_tools.glob {\"pattern\": \"*.py\"}",
            "TOOL:file_tools.glob ARGS:{\"pattern\":\"*.py\"}",
            "我需要TOOL: file_tools.glob ARGS: {\"pattern\": \"*.py\"}。",
        ],
        Simple,
    );
}

#[test]
fn function_calls_accept_every_argument_format() {
    check_glob(
        &[
            "file_tools.glob(\"*.py\")",
            "`file_tools.glob('*.py')`",
            "```python\nfiles = file_tools.glob(\n    pattern=\"*.py\",  # all\n)\n```",
            "file_tools.glob({\"pattern\": \"*.py\"})",
            "file_tools.glob(pattern: \"*.py\")",
            "file_tools.glob(*.py)",
            "我将使用file_tools.glob(pattern=*.py)",
        ],
        FunctionCall,
    );
    check_only_call(
        "file_tools.glob('*.{py,rs}', path=/a (b)/c)",
        "file_tools.glob",
        json!({ "pattern": "*.{py,rs}", "path": "/a (b)/c" }),
        FunctionCall,
    );
    for text in [
        "file_tools.glob(...)",
        "file_tools.glob(pattern: str, path: str = None)",
        "file_tools.tree(path: Optional[str] = None, depth: int = 2)",
        "def glob(pattern='*'):",
        "file_tools.glob('a', 'b', 'c')",
        "file_tools.glob('a', pattern='b')",
        "file_tools.glob (which finds files)",
        "file_tools.glob(pattern='*.py'",
        "my_file_tools.glob(pattern='*.py')",
    ] {
        check_none(text);
    }
}

#[test]
fn calls_in_sentences_are_parsed() {
    check_glob(
        &[
            "I'll use file_tools.glob with pattern=*.py.",
            "Use `file_tools.glob` with pattern = \"*.py\"",
            "USE FILE_TOOLS.GLOB WITH {\"pattern\": \"*.py\"} to find them",
            "First, use **file_tools.glob** with\npattern=*.py;",
        ],
        NaturalLanguage,
    );
    check_only_call(
        "use web_tools.web_search with query='rust async runtimes' and max_results=3. I will see.",
        "web_tools.web_search",
        json!({ "query": "rust async runtimes", "max_results": 3 }),
        NaturalLanguage,
    );
    check_only_call(
        "use file_tools.grep with pattern=\"a and b=c\", path=. and output_mode=content.",
        "file_tools.grep",
        json!({ "pattern": "a and b=c", "path": ".", "output_mode": "content" }),
        NaturalLanguage,
    );
    check_only_call(
        "use web_tools.fetch_url with url=https://a.b/c?d=e,f,extract_text=false.",
        "web_tools.fetch_url",
        json!({ "url": "https://a.b/c?d=e,f", "extract_text": false }),
        NaturalLanguage,
    );
}

#[test]
fn several_calls_keep_the_order_of_the_text() {
    let text = "First file_tools.glob(pattern='a'), then\n\
        {\"tool\": \"file_tools.tree\", \"args\": {}}\n\
        <tool_call>{\"name\": \"file_tools.glob\", \"arguments\": {\"pattern\": \"b\"}}</tool_call>\n\
        TOOL: system_tools.system_info ARGS: {}\n\
        use file_tools.glob with pattern=c\n\
        {\"tool_calls\": [{\"function\": {\"name\": \"glob\", \"arguments\": \"{}\"}}, {\"function\": {\"name\": \"nope\", \"arguments\": \"{}\"}}, {\"function\": {\"name\": \"tree\"}}]}";
    let expected = json!([
        ["file_tools.glob", { "pattern": "a" }, "function_call"],
        ["file_tools.tree", {}, "json"],
        ["file_tools.glob", { "pattern": "b" }, "xml"],
        ["system_tools.system_info", {}, "simple"],
        ["file_tools.glob", { "pattern": "c" }, "natural_language"],
        ["file_tools.glob", {}, "openai"],
        ["file_tools.tree", {}, "openai"],
    ]);
    assert_eq!(calls_as_json(text), expected);
    for call in parse_calls(text) {
        assert!(text.contains(&call.raw) && !call.raw.is_empty(), "{}", call.raw);
    }
}

#[test]
fn an_announced_call_counts_once() {
    check_only_call(
        "I'll use file_tools.glob with pattern=*.py.\nTOOL: file_tools.glob ARGS: {\"pattern\": \"*.py\"}",
        "file_tools.glob",
        json!({ "pattern": "*.py" }),
        Simple,
    );
    let twice = "TOOL: tree ARGS: {}\nTOOL: tree ARGS: {}";
    assert_eq!(calls_as_json(twice).as_array().map(Vec::len), Some(2));
}

#[test]
fn a_call_inside_an_argument_is_ignored() {
    let inner = r#"{\"tool\": \"system_tools.bash\", \"args\": {\"command\": \"rm\"}}"#;
    let bash = json!({ "tool": "system_tools.bash", "args": { "command": "rm" } });
    check_only_call(
        &format!(
            r#"{{"tool": "code_tools.write_file", "args": {{"file_path": "f", "content": "{inner}"}}}}"#
        ),
        "code_tools.write_file",
        json!({ "file_path": "f", "content": inner.replace('\\', "") }),
        Json,
    );
    check_only_call(
        &format!(r#"{{"tool": "rag2_tools.find", "args": {{"what": {bash}}}}}"#),
        "rag2_tools.find",
        json!({ "what": bash }),
        Json,
    );
    check_only_call(
        &format!("rag2_tools.find(what='{bash}')"),
        "rag2_tools.find",
        json!({ "what": bash.to_string() }),
        FunctionCall,
    );
    check_only_call(
        &format!(
            "<tool_call><tool>rag2_tools.find</tool><args><what><![CDATA[<tool_call>{bash}</tool_call>]]></what></args></tool_call>"
        ),
        "rag2_tools.find",
        json!({ "what": format!("<tool_call>{bash}</tool_call>") }),
        Xml,
    );
    check_none(&format!(r#"{{"tool": "nope", "args": {{"what": {bash}}}}}"#));
}

#[test]
fn a_broken_call_does_not_expose_calls_in_its_arguments() {
    for text in [
        r#"{"tool": "code_tools.write_file", "args": {"content": "a "quote" {"tool": "system_tools.bash", "args": {}}"}}"#,
        "{\"tool\": \"code_tools.write_file\", \"args\": {\"content\": \"cut off\nTOOL: system_tools.bash ARGS: {\\\"command\\\": 1}\nTOOL: tree ARGS: {}",
        "TOOL: code_tools.write_file ARGS: {\"content\": \"say \"hi\"\n use system_tools.bash with command=rm\"}",
        "code_tools.write_file(file_path='a', content=\"cut off\nTOOL: tree ARGS: {}",
        "<tool_call><tool>code_tools.write_file</tool><args><content>\n<tool_call>{\"name\": \"system_tools.bash\", \"arguments\": {}}</tool_call>\nTOOL: tree ARGS: {}",
        "<tool_call><tool>code_tools.write_file</tool><args><content>\n<tool_call>{\"name\": \"tree\", \"arguments\": {}}</tool_call>\n</args></tool_call>",
    ] {
        check_none(text);
    }
    let next_line = "{\"tool\": \"file_tools.glob\", \"args\": {...}}\nTOOL: tree ARGS: {}";
    check_only_call(next_line, "file_tools.tree", json!({}), Simple);
}

#[test]
fn calls_before_a_truncated_one_are_kept() {
    let text = r#"{"content":[{"type":"tool_use","name":"tree","input":{}},{"type":"tool_use","name":"glob","input":{"pat"#;
    check_only_call(text, "file_tools.tree", json!({}), Anthropic);
}

#[test]
fn an_unclosed_quote_does_not_hide_later_calls() {
    check_only_call(
        r#"The form is {"tool: …} and so {"tool": "tree", "args": {}}"#,
        "file_tools.tree",
        json!({}),
        Json,
    );
    check_only_call(
        "{don't} worry, it's {'tool': 'tree', 'args': {}}",
        "file_tools.tree",
        json!({}),
        Json,
    );
}

#[test]
fn definitions_results_and_thoughts_are_ignored() {
    for text in [
        r#"{"name": "file_tools.glob", "description": "d", "parameters": {"type": "object", "properties": {"pattern": {"type": "string"}}}}"#,
        r#"{"type":"function","function":{"name":"file_tools.glob","parameters":{"type":"object","properties":{}}}}"#,
        r#"{"name": "file_tools.glob", "input_schema": {"type": "object"}}"#,
        r#"{"tool": "file_tools.glob", "summary": "s", "parameters": {"pattern": {"type": "str"}}}"#,
        r#"{"type":"tool_result","content":[{"type":"tool_use","name":"tree","input":{}}]}"#,
        r#"{"role":"tool","content":{"tool":"tree","args":{}}}"#,
        r#"<tool_response>{"name": "tree", "arguments": {}}</tool_response>"#,
        "<think>I could TOOL: tree ARGS: {}</think> No.",
    ] {
        check_none(text);
    }
}

#[test]
fn argument_values_that_look_like_schemas_are_kept() {
    for (text, args) in [
        (
            r#"{"tool": "file_tools.glob", "parameters": {"pattern": {"type": "circle", "r": 2}}}"#,
            json!({ "pattern": { "type": "circle", "r": 2 } }),
        ),
        (
            r#"{"name": "file_tools.glob", "parameters": {"properties": {"a": 1}}}"#,
            json!({ "properties": { "a": 1 } }),
        ),
        (
            r#"{"tool_name": "file_tools.glob", "parameters": {"type": "object", "properties": {"a": 1}}}"#,
            json!({ "type": "object", "properties": { "a": 1 } }),
        ),
    ] {
        check_only_call(text, "file_tools.glob", args, Json);
    }
}

#[test]
fn an_unquoted_value_may_be_an_absolute_path() {
    for text in [
        "file_tools.glob(pattern=/**/*.py)",
        "file_tools.glob(pattern= /**/*.py, path=/* here */'.')",
    ] {
        let found = parse_calls(text);
        assert_eq!(found[0].args["pattern"], "/**/*.py", "{text}");
    }
    check_only_call(
        "{tool: file_tools.glob, args: {pattern: /**/*.py}}",
        "file_tools.glob",
        json!({ "pattern": "/**/*.py" }),
        Json,
    );
    check_only_call(
        "{tool: file_tools.glob, args: {pattern: /* all */ *.py}}",
        "file_tools.glob",
        json!({ "pattern": "*.py" }),
        Json,
    );
}

#[test]
fn a_call_named_as_a_function_in_a_sentence_is_parsed() {
    check_glob(
        &[
            "I'll call the function file_tools.glob(pattern=\"*.py\")",
            "I'll call the function file_tools.glob(pattern=\"*.py\"), then stop.",
        ],
        FunctionCall,
    );
    for text in [
        "function glob(pattern='*') { return 1 }",
        "class glob(pattern='*'):",
        "fn glob(pattern='*') -> u8",
    ] {
        check_none(text);
    }
}

#[test]
fn a_number_is_converted_for_a_text_parameter() {
    check_only_call(
        "file_tools.glob(1234)",
        "file_tools.glob",
        json!({ "pattern": "1234" }),
        FunctionCall,
    );
    check_none("file_tools.glob(pattern)");
}

#[test]
fn too_deeply_nested_arguments_are_rejected() {
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!("TOOL: rag2_tools.find ARGS: {{\"what\": {open}{close}}}")
    };
    let limit = shared::limits::JSON_DEPTH;
    assert_eq!(parse_calls(&nested(limit - 1)).len(), 1);
    assert_eq!(parse_calls(&nested(limit)).len(), 0);
}

#[test]
fn arguments_that_are_no_object_are_rejected() {
    for args in ["[1]", "1", "true", "\"*.py\""] {
        check_none(&format!(r#"{{"tool": "glob", "args": {args}}}"#));
    }
    let null: Value = json!({});
    check_only_call(r#"{"tool": "tree", "args": null}"#, "file_tools.tree", null.clone(), Json);
    check_only_call(r#"{"tool": "tree", "args": []}"#, "file_tools.tree", null, Json);
}
