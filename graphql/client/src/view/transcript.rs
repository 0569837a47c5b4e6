//! Draws the entries of a transcript. An entry of an unknown kind or form is drawn as JSON.

#[cfg(test)]
mod tests;

use serde::Deserialize;
use serde_json::{Map, Value};
use shared::diagnostic::Diagnostic;

use super::{
    format::{clip_text, format_duration, indent_json, json_line},
    paint::Paint,
    plain,
    plan::draw_diagnostics,
};
use crate::types::Text;

/// Maximum number of candidates in each list: the candidates that the selection kept, and the
/// candidates that it dropped.
const MAX_CANDIDATES: usize = 10;
const MAX_LINES: usize = 40;
const MAX_COLUMNS: usize = 400;
/// The short fields of a prompt or reply. They are drawn together in the first line.
const MEASURE_FIELDS: [&str; 7] = ["round", "provider", "model", "attempt", "tokens", "cost", "ms"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Selection {
    candidates: Vec<Candidate>,
    #[serde(default)]
    by: Text,
    #[serde(default)]
    more: usize,
    without_meaning: Option<Text>,
}

#[derive(Deserialize)]
struct Candidate {
    tool: Text,
    score: Option<f64>,
    #[serde(default)]
    kept: bool,
    #[serde(default)]
    why: Text,
}

impl Selection {
    pub fn read_content(content: &Value) -> Option<Self> {
        read_content(content)
    }

    pub fn count_kept(&self) -> usize {
        self.candidates.iter().filter(|candidate| candidate.kept).count()
    }

    pub fn count_all(&self) -> usize {
        self.candidates.len() + self.more
    }
}

fn read_content<'a, T: Deserialize<'a>>(content: &'a Value) -> Option<T> {
    T::deserialize(content).ok()
}

pub fn draw_entry(kind: &str, content: &Value, paint: Paint) -> String {
    let text = match kind {
        "selection" => read_content(content).map(|selection| draw_selection(&selection, paint)),
        "clauses" => read_content::<Vec<Value>>(content).map(|clauses| describe_clauses(&clauses)),
        "candidates" => draw_clause_candidates(content, paint),
        "assumptions" => draw_assumptions(content, paint),
        "draft" => draw_draft(content, paint),
        "cache" => describe_cache(content),
        "plan" => describe_plan(content),
        "error" => draw_error(content, paint),
        "diagnostics" => read_content::<Vec<Diagnostic>>(content)
            .map(|found| draw_diagnostics(&found, "", paint)),
        "prompt" | "reply" | "repair" | "usage" => {
            content.as_object().map(|fields| draw_exchange(fields, paint))
        }
        _ => None,
    };
    let text = text.filter(|text| !text.is_empty());
    let text =
        text.unwrap_or_else(|| cut_text(&plain::safe_block(&indent_json(content, 0)), paint));
    let lines: Vec<String> = text.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

fn draw_selection(selection: &Selection, paint: Paint) -> String {
    let (kept, dropped): (Vec<_>, Vec<_>) = selection.candidates.iter().partition(|tool| tool.kept);
    let by = selection.by.to_string().to_lowercase();
    let heading =
        format!("{} of {} tools shown to the planner, by {by}", kept.len(), selection.count_all());
    let mut lines = vec![heading];
    lines.extend(draw_candidates(&kept, &paint.green("✓"), paint));
    if kept.len() > MAX_CANDIDATES {
        lines.push(format!("  … and {} more", kept.len() - MAX_CANDIDATES));
    }
    lines.extend(draw_candidates(&dropped, &paint.dim("○"), paint));
    let left_out = dropped.len().saturating_sub(MAX_CANDIDATES) + selection.more;
    if left_out > 0 {
        lines.push(format!("  … and {left_out} more that were dropped"));
    }
    if let Some(reason) = &selection.without_meaning {
        lines.push(format!("{} by words alone: {reason}", paint.yellow("warning:")));
    }
    lines.join("\n")
}

fn draw_candidates(tools: &[&Candidate], mark: &str, paint: Paint) -> impl Iterator<Item = String> {
    tools.iter().take(MAX_CANDIDATES).map(move |Candidate { tool, score, why: reason, .. }| {
        let score = score.map_or_else(|| "    –".to_owned(), |score| format!("{score:.3}"));
        format!("{mark} {score}  {tool}  {}", paint.dim(reason.to_string()))
    })
}

fn describe_clauses(clauses: &[Value]) -> String {
    let lines = clauses.iter().enumerate().map(|(place, clause)| {
        let text = clause.as_str().map_or_else(|| clause.to_string(), str::to_owned);
        format!("{}  {}", place + 1, clip_text(&plain::safe_line(&text), MAX_COLUMNS))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn draw_clause_candidates(content: &Value, paint: Paint) -> Option<String> {
    #[derive(Deserialize)]
    struct Clause {
        clause: Text,
        #[serde(default)]
        tools: Vec<Candidate>,
    }
    let mut lines = Vec::new();
    for Clause { clause, tools } in read_content::<Vec<Clause>>(content)? {
        lines.push(clip_text(&clause.to_string(), MAX_COLUMNS));
        for Candidate { tool, score, .. } in tools {
            let score = score.map(|score| format!("{score:.3}")).unwrap_or_default();
            lines.push(format!("  {}  {tool}", paint.dim(score)));
        }
    }
    Some(lines.join("\n"))
}

fn draw_assumptions(content: &Value, paint: Paint) -> Option<String> {
    #[derive(Deserialize)]
    struct Assumption {
        path: Text,
        #[serde(default)]
        clause: Text,
        #[serde(default)]
        value: Value,
    }
    let assumptions: Vec<Assumption> = read_content(content)?;
    let lines = assumptions.iter().map(|Assumption { path, clause, value }| {
        let from = paint.dim(format!("from `{clause}`"));
        format!("{path} = {}  {from}", json_line(value, MAX_COLUMNS))
    });
    Some(lines.collect::<Vec<_>>().join("\n"))
}

fn draw_draft(content: &Value, paint: Paint) -> Option<String> {
    let lines = content["tools"].as_array()?.iter().map(|step| {
        let text = |key: &str| step[key].as_str().map(plain::safe_line);
        let tool = text("name").or_else(|| text("toolName")).or_else(|| text("plan"));
        let tool = tool.unwrap_or_else(|| "a plan".to_owned());
        let id = text("id").filter(|id| *id != tool).map(|id| format!("{id}: "));
        let parameters = paint.dim(json_line(&step["parameters"], MAX_COLUMNS));
        format!("{}{tool}  {parameters}", id.unwrap_or_default())
    });
    Some(cut_text(&lines.collect::<Vec<_>>().join("\n"), paint))
}

fn describe_cache(content: &Value) -> Option<String> {
    let id = plain::safe_line(content["requestId"].as_str()?);
    Some(format!("taken from {id}: the planner was not asked"))
}

fn describe_plan(content: &Value) -> Option<String> {
    let id = plain::safe_line(content["planId"].as_str()?);
    Some(format!("{id}, version {}", json_line(&content["version"], MAX_COLUMNS)))
}

fn draw_error(content: &Value, paint: Paint) -> Option<String> {
    let (code, message) = (content["code"].as_str()?, content["message"].as_str()?);
    let code = paint.red(format!("error[{}]", plain::safe_line(code)));
    Some(format!("{code}: {}", plain::safe_block(message)))
}

fn draw_exchange(fields: &Map<String, Value>, paint: Paint) -> String {
    let mut parts = vec![plain::safe_line(&format_measures(fields))];
    for (key, value) in fields.iter().filter(|(key, _)| !MEASURE_FIELDS.contains(&key.as_str())) {
        match (key.as_str(), value) {
            (_, Value::Null) => (),
            ("diagnostics", Value::Array(_)) => {
                let found: Vec<Diagnostic> = read_content(value).unwrap_or_default();
                parts.push(draw_diagnostics(&found, "", paint));
            }
            ("messages", Value::Array(all)) => {
                for message in all {
                    let role = message["role"].as_str().unwrap_or(key);
                    parts.push(draw_part(role, &message["content"], paint));
                }
            }
            _ => parts.push(draw_part(key, value, paint)),
        }
    }
    parts.retain(|text| !text.is_empty());
    parts.join("\n")
}

fn format_measures(fields: &Map<String, Value>) -> String {
    let measures = MEASURE_FIELDS.iter().filter_map(|key| {
        let value = fields.get(*key).filter(|value| !value.is_null())?;
        Some(match (*key, value) {
            ("ms", ms) => ms.as_f64().map_or_else(|| ms.to_string(), format_duration),
            ("tokens", Value::Object(counts)) => {
                let counts = counts.iter().map(|(name, n)| format!("{n} {name}"));
                format!("tokens: {}", counts.collect::<Vec<_>>().join(", "))
            }
            ("tokens", n) => format!("{n} tokens"),
            ("model" | "provider", Value::String(name)) => name.clone(),
            (key, Value::String(text)) => format!("{key} {text}"),
            (key, value) => format!("{key} {value}"),
        })
    });
    measures.collect::<Vec<_>>().join(", ")
}

fn draw_part(name: &str, value: &Value, paint: Paint) -> String {
    let name = paint.dim(format!("{}:", plain::safe_line(name)));
    let text = match value {
        Value::String(text) if text.lines().count() <= 1 => {
            return format!("{name} {}", clip_text(&plain::safe_block(text), MAX_COLUMNS));
        }
        Value::String(text) => plain::safe_block(text),
        Value::Array(_) | Value::Object(_) => plain::safe_block(&indent_json(value, 0)),
        other => return format!("{name} {other}"),
    };
    format!("{name}\n{}", cut_text(&text, paint))
}

fn cut_text(text: &str, paint: Paint) -> String {
    let count = text.lines().count();
    let mut lines: Vec<String> =
        text.lines().take(MAX_LINES).map(|line| clip_text(line, MAX_COLUMNS)).collect();
    if count > MAX_LINES {
        lines
            .push(paint.dim(format!("… {} more lines; `--json` has all of it", count - MAX_LINES)));
    }
    lines.join("\n")
}
