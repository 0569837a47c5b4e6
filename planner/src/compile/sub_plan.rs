use std::collections::BTreeMap;

use shared::{
    diagnostic::Diagnostic,
    limits,
    plan::{Plan, PlanInfo},
};

use super::{CompileContext, names::shorten_name, place, report::Report};
use crate::{
    catalog::Catalog,
    draft::{Draft, SubDraft},
    sub_plans::{SubPlan, SubPlans},
    suggest::did_you_mean,
};

pub(super) type InlinePlans = BTreeMap<usize, Result<SubPlan, Vec<Diagnostic>>>;

pub(super) struct DraftTree<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) plans: &'a SubPlans,
    pub(super) about: &'a mut dyn FnMut(&Draft) -> PlanInfo,
    pub(super) inner_plans: Vec<Plan>,
}

impl DraftTree<'_> {
    /// Compiles a draft and its inline drafts. Returns its plan and the depth of sub-plans.
    pub(super) fn compile(
        &mut self,
        draft: &Draft,
        about: PlanInfo,
        level: u32,
    ) -> Result<(Plan, u32), Vec<Diagnostic>> {
        let mut inline = InlinePlans::new();
        for (index, step) in draft.tools.iter().enumerate() {
            if let Some(SubDraft::Inline(inner)) = &step.plan {
                inline.insert(index, self.compile_inner(index, inner, level));
            }
        }
        let context = CompileContext { catalog: self.catalog, plans: self.plans, inline: &inline };
        let plan = super::compile_single(draft, about, &context)?;
        let below = draft.tools.iter().enumerate().filter_map(|(index, step)| {
            let found = match step.plan.as_ref()? {
                SubDraft::Named(name) => self.plans.find(name),
                SubDraft::Inline(_) => inline.get(&index)?.as_ref().ok(),
            };
            found?.depth_around()
        });
        let depth = below.max().unwrap_or(0);
        Ok((plan, depth))
    }

    fn compile_inner(
        &mut self,
        index: usize,
        draft: &Draft,
        level: u32,
    ) -> Result<SubPlan, Vec<Diagnostic>> {
        if level >= limits::ANCESTORS {
            return Err(vec![too_deep_error(index)]);
        }
        let about = (self.about)(draft);
        let id = about.id;
        match self.compile(draft, about, level + 1) {
            Ok((plan, depth)) => {
                self.inner_plans.push(plan);
                Ok(SubPlan { id, depth, inputs: None })
            }
            Err(found) => {
                Err(found.into_iter().map(|diagnostic| with_step_path(index, diagnostic)).collect())
            }
        }
    }
}

pub(super) struct FoundPlan<'a> {
    pub(super) name: String,
    pub(super) plan: Option<&'a SubPlan>,
}

pub(super) fn find_plan<'a>(
    index: usize,
    written: &SubDraft,
    context: &CompileContext<'a>,
    report: &mut Report,
) -> FoundPlan<'a> {
    let (name, plan) = match written {
        SubDraft::Named(name) => {
            let found = context.plans.find(name);
            if found.is_none() && !name.is_empty() {
                report.error(index, || unknown_plan_error(index, name, context.plans));
            }
            (name.clone(), found)
        }
        SubDraft::Inline(_) => match context.inline.get(&index) {
            Some(Ok(plan)) => (plan.id.to_string(), Some(plan)),
            Some(Err(found)) => {
                for diagnostic in found {
                    report.error(index, || diagnostic.clone());
                }
                ("plan".to_owned(), None)
            }
            None => {
                report.error(index, || inline_plan_error(index));
                ("plan".to_owned(), None)
            }
        },
    };
    if plan.is_some_and(|plan| plan.depth_around().is_none()) {
        report.error(index, || too_deep_error(index));
    }
    FoundPlan { name, plan }
}

fn unknown_plan_error(index: usize, name: &str, plans: &SubPlans) -> Diagnostic {
    let help = did_you_mean(name, plans.list_names()).unwrap_or_else(|| {
        "write the id of a plan, the name of a saved plan, or a plan: `{\"tools\": […]}`".to_owned()
    });
    let message = format!("no plan is called `{}`", shorten_name(name));
    Diagnostic::error("plan.unknown_plan", place::field_path(index, "plan"), message)
        .with_help(help)
}

fn inline_plan_error(index: usize) -> Diagnostic {
    let message = "a plan inside a plan cannot be compiled here";
    Diagnostic::error("plan.unknown_plan", place::field_path(index, "plan"), message)
        .with_help("create that plan first, and write its id")
}

pub(super) fn too_deep_error(index: usize) -> Diagnostic {
    let message = format!("more than {} plans are nested", limits::ANCESTORS);
    Diagnostic::error("plan.too_deep", place::field_path(index, "plan"), message)
        .with_help("nest fewer plans, or copy the steps of one into another")
}

pub(super) fn with_step_path(index: usize, mut diagnostic: Diagnostic) -> Diagnostic {
    let dot = if diagnostic.path.is_empty() { "" } else { "." };
    diagnostic.path = format!("tools[{index}].plan{dot}{}", diagnostic.path);
    diagnostic
}
