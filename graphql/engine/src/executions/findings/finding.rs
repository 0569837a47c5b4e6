use std::borrow::Cow;

use shared::{
    clock::Timestamp,
    diagnostic::Severity,
    execution::Occurrence,
    id::{ExecutionId, Seq, StepId},
};

use super::remedy::Remedy;

pub const MAX_FINDINGS: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    Failure,
    Wait,
    Skip,
    Warning,
    Takeover,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// A code that later versions do not change. A finding about a failed step has the code of the
    /// step's error.
    pub code: Cow<'static, str>,
    pub severity: Severity,
    pub kind: FindingKind,
    pub step: Option<StepId>,
    pub index: Option<u32>,
    pub at: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub message: String,
    pub cause: Option<Seq>,
    /// The execution that caused the finding, or that the step waits for.
    pub cause_execution: Option<ExecutionId>,
    /// The name of the signal or tool, or the key of the limit, that the step or the execution
    /// waits for.
    pub awaited: Option<String>,
    pub remedies: Vec<Remedy>,
}

impl Finding {
    pub(super) fn new(
        kind: FindingKind,
        severity: Severity,
        code: impl Into<Cow<'static, str>>,
        message: String,
    ) -> Self {
        Self {
            code: code.into(),
            severity,
            kind,
            step: None,
            index: None,
            at: None,
            until: None,
            message,
            cause: None,
            cause_execution: None,
            awaited: None,
            remedies: Vec::new(),
        }
    }

    pub(super) fn about_step(self, step: &StepId, index: Option<u32>) -> Self {
        Self { step: Some(step.clone()), index, ..self }
    }

    pub(super) fn with_cause(self, event: Option<Occurrence>) -> Self {
        let (at, cause) = (event.map(|event| event.at), event.map(|event| event.seq));
        Self { at: self.at.or(at), cause: self.cause.or(cause), ..self }
    }

    pub(super) fn with_end(self, until: Timestamp) -> Self {
        Self { until: Some(until), ..self }
    }

    pub(super) fn with_awaited(self, name: String) -> Self {
        Self { awaited: Some(name), ..self }
    }

    pub(super) fn with_remedies(self, remedies: impl IntoIterator<Item = Remedy>) -> Self {
        Self { remedies: remedies.into_iter().collect(), ..self }
    }
}

/// Findings whose messages are not written yet. Only the first findings are rendered, because an
/// execution can have thousands of failed items, but a list shows one finding for each execution.
#[derive(Default)]
pub(super) struct Candidates<'a> {
    candidates: Vec<Candidate<'a>>,
}

struct Candidate<'a> {
    severity: Severity,
    at: Option<Timestamp>,
    render: Box<dyn FnOnce() -> Finding + 'a>,
}

impl<'a> Candidates<'a> {
    pub(super) fn add(
        &mut self,
        severity: Severity,
        event: Option<Occurrence>,
        render: impl FnOnce() -> Finding + 'a,
    ) {
        let at = event.map(|event| event.at);
        let render = Box::new(move || Finding { severity, ..render() }.with_cause(event));
        self.candidates.push(Candidate { severity, at, render });
    }

    /// Renders the most severe, earliest candidates, at most `max_findings` and at most
    /// [`MAX_FINDINGS`].
    pub(super) fn render_first(mut self, max_findings: usize) -> Vec<Finding> {
        let max_findings = max_findings.min(MAX_FINDINGS);
        self.candidates
            .sort_by_key(|candidate| (candidate.severity, candidate.at.is_none(), candidate.at));
        self.candidates
            .into_iter()
            .take(max_findings)
            .map(|candidate| (candidate.render)())
            .collect()
    }
}
