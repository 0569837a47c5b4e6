//! All diagnostics in the order of the draft, up to a limit.

use shared::{diagnostic::Diagnostic, limits};

use super::place;

/// Maximum number of errors, and of warnings, that are formatted.
const MAX_FORMATTED_DIAGNOSTICS: usize = 100;
/// The step number of diagnostics that concern no single step. They come after the diagnostics of
/// all steps.
pub(super) const WHOLE_DRAFT: usize = usize::MAX;

/// Collects diagnostics under the number of their step. Diagnostics beyond the limit are counted
/// and never formatted, so a draft with a million errors costs little more than one with a hundred.
#[derive(Debug, Default)]
pub(super) struct Report {
    errors: DiagnosticList,
    warnings: DiagnosticList,
    pattern_cost: usize,
}

#[derive(Debug, Default)]
struct DiagnosticList {
    formatted: Vec<(usize, Diagnostic)>,
    hidden_count: usize,
}

impl Report {
    pub(super) fn new(notices: &[Diagnostic]) -> Self {
        let mut report = Self::default();
        for notice in notices {
            let kept = if notice.is_error() { &mut report.errors } else { &mut report.warnings };
            kept.add_diagnostic(place::step_in_path(&notice.path), || notice.clone());
        }
        report
    }

    pub(super) fn error(&mut self, step: usize, write: impl FnOnce() -> Diagnostic) {
        self.errors.add_diagnostic(step, write);
    }

    pub(super) fn warning(&mut self, step: usize, write: impl FnOnce() -> Diagnostic) {
        self.warnings.add_diagnostic(step, write);
    }

    /// Adds the cost of compiling a pattern. Returns whether the limit for all patterns still
    /// holds.
    pub(super) fn add_pattern_cost(&mut self, cost: usize) -> bool {
        self.pattern_cost = self.pattern_cost.saturating_add(cost);
        self.pattern_cost < limits::PLAN_PATTERNS
    }

    pub(super) fn has_errors(&self) -> bool {
        !self.errors.formatted.is_empty()
    }

    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        let hidden_count = [
            (self.errors.hidden_count, "errors", Diagnostic::error as fn(_, String, String) -> _),
            (self.warnings.hidden_count, "warnings", Diagnostic::warning),
        ];
        let hidden_count =
            hidden_count.into_iter().filter(|(count, ..)| *count > 0).map(|(count, noun, make)| {
                let message = format!("{count} more {noun} are not shown");
                make("plan.more", String::new(), message).with_help("correct the listed ones first")
            });
        let mut formatted = self.errors.formatted;
        formatted.extend(self.warnings.formatted);
        formatted.sort_by_key(|(step, _)| *step);
        formatted.into_iter().map(|(_, diagnostic)| diagnostic).chain(hidden_count).collect()
    }
}

impl DiagnosticList {
    fn add_diagnostic(&mut self, step: usize, write: impl FnOnce() -> Diagnostic) {
        if self.formatted.len() < MAX_FORMATTED_DIAGNOSTICS {
            self.formatted.push((step, write()));
        } else {
            self.hidden_count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_beyond_the_limit_are_counted() {
        let mut report = Report::default();
        for index in (0..250).rev() {
            report.error(index, || Diagnostic::error("a", format!("{index}"), ""));
            report.warning(index, || Diagnostic::warning("b", format!("{index}"), ""));
        }
        let all = report.into_diagnostics();
        assert_eq!(all.len(), 202);
        assert_eq!((all[0].path.as_str(), all[199].path.as_str()), ("150", "249"));
        let ends: Vec<_> =
            all[200..].iter().map(|diagnostic| diagnostic.message.as_str()).collect();
        assert_eq!(ends, ["150 more errors are not shown", "150 more warnings are not shown"]);
        assert!(all[200].is_error() && !all[201].is_error());
    }

    #[test]
    fn all_patterns_of_a_plan_share_one_budget() {
        let mut report = Report::default();
        let largest = limits::PLAN_PATTERNS / limits::PATTERN_COST;
        let allowed =
            (0..1_000_000).take_while(|_| report.add_pattern_cost(limits::PATTERN_COST)).count();
        assert_eq!(allowed, largest - 1);
        assert!(!report.add_pattern_cost(0));
    }
}
