//! Many vectors in one piece of memory, looked through whole.
//!
//! Ten thousand vectors are looked through in less time than it takes to find the way through an
//! index of them, and nothing is missed.

use super::vector;

/// Vectors that are kept for more than what is asked for: their order is found quickly first, then
/// exactly.
const SLACK: usize = 16;

/// Vectors of one length, each of which belongs to a tool, in the order of the tools.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    dimensions: usize,
    owners: Vec<usize>,
    cells: Vec<f32>,
    /// What makes a product with a unit vector a cosine: one over the length of each.
    scales: Vec<f32>,
}

impl Rows {
    /// Collects vectors by the place of the tool that each belongs to. Those of another length
    /// than the first are left out: another model made them.
    pub(super) fn new<'a>(vectors: impl Iterator<Item = (usize, &'a [f32])>) -> Self {
        let mut rows = Self::default();
        for (owner, vector) in vectors {
            if rows.owners.is_empty() {
                rows.dimensions = vector.len();
            }
            if vector.len() == rows.dimensions {
                rows.owners.push(owner);
                rows.cells.extend_from_slice(vector);
                rows.scales.push(scale(vector));
            }
        }
        rows
    }

    /// Returns how long the vectors are, unless there is none.
    pub(super) fn dimensions(&self) -> Option<usize> {
        (!self.owners.is_empty()).then_some(self.dimensions)
    }

    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.owners.len()
    }

    /// Returns the tool that a vector belongs to.
    pub(super) fn owner(&self, row: usize) -> usize {
        self.owners[row]
    }

    /// Returns which vector is a tool's.
    pub(super) fn find(&self, owner: usize) -> Option<usize> {
        self.owners.binary_search(&owner).ok()
    }

    /// Returns the vector of a tool.
    pub(super) fn of_owner(&self, owner: usize) -> Option<&[f32]> {
        self.find(owner).map(|it| self.row(it))
    }

    /// Returns the tools that have a vector, in their order.
    pub(super) fn owners(&self) -> &[usize] {
        &self.owners
    }

    /// Returns a vector.
    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.cells[row * self.dimensions..(row + 1) * self.dimensions]
    }

    /// Returns the tools whose vectors are nearest to `query` by their cosine, the nearest first,
    /// of those that `may` take part. Equally near ones are in the order of the tools.
    pub(super) fn nearest(
        &self,
        query: &[f32],
        most: usize,
        may: impl Fn(usize) -> bool,
    ) -> Vec<(usize, f64)> {
        if most == 0 || self.owners.is_empty() || query.len() != self.dimensions {
            return Vec::new();
        }
        let quick = self.quick_cosines(&vector::unit(query));
        let mut rows: Vec<usize> = (0..self.len()).filter(|it| may(self.owners[*it])).collect();
        let kept = most.saturating_add(SLACK);
        if rows.len() > kept {
            rows.select_nth_unstable_by(kept, |a, b| quick[*b].total_cmp(&quick[*a]));
            rows.truncate(kept);
        }
        let exact = rows.into_iter().map(|it| (it, vector::cosine(query, self.row(it))));
        let mut nearest: Vec<(usize, f64)> =
            exact.map(|(it, score)| (self.owners[it], score)).collect();
        nearest.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        nearest.truncate(most);
        nearest
    }

    /// Returns the cosine of every tool's vector to a unit vector, to six digits.
    pub(super) fn cosines(&self, unit: &[f32]) -> impl Iterator<Item = (usize, f32)> {
        self.owners.iter().copied().zip(self.quick_cosines(unit))
    }

    /// Returns the cosine of every vector to a unit vector, to six digits.
    fn quick_cosines(&self, unit: &[f32]) -> Vec<f32> {
        let rows = self.cells.chunks_exact(self.dimensions.max(1));
        rows.zip(&self.scales).map(|(row, scale)| vector::quick_dot(row, unit) * scale).collect()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "six digits are enough to find candidates")]
fn scale(vector: &[f32]) -> f32 {
    let norm = vector::norm(vector);
    if norm > 0.0 { (1.0 / norm) as f32 } else { 0.0 }
}
