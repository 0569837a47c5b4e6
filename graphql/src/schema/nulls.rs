//! Decides which field becomes null after an error: the failed field, or its nearest nullable
//! parent.
//!
//! The library makes an object null if one of its fields failed. It has two gaps, which this module
//! closes: it treats a field that fails before it has an object as non-null, whatever its type is,
//! and for an error in a list it reports only the index of the item.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_graphql::{
    PathSegment, Pos, QueryPathNode, QueryPathSegment, Response, ServerError, ServerResult, Value,
};

/// Errors of one operation, until its answer is complete.
#[derive(Default)]
pub(super) struct FieldErrors(Mutex<Found>);

#[derive(Default)]
struct Found {
    /// Errors of nullable fields.
    errors: Vec<ServerError>,
    /// Paths of fields that became null after an error in the operation.
    places: Vec<Vec<PathSegment>>,
    /// Paths of failed non-null fields, with their positions in the text of the operation.
    failed: Vec<(Vec<PathSegment>, Vec<Pos>)>,
}

impl FieldErrors {
    /// Returns the value of a field in the answer. If the field is non-null and failed, returns the
    /// error for its parent.
    pub(super) fn settle(
        &self,
        of: &str,
        at: &QueryPathNode<'_>,
        outcome: ServerResult<Option<Value>>,
    ) -> ServerResult<Option<Value>> {
        let may_be_null = !of.ends_with('!');
        match outcome {
            Err(error) if may_be_null => {
                let mut found = self.found();
                found.errors.push(error);
                found.places.push(path(at));
                Ok(Some(Value::Null))
            }
            Err(error) => Err(self.pass(at, error)),
            Ok(None | Some(Value::Null)) if may_be_null => {
                let mut found = self.found();
                if !found.failed.is_empty() {
                    found.places.push(path(at));
                }
                Ok(Some(Value::Null))
            }
            value => value,
        }
    }

    /// Passes an error to the parent of a field, and restores the path of the field that failed
    /// first.
    fn pass(&self, at: &QueryPathNode<'_>, mut error: ServerError) -> ServerError {
        let mut found = self.found();
        match at.segment {
            QueryPathSegment::Name(_) => {
                found.failed.push((error.path.clone(), error.locations.clone()));
            }
            QueryPathSegment::Index(_) => {
                let mut failed = found.failed.iter().rev();
                let inner = failed
                    .find(|(path, at)| *at == error.locations && path.starts_with(&error.path));
                if let Some((path, _)) = inner {
                    error.path.clone_from(path);
                }
            }
        }
        error
    }

    /// Adds the errors to an answer, and sets the failed fields to null.
    pub(super) fn finish(&self, mut answer: Response) -> Response {
        let Found { errors, places, .. } = std::mem::take(&mut *self.found());
        answer.errors.extend(errors);
        // If an operation requests an object twice, the library merges two results. If one of them
        // is null, the object is null.
        for place in places {
            put_null(&mut answer.data, &place);
        }
        answer
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the path of a field in the answer.
pub(super) fn path(node: &QueryPathNode<'_>) -> Vec<PathSegment> {
    let segment = |node: &QueryPathNode<'_>| match node.segment {
        QueryPathSegment::Index(at) => PathSegment::Index(at),
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
            (Value::List(items), PathSegment::Index(at)) => items.get_mut(*at),
            _ => None,
        };
        // A parent of the field is null already, so there is no value to replace.
        let Some(part) = part else { return };
        value = part;
    }
    *value = Value::Null;
}

#[cfg(test)]
mod tests;
