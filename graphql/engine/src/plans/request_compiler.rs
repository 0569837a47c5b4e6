use async_trait::async_trait;
use planner::{PlanCompiler, Rejection, catalog::Catalog, compile::Compiled, draft::Draft};
use shared::{diagnostic::Diagnostic, id::RequestId};

use super::Plans;
use crate::error::EngineError;

pub(super) struct RequestCompiler<'a> {
    pub(super) plans: &'a Plans,
    pub(super) request: RequestId,
    pub(super) query: &'a str,
    pub(super) catalog: &'a Catalog,
}

#[async_trait]
impl PlanCompiler for RequestCompiler<'_> {
    async fn compile(&self, draft: &Draft, author: &str) -> Result<Compiled, Rejection> {
        let info = self.plans.new_info(self.request, self.query.to_owned(), author);
        match self.plans.compile(draft, info, self.catalog).await {
            Ok(compiled) => Ok(compiled),
            Err(EngineError::InvalidPlan { diagnostics, .. }) => {
                Err(Rejection::Invalid(diagnostics))
            }
            Err(EngineError::Store(err)) => Err(Rejection::Store(err)),
            // Any other error means that the draft names more sub-plans than are allowed.
            Err(err) => {
                let found = Diagnostic::error("plan.too_large", "tools", err.to_string());
                Err(Rejection::Invalid(vec![found]))
            }
        }
    }
}
