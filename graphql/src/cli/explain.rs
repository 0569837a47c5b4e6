//! How a plan came to be, for people: each entry of a transcript as what it means.
//!
//! What nobody knows how to tell is shown as the JSON that it is; `--json` has all of it.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::{
    paint::Paint,
    plain,
    planning::indented,
    progress::duration,
    render::{self, clip, list},
};

/// The most candidates that are told of those kept, and of those dropped.
const CANDIDATES: usize = 10;
/// The most lines of a text or of JSON.
const LINES: usize = 40;
/// The most characters of a line.
const WIDTH: usize = 400;
/// The fields of an exchange with a model that its first line tells.
const MEASURES: [&str; 7] = ["round", "provider", "model", "attempt", "tokens", "cost", "ms"];

/// Tells an entry of a transcript, a little to the right.
pub(super) fn entry(kind: &str, content: &Value, paint: Paint) -> String {
    let shown = &plain::value(content);
    let told = match kind {
        "selection" => selection(shown, paint),
        "clauses" => clauses(shown),
        "candidates" => candidates(shown, paint),
        // JSON is made plain when it is written: a sign in place of a letter has a `\` that JSON doubles.
        "assumptions" => assumptions(content, paint),
        "draft" => draft(content, paint),
        "cache" => cached(shown),
        "plan" => plan(shown),
        "error" => error(shown, paint),
        "diagnostics" => Some(render::diagnostics(shown, "", paint)),
        "prompt" | "reply" | "repair" | "usage" => exchange(content, paint),
        _ => None,
    };
    let told = told.filter(|it| !it.is_empty());
    let told = told.unwrap_or_else(|| cut(&plain::block(&indented(content, 0)), paint));
    let lines: Vec<String> = told.lines().map(|it| format!("  {it}")).collect();
    lines.join("\n")
}

/// Tells which tools the planner was shown, and why these.
fn selection(content: &Value, paint: Paint) -> Option<String> {
    let all = content["candidates"].as_array()?;
    let (kept, dropped): (Vec<_>, Vec<_>) = all.iter().partition(|it| it["kept"] == true);
    let more = content["more"].as_u64().unwrap_or(0);
    let by = content["by"].as_str().unwrap_or_default().to_lowercase();
    let total = all.len() as u64 + more;
    let mut told = format!("{} of {total} tools shown to the planner, by {by}", kept.len());
    for tool in kept.iter().take(CANDIDATES) {
        let _ = write!(told, "\n{}", candidate(&paint.green("✓"), tool, paint));
    }
    if kept.len() > CANDIDATES {
        let _ = write!(told, "\n  … and {} more", kept.len() - CANDIDATES);
    }
    for tool in dropped.iter().take(CANDIDATES) {
        let _ = write!(told, "\n{}", candidate(&paint.dim("○"), tool, paint));
    }
    let unsaid = (dropped.len() as u64 + more).saturating_sub(CANDIDATES as u64);
    if unsaid > 0 {
        let _ = write!(told, "\n  … and {unsaid} more that were dropped");
    }
    if let Some(why) = content["withoutMeaning"].as_str() {
        let _ = write!(told, "\n{} by words alone: {why}", paint.yellow("warning:"));
    }
    Some(told)
}

fn candidate(mark: &str, tool: &Value, paint: Paint) -> String {
    let name = tool["tool"].as_str().unwrap_or_default();
    let score = tool["score"].as_f64().map_or_else(|| "    –".to_owned(), |it| format!("{it:.3}"));
    let why = paint.dim(tool["why"].as_str().unwrap_or_default());
    format!("{mark} {score}  {name}  {why}")
}

fn clauses(content: &Value) -> Option<String> {
    let all = content.as_array()?;
    let lines = all.iter().enumerate().map(|(at, it)| {
        let text = it.as_str().map_or_else(|| it.to_string(), str::to_owned);
        format!("{}  {}", at + 1, clip(&text, WIDTH))
    });
    Some(lines.collect::<Vec<_>>().join("\n"))
}

