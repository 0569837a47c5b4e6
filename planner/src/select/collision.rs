//! Which tools are wanted by the same sentences.

use super::{rows::Rows, vector};

/// Rows of a block: two blocks of 64 vectors stay in the processor's second cache.
const BLOCK: usize = 64;
/// The most pairs that are reported: nobody reads more, and a threshold near 0 gives all of them.
pub const COLLISIONS: usize = 100_000;
/// How far a quick product may be off.
const QUICK: f64 = 1e-4;

/// Two tools that are wanted by the same sentences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Collision {
    /// The place of the earlier tool.
    pub a: usize,
    /// The place of the later one.
    pub b: usize,
    /// How similar their centroids are.
    pub similarity: f64,
}

/// How two centroids are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Similarity {
    /// The product of the two means, as they are: what scatters collides less.
    #[default]
    Dot,
    /// Their cosine.
    Cosine,
}

/// More pairs than anybody reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {COLLISIONS} pairs of tools are that similar: ask for a higher `threshold`")]
pub struct TooManyPairs;

impl Similarity {
    fn of(self, a: &[f32], b: &[f32]) -> f64 {
        match self {
            Self::Dot => vector::dot(a, b),
            Self::Cosine => vector::cosine(a, b),
        }
    }
}

/// Returns every pair of rows whose similarity is at least `threshold`, of tools that `may` take
/// part: in the order of the earlier tool, then of the later one.
pub(super) fn pairs(
    rows: &Rows,
    similarity: Similarity,
    threshold: f64,
    may: impl Fn(usize) -> bool,
) -> Result<Vec<Collision>, TooManyPairs> {
    let taking_part: Vec<usize> = (0..rows.len()).filter(|it| may(rows.owner(*it))).collect();
    let norms: Vec<f64> = taking_part.iter().map(|it| vector::norm(rows.row(*it))).collect();
    let side = Side { rows, taking_part: &taking_part, norms: &norms };
    let mut found = Vec::new();
    for first in (0..taking_part.len()).step_by(BLOCK) {
        for second in (first..taking_part.len()).step_by(BLOCK) {
            side.block(first, second, similarity, threshold, &mut found);
            if found.len() > COLLISIONS {
                return Err(TooManyPairs);
            }
        }
    }
    found.sort_by_key(|it| (it.a, it.b));
    Ok(found)
}

/// What takes part.
struct Side<'a> {
    rows: &'a Rows,
    taking_part: &'a [usize],
    norms: &'a [f64],
}

impl Side<'_> {
    /// Compares two blocks quickly, and what may be similar enough exactly.
    fn block(
        &self,
        first: usize,
        second: usize,
        similarity: Similarity,
        threshold: f64,
        found: &mut Vec<Collision>,
    ) {
        let end = |start: usize| (start + BLOCK).min(self.taking_part.len());
        for i in first..end(first) {
            let a = self.row(i);
            let from = second.max(i + 1);
            for (j, quick) in (from..end(second)).zip(self.products(a, from, end(second))) {
                let lengths = self.norms[i] * self.norms[j];
                let (quick, least) = match similarity {
                    Similarity::Dot => (f64::from(quick), threshold - QUICK * lengths.max(1.0)),
                    Similarity::Cosine => (f64::from(quick), (threshold - QUICK) * lengths),
                };
                if quick < least {
                    continue;
                }
                let exact = similarity.of(a, self.row(j));
                if exact >= threshold {
                    let (a, b) = (self.owner(i), self.owner(j));
                    found.push(Collision { a: a.min(b), b: a.max(b), similarity: exact });
                }
            }
        }
    }

    fn row(&self, at: usize) -> &[f32] {
        self.rows.row(self.taking_part[at])
    }

    fn owner(&self, at: usize) -> usize {
        self.rows.owner(self.taking_part[at])
    }

    /// Returns the products of a row and those from `from` to before `end`.
    fn products(&self, a: &[f32], from: usize, end: usize) -> Vec<f32> {
        (from..end).map(|it| vector::quick_dot(a, self.row(it))).collect()
    }
}
