//! Argument pairs and calls in prose. A call is read with all its written arguments, or not at all.

use serde_json::{Value, json};

use super::{CallFormat, CallFormat::*, calls_as_json, check_none, check_only_call, tools};
use crate::calls::{CatalogNames, read_tool_calls};

const GLOB: &str = "file_tools.glob";
const GREP: &str = "file_tools.grep";
const SAVE: &str = "memory_tools.save_context";
const WRITE: &str = "code_tools.write_file";

fn missed_calls(text: &str) -> Vec<String> {
    let names = CatalogNames::new(tools::catalog());
    let read = read_tool_calls(text, &|name| names.find(name)).expect("the text is small");
    read.missed.iter().map(|missed| format!("{} {:?}", missed.tool, missed.reason)).collect()
}

fn check_all(cases: &[(&str, &str, Value)], format: CallFormat) {
    for (text, tool, args) in cases {
        check_only_call(text, tool, args.clone(), format);
    }
}

#[test]
fn argument_pairs_are_separated_by_commas_or_and() {
    let both = json!({ "pattern": "*.py", "path": "/tmp" });
    for text in [
        "use file_tools.glob with pattern=*.py and path=/tmp",
        "use file_tools.glob with pattern=*.py, path=/tmp.",
        "use file_tools.glob with pattern=*.py,path=/tmp; I wait",
        "use file_tools.glob with pattern = *.py, and path = /tmp.\nThen I stop.",
        "use file_tools.glob with pattern=\"*.py\"\nand path='/tmp'",
        "use file_tools.glob with pattern=“*.py” and path=‘/tmp’.",
        "I do not know the files. So please use file_tools.glob with path=/tmp and pattern=*.py. Then stop",
    ] {
        check_only_call(text, GLOB, both.clone(), NaturalLanguage);
    }
}

#[test]
fn an_argument_value_is_one_word_or_quoted() {
    check_all(
        &[
            (
                "use file_tools.grep with pattern=f(x) and path=src/{a,b}.py",
                GREP,
                json!({ "pattern": "f(x)" , "path": "src/{a,b}.py" }),
            ),
            (
                "use file_tools.grep with pattern=\"a and b=c\", path=. and output_mode=content.",
                GREP,
                json!({ "pattern": "a and b=c", "path": ".", "output_mode": "content" }),
            ),
            (
                "use code_tools.write_file with content='buy milk, eggs' and file_path=don't.",
                WRITE,
                json!({ "content": "buy milk, eggs", "file_path": "don't" }),
            ),
            (
                "use file_tools.tree with depth=2, path=..",
                "file_tools.tree",
                json!({ "depth": 2, "path": ".." }),
            ),
        ],
        NaturalLanguage,
    );
}

#[test]
fn other_prose_is_reported_as_missed() {
    for text in [
        "use file_tools.glob with care",
        "use file_tools.glob with pattern *.py",
        "use file_tools.glob with pattern: *.py",
        "use file_tools.glob with no arguments",
        "use file_tools.glob with pattern=*.py to find them",
        "use file_tools.glob with pattern=\"*.py\" to find them",
        "use file_tools.glob with pattern=*.py to find them and path=/tmp",
        "use file_tools.glob with pattern=*.py, *.rs",
        "use file_tools.glob with pattern=*.py path=/tmp",
        "use file_tools.glob with pattern=*.py plus path=/tmp",
        "use file_tools.glob with pattern=*.py\npath=/tmp",
        "use file_tools.glob with pattern=*.py. path=/tmp",
        "use file_tools.glob with pattern=*.py. Then set path=/tmp",
        "use file_tools.glob with pattern=*.py\n- path=/tmp",
        "use file_tools.glob with pattern=*.py and use file_tools.tree with depth=1 now",
        "use file_tools.glob with `pattern=*.py`",
        "use file_tools.glob with pattern=*.py, path=",
        "use file_tools.glob with pattern=a, pattern=b",
        "use file_tools.glob with pattern=f\"{x}\"",
        "use file_tools.glob with pattern=what?",
        "use file_tools.glob with pattern=f(b, a)",
        "use file_tools.glob with (pattern=*.py)",
        "use file_tools.glob with keyword arguments pattern=*.py",
        "use file_tools.glob with {\"pattern\": \"*.py\"} and path=/tmp",
        "use file_tools.glob with [\"*.py\"]",
        "use web_tools.web_search with query=rust async",
        "use code_tools.write_file with content='one' 'two'",
        "use code_tools.write_file with content=\"a\"b",
        "use code_tools.write_file with content='it's fine'",
        "use code_tools.write_file with content=Vec<u8>",
        "call file_tools.glob with pattern=*.py",
        "using file_tools.glob with {\"pattern\": \"*.py\"}",
        "run file_tools.glob with pattern=*.py",
    ] {
        check_none(&text.replace(" and use file_tools.tree with depth=1 now", " and use"));
        let name = text.split(' ').nth(1).expect("a name");
        assert_eq!(missed_calls(text)[0], format!("{name} Unreadable"), "{text}");
        assert_eq!(
            missed_calls(&format!("Never {text}")).len(),
            missed_calls(text).len() - 1,
            "{text}"
        );
    }
    for text in ["use the file_tools.glob tool with pattern=a", "use file_tools.glob() with {}"] {
        check_none(text);
        assert_eq!(missed_calls(text), ["file_tools.glob Unreadable"], "{text}");
    }
    assert_eq!(missed_calls("use file_tools.glob with pattern=\"*.py"), ["file_tools.glob Cut"]);
    for text in ["I could use file_tools.glob for that.", "use nope.nope with a=1"] {
        check_none(text);
        assert_eq!(missed_calls(text), [""; 0], "{text}");
    }
}