/// Tells which tools each clause may have meant.
fn candidates(content: &Value, paint: Paint) -> Option<String> {
    let mut told = Vec::new();
    for of in content.as_array()? {
        told.push(clip(of["clause"].as_str()?, WIDTH));
        for tool in list(&of["tools"]) {
            let name = tool["tool"].as_str().unwrap_or_default();
            let score = tool["score"].as_f64().map(|it| format!("{it:.3}")).unwrap_or_default();
            told.push(format!("  {}  {name}", paint.dim(score)));
        }
    }
    Some(told.join("\n"))
}

fn assumptions(content: &Value, paint: Paint) -> Option<String> {
    let lines = content.as_array()?.iter().map(|it| {
        let (path, clause) = (plain::line(it["path"].as_str()?), plain::said(&it["clause"]));
        let value = in_line(&it["value"]);
        Some(format!("{path} = {value}  {}", paint.dim(format!("from `{clause}`"))))
    });
    Some(lines.collect::<Option<Vec<_>>>()?.join("\n"))
}

/// Writes a value as one line of JSON.
fn in_line(value: &Value) -> String {
    clip(&plain::line(&value.to_string()), WIDTH)
}

/// Tells the steps of a draft, one a line.
fn draft(content: &Value, paint: Paint) -> Option<String> {
    let lines = content["tools"].as_array()?.iter().map(|step| {
        let text = |key: &str| step[key].as_str().map(plain::line);
        let tool = text("name").or_else(|| text("toolName")).or_else(|| text("plan"));
        let tool = tool.unwrap_or_else(|| "a plan".to_owned());
        let named = text("id").filter(|it| *it != tool);
        let id = named.map(|it| format!("{it}: ")).unwrap_or_default();
        let given = paint.dim(in_line(&step["parameters"]));
        format!("{id}{tool}  {given}")
    });
    Some(cut(&lines.collect::<Vec<_>>().join("\n"), paint))
}

fn cached(content: &Value) -> Option<String> {
    let of = content["requestId"].as_str()?;
    Some(format!("taken from {of}: the planner was not asked"))
}

fn plan(content: &Value) -> Option<String> {
    Some(format!("{}, version {}", content["planId"].as_str()?, content["version"]))
}

fn error(content: &Value, paint: Paint) -> Option<String> {
    let (code, message) = (content["code"].as_str()?, content["message"].as_str()?);
    Some(format!("{}: {message}", paint.red(format!("error[{code}]"))))
}

/// Tells what a model was told, or said: what it cost, then every text of it.
fn exchange(content: &Value, paint: Paint) -> Option<String> {
    let fields = content.as_object()?;
    let mut told = vec![plain::line(&measures(fields))];
    for (key, value) in fields.iter().filter(|(key, _)| !MEASURES.contains(&key.as_str())) {
        match (key.as_str(), value) {
            (_, Value::Null) => (),
            ("diagnostics", Value::Array(_)) => {
                told.push(render::diagnostics(&plain::value(value), "", paint));
            }
            ("messages", Value::Array(all)) => {
                for message in all {
                    let who = message["role"].as_str().unwrap_or(key);
                    told.push(part(who, &message["content"], paint));
                }
            }
            _ => told.push(part(key, value, paint)),
        }
    }
    told.retain(|it| !it.is_empty());
    Some(told.join("\n"))
}

