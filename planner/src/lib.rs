//! What to do: from words to drafts, from drafts to plans.

pub mod calls;
pub mod candidates;
pub mod catalog;
pub mod compile;
pub mod draft;
pub mod embed;
pub mod escape;
pub mod layout;
pub mod learning;
pub mod model;
pub mod nearest;
pub mod plan_cache;
pub mod plans;
pub mod replan;
pub mod reuse;
pub mod select;
pub mod toolkit;
pub mod writer;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::{diagnostic::Diagnostic, store::StoreError};

use crate::{catalog::Catalog, compile::Compiled, draft::Draft, replan::EarlierPlan};

/// The planner of plans that nobody asked for in words.
pub const EXPLICIT: &str = "explicit";

/// Turns a query into a plan.
#[async_trait]
pub trait Planner: Send + Sync {
    /// Returns the name by which plans remember who wrote them.
    fn name(&self) -> &str;

    /// Plans `query` with tools of `catalog`. `compiler` turns the planner's draft into a plan, or
    /// returns everything that is wrong with it.
    ///
    /// The notes of the proposal, or of the error, become the request's transcript.
    async fn plan(
        &self,
        query: &str,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError>;

    /// Plans what an earlier plan did not get done, from the results of its steps.
    ///
    /// The planner does not see all fields of the earlier steps. The caller copies the others into
    /// the draft ([`replan::carry_over`]), and so does `compiler`.
    async fn replan(
        &self,
        _query: &str,
        _earlier: &EarlierPlan,
        _catalog: &Catalog,
        _compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        let name = self.name();
        let message = format!(
            "the planner `{name}` knows queries only, and not what came of a plan: configure a \
             model, or write the next version yourself"
        );
        Err(PlanningError::Unavailable { message, notes: Vec::new() })
    }
}

/// Compiles drafts for a planner. The caller of a planner knows all tools and all saved plans.
#[async_trait]
pub trait PlanCompiler: Send + Sync {
    /// Compiles a draft that `author` wrote.
    async fn compile(&self, draft: &Draft, author: &str) -> Result<Compiled, Rejection>;
}

/// Why a draft did not become a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Rejection {
    /// Everything that is wrong with it. At least one diagnostic is an error.
    Invalid(Vec<Diagnostic>),
    /// The store could not be read, so the draft was not compiled.
    Store(StoreError),
}

/// A proposal, and the plan that it compiles to.
#[derive(Clone, Debug)]
pub struct ProposedPlan {
    /// The plan, and the plans inside it.
    pub compiled: Compiled,
    /// The draft, and how it came to be.
    pub proposal: Proposal,
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
    /// Who wrote the draft, where that is another one than [`Planner::name`] says: a fallback
    /// model.
    pub author: Option<String>,
}

impl Proposal {
    /// Compiles the draft of the planner `planner`. If that fails, the error has the proposal's
    /// notes, the draft and its diagnostics.
    pub async fn compile(
        self,
        planner: &str,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        let author = self.author.as_deref().unwrap_or(planner);
        match compiler.compile(&self.draft, author).await {
            Ok(plans) => Ok(ProposedPlan { compiled: plans, proposal: self }),
            Err(Rejection::Store(error)) => Err(PlanningError::Store { error, notes: self.notes }),
            Err(Rejection::Invalid(diagnostics)) => {
                let mut notes = self.notes;
                let after = notes.last().map_or(Duration::ZERO, |note| note.after);
                for (kind, content) in
                    [("draft", json!(self.draft)), ("diagnostics", json!(diagnostics))]
                {
                    notes.push(Note { kind, content, after });
                }
                Err(PlanningError::Invalid { diagnostics, notes })
            }
        }
    }
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
    /// The store failed while the plan was compiled.
    #[error("{error}")]
    Store {
        /// Its failure.
        error: StoreError,
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
        | Self::Invalid { notes, .. }
        | Self::Store { notes, .. }) = &mut self;
        *notes = new;
        self
    }
}
