//! Similarity of texts to a question by TF-IDF (Salton and Buckley 1988).
//!
//! The similarity is the cosine of word vectors. The weight of a word is the logarithm of its
//! count, times its rarity. No model is needed, and results are equal on all machines.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Words {
    /// By word: its rarity, and its weight in each text that contains it.
    places: BTreeMap<String, (f64, Vec<(usize, f64)>)>,
    texts: usize,
}

impl Words {
    pub(super) fn of<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let counted: Vec<BTreeMap<String, f64>> = texts.map(counts).collect();
        let mut places: BTreeMap<String, (f64, Vec<(usize, f64)>)> = BTreeMap::new();
        for (at, words) in counted.iter().enumerate() {
            for (word, count) in words {
                places.entry(word.clone()).or_default().1.push((at, *count));
            }
        }
        for (rarity, found) in places.values_mut() {
            *rarity = rarity_of(found.len(), counted.len());
        }
        let mut lengths = vec![0.0_f64; counted.len()];
        for (rarity, found) in places.values() {
            for (at, count) in found {
                lengths[*at] += (count * rarity).powi(2);
            }
        }
        for (rarity, found) in places.values_mut() {
            for (at, count) in found {
                *count *= *rarity / lengths[*at].sqrt();
            }
        }
        Self { places, texts: counted.len() }
    }

    /// Returns the texts that share a word with the question, with their similarity from 0 to 1.
    /// The most similar text comes first.
    pub(super) fn nearest(&self, question: &str) -> Vec<(usize, f64)> {
        let (mut sums, mut length) = (vec![0.0_f64; self.texts], 0.0_f64);
        let mut met = BTreeSet::new();
        for (word, count) in counts(question) {
            let unknown = (rarity_of(0, self.texts), Vec::new());
            let (rarity, found) = self.places.get(&word).unwrap_or(&unknown);
            let weight = count * rarity;
            length += weight.powi(2);
            for (at, share) in found {
                sums[*at] += weight * share;
                met.insert(*at);
            }
        }
        let near = |at: usize| (sums[at] / length.sqrt()).clamp(0.0, 1.0);
        let mut nearest: Vec<(usize, f64)> = met.into_iter().map(|at| (at, near(at))).collect();
        nearest.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        nearest
    }
}

/// Returns the logarithm of each word's count, plus one.
fn counts(text: &str) -> BTreeMap<String, f64> {
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        *counts.entry(word.to_lowercase()).or_default() += 1.0;
    }
    for count in counts.values_mut() {
        *count = 1.0 + count.ln();
    }
    counts
}

#[expect(clippy::cast_precision_loss, reason = "far fewer than 2⁵²")]
fn rarity_of(found: usize, texts: usize) -> f64 {
    1.0 + ((1 + texts) as f64 / (1 + found) as f64).ln()
}
