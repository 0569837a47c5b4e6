//! Documents of a context, as a toolset of their own.

mod tools;
mod word_index;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shared::id::ToolSetName;

pub(super) use self::tools::tools;
use self::word_index::WordIndex;

/// The field of a context's data that contains the documents.
pub(crate) const DOCUMENTS_FIELD: &str = "rag";
const MAX_DOCUMENTS: usize = 10_000;
const MAX_COLLECTIONS: usize = 1_000;

#[derive(Clone, Debug)]
pub struct Documents {
    context: String,
    collections: BTreeMap<String, Collection>,
}

impl PartialEq for Documents {
    /// Compares the pointers first, because documents that were not parsed again are equal.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.context == other.context && self.collections == other.collections)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Collection {
    description: String,
    documents: Vec<Document>,
    words: WordIndex,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Document {
    id: String,
    content: String,
    metadata: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "documents, or an object with `documents`")]
struct CollectionFields {
    #[serde(default)]
    description: String,
    #[serde(default)]
    documents: Vec<DocumentFields>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a document such as `{\"content\": \"…\"}`")]
struct DocumentFields {
    id: Option<String>,
    content: String,
    #[serde(default)]
    metadata: Map<String, Value>,
}

impl Documents {
    /// Parses the field `rag` of a context. The error describes the mistake.
    pub(crate) fn read(context: &str, value: &Value) -> Result<Self, String> {
        let Value::Object(collections) = value else {
            let hint = "`{\"manual\": [{\"content\": \"…\"}]}`";
            return Err(format!(
                "`{DOCUMENTS_FIELD}` must be a map from ids to collections of documents: {hint}"
            ));
        };
        if collections.len() > MAX_COLLECTIONS {
            return Err(format!("`{DOCUMENTS_FIELD}` has more than {MAX_COLLECTIONS} collections"));
        }
        let collections = collections.iter().map(|(id, value)| {
            let read = Collection::read(value)
                .map_err(|error| format!("`{DOCUMENTS_FIELD}.{id}`: {error}"))?;
            Ok((id.clone(), read))
        });
        let collections = collections.collect::<Result<_, String>>()?;
        Ok(Self { context: context.to_owned(), collections })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.collections.is_empty()
    }

    /// Returns the name of the set with a context's documents. Fails with advice if the context's
    /// name cannot be part of a set's name.
    pub(crate) fn set_name_for_context(context: &str) -> Result<ToolSetName, String> {
        let name = format!("{context}_{DOCUMENTS_FIELD}").parse();
        name.map_err(|err| {
            format!(
                "the documents of the context `{context}` need a toolset, and {err}: use another \
                 name for the context"
            )
        })
    }

    fn collection(&self, id: &str) -> Result<&Collection, String> {
        let missing = || format!("RAG with ID {id} not found in context {}", self.context);
        self.collections.get(id).ok_or_else(missing)
    }
}

impl Collection {
    fn read(value: &Value) -> Result<Self, String> {
        let value = match value {
            Value::Array(_) => {
                Value::from(Map::from_iter([("documents".to_owned(), value.clone())]))
            }
            other => other.clone(),
        };
        let CollectionFields { description, documents } =
            serde_json::from_value(value).map_err(|err| err.to_string())?;
        if documents.len() > MAX_DOCUMENTS {
            return Err(format!(
                "it has more than {MAX_DOCUMENTS} documents: make several collections"
            ));
        }
        let documents = documents.into_iter().enumerate().map(|(n, document)| Document {
            id: document.id.unwrap_or_else(|| format!("doc_{}", n + 1)),
            content: document.content,
            metadata: Value::Object(document.metadata),
        });
        let documents: Vec<Document> = documents.collect();
        let mut ids = BTreeSet::new();
        if let Some(twice) = documents.iter().find(|document| !ids.insert(document.id.as_str())) {
            return Err(format!("two documents have the id `{}`", twice.id));
        }
        let words = WordIndex::new(documents.iter().map(|document| document.content.as_str()));
        Ok(Self { description, documents, words })
    }
}

#[cfg(test)]
mod tests;
