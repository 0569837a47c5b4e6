//! Tools by their words: BM25 over name, description, parameter names and examples.
//!
//! Robertson and Zaragoza, “The Probabilistic Relevance Framework: BM25 and Beyond” (2009); the
//! fields are added up with their weights before the frequency is damped, as in its BM25F.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use shared::tool::ToolDefinition;

use super::words;

/// How soon more of the same word stops counting.
const SATURATION: f32 = 1.2;
/// How much longer documents are held against.
const LENGTH: f32 = 0.75;
/// Names say in three words what descriptions say in thirty.
const NAME: f32 = 2.0;
/// What the description counts.
const DESCRIPTION: f32 = 1.0;
/// Parameters are told less often than they are meant.
const PARAMETER: f32 = 0.5;
/// Examples are what people say.
const EXAMPLE: f32 = 0.5;
/// The most parameter names of a tool that are read.
const PARAMETERS: usize = 256;
/// The most examples of a tool that are read.
const EXAMPLES: usize = 256;

/// The words of one tool, and how often it has each, by the weights of the fields.
#[derive(Debug, Default)]
pub(super) struct Document {
    words: BTreeMap<String, f32>,
    length: f32,
}

/// The words of tools.
#[derive(Debug, Default)]
pub(super) struct Lexical {
    documents: Vec<Arc<Document>>,
    words: BTreeMap<String, Word>,
}

/// What is known of a word.
#[derive(Debug, Default)]
struct Word {
    /// How much it tells.
    weight: f32,
    /// The tools that have it, and what it says for each.
    postings: Vec<(usize, f32)>,
}

impl Lexical {
    /// Reads tools. What is `known` of one by its place is not read again.
    pub(super) fn new(
        tools: &[Arc<ToolDefinition>],
        known: impl Fn(usize) -> Option<Arc<Document>>,
    ) -> Self {
        let read = |(at, tool): (usize, &Arc<ToolDefinition>)| {
            known(at).unwrap_or_else(|| Arc::new(Document::read(tool)))
        };
        let documents: Vec<Arc<Document>> = tools.iter().enumerate().map(read).collect();
        let total: f32 = documents.iter().map(|it| it.length).sum();
        let mean = (total / count(documents.len())).max(f32::MIN_POSITIVE);
        let mut words: BTreeMap<String, Word> = BTreeMap::new();
        for (at, document) in documents.iter().enumerate() {
            let room = SATURATION * (1.0 - LENGTH + LENGTH * document.length / mean);
            for (word, frequency) in &document.words {
                let said = frequency * (SATURATION + 1.0) / (frequency + room);
                match words.get_mut(word) {
                    Some(known) => known.postings.push((at, said)),
                    None => {
                        let first = Word { weight: 0.0, postings: vec![(at, said)] };
                        words.insert(word.clone(), first);
                    }
                }
            }
        }
        for word in words.values_mut() {
            let (all, have) = (count(documents.len()), count(word.postings.len()));
            word.weight = (1.0 + (all - have + 0.5) / (have + 0.5)).ln();
        }
        Self { documents, words }
    }

    /// Returns the words of a tool, by its place.
    pub(super) fn document(&self, at: usize) -> Arc<Document> {
        Arc::clone(&self.documents[at])
    }

    /// Returns what the words of a query say for each tool, by its place: 0 where nothing.
    pub(super) fn scores(&self, query: &str) -> Vec<f32> {
        let mut scores = vec![0.0; self.documents.len()];
        let mut asked: BTreeMap<String, f32> = BTreeMap::new();
        for word in words::of_text(query) {
            *asked.entry(word).or_default() += 1.0;
        }
        for (word, times) in asked {
            let Some(word) = self.words.get(&word) else { continue };
            for (at, said) in &word.postings {
                scores[*at] += word.weight * times * said;
            }
        }
        scores
    }
}

impl Document {
    fn read(tool: &ToolDefinition) -> Self {
        let mut document = Self::default();
        document.add(words::of_name(tool.name.as_str()), NAME);
        document.add(words::of_text(&tool.description), DESCRIPTION);
        for name in parameters(&tool.input_schema) {
            document.add(words::of_name(name), PARAMETER);
        }
        for example in tool.examples.iter().take(EXAMPLES) {
            document.add(words::of_text(example), EXAMPLE);
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

fn parameters(schema: &Value) -> impl Iterator<Item = &str> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().map(|(name, _)| name.as_str()).take(PARAMETERS)
}

#[expect(clippy::cast_precision_loss, reason = "there are fewer tools than an `f32` can count")]
fn count(of: usize) -> f32 {
    of as f32
}
