//! Quotas of a token: starts, active executions and stored bytes. Quotas are counted in the store,
//! so all nodes count together.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use shared::{
    clock::Timestamp,
    id::{CommandId, WorkerId},
    store::{CallLimit, Permission, Permit, PermitAsk, Rate, Store, StoreError},
};
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::AccessError;

/// Prefix of the keys under which the store counts starts. Keys of limits on calls begin with
/// `tool:` or `set:`.
const STARTS_KEY: &str = "starts:";
/// Time after which a caller should try again if too many executions are active. No process knows
/// when an execution ends.
const EXECUTIONS_RETRY: Duration = Duration::from_secs(1);
/// Time after which a caller should try again if too many bytes are stored. It equals the interval
/// at which retention removes executions.
const BYTES_RETRY: Duration = Duration::from_mins(10);
/// Time for which a meter remembers the stored bytes of its token.
const BYTES_MAX_AGE: Duration = Duration::from_secs(10);
/// Time for which a meter remembers stored bytes that exceed the quota. It is short, so that a
/// removal helps soon.
const EXCESS_MAX_AGE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Starts of executions in a period. After a quiet time, all of them can come at once.
    pub starts: Option<Rate>,
    /// The number of executions that may be active at once, children included.
    pub executions: Option<u64>,
    /// The bytes of logs, inputs and blobs of the executions that still exist.
    pub stored_bytes: Option<u64>,
}

/// A start that the quotas allow. Keep it until the start is stored, because the store must count
/// this start before the next start of the token.
#[derive(Debug, Default)]
pub struct Admission {
    _turn: Option<OwnedMutexGuard<()>>,
}

