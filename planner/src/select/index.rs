//! What is known of tools, made anew only where they changed.

use std::{collections::BTreeMap, sync::Arc};

use shared::{
    id::{ToolName, ToolSetName},
    tool::ToolDefinition,
};

use super::{lexical::Lexical, profile::Centroid, rows::Rows};
use crate::embed::{EmbedError, Embedder};

/// Texts that are embedded at a time: enough to keep a model busy, not all of them in memory.
const TEXTS: usize = 4_096;

/// What is known of the tools that were last asked about: each part of the tools as they were when
/// it was needed.
#[derive(Debug, Default)]
pub(super) struct Index {
    words: Option<Part<Lexical>>,
    descriptions: Option<Part<Rows>>,
    centroids: Option<Part<Centroids>>,
}

/// Something that is known of tools.
#[derive(Debug)]
struct Part<T> {
    tools: Vec<Arc<ToolDefinition>>,
    known: Arc<T>,
}

/// The centroids of the tools that have examples.
#[derive(Clone, Debug, Default)]
pub(super) struct Centroids {
    /// The means.
    pub(super) rows: Rows,
    /// The least similar example of each, by its place, and its cosine.
    least: Vec<(usize, f64)>,
}

impl Index {
    /// Returns the words of the tools.
    pub(super) fn words(&mut self, tools: &[Arc<ToolDefinition>]) -> Arc<Lexical> {
        let earlier = match Part::current(self.words.as_ref(), tools) {
            Ok(words) => return words,
            Err(earlier) => earlier,
        };
        let words = Lexical::new(tools, |at| {
            let (words, before) = earlier.find(at)?;
            Some(words.document(before))
        });
        Part::keep(&mut self.words, tools, words)
    }

    /// Returns the vectors of the tools' descriptions. A blank one has none.
    pub(super) async fn descriptions(
        &mut self,
        tools: &[Arc<ToolDefinition>],
        embedder: &dyn Embedder,
    ) -> Result<Arc<Rows>, EmbedError> {
        let earlier = match Part::current(self.descriptions.as_ref(), tools) {
            Ok(rows) => return Ok(rows),
            Err(earlier) => earlier,
        };
        let mut vectors: Vec<Option<Vec<f32>>> = Vec::with_capacity(tools.len());
        let mut wanted = Vec::new();
        for (at, tool) in tools.iter().enumerate() {
            let known = earlier.find(at).and_then(|(rows, before)| rows.of_owner(before));
            if known.is_none() && !tool.description.trim().is_empty() {
                wanted.push(at);
            }
            vectors.push(known.map(<[f32]>::to_vec));
        }
        for places in wanted.chunks(TEXTS) {
            let texts: Vec<&str> = places.iter().map(|it| &*tools[*it].description).collect();
            for (at, vector) in places.iter().zip(embedded(embedder, &texts).await?) {
                vectors[*at] = Some(vector);
            }
        }
        let vectors = vectors.iter().enumerate().filter_map(|(at, it)| Some((at, it.as_deref()?)));
        let rows = Rows::new(vectors);
        Ok(Part::keep(&mut self.descriptions, tools, rows))
    }

    /// Returns the centroids of the tools' examples.
    pub(super) async fn centroids(
        &mut self,
        tools: &[Arc<ToolDefinition>],
        embedder: &dyn Embedder,
    ) -> Result<Arc<Centroids>, EmbedError> {
        let earlier = match Part::current(self.centroids.as_ref(), tools) {
            Ok(centroids) => return Ok(centroids),
            Err(earlier) => earlier,
        };
        let mut found: Vec<Option<Centroid>> = Vec::with_capacity(tools.len());
        let mut wanted = Vec::new();
        for (at, tool) in tools.iter().enumerate() {
            let known = earlier.find(at).and_then(|(centroids, before)| centroids.get(before));
            if known.is_none() && examples(tool).next().is_some() {
                wanted.push(at);
            }
            found.push(known);
        }
        for places in batches(&wanted, |at| examples(&tools[at]).count()) {
            let texts: Vec<&str> = places.iter().flat_map(|it| examples(&tools[*it])).collect();
            let mut vectors = embedded(embedder, &texts).await?.into_iter();
            for at in places {
                let count = examples(&tools[*at]).count();
                let own: Vec<Vec<f32>> = vectors.by_ref().take(count).collect();
                found[*at] = Centroid::of(&own);
            }
        }
        let centroids = Centroids::new(&found);
        Ok(Part::keep(&mut self.centroids, tools, centroids))
    }
}

