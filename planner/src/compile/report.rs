//! Everything that is wrong, in the order of the draft, up to a limit.

use shared::{diagnostic::Diagnostic, limits};

use super::place;

/// The most errors, and the most warnings, that are written out.
const SHOWN: usize = 100;
/// Where diagnostics belong that are about no step: behind those of all steps.
pub(super) const WHOLE: usize = usize::MAX;

/// Collects diagnostics, each under the number of the step that it is about.
///
/// What is beyond the limit is counted and never written, so that a draft that is wrong a million
/// times costs no more than one that is wrong a hundred times.
#[derive(Debug, Default)]
pub(super) struct Report {
    errors: Kept,
    warnings: Kept,
    /// What compiling the patterns of its conditions has cost.
    patterns: usize,
}

#[derive(Debug, Default)]
struct Kept {
    shown: Vec<(usize, Diagnostic)>,
    more: usize,
}

impl Report {
    /// Begins with what was noticed before.
    pub(super) fn new(notices: &[Diagnostic]) -> Self {
        let mut report = Self::default();
        for notice in notices {
            let kept = if notice.is_error() { &mut report.errors } else { &mut report.warnings };
            kept.add(place::step_of(&notice.path), || notice.clone());
        }
        report
    }

    /// Adds something that stands in the way of a plan.
    pub(super) fn error(&mut self, step: usize, write: impl FnOnce() -> Diagnostic) {
        self.errors.add(step, write);
    }

    /// Adds something that the author should know.
    pub(super) fn warning(&mut self, step: usize, write: impl FnOnce() -> Diagnostic) {
        self.warnings.add(step, write);
    }

    /// Notes what compiling patterns has cost. Returns whether there may be more of them.
    pub(super) fn may_have_patterns(&mut self, cost: usize) -> bool {
        self.patterns = self.patterns.saturating_add(cost);
        self.patterns < limits::PLAN_PATTERNS
    }

    /// Returns whether anything stands in the way of a plan.
    pub(super) fn has_errors(&self) -> bool {
        !self.errors.shown.is_empty()
    }

    /// Returns all of it.
    pub(super) fn into_diagnostics(self) -> Vec<Diagnostic> {
        let more = [
            (self.errors.more, "errors", Diagnostic::error as fn(_, String, String) -> _),
            (self.warnings.more, "warnings", Diagnostic::warning),
        ];
        let more = more.into_iter().filter(|(count, ..)| *count > 0).map(|(count, what, make)| {
            let message = format!("{count} more {what} are not shown");
            make("plan.more", String::new(), message).with_help("mend those that are shown first")
        });
        let mut shown = self.errors.shown;
        shown.extend(self.warnings.shown);
        shown.sort_by_key(|(step, _)| *step);
        shown.into_iter().map(|(_, it)| it).chain(more).collect()
    }
}

impl Kept {
    fn add(&mut self, step: usize, write: impl FnOnce() -> Diagnostic) {
        if self.shown.len() < SHOWN {
            self.shown.push((step, write()));
        } else {
            self.more += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_limit_is_counted() {
        let mut report = Report::default();
        for at in (0..250).rev() {
            report.error(at, || Diagnostic::error("a", format!("{at}"), ""));
            report.warning(at, || Diagnostic::warning("b", format!("{at}"), ""));
        }
        let all = report.into_diagnostics();
        assert_eq!(all.len(), 202);
        assert_eq!((all[0].path.as_str(), all[199].path.as_str()), ("150", "249"));
        let ends: Vec<_> = all[200..].iter().map(|it| it.message.as_str()).collect();
        assert_eq!(ends, ["150 more errors are not shown", "150 more warnings are not shown"]);
        assert!(all[200].is_error() && !all[201].is_error());
    }

    #[test]
    fn patterns_have_a_bound_that_all_of_a_plan_share() {
        let mut report = Report::default();
        let largest = limits::PLAN_PATTERNS / limits::PATTERN_COST;
        let allowed =
            (0..1_000_000).take_while(|_| report.may_have_patterns(limits::PATTERN_COST)).count();
        assert_eq!(allowed, largest - 1);
        assert!(!report.may_have_patterns(0));
    }
}
