//! What goes on after an execution that is over.
//!
//! Who plans anew knows models and plans; here is only known that it is owed. It is owed like the
//! word to a parent: by whoever has the execution, until it is done. An execution keeps its owner as
//! long, so that one whose worker is lost in between is found as an orphan, and it is done for it.

use std::fmt;

use async_trait::async_trait;
use shared::{execution::Execution, store::StoreError};

/// Plans executions anew.
#[async_trait]
pub trait Onward: fmt::Debug + Send + Sync {
    /// Begins what goes on after an execution that is over, or writes down why nothing does. Dropping
    /// the future is a crash, and is safe: doing it twice, here or elsewhere, does it once. An error
    /// means that it was not done and may be later.
    async fn go_on(&self, ended: &Execution) -> Result<(), StoreError>;
}
