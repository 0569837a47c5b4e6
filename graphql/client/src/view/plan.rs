use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;
use shared::diagnostic::Diagnostic;

use super::{
    format::{clip_text, count_noun, json_line},
    paint::{self, Paint},
    plain,
};
use crate::{
    failure::Failure,
    types::{Plan, PlannedStep},
};

const MAX_STEPS: usize = 60;
const MAX_STEPS_IN_FULL: usize = 20;
const MAX_PARAMETER_CHARS: usize = 100;
const MAX_NAME_COLUMNS: usize = 40;
const MAX_DEPENDENCIES: usize = 8;

pub fn draw_plan(plan: &Plan, paint: Paint) -> String {
    let steps: BTreeMap<&str, &PlannedStep> =
        plan.tools.iter().map(|step| (&*step.step_id, step)).collect();
    let mut text = draw_head(plan, paint);
    let width =
        steps.keys().map(|name| paint::text_width(name)).max().unwrap_or(0).min(MAX_NAME_COLUMNS);
    let order = plan.layers.iter().enumerate().flat_map(|(layer, steps)| {
        steps.iter().enumerate().map(move |(place, id)| (layer, place, steps.len(), id))
    });
    for (layer, place, of, id) in order.clone().take(MAX_STEPS) {
        let number = if place == 0 { format!("{:>3}", layer + 1) } else { "   ".to_owned() };
        let branch = match (place, of) {
            (_, 1) => "─",
            (0, _) => "┬",
            (place, of) if place + 1 == of => "└",
            _ => "├",
        };
        if let Some(step) = steps.get(&**id) {
            let padding = " ".repeat(width.saturating_sub(paint::text_width(id)));
            let lead = paint.dim(format!("{number} {branch}"));
            let id = paint.cyan(id.to_string());
            let _ = write!(text, "\n{lead} {id}{padding}  {}", describe_step(step, paint));
        }
    }
    let left_out = order.count().saturating_sub(MAX_STEPS);
    if left_out > 0 {
        let _ = write!(text, "\n      … and {left_out} more steps");
    }
    text
}

/// Draws a plan that is about to be executed. For a long plan, only counts the steps, because the
/// live view shows them.
pub fn draw_short_plan(full_plan: &Plan, paint: Paint) -> String {
    let layers = full_plan.layers.iter().map(Vec::len);
    let (steps, widest) = (layers.clone().sum::<usize>(), layers.max().unwrap_or(0));
    if steps <= MAX_STEPS_IN_FULL {
        return draw_plan(full_plan, paint);
    }
    format!(
        "{}\n{steps} steps in {}, at most {widest} at once; to see all steps: faber export {}",
        draw_head(full_plan, paint),
        count_noun(full_plan.layers.len(), "layer"),
        full_plan.plan_id,
    )
}

fn draw_head(plan: &Plan, paint: Paint) -> String {
    let about = paint.dim(format!("version {}, {}", plan.version, plan.planner));
    format!("{}  {about}", paint.bold(plan.plan_id.to_string()))
}

fn describe_step(step: &PlannedStep, paint: Paint) -> String {
    let (id, tool) = (&*step.step_id, &*step.tool_name);
    let mut parts = Vec::new();
    if tool.rsplit('.').next() != Some(id) && tool != id {
        parts.push(plain::safe_line(tool));
    }
    parts.push(paint.dim(json_line(&step.parameters, MAX_PARAMETER_CHARS)));
    let needs: Vec<String> =
        step.depends_on.iter().take(MAX_DEPENDENCIES).map(ToString::to_string).collect();
    if !needs.is_empty() {
        parts.push(format!("{} {}", paint.green("←"), needs.join(", ")));
    }
    for (word, text) in [("if", &step.when), ("for each", &step.for_each), ("executes", &step.plan)]
    {
        if let Some(text) = text {
            parts.push(format!(
                "{} {}",
                paint.green(word),
                clip_text(&plain::safe_line(text), MAX_PARAMETER_CHARS)
            ));
        }
    }
    if let Some(undo) = &step.compensate {
        parts.push(format!("{} {}", paint.green("undone by"), undo.tool_name));
    }
    if step.requires_approval {
        parts.push(paint.yellow("needs approval"));
    }
    parts.join("  ")
}

