//! Vectors in one block of memory.
//!
//! A full scan of ten thousand vectors is faster than a search in an index, and it misses nothing.
//! A scan in integers finds the candidates, and only the candidates are compared exactly.

use super::{
    best,
    vector::{self, QueryVector},
};

#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    dimensions: usize,
    owners: Vec<usize>,
    numbers: Vec<f32>,
    norms: Vec<f64>,
    integers: Vec<i16>,
}

impl Rows {
    /// Collects vectors, each with the index of its tool. Drops vectors whose length differs from
    /// the length of the first vector, because another model made them.
    pub(super) fn new<'a>(vectors: impl Iterator<Item = (usize, &'a [f32])>) -> Self {
        let mut rows = Self::default();
        for (owner, vector) in vectors {
            if rows.owners.is_empty() {
                rows.dimensions = vector.len();
            }
            if vector.len() == rows.dimensions {
                let norm = vector::vector_norm(vector);
                rows.owners.push(owner);
                rows.numbers.extend_from_slice(vector);
                rows.norms.push(norm);
                vector::append_integers(vector, norm, &mut rows.integers);
            }
        }
        rows
    }

    pub(super) fn dimensions(&self) -> Option<usize> {
        (!self.owners.is_empty()).then_some(self.dimensions)
    }

    pub(super) fn len(&self) -> usize {
        self.owners.len()
    }

    pub(super) fn owner_of_row(&self, row: usize) -> usize {
        self.owners[row]
    }

    pub(super) fn row_of_owner(&self, owner: usize) -> Option<usize> {
        self.owners.binary_search(&owner).ok()
    }

    pub(super) fn vector_of(&self, owner: usize) -> Option<&[f32]> {
        self.row_of_owner(owner).map(|row| self.row(row))
    }

    pub(super) fn owners(&self) -> &[usize] {
        &self.owners
    }

    pub(super) fn row(&self, row: usize) -> &[f32] {
        &self.numbers[row * self.dimensions..(row + 1) * self.dimensions]
    }

    pub(super) fn norm(&self, row: usize) -> f64 {
        self.norms[row]
    }

    pub(super) fn integers(&self, row: usize) -> &[i16] {
        let width = vector::padded_width(self.dimensions);
        &self.integers[row * width..(row + 1) * width]
    }

    pub(super) fn slack(&self) -> f64 {
        vector::slack(self.dimensions)
    }

    /// Returns the cosine of a tool's vector to the query, or 0 if the tool has no vector.
    pub(super) fn cosine(&self, owner: usize, query: &QueryVector) -> f64 {
        self.row_of_owner(owner).map_or(0.0, |row| query.cosine(self.row(row), self.norms[row]))
    }

    pub(super) fn visit_quick_cosines(
        &self,
        query: &[QueryVector],
        mut visit: impl FnMut(usize, usize, f32),
    ) {
        let rows = self.integers.chunks_exact(vector::padded_width(self.dimensions).max(1));
        for (owner, row) in self.owners.iter().zip(rows) {
            for (index, vector) in query.iter().enumerate() {
                visit(index, *owner, vector.quick_cosine(row));
            }
        }
    }

    /// Returns the tools with the nearest vectors, nearest first. `is_allowed` filters the tools.
    /// Tools that are equally near keep their order.
    pub(super) fn find_nearest(
        &self,
        query: &QueryVector,
        max_count: usize,
        is_allowed: impl Fn(usize) -> bool,
    ) -> Vec<(usize, f64)> {
        if query.len() != self.dimensions {
            return Vec::new();
        }
        let mut quick = Vec::with_capacity(self.len());
        self.visit_quick_cosines(std::slice::from_ref(query), |_, _, cosine| {
            quick.push(f64::from(cosine));
        });
        let rows = best::candidate_places(&quick, max_count, self.slack(), |row| {
            is_allowed(self.owners[row])
        });
        let exact = |row: usize| query.cosine(self.row(row), self.norms[row]);
        best::take_best(
            rows.into_iter().map(|row| (self.owners[row], exact(row))).collect(),
            max_count,
        )
    }
}
