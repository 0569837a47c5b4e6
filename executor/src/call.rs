//! One attempt: finds the tool, checks the parameters, calls the tool, and checks the output.

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
    ReadyTool, ToolContext, ToolLookup, Toolbox,
    dispatch::{self, Dispatch},
    flow,
    progress::{self, Listener, ProgressSink, Reports},
};

use crate::{machine::CallOutput, options::Options};

pub(crate) type AttemptKey = (Task, Attempt);

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) task: Task,
    pub(crate) attempt: Attempt,
    pub(crate) tool: ToolName,
    /// The tool to call. If it is `None`, the attempt looks `tool` up.
    pub(crate) known_tool: Option<ReadyTool>,
    pub(crate) parameters: Arc<Value>,
    pub(crate) timeout: Duration,
    /// Longest time without a progress report. If it passes, the attempt times out.
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) progress: ProgressSink<AttemptKey>,
    /// The attempt sets the reporter of this context. The caller must not share the context's
    /// cancellation token with another call, because a timeout cancels it.
    pub(crate) cx: ToolContext,
}

#[derive(Debug)]
pub(crate) struct FinishedCall {
    pub(crate) task: Task,
    pub(crate) attempt: Attempt,
    pub(crate) result: Result<CallOutput, ToolError>,
    /// The approximate size of the result in the log.
    pub(crate) bytes: usize,
    /// `true` if the plan's tool was missing, so that no tool was called.
    pub(crate) is_tool_missing: bool,
}

struct CallOutcome {
    is_found: bool,
    result: Result<Value, ToolError>,
}

impl Call {
    pub(crate) async fn run_call(self, toolbox: Toolbox, options: Arc<Options>) -> FinishedCall {
        let (task, attempt) = (self.task, self.attempt);
        let aside = self.cx.aside.clone();
        let is_looked_up = self.known_tool.is_none();
        let dispatch =
            Dispatch::parse(&toolbox, &self.tool, &self.parameters).filter(|_| is_looked_up);
        let mut is_tool_missing = false;
        let result = match dispatch {
            None => {
                let CallOutcome { is_found, result } =
                    self.call_and_count(&toolbox, &options, None).await;
                is_tool_missing = !is_found && result.as_ref().is_err_and(is_absent_error);
                result
            }
            Some(Err(err)) => Err(err),
            Some(Ok(dispatch)) => {
                let (tool, parameters) = (dispatch.tool.clone(), Arc::clone(&dispatch.args));
                let call = Self { tool, parameters, ..self };
                dispatch
                    .report(call.call_and_count(&toolbox, &options, Some(&dispatch)).await.result)
            }
        };
        let stderr = aside.take();
        let beside = stderr.as_ref().map_or(0, String::len);
        let bytes = result.as_ref().map_or(256, json::json_size) + beside;
        let result = result.map(|output| CallOutput { stderr, ..CallOutput::from(output) });
        FinishedCall { task, attempt, result, bytes, is_tool_missing }
    }

    /// Calls the tool, and counts the call if the tool exists. Calls of unknown names are not
    /// counted, because the number of such names has no bound.
    async fn call_and_count(
        self,
        toolbox: &Toolbox,
        options: &Options,
        dispatch: Option<&Dispatch>,
    ) -> CallOutcome {
        let (tool, began) = (self.tool.clone(), Instant::now());
        let CallOutcome { is_found, result } =
            self.call_with_timeout(toolbox, options, dispatch).await;
        let result = result.and_then(|output| check_output(output, options.output_bytes));
        if is_found {
            toolbox.meter().count(&tool, began.elapsed(), result.is_err());
        }
        CallOutcome { is_found, result }
    }

    async fn call_with_timeout(
        self,
        toolbox: &Toolbox,
        options: &Options,
        dispatch: Option<&Dispatch>,
    ) -> CallOutcome {
        let mut timer = pin!(time::sleep(self.timeout));
        let found = self.find_tool(toolbox, options.connect, dispatch);
        let tool = match self.run_before_call(timer.as_mut(), found).await {
            Ok(tool) => tool,
            Err(error) => return CallOutcome { is_found: false, result: Err(error) },
        };
        let result = match self.run_before_call(timer.as_mut(), self.check_parameters(&tool)).await
        {
            Ok(_) if self.cx.cancel.is_cancelled() => Err(not_started_error()),
            Ok(parameters) => {
                Self { parameters, ..self }.call_tool(&tool, timer, options.cancel_grace).await
            }
            Err(error) => Err(error),
        };
        CallOutcome { is_found: true, result }
    }

