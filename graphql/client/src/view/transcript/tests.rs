use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

#[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
fn check(kind: &str, content: Value, expected: Expect) {
    let text = draw_entry(kind, &content, Paint::new(false));
    let indented = text.lines().map(|line| line.strip_prefix("  ").expect("a little to the right"));
    expected.assert_eq(&indented.collect::<Vec<_>>().join("\n"));
}

#[test]
fn candidates_are_listed_with_scores_and_reasons() {
    let tool = |n: usize, kept: bool, reason: &str| {
        json!({ "tool": format!("s.t{n}"), "score": 0.5 / f64::from(u32::try_from(n).unwrap()),
            "kept": kept, "why": reason })
    };
    let mut all = vec![tool(1, true, "number 1 of the 2 that fit best"), tool(2, true, "number 2")];
    all.extend((3..15).map(|n| tool(n, false, "2 tools fit better")));
    all.push(json!({ "tool": "s.last", "score": null, "kept": false, "why": "nothing fits" }));
    check(
        "selection",
        json!({ "by": "HYBRID", "maxTools": 2, "candidates": all, "more": 3,
            "withoutMeaning": "no model" }),
        expect![[r"
              2 of 18 tools shown to the planner, by hybrid
              ✓ 0.500  s.t1  number 1 of the 2 that fit best
              ✓ 0.250  s.t2  number 2
              ○ 0.167  s.t3  2 tools fit better
              ○ 0.125  s.t4  2 tools fit better
              ○ 0.100  s.t5  2 tools fit better
              ○ 0.083  s.t6  2 tools fit better
              ○ 0.071  s.t7  2 tools fit better
              ○ 0.062  s.t8  2 tools fit better
              ○ 0.056  s.t9  2 tools fit better
              ○ 0.050  s.t10  2 tools fit better
              ○ 0.045  s.t11  2 tools fit better
              ○ 0.042  s.t12  2 tools fit better
                … and 6 more that were dropped
              warning: by words alone: no model"]],
    );
}

#[test]
fn planner_notes_are_drawn_as_sentences() {
    check(
        "clauses",
        json!(["Create author Alice", "create blog"]),
        expect![[r"
          1  Create author Alice
          2  create blog"]],
    );
    check(
        "candidates",
        json!([{ "clause": "Create author", "tools": [{ "tool": "createAuthor", "score": 3.5 }] }]),
        expect![[r"
              Create author
                3.500  createAuthor"]],
    );
    check("candidates", json!(7), expect!["7"]);
    check(
        "assumptions",
        json!([{ "path": "tools[0].parameters.title", "value": "x", "clause": "create x" }]),
        expect![[r#"tools[0].parameters.title = "x"  from `create x`"#]],
    );
    check(
        "draft",
        json!({ "tools": [
            { "name": "createAuthor", "parameters": { "name": "Alice" } },
            { "id": "b", "name": "flow.echo", "parameters": {} },
        ] }),
        expect![[r#"
              createAuthor  {"name":"Alice"}
              b: flow.echo  {}"#]],
    );
    check(
        "cache",
        json!({ "requestId": "req_1_aaaaaaaaa" }),
        expect!["taken from req_1_aaaaaaaaa: the planner was not asked"],
    );
    check(
        "plan",
        json!({ "planId": "plan_1_aaaaaaaaa", "version": 2 }),
        expect!["plan_1_aaaaaaaaa, version 2"],
    );
    check(
        "error",
        json!({ "code": "NO_PLAN_FOUND", "message": "no tool fits" }),
        expect!["error[NO_PLAN_FOUND]: no tool fits"],
    );
    check(
        "something new",
        json!({ "a": [1] }),
        expect![[r#"
          {
            "a": [
              1
            ]
          }"#]],
    );
}

/// Regression: the JSON had one `\` too many before each control character.
#[test]
fn control_characters_in_json_are_escaped_once() {
    let draw_plain = |kind: &str, content: Value| {
        let painted = Paint::new(true);
        let twice = painted.to_terminal(&draw_entry(kind, &content, painted));
        assert!(!twice.contains(['\u{202e}', '\u{9b}', '\u{fdd3}']), "{twice:?}");
        draw_entry(kind, &content, Paint::new(false))
    };
    let evil = "\u{202e}evil\u{9b}2J\u{fdd3}";
    let escaped = r"\u{202e}evil\u{9b}2J\u{fdd3}";
    let step = json!({ "id": evil, "name": evil, "parameters": { evil: evil } });
    assert_eq!(
        draw_plain("draft", json!({ "tools": [step] })),
        format!("  {escaped}  {{\"{escaped}\":\"{escaped}\"}}")
    );
    let guess = json!([{ "path": evil, "clause": evil, "value": evil }]);
    assert_eq!(
        draw_plain("assumptions", guess),
        format!("  {escaped} = \"{escaped}\"  from `{escaped}`")
    );
    assert_eq!(draw_plain("anything", json!(evil)), format!("  \"{escaped}\""));
    let reply = json!({ "model": evil, "text": evil, "more": [evil], "messages": [{ "role": evil, "content": evil }] });
    for line in draw_plain("reply", reply).lines() {
        assert!(!line.contains(r"\\u") && !line.contains(evil), "{line}");
    }
}

#[test]
fn model_exchanges_begin_with_tokens_and_time() {
    check(
        "prompt",
        json!({ "round": 1, "tokens": 812, "ms": 4.0, "model": "m", "messages": [
            { "role": "system", "content": "You plan.\nUse tools." },
            { "role": "user", "content": "Create author" },
        ] }),
        expect![[r"
              round 1, m, 812 tokens, 4.0 ms
              system:
              You plan.
              Use tools.
              user: Create author"]],
    );
    check(
        "reply",
        json!({ "round": 1, "tokens": { "in": 812, "out": 40 }, "ms": 1300.0, "cost": 0.002,
            "text": "{\"tools\": []}" }),
        expect![[r#"
              round 1, tokens: 812 in, 40 out, cost 0.002, 1.3 s
              text: {"tools": []}"#]],
    );
    check(
        "repair",
        json!({ "round": 2, "tokens": 30, "ms": 900, "diagnostics": [{ "severity": "ERROR",
            "code": "plan.empty", "path": "tools", "message": "the plan has no steps",
            "help": "write one" }] }),
        expect![[r"
              round 2, 30 tokens, 900 ms
              error[plan.empty]: the plan has no steps
                --> tools
                 = help: write one"]],
    );
    check(
        "usage",
        json!({ "rounds": 2, "tokens": { "input": 30, "output": 4 }, "ms": 900 }),
        expect![[r"
              tokens: 30 input, 4 output, 900 ms
              rounds: 2"]],
    );
    let long = "line\n".repeat(100);
    let text = draw_entry("reply", &json!({ "text": long }), Paint::new(false));
    assert!(text.ends_with("… 60 more lines; `--json` has all of it"), "{text}");
}
