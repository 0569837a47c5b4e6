//! Pairs: all that is written as arguments is in the call, or there is none.

use serde_json::{Value, json};

use super::{CallFormat, CallFormat::*, check, check_none, read, tools};
use crate::calls::{CatalogNames, read_tool_calls};

const GLOB: &str = "file_tools.glob";
const GREP: &str = "file_tools.grep";
const SAVE: &str = "memory_tools.save_context";
const WRITE: &str = "code_tools.write_file";

/// What is told of a text whose calls are none.
fn missed(text: &str) -> Vec<String> {
    let names = CatalogNames::new(tools::catalog());
    let read = read_tool_calls(text, &|name| names.find(name)).expect("the text is small");
    read.missed.iter().map(|it| format!("{} {:?}", it.tool, it.why)).collect()
}

fn check_all(cases: &[(&str, &str, Value)], format: CallFormat) {
    for (text, tool, args) in cases {
        check(text, tool, args.clone(), format);
    }
}

#[test]
fn markdown_around_a_pair_belongs_to_neither_name_nor_value() {
    let both = json!({ "pattern": "*.py", "path": "/tmp" });
    for text in [
        "use `file_tools.glob` with `pattern=*.py` and `path=/tmp`",
        "use `file_tools.glob` with `pattern=*.py`, `path=/tmp`.",
        "use `file_tools.glob` with `pattern=*.py, path=/tmp`.",
        "use `file_tools.glob` with `pattern=\"*.py\"` and `path='/tmp'`",
        "use `file_tools.glob` with `pattern`=`*.py` and `path`=`/tmp`.",
        "use file_tools.glob with pattern=`*.py` and path=`/tmp`",
        "use **file_tools.glob** with **pattern=*.py** and **path=/tmp**",
        "use **file_tools.glob** with **pattern**=*.py and **path**=/tmp",
        "use file_tools.glob with *pattern=*.py* and *path=/tmp*.",
        "use file_tools.glob with:\n- `pattern=*.py`\n- `path=/tmp`\n",
        "use file_tools.glob with:\n- `pattern`: `*.py`\n- `path`: `/tmp`\n",
        "use file_tools.glob with:\n* **pattern=*.py**\n* **path=/tmp**\n",
        "`use file_tools.glob with pattern=*.py and path=/tmp`",
        "**Use file_tools.glob with path=/tmp and pattern=*.py**",
    ] {
        check(text, GLOB, both.clone(), NaturalLanguage);
    }
    for text in [
        "TOOL: file_tools.glob ARGS: `pattern=*.py` and `path=/tmp`",
        "TOOL: file_tools.glob ARGS: **pattern=*.py**, **path=/tmp**",
        "**TOOL: file_tools.glob ARGS: path=/tmp, pattern=*.py**",
        "`TOOL: file_tools.glob ARGS: path=/tmp, pattern=*.py`",
        "(TOOL: file_tools.glob ARGS: path=/tmp, pattern=*.py)",
    ] {
        check(text, GLOB, both.clone(), Simple);
    }
    check_all(
        &[
            (
                "First, use `memory_tools.save_context` with `key=\"k\"` and `value=\"v\"` and `scope=\"global\"`.",
                SAVE,
                json!({ "key": "k", "value": "v", "scope": "global" }),
            ),
            (
                "use file_tools.grep with `pattern=TODO: fix it` and **path=my files**",
                GREP,
                json!({ "pattern": "TODO: fix it", "path": "my files" }),
            ),
            (
                "use file_tools.glob with **pattern=src/**/*.py** and path=/tmp",
                GLOB,
                json!({ "pattern": "src/**/*.py", "path": "/tmp" }),
            ),
            ("use file_tools.glob with pattern=src/**", GLOB, json!({ "pattern": "src/**" })),
            (
                "use file_tools.tree with `depth=3` and `path=a, b`",
                "file_tools.tree",
                json!({ "depth": 3, "path": "a, b" }),
            ),
        ],
        NaturalLanguage,
    );
}

