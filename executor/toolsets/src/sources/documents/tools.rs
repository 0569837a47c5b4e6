use std::{fmt::Write as _, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::{
    id::ToolSetName,
    tool::{Effect, ToolError},
};
use toolbox::{Tool, ToolContext, function};

use super::{super::builtin::with_set_name, Document, Documents};

const DEFAULT_RESULT_LIMIT: usize = 5;
const MAX_LIMIT: usize = 100;

/// The parameters of `list_rags`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoParameters {}

/// The parameters of `query_rag`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct QueryParameters {
    /// Id of the collection, from `list_rags`.
    rag_id: String,
    /// Question or words to search for.
    query: String,
    /// Maximum number of documents, from 1 to 100.
    #[serde(default = "default_limit")]
    #[schemars(range(min = 1, max = 100))]
    limit: usize,
    /// Lowest similarity of a document, from 0 to 1.
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 1.0))]
    similarity_threshold: f64,
    /// If true, include the metadata of the documents.
    #[serde(default = "default_true")]
    include_metadata: bool,
}

fn default_limit() -> usize {
    DEFAULT_RESULT_LIMIT
}

fn default_true() -> bool {
    true
}

/// The parameters of `load_rag`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct LoadParameters {
    /// Id of the collection, from `list_rags`.
    rag_id: String,
}

#[derive(Serialize)]
struct ListedCollection {
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

/// Builds the tools of a set. The text of `load_rag` has about `max_bytes` bytes at most.
pub(in super::super) fn tools(
    set: &ToolSetName,
    documents: &Arc<Documents>,
    max_bytes: usize,
) -> Vec<Arc<dyn Tool>> {
    let (listed, searched, loaded) =
        (Arc::clone(documents), Arc::clone(documents), Arc::clone(documents));
    let tools = [
        function(
            super::DOCUMENTS_FIELD,
            "list_rags",
            "Lists the collections of documents that this context offers.",
            Effect::Read,
            move |NoParameters {}, _: ToolContext| {
                let listed = list_collections(&listed);
                async move { Ok::<_, ToolError>(listed) }
            },
        ),
        function(
            super::DOCUMENTS_FIELD,
            "query_rag",
            "Finds the documents of a collection that are nearest to a question.",
            Effect::Read,
            move |parameters: QueryParameters, _: ToolContext| {
                let found = find_documents(&searched, &parameters);
                async move { found }
            },
        ),
        function(
            super::DOCUMENTS_FIELD,
            "load_rag",
            "Returns all documents of a collection as one text, for a prompt.",
            Effect::Read,
            move |LoadParameters { rag_id }, _: ToolContext| {
                let text = load_collection(&loaded, &rag_id, max_bytes);
                async move { text }
            },
        ),
    ];
    tools.iter().map(|tool| with_set_name(set, tool)).collect()
}

fn list_collections(documents: &Documents) -> Vec<ListedCollection> {
    let listed = documents.collections.iter().map(|(id, collection)| ListedCollection {
        id: id.clone(),
        description: collection.description.clone(),
        documents: collection.documents.len(),
    });
    listed.collect()
}

fn find_documents(
    documents: &Documents,
    parameters: &QueryParameters,
) -> Result<Vec<Match>, ToolError> {
    let collection = documents.collection(&parameters.rag_id).map_err(unknown_id_error)?;
    let near = collection.words.nearest(&parameters.query).into_iter();
    let near = near.filter(|(_, similarity)| *similarity >= parameters.similarity_threshold);
    let found = near.take(parameters.limit.clamp(1, MAX_LIMIT)).map(|(index, similarity)| {
        let Document { id, content, metadata } = collection.documents[index].clone();
        let metadata = parameters.include_metadata.then_some(metadata);
        Match { id, content, similarity, metadata }
    });
    Ok(found.collect())
}

fn load_collection(documents: &Documents, id: &str, max_bytes: usize) -> Result<String, ToolError> {
    let collection = documents.collection(id).map_err(unknown_id_error)?;
    let mut text = String::new();
    for (n, Document { id, content, .. }) in collection.documents.iter().enumerate() {
        let part = format!("## {id}\n\n{}\n\n", content.trim());
        // Counts each byte twice, because a character may take two bytes as JSON, and seldom more.
        if 2 * (text.len() + part.len()) > max_bytes {
            let left = collection.documents.len() - n;
            let _ = write!(text, "({left} more documents: search them with `query_rag`)");
            break;
        }
        text.push_str(&part);
    }
    Ok(text.trim_end().to_owned())
}

fn unknown_id_error(reason: String) -> ToolError {
    ToolError::failed(reason).without_retry()
}
