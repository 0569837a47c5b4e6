//! Steps that execute another plan, and plans that are written inside others.

use std::collections::BTreeMap;

use shared::{
    diagnostic::Diagnostic,
    limits,
    plan::{Plan, PlanInfo},
};

use super::{
    World,
    names::clip,
    place,
    report::Report,
    tools::{Choice, tool_name},
};
use crate::{
    catalog::Catalog,
    draft::{Draft, SubDraft},
    nearest::did_you_mean,
    plans::{SubPlan, SubPlans},
};

/// What became of the drafts inside a draft, by the number of their step.
pub(super) type Inline = BTreeMap<usize, Result<SubPlan, Vec<Diagnostic>>>;

/// What compiling draws on; it does not change from one draft inside another to the next.
pub(super) struct Tree<'a> {
    /// The tools.
    pub(super) catalog: &'a Catalog,
    /// The plans that steps may name.
    pub(super) plans: &'a SubPlans,
    /// Says what the plan of a draft inside another one is for.
    pub(super) about: &'a mut dyn FnMut(&Draft) -> PlanInfo,
    /// The plans of the drafts inside, innermost first.
    pub(super) done: Vec<Plan>,
}

impl Tree<'_> {
    /// Compiles a draft and those inside it. Returns its plan, and how deep plans are nested below it.
    pub(super) fn compile(
        &mut self,
        draft: &Draft,
        about: PlanInfo,
        level: u32,
    ) -> Result<(Plan, u32), Vec<Diagnostic>> {
        let mut inline = Inline::new();
        for (at, step) in draft.tools.iter().enumerate() {
            if let Some(SubDraft::Inline(inner)) = &step.plan {
                inline.insert(at, self.inner(at, inner, level));
            }
        }
        let world = World { catalog: self.catalog, plans: self.plans, inline: &inline };
        let plan = super::one(draft, about, &world)?;
        let below = draft.tools.iter().enumerate().filter_map(|(at, step)| {
            let found = match step.plan.as_ref()? {
                SubDraft::Named(name) => self.plans.find(name),
                SubDraft::Inline(_) => inline.get(&at)?.as_ref().ok(),
            };
            found?.depth_around()
        });
        let depth = below.max().unwrap_or(0);
        Ok((plan, depth))
    }

    fn inner(&mut self, at: usize, draft: &Draft, level: u32) -> Result<SubPlan, Vec<Diagnostic>> {
        if level >= limits::DEPTH {
            return Err(vec![too_deep(at)]);
        }
        let about = (self.about)(draft);
        let id = about.id;
        match self.compile(draft, about, level + 1) {
            Ok((plan, depth)) => {
                self.done.push(plan);
                Ok(SubPlan { id, depth, inputs: None })
            }
            Err(found) => Err(found.into_iter().map(|it| inside(at, it)).collect()),
        }
    }
}

/// Finds the plan that a step executes.
pub(super) fn choose<'a>(
    at: usize,
    written: &SubDraft,
    world: &World<'a>,
    report: &mut Report,
) -> Choice<'a> {
    let none = |name: &str| Choice { tool: tool_name(name), definition: None, plan: None };
    let (found, mut choice) = match written {
        SubDraft::Named(name) => {
            let found = world.plans.find(name);
            if found.is_none() && !name.is_empty() {
                report.error(at, || unknown(at, name, world.plans));
            }
            (found, none(name))
        }
        SubDraft::Inline(_) => match world.inline.get(&at) {
            Some(Ok(plan)) => (Some(plan), none(&plan.id.to_string())),
            Some(Err(found)) => {
                for it in found {
                    report.error(at, || it.clone());
                }
                (None, none("plan"))
            }
            None => {
                report.error(at, || not_here(at));
                (None, none("plan"))
            }
        },
    };
    if found.is_some_and(|it| it.depth_around().is_none()) {
        report.error(at, || too_deep(at));
    }
    choice.plan = found;
    choice
}

fn unknown(at: usize, name: &str, plans: &SubPlans) -> Diagnostic {
    let help = did_you_mean(name, plans.known()).unwrap_or_else(|| {
        "write the id of a plan, the name that one was saved under, or a plan: `{\"tools\": […]}`"
            .to_owned()
    });
    let message = format!("no plan is called `{}`", clip(name));
    Diagnostic::error("plan.unknown_plan", place::field(at, "plan"), message).with_help(help)
}

fn not_here(at: usize) -> Diagnostic {
    let message = "a plan inside a plan cannot be compiled here";
    Diagnostic::error("plan.unknown_plan", place::field(at, "plan"), message)
        .with_help("create that plan first, and write its id")
}

/// Says that too many plans are inside one another.
pub(super) fn too_deep(at: usize) -> Diagnostic {
    let message = format!("more than {} plans are inside one another", limits::DEPTH);
    Diagnostic::error("plan.too_deep", place::field(at, "plan"), message)
        .with_help("let fewer plans execute others, or write the steps of one into the other")
}

/// Says of something in the draft inside a step where that is in the draft around it.
pub(super) fn inside(at: usize, mut diagnostic: Diagnostic) -> Diagnostic {
    let dot = if diagnostic.path.is_empty() { "" } else { "." };
    diagnostic.path = format!("tools[{at}].plan{dot}{}", diagnostic.path);
    diagnostic
}
