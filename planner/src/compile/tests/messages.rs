//! The words, as people and models read them.

use expect_test::{Expect, expect};

use super::*;

fn check(tools: Value, expected: &Expect) {
    expected.assert_eq(&lines(&bad(json!({ "tools": tools }))));
}

#[test]
fn names() {
    check(
        json!([
            { "name": "createAutor" },
            { "name": "blog.createAuthor" },
            { "name": "sendMail" },
            { "name": "glob" },
            { "name": "weather" },
            {},
            { "name": "flow.noop", "toolName": "flow.noop" },
            { "name": "flow.noop", "id": "item" },
            { "name": "flow.noop", "id": "a b" },
            { "name": "flow.noop", "id": "x" },
            { "name": "flow.noop", "id": "x" },
        ]),
        &expect![[""]],
    );
}

#[test]
fn references() {
    check(
        json!([
            { "id": "author1", "name": "listAuthors" },
            { "id": "author2", "name": "listAuthors" },
            { "id": "b", "name": "flow.echo", "dependsOn": ["author3", "listAuthors", "x", 5], "parameters": {
                "a": "{{autor1._id}} {{listAuthors[0]._id}}",
                "b": "{{demo.listAuthors.0}}",
                "c": "{{a + b}} {{}} {{b[x]}}",
                "d": "{{vars.x}} {{vars}} {{item}}",
            } },
        ]),
        &expect![[""]],
    );
}

#[test]
fn parameters() {
    check(
        json!([
            { "name": "createAuthor", "parameters": { "emial": "a@b.c", "age": "x", "kind": "dog", "address": {} } },
            { "name": "createAuthor", "parameters": { "name": "A", "email": "a@b.c", "zip": 5 } },
            { "name": "createAuthor", "parameters": [] },
            { "name": "flow.echo", "parameters": "five" },
        ]),
        &expect![[""]],
    );
}

#[test]
fn policies_and_mappings() {
    check(
        json!([
            { "name": "flow.noop", "timeoutMs": 0, "retry": { "maxAttempts": 5_000, "multiplier": 1e9 } },
            { "name": "flow.noop", "onError": "contine", "outputMapping": { "a b": "x", "c": "d e", "f": 5 } },
            { "name": "flow.noop", "onError": "explode" },
        ]),
        &expect![[""]],
    );
}

#[test]
fn cycles_and_order() {
    let mut draft = chain(&[("a", &["b"]), ("b", &["a"])]);
    draft["executionOrder"] = json!(["a", "c"]);
    expect![[""]].assert_eq(&lines(&bad(draft)));
    let mut draft = chain(&[("a", &["b"]), ("b", &[])]);
    draft["executionOrder"] = json!(["a", "b"]);
    expect![[""]].assert_eq(&lines(good(draft).diagnostics()));
    let mut draft = chain(&[("a", &[]), ("b", &[])]);
    draft["executionOrder"] = json!(["a", "flow.echo", "a"]);
    expect![[""]].assert_eq(&lines(good(draft).diagnostics()));
}

#[test]
fn outputs() {
    let plan = good(json!({ "tools": [
        { "name": "createAuthor", "parameters": { "name": "A", "email": "a@b.c" } },
        { "name": "flow.echo", "parameters": { "a": "{{createAuthor.id}}", "b": "{{createAuthor._id.x}}" } },
    ] }));
    expect![[""]].assert_eq(&lines(plan.diagnostics()));
}
