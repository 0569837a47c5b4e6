mod centroids;
mod growing;
mod hybrid;
mod properties;
mod words;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::{
    clock::Timestamp,
    id::ToolName,
    tool::{Effect, ToolDefinition},
};

use super::{Criterion, Match, Outcomes, SelectError, SelectionRequest, Selector, Tools};
use crate::embed::{EmbedError, Embedder};

#[derive(Debug, Default)]
struct KnownVectors {
    vectors: BTreeMap<&'static str, Vec<f32>>,
    asked_texts: Mutex<Vec<String>>,
    is_broken: AtomicBool,
}

impl KnownVectors {
    fn new(vectors: impl IntoIterator<Item = (&'static str, Vec<f32>)>) -> Arc<Self> {
        Arc::new(Self { vectors: vectors.into_iter().collect(), ..Self::default() })
    }

    fn take_embedded_texts(&self) -> Vec<String> {
        std::mem::take(&mut self.asked_texts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_broken(&self, is_broken: bool) {
        self.is_broken.store(is_broken, Ordering::SeqCst);
    }
}

#[async_trait]
impl Embedder for KnownVectors {
    fn model(&self) -> &'static str {
        "known"
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let failed = |reason: String| EmbedError::Model { model: "known".to_owned(), reason };
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(failed("it is broken".to_owned()));
        }
        let mut asked_texts = self.asked_texts.lock().unwrap_or_else(PoisonError::into_inner);
        asked_texts.extend(texts.iter().map(|text| (*text).to_owned()));
        let find = |text: &&str| match self.vectors.get(text) {
            Some(vector) => Ok(vector.clone()),
            None => Err(failed(format!("`{text}` is unknown"))),
        };
        texts.iter().map(find).collect()
    }
}

fn make_tool(name: &str, description: &str, examples: &[&str]) -> Arc<ToolDefinition> {
    tool_with_parameters(name, description, examples, &[])
}

fn tool_with_parameters(
    name: &str,
    description: &str,
    examples: &[&str],
    parameters: &[&str],
) -> Arc<ToolDefinition> {
    let properties: serde_json::Map<String, Value> =
        parameters.iter().map(|parameter| ((*parameter).to_owned(), json!({}))).collect();
    Arc::new(ToolDefinition {
        name: name.parse().unwrap(),
        set: "tools".parse().unwrap(),
        description: description.to_owned(),
        input_schema: json!({ "type": "object", "properties": properties }),
        output_schema: None,
        effect: Effect::Read,
        examples: examples.iter().map(|example| (*example).to_owned()).collect(),
        is_callable: true,
    })
}

fn list_tools(tools: impl IntoIterator<Item = Arc<ToolDefinition>>) -> Tools {
    tools.into_iter().collect()
}

fn selection_request(query: &str, by: Criterion) -> SelectionRequest<'_> {
    SelectionRequest { query, by, limit: 5, margin: 0.01, outcomes: None }
}

async fn select_tools(
    selector: &Selector,
    tools: &Tools,
    ask: &SelectionRequest<'_>,
) -> Vec<Match> {
    selector.select(tools, ask, |_| true).await.unwrap().matches
}

fn matched_names<'a>(tools: &'a Tools, matches: &[Match]) -> Vec<&'a str> {
    matches.iter().map(|found| tools[found.index].name.as_str()).collect()
}
