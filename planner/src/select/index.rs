//! The index of tools. Only changed tools are indexed again.

use std::{collections::BTreeMap, sync::Arc};

use shared::{
    id::{ToolName, ToolSetName},
    tool::ToolDefinition,
};

use super::{
    collision::{self, Collision, Similarity, TooManyPairs},
    lexical::{Lexical, description_without_name},
    rows::Rows,
    vector,
};
use crate::embed::{EmbedError, Embedder};

/// Number of texts in one batch. A batch of this size keeps a model busy and does not need all
/// texts in memory.
const BATCH_TEXTS: usize = 4_096;

/// The index of the last tools. Each part keeps the tools that it was made for.
#[derive(Debug, Default)]
pub(super) struct Index {
    words: Option<IndexPart<Lexical>>,
    descriptions: Option<IndexPart<Rows>>,
    meanings: Option<IndexPart<Rows>>,
    centroids: Option<IndexPart<Centroids>>,
    positions: Option<IndexPart<BTreeMap<ToolName, usize>>>,
}

pub type Tools = Arc<[Arc<ToolDefinition>]>;

#[derive(Clone, Debug, PartialEq)]
pub struct Centroid {
    /// The mean, which is not normalized.
    pub mean: Vec<f32>,
    pub least_similar_index: usize,
    pub least_similar: f64,
}

impl Centroid {
    pub fn mean_of(examples: &[Vec<f32>]) -> Option<Self> {
        let first = examples.first()?;
        if examples.iter().any(|example| example.len() != first.len()) {
            return None;
        }
        let mean = vector::mean_vector(examples.iter().map(Vec::as_slice))?;
        let cosines = examples.iter().map(|example| vector::cosine(example, &mean)).enumerate();
        let (least_similar_index, least_similar) = cosines.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(Self { mean, least_similar_index, least_similar })
    }
}

#[derive(Debug)]
struct IndexPart<T> {
    tools: Tools,
    entries: Arc<T>,
}

#[derive(Clone, Debug, Default)]
pub struct Centroids {
    pub(super) rows: Rows,
    least_similar_index: Vec<(usize, f64)>,
}

impl Index {
    pub(super) fn positions(&mut self, tools: &Tools) -> Arc<BTreeMap<ToolName, usize>> {
        if let Ok(positions) = IndexPart::current_or_earlier(self.positions.as_ref(), tools) {
            return positions;
        }
        let positions =
            tools.iter().enumerate().map(|(index, tool)| (tool.qualified_name(), index));
        IndexPart::keep_part(&mut self.positions, tools, positions.collect())
    }

    pub(super) fn words(&mut self, tools: &Tools) -> Arc<Lexical> {
        let earlier = match IndexPart::current_or_earlier(self.words.as_ref(), tools) {
            Ok(words) => return words,
            Err(earlier) => earlier,
        };
        let words = Lexical::new(tools, |index| {
            let (words, before) = earlier.find(index)?;
            Some(words.document(before))
        });
        IndexPart::keep_part(&mut self.words, tools, words)
    }

    /// Returns the vectors of descriptions. A blank description has no vector.
    pub(super) async fn descriptions(
        &mut self,
        tools: &Tools,
        embedder: &dyn Embedder,
    ) -> Result<Arc<Rows>, EmbedError> {
        let text = |tool: &ToolDefinition| tool.description.clone();
        text_rows(&mut self.descriptions, tools, embedder, text).await
    }

    pub(super) async fn meanings(
        &mut self,
        tools: &Tools,
        embedder: &dyn Embedder,
    ) -> Result<Arc<Rows>, EmbedError> {
        let text = |tool: &ToolDefinition| match description_without_name(tool).trim_end() {
            "" => tool.name.to_string(),
            description => format!("{}: {description}", tool.name),
        };
        text_rows(&mut self.meanings, tools, embedder, text).await
    }

