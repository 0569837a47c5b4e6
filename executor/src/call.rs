//! One attempt: find the tool, check the parameters, call it, cut it off, check what it returns.
//!
//! An attempt whose time is up is told to stop like one that is cancelled, so that the other side
//! hears of it; whatever it still answers, its time was up.

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

/// What a driver knows a call by, for its reports.
pub(crate) type Key = (Task, Attempt);

/// An attempt that is about to begin.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) task: Task,
    pub(crate) attempt: Attempt,
    pub(crate) tool: ToolName,
    /// The tool itself, where it is known which one it must be.
    pub(crate) pinned: Option<ReadyTool>,
    pub(crate) parameters: Arc<Value>,
    /// How long the whole may take.
    pub(crate) timeout: Duration,
    /// How long the tool may be silent: without an answer and without a report of progress.
    pub(crate) idle_timeout: Option<Duration>,
    /// Where its reports go, no faster than a log wants them.
    pub(crate) progress: ProgressSink<Key>,
    /// Its reporter is set when the call begins, and its token must be this call's own.
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
    /// Whether the tool that the plan names was not there, so that nothing was called.
    pub(crate) is_gone: bool,
}

impl Call {
    /// Carries the attempt out. It ends: by itself, by a timeout, or by its cancellation.
    pub(crate) async fn carry_out(self, toolbox: Toolbox, options: Arc<Options>) -> Ended {
        let (task, attempt) = (self.task, self.attempt);
        let aside = self.cx.aside.clone();
        let own = self.pinned.is_none();
        let dispatch = Dispatch::of(&toolbox, &self.tool, &self.parameters).filter(|_| own);
        let mut is_gone = false;
        let result = match dispatch {
            None => {
                let (result, is_found) = self.counted(&toolbox, &options, None).await;
                is_gone = !is_found && result.as_ref().is_err_and(is_absence);
                result
            }
            Some(Err(err)) => Err(err),
            Some(Ok(dispatch)) => {
                let (tool, parameters) = (dispatch.tool.clone(), Arc::clone(&dispatch.args));
                let call = Self { tool, parameters, ..self };
                let (result, _) = call.counted(&toolbox, &options, Some(&dispatch)).await;
                dispatch.report(result)
            }
        };
        let stderr = aside.take();
        let beside = stderr.as_ref().map_or(0, String::len);
        let bytes = result.as_ref().map_or(256, json::json_size) + beside;
        let result = result.map(|output| Answer { stderr, ..Answer::from(output) });
        Ended { task, attempt, result, bytes, is_gone }
    }

    /// Carries it out, and counts it where there is such a tool: names that mean nothing are
    /// without end. Returns whether there is, too.
    async fn counted(
        self,
        toolbox: &Toolbox,
        options: &Options,
        dispatch: Option<&Dispatch>,
    ) -> (Result<Value, ToolError>, bool) {
        let (tool, began) = (self.tool.clone(), Instant::now());
        let mut is_found = false;
        let result = self.result(toolbox, options, dispatch, &mut is_found).await;
        let result = result.and_then(|output| check(output, options.output_bytes));
        if is_found {
            toolbox.meter().count(&tool, began.elapsed(), result.is_err());
        }
        (result, is_found)
    }

    /// What never reaches the tool certainly does nothing, so its error is definite.
    async fn result(
        self,
        toolbox: &Toolbox,
        options: &Options,
        dispatch: Option<&Dispatch>,
        is_found: &mut bool,
    ) -> Result<Value, ToolError> {
        let mut whole = pin!(time::sleep(self.timeout));
        let found = self.found(toolbox, options.connect, dispatch);
        let ready = caught(&self.tool, self.ready(found, is_found));
        let (tool, parameters) = tokio::select! {
            biased;
            ready = ready => ready?,
            () = self.cx.cancel.cancelled() => return Err(not_begun()),
            () = &mut whole => return Err(timed_out(self.timeout)),
        };
        if self.cx.cancel.is_cancelled() {
            return Err(not_begun());
        }
        Self { parameters, ..self }.answer(&tool, whole, options.cancel_grace).await
    }

    /// Finds the tool. What a plan's author did not name is looked for among the sets alone.
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

    /// Looks whether the parameters, with all that they refer to, fit the tool.
    async fn ready(
        &self,
        found: impl Future<Output = Result<ReadyTool, ToolError>>,
        is_found: &mut bool,
    ) -> Result<(ReadyTool, Arc<Value>), ToolError> {
        let tool = found.await?;
        *is_found = true;
        // What `flow` is given it passes on, and a model reads no binaries: a reference is enough.
        let is_given_all = !matches!(tool.definition().set.as_str(), flow::SET | dispatch::SET);
        let parameters = match self.cx.blobs.as_ref().filter(|_| is_given_all) {
            Some(blobs) => blobs.restore(&self.parameters).await?,
            None => Arc::clone(&self.parameters),
        };
        match tool.complaint(&parameters) {
            Some(complaint) => Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, complaint)),
            None => Ok((tool, parameters)),
        }
    }

    /// Calls the tool until it answers or has to stop.
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

/// Calls a tool outside any plan: this one, whatever its name means by then. It ends: by itself, by
/// the time that a step has, or by the context's token.
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
    ended.result.map(|it| it.output)
}

/// Turns a panic into an error.
async fn caught<T>(
    tool: &ToolName,
    work: impl Future<Output = Result<T, ToolError>>,
) -> Result<T, ToolError> {
    let result = AssertUnwindSafe(work).catch_unwind().await;
    result.unwrap_or_else(|_| Err(panicked(tool)))
}

/// Passes reports on until none comes for `idle`, which it returns.
///
/// Between two reports it does not listen for a while: of what comes meanwhile the newest is there
/// afterwards, with the time at which the tool made it.
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

/// Finds a tool; waits a while for a set that is still connecting, and for one that has failed and
/// is asked again.
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

/// Returns what a name means, or nothing while that may still turn out.
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

/// Returns whether an error, of a tool that was not found, says that there is none. Where there is one
/// it says that it could not be reached.
fn is_absence(error: &ToolError) -> bool {
    error.code == ErrorCode::UNAVAILABLE
}

/// Says that a tool is switched off.
pub fn inactive(name: &ToolName, set: &ToolSetName) -> ToolError {
    let why = format!("`{name}` is switched off: activate the toolset `{set}`");
    ToolError::new(ErrorCode::INACTIVE, why)
}

/// Says that the set of a tool could not be asked for its tools.
pub fn failed(set: &ToolSetName, error: &str) -> ToolError {
    ToolError::new(ErrorCode::UNAVAILABLE, format!("the toolset `{set}` has failed: {error}"))
}

/// Says that the set of a tool takes too long to connect.
pub fn late(name: &ToolName, connect: Duration) -> ToolError {
    let why = format!("the toolset of `{name}` did not connect within {connect:?}");
    ToolError::new(ErrorCode::UNAVAILABLE, why)
}

/// A tool that was stopped may have done its work, or a part of it.
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
