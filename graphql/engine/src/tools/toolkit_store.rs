//! The stored toolkit: the same graph on every node. One record in the store holds all changes of
//! the configured graph.

use std::sync::{Arc, Mutex, PoisonError};

use planner::toolkit::{Changes, Toolkit, ToolkitError};
use shared::{
    clock::{Clock, Timestamp},
    store::{Record, RecordKind, Store, StoreError, WriteCondition},
};
use tokio::sync::Mutex as AsyncMutex;

use crate::error::EngineError;

const RECORD_NAME: &str = "graph";
/// Maximum number of attempts of a change. If several nodes try at the same time, only one of them
/// succeeds.
const MAX_ATTEMPTS: usize = 64;

pub(crate) struct ToolkitStore {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    configured: Toolkit,
    cached: Mutex<CachedToolkit>,
    /// Locked during a change. Without this lock, concurrent changes of this process would only
    /// cause further attempts.
    change_lock: AsyncMutex<()>,
}

#[derive(Debug, Default)]
struct CachedToolkit {
    revision: Option<u64>,
    loaded_at: Option<Timestamp>,
    toolkit: Option<Arc<Toolkit>>,
}

impl ToolkitStore {
    pub(super) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, configured: Toolkit) -> Self {
        let (cached, change_lock) = (Mutex::default(), AsyncMutex::default());
        Self { store, clock, configured, cached, change_lock }
    }

    pub(crate) async fn load(&self) -> Result<Arc<Toolkit>, EngineError> {
        // The revision is read before the record. If the record changes in between, the revision is
        // already out of date, and the next call reads the record again.
        let revision = self.store.records_revision().await?;
        let cached = {
            let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
            cached.toolkit.clone().filter(|_| cached.revision == Some(revision))
        };
        if let Some(toolkit) = cached {
            return Ok(toolkit);
        }
        let record = self.store.find_record(RecordKind::Toolkit, RECORD_NAME).await?;
        Ok(self.cache_toolkit(revision, record.as_ref())?)
    }

    /// Stores the result of `change`, unless `check` rejects it. `check` gets the graph before and
    /// after the change. Both are called again if other nodes change the toolkit.
    pub(crate) async fn change<T>(
        &self,
        change: impl Fn(&mut Toolkit) -> Result<T, ToolkitError>,
        check: impl Fn(&Toolkit, &Toolkit) -> Result<(), EngineError>,
    ) -> Result<(T, Arc<Toolkit>), EngineError> {
        let _changing = self.change_lock.lock().await;
        for _ in 0..MAX_ATTEMPTS {
            let record = self.store.find_record(RecordKind::Toolkit, RECORD_NAME).await?;
            let mut changes = parse_changes(record.as_ref())?;
            let before = changes.applied_to(&self.configured);
            let mut after = before.clone();
            let returned = change(&mut after)?;
            check(&before, &after)?;
            if after == before {
                return Ok((returned, Arc::new(after)));
            }
            changes.record(&self.configured, &before, &after);
            if self.store_changes(record.as_ref(), &changes).await? {
                return Ok((returned, Arc::new(after)));
            }
        }
        let reason = "the toolkit is being changed from too many places at once: try again";
        Err(EngineError::Conflict(reason.to_owned()))
    }

    /// Replaces the stored record of all changes. Returns `false` if another node has replaced it.
    async fn store_changes(
        &self,
        before: Option<&Record>,
        changes: &Changes,
    ) -> Result<bool, EngineError> {
        let (unless, loaded_at) = WriteCondition::unless_changed(before, self.clock.now());
        let value =
            serde_json::to_value(changes).map_err(|err| StoreError::corrupt(RECORD_NAME, err))?;
        let name = RECORD_NAME.to_owned();
        let record =
            Record { kind: RecordKind::Toolkit, name, value: Arc::new(value), at: loaded_at };
        Ok(self.store.put_record(&record, unless).await?)
    }

    fn cache_toolkit(
        &self,
        revision: u64,
        record: Option<&Record>,
    ) -> Result<Arc<Toolkit>, StoreError> {
        let loaded_at = record.map(|record| record.at);
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let toolkit = match &cached.toolkit {
            Some(toolkit) if cached.loaded_at == loaded_at => Arc::clone(toolkit),
            _ => Arc::new(parse_changes(record)?.applied_to(&self.configured)),
        };
        let revision = Some(revision);
        *cached = CachedToolkit { revision, loaded_at, toolkit: Some(Arc::clone(&toolkit)) };
        Ok(toolkit)
    }
}

fn parse_changes(record: Option<&Record>) -> Result<Changes, StoreError> {
    let Some(record) = record else { return Ok(Changes::default()) };
    serde_json::from_value(record.value.as_ref().clone())
        .map_err(|err| StoreError::corrupt("the toolkit", err))
}

impl From<ToolkitError> for EngineError {
    fn from(err: ToolkitError) -> Self {
        let message = err.to_string();
        match err {
            ToolkitError::Clash { .. } => Self::Conflict(message),
            ToolkitError::Score { .. } => Self::InvalidArgument(message),
            ToolkitError::TooMany { .. } => Self::LimitExceeded(message),
        }
    }
}
