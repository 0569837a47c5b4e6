//! Vectors: products, cosines and means.
//!
//! What is reported is summed in `f64`. What only finds candidates is summed in whole numbers: half
//! as much to read as `f32`, nothing rounded on the way, and off by no more than [`slack`].

/// Sums that run side by side, so that none waits for the one before it.
const LANES: usize = 8;
/// What 1 is in whole numbers.
const ONE: f64 = 32_767.0;
/// Whole numbers come in runs of so many, with zeros behind the last: no loop has a rest.
const RUN: usize = 32;

/// A vector that others are compared with.
#[derive(Clone, Debug)]
pub(super) struct Compared {
    numbers: Vec<f32>,
    norm: f64,
    whole: Vec<i16>,
}

impl Compared {
    pub(super) fn new(numbers: Vec<f32>) -> Self {
        let (norm, mut whole) = (norm(&numbers), Vec::new());
        append_whole(&numbers, norm, &mut whole);
        Self { numbers, norm, whole }
    }

    /// Returns how many numbers there are.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the cosine to a vector whose length is known.
    pub(super) fn cosine(&self, other: &[f32], norm: f64) -> f64 {
        let norms = self.norm * norm;
        if norms > 0.0 { dot(&self.numbers, other) / norms } else { 0.0 }
    }

    /// Returns the cosine to a vector in whole numbers, off by [`slack`] at most.
    #[expect(clippy::inline_always, reason = "it is all that a scan of all vectors does")]
    #[inline(always)]
    pub(super) fn quick_cosine(&self, whole: &[i16]) -> f32 {
        quick_cosine(&self.whole, whole)
    }
}

/// Returns the dot product, exactly enough to be reported.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0_f64; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += f64::from(*a) * f64::from(*b);
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| f64::from(*a) * f64::from(*b));
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}

/// Returns the length of a vector.
pub(super) fn norm(a: &[f32]) -> f64 {
    dot(a, a).sqrt()
}

/// Returns the cosine; that of a vector without length is 0.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let norms = norm(a) * norm(b);
    if norms > 0.0 { dot(a, b) / norms } else { 0.0 }
}

/// Returns the plain mean, which is not of length 1; nothing where there is nothing.
pub(super) fn mean<'a>(vectors: impl ExactSizeIterator<Item = &'a [f32]>) -> Option<Vec<f32>> {
    let count = vectors.len();
    let mut sums: Vec<f64> = Vec::new();
    for vector in vectors {
        sums.resize(vector.len(), 0.0);
        for (sum, it) in sums.iter_mut().zip(vector) {
            *sum += f64::from(*it);
        }
    }
    let count = u32::try_from(count).map(f64::from).ok().filter(|it| *it > 0.0)?;
    Some(sums.into_iter().map(|it| narrow(it / count)).collect())
}

/// Returns how many whole numbers a vector takes.
pub(super) fn width(dimensions: usize) -> usize {
    dimensions.next_multiple_of(RUN)
}

/// Appends a vector at length 1, in whole numbers, [`width`] of them.
pub(super) fn append_whole(vector: &[f32], norm: f64, to: &mut Vec<i16>) {
    let scale = if norm > 0.0 { ONE / norm } else { 0.0 };
    let end = to.len() + width(vector.len());
    to.extend(vector.iter().map(|it| round(f64::from(*it) * scale)));
    to.resize(end, 0);
}

/// Returns the cosine of two vectors in whole numbers, off by [`slack`] at most.
#[expect(clippy::inline_always, reason = "it is all that a scan of all vectors does")]
#[inline(always)]
pub(super) fn quick_cosine(a: &[i16], b: &[i16]) -> f32 {
    // Both have length 1, so that no sum of products is larger than the square of `ONE` (and what
    // rounding adds): it fits.
    let product = |(a, b): (&i16, &i16)| i32::from(*a).wrapping_mul(i32::from(*b));
    let sum = a.iter().zip(b).map(product).fold(0, i32::wrapping_add);
    narrow(f64::from(sum) / (ONE * ONE))
}

/// Returns how far a quick cosine may be off: each number by half of one of [`ONE`], on both sides
/// (by Cauchy and Schwarz), and what an `f32` rounds.
pub(super) fn slack(dimensions: usize) -> f64 {
    let numbers = u32::try_from(dimensions).map_or(f64::MAX, f64::from);
    1.01 * numbers.sqrt() / ONE + 1e-6
}

#[expect(clippy::cast_possible_truncation, reason = "a vector keeps what an `f32` can hold")]
fn narrow(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::cast_possible_truncation, reason = "it is between -`ONE` and `ONE`")]
fn round(value: f64) -> i16 {
    value.round() as i16
}
