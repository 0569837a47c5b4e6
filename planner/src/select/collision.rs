use super::{rows::Rows, vector};

/// Number of vectors of a block. A block fits into the processor's first cache, and is read once
/// for many comparisons.
const BLOCK_LEN: usize = 32;
/// Maximum number of pairs. More pairs are an error, because a threshold near 0 would return all
/// pairs.
pub const MAX_COLLISIONS: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Collision {
    pub a: usize,
    pub b: usize,
    pub similarity: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Similarity {
    /// The dot product of the means of both tools' examples. It is lower for tools whose examples
    /// differ much, because their means are short.
    #[default]
    Dot,
    Cosine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {MAX_COLLISIONS} pairs of tools are that similar: use a higher `threshold`")]
pub struct TooManyPairs;

impl Similarity {
    fn compute(self, a: &[f32], b: &[f32]) -> f64 {
        match self {
            Self::Dot => vector::dot_product(a, b),
            Self::Cosine => vector::cosine(a, b),
        }
    }
}

/// Returns every pair of rows whose similarity is at least `threshold`, in the order of the tools.
/// `is_allowed` filters the tools.
pub(super) fn similar_pairs(
    rows: &Rows,
    similarity: Similarity,
    threshold: f64,
    is_allowed: impl Fn(usize) -> bool,
) -> Result<Vec<Collision>, TooManyPairs> {
    let row_numbers: Vec<usize> =
        (0..rows.len()).filter(|row| is_allowed(rows.owner_of_row(*row))).collect();
    let side = Block { rows, row_numbers: &row_numbers, slack: rows.slack() };
    let mut found = Vec::new();
    for first in (0..row_numbers.len()).step_by(BLOCK_LEN) {
        for second in (first..row_numbers.len()).step_by(BLOCK_LEN) {
            side.compare_blocks(first, second, similarity, threshold, &mut found);
            if found.len() > MAX_COLLISIONS {
                return Err(TooManyPairs);
            }
        }
    }
    found.sort_by_key(|collision| (collision.a, collision.b));
    Ok(found)
}

struct Block<'a> {
    rows: &'a Rows,
    row_numbers: &'a [usize],
    slack: f64,
}

impl Block<'_> {
    /// Compares two blocks in integers, and the candidates again exactly.
    fn compare_blocks(
        &self,
        first: usize,
        second: usize,
        similarity: Similarity,
        threshold: f64,
        found: &mut Vec<Collision>,
    ) {
        let end = |start: usize| (start + BLOCK_LEN).min(self.row_numbers.len());
        for i in first..end(first) {
            let (a, integers) = (self.row_numbers[i], self.rows.integers(self.row_numbers[i]));
            for j in second.max(i + 1)..end(second) {
                let b = self.row_numbers[j];
                let quick = f64::from(vector::quick_cosine(integers, self.rows.integers(b)));
                let lengths = match similarity {
                    Similarity::Dot => self.rows.norm(a) * self.rows.norm(b),
                    Similarity::Cosine => 1.0,
                };
                if (quick + self.slack) * lengths < threshold {
                    continue;
                }
                let exact = similarity.compute(self.rows.row(a), self.rows.row(b));
                if exact >= threshold {
                    let (a, b) = (self.rows.owner_of_row(a), self.rows.owner_of_row(b));
                    found.push(Collision { a: a.min(b), b: a.max(b), similarity: exact });
                }
            }
        }
    }
}
