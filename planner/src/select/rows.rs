//! Many vectors in one piece of memory, looked through whole.
//!
//! Ten thousand vectors are looked through in less time than it takes to find the way through an
//! index of them, and nothing is missed: a scan in whole numbers finds those that may be the
//! nearest, and only these are compared exactly.

use super::{
    best,
    vector::{self, Compared},
};

/// Vectors of one length, each of which belongs to a tool, in the order of the tools.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    dimensions: usize,
    owners: Vec<usize>,
    cells: Vec<f32>,
    norms: Vec<f64>,
    /// The same vectors at length 1, in whole numbers.
    whole: Vec<i16>,
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
                let norm = vector::norm(vector);
                rows.owners.push(owner);
                rows.cells.extend_from_slice(vector);
                rows.norms.push(norm);
                vector::append_whole(vector, norm, &mut rows.whole);
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

    /// Returns how long a vector is, as a distance.
    pub(super) fn norm(&self, row: usize) -> f64 {
        self.norms[row]
    }

    /// Returns a vector at length 1, in whole numbers.
    pub(super) fn whole(&self, row: usize) -> &[i16] {
        let width = vector::width(self.dimensions);
        &self.whole[row * width..(row + 1) * width]
    }

    /// Returns how far a quick cosine may be off.
    pub(super) fn slack(&self) -> f64 {
        vector::slack(self.dimensions)
    }

    /// Returns the cosine of a tool's vector; 0 where it has none.
    pub(super) fn cosine(&self, owner: usize, asked: &Compared) -> f64 {
        self.find(owner).map_or(0.0, |row| asked.cosine(self.row(row), self.norms[row]))
    }

    /// Tells the quick cosine of every tool's vector to each of what is asked, by the place of the
    /// latter and the tool, in one pass over the vectors.
    pub(super) fn quick_cosines(
        &self,
        asked: &[Compared],
        mut tell: impl FnMut(usize, usize, f32),
    ) {
        let rows = self.whole.chunks_exact(vector::width(self.dimensions).max(1));
        for (owner, row) in self.owners.iter().zip(rows) {
            for (at, it) in asked.iter().enumerate() {
                tell(at, *owner, it.quick_cosine(row));
            }
        }
    }

    /// Returns the tools whose vectors are nearest to what is asked by their cosine, the nearest
    /// first, of those that `may` take part. Equally near ones are in the order of the tools.
    pub(super) fn nearest(
        &self,
        asked: &Compared,
        most: usize,
        may: impl Fn(usize) -> bool,
    ) -> Vec<(usize, f64)> {
        if asked.len() != self.dimensions {
            return Vec::new();
        }
        let mut quick = Vec::with_capacity(self.len());
        self.quick_cosines(std::slice::from_ref(asked), |_, _, it| quick.push(f64::from(it)));
        let rows = best::candidates(&quick, most, self.slack(), |row| may(self.owners[row]));
        let exact = |row: usize| asked.cosine(self.row(row), self.norms[row]);
        best::first(rows.into_iter().map(|it| (self.owners[it], exact(it))).collect(), most)
    }
}
