//! Draws findings. Their sentences come from the API.

use std::collections::BTreeMap;

use super::{format::clip_text, paint::Paint, plain};
use crate::types::{Finding, FindingKind, Remedy, Severity};

/// Maximum number of findings of one kind and severity that a view shows, except failures.
const MAX_FINDINGS: usize = 5;
const MAX_FAILURES: usize = 20;
const MAX_MESSAGE_CHARS: usize = 900;
const MAX_REMEDIES: usize = 4;

pub fn draw_finding(finding: &Finding, paint: Paint) -> String {
    let message = clip_text(&plain::safe_line(&finding.message), MAX_MESSAGE_CHARS);
    let code = plain::safe_line(&finding.code);
    let label = match (finding.kind, finding.severity) {
        (FindingKind::Wait, _) => paint.yellow("waits:"),
        (_, Severity::Error) => paint.red(format!("error[{code}]:")),
        (_, Severity::Warning) => paint.yellow(format!("warning[{code}]:")),
        (_, Severity::Info) => paint.dim("note:"),
    };
    format!("{label} {message}")
}

/// Chooses the first findings of each kind and severity, because an execution can have a hundred
/// findings. The returned line counts the findings that are left out.
pub fn choose_findings<'a>(
    findings: impl IntoIterator<Item = &'a Finding>,
) -> (Vec<&'a Finding>, Option<String>) {
    let mut left_out = 0;
    let mut counts: BTreeMap<(FindingKind, Severity), usize> = BTreeMap::new();
    let mut chosen = Vec::new();
    for finding in findings {
        let n = counts.entry((finding.kind, finding.severity)).or_default();
        *n += 1;
        let is_failure = finding.kind == FindingKind::Failure;
        if *n <= if is_failure { MAX_FAILURES } else { MAX_FINDINGS } {
            chosen.push(finding);
        } else {
            left_out += 1;
        }
    }
    let more = (left_out > 0).then(|| format!("and {left_out} more: `--json` has all of them"));
    (chosen, more)
}

pub fn draw_findings(findings: &[Finding], paint: Paint) -> Vec<String> {
    let (chosen, more) = choose_findings(findings);
    chosen.into_iter().map(|finding| draw_finding(finding, paint)).chain(more).collect()
}

pub fn draw_remedies(finding: &Finding, paint: Paint) -> Vec<String> {
    let lead = format!("  {} ", paint.cyan("help:"));
    draw_commands(finding, paint).into_iter().map(|line| format!("{lead}{line}")).collect()
}

pub fn draw_commands(finding: &Finding, paint: Paint) -> Vec<String> {
    let helping = finding.remedies.iter().filter(|remedy| remedy.command.is_some());
    let hints: Vec<(String, String)> =
        helping.take(MAX_REMEDIES).filter_map(command_and_label).collect();
    let width = hints.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    let line =
        |(command, label): (String, String)| format!("{command:<width$}  {}", paint.dim(label));
    hints.into_iter().map(line).collect()
}

pub fn command_and_label(remedy: &Remedy) -> Option<(String, String)> {
    let command = plain::safe_line(remedy.command.as_ref()?);
    let danger = if remedy.is_dangerous { " (dangerous)" } else { "" };
    Some((command, format!("{}{danger}", remedy.label)))
}

pub fn count_warnings(findings: &[Finding]) -> usize {
    let is_warning = |finding: &&Finding| {
        finding.kind == FindingKind::Warning && finding.severity == Severity::Warning
    };
    findings.iter().filter(is_warning).count()
}
