use std::sync::Arc;

use planner::{
    EXPLICIT_PLANNER,
    catalog::Catalog,
    compile::{Compiled, compile_all},
    draft::{Draft, SubDraft},
};
use shared::{
    diagnostic::Diagnostic,
    id::{PlanId, RequestId, ToolName},
    labels::Labels,
    plan::{Plan, PlanInfo},
};

use super::{MAX_SHORT_QUERY_BYTES, Plans, check_length, transcript::Transcript};
use crate::error::EngineError;

/// The result of compiling a draft: a plan unless a diagnostic is an error.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub plan: Option<Arc<Plan>>,
    pub diagnostics: Vec<Diagnostic>,
}

impl Plans {
    pub async fn validate(&self, draft: &Draft) -> Result<Verdict, EngineError> {
        to_verdict(self.compile_draft(draft).await.map(|compiled| Arc::new(compiled.plan)))
    }

    async fn compile_draft(&self, draft: &Draft) -> Result<Compiled, EngineError> {
        let request = RequestId::draw(self.clock.now());
        let info = self.new_info(request, find_or_derive_query(draft), EXPLICIT_PLANNER);
        let names = collect_tool_names(draft);
        self.tools.inventory.wait_for_tools(&names).await;
        let catalog = self.tools.catalog_without_waiting();
        let compiled = self.compile(draft, info.clone(), &catalog).await;
        if matches!(compiled, Err(EngineError::InvalidPlan { .. }))
            && !self.tools.grant.allows_every_tool()
        {
            // Reports a tool that the caller is not allowed to use as forbidden and not as unknown,
            // even if the tool is inactive or the draft has other errors.
            let inventory = &self.tools.inventory;
            let all = inventory.build_catalog(&inventory.toolbox().sets());
            let found = names.iter().filter_map(|name| all.find(name.as_str()));
            let tools: Vec<_> = found.map(|tool| tool.definition.qualified_name()).collect();
            self.tools.grant.check_tools(&tools)?;
            match self.compile(draft, info, &all).await {
                Ok(compiled) => self.check_compiled(&compiled).await?,
                Err(EngineError::InvalidPlan { .. }) => (),
                Err(err) => return Err(err),
            }
        }
        let compiled = compiled?;
        self.check_compiled(&compiled).await?;
        Ok(compiled)
    }

    pub(super) async fn compile(
        &self,
        draft: &Draft,
        info: PlanInfo,
        catalog: &Catalog,
    ) -> Result<Compiled, EngineError> {
        let sub_plans = self.library.find_sub_plans(draft).await?;
        let planner = info.planner.clone();
        let mut new_info = |draft: &Draft| {
            let request = RequestId::draw(self.clock.now());
            self.new_info(request, find_or_derive_query(draft), &planner)
        };
        compile_all(draft, info, catalog, &sub_plans, &mut new_info)
            .map_err(|diagnostics| EngineError::InvalidPlan { diagnostics, request: None })
    }

    /// Compiles a draft and stores the plan. A draft that names a request becomes the next version
    /// of that request.
    pub async fn create_plan(&self, draft: &Draft) -> Result<Verdict, EngineError> {
        let request = match &draft.request_id {
            Some(id) => Some(self.find_request(id).await?),
            None => None,
        };
        let compiled = match self.compile_draft(draft).await {
            Ok(compiled) => compiled,
            Err(err) => return to_verdict(Err(err)),
        };
        let query = find_or_derive_query(draft);
        check_length(&query)?;
        let (request, version) = match request {
            Some(id) => (id, self.library.next_version(id).await?),
            None => (self.new_request(&query, &Labels::new()).await?.id, 1),
        };
        let draft_json = serde_json::to_value(draft).unwrap_or_default();
        let mut transcript = Transcript::new(&self.clock);
        transcript.add("draft", draft_json);
        let created_at = self.clock.now();
        let info = PlanInfo { request, version, created_at, ..compiled.plan.info().clone() };
        let plan = compiled.plan.with_info(info);
        to_verdict(self.store_compiled(Compiled { plan, ..compiled }, transcript).await)
    }