    pub(super) async fn centroids(
        &mut self,
        tools: &Tools,
        embedder: &dyn Embedder,
    ) -> Result<Arc<Centroids>, EmbedError> {
        let earlier = match IndexPart::current_or_earlier(self.centroids.as_ref(), tools) {
            Ok(centroids) => return Ok(centroids),
            Err(earlier) => earlier,
        };
        let mut centroids: Vec<Option<Centroid>> = Vec::with_capacity(tools.len());
        let mut wanted = Vec::new();
        for (index, tool) in tools.iter().enumerate() {
            let entries = earlier.find(index).and_then(|(centroids, before)| centroids.get(before));
            if entries.is_none() && list_examples(tool).next().is_some() {
                wanted.push(index);
            }
            centroids.push(entries);
        }
        for positions in text_batches(&wanted, |index| list_examples(&tools[index]).count()) {
            let texts: Vec<&str> =
                positions.iter().flat_map(|tool| list_examples(&tools[*tool])).collect();
            let mut vectors = embed_all(embedder, &texts).await?.into_iter();
            for index in positions {
                let count = list_examples(&tools[*index]).count();
                let tool_vectors: Vec<Vec<f32>> = vectors.by_ref().take(count).collect();
                centroids[*index] = Centroid::mean_of(&tool_vectors);
            }
        }
        let centroids = Centroids::new(&centroids);
        Ok(IndexPart::keep_part(&mut self.centroids, tools, centroids))
    }
}

async fn text_rows(
    part: &mut Option<IndexPart<Rows>>,
    tools: &Tools,
    embedder: &dyn Embedder,
    text: impl Fn(&ToolDefinition) -> String,
) -> Result<Arc<Rows>, EmbedError> {
    let earlier = match IndexPart::current_or_earlier(part.as_ref(), tools) {
        Ok(rows) => return Ok(rows),
        Err(earlier) => earlier,
    };
    let mut vectors: Vec<Option<Vec<f32>>> = Vec::with_capacity(tools.len());
    let mut wanted = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let entries = earlier.find(index).and_then(|(rows, before)| rows.vector_of(before));
        if entries.is_none() {
            wanted.push((index, text(tool)));
        }
        vectors.push(entries.map(<[f32]>::to_vec));
    }
    wanted.retain(|(_, text)| !text.trim().is_empty());
    for some in wanted.chunks(BATCH_TEXTS) {
        let texts: Vec<&str> = some.iter().map(|entry| entry.1.as_str()).collect();
        for ((index, _), vector) in some.iter().zip(embed_all(embedder, &texts).await?) {
            vectors[*index] = Some(vector);
        }
    }
    let vectors =
        vectors.iter().enumerate().filter_map(|(index, vector)| Some((index, vector.as_deref()?)));
    let rows = Rows::new(vectors);
    Ok(IndexPart::keep_part(part, tools, rows))
}

impl<T> IndexPart<T> {
    /// Returns the part if it belongs to these tools. Otherwise returns the entries that can be
    /// reused.
    fn current_or_earlier<'a>(
        part: Option<&'a Self>,
        tools: &Tools,
    ) -> Result<Arc<T>, EarlierEntries<'a, T>> {
        let Some(part) = part else {
            return Err(EarlierEntries { entries: None, positions: Vec::new() });
        };
        let has_same = || {
            part.tools.len() == tools.len()
                && part.tools.iter().zip(&**tools).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        if Arc::ptr_eq(&part.tools, tools) || has_same() {
            return Ok(Arc::clone(&part.entries));
        }
        let names: BTreeMap<Key<'_>, usize> =
            part.tools.iter().enumerate().map(|(index, tool)| (tool_key(tool), index)).collect();
        let place = |tool: &Arc<ToolDefinition>| {
            let index = *names.get(&tool_key(tool))?;
            is_same_definition(&part.tools[index], tool).then_some(index)
        };
        Err(EarlierEntries {
            entries: Some(&part.entries),
            positions: tools.iter().map(place).collect(),
        })
    }

    fn keep_part(part: &mut Option<Self>, tools: &Tools, entries: T) -> Arc<T> {
        let entries = Arc::new(entries);
        *part = Some(Self { tools: Arc::clone(tools), entries: Arc::clone(&entries) });
        entries
    }
}

