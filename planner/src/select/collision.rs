//! Collisions: pairs of tools with similar examples.

use super::{rows::Rows, vector};

/// Vectors of a block. A block fits into the processor's first cache and is read once for many
/// comparisons.
const BLOCK_LEN: usize = 32;
/// Maximum number of pairs that are reported. A threshold near 0 would return all pairs.
pub const COLLISIONS: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Collision {
    pub a: usize,
    pub b: usize,
    pub similarity: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Similarity {
    /// The product of the two means. Scattered examples collide less.
    #[default]
    Dot,
    Cosine,
}

/// There are more than [`COLLISIONS`] pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {COLLISIONS} pairs of tools are that similar: ask for a higher `threshold`")]
pub struct TooManyPairs;

impl Similarity {
    fn between(self, a: &[f32], b: &[f32]) -> f64 {
        match self {
            Self::Dot => vector::dot_product(a, b),
            Self::Cosine => vector::cosine(a, b),
        }
    }
}

/// Returns every pair of rows whose similarity is at least `threshold`, in the order of the tools.
/// `may` filters the tools.
pub(super) fn similar_pairs(
    rows: &Rows,
    similarity: Similarity,
    threshold: f64,
    may: impl Fn(usize) -> bool,
) -> Result<Vec<Collision>, TooManyPairs> {
    let taking_part: Vec<usize> = (0..rows.len()).filter(|row| may(rows.owner(*row))).collect();
    let side = Side { rows, taking_part: &taking_part, slack: rows.slack() };
    let mut found = Vec::new();
    for first in (0..taking_part.len()).step_by(BLOCK_LEN) {
        for second in (first..taking_part.len()).step_by(BLOCK_LEN) {
            side.compare_blocks(first, second, similarity, threshold, &mut found);
            if found.len() > COLLISIONS {
                return Err(TooManyPairs);
            }
        }
    }
    found.sort_by_key(|collision| (collision.a, collision.b));
    Ok(found)
}

/// One block of the vectors that are compared.
struct Side<'a> {
    rows: &'a Rows,
    taking_part: &'a [usize],
    slack: f64,
}

impl Side<'_> {
    /// Compares two blocks fast, and the candidates exactly.
    fn compare_blocks(
        &self,
        first: usize,
        second: usize,
        similarity: Similarity,
        threshold: f64,
        found: &mut Vec<Collision>,
    ) {
        let end = |start: usize| (start + BLOCK_LEN).min(self.taking_part.len());
        for i in first..end(first) {
            let (a, whole) = (self.taking_part[i], self.rows.whole(self.taking_part[i]));
            for j in second.max(i + 1)..end(second) {
                let b = self.taking_part[j];
                let quick = f64::from(vector::quick_cosine(whole, self.rows.whole(b)));
                let lengths = match similarity {
                    Similarity::Dot => self.rows.norm(a) * self.rows.norm(b),
                    Similarity::Cosine => 1.0,
                };
                if (quick + self.slack) * lengths < threshold {
                    continue;
                }
                let exact = similarity.between(self.rows.row(a), self.rows.row(b));
                if exact >= threshold {
                    let (a, b) = (self.rows.owner(a), self.rows.owner(b));
                    found.push(Collision { a: a.min(b), b: a.max(b), similarity: exact });
                }
            }
        }
    }
}