/// Writes the measures of an exchange as one line: `round 2, gpt-x, 812 tokens, 1.3 s`.
fn measures(fields: &Map<String, Value>) -> String {
    let told = MEASURES.iter().filter_map(|key| {
        let value = fields.get(*key).filter(|it| !it.is_null())?;
        Some(match (*key, value) {
            ("ms", it) => it.as_f64().map_or_else(|| it.to_string(), duration),
            ("tokens", Value::Object(counts)) => {
                let counts = counts.iter().map(|(name, n)| format!("{n} {name}"));
                format!("tokens: {}", counts.collect::<Vec<_>>().join(", "))
            }
            ("tokens", it) => format!("{it} tokens"),
            ("model" | "provider", Value::String(name)) => name.clone(),
            (key, Value::String(text)) => format!("{key} {text}"),
            (key, it) => format!("{key} {it}"),
        })
    });
    told.collect::<Vec<_>>().join(", ")
}

fn part(name: &str, value: &Value, paint: Paint) -> String {
    let name = paint.dim(format!("{}:", plain::line(name)));
    match value {
        Value::String(text) if text.lines().count() <= 1 => {
            format!("{name} {}", clip(&plain::block(text), WIDTH))
        }
        Value::String(text) => format!("{name}\n{}", cut(&plain::block(text), paint)),
        Value::Array(_) | Value::Object(_) => {
            format!("{name}\n{}", cut(&plain::block(&indented(value, 0)), paint))
        }
        other => format!("{name} {other}"),
    }
}

/// Leaves the end of a long text out, and says so.
fn cut(text: &str, paint: Paint) -> String {
    let count = text.lines().count();
    let mut lines: Vec<String> = text.lines().take(LINES).map(|it| clip(it, WIDTH)).collect();
    if count > LINES {
        lines.push(paint.dim(format!("… {} more lines; `--json` has all of it", count - LINES)));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check(kind: &str, content: Value, expected: Expect) {
        let told = entry(kind, &content, Paint::new(false));
        let indented = told.lines().map(|it| it.strip_prefix("  ").expect("a little to the right"));
        expected.assert_eq(&indented.collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn candidates_are_told_with_their_scores_and_why() {
        let tool = |n: usize, kept: bool, why: &str| {
            json!({ "tool": format!("s.t{n}"), "score": 0.5 / f64::from(u32::try_from(n).unwrap()),
                "kept": kept, "why": why })
        };
        let mut all =
            vec![tool(1, true, "number 1 of the 2 that fit best"), tool(2, true, "number 2")];
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
    fn what_a_planner_noted_reads_like_sentences() {
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

    /// JSON had a `\` too many before each.
    #[test]
    fn what_would_steer_a_terminal_is_shown_once() {
        let told = |kind: &str, content: Value| {
            let painted = Paint::new(true);
            let twice = painted.drawn(&entry(kind, &content, painted));
            assert!(!twice.contains(['\u{202e}', '\u{9b}', '\u{fdd3}']), "{twice:?}");
            entry(kind, &content, Paint::new(false))
        };
        let evil = "\u{202e}evil\u{9b}2J\u{fdd3}";
        let shown = r"\u{202e}evil\u{9b}2J\u{fdd3}";
        let step = json!({ "id": evil, "name": evil, "parameters": { evil: evil } });
        assert_eq!(
            told("draft", json!({ "tools": [step] })),
            format!("  {shown}  {{\"{shown}\":\"{shown}\"}}")
        );
        let guess = json!([{ "path": evil, "clause": evil, "value": evil }]);
        assert_eq!(told("assumptions", guess), format!("  {shown} = \"{shown}\"  from `{shown}`"));
        assert_eq!(told("anything", json!(evil)), format!("  \"{shown}\""));
        let reply = json!({ "model": evil, "text": evil, "more": [evil], "messages": [{ "role": evil, "content": evil }] });
        for line in told("reply", reply).lines() {
            assert!(!line.contains(r"\\u") && !line.contains(evil), "{line}");
        }
    }

    #[test]
    fn exchanges_with_models_begin_with_what_they_cost() {
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
        let told = entry("reply", &json!({ "text": long }), Paint::new(false));
        assert!(told.ends_with("… 60 more lines; `--json` has all of it"), "{told}");
    }
}