    async fn run_before_call<T>(
        &self,
        timer: Pin<&mut Sleep>,
        work: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        tokio::select! {
            biased;
            result = catch_panic(&self.tool, work) => result,
            () = self.cx.cancel.cancelled() => Err(not_started_error()),
            () = timer => Err(timeout_error(self.timeout)),
        }
    }

    /// Finds the tool. If an agent chose the tool, finds only tools that the agent is allowed to
    /// call.
    async fn find_tool(
        &self,
        toolbox: &Toolbox,
        connect_timeout: Duration,
        dispatch: Option<&Dispatch>,
    ) -> Result<ReadyTool, ToolError> {
        if let Some(tool) = &self.known_tool {
            return Ok(tool.clone());
        }
        let Some(dispatch) = dispatch else {
            return match toolbox.find_internal_tool(&self.tool) {
                Some(tool) => Ok(tool),
                None => find_tool_or_wait(toolbox, &self.tool, connect_timeout).await,
            };
        };
        let tool = find_tool_or_wait(toolbox, &self.tool, connect_timeout).await?;
        dispatch.check(toolbox, tool.definition())?;
        Ok(tool)
    }

    async fn check_parameters(&self, tool: &ReadyTool) -> Result<Arc<Value>, ToolError> {
        // Keeps references to blobs in calls of `flow`, because its tools return their parameters,
        // and in calls of an agent's own tools, because a model cannot read binary data.
        let needs_blobs = !matches!(tool.definition().set.as_str(), flow::SET | dispatch::SET);
        let parameters = match self.cx.blobs.as_ref().filter(|_| needs_blobs) {
            Some(blobs) => blobs.restore(&self.parameters).await?,
            None => Arc::clone(&self.parameters),
        };
        match tool.complaint(&parameters) {
            Some(complaint) => Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, complaint)),
            None => Ok(parameters),
        }
    }

    /// Calls the tool, and cancels the call after a timeout. A cancelled call has the time `grace`
    /// to end.
    async fn call_tool(
        self,
        tool: &ReadyTool,
        timer: Pin<&mut Sleep>,
        grace: Duration,
    ) -> Result<Value, ToolError> {
        let Self { tool: name, parameters, timeout, idle_timeout, progress, cx, .. } = self;
        let cancel = cx.cancel.clone();
        let (reporter, reports) = progress::report_channel();
        let cx = ToolContext { reporter, ..cx };
        let mut call = pin!(catch_panic(&name, tool.tool().call(parameters, cx)));
        let overdue = tokio::select! {
            biased;
            result = &mut call => return result.map_err(with_unknown_outcome_if_stopped),
            () = cancel.cancelled() => None,
            () = timer => Some(timeout_error(timeout)),
            idle_limit = forward_reports(reports, &progress, idle_timeout) => {
                Some(idle_timeout_error(idle_limit))
            }
        };
        cancel.cancel();
        let last = time::timeout(grace, call).await;
        match overdue {
            Some(error) => Err(error.with_unknown_outcome()),
            None => last
                .unwrap_or_else(|_| Err(not_stopped_error(grace)))
                .map_err(with_unknown_outcome_if_stopped),
        }
    }
}

/// Calls a tool outside plans, within the default timeout of a step. The token of `cx` cancels the
/// call.
pub async fn call_outside_plan(
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
        known_tool: Some(tool),
        parameters,
        timeout: limits::STEP_TIMEOUT,
        idle_timeout: None,
        progress: Reports::default().sink((task, attempt)),
        cx,
    };
    let ended = call.run_call(toolbox.clone(), Arc::clone(options)).await;
    ended.result.map(|output| output.output)
}

async fn catch_panic<T>(
    tool: &ToolName,
    work: impl Future<Output = Result<T, ToolError>>,
) -> Result<T, ToolError> {
    let result = AssertUnwindSafe(work).catch_unwind().await;
    result.unwrap_or_else(|_| Err(panic_error(tool)))
}

/// Forwards reports until none arrives for `idle_limit`, and then returns that limit. Never returns
/// if there is no limit.
async fn forward_reports(
    mut reports: Listener,
    sink: &ProgressSink<AttemptKey>,
    idle_limit: Option<Duration>,
) -> Duration {
    let mut last_report_at = Instant::now();
    loop {
        let until = idle_limit
            .and_then(|idle_limit| Some((idle_limit, last_report_at.checked_add(idle_limit)?)));
        let report = match until {
            None => reports.next().await,
            Some((idle_limit, until)) => match time::timeout_at(until, reports.next()).await {
                Ok(report) => report,
                Err(_) => return idle_limit,
            },
        };
        last_report_at = report.at;
        sink.send(report.progress);
        time::sleep(limits::PROGRESS_INTERVAL).await;
    }
}

