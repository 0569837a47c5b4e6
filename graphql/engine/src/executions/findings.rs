//! Explains an execution: what happened, why, and what helps. All clients show these sentences and
//! write none of their own.

mod cause_line;
mod compensations;
mod failures;
mod finding;
mod planning;
mod remedy;
mod skips;
#[cfg(test)]
mod tests;
mod view;
mod waits;
mod warnings;

use shared::{clock::Timestamp, execution::Execution};

pub use self::{
    cause_line::find_cause_line,
    finding::{Finding, FindingKind, MAX_FINDINGS},
    planning::find_planning_findings,
    remedy::{Remedy, quote_for_shell},
    warnings::valid_warnings,
};
pub(super) use self::{
    failures::{children_with_unknown_call, find_unknown_call},
    view::NodeFacts,
    waits::find_reason,
};
use self::{finding::Candidates, view::View};

/// Returns the findings about an execution: the most severe first, then by time.
///
/// Without `node_facts`, the findings come from the log alone.
pub(super) fn find_findings(
    execution: &Execution,
    node_facts: Option<&NodeFacts<'_>>,
    now: Timestamp,
    limit: usize,
) -> Vec<Finding> {
    let view = View::new(execution, node_facts, now);
    let mut candidates = Candidates::default();
    failures::add_failures(&view, &mut candidates);
    waits::add_waits(&view, &mut candidates);
    compensations::add_compensations(&view, &mut candidates);
    warnings::add_warnings(&view, &mut candidates);
    skips::add_skips(&view, &mut candidates);
    candidates.render_first(limit)
}