#[test]
fn words_may_stand_between_pairs() {
    for text in [
        "use file_tools.glob with the pattern=*.py and the path=/tmp",
        "use file_tools.glob with pattern=*.py plus path=/tmp",
        "use file_tools.glob with pattern=*.py with path=/tmp",
        "use file_tools.glob with pattern=*.py (path=/tmp)",
        "use file_tools.glob with pattern=*.py, and also the path=/tmp.",
        "use file_tools.glob with pattern=\"*.py\" path=/tmp",
        "use file_tools.glob with pattern=*.py in path=/tmp",
        "use file_tools.glob with pattern=*.py & path=/tmp",
        "use file_tools.glob with pattern=“*.py” and path=‘/tmp’.",
    ] {
        check(text, GLOB, json!({ "pattern": "*.py", "path": "/tmp" }), NaturalLanguage);
    }
}

#[test]
fn a_sentence_whose_pairs_cannot_all_be_read_is_no_call() {
    for text in [
        "use code_tools.write_file with file_path=a.txt and content='one' 'two'",
        "use code_tools.write_file with file_path=a.txt and content=\"one\" + \"two\"",
        "use code_tools.write_file with file_path=a.txt and content=\"a\"b",
        "use code_tools.write_file with file_path=a.txt and content='don't say 'hi' there'",
        "use code_tools.write_file with file_path=a.txt and content=Vec<u8>",
        "use code_tools.write_file with content=Hello. Bye and file_path=a",
        "use code_tools.write_file with file_path=a and content=",
        "use memory_tools.save_context with key=k and value=I said \"hi\" today",
        "use memory_tools.save_context with key=k, value=v, key=l",
        "use memory_tools.save_context with key=k and value=my note: buy milk",
        "use file_tools.grep with pattern=\"foo\" and \"bar\" and path=src",
        "use file_tools.glob with pattern=*.py to find them and path=/tmp",
        "use file_tools.glob with pattern=*.py and look at path=/tmp",
        "use file_tools.glob with pattern=*.py files and path=/tmp",
        "use file_tools.glob with pattern=*.py. Then set path=/tmp",
        "use file_tools.glob with pattern=*.py, *.rs",
        "use file_tools.glob with path=/my documents/x",
        "use file_tools.glob with pattern=\"*.py\", then path=\"/tmp\"",
        "use file_tools.glob with pattern=\"*.py\" | path=\"/tmp\"",
        "use file_tools.glob with pattern=f\"{x}\"",
        "use file_tools.glob with keyword arguments pattern=*.py and path=/tmp",
        "use file_tools.glob with --pattern=*.py --path=/tmp",
        "use web_tools.web_search with query=AC/DC band and max_results=3",
        "use web_tools.web_search with max_results=3 results and query=x",
        "use memory_tools.save_context with key=k and value=buy milk, eggs",
        "use file_tools.glob with pattern=*.py in the folder with its path=/tmp",
        "use file_tools.glob with pattern=*.py to look --path=/tmp",
        "use file_tools.glob with pattern=*.py (all of them) and `path=/tmp`",
        "use file_tools.glob with:\n- pattern=*.py (all)\n- path=/tmp",
        "use file_tools.glob with {\"pattern\": \"*.py\"} and path=/tmp",
        "use file_tools.glob with {\"pattern\": \"*.py\"} plus the path=/tmp",
    ] {
        check_none(text);
        let name = text.split(' ').nth(1).expect("a name");
        assert_eq!(missed(text), [format!("{name} Unreadable")], "{text}");
        assert_eq!(missed(&format!("Never {text}")), [""; 0], "{text}");
    }
    for text in [
        "use file_tools.glob with care",
        "use file_tools.glob with pattern *.py",
        "I could use file_tools.tree with the others: there is x=1.",
    ] {
        check_none(text);
        assert_eq!(missed(text), [""; 0], "{text}");
    }
}

