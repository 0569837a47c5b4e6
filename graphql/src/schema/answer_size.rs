use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_graphql::{
    PathSegment, QueryPathNode, QueryPathSegment, Response, ServerError, Value,
    extensions::ResolveInfo,
};

use super::nulls::field_path;

/// Number of bytes of the quotes, colon and comma around a name in an answer.
const NAME_OVERHEAD_BYTES: usize = 4;

/// Approximate size of the part of an operation's answer that has been made so far.
#[derive(Debug, Default)]
pub(super) struct AnswerSize {
    max_bytes: usize,
    bytes: AtomicUsize,
    /// `true` after a mutation has started.
    has_mutated: AtomicBool,
    oversized_field_path: Mutex<Option<Vec<PathSegment>>>,
}

impl AnswerSize {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, ..Self::default() }
    }

    /// Resets the size for the next answer, because a subscription has many answers.
    pub(super) fn start_answer(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        *self.oversized_field_path.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Fails if the answer is too large. Call it before a field is resolved, so that no further
    /// field does its work.
    pub(super) fn check_limit(&self) -> Result<(), ServerError> {
        if self.bytes.load(Ordering::Relaxed) > self.max_bytes {
            Err(self.size_error())
        } else {
            Ok(())
        }
    }

    pub(super) fn record_mutation(&self) {
        self.has_mutated.store(true, Ordering::Relaxed);
    }

    /// Counts the value of a field. The contents of objects and lists are counted by their own
    /// fields.
    pub(super) fn count_field(
        &self,
        field: &CountedField<'_>,
        value: Option<&Value>,
    ) -> Result<(), ServerError> {
        let value_bytes = match value {
            Some(value) if field.is_leaf => approximate_json_bytes(value),
            _ => 2,
        };
        let name = if field.is_item { 0 } else { field.name.len() + NAME_OVERHEAD_BYTES };
        // `__typename` is not counted, because the library does not report it. The limit on the
        // cost of an operation also limits the number of these fields.
        let added = value_bytes + name;
        let before = self.bytes.fetch_add(added, Ordering::Relaxed);
        if before.saturating_add(added) <= self.max_bytes {
            return Ok(());
        }
        let mut oversized_field_path =
            self.oversized_field_path.lock().unwrap_or_else(PoisonError::into_inner);
        oversized_field_path.get_or_insert_with(|| field_path(field.path_node));
        Err(self.size_error())
    }

    pub(super) fn complete_answer(&self, answer: Response) -> Response {
        let mut oversized_field_path =
            self.oversized_field_path.lock().unwrap_or_else(PoisonError::into_inner);
        match oversized_field_path.take() {
            Some(path) => Response::from_errors(vec![ServerError { path, ..self.size_error() }]),
            None => answer,
        }
    }

    fn size_error(&self) -> ServerError {
        let mut reason = format!(
            "the answer has more than {} bytes: request fewer fields or smaller values (`first`, \
             `maxBytes`), or raise `limits.answer_bytes`",
            self.max_bytes
        );
        if self.has_mutated.load(Ordering::Relaxed) {
            reason.push_str("; the mutation took effect: check its result before you repeat it");
        }
        let mut error = ServerError::new(reason, None);
        error.extensions.get_or_insert_default().set("code", "LIMIT_EXCEEDED");
        error
    }
}

pub(super) struct CountedField<'a> {
    path_node: &'a QueryPathNode<'a>,
    name: &'a str,
    is_leaf: bool,
    is_item: bool,
}

impl<'a> CountedField<'a> {
    pub(super) fn from_field(info: &ResolveInfo<'a>) -> Self {
        let set = &info.field.selection_set.node.items;
        let is_list = info.return_type.starts_with('[');
        Self {
            path_node: info.path_node,
            name: info.alias.unwrap_or(info.name),
            is_leaf: set.is_empty() && !is_list,
            is_item: matches!(info.path_node.segment, QueryPathSegment::Index(_)),
        }
    }
}

fn approximate_json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Boolean(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Enum(name) => name.len() + 2,
        Value::Binary(bytes) => bytes.len(),
        Value::List(items) => {
            items.iter().map(|item| approximate_json_bytes(item) + 1).sum::<usize>() + 2
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                name.len() + NAME_OVERHEAD_BYTES + approximate_json_bytes(value)
            });
            fields.sum::<usize>() + 2
        }
    }
}
