use super::{Store, StoreError};
use crate::{
    event::Event,
    execution::{Execution, ReplayError},
    id::{ExecutionId, Seq},
};

/// Loads an execution up to the end of its log, or returns `None` if it has no log. If the log is
/// being removed, the result may contain its beginning only.
///
/// # Errors
///
/// If the store fails, the log is invalid, or its plan is missing or invalid.
pub async fn load_execution(
    store: &dyn Store,
    id: ExecutionId,
) -> Result<Option<Execution>, StoreError> {
    let corrupt = |err| StoreError::corrupt(id, err);
    let mut events = store.read(id, Seq::START).await?;
    let plan = match events.first().map(|recorded| &recorded.event) {
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
