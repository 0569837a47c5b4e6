use std::sync::Arc;

use async_trait::async_trait;
use planner::{
    EXPLICIT_PLANNER, PlanCompiler, PlanningError, ProposedPlan, Rejection,
    candidates::Candidates,
    compile::Compiled,
    draft::Draft,
    replan::{EarlierPlan, RepeatGuard, carry_over},
};
use shared::{
    execution::{Execution, REPLAN},
    plan::Plan,
};

use super::{
    PlannerInput, PlanningScope, Plans, RequestCompiler, guard::GuardedQuery,
    transcript::Transcript,
};
use crate::error::EngineError;

struct ReplanCompiler<'a> {
    compiler: RequestCompiler<'a>,
    earlier: &'a EarlierPlan,
    guard: &'a RepeatGuard<'a>,
}

#[async_trait]
impl PlanCompiler for ReplanCompiler<'_> {
    async fn compile(&self, draft: &Draft, author: &str) -> Result<Compiled, Rejection> {
        let mut draft = draft.clone();
        self.carry_over(&mut draft);
        let compiled = self.compiler.compile(&draft, author).await?;
        let repeats = self.guard.find_repeats(&draft, &Arc::new(compiled.plan.clone()));
        if repeats.is_empty() { Ok(compiled) } else { Err(Rejection::Invalid(repeats)) }
    }
}

impl ReplanCompiler<'_> {
    /// Looks up tools in the whole catalog, because the planner has perhaps seen only a part of it.
    fn carry_over(&self, draft: &mut Draft) {
        carry_over(draft, &self.earlier.draft, self.compiler.catalog);
    }
}

impl Plans {
    /// Lets the planner write the next version of a finished execution's plan. Stores nothing.
    pub(crate) async fn propose_replan(
        &self,
        finished: &Execution,
        earlier: EarlierPlan,
        scope: PlanningScope<'_>,
        guard: &RepeatGuard<'_>,
        transcript: &mut Transcript,
    ) -> Result<Result<ProposedPlan, PlanningError>, EngineError> {
        let query = finished.plan().info().query.as_str();
        let is_offline = self.planners.is_offline(&*scope.planner);
        if is_offline && !self.planners.is_made_offline(finished.plan()) {
            return Ok(Err(missing_model_error()));
        }
        let is_last = finished.options().replans.after_replan().left == 0;
        let PlannerInput { catalog, candidates, .. } =
            self.collect_planner_input(query, &scope, is_last).await?;
        // A detour can need tools that match no word of the query, so all tools are offered.
        let offered = if is_offline {
            catalog.clone()
        } else {
            let plan = Some(finished.plan().as_ref());
            let Candidates { catalog, report } =
                self.keep_best_candidates(query, candidates, plan, &scope).await;
            transcript.add("selection", report);
            catalog
        };
        let request = finished.request();
        let compiler = RequestCompiler { plans: self, request, query, catalog: &catalog };
        let compiler = ReplanCompiler { compiler, earlier: &earlier, guard };
        transcript.start_planner_request();
        let planner = &scope.planner;
        let mut proposed = planner.replan(query, &earlier, &offered, &compiler).await;
        if let Ok(ProposedPlan { proposal, .. }) = &mut proposed {
            compiler.carry_over(&mut proposal.draft);
        }
        let full_query = match find_written_goal(finished.plan(), &earlier) {
            Some(goal) => format!("{query}\n{goal}"),
            None => query.to_owned(),
        };
        Ok(match proposed {
            // A detour needs no guard, because it calls tools with an effect only if the earlier
            // plan called them.
            Ok(proposed) if is_offline => Ok(proposed),
            Ok(proposed) => {
                GuardedQuery::new(scope.guard, &full_query, &offered, &catalog)
                    .accept_earlier_calls(&earlier)
                    .check(proposed, planner.name(), &compiler)
                    .await
            }
            Err(err) => Err(err),
        })
    }
}

fn missing_model_error() -> PlanningError {
    let message = "without a model, Faber can replan only a plan that was made from a query, and \
                   only around failed calls of `READ` tools: configure a model, or write the next \
                   version yourself";
    PlanningError::Unavailable { message: message.to_owned(), notes: Vec::new() }
}

/// Returns the goal of a `flow.replan` step if a person wrote the plan. Ignores a goal that a model
/// wrote, because only a person can ask for calls with an effect.
fn find_written_goal<'a>(plan: &Plan, earlier: &'a EarlierPlan) -> Option<&'a str> {
    let is_written = plan.info().planner == EXPLICIT_PLANNER && earlier.is_requested;
    let mut steps = earlier.draft.tools.iter().filter(|_| is_written);
    let asking = steps.find(|step| step.name.as_deref() == Some(REPLAN))?;
    asking.parameters.as_ref()?["goal"].as_str()
}
