//! What a tool says beside its output.

use std::sync::{Arc, Mutex, PoisonError};

/// Where a call leaves what it said beside its output. Clones are the same place.
#[derive(Clone, Debug, Default)]
pub struct Aside(Arc<Mutex<Option<String>>>);

impl Aside {
    /// Leaves a text, in the place of one that is there. Nothing is left of an empty one.
    pub fn leave(&self, text: String) {
        let text = Some(text).filter(|it| !it.is_empty());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    /// Takes what was left.
    pub fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
