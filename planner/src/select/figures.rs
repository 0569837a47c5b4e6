//! Quality of a selection, measured with queries whose right tools are known.

use std::collections::BTreeSet;

/// Number of the first tools that count for recall.
const RECALL_TOOLS: usize = 5;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    queries: u32,
    hits: f64,
    recall: f64,
    reciprocal: f64,
}

impl Figures {
    /// Adds a query with its right tools and the selected tools, best first.
    pub fn add(&mut self, right: &BTreeSet<&str>, selected: &[&str]) {
        self.queries += 1;
        let place = selected.iter().position(|tool| right.contains(tool));
        let found: BTreeSet<&&str> =
            selected.iter().take(RECALL_TOOLS).filter(|tool| right.contains(*tool)).collect();
        if place == Some(0) {
            self.hits += 1.0;
        }
        if !right.is_empty() {
            self.recall += ratio(found.len(), right.len());
        }
        self.reciprocal += place.map_or(0.0, |place| ratio(1, place + 1));
    }

    pub fn queries(&self) -> u32 {
        self.queries
    }

    pub fn hit_at_1(&self) -> f64 {
        self.mean_of(self.hits)
    }

    /// Returns the mean share of the right tools among the first five.
    pub fn recall_at_5(&self) -> f64 {
        self.mean_of(self.recall)
    }

    /// Returns the mean of one divided by the rank of the first right tool.
    pub fn reciprocal_rank(&self) -> f64 {
        self.mean_of(self.reciprocal)
    }

    fn mean_of(&self, sum: f64) -> f64 {
        if self.queries == 0 { 0.0 } else { sum / f64::from(self.queries) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are few tools to a query")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}