#[test]
fn a_denied_call_is_no_call() {
    for text in [
        "Never call system_tools.bash(command='rm -rf .').",
        "Do not run system_tools.bash(command='rm -rf .')",
        "Don't run `system_tools.bash(command='rm -rf .')`",
        "Don’t ever run the function system_tools.bash(command='rm -rf .')",
        "I cannot call file_tools.tree()",
        "without calling file_tools.tree() I know it",
        "do not use file_tools.glob with pattern=*",
        "You should not ever use file_tools.glob with pattern=*",
        "I choose not to use file_tools.glob with {}",
        "I called file_tools.glob(pattern='*.py') already.",
        "I ran `file_tools.tree()` and saw nothing.",
    ] {
        check_none(text);
        assert_eq!(missed_calls(text), [""; 0], "{text}");
    }
    let text = "Do not run file_tools.tree(). Run file_tools.glob(pattern='a').";
    assert_eq!(
        calls_as_json(text),
        json!([["file_tools.glob", { "pattern": "a" }, "function_call"]])
    );
    for text in [
        "I do not know, so I call file_tools.glob(pattern='*.py')",
        "I don't have the list\nfile_tools.glob(pattern='*.py')",
        "I want file_tools.glob(pattern='*.py')",
    ] {
        check_only_call(text, GLOB, json!({ "pattern": "*.py" }), FunctionCall);
    }
    check_only_call("I do not guess: TOOL: tree ARGS: {}", "file_tools.tree", json!({}), Simple);
}

#[test]
fn an_arguments_block_may_have_values_of_several_words() {
    let write = |content: &str| json!({ "file_path": "a.txt", "content": content });
    let save = |value: &str| json!({ "key": "todo", "value": value, "scope": "global" });
    let cases = [
        ("key=todo, value=buy milk, eggs, scope=global", SAVE, save("buy milk, eggs")),
        ("key=todo and value=milk and eggs and scope=global", SAVE, save("milk and eggs")),
        ("key=todo, value=\"milk, scope=x\", scope=global", SAVE, save("milk, scope=x")),
        ("file_path=a.txt, content=3 apples", WRITE, write("3 apples")),
        ("content=let x=1, and so on, file_path=a.txt", WRITE, write("let x=1, and so on")),
        ("content=if a < b: {c}, file_path=a.txt", WRITE, write("if a < b: {c}")),
        ("file_path=a.txt, content=Hello there.", WRITE, write("Hello there.")),
        (
            "pattern=*.{rs,toml}, path=/a b",
            GLOB,
            json!({ "pattern": "*.{rs,toml}", "path": "/a b" }),
        ),
        ("pattern=*.py,\npath=/tmp", GLOB, json!({ "pattern": "*.py", "path": "/tmp" })),
    ];
    for (written, tool, args) in cases {
        let text = format!(
            "<tool_call><tool>{tool}</tool><args>{}</args></tool_call>",
            written.replace('<', "&lt;")
        );
        check_only_call(&text, tool, args.clone(), Xml);
        let text = json!({ "tool": tool, "args": written }).to_string();
        check_only_call(&text, tool, args, Json);
    }
}

#[test]
fn an_arguments_line_is_parsed_like_a_sentence() {
    let both = json!({ "path": "a.b", "depth": 2 });
    for text in [
        "TOOL: tree ARGS: depth=2, path=a.b",
        "TOOL: tree ARGS: depth=2 and path=\"a.b\".\nMore.",
        "TOOL: tree ARGS: depth=2, path=a.b. Then I stop.",
        "TOOL: tree\nARGS:\ndepth=2, path=a.b",
    ] {
        check_only_call(text, "file_tools.tree", both.clone(), Simple);
    }
    let object = "TOOL: tree ARGS: {\"path\": \"a b\"} and then I stop";
    check_only_call(object, "file_tools.tree", json!({ "path": "a b" }), Simple);
    for text in [
        "TOOL: tree ARGS: path=\"a b\" in deep=2",
        "TOOL: tree ARGS: path=/a in the folder",
        "TOOL: tree ARGS: depth=2 levels",
        "TOOL: tree ARGS: path: a",
    ] {
        check_none(text);
        assert_eq!(missed_calls(text), ["tree Unreadable"], "{text}");
    }
}

#[test]
fn arguments_followed_by_other_text_make_no_call() {
    for written in [
        "file_path=\"a.txt\", content=\"one\" \"two\"",
        "file_path=\"a.txt\", content=\"one\"two",
        "file_path=a.txt, content='don't say 'hi' there'",
        "file_path=a.txt, content=",
        "file_path=a.txt, content=\"a\", content=\"b\"",
        "content=I said \"hi, file_path=b today",
        "file_path=a.txt, content=f\"{x}\"",
        "{\"content\": \"x\"} and file_path=a",
    ] {
        check_none(&format!("TOOL: code_tools.write_file ARGS: {written}"));
        check_none(&json!({ "tool": WRITE, "args": written }).to_string());
    }
}
