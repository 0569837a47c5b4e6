use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use serde_json::Value;
use shared::store::StoreError;

use super::{NO_REVISION, Parts, Registry};
use crate::sources::SetConfig;

#[derive(Clone, Debug, Default)]
pub struct ConfiguredSets {
    pub sets: Vec<SetConfig>,
    pub contexts: BTreeMap<String, Value>,
}

impl ConfiguredSets {
    pub(super) fn take_from(parts: &mut Parts) -> Self {
        Self { sets: mem::take(&mut parts.configured), contexts: mem::take(&mut parts.contexts) }
    }
}

impl Registry {
    pub(super) fn configured(&self) -> Arc<ConfiguredSets> {
        Arc::clone(&self.0.configured.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the configured sets and contexts, and updates the toolbox. If the store does not
    /// answer, the next [`sync`](Self::sync) updates the toolbox.
    pub async fn reconfigure(&self, configured: ConfiguredSets) -> Result<(), StoreError> {
        let mut applied = self.0.applied.lock().await;
        *self.0.configured.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(configured);
        applied.revision = None;
        self.0.applied_revision.store(NO_REVISION, Ordering::Release);
        self.read_changes(&mut applied).await
    }
}
