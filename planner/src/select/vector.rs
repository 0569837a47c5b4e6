//! Vectors: products, cosines and means.
//!
//! What is reported is summed in `f64`, so that it does not depend on the order of a sum; what only
//! finds candidates is summed in `f32`, many lanes at a time.

/// Sums that run side by side: two registers of eight.
const LANES: usize = 16;

/// Returns the dot product, exactly enough to be reported.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

/// Returns the length of a vector.
pub(super) fn norm(a: &[f32]) -> f64 {
    dot(a, a).sqrt()
}

/// Returns the cosine; that of a vector without length is 0.
pub(super) fn cosine(a: &[f32], b: &[f32]) -> f64 {
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

/// Returns the vector at length 1; one without length stays as it is.
pub(super) fn unit(vector: &[f32]) -> Vec<f32> {
    let norm = norm(vector);
    if norm <= 0.0 {
        return vector.to_vec();
    }
    vector.iter().map(|it| narrow(f64::from(*it) / norm)).collect()
}

/// Returns the dot product as fast as the machine can sum.
#[expect(clippy::inline_always, reason = "it is all that a scan of all vectors does")]
#[inline(always)]
pub(super) fn quick_dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let (mut xs, mut ys) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (x, y) in xs.by_ref().zip(ys.by_ref()) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let rest: f32 = xs.remainder().iter().zip(ys.remainder()).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

#[expect(clippy::cast_possible_truncation, reason = "a vector keeps what an `f32` can hold")]
fn narrow(value: f64) -> f32 {
    value as f32
}
