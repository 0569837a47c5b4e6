//! Documents that a context offers for retrieval: each context's own set, which sees no others.
//!
//! They are part of the context's data, under `rag`: collections by their ids, each with documents.
//! Tools find those that are nearest to a question, by the words that they have in common with it.

mod nearness;
mod tools;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shared::id::ToolSetName;

use self::nearness::Words;
pub(super) use self::tools::tools;

/// The field of a context's data that has its documents.
pub(crate) const FIELD: &str = "rag";
/// The most documents of a collection.
const DOCUMENTS: usize = 10_000;
/// The most collections of a context.
const COLLECTIONS: usize = 1_000;

/// The documents of a context.
#[derive(Clone, Debug)]
pub struct Documents {
    context: String,
    collections: BTreeMap<String, Collection>,
}

impl PartialEq for Documents {
    /// Those that were not read again are the same at once: there may be many.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.context == other.context && self.collections == other.collections)
    }
}

/// Documents that are searched together.
#[derive(Clone, Debug, PartialEq)]
struct Collection {
    description: String,
    documents: Vec<Document>,
    words: Words,
}

/// A document.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Document {
    id: String,
    content: String,
    metadata: Value,
}

/// A collection as it is written: documents, or an object that has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "documents, or an object with `documents`")]
struct WrittenCollection {
    #[serde(default)]
    description: String,
    #[serde(default)]
    documents: Vec<WrittenDocument>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a document such as `{\"content\": \"…\"}`")]
struct WrittenDocument {
    id: Option<String>,
    content: String,
    #[serde(default)]
    metadata: Map<String, Value>,
}

impl Documents {
    /// Reads what a context has under `rag`. Err: what is wrong with it, for people.
    pub(crate) fn read(context: &str, written: &Value) -> Result<Self, String> {
        let Value::Object(written) = written else {
            let hint = "`{\"manual\": [{\"content\": \"…\"}]}`";
            return Err(format!("`{FIELD}` has collections of documents by their ids: {hint}"));
        };
        if written.len() > COLLECTIONS {
            return Err(format!("`{FIELD}` has more than {COLLECTIONS} collections"));
        }
        let collections = written.iter().map(|(id, value)| {
            let read = Collection::read(value).map_err(|why| format!("`{FIELD}.{id}`: {why}"))?;
            Ok((id.clone(), read))
        });
        let collections = collections.collect::<Result<_, String>>()?;
        Ok(Self { context: context.to_owned(), collections })
    }

    /// Returns whether there is nothing to retrieve.
    pub(crate) fn is_empty(&self) -> bool {
        self.collections.is_empty()
    }

    /// Returns the name of the set of a context's documents. Err: its name cannot be in one.
    pub(crate) fn set_of(context: &str) -> Result<ToolSetName, String> {
        let name = format!("{context}_{FIELD}").parse();
        name.map_err(|err| format!("its documents cannot be a toolset: {err}"))
    }

    fn collection(&self, id: &str) -> Result<&Collection, String> {
        let missing = || format!("RAG with ID {id} not found in context {}", self.context);
        self.collections.get(id).ok_or_else(missing)
    }
}

impl Collection {
    fn read(written: &Value) -> Result<Self, String> {
        let written = match written {
            Value::Array(_) => {
                Value::from(Map::from_iter([("documents".to_owned(), written.clone())]))
            }
            other => other.clone(),
        };
        let WrittenCollection { description, documents } =
            serde_json::from_value(written).map_err(|err| err.to_string())?;
        if documents.len() > DOCUMENTS {
            return Err(format!(
                "it has more than {DOCUMENTS} documents: make several collections"
            ));
        }
        let documents = documents.into_iter().enumerate().map(|(n, it)| Document {
            id: it.id.unwrap_or_else(|| format!("doc_{}", n + 1)),
            content: it.content,
            metadata: Value::Object(it.metadata),
        });
        let documents: Vec<Document> = documents.collect();
        let mut ids = BTreeSet::new();
        if let Some(twice) = documents.iter().find(|it| !ids.insert(it.id.as_str())) {
            return Err(format!("two documents have the id `{}`", twice.id));
        }
        let words = Words::of(documents.iter().map(|it| it.content.as_str()));
        Ok(Self { description, documents, words })
    }
}

#[cfg(test)]
mod tests;
