//! What is known of a tool by the vectors of its texts.

use super::vector;

/// The middle of a tool's examples.
#[derive(Clone, Debug, PartialEq)]
pub struct Centroid {
    /// Their plain mean, which is not of length 1.
    pub mean: Vec<f32>,
    /// The example that is least similar to it, by its place.
    pub least: usize,
    /// The cosine of that example and the mean.
    pub least_similar: f64,
}

impl Centroid {
    /// Returns the middle of the vectors of examples; nothing where there are none, or where they
    /// are not all of one length.
    pub fn of(examples: &[Vec<f32>]) -> Option<Self> {
        let first = examples.first()?;
        if examples.iter().any(|it| it.len() != first.len()) {
            return None;
        }
        let mean = vector::mean(examples.iter().map(Vec::as_slice))?;
        let cosines = examples.iter().map(|it| vector::cosine(it, &mean)).enumerate();
        let (least, least_similar) = cosines.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Self { mean, least, least_similar })
    }
}