/// Draws the query of a plan with marks around the words that the plan does not use. Returns `None`
/// if it uses all words.
pub fn draw_marked_query(plan: &Plan, paint: Paint) -> Option<String> {
    let unused = plan.diagnostics.iter().filter(|found| found.code == "plan.unplaced_words");
    let mut places: Vec<(usize, usize)> = Vec::new();
    for words in unused.filter_map(|found| found.message.split('`').nth(1)) {
        // Searches after the last marked words first, because the query can contain the same words
        // twice.
        let start = places.last().map_or(0, |(_, end)| *end);
        let found = plan.query.get(start..).and_then(|rest| rest.find(words));
        let found = found.map(|offset| start + offset).or_else(|| plan.query.find(words));
        places.extend(found.map(|start| (start, start + words.len())));
    }
    places.sort_unstable();
    let mut text = String::new();
    let mut end = 0;
    for (start, behind) in places.iter().filter(|(_, behind)| *behind > 0) {
        if let (Some(before), true) = (plan.query.get(end..*start), *start >= end) {
            let words = plain::safe_line(&plan.query[*start..*behind]);
            let _ =
                write!(text, "{}{}", plain::safe_line(before), paint.yellow(format!("»{words}«")));
            end = *behind;
        }
    }
    (end > 0).then(|| format!("in doubt: {text}{}", plain::safe_line(&plan.query[end..])))
}

pub fn draw_diagnostics(diagnostics: &[Diagnostic], file: &str, paint: Paint) -> String {
    let drawn: Vec<String> =
        diagnostics.iter().map(|found| draw_diagnostic(found, file, paint)).collect();
    drawn.join("\n")
}

fn draw_diagnostic(diagnostic: &Diagnostic, file: &str, paint: Paint) -> String {
    let is_error = diagnostic.is_error();
    let word = if is_error { "error" } else { "warning" };
    let head = format!("{word}[{}]", plain::safe_line(&diagnostic.code));
    let head = if is_error { paint.red(head) } else { paint.yellow(head) };
    let mut text = format!("{head}: {}", paint.bold(plain::safe_line(&diagnostic.message)));
    let (file, path) = (plain::safe_line(file), plain::safe_line(&diagnostic.path));
    let between = if file.is_empty() || path.is_empty() { "" } else { ": " };
    let place = format!("{file}{between}{path}");
    if !place.is_empty() {
        let _ = write!(text, "\n  {} {place}", paint.cyan("-->"));
    }
    if let Some(help) = &diagnostic.help {
        let _ = write!(text, "\n   {} help: {}", paint.cyan("="), plain::safe_line(help));
    }
    text
}

