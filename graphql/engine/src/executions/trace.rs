use std::collections::VecDeque;

use executor::for_each_attempt;
use shared::{
    id::ExecutionId,
    trace::{FinishedSpan, attempt_span, root_span},
};

use super::{Executions, reader::load_execution_until};
use crate::EngineError;

/// Maximum number of executions in one trace. The document of a larger trace would be too large to
/// be useful.
const MAX_EXECUTIONS: usize = 1_000;

impl Executions {
    /// Returns the spans of an execution and of its sub-plans, at most of `MAX_EXECUTIONS`
    /// executions. They are equal to the spans that a worker exports.
    pub async fn load_trace(&self, id: ExecutionId) -> Result<Vec<FinishedSpan>, EngineError> {
        let (mut spans, mut waiting, mut found) = (Vec::new(), VecDeque::from([id]), 1);
        while let Some(id) = waiting.pop_front() {
            let until = shared::id::Seq(u64::MAX);
            let Some(execution) = load_execution_until(&*self.store, id, until).await? else {
                continue;
            };
            spans.push(root_span(&execution, true));
            let mut add = |ended: shared::execution::EndedAttempt| {
                if let Some(child) = ended.child.filter(|_| found < MAX_EXECUTIONS) {
                    waiting.push_back(child);
                    found += 1;
                }
                spans.extend(attempt_span(&execution, &ended, true));
            };
            for_each_attempt(&*self.store, &execution, &mut add).await?;
        }
        Ok(spans)
    }
}
