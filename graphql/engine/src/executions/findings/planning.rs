use serde_json::Value;
use shared::{
    diagnostic::Severity,
    request::{Request, TranscriptEntry},
};

use super::{
    finding::{Finding, FindingKind, MAX_FINDINGS},
    remedy::{Remedy, quote_for_shell},
};

/// Returns findings about the failed planning of a request. Returns no finding while a planner is
/// still working. `transcript` is the transcript of a request without a plan.
pub fn find_planning_findings(
    request: &Request,
    transcript: &[TranscriptEntry],
    limit: usize,
) -> Vec<Finding> {
    let Some(entry) = transcript.iter().rfind(|entry| entry.is_failure()) else {
        return Vec::new();
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut found: Vec<Finding> = match entry.content.as_array() {
        None => {
            let (code, message) = (text(&entry.content["code"]), text(&entry.content["message"]));
            let remedies = planning_remedies(request, &code);
            let kind = FindingKind::Failure;
            vec![Finding::new(kind, Severity::Error, code, message).with_remedies(remedies)]
        }
        Some(diagnostics) => diagnostics.iter().map(diagnostic_finding).collect(),
    };
    for finding in &mut found {
        finding.at = Some(entry.at);
    }
    found.sort_by_key(|finding| finding.severity);
    found.truncate(limit.min(MAX_FINDINGS));
    found
}

fn diagnostic_finding(diagnostic: &Value) -> Finding {
    let text = |key: &str| diagnostic[key].as_str().unwrap_or_default();
    let (severity, kind) = match text("severity") {
        "WARNING" => (Severity::Warning, FindingKind::Warning),
        "INFO" => (Severity::Info, FindingKind::Warning),
        _ => (Severity::Error, FindingKind::Failure),
    };
    let mut message = text("message").to_owned();
    for (lead, text) in [("", text("path")), ("help: ", text("help"))] {
        if !text.is_empty() {
            message = format!("{message} ({lead}{text})");
        }
    }
    Finding::new(kind, severity, text("code").to_owned(), message)
}

fn planning_remedies(request: &Request, code: &str) -> Vec<Remedy> {
    let query = quote_for_shell(&request.query);
    let again = format!("faber run {query}");
    match code {
        "PLANNER_UNAVAILABLE" => {
            vec![Remedy::doctor(), Remedy::from_command("plan it again", &again)]
        }
        "NO_PLAN_FOUND" | "INVALID_PLAN" => {
            vec![Remedy::from_command("write the plan by hand", "faber run --plan FILE")]
        }
        "LIMIT_EXCEEDED" | "STORE_UNAVAILABLE" | "INTERNAL" => {
            vec![Remedy::from_command("plan it again", &again)]
        }
        _ => Vec::new(),
    }
}