#[test]
fn a_value_goes_on_to_a_pair_of_the_tool() {
    let write = |content: &str, path: &str| json!({ "content": content, "file_path": path });
    let save = |value: &str| json!({ "key": "k", "value": value, "scope": "global" });
    check_all(
        &[
            (
                "use code_tools.write_file with content=3 apples and file_path=a",
                WRITE,
                write("3 apples", "a"),
            ),
            (
                "use code_tools.write_file with content=C++ rocks and file_path=a.",
                WRITE,
                write("C++ rocks", "a"),
            ),
            (
                "use code_tools.write_file with file_path=/a b.txt and content=x",
                WRITE,
                write("x", "/a b.txt"),
            ),
            (
                "use code_tools.write_file with:\n- content=3 apples\n- file_path=a",
                WRITE,
                write("3 apples", "a"),
            ),
            (
                "use code_tools.write_file with:\n1. content=3 apples\n2. file_path=a",
                WRITE,
                write("3 apples", "a"),
            ),
            (
                "use code_tools.write_file with content=f(b, a), file_path=a",
                WRITE,
                write("f(b, a)", "a"),
            ),
            (
                "use memory_tools.save_context with key=k and value=I said \"x=1 and y=2\" today and scope=global",
                SAVE,
                save("I said \"x=1 and y=2\" today"),
            ),
            (
                "use memory_tools.save_context with key=k, value=buy milk, eggs, and scope=global.",
                SAVE,
                save("buy milk, eggs"),
            ),
            (
                "use memory_tools.save_context with key=k, value=my note: buy milk & scope=global",
                SAVE,
                save("my note: buy milk"),
            ),
            (
                "use memory_tools.save_context with key=k & value=what is new? and scope=global.",
                SAVE,
                save("what is new?"),
            ),
        ],
        NaturalLanguage,
    );
}

#[test]
fn a_value_has_its_marks_and_brackets() {
    check_all(
        &[
            (
                "use file_tools.grep with pattern=TODO: fix and path=src",
                GREP,
                json!({ "pattern": "TODO: fix", "path": "src" }),
            ),
            (
                "use file_tools.grep with pattern=[A-Z]+ and path={a,b}.py",
                GREP,
                json!({ "pattern": "[A-Z]+", "path": "{a,b}.py" }),
            ),
            (
                "use system_tools.bash with command=./run.sh --fast and cwd=/tmp",
                "system_tools.bash",
                json!({ "command": "./run.sh --fast", "cwd": "/tmp" }),
            ),
            (
                "use file_tools.glob with pattern: *.py and path: /tmp",
                GLOB,
                json!({ "pattern": "*.py", "path": "/tmp" }),
            ),
            (
                "use file_tools.glob with (pattern=*.py, path=/tmp)",
                GLOB,
                json!({ "pattern": "*.py", "path": "/tmp" }),
            ),
            (
                "use web_tools.web_search with query=Node.js streams and max_results=3",
                "web_tools.web_search",
                json!({ "query": "Node.js streams", "max_results": 3 }),
            ),
            (
                "use web_tools.web_search with query=C++ templates.",
                "web_tools.web_search",
                json!({ "query": "C++ templates" }),
            ),
            (
                "use memory_tools.save_context with key=k and value=buy milk:\n",
                SAVE,
                json!({ "key": "k", "value": "buy milk" }),
            ),
        ],
        NaturalLanguage,
    );
}

#[test]
fn prose_behind_a_sentence_with_pairs_is_none_of_them() {
    check_all(
        &[
            (
                "use file_tools.glob with pattern=*.py and path=/tmp and then stop",
                GLOB,
                json!({ "pattern": "*.py", "path": "/tmp" }),
            ),
            (
                "| `use file_tools.glob with pattern=*.py` | glob(path=x), path=y |",
                GLOB,
                json!({ "pattern": "*.py" }),
            ),
            (
                "use code_tools.read_file with file_path=main.py to read it",
                "code_tools.read_file",
                json!({ "file_path": "main.py" }),
            ),
            (
                "use system_tools.process_kill with pid_or_name=1234 to stop it",
                "system_tools.process_kill",
                json!({ "pid_or_name": "1234" }),
            ),
            (
                "use file_tools.tree with path=/tmp and then stop",
                "file_tools.tree",
                json!({ "path": "/tmp" }),
            ),
            (
                "use file_tools.tree with path=/tmp, then stop.",
                "file_tools.tree",
                json!({ "path": "/tmp" }),
            ),
            (
                "I'll use file_tools.glob with pattern=\"*.py\" to find them. Then x=1 holds.",
                GLOB,
                json!({ "pattern": "*.py" }),
            ),
            (
                "use file_tools.glob with pattern='*.py'. It's the path I like; see https://a.b/?path=x",
                GLOB,
                json!({ "pattern": "*.py" }),
            ),
            (
                "use file_tools.glob with pattern=*.py\n\nThe path=/tmp is not needed.",
                GLOB,
                json!({ "pattern": "*.py" }),
            ),
            (
                "use file_tools.tree with depth=2 to see if a == b or path == c",
                "file_tools.tree",
                json!({ "depth": 2 }),
            ),
        ],
        NaturalLanguage,
    );
    let two = |text: &str| {
        let first = json!(["file_tools.glob", { "pattern": "*.py" }, "natural_language"]);
        let found = read(text);
        assert_eq!((found.as_array().map(Vec::len), &found[0]), (Some(2), &first), "{text}");
    };
    two(
        "use file_tools.glob with pattern=*.py and use file_tools.grep with pattern=TODO and path=src",
    );
    two("use file_tools.glob with pattern=*.py, then file_tools.grep(pattern='x', path='src')");
    two(
        "use file_tools.glob with pattern=*.py, then TOOL: file_tools.grep ARGS: pattern=x, path=src",
    );
}

