use shared::limits;

use super::{parse_and_count_reads, tools};
use crate::calls::{CatalogNames, LimitExceeded, parse_tool_calls};

/// Maximum number of reads of a byte, on average.
const MAX_READS_PER_BYTE: usize = 12;

fn check_only_call(name: &str, text: &str) {
    let (_, steps) = parse_and_count_reads(text);
    let maximum = MAX_READS_PER_BYTE * text.len() + 1_000;
    assert!(steps <= maximum, "{name}: {steps} steps for {} bytes", text.len());
}

const HOSTILE_PARTS: &[&str] = &[
    "{",
    "[",
    "}",
    "\"",
    "'",
    "\\",
    "{\"",
    "{'",
    "{\"a\":",
    "{a:",
    "{a:\"",
    "{a:b{",
    "{a:b(",
    "{a:'\"",
    "{\"a\":[",
    "{\"a\":\"\\\"",
    "{a:\"\"\"",
    "{/*",
    "{//",
    "{a:/*",
    "{'{\"",
    "{\"{'",
    "{a:b,",
    "{\"tool\":",
    "{\"tool\":\"tree\",",
    "{\"tool\":\"tree\",\"args\":{",
    "{\"tool\":\"x\",\"args\":{\n",
    "{\"tool\":\"tree\",\"args\":{\"a\":\"\n",
    "<",
    "<tool_call>",
    "<tool_call><args>",
    "<tool_call>{",
    "<tool_call><tool>tree</tool>",
    "<tool_call><tool>x</tool><args>",
    "<tool_call><args>{&",
    "</tool_call>",
    "<tool_call><args><a>",
    "<function=tree><parameter=a>",
    "<invoke name=\"tree\">",
    "<![CDATA[",
    "<a ",
    "<tool_call><args><![CDATA[",
    "<tool_call></tool_call>",
    "<think>",
    "&",
    "&amp;",
    "TOOL:",
    "TOOL: ",
    "TOOL: tree ",
    "TOOL: tree ARGS:",
    "TOOL: tree ARGS: {",
    "TOOL: tree ARGS: a=",
    "TOOL: x ARGS: {a:",
    "TOOL: tree ARGS: a=b ",
    "tool:tool",
    "tree(",
    "tree(a=",
    "tree(a=\"",
    "tree(a='\"",
    "tree([",
    "tree({a:",
    "glob('a', ",
    "tree(tree(",
    "tree(a=b(",
    "tree(\n",
    "tree(#",
    "use ",
    "use tree ",
    "use tree with ",
    "use tree with a=",
    "use tree with a=b ",
    "use tree with a=\"",
    "use tree with {",
    "use tree with {a:",
    "use glob with pattern=b and ",
    "not use ",
    "a",
    ".",
    "-",
    " ",
    "\n",
    "\n\n",
    "`",
    "*",
    "```",
    "/",
    "//",
    "/*",
    "*/",
    "é",
    "Tool execution successful:",
    "Tool execution failed:\n\n",
    "Tool execution failed:\nPlease provide a",
    "r\"",
    "{r'",
    "{a:r\"\\",
    "and a=",
    "a=b, ",
    "use tree with a:",
    "{\"function\":{\"name\":\"tree\",",
    "TOOL: tree TOOL INPUT:",
    "TOOL: tree\n",
    "TOOL: tree\nARGS:\n",
    "TOOL: tree ARGS:\npath: a\n",
    "a: TOOL: tree\n",
    "- TOOL: tree\n- ",
    "args args ",
    "tree()",
    "tree() with ",
    "tree()\n- ",
    "not tree() ",
    "do not, ",
    "</think>",
    "<think></think>",
    "<tool_call>tree<arg_key>",
    "<tool_call>tree<arg_key>a</arg_key><arg_value>",
    "<invoke name=\"tree\" a=\"",
    "<args a=\"b\" ",
    "{\"tool\":\"tree\",\"a\":{},",
    "use tree with path=3 x ",
    "use tree with path=my x: ",
    "use tree with path=/a, b ",
    "use tree with \u{201c}",
    "path=3 x, y and ",
    "and the (path=",
    "and path: ",
    "TOOL: tree ARGS: path=\"a\" x ",
    "TOOL: tree ARGS: path=a b, \"c ",
    "$ ",
    "\u{201c}",
];

const HOSTILE_TEXTS: [&str; 12] = [
    "{",
    "[",
    "\"",
    "{\"a\":",
    "{'{\"",
    "{/*",
    "<tool_call>",
    "<tool_call><args>{&",
    "TOOL:",
    "tree(tree(",
    "{\"tool\":\"tree\",\"args\":{\"a\":\"\n",
    "use tree with a=b ",
];

#[test]
fn a_hostile_megabyte_takes_linear_time() {
    for part in HOSTILE_TEXTS {
        check_only_call(part, &part.repeat((1 << 20) / part.len()));
    }
}

#[test]
fn hostile_repetitions_take_linear_time() {
    for part in HOSTILE_PARTS {
        check_only_call(part, &part.repeat((1 << 15) / part.len()));
    }
}

#[test]
fn hostile_halves_of_calls_take_linear_time() {
    for part in HOSTILE_PARTS {
        let first = part.repeat((1 << 11) / part.len());
        for second in ["\"", "}", "]", ")", "'", "\n", "</args>", "</tool_call>", "]]>", "*/"] {
            let text = format!("{first}{}", second.repeat((1 << 11) / second.len()));
            check_only_call(&format!("{part} and {second}"), &text);
        }
    }
}

#[test]
fn a_hostile_mixture_takes_linear_time() {
    let parts = [
        "{",
        "\"",
        "'",
        "a:",
        "\\",
        "tree(",
        "<tool_call>",
        "</tool_call>",
        "TOOL: tree ARGS:",
        "\n",
        "use tree with a=",
        "<args>",
        "/*",
        ",",
    ];
    for a in parts {
        for b in parts {
            for c in parts {
                let part = format!("{a}{b}{c}");
                check_only_call(&part, &part.repeat((1 << 11) / part.len()));
            }
        }
    }
}

#[test]
fn a_call_with_a_long_argument_is_parsed() {
    let content = "fn main() { \"hi\" }\\n".repeat(1 << 15).replace('"', "\\\"");
    let text = format!("{{\"tool\": \"write_file\", \"args\": {{\"content\": \"{content}\"}}}}");
    let (calls, steps) = parse_and_count_reads(&text);
    assert_eq!(calls.expect("one call").len(), 1);
    assert!(steps <= 4 * text.len(), "{steps} steps for {} bytes", text.len());
}

#[test]
fn too_long_replies_and_too_many_calls_are_rejected() {
    let names = CatalogNames::new(tools::catalog());
    let parse = |text: &str| parse_tool_calls(text, &|name| names.find(name));
    let text = "tree()\n".repeat(limits::REPLY_CALLS);
    assert_eq!(parse(&text).map(|calls| calls.len()), Ok(limits::REPLY_CALLS));
    assert_eq!(parse(&format!("{text}tree()")), Err(LimitExceeded::Calls));
    let long = " ".repeat(limits::REPLY_BYTES + 1);
    assert_eq!(parse(&long), Err(LimitExceeded::Text { bytes: long.len() }));
}
