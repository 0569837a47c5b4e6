//! From a log to an execution: the one way in which executions are read.

use super::{Store, StoreError};
use crate::{
    event::Event,
    execution::{Execution, ReplayError},
    id::{ExecutionId, Seq},
};

/// Reads an execution as far as its log goes; nothing where there is no log.
///
/// Of a log that somebody is removing it may find the beginning only. Whoever appends to that is
/// refused; whoever shows it looks whether its head is still there.
///
/// # Errors
///
/// If the store fails, or the log or the plan cannot be what it says.
pub async fn load(store: &dyn Store, id: ExecutionId) -> Result<Option<Execution>, StoreError> {
    let corrupt = |err| StoreError::corrupt(id, err);
    let mut events = store.read(id, Seq::START).await?;
    let plan = match events.first().map(|it| &it.event) {
        Some(Event::Created(created)) => created.plan,
        Some(other) => return Err(corrupt(ReplayError::NotCreated(other.kind()))),
        None => return Ok(None),
    };
    let Some(plan) = store.plan(plan).await? else {
        return Err(StoreError::corrupt(id, format!("its plan `{plan}` is not in the store")));
    };
    let mut execution = Execution::replay(id, plan, &events).map_err(corrupt)?;
    loop {
        events = store.read(id, execution.seq()).await?;
        if events.is_empty() {
            return Ok(Some(execution));
        }
        for recorded in &events {
            execution.apply(recorded).map_err(corrupt)?;
        }
    }
}
