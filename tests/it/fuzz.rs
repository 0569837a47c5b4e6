//! Fuzz targets over a kept corpus: each target checks a property of any bytes, not only that
//! nothing panics.
//!
//! The test of a target checks its corpus, and then inputs that a seeded mutator makes of the
//! corpus. So a run is deterministic, needs no other compiler, and ends after a fixed number of
//! inputs. `tests/full` runs the same targets with more inputs and another seed. An input that
//! fails goes into the corpus, so that it is checked for good.

mod mutate;
mod targets;

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
};

use self::{
    mutate::Mutator,
    targets::{
        check_event_decoding, check_expressions, check_mcp_frames, check_plan_json,
        check_plan_yaml, check_templates, check_tool_calls,
    },
};

/// Number of inputs of each target, besides the corpus.
const DEFAULT_INPUTS: u64 = 1_000;
const DEFAULT_SEED: u64 = 20_261_128;

fn fuzz(name: &str, tokens: &[&str], check: fn(&[u8])) {
    let corpus = read_corpus(name);
    assert!(!corpus.is_empty(), "the corpus `{name}` is empty");
    for input in &corpus {
        check_input(name, input, check);
    }
    let mut mutator = Mutator::new(read_number("FABER_FUZZ_SEED", DEFAULT_SEED), &corpus, tokens);
    for _ in 0..read_number("FABER_FUZZ_INPUTS", DEFAULT_INPUTS) {
        check_input(name, &mutator.next_input(), check);
    }
}

/// Shows an input that fails, so that it can be added to the corpus.
fn check_input(name: &str, input: &[u8], check: fn(&[u8])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        #[expect(clippy::print_stderr, reason = "a person copies the input")]
        let () = eprintln!(
            "the target `{name}` fails with this input; add it to tests/fuzz/corpus/{name}:\n{}",
            input.escape_ascii()
        );
        resume_unwind(panic);
    }
}

/// Reads the files of a corpus in the order of their names, so that each run is the same.
fn read_corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|err| panic!("{}: {err}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn read_number(variable: &str, default: u64) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "`tests/full` and people set these variables")]
    let text = env::var(variable);
    text.ok().map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn any_value_is_a_template_or_has_errors() {
    let tokens = ["{{", "}}", "{{{{", "a", "flow.echo", "vars", "input", "[0]", "[\"", "\"]", ".x"];
    fuzz("templates", &tokens, check_templates);
}

#[test]
fn any_text_is_an_expression_within_its_limits_or_has_an_error() {
    let tokens = [
        "a",
        "steps[\"flow.echo\"]",
        "vars.x",
        ".ok",
        " && ",
        " || ",
        "==",
        "!",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".map(i, i)",
        ".filter(i, true)",
        ".matches(\"^a+$\")",
        "size(",
        "sum(",
        "split(",
        "1",
        "-9223372036854775808",
        "1e308",
        "\"x\"",
        " ? ",
        " : ",
        " in ",
        "+",
        "*",
        "%",
        "null",
    ];
    fuzz("expressions", &tokens, check_expressions);
}

#[test]
fn any_json_is_a_plan_that_is_written_unchanged_or_has_an_error() {
    let tokens = [
        "\"stepId\"",
        "\"dependsOn\"",
        "\"when\"",
        "\"forEach\"",
        "\"policy\"",
        "\"compensate\"",
        "\"plan\"",
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "null",
        "{{a}}",
        "{{a.x}}",
        "1e400",
        "\\u0000",
    ];
    fuzz("plan_json", &tokens, check_plan_json);
}

#[test]
fn any_yaml_is_a_value_that_is_written_unchanged_or_has_an_error() {
    let tokens = [
        "- ", ": ", "\n  ", "\n", "&a ", "*a", "<<: ", "|\n", ">-\n", "\"", "'", "[", "]", "{",
        "}", "# ", "---\n", "...", "!!str ", "~", "null", "true", "0x1F", "1e3", ".inf", "? ",
        "\t", "%",
    ];
    fuzz("plan_yaml", &tokens, check_plan_yaml);
}

#[test]
fn any_reply_has_calls_of_known_tools_within_the_limits() {
    let tokens = [
        "shop.order",
        "<tool_call>",
        "</tool_call>",
        "TOOL: ",
        " ARGS: ",
        "{\"tool\":\"",
        "\"args\":",
        "```json\n",
        "```",
        "(",
        ")",
        "=",
        ",",
        "use ",
        " with ",
        "name",
        "\"",
        "'",
        "{",
        "}",
        "[",
        "]",
        "\\",
        "\n",
        "tool_calls",
        "function",
        "arguments",
        "tool_use",
        "input",
    ];
    fuzz("tool_calls", &tokens, check_tool_calls);
}

#[test]
fn any_text_is_events_that_are_written_unchanged_or_has_an_error() {
    let tokens = [
        "\"at\":",
        "\"type\":",
        "\"by\":",
        "\"step\":",
        "step_started",
        "created",
        "finished",
        "\"output\":",
        "null",
        "{",
        "}",
        "[",
        "]",
        ",",
        "-1",
        "9223372036854775807",
        "1e400",
    ];
    fuzz("events", &tokens, check_event_decoding);
}

#[test]
fn any_frame_of_a_server_is_a_message_that_stays_the_same_or_is_ignored() {
    let tokens = [
        "\"jsonrpc\":\"2.0\"",
        "\"id\":",
        "\"result\":",
        "\"error\":",
        "\"method\":",
        "\"params\":",
        "\"_meta\":",
        "\"tools\":",
        "taskSupport",
        "required",
        "progressToken",
        "{",
        "}",
        "[",
        "]",
        ",",
        "1",
        "\"x\"",
        "null",
        "notifications/progress",
        "-32603",
        "structuredContent",
    ];
    fuzz("mcp_frames", &tokens, check_mcp_frames);
}
