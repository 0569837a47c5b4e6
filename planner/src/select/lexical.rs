//! Lexical scores: BM25 over name, description, parameter names and examples.
//!
//! Robertson and Zaragoza, “The Probabilistic Relevance Framework: BM25 and Beyond” (2009).
//! Weighted fields are added up before saturation, as in its BM25F.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use shared::tool::ToolDefinition;

use super::words;

/// Limits the weight of a repeated word.
const SATURATION: f32 = 1.2;
/// The penalty of long documents.
const LENGTH_PENALTY: f32 = 0.75;
/// Names are short and precise.
const NAME_WEIGHT: f32 = 2.0;
const DESCRIPTION_WEIGHT: f32 = 1.0;
/// The weight of parameters. Queries rarely name them.
const PARAMETER_WEIGHT: f32 = 0.5;
/// Examples resemble queries.
const EXAMPLE_WEIGHT: f32 = 0.5;
const MAX_PARAMETERS: usize = 256;
const MAX_EXAMPLES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Document {
    words: BTreeMap<String, f32>,
    length: f32,
    name: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Lexical {
    documents: Vec<Arc<Document>>,
    words: BTreeMap<String, Word>,
}

#[derive(Debug, Default)]
struct Word {
    weight: f32,
    /// The tools with the word, and its weight for each.
    postings: Vec<Posting>,
    /// The tools with the word in their names, and its share of each name.
    names: Vec<Posting>,
}

/// The place of a tool, and a number. Small types, because a common word has an entry for every
/// tool.
type Posting = (u32, f32);

impl Lexical {
    pub(super) fn new(
        tools: &[Arc<ToolDefinition>],
        known: impl Fn(usize) -> Option<Arc<Document>>,
    ) -> Self {
        let read = |(at, tool): (usize, &Arc<ToolDefinition>)| {
            known(at).unwrap_or_else(|| Arc::new(Document::read(tool)))
        };
        let documents: Vec<Arc<Document>> = tools.iter().enumerate().map(read).collect();
        let total: f32 = documents.iter().map(|document| document.length).sum();
        let mean = (total / to_real(documents.len())).max(f32::MIN_POSITIVE);
        let mut words: BTreeMap<String, Word> = BTreeMap::new();
        for (at, document) in (0_u32..).zip(&documents) {
            let room =
                SATURATION * (1.0 - LENGTH_PENALTY + LENGTH_PENALTY * document.length / mean);
            for (word, frequency) in &document.words {
                let said = frequency * (SATURATION + 1.0) / (frequency + room);
                if let Some(known) = words.get_mut(word) {
                    known.postings.push((at, said));
                } else {
                    let postings = vec![(at, said)];
                    words.insert(word.clone(), Word { postings, ..Word::default() });
                }
            }
        }
        for word in words.values_mut() {
            let (all, have) = (to_real(documents.len()), to_real(word.postings.len()));
            word.weight = (1.0 + (all - have + 0.5) / (have + 0.5)).ln();
            for (_, said) in &mut word.postings {
                *said *= word.weight;
            }
        }
        let mut lexical = Self { documents, words };
        lexical.weigh_names();
        lexical
    }

    /// Computes the share of each word in each name, by the words' weights.
    fn weigh_names(&mut self) {
        let Self { documents, words } = self;
        for (at, document) in (0_u32..).zip(&*documents) {
            let weight = |word: &String| words.get(word).map_or(0.0, |entry| entry.weight);
            let total: f32 = document.name.iter().map(weight).sum();
            for word in &document.name {
                if let Some(word) = words.get_mut(word).filter(|_| total > 0.0) {
                    word.names.push((at, word.weight / total));
                }
            }
        }
    }

    pub(super) fn document(&self, at: usize) -> Arc<Document> {
        Arc::clone(&self.documents[at])
    }

    pub(super) fn scores(&self, query: &str) -> Vec<f32> {
        self.score_words(&query_words(query))
    }

    /// Returns the same scores, and the share of each tool's name that the query contains.
    pub(super) fn scores_and_names(&self, query: &str) -> (Vec<f32>, Vec<f32>) {
        let asked = query_words(query);
        let mut shares = vec![0.0; self.documents.len()];
        for word in asked.keys().filter_map(|word| self.words.get(word)) {
            add(&word.names, 1.0, &mut shares);
        }
        (self.score_words(&asked), shares)
    }

    fn score_words(&self, asked: &BTreeMap<String, f32>) -> Vec<f32> {
        let mut scores = vec![0.0; self.documents.len()];
        for (word, times) in asked {
            if let Some(word) = self.words.get(word) {
                add(&word.postings, *times, &mut scores);
            }
        }
        scores
    }
}

/// Adds the postings of a word, times `times`, to the scores.
fn add(postings: &[Posting], times: f32, to: &mut [f32]) {
    for (at, said) in postings {
        if let Some(sum) = to.get_mut(*at as usize) {
            *sum += times * said;
        }
    }
}

/// Returns the words of a query and their frequencies.
fn query_words(query: &str) -> BTreeMap<String, f32> {
    let mut asked = BTreeMap::new();
    for word in words::of(query) {
        *asked.entry(word).or_default() += 1.0;
    }
    asked
}

impl Document {
    fn read(tool: &ToolDefinition) -> Self {
        let mut document = Self::default();
        let mut name = words::of(tool.name.as_str());
        document.add(name.clone(), NAME_WEIGHT);
        name.sort_unstable();
        name.dedup();
        document.name = name;
        document.add(words::of(description(tool)), DESCRIPTION_WEIGHT);
        for name in parameter_names(&tool.input_schema) {
            document.add(words::of(name), PARAMETER_WEIGHT);
        }
        for example in tool.examples.iter().take(MAX_EXAMPLES) {
            document.add(words::of(example), EXAMPLE_WEIGHT);
        }
        document
    }

    fn add(&mut self, words: Vec<String>, weight: f32) {
        for word in words {
            self.length += weight;
            *self.words.entry(word).or_default() += weight;
        }
    }
}

/// Returns a tool's description without the tool's name at its beginning.
pub(super) fn description(tool: &ToolDefinition) -> &str {
    let described = tool.description.strip_prefix(tool.name.as_str());
    let described = described.and_then(|rest| rest.strip_prefix(':'));
    described.unwrap_or(&tool.description).trim_start()
}

fn parameter_names(schema: &Value) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(|(name, _)| name.as_str()).take(MAX_PARAMETERS)
}

#[expect(clippy::cast_precision_loss, reason = "there are fewer tools than an `f32` can count")]
fn to_real(of: usize) -> f32 {
    of as f32
}
