//! One attempt: finds the tool, checks the parameters, calls the tool, and checks the output.
//!
//! A timeout cancels the call like a cancel command, so that the tool can stop. The attempt fails
//! with the timeout, even if the tool still returns an output.

use std::{
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt;
use serde_json::Value;
use shared::{
    id::{Attempt, Part, StepNumber, Task, ToolName, ToolSetName},
    json, limits,
    tool::{ErrorCode, ToolError},
};
use tokio::time::{self, Instant, Sleep};
use toolbox::{
    Found, ReadyTool, ToolContext, Toolbox,
    dispatch::{self, Dispatch},
    flow,
    progress::{self, Listener, ProgressSink, Reports},
};

use crate::{machine::Answer, options::Options};

/// Names a call in its progress reports.
pub(crate) type Key = (Task, Attempt);

/// An attempt that is about to start.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) task: Task,
    pub(crate) attempt: Attempt,
    pub(crate) tool: ToolName,
    /// The tool to call. Without one, the attempt looks `tool` up.
    pub(crate) pinned: Option<ReadyTool>,
    pub(crate) parameters: Arc<Value>,
    /// Time limit for the attempt.
    pub(crate) timeout: Duration,
    /// Time limit between two progress reports.
    pub(crate) idle_timeout: Option<Duration>,
    /// The receiver of progress reports. Limits their rate.
    pub(crate) progress: ProgressSink<Key>,
    /// The attempt sets the reporter. The token must not be shared with another call.
    pub(crate) cx: ToolContext,
}

/// An attempt that has finished.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) task: Task,
    pub(crate) attempt: Attempt,
    pub(crate) result: Result<Answer, ToolError>,
    /// The approximate size of the result in the log.
    pub(crate) bytes: usize,
    /// The plan's tool was missing, so no tool was called.
    pub(crate) is_gone: bool,
}

/// The result of a call, and whether its tool was found.
struct CallOutcome {
    is_found: bool,
    result: Result<Value, ToolError>,
}

impl Call {
    /// Runs the attempt until the tool returns, a timeout passes, or the call is cancelled.
    pub(crate) async fn carry_out(self, toolbox: Toolbox, options: Arc<Options>) -> Ended {
        let (task, attempt) = (self.task, self.attempt);
        let aside = self.cx.aside.clone();
        let own = self.pinned.is_none();
        let dispatch = Dispatch::of(&toolbox, &self.tool, &self.parameters).filter(|_| own);
        let mut is_gone = false;
        let result = match dispatch {
            None => {
                let CallOutcome { is_found, result } = self.counted(&toolbox, &options, None).await;
                is_gone = !is_found && result.as_ref().is_err_and(is_absence);
                result
            }
            Some(Err(err)) => Err(err),
            Some(Ok(dispatch)) => {
                let (tool, parameters) = (dispatch.tool.clone(), Arc::clone(&dispatch.args));
                let call = Self { tool, parameters, ..self };
                dispatch.report(call.counted(&toolbox, &options, Some(&dispatch)).await.result)
            }
        };
        let stderr = aside.take();
        let beside = stderr.as_ref().map_or(0, String::len);
        let bytes = result.as_ref().map_or(256, json::json_size) + beside;
        let result = result.map(|output| Answer { stderr, ..Answer::from(output) });
        Ended { task, attempt, result, bytes, is_gone }
    }

    /// Calls the tool, and counts the call if the tool exists. The number of other names has no
    /// bound.
    async fn counted(
        self,
        toolbox: &Toolbox,
        options: &Options,
        dispatch: Option<&Dispatch>,
    ) -> CallOutcome {
        let (tool, began) = (self.tool.clone(), Instant::now());
        let CallOutcome { is_found, result } = self.result(toolbox, options, dispatch).await;
        let result = result.and_then(|output| check(output, options.output_bytes));
        if is_found {
            toolbox.meter().count(&tool, began.elapsed(), result.is_err());
        }
        CallOutcome { is_found, result }
    }

    /// Calls the tool within the time limit. Errors before the call are definite: they had no effect.
    async fn result(
        self,
        toolbox: &Toolbox,
        options: &Options,
        dispatch: Option<&Dispatch>,
    ) -> CallOutcome {
        let mut whole = pin!(time::sleep(self.timeout));
        let found = self.found(toolbox, options.connect, dispatch);
        let tool = match self.before_call(whole.as_mut(), found).await {
            Ok(tool) => tool,
            Err(error) => return CallOutcome { is_found: false, result: Err(error) },
        };
        let result = match self.before_call(whole.as_mut(), self.ready(&tool)).await {
            Ok(_) if self.cx.cancel.is_cancelled() => Err(not_begun()),
            Ok(parameters) => {
                Self { parameters, ..self }.answer(&tool, whole, options.cancel_grace).await
            }
            Err(error) => Err(error),
        };
        CallOutcome { is_found: true, result }
    }

