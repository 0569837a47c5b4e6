//! Limits an answer in bytes while it is made.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_graphql::{
    PathSegment, QueryPathNode, QueryPathSegment, Response, ServerError, Value,
    extensions::ResolveInfo,
};

use super::nulls::path;

/// Bytes that a name takes in an answer, besides its letters.
const QUOTES: usize = 4;

/// Approximate size of the answer to one operation, as far as it exists.
#[derive(Debug, Default)]
pub(super) struct AnswerSize {
    most: usize,
    bytes: AtomicUsize,
    /// `true` once a mutation has started.
    has_mutated: AtomicBool,
    /// Path of the field with which the answer became too large.
    exceeded: Mutex<Option<Vec<PathSegment>>>,
}

impl AnswerSize {
    pub(super) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Starts the next answer, because a subscription has many.
    pub(super) fn begin(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        *self.exceeded.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Fails if the answer is full, so that no further field does its work.
    pub(super) fn check(&self) -> Result<(), ServerError> {
        if self.bytes.load(Ordering::Relaxed) > self.most { Err(self.error()) } else { Ok(()) }
    }

    /// Records that a mutation starts. The error then says that its effect stays.
    pub(super) fn note_mutation(&self) {
        self.has_mutated.store(true, Ordering::Relaxed);
    }

    /// Counts what a field returned. Contents of objects and lists are counted by their own fields.
    pub(super) fn add(
        &self,
        field: &Counted<'_>,
        value: Option<&Value>,
    ) -> Result<(), ServerError> {
        let own = match value {
            Some(value) if field.is_leaf => bytes(value),
            _ => 2,
        };
        let name = if field.is_item { 0 } else { field.name.len() + QUOTES };
        // The library does not report `__typename`. The cost of the operation limits how often it
        // occurs.
        let added = own + name;
        let before = self.bytes.fetch_add(added, Ordering::Relaxed);
        if before.saturating_add(added) <= self.most {
            return Ok(());
        }
        let mut exceeded = self.exceeded.lock().unwrap_or_else(PoisonError::into_inner);
        exceeded.get_or_insert_with(|| path(field.at));
        Err(self.error())
    }

    /// Replaces an answer that became too large by an error.
    pub(super) fn finish(&self, answer: Response) -> Response {
        let mut exceeded = self.exceeded.lock().unwrap_or_else(PoisonError::into_inner);
        match exceeded.take() {
            Some(path) => Response::from_errors(vec![ServerError { path, ..self.error() }]),
            None => answer,
        }
    }

    fn error(&self) -> ServerError {
        let mut why = format!(
            "the answer has more than {} bytes: ask for fewer fields, for less with `first` or \
             `maxBytes`, or raise `limits.answer_bytes`",
            self.most
        );
        if self.has_mutated.load(Ordering::Relaxed) {
            why.push_str("; the mutation took effect: see what it did before you repeat it");
        }
        let mut error = ServerError::new(why, None);
        error.extensions.get_or_insert_default().set("code", "LIMIT_EXCEEDED");
        error
    }
}

/// Field of an answer, as far as its size needs it.
pub(super) struct Counted<'a> {
    at: &'a QueryPathNode<'a>,
    name: &'a str,
    is_leaf: bool,
    is_item: bool,
}

impl<'a> Counted<'a> {
    pub(super) fn of(info: &ResolveInfo<'a>) -> Self {
        let set = &info.field.selection_set.node.items;
        let is_list = info.return_type.starts_with('[');
        Self {
            at: info.path_node,
            name: info.alias.unwrap_or(info.name),
            is_leaf: set.is_empty() && !is_list,
            is_item: matches!(info.path_node.segment, QueryPathSegment::Index(_)),
        }
    }
}

/// Returns the approximate number of bytes of a value as JSON.
fn bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Boolean(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Enum(name) => name.len() + 2,
        Value::Binary(bytes) => bytes.len(),
        Value::List(items) => items.iter().map(|item| bytes(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| name.len() + QUOTES + bytes(value));
            fields.sum::<usize>() + 2
        }
    }
}