#[test]
fn an_apostrophe_does_not_close_a_string() {
    let args = json!({ "file_path": "a.txt", "content": "it's fine" });
    for text in [
        "use code_tools.write_file with file_path=a.txt and content='it's fine'",
        "use code_tools.write_file with content='it's fine' and file_path=a.txt.",
        "use code_tools.write_file with `content='it's fine'` and `file_path=a.txt`.",
    ] {
        check(text, WRITE, args.clone(), NaturalLanguage);
    }
    check(
        "TOOL: code_tools.write_file ARGS: file_path=a.txt, content='it's fine'",
        WRITE,
        args.clone(),
        Simple,
    );
    check(
        "<tool_call><tool>code_tools.write_file</tool><args>content='it's fine', file_path=a.txt</args></tool_call>",
        WRITE,
        args,
        Xml,
    );
}

#[test]
fn a_line_of_arguments_has_nothing_else() {
    let save = |value: &str, scope: &str| json!({ "key": "todo", "value": value, "scope": scope });
    let write = |content: &str| json!({ "file_path": "a.txt", "content": content });
    let cases = [
        ("key=todo, value=buy milk, eggs, scope=global", SAVE, save("buy milk, eggs", "global")),
        (
            "key=todo and value=buy milk and eggs and scope=global",
            SAVE,
            save("buy milk and eggs", "global"),
        ),
        (
            "key=todo scope=global value=I said \"hi, you\" today",
            SAVE,
            save("I said \"hi, you\" today", "global"),
        ),
        ("key=todo; value=a = b, c == d; scope=global", SAVE, save("a = b, c == d", "global")),
        (
            "key=todo, value=\"buy milk, scope=x\", scope=global",
            SAVE,
            save("buy milk, scope=x", "global"),
        ),
        ("file_path=a.txt, content=one, two", WRITE, write("one, two")),
        ("file_path=a.txt, content=3 apples", WRITE, write("3 apples")),
        ("content=let x=1, and so on, file_path=a.txt", WRITE, write("let x=1, and so on")),
        ("content=Is it? It's C++!, file_path=a.txt", WRITE, write("Is it? It's C++!")),
        ("content=if a < b: {c}, file_path=a.txt", WRITE, write("if a < b: {c}")),
        ("file_path=a.txt, content=Hello there.", WRITE, write("Hello there.")),
        (
            "pattern=*.{rs,toml}, path=/a b",
            GLOB,
            json!({ "pattern": "*.{rs,toml}", "path": "/a b" }),
        ),
        (
            "file_path=a.txt, content=I said \"hi, file_path=b\" today",
            WRITE,
            write("I said \"hi, file_path=b\" today"),
        ),
        ("file_path: a.txt, content: \"x\"", WRITE, write("x")),
        ("file_path=“a.txt”, content=‘it’s “x”’", WRITE, write("it’s “x”")),
        ("file_path=a.txt, content=f(b, a)", WRITE, write("f(b, a)")),
        (
            "command=find / -name \"*.py\", timeout=5",
            "system_tools.bash",
            json!({ "command": "find / -name \"*.py\"", "timeout": 5 }),
        ),
        ("pattern=*.py,\npath=/tmp", GLOB, json!({ "pattern": "*.py", "path": "/tmp" })),
        (
            "pattern=TODO: fix, context_lines=2",
            GREP,
            json!({ "pattern": "TODO: fix", "context_lines": 2 }),
        ),
    ];
    for (written, tool, args) in cases {
        check(&format!("TOOL: {tool} ARGS: {written}"), tool, args.clone(), Simple);
        check(
            &format!("So:\nTOOL: {tool} ARGS: {written}\nThen I stop."),
            tool,
            args.clone(),
            Simple,
        );
        let text = format!(
            "<tool_call><tool>{tool}</tool><args>{}</args></tool_call>",
            written.replace('<', "&lt;")
        );
        check(&text, tool, args.clone(), Xml);
        let text = json!({ "tool": tool, "args": written }).to_string();
        check(&text, tool, args, Json);
    }
}

