//! Plans, problems and failures as people read them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::{failure::Failure, paint::Paint, plain};

/// The most steps of a plan that are shown; people scroll no further.
const STEPS: usize = 60;
/// The most steps of a plan that are shown before it is executed.
const FEW: usize = 20;
/// The most characters of a step's parameters that are shown.
const PARAMETERS: usize = 100;

/// Shows a plan: its steps by layers, each with what feeds it.
pub(super) fn plan(plan: &Value, paint: Paint) -> String {
    let text = |key: &str| plain::said(&plan[key]);
    let steps: BTreeMap<&str, &Value> =
        list(&plan["tools"]).filter_map(|it| Some((it["stepId"].as_str()?, it))).collect();
    let mut shown = format!(
        "{}  {}\n",
        paint.bold(text("planId")),
        paint.dim(format!("version {}, {}", plan["version"], text("planner")))
    );
    let width = steps.keys().map(|it| console::measure_text_width(it)).max().unwrap_or(0).min(40);
    let layers: Vec<Vec<&str>> =
        list(&plan["layers"]).map(|it| list(it).filter_map(Value::as_str).collect()).collect();
    let order = layers.iter().enumerate().flat_map(|(layer, ids)| {
        ids.iter().enumerate().map(move |(at, id)| (layer, at, ids.len(), *id))
    });
    for (layer, at, of, id) in order.clone().take(STEPS) {
        let number = if at == 0 { format!("{:>3}", layer + 1) } else { "   ".to_owned() };
        let branch = match (at, of) {
            (_, 1) => "─",
            (0, _) => "┬",
            (at, of) if at + 1 == of => "└",
            _ => "├",
        };
        if let Some(step) = steps.get(id) {
            let padding = " ".repeat(width.saturating_sub(console::measure_text_width(id)));
            let lead = paint.dim(format!("{number} {branch}"));
            let id = paint.cyan(plain::line(id));
            let _ = writeln!(shown, "{lead} {id}{padding}  {}", about(step, paint));
        }
    }
    let left = order.count().saturating_sub(STEPS);
    if left > 0 {
        let _ = writeln!(shown, "      … and {left} more steps");
    }
    shown.trim_end().to_owned()
}

/// Shows a plan that is about to be executed: a long one in a few words, as its steps are shown
/// when they run.
pub(super) fn plan_in_short(whole: &Value, paint: Paint) -> String {
    let layers = list(&whole["layers"]).map(|it| it.as_array().map_or(0, Vec::len));
    let (n, widest) = (layers.clone().sum::<usize>(), layers.clone().max().unwrap_or(0));
    if n <= FEW {
        return plan(whole, paint);
    }
    let id = plain::said(&whole["planId"]);
    let about = format!("version {}, {}", whole["version"], plain::said(&whole["planner"]));
    format!(
        "{}  {}\n{n} steps in {}, at most {widest} at once; all of them: faber export {id}",
        paint.bold(&id),
        paint.dim(about),
        plain::count(layers.count(), "layer"),
    )
}

/// Describes a step: its tool where the name does not say it, its parameters, what feeds it.
fn about(step: &Value, paint: Paint) -> String {
    let id = step["stepId"].as_str().unwrap_or_default();
    let tool = step["toolName"].as_str().unwrap_or_default();
    let mut parts = Vec::new();
    if tool.rsplit('.').next() != Some(id) && tool != id {
        parts.push(plain::line(tool));
    }
    let parameters = plain::line(&step["parameters"].to_string());
    parts.push(paint.dim(clip(&parameters, PARAMETERS)));
    let feeds: Vec<String> = list(&step["dependsOn"]).map(plain::said).take(8).collect();
    if !feeds.is_empty() {
        parts.push(format!("{} {}", paint.green("←"), feeds.join(", ")));
    }
    for (word, key) in [("if", "when"), ("for each", "forEach"), ("executes", "plan")] {
        if let Some(text) = step[key].as_str() {
            parts.push(format!("{} {}", paint.green(word), clip(&plain::line(text), PARAMETERS)));
        }
    }
    if let Some(tool) = step["compensate"]["toolName"].as_str() {
        parts.push(format!("{} {tool}", paint.green("undone by"), tool = plain::line(tool)));
    }
    if step["requiresApproval"] == true {
        parts.push(paint.yellow("needs approval"));
    }
    parts.join("  ")
}

