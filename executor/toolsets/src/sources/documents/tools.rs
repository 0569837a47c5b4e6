//! The tools of a context's documents.

use std::{fmt::Write as _, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::{
    id::ToolSetName,
    tool::{Effect, ToolError},
};
use toolbox::{Tool, ToolContext, function};

use super::{super::builtin::within, Document, Documents};

const DEFAULT_LIMIT: usize = 5;
const MAX_LIMIT: usize = 100;

/// The parameters of `list_rags`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// The parameters of `query_rag`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Ask {
    /// The collection, as `list_rags` has it.
    rag_id: String,
    /// What is looked for, in words.
    query: String,
    /// At most so many documents, 1 to 100.
    #[serde(default = "limit")]
    #[schemars(range(min = 1, max = 100))]
    limit: usize,
    /// How near a document must be, from 0 to 1.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    similarity_threshold: f64,
    /// Whether to tell what is known about the documents.
    #[serde(default = "yes")]
    include_metadata: bool,
}

fn limit() -> usize {
    DEFAULT_LIMIT
}

fn yes() -> bool {
    true
}

/// The parameters of `load_rag`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Load {
    /// The collection, as `list_rags` has it.
    rag_id: String,
}

#[derive(Serialize)]
struct Listed {
    id: String,
    description: String,
    documents: usize,
}

#[derive(Serialize)]
struct Match {
    id: String,
    content: String,
    similarity: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Value>,
}

/// Builds the tools of a set. An output has about `most` bytes at most.
pub(in super::super) fn tools(
    set: &ToolSetName,
    documents: &Arc<Documents>,
    most: usize,
) -> Vec<Arc<dyn Tool>> {
    let (listed, asked, loaded) =
        (Arc::clone(documents), Arc::clone(documents), Arc::clone(documents));
    let tools = [
        function(
            super::FIELD,
            "list_rags",
            "Lists the collections of documents that this context offers.",
            Effect::Read,
            move |Nothing {}, _: ToolContext| {
                let listed = list(&listed);
                async move { Ok::<_, ToolError>(listed) }
            },
        ),
        function(
            super::FIELD,
            "query_rag",
            "Finds the documents of a collection that are nearest to a question.",
            Effect::Read,
            move |ask: Ask, _: ToolContext| {
                let found = find(&asked, &ask);
                async move { found }
            },
        ),
        function(
            super::FIELD,
            "load_rag",
            "Returns all documents of a collection as one text, for a prompt.",
            Effect::Read,
            move |Load { rag_id }, _: ToolContext| {
                let text = load(&loaded, &rag_id, most);
                async move { text }
            },
        ),
    ];
    tools.iter().map(|tool| within(set, tool)).collect()
}

fn list(documents: &Documents) -> Vec<Listed> {
    let listed = documents.collections.iter().map(|(id, collection)| Listed {
        id: id.clone(),
        description: collection.description.clone(),
        documents: collection.documents.len(),
    });
    listed.collect()
}

fn find(documents: &Documents, ask: &Ask) -> Result<Vec<Match>, ToolError> {
    let collection = documents.collection(&ask.rag_id).map_err(unknown)?;
    let near = collection.words.nearest(&ask.query).into_iter();
    let near = near.filter(|(_, similarity)| *similarity >= ask.similarity_threshold);
    let found = near.take(ask.limit.clamp(1, MAX_LIMIT)).map(|(at, similarity)| {
        let Document { id, content, metadata } = collection.documents[at].clone();
        let metadata = ask.include_metadata.then_some(metadata);
        Match { id, content, similarity, metadata }
    });
    Ok(found.collect())
}

fn load(documents: &Documents, id: &str, most: usize) -> Result<String, ToolError> {
    let collection = documents.collection(id).map_err(unknown)?;
    let mut text = String::new();
    for (n, Document { id, content, .. }) in collection.documents.iter().enumerate() {
        let part = format!("## {id}\n\n{}\n\n", content.trim());
        // A character may take two bytes as JSON, and seldom more.
        if 2 * (text.len() + part.len()) > most {
            let left = collection.documents.len() - n;
            let _ = write!(text, "({left} more documents: search them with `query_rag`)");
            break;
        }
        text.push_str(&part);
    }
    Ok(text.trim_end().to_owned())
}

fn unknown(why: String) -> ToolError {
    ToolError::failed(why).without_retry()
}