#[test]
fn a_line_with_something_else_is_no_call() {
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

#[test]
fn what_ends_a_line_of_arguments() {
    let tree = json!(["file_tools.tree", { "path": "a b" }, "simple"]);
    let glob = json!(["file_tools.glob", { "pattern": "c" }, "simple"]);
    assert_eq!(read("TOOL: tree ARGS: path=a b TOOL: glob ARGS: pattern=c"), json!([tree, glob]));
    assert_eq!(read("TOOL: tree ARGS: path=a b</think>TOOL: glob ARGS: pattern=c"), json!([glob]));
    assert_eq!(read("TOOL: tree ARGS: path=a b<|im_end|>"), json!([tree]));
    assert_eq!(read("TOOL: tree ARGS: path=\"a b\".\nMore."), json!([tree]));
    assert_eq!(read("TOOL: tree ARGS: {\"path\": \"a b\"} and then I stop"), json!([tree]));
    let line = |text: &str| read(&format!("TOOL: {text}"));
    let both = json!([["file_tools.tree", { "path": "a.b", "depth": 2 }, "simple"]]);
    for text in [
        "tree ARGS: path=\"a.b\" (depth=2)",
        "tree ARGS: path=\"a.b\" (depth=2) for you",
        "tree ARGS: depth=2 and path=a.b to see",
        "tree ARGS: depth=2, path=a.b. Then I stop.",
        "tree ARGS: depth=2, (path=a.b).",
    ] {
        assert_eq!(line(text), both, "{text}");
    }
    for text in [
        "tree ARGS: path=\"a b\" to see",
        "tree ARGS: path=\"a b\", I think",
        "tree ARGS: path=`a b` (all of it).",
        "tree ARGS: path=a b .",
    ] {
        assert_eq!(line(text), json!([tree]), "{text}");
    }
    for text in
        ["glob ARGS: pattern=c.", "glob ARGS: pattern=\"c\" in there", "glob ARGS: pattern=c ."]
    {
        assert_eq!(line(text), json!([glob]), "{text}");
    }
    let grep = json!([["file_tools.grep", { "pattern": "*.c", "context_lines": 2 }, "simple"]]);
    for text in [
        "grep ARGS: context_lines=2, pattern=*.c to find them",
        "grep ARGS: context_lines=2, pattern=*.c and then I stop",
        "grep ARGS: pattern=*.c, context_lines=2 to find them",
        "grep ARGS: pattern=*.c, context_lines=2.",
    ] {
        assert_eq!(line(text), grep, "{text}");
    }
    for text in [
        "tree ARGS: path=\"a b\" in deep=2",
        "tree ARGS: path=\"a b\", \"c\"",
        "tree ARGS: path=/a in the folder",
        "tree ARGS: path=a) to read it",
        "tree ARGS: path=here it is. Then I stop.",
        "tree ARGS: depth=2 levels",
    ] {
        assert_eq!(line(text), json!([]), "{text}");
        assert_eq!(missed(&format!("TOOL: {text}")), ["tree Unreadable"], "{text}");
    }
    let text = "use file_tools.tree with the tool: path=hammer";
    assert_eq!(read(text), json!([]));
    let args = json!({ "file_path": "a", "content": "use the tool: hammer" });
    check("TOOL: write_file ARGS: file_path=a, content=use the tool: hammer", WRITE, args, Simple);
}
