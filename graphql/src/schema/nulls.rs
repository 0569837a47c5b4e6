//! Decides which field becomes null after an error: the failed field if it is nullable, otherwise
//! its nearest nullable parent.
//!
//! The library treats a field as non-null if it fails before its resolver returns an object, and
//! reports an error in a list without the field. This module corrects both cases.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_graphql::{
    PathSegment, Pos, QueryPathNode, QueryPathSegment, Response, ServerError, ServerResult, Value,
};

/// Errors of one operation, collected until its answer is complete.
#[derive(Default)]
pub(super) struct FieldErrors(Mutex<PendingErrors>);

#[derive(Default)]
struct PendingErrors {
    errors: Vec<ServerError>,
    /// Paths of fields that must be null in the answer.
    null_paths: Vec<Vec<PathSegment>>,
    /// Paths of failed non-null fields, with their positions in the text of the operation.
    failed_fields: Vec<(Vec<PathSegment>, Vec<Pos>)>,
}

impl FieldErrors {
    /// Returns the value of a field in the answer. If the field is non-null and failed, returns the
    /// error for its parent.
    pub(super) fn resolve_null(
        &self,
        return_type: &str,
        path: &QueryPathNode<'_>,
        outcome: ServerResult<Option<Value>>,
    ) -> ServerResult<Option<Value>> {
        let is_nullable = !return_type.ends_with('!');
        match outcome {
            Err(error) if is_nullable => {
                let mut pending = self.lock_pending();
                pending.errors.push(error);
                pending.null_paths.push(field_path(path));
                Ok(Some(Value::Null))
            }
            Err(error) => Err(self.pass_to_parent(path, error)),
            Ok(None | Some(Value::Null)) if is_nullable => {
                let mut pending = self.lock_pending();
                if !pending.failed_fields.is_empty() {
                    pending.null_paths.push(field_path(path));
                }
                Ok(Some(Value::Null))
            }
            value => value,
        }
    }

    /// Returns an error to the parent of a field. In a list, the error gets the path of the failed
    /// field, because the library loses this path.
    fn pass_to_parent(&self, node: &QueryPathNode<'_>, mut error: ServerError) -> ServerError {
        let mut pending = self.lock_pending();
        match node.segment {
            QueryPathSegment::Name(_) => {
                pending.failed_fields.push((error.path.clone(), error.locations.clone()));
            }
            QueryPathSegment::Index(_) => {
                let mut failed = pending.failed_fields.iter().rev();
                let inner = failed.find(|(path, locations)| {
                    *locations == error.locations && path.starts_with(&error.path)
                });
                if let Some((path, _)) = inner {
                    error.path.clone_from(path);
                }
            }
        }
        error
    }

    pub(super) fn complete_answer(&self, mut answer: Response) -> Response {
        let PendingErrors { errors, null_paths, .. } = std::mem::take(&mut *self.lock_pending());
        answer.errors.extend(errors);
        // If an operation requests an object twice, the library merges the two results. So the
        // loop sets the object to null if one of the results was null.
        for place in null_paths {
            put_null(&mut answer.data, &place);
        }
        answer
    }

    fn lock_pending(&self) -> MutexGuard<'_, PendingErrors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) fn field_path(node: &QueryPathNode<'_>) -> Vec<PathSegment> {
    let segment = |node: &QueryPathNode<'_>| match node.segment {
        QueryPathSegment::Index(index) => PathSegment::Index(index),
        QueryPathSegment::Name(name) => PathSegment::Field(name.to_owned()),
    };
    let mut path = vec![segment(node)];
    path.extend(node.parents().map(segment));
    path.reverse();
    path
}

fn put_null(mut value: &mut Value, path: &[PathSegment]) {
    for segment in path {
        let part = match (value, segment) {
            (Value::Object(fields), PathSegment::Field(name)) => fields.get_mut(name.as_str()),
            (Value::List(items), PathSegment::Index(index)) => items.get_mut(*index),
            _ => None,
        };
        // A parent of the field is already null, so the answer does not contain the field.
        let Some(part) = part else { return };
        value = part;
    }
    *value = Value::Null;
}

#[cfg(test)]
mod tests;
