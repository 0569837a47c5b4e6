use serde_json::{Value, json};

use super::file::STATES;

/// Returns the JSON Schema of test files, for editors.
pub(crate) fn test_file_schema() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "description": "The tests of a plan.",
        "required": ["plan", "tests"],
        "properties": {
            "plan": {
                "type": "string",
                "description": "A plan file, from the folder of this file, or the id or the name \
                    of a saved plan.",
            },
            "tests": {
                "type": "array", "minItems": 1, "items": test_schema(),
                "description": "The tests. Each executes the plan once.",
            },
        },
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The tests of a plan",
    })
}

fn test_schema() -> Value {
    let answer = json!({ "type": "boolean" });
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name"],
        "properties": {
            "name": { "type": "string", "description": "The name of the test." },
            "input": { "description": "The input of the plan. Default: that of `record`." },
            "record": {
                "type": "string", "pattern": "^exec_",
                "description": "An execution in the store. The test uses its input, outputs, \
                    signals and approvals unless it has its own.",
            },
            "tools": {
                "type": "object",
                "description": "The outputs of tools by name: an output, a list of outputs that are \
                    used in turn, or `{ error }` in the place of an output.",
            },
            "signals": {
                "type": "object",
                "description": "The payloads of signals by name: a payload, or a list of payloads \
                    that are used in turn.",
            },
            "approvals": {
                "type": "object",
                "description": "The answers to steps that wait for a person, by step or `step[3]`.",
                "additionalProperties": {
                    "anyOf": [answer, { "type": "array", "items": answer }],
                },
            },
            "expect": expect_schema(),
        },
    })
}

fn expect_schema() -> Value {
    let call = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["tool"],
        "properties": {
            "tool": { "type": "string", "description": "The name of the tool." },
            "parameters": { "description": "Parameters that the call must have." },
            "times": {
                "type": "integer", "minimum": 0, "description": "The exact number of such calls.",
            },
        },
    });
    let finding = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "code": { "type": "string" },
            "severity": { "enum": ["ERROR", "WARNING", "INFO"] },
            "stepId": { "type": "string" },
            "index": { "type": "integer", "minimum": 0, "description": "The item of a loop." },
            "message": { "type": "string", "description": "A part of the message." },
        },
    });
    let text = json!({ "type": "string" });
    json!({
        "type": "object",
        "additionalProperties": false,
        "description": "What must have happened. Parts that are not named are not compared.",
        "properties": {
            "state": { "enum": STATES, "description": "The state at the end." },
            "outputs": { "type": "object", "description": "Outputs by step, or parts of them." },
            "calls": {
                "type": "array", "items": { "anyOf": [text, call] },
                "description": "Calls of mocked tools, in any order.",
            },
            "order": {
                "type": "array", "items": text,
                "description": "Steps in the order in which they started.",
            },
            "findings": {
                "type": "array", "items": { "anyOf": [text, finding] },
                "description": "Findings about the execution, by code or by parts of them.",
            },
        },
    })
}