#[derive(Debug, thiserror::Error)]
pub enum QuotaError {
    #[error(transparent)]
    Reached(#[from] AccessError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug)]
pub(super) struct QuotaMeter {
    token: String,
    quotas: Quotas,
    turn: Arc<AsyncMutex<()>>,
    memory: Mutex<Memory>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Memory {
    /// The time before which the store refuses each start, once it has refused one.
    next_start: Option<Instant>,
    stored_bytes: Option<ReadBytes>,
}

#[derive(Clone, Copy, Debug)]
struct ReadBytes {
    bytes: u64,
    read_at: Instant,
}

impl QuotaMeter {
    pub(super) fn new(token: String, quotas: Quotas) -> Self {
        Self { token, quotas, turn: Arc::default(), memory: Mutex::default() }
    }

    /// Checks the quotas, and counts the start unless a quota refuses it.
    pub(super) async fn admit_start(
        &self,
        store: &dyn Store,
        owner: Option<&str>,
        now: Timestamp,
    ) -> Result<Admission, QuotaError> {
        if self.quotas == Quotas::default() {
            return Ok(Admission::default());
        }
        self.check_remembered(Instant::now())?;
        let admission = if owner == Some(self.token.as_str()) {
            self.check_stored_bytes(store).await?;
            self.admit_execution(store).await?
        } else {
            Admission::default()
        };
        self.count_start(store, now).await?;
        Ok(admission)
    }

    /// Rejects a start that the quotas exclude now. Counts nothing, so a quota can still refuse the
    /// start later. `owner` is the token to which the execution will belong.
    pub(super) async fn check_start(
        &self,
        store: &dyn Store,
        owner: Option<&str>,
    ) -> Result<(), QuotaError> {
        self.check_remembered(Instant::now())?;
        if owner == Some(self.token.as_str()) {
            self.check_stored_bytes(store).await?;
            self.check_active(store).await?;
        }
        Ok(())
    }

    /// Rejects a start that the last answers of the store certainly exclude. Reads nothing.
    pub(super) fn check_remembered(&self, now: Instant) -> Result<(), AccessError> {
        let Memory { next_start, stored_bytes } = self.memory();
        if let Some(wait) = next_start.and_then(|next| next.checked_duration_since(now))
            && !wait.is_zero()
        {
            return Err(self.starts_error(wait));
        }
        match stored_bytes.filter(|read| read.age(now) < EXCESS_MAX_AGE) {
            Some(read) => self.check_bytes(read.bytes),
            None => Ok(()),
        }
    }

    async fn check_stored_bytes(&self, store: &dyn Store) -> Result<(), QuotaError> {
        let Some(quota) = self.quotas.stored_bytes else { return Ok(()) };
        let now = Instant::now();
        let is_fresh = |read: &ReadBytes| {
            read.age(now) < if read.bytes < quota { BYTES_MAX_AGE } else { EXCESS_MAX_AGE }
        };
        let remembered = self.memory().stored_bytes.filter(is_fresh);
        let bytes = if let Some(read) = remembered {
            read.bytes
        } else {
            let bytes = store.sum_stored_bytes(&self.token).await?;
            self.change_memory(|memory| {
                memory.stored_bytes = Some(ReadBytes { bytes, read_at: now });
            });
            bytes
        };
        Ok(self.check_bytes(bytes)?)
    }

    fn check_bytes(&self, bytes: u64) -> Result<(), AccessError> {
        let Some(quota) = self.quotas.stored_bytes.filter(|quota| bytes >= *quota) else {
            return Ok(());
        };
        let reached = format!(
            "{bytes} stored bytes, and its limit `stored_bytes` is {quota}: remove finished \
             executions with `faber prune`, or wait until `retention` removes them"
        );
        Err(self.error(reached, BYTES_RETRY))
    }

    /// Checks the number of active executions after all earlier starts of the token are stored.
    async fn admit_execution(&self, store: &dyn Store) -> Result<Admission, QuotaError> {
        if self.quotas.executions.is_none() {
            return Ok(Admission::default());
        }
        let turn = Arc::clone(&self.turn).lock_owned().await;
        self.check_active(store).await?;
        Ok(Admission { _turn: Some(turn) })
    }

    async fn check_active(&self, store: &dyn Store) -> Result<(), QuotaError> {
        let Some(quota) = self.quotas.executions else { return Ok(()) };
        let active = store.count_active(&self.token).await?;
        if active < quota {
            return Ok(());
        }
        let reached = format!(
            "{active} active executions, and its limit `executions` is {quota}: wait until one of \
             them has finished"
        );
        Err(self.error(reached, EXECUTIONS_RETRY).into())
    }

    async fn count_start(&self, store: &dyn Store, now: Timestamp) -> Result<(), QuotaError> {
        let Some(rate) = self.quotas.starts else { return Ok(()) };
        let key = format!("{STARTS_KEY}{}", self.token);
        let limit = CallLimit { key: key.clone(), concurrency: None, rate: Some(rate) };
        let permit = Permit {
            // A rate has no holders. The store only compares the name with that of the last start.
            holder: CommandId::draw(now).to_string(),
            worker: WorkerId::draw(now),
            limits: vec![key],
        };
        let ask = PermitAsk { permit, limits: vec![limit] };
        let Permission::NotBefore(at) = store.acquire_permits(&ask, now).await? else {
            return Ok(());
        };
        let wait = (at - now).to_std().unwrap_or_default();
        self.change_memory(|memory| memory.next_start = Some(Instant::now() + wait));
        Err(self.starts_error(wait).into())
    }

    fn starts_error(&self, wait: Duration) -> AccessError {
        let rate = self.quotas.starts.map_or_else(String::new, format_rate);
        self.error(format!("used up its limit `starts` of {rate}"), wait)
    }

    fn error(&self, reached: String, wait: Duration) -> AccessError {
        AccessError::LimitReached { token: self.token.clone(), reached, wait }
    }

    fn memory(&self) -> Memory {
        *self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_memory(&self, change: impl FnOnce(&mut Memory)) {
        change(&mut self.memory.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl ReadBytes {
    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.read_at)
    }
}

fn format_rate(rate: Rate) -> String {
    let Rate { calls, per_ms } = rate;
    match per_ms {
        1_000 => format!("{calls}/s"),
        60_000 => format!("{calls}/min"),
        3_600_000 => format!("{calls}/h"),
        86_400_000 => format!("{calls}/day"),
        other => format!("{calls} in {other} ms"),
    }
}

#[cfg(test)]
mod tests;
