//! Vectors: products, cosines and means. The search for candidates sums integers, which differ from
//! the reported numbers by at most [`slack`].

/// Number of independent sums, so that the processor computes them in parallel.
const PARALLEL_SUMS: usize = 8;
const SCALE: f64 = 32_767.0;
/// Length of a run of integers. Runs are padded with zeros, so no loop has a remainder.
const INTEGER_RUN_LEN: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct QueryVector {
    numbers: Vec<f32>,
    norm: f64,
    integers: Vec<i16>,
}

impl QueryVector {
    pub(super) fn new(numbers: Vec<f32>) -> Self {
        let (norm, mut integers) = (vector_norm(&numbers), Vec::new());
        append_integers(&numbers, norm, &mut integers);
        Self { numbers, norm, integers }
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn cosine(&self, other: &[f32], norm: f64) -> f64 {
        let norms = self.norm * norm;
        if norms > 0.0 { dot_product(&self.numbers, other) / norms } else { 0.0 }
    }

    /// Returns the cosine to an integer vector, with an error of at most [`slack`].
    #[expect(clippy::inline_always, reason = "a scan of all vectors spends its time here")]
    #[inline(always)]
    pub(super) fn quick_cosine(&self, integers: &[i16]) -> f32 {
        quick_cosine(&self.integers, integers)
    }
}

pub(super) fn dot_product(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0_f64; PARALLEL_SUMS];
    let ((a, a_rest), (b, b_rest)) =
        (a.as_chunks::<PARALLEL_SUMS>(), b.as_chunks::<PARALLEL_SUMS>());
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += f64::from(*a) * f64::from(*b);
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(a, b)| f64::from(*a) * f64::from(*b));
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}

pub(super) fn vector_norm(a: &[f32]) -> f64 {
    dot_product(a, a).sqrt()
}

pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let norms = vector_norm(a) * vector_norm(b);
    if norms > 0.0 { dot_product(a, b) / norms } else { 0.0 }
}

/// Returns the mean, which is not normalized. Returns `None` without vectors.
pub(super) fn mean_vector<'a>(
    vectors: impl ExactSizeIterator<Item = &'a [f32]>,
) -> Option<Vec<f32>> {
    let count = vectors.len();
    let mut sums: Vec<f64> = Vec::new();
    for vector in vectors {
        sums.resize(vector.len(), 0.0);
        for (sum, number) in sums.iter_mut().zip(vector) {
            *sum += f64::from(*number);
        }
    }
    let count = u32::try_from(count).map(f64::from).ok().filter(|count| *count > 0.0)?;
    Some(sums.into_iter().map(|sum| to_f32(sum / count)).collect())
}

pub(super) fn padded_width(dimensions: usize) -> usize {
    dimensions.next_multiple_of(INTEGER_RUN_LEN)
}

pub(super) fn append_integers(vector: &[f32], norm: f64, integers: &mut Vec<i16>) {
    let scale = if norm > 0.0 { SCALE / norm } else { 0.0 };
    let end = integers.len() + padded_width(vector.len());
    integers.extend(vector.iter().map(|number| to_integer(f64::from(*number) * scale)));
    integers.resize(end, 0);
}

/// Returns the cosine of two integer vectors, with an error of at most [`slack`].
#[expect(clippy::inline_always, reason = "a scan of all vectors spends its time here")]
#[inline(always)]
pub(super) fn quick_cosine(a: &[i16], b: &[i16]) -> f32 {
    // Both vectors have length 1, so no sum of products exceeds the square of `SCALE` plus the
    // rounding. This fits into 32 bits.
    let product = |(a, b): (&i16, &i16)| i32::from(*a).wrapping_mul(i32::from(*b));
    let sum = a.iter().zip(b).map(product).fold(0, i32::wrapping_add);
    to_f32(f64::from(sum) / (SCALE * SCALE))
}

/// Returns the maximum error of a quick cosine, by the inequality of Cauchy and Schwarz. Each
/// number of both vectors is rounded by at most half of 1 / [`SCALE`].
pub(super) fn slack(dimensions: usize) -> f64 {
    let numbers = u32::try_from(dimensions).map_or(f64::MAX, f64::from);
    1.01 * numbers.sqrt() / SCALE + 1e-6
}

#[expect(clippy::cast_possible_truncation, reason = "a vector keeps what an `f32` can hold")]
fn to_f32(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::cast_possible_truncation, reason = "the number is between -`SCALE` and `SCALE`")]
fn to_integer(value: f64) -> i16 {
    value.round() as i16
}
