//! Lexical scores: BM25 over name, description, parameter names and examples.
//!
//! Robertson and Zaragoza, “The Probabilistic Relevance Framework: BM25 and Beyond” (2009).
//! Weighted fields are added up before saturation, as in the BM25F of this paper.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use shared::tool::ToolDefinition;

use super::words;

const SATURATION: f32 = 1.2;
const LENGTH_PENALTY: f32 = 0.75;
/// The weight of words in names. It is the highest, because names are short and precise.
const NAME_WEIGHT: f32 = 2.0;
const DESCRIPTION_WEIGHT: f32 = 1.0;
/// The weight of words in parameters. It is low, because queries rarely contain them.
const PARAMETER_WEIGHT: f32 = 0.5;
/// The weight of words in examples. It is low, although examples resemble queries, because a tool
/// has many examples.
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
    /// The tools whose documents have the word, each with the weight of the word.
    postings: Vec<Posting>,
    /// The tools whose names have the word, each with the share of the word in the name.
    names: Vec<Posting>,
}

type Posting = (u32, f32);

impl Lexical {
    pub(super) fn new(
        tools: &[Arc<ToolDefinition>],
        find_known: impl Fn(usize) -> Option<Arc<Document>>,
    ) -> Self {
        let read = |(index, tool): (usize, &Arc<ToolDefinition>)| {
            find_known(index).unwrap_or_else(|| Arc::new(Document::read(tool)))
        };
        let documents: Vec<Arc<Document>> = tools.iter().enumerate().map(read).collect();
        let total: f32 = documents.iter().map(|document| document.length).sum();
        let mean = (total / to_f32(documents.len())).max(f32::MIN_POSITIVE);
        let mut words: BTreeMap<String, Word> = BTreeMap::new();
        for (index, document) in (0_u32..).zip(&documents) {
            let room =
                SATURATION * (1.0 - LENGTH_PENALTY + LENGTH_PENALTY * document.length / mean);
            for (word, frequency) in &document.words {
                let weight = frequency * (SATURATION + 1.0) / (frequency + room);
                if let Some(known_word) = words.get_mut(word) {
                    known_word.postings.push((index, weight));
                } else {
                    let postings = vec![(index, weight)];
                    words.insert(word.clone(), Word { postings, ..Word::default() });
                }
            }
        }
        for word in words.values_mut() {
            let (all, have) = (to_f32(documents.len()), to_f32(word.postings.len()));
            word.weight = (1.0 + (all - have + 0.5) / (have + 0.5)).ln();
            for (_, weight) in &mut word.postings {
                *weight *= word.weight;
            }
        }
        let mut lexical = Self { documents, words };
        lexical.weigh_names();
        lexical
    }

    fn weigh_names(&mut self) {
        let Self { documents, words } = self;
        for (index, document) in (0_u32..).zip(&*documents) {
            let weight = |word: &String| words.get(word).map_or(0.0, |entry| entry.weight);
            let total: f32 = document.name.iter().map(weight).sum();
            for word in &document.name {
                if let Some(word) = words.get_mut(word).filter(|_| total > 0.0) {
                    word.names.push((index, word.weight / total));
                }
            }
        }
    }

    pub(super) fn document(&self, index: usize) -> Arc<Document> {
        Arc::clone(&self.documents[index])
    }

    pub(super) fn score_tools(&self, query: &str) -> Vec<f32> {
        self.score_words(&query_words(query))
    }

    pub(super) fn score_tools_and_names(&self, query: &str) -> (Vec<f32>, Vec<f32>) {
        let query_words = query_words(query);
        let mut shares = vec![0.0; self.documents.len()];
        for word in query_words.keys().filter_map(|word| self.words.get(word)) {
            add_postings(&word.names, 1.0, &mut shares);
        }
        (self.score_words(&query_words), shares)
    }

    fn score_words(&self, query_words: &BTreeMap<String, f32>) -> Vec<f32> {
        let mut scores = vec![0.0; self.documents.len()];
        for (word, factor) in query_words {
            if let Some(word) = self.words.get(word) {
                add_postings(&word.postings, *factor, &mut scores);
            }
        }
        scores
    }
}

fn add_postings(postings: &[Posting], factor: f32, scores: &mut [f32]) {
    for (index, weight) in postings {
        if let Some(sum) = scores.get_mut(*index as usize) {
            *sum += factor * weight;
        }
    }
}

fn query_words(query: &str) -> BTreeMap<String, f32> {
    let mut query_words = BTreeMap::new();
    for word in words::stem_words(query) {
        *query_words.entry(word).or_default() += 1.0;
    }
    query_words
}

impl Document {
    fn read(tool: &ToolDefinition) -> Self {
        let mut document = Self::default();
        let mut name = words::stem_words(tool.name.as_str());
        document.add_words(name.clone(), NAME_WEIGHT);
        name.sort_unstable();
        name.dedup();
        document.name = name;
        document.add_words(words::stem_words(description_without_name(tool)), DESCRIPTION_WEIGHT);
        for name in parameter_names(&tool.input_schema) {
            document.add_words(words::stem_words(name), PARAMETER_WEIGHT);
        }
        for example in tool.examples.iter().take(MAX_EXAMPLES) {
            document.add_words(words::stem_words(example), EXAMPLE_WEIGHT);
        }
        document
    }

    fn add_words(&mut self, words: Vec<String>, weight: f32) {
        for word in words {
            self.length += weight;
            *self.words.entry(word).or_default() += weight;
        }
    }
}

pub(super) fn description_without_name(tool: &ToolDefinition) -> &str {
    let described = tool.description.strip_prefix(tool.name.as_str());
    let described = described.and_then(|rest| rest.strip_prefix(':'));
    described.unwrap_or(&tool.description).trim_start()
}

fn parameter_names(schema: &Value) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(|(name, _)| name.as_str()).take(MAX_PARAMETERS)
}

#[expect(clippy::cast_precision_loss, reason = "there are fewer tools than an `f32` can count")]
fn to_f32(of: usize) -> f32 {
    of as f32
}