pub fn draw_failure(failure: &Failure, paint: Paint) -> String {
    let more = |key: &str| failure.extra_fields.get(key);
    let text = |key: &str| more(key).and_then(Value::as_str);
    let found: Vec<Diagnostic> = more("diagnostics")
        .and_then(|found| serde_json::from_value(found.clone()).ok())
        .unwrap_or_default();
    let mut drawn = draw_diagnostics(&found, text("file").unwrap_or_default(), paint);
    if !found.iter().any(Diagnostic::is_error) {
        let head = paint.red(format!("error[{}]", plain::safe_line(&failure.code)));
        let between = if drawn.is_empty() { "" } else { "\n" };
        let _ = write!(drawn, "{between}{head}: {}", plain::safe_line(&failure.message));
    }
    let nearest = more("nearest").and_then(Value::as_array).into_iter().flatten();
    let nearest: Vec<String> = nearest
        .filter_map(|name| name.as_str().map(plain::safe_line))
        .filter(|name| !failure.message.contains(&format!("`{name}`")))
        .collect();
    if !nearest.is_empty() {
        let _ = write!(drawn, "\n   {} nearest tools: {}", paint.cyan("="), nearest.join(", "));
    }
    if let Some(request) = text("requestId") {
        let hint =
            format!("to see how the planning went: faber debug {}", plain::safe_line(request));
        let _ = write!(drawn, "\n   {} {hint}", paint.cyan("="));
    }
    drawn
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    fn parse_plan(plan: Value) -> Plan {
        serde_json::from_value(plan).unwrap()
    }

    #[test]
    fn a_drawn_plan_shows_dependencies() {
        let plan = parse_plan(json!({
            "planId": "plan_1_aaaaaaaaa", "version": 1, "planner": "offline",
            "layers": [["createAuthor", "b"], ["createBlog"]],
            "tools": [
                { "stepId": "createAuthor", "toolName": "blog.createAuthor", "dependsOn": [],
                  "parameters": { "name": "Alice" } },
                { "stepId": "b", "toolName": "flow.echo", "dependsOn": [], "parameters": {} },
                { "stepId": "createBlog", "toolName": "blog.createBlog",
                  "parameters": { "authorId": "{{createAuthor._id}}" },
                  "dependsOn": ["createAuthor"] },
            ],
        }));
        expect![[r#"
            plan_1_aaaaaaaaa  version 1, offline
              1 ┬ createAuthor  {"name":"Alice"}
                └ b             flow.echo  {}
              2 ─ createBlog    {"authorId":"{{createAuthor._id}}"}  ← createAuthor"#]]
        .assert_eq(&super::draw_plan(&plan, Paint::new(false)));
        assert_eq!(
            draw_short_plan(&plan, Paint::new(false)),
            super::draw_plan(&plan, Paint::new(false))
        );
    }

    #[test]
    fn a_long_plan_shows_only_counts() {
        let layers = vec![vec!["a"; 30]; 3];
        let plan =
            parse_plan(json!({ "planId": "plan_1_aaaaaaaaa", "version": 2, "planner": "offline",
            "layers": layers, "tools": [] }));
        expect![[r"
            plan_1_aaaaaaaaa  version 2, offline
            90 steps in 3 layers, at most 30 at once; to see all steps: faber export plan_1_aaaaaaaaa"]]
        .assert_eq(&draw_short_plan(&plan, Paint::new(false)));
    }

    #[test]
    fn words_in_doubt_are_marked_in_the_query() {
        let marked = |query: &str, unused: &[&str]| {
            let diagnostics: Vec<Value> = unused
                .iter()
                .map(|words| json!({ "severity": "WARNING", "code": "plan.unplaced_words",
                    "path": "", "help": null, "message": format!("the plan does not use `{words}`") }))
                .collect();
            let plan = parse_plan(json!({ "query": query, "diagnostics": diagnostics }));
            draw_marked_query(&plan, Paint::new(false))
        };
        for (query, unused, expected) in [
            ("close it by phone", &["by phone"][..], Some("in doubt: close it »by phone«")),
            ("a b a", &["a", "a"], Some("in doubt: »a« b »a«")),
            ("a b", &["c"], None),
            ("a b", &[], None),
        ] {
            assert_eq!(marked(query, unused).as_deref(), expected, "{query}");
        }
    }

    #[test]
    fn a_failure_whose_diagnostics_are_warnings_shows_its_message() {
        let doubt = Diagnostic::warning("plan.guessed_value", "", "a guess");
        let failure = Failure::new("INVALID_PLAN", "in doubt").with("diagnostics", json!([doubt]));
        expect![[r"
            warning[plan.guessed_value]: a guess
            error[INVALID_PLAN]: in doubt"]]
        .assert_eq(&draw_failure(&failure, Paint::new(false)));
        let error = Diagnostic::error("plan.cycle", "", "a cycle");
        let failure = Failure::invalid_plan(&[error]);
        expect!["error[plan.cycle]: a cycle"].assert_eq(&draw_failure(&failure, Paint::new(false)));
    }

    #[test]
    fn diagnostics_are_drawn_with_code_place_and_help() {
        let problem = Diagnostic::error(
            "plan.unknown_tool",
            "tools[0].name",
            "there is no tool `createAuthr`",
        );
        let problem = problem.with_help("did you mean `createAuthor`?");
        expect![[r"
            error[plan.unknown_tool]: there is no tool `createAuthr`
              --> plan.json: tools[0].name
               = help: did you mean `createAuthor`?"]]
        .assert_eq(&draw_diagnostics(&[problem], "plan.json", Paint::new(false)));
    }
}
