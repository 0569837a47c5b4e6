//! What to do: from words to drafts, from drafts to plans.

pub mod calls;
pub mod catalog;
pub mod compile;
pub mod draft;
pub mod embed;
pub mod escape;
pub mod inherited;
pub mod layout;
pub mod model;
pub mod nearest;
pub mod plans;
pub mod select;
pub mod toolkit;
pub mod writer;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use shared::diagnostic::Diagnostic;

use crate::{catalog::Catalog, draft::Draft};

/// Turns a query into a draft.
#[async_trait]
pub trait Planner: Send + Sync {
    /// Returns the name by which plans remember who wrote them.
    fn name(&self) -> &str;

    /// Proposes a draft for `query` that uses tools of `catalog`.
    ///
    /// What is worth knowing about how it came to be goes into the [`Proposal`], or into the
    /// error: it becomes the request's transcript.
    async fn propose(&self, query: &str, catalog: &Catalog) -> Result<Proposal, PlanningError>;

    /// Proposes a draft that `judge` finds nothing wrong with, where the planner can do better when
    /// told what is. Others propose what they propose.
    async fn propose_checked(
        &self,
        query: &str,
        catalog: &Catalog,
        _judge: &dyn Judge,
    ) -> Result<Proposal, PlanningError> {
        self.propose(query, catalog).await
    }

    /// Proposes how to go on after a plan that did not get to its end, knowing what came of it.
    /// What steps had there that no planner is told of is for whoever asks to give to the draft
    /// ([`inherited`]), and for `judge`.
    async fn propose_after(
        &self,
        _query: &str,
        _earlier: &Earlier,
        _catalog: &Catalog,
        _judge: &dyn Judge,
    ) -> Result<Proposal, PlanningError> {
        let name = self.name();
        let message = format!(
            "the planner `{name}` knows queries only, and not what came of a plan: configure a \
             model, or write the next version yourself"
        );
        Err(PlanningError::Unavailable { message, notes: Vec::new() })
    }
}

/// A plan that was carried out, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Earlier {
    /// The plan, written down.
    pub draft: Draft,
    /// What came of each step, in plan order.
    pub endings: Vec<Ending>,
    /// Why the execution ended as it did, in words.
    pub why: String,
    /// Whether it got to its end, and a step of it asked for a plan of what follows.
    pub asked: bool,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ending {
    /// The step.
    pub step: String,
    /// `succeeded`, `failed`, `unknown` (it may have happened, or may yet), `skipped`,
    /// `cancelled`, `undone`, or `undoing_failed`.
    pub state: &'static str,
    /// What it returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Arc<Value>>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The same of each item of its list, as far as that is told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<&'static str>,
}

/// Says what is wrong with a draft. Whoever asks for a plan knows what it takes to be one.
#[async_trait]
pub trait Judge: Send + Sync {
    /// Returns what is wrong with a draft; it can be a plan if nothing of that is an error.
    async fn judge(&self, draft: &Draft) -> Vec<Diagnostic>;
}

/// A draft, and how it came to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// The draft.
    pub draft: Draft,
    /// How it came to be, oldest first.
    pub notes: Vec<Note>,
    /// What the author should know: what was assumed because it was not said.
    pub warnings: Vec<Diagnostic>,
    /// Who wrote the draft, where that is another one than [`Planner::name`] says: a fallback model.
    pub author: Option<String>,
}

/// Something worth knowing about how a draft came to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// What kind of thing: `candidates`, `clauses`, `assumptions`, `prompt`, `reply`.
    pub kind: &'static str,
    /// All of it.
    pub content: Value,
    /// When it came to be, counted from the moment at which the planner was asked.
    pub after: Duration,
}

/// Why there is no draft.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanningError {
    /// The planner understood, or did not, and no tool does what is asked.
    #[error("{message}")]
    NoPlan {
        /// What could not be done or filled, and what to do.
        message: String,
        /// The nearest tools, best first.
        nearest: Vec<String>,
        /// How far it came.
        notes: Vec<Note>,
    },
    /// The planner could not be reached.
    #[error("{message}")]
    Unavailable {
        /// Why, and what to do.
        message: String,
        /// How far it came.
        notes: Vec<Note>,
    },
    /// What the planner made cannot run, however often it was told.
    #[error("the plan cannot run, and was not mended: {}", .diagnostics.first().map_or("", |it| &it.message))]
    Invalid {
        /// What is wrong with the last one.
        diagnostics: Vec<Diagnostic>,
        /// How far it came.
        notes: Vec<Note>,
    },
}

impl PlanningError {
    /// Returns the same with how far the planner came.
    #[must_use]
    pub fn with_notes(mut self, new: Vec<Note>) -> Self {
        let (Self::NoPlan { notes, .. }
        | Self::Unavailable { notes, .. }
        | Self::Invalid { notes, .. }) = &mut self;
        *notes = new;
        self
    }
}