/// Shows problems the way compilers do: code, place, sentence, help.
pub(super) fn diagnostics(diagnostics: &Value, place: &str, paint: Paint) -> String {
    let shown = list(diagnostics).map(|it| diagnostic(it, place, paint));
    shown.collect::<Vec<_>>().join("\n")
}

fn diagnostic(it: &Value, place: &str, paint: Paint) -> String {
    let text = |key: &str| plain::said(&it[key]);
    let is_error = text("severity") == "ERROR";
    let word = if is_error { "error" } else { "warning" };
    let head = format!("{word}[{}]", text("code"));
    let head = if is_error { paint.red(head) } else { paint.yellow(head) };
    let mut shown = format!("{head}: {}", paint.bold(text("message")));
    let (place, path) = (plain::line(place), text("path"));
    let between = if place.is_empty() || path.is_empty() { "" } else { ": " };
    let spot = format!("{place}{between}{path}");
    if !spot.is_empty() {
        let _ = write!(shown, "\n  {} {spot}", paint.cyan("-->"));
    }
    if let Some(help) = it["help"].as_str() {
        let _ = write!(shown, "\n   {} help: {}", paint.cyan("="), plain::line(help));
    }
    shown
}

/// Shows why a command did not do what it was asked.
pub(super) fn failure(failure: &Failure, paint: Paint) -> String {
    let mut shown = String::new();
    match failure.more.get("diagnostics") {
        Some(problems) if problems.as_array().is_some_and(|it| !it.is_empty()) => {
            let place = failure.more.get("file").and_then(Value::as_str).unwrap_or_default();
            shown.push_str(&diagnostics(problems, place, paint));
        }
        _ => {
            let head = paint.red(format!("error[{}]", plain::line(&failure.code)));
            let _ = write!(shown, "{head}: {}", plain::line(&failure.message));
        }
    }
    let nearest = failure.more.get("nearest").into_iter().flat_map(list).map(plain::said);
    // Those that the message names already are not named again.
    let nearest: Vec<String> =
        nearest.filter(|name| !failure.message.contains(&format!("`{name}`"))).collect();
    if !nearest.is_empty() {
        let _ = write!(shown, "\n   {} nearest tools: {}", paint.cyan("="), nearest.join(", "));
    }
    if let Some(request) = failure.more.get("requestId").and_then(Value::as_str) {
        let hint = format!("how it came to this: faber debug {}", plain::line(request));
        let _ = write!(shown, "\n   {} {hint}", paint.cyan("="));
    }
    shown
}

/// Cuts a text that is longer than a line has room for.
pub(super) fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Returns the items of a JSON list, none if it is none.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_plan_shows_who_feeds_whom() {
        let plan = json!({
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
        });
        expect![[r#"
            plan_1_aaaaaaaaa  version 1, offline
              1 ┬ createAuthor  {"name":"Alice"}
                └ b             flow.echo  {}
              2 ─ createBlog    {"authorId":"{{createAuthor._id}}"}  ← createAuthor"#]]
        .assert_eq(&super::plan(&plan, Paint::new(false)));
        assert_eq!(plan_in_short(&plan, Paint::new(false)), super::plan(&plan, Paint::new(false)));
    }

    #[test]
    fn a_long_plan_is_told_in_short() {
        let layers = vec![vec!["a"; 30]; 3];
        let plan = json!({ "planId": "plan_1_aaaaaaaaa", "version": 2, "planner": "offline",
            "layers": layers, "tools": [] });
        expect![[r"
            plan_1_aaaaaaaaa  version 2, offline
            90 steps in 3 layers, at most 30 at once; all of them: faber export plan_1_aaaaaaaaa"]]
        .assert_eq(&plan_in_short(&plan, Paint::new(false)));
    }

    #[test]
    fn problems_look_like_those_of_a_compiler() {
        let problems = json!([{
            "severity": "ERROR", "code": "plan.unknown_tool", "path": "tools[0].name",
            "message": "there is no tool `createAuthr`", "help": "did you mean `createAuthor`?",
        }]);
        expect![[r"
            error[plan.unknown_tool]: there is no tool `createAuthr`
              --> plan.json: tools[0].name
               = help: did you mean `createAuthor`?"]]
        .assert_eq(&diagnostics(&problems, "plan.json", Paint::new(false)));
    }
}