    pub async fn revise(&self, id: PlanId, draft: &Draft) -> Result<Verdict, EngineError> {
        let Some(plan) = self.library.load(id).await? else {
            return Err(EngineError::not_found("plan", id));
        };
        let info = plan.info();
        if draft.request_id.as_ref().is_some_and(|other| *other != info.request.to_string()) {
            let reason = format!("`requestId` is not `{}`, the request of `{id}`", info.request);
            return Err(EngineError::InvalidArgument(reason));
        }
        let mut draft = draft.clone();
        draft.request_id = Some(info.request.to_string());
        draft.query.get_or_insert_with(|| info.query.clone());
        self.create_plan(&draft).await
    }

    async fn find_request(&self, id: &str) -> Result<RequestId, EngineError> {
        let missing = || EngineError::not_found("request", id);
        let id: RequestId = id.parse().map_err(|_| missing())?;
        self.store.request(id).await?.map(|request| request.id).ok_or_else(missing)
    }
}

fn to_verdict(compiled: Result<Arc<Plan>, EngineError>) -> Result<Verdict, EngineError> {
    match compiled {
        Ok(plan) => {
            let diagnostics = plan.diagnostics().to_vec();
            Ok(Verdict { plan: Some(plan), diagnostics })
        }
        Err(EngineError::InvalidPlan { diagnostics, .. }) => {
            Ok(Verdict { plan: None, diagnostics })
        }
        Err(err) => Err(err),
    }
}

fn find_or_derive_query(draft: &Draft) -> String {
    if let Some(query) = draft.query.as_deref().filter(|query| !query.trim().is_empty()) {
        return query.to_owned();
    }
    let names =
        draft.tools.iter().filter_map(|step| step.name.as_deref().or(step.tool_name.as_deref()));
    let mut query = String::new();
    for name in names {
        let separator = if query.is_empty() { "" } else { ", " };
        if query.len() + name.len() > MAX_SHORT_QUERY_BYTES {
            query.push_str(", …");
            break;
        }
        query.push_str(separator);
        query.push_str(name);
    }
    query
}

fn collect_tool_names(draft: &Draft) -> Vec<ToolName> {
    let mut names = Vec::new();
    for step in &draft.tools {
        let compensation = step.compensate.as_ref();
        let called = ["name", "toolName"]
            .map(|key| compensation.and_then(|compensation| compensation.get(key)?.as_str()));
        let written = [step.name.as_deref(), step.tool_name.as_deref()].into_iter().chain(called);
        names.extend(written.flatten().filter_map(|name| name.parse::<ToolName>().ok()));
        if let Some(SubDraft::Inline(inner)) = &step.plan {
            names.extend(collect_tool_names(inner));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use planner::draft::DraftStep;
    use shared::tool::{Effect, ToolError};
    use toolbox::{ToolContext, ToolSet, function};

    use super::*;
    use crate::{
        access::{Access, Role, Token},
        embedded::Embedded,
    };

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct UnusedParameters {
        #[expect(dead_code, reason = "a missing tool must not hide a missing permission")]
        much: u32,
    }

    #[tokio::test]
    async fn a_plan_with_a_forbidden_inactive_tool_is_rejected() {
        let make = |set: &'static str, name: &'static str| {
            let run = |_: UnusedParameters, _: ToolContext| async { Ok::<_, ToolError>("done") };
            let tool = function(set, name, "Does it.", Effect::Read, run);
            ToolSet::ready(set.parse().unwrap(), "local", "", [tool])
        };
        let off = ToolSet { is_active: false, ..make("off", "hidden") };
        let faber = Embedded::open("memory:", [make("on", "seen"), off]).await.unwrap();
        let mut token = Token::new("ci", "a secret that is hard to guess", Role::Operator);
        token.tools = Some(vec!["mine.*".parse().unwrap()]);
        let access = Access::new([token]);
        let engine = faber.engine().with_grant(access.find_grant_by_name("ci").unwrap());
        for name in ["on.seen", "off.hidden", "hidden"] {
            let step = DraftStep { name: Some(name.to_owned()), ..DraftStep::default() };
            let draft = Draft { tools: vec![step], ..Draft::default() };
            for refused in
                [engine.plans.create_plan(&draft).await, engine.plans.validate(&draft).await]
            {
                let Err(EngineError::Forbidden(reason)) = refused else {
                    panic!("{name}: {refused:?}")
                };
                let tool = name.rsplit('.').next().unwrap();
                assert!(reason.contains(&format!(".{tool}`")), "{reason}");
            }
        }
        let figures = access.format_metrics();
        assert!(figures.contains("{kind=\"forbidden_tool\"} 6"), "{figures}");
        faber.close().await;
    }
}