    /// Does some work before the call, unless the call is cancelled or times out.
    async fn before_call<T>(
        &self,
        whole: Pin<&mut Sleep>,
        work: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        tokio::select! {
            biased;
            result = caught(&self.tool, work) => result,
            () = self.cx.cancel.cancelled() => Err(not_begun()),
            () = whole => Err(timed_out(self.timeout)),
        }
    }

    /// Finds the tool. A dispatched call finds only tools of toolsets.
    async fn found(
        &self,
        toolbox: &Toolbox,
        connect: Duration,
        dispatch: Option<&Dispatch>,
    ) -> Result<ReadyTool, ToolError> {
        if let Some(tool) = &self.pinned {
            return Ok(tool.clone());
        }
        let Some(dispatch) = dispatch else {
            return match toolbox.own(&self.tool) {
                Some(tool) => Ok(tool),
                None => find(toolbox, &self.tool, connect).await,
            };
        };
        let tool = find(toolbox, &self.tool, connect).await?;
        dispatch.check(toolbox, tool.definition())?;
        Ok(tool)
    }

    /// Restores blobs in the parameters, and checks the parameters against the tool's schema.
    async fn ready(&self, tool: &ReadyTool) -> Result<Arc<Value>, ToolError> {
        // `flow` passes its parameters on, and a model reads no binaries. Both keep the references.
        let is_given_all = !matches!(tool.definition().set.as_str(), flow::SET | dispatch::SET);
        let parameters = match self.cx.blobs.as_ref().filter(|_| is_given_all) {
            Some(blobs) => blobs.restore(&self.parameters).await?,
            None => Arc::clone(&self.parameters),
        };
        match tool.complaint(&parameters) {
            Some(complaint) => Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, complaint)),
            None => Ok(parameters),
        }
    }

    /// Calls the tool. Cancels the call after a timeout, and waits for it for `grace`.
    async fn answer(
        self,
        tool: &ReadyTool,
        whole: Pin<&mut Sleep>,
        grace: Duration,
    ) -> Result<Value, ToolError> {
        let Self { tool: name, parameters, timeout, idle_timeout, progress, cx, .. } = self;
        let cancel = cx.cancel.clone();
        let (reporter, reports) = progress::pipe();
        let cx = ToolContext { reporter, ..cx };
        let mut call = pin!(caught(&name, tool.tool().call(parameters, cx)));
        let overdue = tokio::select! {
            biased;
            result = &mut call => return result.map_err(unsure_if_stopped),
            () = cancel.cancelled() => None,
            () = whole => Some(timed_out(timeout)),
            idle = silence(reports, &progress, idle_timeout) => Some(silent(idle)),
        };
        cancel.cancel();
        let last = time::timeout(grace, call).await;
        match overdue {
            Some(error) => Err(error.with_unknown_outcome()),
            None => last.unwrap_or_else(|_| Err(not_stopped(grace))).map_err(unsure_if_stopped),
        }
    }
}

/// Calls a tool outside plans, within the default timeout of a step. The token of `cx` cancels the
/// call.
pub async fn outside(
    tool: ReadyTool,
    parameters: Arc<Value>,
    cx: ToolContext,
    toolbox: &Toolbox,
    options: &Arc<Options>,
) -> Result<Value, ToolError> {
    let (task, attempt) =
        (Task { step: StepNumber::new(0), part: Part::default() }, Attempt::FIRST);
    let call = Call {
        task,
        attempt,
        tool: tool.definition().qualified_name(),
        pinned: Some(tool),
        parameters,
        timeout: limits::STEP_TIMEOUT,
        idle_timeout: None,
        progress: Reports::default().sink((task, attempt)),
        cx,
    };
    let ended = call.carry_out(toolbox.clone(), Arc::clone(options)).await;
    ended.result.map(|output| output.output)
}

/// Turns a panic into an error.
async fn caught<T>(
    tool: &ToolName,
    work: impl Future<Output = Result<T, ToolError>>,
) -> Result<T, ToolError> {
    let result = AssertUnwindSafe(work).catch_unwind().await;
    result.unwrap_or_else(|_| Err(panicked(tool)))
}