impl<T> Part<T> {
    /// Returns what is known, if it is of these very tools; else what can be taken over of it.
    fn current<'a>(
        part: Option<&'a Self>,
        tools: &[Arc<ToolDefinition>],
    ) -> Result<Arc<T>, Earlier<'a, T>> {
        let Some(part) = part else { return Err(Earlier { known: None, places: Vec::new() }) };
        let is_same_list = part.tools.len() == tools.len()
            && part.tools.iter().zip(tools).all(|(a, b)| Arc::ptr_eq(a, b));
        if is_same_list {
            return Ok(Arc::clone(&part.known));
        }
        let names: BTreeMap<Key<'_>, usize> =
            part.tools.iter().enumerate().map(|(at, it)| (key(it), at)).collect();
        let place = |tool: &Arc<ToolDefinition>| {
            let at = *names.get(&key(tool))?;
            is_same(&part.tools[at], tool).then_some(at)
        };
        Err(Earlier { known: Some(&part.known), places: tools.iter().map(place).collect() })
    }

    fn keep(part: &mut Option<Self>, tools: &[Arc<ToolDefinition>], known: T) -> Arc<T> {
        let known = Arc::new(known);
        *part = Some(Self { tools: tools.to_vec(), known: Arc::clone(&known) });
        known
    }
}

/// What was known before, and where each of the present tools was in it.
struct Earlier<'a, T> {
    known: Option<&'a T>,
    places: Vec<Option<usize>>,
}

impl<'a, T> Earlier<'a, T> {
    fn find(&self, at: usize) -> Option<(&'a T, usize)> {
        Some((self.known?, (*self.places.get(at)?)?))
    }
}

impl Centroids {
    fn new(found: &[Option<Centroid>]) -> Self {
        let found = found.iter().enumerate().filter_map(|(at, it)| Some((at, it.as_ref()?)));
        let rows = Rows::new(found.clone().map(|(at, it)| (at, it.mean.as_slice())));
        // Those of another length are in neither.
        let mut owners = rows.owners().iter().peekable();
        let kept = found.filter(|(at, _)| owners.next_if(|it| *it == at).is_some());
        Self { least: kept.map(|(_, it)| (it.least, it.least_similar)).collect(), rows }
    }

    /// Returns the centroid of a tool, by its place.
    pub(super) fn get(&self, owner: usize) -> Option<Centroid> {
        let row = self.rows.find(owner)?;
        let (least, least_similar) = self.least[row];
        Some(Centroid { mean: self.rows.row(row).to_vec(), least, least_similar })
    }

    /// Returns the least similar example of a tool and its cosine, by the tool's place.
    pub(super) fn least(&self, owner: usize) -> Option<(usize, f64)> {
        self.rows.find(owner).map(|row| self.least[row])
    }
}

type Key<'a> = (&'a ToolSetName, &'a ToolName);

fn key(tool: &ToolDefinition) -> Key<'_> {
    (&tool.set, &tool.name)
}

/// Returns whether everything that tools are chosen by is the same.
fn is_same(a: &Arc<ToolDefinition>, b: &Arc<ToolDefinition>) -> bool {
    Arc::ptr_eq(a, b)
        || (a.description == b.description
            && a.examples == b.examples
            && a.input_schema == b.input_schema)
}

/// Returns the examples that say something.
fn examples(tool: &ToolDefinition) -> impl Iterator<Item = &str> {
    tool.examples.iter().map(String::as_str).filter(|it| !it.trim().is_empty())
}

/// Cuts places into runs with about [`TEXTS`] texts each.
fn batches(places: &[usize], texts: impl Fn(usize) -> usize) -> Vec<&[usize]> {
    let (mut batches, mut start, mut count) = (Vec::new(), 0, 0);
    for (end, at) in places.iter().enumerate() {
        count += texts(*at);
        if count >= TEXTS {
            batches.push(&places[start..=end]);
            (start, count) = (end + 1, 0);
        }
    }
    if start < places.len() {
        batches.push(&places[start..]);
    }
    batches
}

/// Embeds texts, and sees to it that each has got its vector.
pub(super) async fn embedded(
    embedder: &dyn Embedder,
    texts: &[&str],
) -> Result<Vec<Vec<f32>>, EmbedError> {
    let vectors = embedder.embed(texts).await?;
    if vectors.len() != texts.len() {
        let why = format!("it gave {} vectors for {} texts", vectors.len(), texts.len());
        return Err(EmbedError::Model { model: embedder.model().to_owned(), why });
    }
    Ok(vectors)
}