/// Finds a tool. Waits up to `connect_timeout` for a toolset that connects, or connects again.
async fn find_tool_or_wait(
    toolbox: &Toolbox,
    name: &ToolName,
    connect_timeout: Duration,
) -> Result<ReadyTool, ToolError> {
    if let Some(tool) = resolve_tool(toolbox, name) {
        let is_asked_again = matches!(toolbox.find_planned(name), ToolLookup::Failed { set, .. } if toolbox.reconnect_set(&set));
        if tool.is_ok() || !is_asked_again {
            return tool;
        }
    }
    let mut changes = toolbox.subscribe_changes();
    let wait = async {
        loop {
            changes.mark_unchanged();
            if let Some(tool) = resolve_tool(toolbox, name) {
                return tool;
            }
            if changes.changed().await.is_err() {
                return Err(connect_timeout_error(name, connect_timeout));
            }
        }
    };
    time::timeout(connect_timeout, wait)
        .await
        .unwrap_or_else(|_| Err(connect_timeout_error(name, connect_timeout)))
}

/// Returns the tool with this name, or an error. Returns `None` while the tool's set connects.
fn resolve_tool(toolbox: &Toolbox, name: &ToolName) -> Option<Result<ReadyTool, ToolError>> {
    match toolbox.find_planned(name) {
        ToolLookup::Tool(tool) => Some(Ok(tool)),
        ToolLookup::Connecting => None,
        ToolLookup::Unknown => {
            let reason = format!(
                "this node has no tool `{name}`: its toolset was removed, or the toolset's \
                 condition is now false (see `setContext`)"
            );
            Some(Err(ToolError::new(ErrorCode::UNAVAILABLE, reason)))
        }
        ToolLookup::Inactive(tool) => Some(Err(inactive_error(name, &tool.definition().set))),
        ToolLookup::Failed { set, error } => Some(Err(failed_set_error(&set, &error))),
    }
}

fn is_absent_error(error: &ToolError) -> bool {
    error.code == ErrorCode::UNAVAILABLE
}

pub fn inactive_error(name: &ToolName, set: &ToolSetName) -> ToolError {
    let reason = format!("`{name}` is inactive: activate the toolset `{set}`");
    ToolError::new(ErrorCode::INACTIVE, reason)
}

pub fn failed_set_error(set: &ToolSetName, error: &str) -> ToolError {
    ToolError::new(ErrorCode::UNAVAILABLE, format!("the toolset `{set}` has failed: {error}"))
}

pub fn connect_timeout_error(name: &ToolName, connect_timeout: Duration) -> ToolError {
    let reason = format!("the toolset of `{name}` did not connect within {connect_timeout:?}");
    ToolError::new(ErrorCode::UNAVAILABLE, reason)
}

/// Marks the outcome of a cancelled call as unknown, because the tool may have done some of its
/// work.
fn with_unknown_outcome_if_stopped(error: ToolError) -> ToolError {
    if error.code == ErrorCode::CANCELLED { error.with_unknown_outcome() } else { error }
}

fn not_started_error() -> ToolError {
    ToolError::new(ErrorCode::CANCELLED, "cancelled before the call started")
}

fn not_stopped_error(grace: Duration) -> ToolError {
    let reason = format!("cancelled, and ended after {grace:?} because it did not stop");
    ToolError::new(ErrorCode::CANCELLED, reason)
}

fn timeout_error(timeout: Duration) -> ToolError {
    let reason = format!("took longer than its timeout of {timeout:?} and was ended");
    ToolError::new(ErrorCode::TIMEOUT, reason)
}

fn idle_timeout_error(idle_limit: Duration) -> ToolError {
    let reason = format!(
        "the tool sent no answer and no progress for {idle_limit:?}, so the call was ended"
    );
    ToolError::new(ErrorCode::TIMEOUT, reason)
}

fn panic_error(tool: &ToolName) -> ToolError {
    ToolError::failed(format!("`{tool}` panicked: this is a bug in the tool"))
        .with_unknown_outcome()
}

fn check_output(output: Value, max_bytes: usize) -> Result<Value, ToolError> {
    let bytes = json::json_size(&output);
    if bytes > max_bytes {
        let reason = format!(
            "returned {bytes} bytes as JSON; the limit is {max_bytes}: return less, or the name of \
             a file"
        );
        return Err(ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, reason));
    }
    if json::is_deeper_than(&output, limits::JSON_DEPTH) {
        let reason = format!("returned JSON nested deeper than {} levels", limits::JSON_DEPTH);
        return Err(ToolError::new(ErrorCode::OUTPUT_TOO_LARGE, reason));
    }
    Ok(output)
}

#[cfg(test)]
mod tests;
