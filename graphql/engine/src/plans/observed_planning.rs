use std::{sync::Arc, time::Instant};

use shared::{
    metrics::process_metrics,
    plan::Plan,
    trace::{OpenSpan, SpanKind, current_scope, with_scope},
};

use super::{PlanningOptions, Plans};
use crate::EngineError;

impl Plans {
    /// Plans a query. The request and its transcript are stored even if there is no plan, unless
    /// the labels are invalid.
    pub async fn plan_query(
        &self,
        query: &str,
        options: &PlanningOptions,
    ) -> Result<Arc<Plan>, EngineError> {
        let planner = self.planners.find_planner(options.planner.as_deref());
        let planner =
            planner.map_or_else(|_| "unknown".to_owned(), |found| found.name().to_owned());
        let (started_at, span) = (Instant::now(), OpenSpan::start("plan", SpanKind::Internal));
        let scope = span.as_ref().map(OpenSpan::scope).or_else(current_scope);
        let result = with_scope(scope, self.plan_new_request(query, options)).await;
        process_metrics().count_planning(&planner, result.is_ok(), started_at.elapsed());
        if let Some(mut span) = span {
            span.set("gen_ai.operation.name", "plan");
            span.set("faber.planner", planner);
            let request = match &result {
                Ok(plan) => Some(plan.info().request),
                Err(err) => err.request(),
            };
            if let Some(request) = request {
                span.set("gen_ai.conversation.id", request.to_string());
                span.set("faber.request.id", request.to_string());
            }
            if let Ok(plan) = &result {
                span.set("faber.plan.id", plan.id().to_string());
            }
            span.finish(result.as_ref().err().map(EngineError::code));
        }
        result
    }
}
