//! The draft of the offline planner for a query that a model plans. The model gets this draft as a
//! hint. If the model's plan is invalid, the draft becomes the plan. If the query itself forbids a
//! plan, the model gets the reason.

use std::{collections::BTreeSet, time::Duration};

use planner::{Hint, Note, PlanCompiler, PlanningError, ProposedPlan, candidates::Candidates};
use shared::{diagnostic::Diagnostic, execution::REPLAN, id::ToolName, plan::Plan};

use super::{PlanningScope, Plans};

/// Number of the best tools that a model sees, unless the caller sets `max_tools`.
const DEFAULT_MODEL_TOOLS: usize = 8;
/// A model sees all tools if there are at most this many. They are the same for each query, so that
/// a server can reuse its work on them. They include the eight tools of `flow`.
const MAX_UNSELECTED_TOOLS: usize = 24;
const MODEL_FAILED_CODE: &str = "plan.model_failed";

/// The result of the offline planner for a query that a model plans.
#[derive(Default)]
pub(super) struct OfflineResult {
    pub(super) draft: Option<ProposedPlan>,
    refusal: Option<String>,
}

impl OfflineResult {
    fn new(planned: Result<ProposedPlan, PlanningError>) -> Self {
        match planned {
            Ok(draft) => Self { draft: Some(draft), refusal: None },
            Err(PlanningError::NoPlan { message, is_certain: true, .. }) => {
                Self { draft: None, refusal: Some(message) }
            }
            // Ignores other errors of the offline planner. The model then gets no hint.
            Err(_) => Self::default(),
        }
    }

    pub(super) fn as_hint(&self) -> Option<Hint<'_>> {
        let draft = self.draft.as_ref().map(|draft| Hint::Draft(&draft.proposal.draft));
        draft.or_else(|| self.refusal.as_deref().map(Hint::Refusal))
    }
}

impl Plans {
    pub(super) async fn draft_offline(
        &self,
        query: &str,
        all_tools: Candidates,
        compiler: &dyn PlanCompiler,
        scope: &PlanningScope<'_>,
    ) -> (Candidates, OfflineResult) {
        let planned = self.planners.offline().plan(query, &all_tools.catalog, compiler).await;
        let result = OfflineResult::new(planned);
        let plan = result.draft.as_ref().map(|draft| &draft.compiled.plan);
        (self.keep_best_candidates(query, all_tools, plan, scope).await, result)
    }

    /// Keeps the best candidates for a model, because the model reads each of them.
    pub(super) async fn keep_best_candidates(
        &self,
        query: &str,
        all_tools: Candidates,
        plan: Option<&Plan>,
        scope: &PlanningScope<'_>,
    ) -> Candidates {
        let count = all_tools.catalog.list_plannable().count();
        if scope.max_tools.is_some() || count <= MAX_UNSELECTED_TOOLS {
            return all_tools;
        }
        let Candidates { catalog, report } =
            self.selection.candidates(query, &all_tools.catalog, DEFAULT_MODEL_TOOLS).await;
        let mut kept: BTreeSet<ToolName> =
            catalog.list_plannable().map(|tool| tool.qualified_name()).collect();
        kept.extend(plan.into_iter().flat_map(Plan::steps).map(|step| step.tool.clone()));
        let stays = |name: &ToolName| name.as_str() == REPLAN || kept.contains(name);
        let catalog = all_tools.catalog.filter_tools(|tool| {
            let is_plannable = tool.is_active && tool.definition.is_callable;
            !is_plannable || stays(&tool.definition.qualified_name())
        });
        Candidates { catalog, report }
    }
}

/// Returns the draft of the offline planner if the model's plan is still invalid after all repairs.
pub(super) fn replace_failed_plan(
    err: PlanningError,
    draft: ProposedPlan,
) -> Result<ProposedPlan, PlanningError> {
    match err {
        PlanningError::Invalid { diagnostics, mut notes } => {
            let ProposedPlan { compiled, mut proposal } = draft;
            let first = diagnostics.iter().find(|diagnostic| diagnostic.is_error());
            let reason = first.map_or("it cannot run", |diagnostic| diagnostic.message.as_str());
            let message = format!(
                "the model wrote no valid plan ({reason}), so this is the draft of the offline planner"
            );
            let warning = Diagnostic::warning(MODEL_FAILED_CODE, "", message);
            proposal.warnings.insert(0, warning.with_help("check the plan, or reword the query"));
            let after = notes.last().map_or(Duration::ZERO, |note| note.after);
            notes.extend(proposal.notes.into_iter().map(|note| Note { after, ..note }));
            proposal.notes = notes;
            Ok(ProposedPlan { compiled, proposal })
        }
        PlanningError::Unavailable { message, notes } => {
            let message = format!(
                "{message}; the offline planner has a draft of this query: use `--planner offline`"
            );
            Err(PlanningError::Unavailable { message, notes })
        }
        err => Err(err),
    }
}
