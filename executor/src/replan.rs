//! The hook by which a worker replans finished executions. The executor knows no models.

use std::fmt;

use async_trait::async_trait;
use shared::{execution::Execution, store::StoreError};

#[async_trait]
pub trait Replanner: fmt::Debug + Send + Sync {
    /// Starts the next execution, or stores the reason why none starts. Two calls, on any nodes,
    /// start only one execution. After an error, the worker calls this method again later.
    async fn replan(&self, ended: &Execution) -> Result<(), StoreError>;
}
