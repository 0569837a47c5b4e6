//! Similarity of texts to a question by TF-IDF (Salton and Buckley 1988). No model is needed.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WordIndex {
    /// For each word: its rarity, and its weight in each text that contains the word.
    occurrences: BTreeMap<String, (f64, Vec<(usize, f64)>)>,
    text_count: usize,
}

impl WordIndex {
    pub(super) fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let counted: Vec<BTreeMap<String, f64>> = texts.map(weigh_words).collect();
        let mut occurrences: BTreeMap<String, (f64, Vec<(usize, f64)>)> = BTreeMap::new();
        for (index, words) in counted.iter().enumerate() {
            for (word, count) in words {
                occurrences.entry(word.clone()).or_default().1.push((index, *count));
            }
        }
        for (rarity, found) in occurrences.values_mut() {
            *rarity = word_rarity(found.len(), counted.len());
        }
        let mut lengths = vec![0.0_f64; counted.len()];
        for (rarity, found) in occurrences.values() {
            for (index, count) in found {
                lengths[*index] += (count * rarity).powi(2);
            }
        }
        for (rarity, found) in occurrences.values_mut() {
            for (index, count) in found {
                *count *= *rarity / lengths[*index].sqrt();
            }
        }
        Self { occurrences, text_count: counted.len() }
    }

    /// Returns the texts that share a word with the question, with their similarity from 0 to 1.
    /// The most similar text comes first.
    pub(super) fn nearest(&self, question: &str) -> Vec<(usize, f64)> {
        let (mut sums, mut length) = (vec![0.0_f64; self.text_count], 0.0_f64);
        let mut matching_texts = BTreeSet::new();
        for (word, count) in weigh_words(question) {
            let unknown = (word_rarity(0, self.text_count), Vec::new());
            let (rarity, found) = self.occurrences.get(&word).unwrap_or(&unknown);
            let weight = count * rarity;
            length += weight.powi(2);
            for (index, share) in found {
                sums[*index] += weight * share;
                matching_texts.insert(*index);
            }
        }
        let similarity = |index: usize| (sums[index] / length.sqrt()).clamp(0.0, 1.0);
        let mut nearest: Vec<(usize, f64)> =
            matching_texts.into_iter().map(|index| (index, similarity(index))).collect();
        nearest.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        nearest
    }
}

/// Returns the logarithm of each word's count, plus one.
fn weigh_words(text: &str) -> BTreeMap<String, f64> {
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
fn word_rarity(found: usize, texts: usize) -> f64 {
    1.0 + ((1 + texts) as f64 / (1 + found) as f64).ln()
}
