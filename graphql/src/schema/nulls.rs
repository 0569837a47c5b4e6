//! What is null where a field failed: the field itself if it may be, or else the nearest around it
//! that may be.
//!
//! The library makes an object null whose field failed. A field that fails itself, before it has
//! an object, it takes for non-null whatever its type says, and of what fails in a list it says only
//! in which item: both are seen to here.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_graphql::{
    PathSegment, Pos, QueryPathNode, QueryPathSegment, Response, ServerError, ServerResult, Value,
};

/// What failed in one operation, until its answer is there.
#[derive(Default)]
pub(super) struct Nulls(Mutex<Found>);

#[derive(Default)]
struct Found {
    /// The errors of fields that may be null.
    errors: Vec<ServerError>,
    /// What is null since something in the operation failed.
    places: Vec<Vec<PathSegment>>,
    /// Where fields failed that may not be null, and where the operation has them.
    failed: Vec<(Vec<PathSegment>, Vec<Pos>)>,
}

impl Nulls {
    /// Returns what a field of a type is in the answer, or the error if that is for the field
    /// around it.
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

    /// Passes an error on to what is around a place, with where it came from.
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

    /// Returns an answer with what failed in it.
    pub(super) fn finish(&self, mut answer: Response) -> Response {
        let Found { errors, places, .. } = std::mem::take(&mut *self.found());
        answer.errors.extend(errors);
        // An object asked for twice is made twice and merged. If it is null once, it is null.
        for place in places {
            put_null(&mut answer.data, &place);
        }
        answer
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns where a field stands in the answer.
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
        // Something around it is null already.
        let Some(part) = part else { return };
        value = part;
    }
    *value = Value::Null;
}

#[cfg(test)]
mod tests;
