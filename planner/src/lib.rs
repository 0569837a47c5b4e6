pub mod calls;
pub mod candidates;
pub mod catalog;
pub mod compile;
pub mod draft;
pub mod embed;
pub mod escape;
pub mod fork;
pub mod layout;
pub mod learning;
pub mod model;
pub mod plan_cache;
pub mod replan;
pub mod reuse;
pub mod rounded;
pub mod select;
pub mod sub_plans;
pub mod suggest;
pub mod toolkit;
pub mod writer;

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use shared::{diagnostic::Diagnostic, store::StoreError};

use crate::{catalog::Catalog, compile::Compiled, draft::Draft, replan::EarlierPlan};

/// The planner's name of plans that a person or a program wrote.
pub const EXPLICIT_PLANNER: &str = "explicit";

#[async_trait]
pub trait Planner: Send + Sync {
    fn name(&self) -> &str;

    /// Plans `query` with tools of `catalog`. `compiler` turns the planner's draft into a plan, or
    /// returns all diagnostics.
    async fn plan(
        &self,
        query: &str,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError>;

    /// Plans `query` as [`plan`](Self::plan) does. A planner that finds chains of calls may also
    /// use the tools of `chain_catalog` that only read, although the query does not name them.
    async fn plan_within(
        &self,
        query: &str,
        catalog: &Catalog,
        _chain_catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        self.plan(query, catalog, compiler).await
    }

    /// Plans `query` with the result of a simpler planner, which may be wrong.
    async fn plan_with_hint(
        &self,
        query: &str,
        _hint: Option<Hint<'_>>,
        catalog: &Catalog,
        compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        self.plan(query, catalog, compiler).await
    }

    /// Plans the remaining part of an earlier plan from the results of its steps. The planner does
    /// not see all fields of the earlier steps, so the caller and `compiler` copy the remaining
    /// fields into the draft ([`replan::carry_over`]).
    async fn replan(
        &self,
        _query: &str,
        _earlier: &EarlierPlan,
        _catalog: &Catalog,
        _compiler: &dyn PlanCompiler,
    ) -> Result<ProposedPlan, PlanningError> {
        let name = self.name();
        let message = format!(
            "the planner `{name}` cannot continue a plan that failed: configure a \
             model, or write the next version yourself"
        );
        Err(PlanningError::Unavailable { message, notes: Vec::new() })
    }
}

/// Compiles drafts for a planner. The caller of a planner knows all tools and all saved plans.
#[async_trait]
pub trait PlanCompiler: Send + Sync {
    async fn compile(&self, draft: &Draft, author: &str) -> Result<Compiled, Rejection>;
}

#[derive(Clone, Debug, PartialEq)]
pub enum Rejection {
    Invalid(Vec<Diagnostic>),
    Store(StoreError),
}

#[derive(Clone, Debug)]
pub struct ProposedPlan {
    pub compiled: Compiled,
    pub proposal: Proposal,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    pub draft: Draft,
    pub notes: Vec<Note>,
    pub warnings: Vec<Diagnostic>,
    /// The model that wrote the draft, which may be a fallback. Otherwise [`Planner::name`] is the
    /// author.
    pub author: Option<String>,
}

impl Proposal {
    /// Compiles the draft of a planner. If the draft is invalid, the error contains the proposal's
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

/// The result of a simpler planner.
#[derive(Clone, Copy, Debug)]
pub enum Hint<'a> {
    Draft(&'a Draft),
    /// The reason why the query itself forbids a plan: see [`PlanningError::NoPlan`].
    Refusal(&'a str),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The kind, such as `candidates`, `clauses`, `prompt` or `reply`.
    pub kind: &'static str,
    pub content: Value,
    pub after: Duration,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanningError {
    #[error("{message}")]
    NoPlan {
        message: String,
        nearest: Vec<String>,
        /// `true` if the query itself forbids a plan: it orders nothing, or it lacks a value.
        /// Another planner could only guess.
        is_certain: bool,
        notes: Vec<Note>,
    },
    #[error("{message}")]
    Unavailable { message: String, notes: Vec<Note> },
    #[error("the plan cannot run, and no repair succeeded: {}", .diagnostics.first().map_or("", |diagnostic| &diagnostic.message))]
    Invalid { diagnostics: Vec<Diagnostic>, notes: Vec<Note> },
    #[error("{error}")]
    Store { error: StoreError, notes: Vec<Note> },
}

impl PlanningError {
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