/// Forwards reports until none arrives for `idle`, which it returns.
///
/// Pauses between two reports. The newest report of the pause follows, with the time at which the
/// tool made it.
async fn silence(
    mut reports: Listener,
    sink: &ProgressSink<Key>,
    idle: Option<Duration>,
) -> Duration {
    let mut heard = Instant::now();
    loop {
        let until = idle.and_then(|idle| Some((idle, heard.checked_add(idle)?)));
        let report = match until {
            None => reports.next().await,
            Some((idle, until)) => match time::timeout_at(until, reports.next()).await {
                Ok(report) => report,
                Err(_) => return idle,
            },
        };
        heard = report.at;
        sink.send(report.progress);
        time::sleep(limits::PROGRESS_EVERY).await;
    }
}

/// Finds a tool. Waits up to `connect` for a toolset that connects, or connects again.
async fn find(
    toolbox: &Toolbox,
    name: &ToolName,
    connect: Duration,
) -> Result<ReadyTool, ToolError> {
    if let Some(known) = known(toolbox, name) {
        let is_asked_again =
            matches!(toolbox.find_planned(name), Found::Failed { set, .. } if toolbox.wake(&set));
        if known.is_ok() || !is_asked_again {
            return known;
        }
    }
    let mut changes = toolbox.changes();
    let wait = async {
        loop {
            changes.mark_unchanged();
            if let Some(known) = known(toolbox, name) {
                return known;
            }
            if changes.changed().await.is_err() {
                return Err(late(name, connect));
            }
        }
    };
    time::timeout(connect, wait).await.unwrap_or_else(|_| Err(late(name, connect)))
}

/// Returns the tool of a name or the error, or `None` while the toolset connects.
fn known(toolbox: &Toolbox, name: &ToolName) -> Option<Result<ReadyTool, ToolError>> {
    match toolbox.find_planned(name) {
        Found::Tool(tool) => Some(Ok(tool)),
        Found::Connecting => None,
        Found::Unknown => {
            let why = format!(
                "this node has no tool `{name}`: its toolset was removed, or has a condition that \
                 does not hold now (`setContext`)"
            );
            Some(Err(ToolError::new(ErrorCode::UNAVAILABLE, why)))
        }
        Found::Inactive(tool) => Some(Err(inactive(name, &tool.definition().set))),
        Found::Failed { set, error } => Some(Err(failed(&set, &error))),
    }
}

/// Returns whether the lookup of a tool failed because this node does not have the tool now.
fn is_absence(error: &ToolError) -> bool {
    error.code == ErrorCode::UNAVAILABLE
}

/// Returns the error for a tool whose toolset is inactive.
pub fn inactive(name: &ToolName, set: &ToolSetName) -> ToolError {
    let why = format!("`{name}` is switched off: activate the toolset `{set}`");
    ToolError::new(ErrorCode::INACTIVE, why)
}

/// Returns the error for a toolset that could not list its tools.
pub fn failed(set: &ToolSetName, error: &str) -> ToolError {
    ToolError::new(ErrorCode::UNAVAILABLE, format!("the toolset `{set}` has failed: {error}"))
}

/// Returns the error for a toolset that did not connect in time.
pub fn late(name: &ToolName, connect: Duration) -> ToolError {
    let why = format!("the toolset of `{name}` did not connect within {connect:?}");
    ToolError::new(ErrorCode::UNAVAILABLE, why)
}

/// Marks the outcome of a cancelled call as unknown. The tool may have done some of its work.
fn unsure_if_stopped(error: ToolError) -> ToolError {
    if error.code == ErrorCode::CANCELLED { error.with_unknown_outcome() } else { error }
}

fn not_begun() -> ToolError {
    ToolError::new(ErrorCode::CANCELLED, "cancelled before it began")
}

fn not_stopped(grace: Duration) -> ToolError {
    let why = format!("told to stop, and cut off after {grace:?}");
    ToolError::new(ErrorCode::CANCELLED, why)
}

fn timed_out(timeout: Duration) -> ToolError {
    let why = format!("took longer than its timeout of {timeout:?} and was cut off");
    ToolError::new(ErrorCode::TIMEOUT, why)
}

fn silent(idle: Duration) -> ToolError {
    let why = format!("no answer and no progress for {idle:?}: it was cut off");
    ToolError::new(ErrorCode::TIMEOUT, why)
}

fn panicked(tool: &ToolName) -> ToolError {
    ToolError::failed(format!("`{tool}` panicked: this is a bug in the tool"))
        .with_unknown_outcome()
}

fn check(output: Value, most: usize) -> Result<Value, ToolError> {
    let bytes = json::json_size(&output);
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
mod tests;
