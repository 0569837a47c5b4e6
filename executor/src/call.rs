//! One attempt: find the tool, check the parameters, call it, cut it off, check what it returns.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;
use serde_json::Value;
use shared::{
    id::{Attempt, Task, ToolName},
    json, limits,
    tool::{ErrorCode, ToolError},
};
use tokio::time;
use tokio_util::sync::CancellationToken;

use crate::{
    machine::Answer,
    options::Options,
    tool::ToolContext,
    toolbox::{Found, ReadyTool, Toolbox},
};

/// An attempt that is about to begin.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) task: Task,
    pub(crate) attempt: Attempt,
    pub(crate) tool: ToolName,
    pub(crate) parameters: Arc<Value>,
    pub(crate) timeout: Duration,
    pub(crate) cx: ToolContext,
}

/// An attempt that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) task: Task,
    pub(crate) attempt: Attempt,
    pub(crate) result: Result<Answer, ToolError>,
    /// About how many bytes the result has in the log.
    pub(crate) bytes: usize,
}

impl Call {
    /// Carries the attempt out. It ends: by itself, by its timeout, or by its cancellation.
    pub(crate) async fn carry_out(self, toolbox: Toolbox, options: Arc<Options>) -> Ended {
        let Self { task, attempt, tool, parameters, timeout, cx } = self;
        let cancel = cx.cancel.clone();
        let has_begun = AtomicBool::new(false);
        let call = call(&toolbox, &tool, parameters, cx, (options.connect, &has_begun));
        let result = tokio::select! {
            biased;
            result = AssertUnwindSafe(call).catch_unwind() => {
                result.unwrap_or_else(|_| Err(panicked(&tool)))
            }
            () = cut_off(cancel, options.cancel_grace) => Err(not_stopped(options.cancel_grace)),
            () = time::sleep(timeout) => Err(timed_out(timeout)),
        };
        // What never reached the tool certainly did nothing.
        let is_certain = !has_begun.load(Ordering::Relaxed);
        let result = result
            .map_err(|error| ToolError { is_definite: error.is_definite || is_certain, ..error });
        let result = result.and_then(|output| check(output, options.output_bytes));
        let bytes = result.as_ref().map_or(256, json::bytes);
        let result = result.map(Answer::from);
        Ended { task, attempt, result, bytes }
    }
}

async fn call(
    toolbox: &Toolbox,
    name: &ToolName,
    parameters: Arc<Value>,
    cx: ToolContext,
    (connect, has_begun): (Duration, &AtomicBool),
) -> Result<Value, ToolError> {
    let tool = find(toolbox, name, connect).await?;
    if let Some(complaint) = tool.complaint(&parameters) {
        return Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, complaint));
    }
    if cx.cancel.is_cancelled() {
        return Err(ToolError::new(ErrorCode::CANCELLED, "cancelled before it began"));
    }
    has_begun.store(true, Ordering::Relaxed);
    let result = tool.tool().call(parameters, cx).await;
    // A tool that was stopped may have done its work, or a part of it.
    result.map_err(
        |error| {
            if error.code == ErrorCode::CANCELLED { error.indefinite() } else { error }
        },
    )
}

/// Finds a tool; waits a while for a set that is still connecting.
async fn find(
    toolbox: &Toolbox,
    name: &ToolName,
    connect: Duration,
) -> Result<ReadyTool, ToolError> {
    let mut changes = toolbox.changes();
    let unavailable = |why: String| Err(ToolError::new(ErrorCode::UNAVAILABLE, why));
    let wait = async {
        loop {
            changes.mark_unchanged();
            match toolbox.find(name) {
                Found::Tool(tool) => return Ok(tool),
                Found::Inactive(tool) => {
                    let set = &tool.definition().set;
                    let why = format!("`{name}` is switched off: activate the toolset `{set}`");
                    return Err(ToolError::new(ErrorCode::INACTIVE, why));
                }
                Found::Failed { set, error } => {
                    return unavailable(format!("the toolset `{set}` has failed: {error}"));
                }
                Found::Unknown => return unavailable(format!("this node has no tool `{name}`")),
                Found::Connecting => (),
            }
            if changes.changed().await.is_err() {
                return unavailable(format!("`{name}` will not come"));
            }
        }
    };
    time::timeout(connect, wait).await.unwrap_or_else(|_| {
        unavailable(format!("the toolset of `{name}` did not connect within {connect:?}"))
    })
}

/// Returns when a call that was told to stop has had its time.
async fn cut_off(cancel: CancellationToken, grace: Duration) {
    cancel.cancelled().await;
    time::sleep(grace).await;
}

fn not_stopped(grace: Duration) -> ToolError {
    let why = format!("told to stop, and cut off after {grace:?}");
    ToolError::new(ErrorCode::CANCELLED, why).indefinite()
}

fn timed_out(timeout: Duration) -> ToolError {
    let why = format!("took longer than its timeout of {timeout:?} and was cut off");
    ToolError::new(ErrorCode::TIMEOUT, why).indefinite()
}

fn panicked(tool: &ToolName) -> ToolError {
    ToolError::failed(format!("`{tool}` panicked: this is a bug in the tool")).indefinite()
}

fn check(output: Value, most: usize) -> Result<Value, ToolError> {
    let bytes = json::bytes(&output);
    if bytes > most {
        let why = format!(
            "returned {bytes} bytes, the most is {most}: return less, or the name of a file"
        );
        return Err(ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, why));
    }
    if json::is_deeper_than(&output, limits::JSON_DEPTH) {
        let why = format!("returned JSON nested deeper than {}", limits::JSON_DEPTH);
        return Err(ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, why));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn outputs_have_a_limit() {
        assert!(check(json!("x".repeat(10)), 12).is_ok());
        let error = check(json!("x".repeat(11)), 12).unwrap_err();
        assert_eq!(error.code, ErrorCode::OUTPUT_TOO_LARGE);
        let deep = (0..200).fold(json!(1), |it, _| json!([it]));
        assert_eq!(check(deep, 1 << 20).unwrap_err().code, ErrorCode::OUTPUT_TOO_LARGE);
    }
}
