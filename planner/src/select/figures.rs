//! How good a selection is, over queries whose right tools are known.

use std::collections::BTreeSet;

/// How many of the first tools recall looks at.
const RECALL: usize = 5;

/// How good a selection is: sums over queries, and their means.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    queries: u32,
    hits: f64,
    recall: f64,
    reciprocal: f64,
}

impl Figures {
    /// Adds a query: the tools that are right, and those that were selected, the best first.
    pub fn add(&mut self, right: &BTreeSet<&str>, selected: &[&str]) {
        self.queries += 1;
        let place = selected.iter().position(|it| right.contains(it));
        let found: BTreeSet<&&str> =
            selected.iter().take(RECALL).filter(|it| right.contains(*it)).collect();
        if place == Some(0) {
            self.hits += 1.0;
        }
        if !right.is_empty() {
            self.recall += share(found.len(), right.len());
        }
        self.reciprocal += place.map_or(0.0, |it| share(1, it + 1));
    }

    /// Returns how many queries there were.
    pub fn queries(&self) -> u32 {
        self.queries
    }

    /// Returns how often the first tool was right.
    pub fn hit_at_1(&self) -> f64 {
        self.mean(self.hits)
    }

    /// Returns how many of the right tools were among the first five, on average.
    pub fn recall_at_5(&self) -> f64 {
        self.mean(self.recall)
    }

    /// Returns the mean of one over the place of the first right tool.
    pub fn reciprocal_rank(&self) -> f64 {
        self.mean(self.reciprocal)
    }

    fn mean(&self, sum: f64) -> f64 {
        if self.queries == 0 { 0.0 } else { sum / f64::from(self.queries) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are few tools to a query")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}
