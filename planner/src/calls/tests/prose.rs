//! What prose asks for, and what it only speaks of.

use serde_json::json;

use super::{CallFormat::*, check, check_none, read};

#[test]
fn what_is_told_not_to_be_done_is_no_call() {
    for text in [
        "Do not run system_tools.bash(command='rm -rf .')",
        "Never call system_tools.bash(command='rm -rf .').",
        "Don't run `system_tools.bash(command='rm -rf .')`",
        "Don’t run `system_tools.bash(command='rm -rf .')`",
        "You shouldn't ever run system_tools.bash(command='rm -rf .')",
        "I will not call file_tools.glob(pattern='*') because",
        "I would not run file_tools.tree() here.",
        "Do not run file_tools.glob(pattern='a') or file_tools.glob(pattern='b').",
        "do not use file_tools.glob with pattern=*",
        "do NOT, under any circumstances, use system_tools.bash with command='rm -rf .'",
        "do not ever use file_tools.glob with pattern=*",
        "do not under any circumstances use file_tools.glob with pattern=*",
        "Under no circumstances use file_tools.glob with pattern=*",
        "Refrain from using file_tools.glob with pattern=*",
        "It is forbidden to use file_tools.glob with pattern=*",
        "It is not allowed to use file_tools.glob with pattern=*",
        "Please avoid to use file_tools.glob with pattern=*",
        "No need to use file_tools.glob with pattern=*",
        "There's no reason to call file_tools.tree()",
        "without calling file_tools.tree() I know it",
        "I answer instead of calling file_tools.tree()",
        "Rather than file_tools.tree(), I just answer.",
        "I am unable to call file_tools.tree()",
        "I cannot and must not\nrun system_tools.bash(command='rm -rf .')",
        "Do not run\nsystem_tools.bash(command='rm -rf .')",
        "Never do this:\n```\nsystem_tools.bash(command='rm -rf .')\n```",
        "Never do these:\n- Run system_tools.bash(command='a')\n- Run system_tools.bash(command='b')",
        "Never do these:\n\n1. system_tools.bash(command='a')\n2. system_tools.bash(command='b')",
        "Running system_tools.bash(command='rm -rf .') is forbidden.",
        "system_tools.bash(command='rm -rf .') must not be run",
        "use file_tools.glob with pattern=* is not allowed",
        "stop using file_tools.glob with pattern=*",
    ] {
        check_none(text);
    }
}

#[test]
fn what_is_told_is_no_call() {
    for text in [
        "I called file_tools.glob(pattern='*.py') already.",
        "I ran `file_tools.tree()` and saw nothing.",
        "The function file_tools.tree() lists files.",
        "The tool file_tools.glob(pattern='*') is what I like.",
        "file_tools.tree() lists files.",
        "`file_tools.glob(pattern='*.py')` returned nothing.",
    ] {
        check_none(text);
    }
}

#[test]
fn what_is_asked_for_is_a_call_whatever_was_said_before() {
    for text in [
        "I do not know. file_tools.glob(pattern='*.py')",
        "I don't know the files, so I call file_tools.glob(pattern='*.py')",
        "It is not here, I'll call file_tools.glob(pattern='*.py') to look.",
        "It was not found, calling file_tools.glob(pattern='*.py')",
        "If it is not there, call file_tools.glob(pattern='*.py')",
        "I could not find it; file_tools.glob(pattern='*.py') may help.",
        "I do not have the list\n\nfile_tools.glob(pattern='*.py')",
        "I do not have the list\nfile_tools.glob(pattern='*.py')",
        "I do not have the list\nLet me call file_tools.glob(pattern='*.py')",
        "Without further ado, file_tools.glob(pattern='*.py')",
        "I can not only guess but call file_tools.glob(pattern='*.py')",
        "There is no file. I call file_tools.glob(pattern='*.py').",
        "I'll call the function file_tools.glob(pattern='*.py') now.",
        "Calling file_tools.glob(pattern='*.py') returns what I need.",
        "Don't worry! `file_tools.glob(pattern='*.py')`",
        "我不知道。file_tools.glob(pattern='*.py')",
    ] {
        check(text, "file_tools.glob", json!({ "pattern": "*.py" }), FunctionCall);
    }
    check(
        "I do not guess but use file_tools.glob with pattern=*.py",
        "file_tools.glob",
        json!({ "pattern": "*.py" }),
        NaturalLanguage,
    );
    let text = "Do not run file_tools.tree(). Run file_tools.glob(pattern='a').";
    assert_eq!(read(text), json!([["file_tools.glob", { "pattern": "a" }, "function_call"]]));
    // Who writes a call in its own form means it.
    check("I do not guess: TOOL: tree ARGS: {}", "file_tools.tree", json!({}), Simple);
}
