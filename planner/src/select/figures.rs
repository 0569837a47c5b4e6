use std::collections::BTreeSet;

const RECALL_TOOLS: usize = 5;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SelectionQuality {
    query_count: u32,
    hit_sum: f64,
    recall_sum: f64,
    reciprocal_rank_sum: f64,
}

impl SelectionQuality {
    pub fn add_query(&mut self, right_tools: &BTreeSet<&str>, selected: &[&str]) {
        self.query_count += 1;
        let place = selected.iter().position(|tool| right_tools.contains(tool));
        let found: BTreeSet<&&str> =
            selected.iter().take(RECALL_TOOLS).filter(|tool| right_tools.contains(*tool)).collect();
        if place == Some(0) {
            self.hit_sum += 1.0;
        }
        if !right_tools.is_empty() {
            self.recall_sum += ratio(found.len(), right_tools.len());
        }
        self.reciprocal_rank_sum += place.map_or(0.0, |place| ratio(1, place + 1));
    }

    pub fn count_queries(&self) -> u32 {
        self.query_count
    }

    pub fn hit_at_1(&self) -> f64 {
        self.divide_by_queries(self.hit_sum)
    }

    pub fn recall_at_5(&self) -> f64 {
        self.divide_by_queries(self.recall_sum)
    }

    pub fn reciprocal_rank(&self) -> f64 {
        self.divide_by_queries(self.reciprocal_rank_sum)
    }

    fn divide_by_queries(&self, sum: f64) -> f64 {
        if self.query_count == 0 { 0.0 } else { sum / f64::from(self.query_count) }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a query has few tools")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}