struct EarlierEntries<'a, T> {
    entries: Option<&'a T>,
    positions: Vec<Option<usize>>,
}

impl<'a, T> EarlierEntries<'a, T> {
    fn find(&self, index: usize) -> Option<(&'a T, usize)> {
        Some((self.entries?, (*self.positions.get(index)?)?))
    }
}

impl Centroids {
    fn new(centroids: &[Option<Centroid>]) -> Self {
        let centroids = centroids
            .iter()
            .enumerate()
            .filter_map(|(index, centroid)| Some((index, centroid.as_ref()?)));
        let rows =
            Rows::new(centroids.clone().map(|(index, centroid)| (index, centroid.mean.as_slice())));
        // Skips the centroids that `Rows` left out, because their vectors have another length.
        let mut owners = rows.owners().iter().peekable();
        let kept = centroids.filter(|(index, _)| owners.next_if(|owner| *owner == index).is_some());
        Self {
            least_similar_index: kept
                .map(|(_, centroid)| (centroid.least_similar_index, centroid.least_similar))
                .collect(),
            rows,
        }
    }

    /// Returns every pair of tools whose centroids are at least this similar, in the order of the
    /// tools. `is_allowed` filters the tools. With many tools this takes seconds.
    pub fn collisions(
        &self,
        similarity: Similarity,
        threshold: f64,
        is_allowed: impl Fn(usize) -> bool,
    ) -> Result<Vec<Collision>, TooManyPairs> {
        collision::similar_pairs(&self.rows, similarity, threshold, is_allowed)
    }

    pub(super) fn get(&self, owner: usize) -> Option<Centroid> {
        let row = self.rows.row_of_owner(owner)?;
        let (least_similar_index, least_similar) = self.least_similar_index[row];
        Some(Centroid { mean: self.rows.row(row).to_vec(), least_similar_index, least_similar })
    }

    pub(super) fn least_similar_index(&self, owner: usize) -> Option<(usize, f64)> {
        self.rows.row_of_owner(owner).map(|row| self.least_similar_index[row])
    }
}

type Key<'a> = (&'a ToolSetName, &'a ToolName);

fn tool_key(tool: &ToolDefinition) -> Key<'_> {
    (&tool.set, &tool.name)
}

fn is_same_definition(a: &Arc<ToolDefinition>, b: &Arc<ToolDefinition>) -> bool {
    Arc::ptr_eq(a, b)
        || (a.description == b.description
            && a.examples == b.examples
            && a.input_schema == b.input_schema)
}

pub(super) fn list_examples(tool: &ToolDefinition) -> impl Iterator<Item = &str> {
    tool.examples.iter().map(String::as_str).filter(|example| !example.trim().is_empty())
}

fn text_batches(positions: &[usize], texts: impl Fn(usize) -> usize) -> Vec<&[usize]> {
    let (mut batches, mut start, mut count) = (Vec::new(), 0, 0);
    for (end, index) in positions.iter().enumerate() {
        count += texts(*index);
        if count >= BATCH_TEXTS {
            batches.push(&positions[start..=end]);
            (start, count) = (end + 1, 0);
        }
    }
    if start < positions.len() {
        batches.push(&positions[start..]);
    }
    batches
}

pub(super) async fn embed_all(
    embedder: &dyn Embedder,
    texts: &[&str],
) -> Result<Vec<Vec<f32>>, EmbedError> {
    let vectors = embedder.embed(texts).await?;
    if vectors.len() != texts.len() {
        let reason = format!("it gave {} vectors for {} texts", vectors.len(), texts.len());
        return Err(EmbedError::Model { model: embedder.model().to_owned(), reason });
    }
    Ok(vectors)
}
