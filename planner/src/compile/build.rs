use shared::{
    condition::Condition,
    diagnostic::Diagnostic,
    id::StepNumber,
    plan::{
        Compensation, ForEach, Plan, PlanError, PlanInfo, PlanInputs, StepKind, StepNames,
        ToolExecution,
    },
    template::{Reference, Target},
};

use super::{
    Step,
    references::{DependencyLinks, StepTemplates},
};

pub(super) fn build_plan(
    about: PlanInfo,
    names: StepNames,
    steps: Vec<Step<'_>>,
    links: DependencyLinks,
    order: &[StepNumber],
    diagnostics: Vec<Diagnostic>,
) -> Result<Plan, PlanError> {
    let mut places = vec![StepNumber::new(0); steps.len()];
    for (place, written) in order.iter().enumerate() {
        places[written.get()] = StepNumber::new(place);
    }
    let names = names.renumbered(&places);
    let DependencyLinks { edges, templates } = links;
    let mut waiting: Vec<_> = steps.into_iter().zip(edges).zip(templates).map(Some).collect();
    let in_order = order.iter().filter_map(|number| waiting[number.get()].take());
    let steps =
        in_order.map(|((step, on), templates)| build_step(step, &on, templates, &names, &places));
    let steps = steps.collect::<Result<Vec<_>, _>>()?;
    Plan::from_resolved_steps(about, names, steps, diagnostics)?.with_draft_order(places)
}

fn build_step(
    step: Step<'_>,
    on: &[StepNumber],
    mut templates: StepTemplates,
    names: &StepNames,
    places: &[StepNumber],
) -> Result<ToolExecution, PlanError> {
    let mut moved = |reference: &mut Reference| {
        if let Target::Step(step) = &mut reference.target {
            *step = places[step.get()];
        }
    };
    templates.template.update_references(&mut moved);
    templates.list.iter_mut().for_each(&mut moved);
    templates.undo.iter_mut().for_each(|template| template.update_references(&mut moved));
    let mut depends_on: Vec<StepNumber> = on.iter().map(|number| places[number.get()]).collect();
    depends_on.sort_unstable();
    let when =
        step.written.when.as_deref().map(|source| Condition::parse(source, names)).transpose();
    let when = when.map_err(|error| PlanError::Condition { step: step.id.clone(), error })?;
    let for_each = step.written.for_each.clone().zip(templates.list);
    let compensate = step.undo.zip(templates.undo).map(|(undo, template)| {
        let tool = undo.tool_choice.tool;
        let parameters = undo.checked_parameters.parameters;
        Box::new(Compensation { tool, parameters, template, policy: undo.policy })
    });
    Ok(ToolExecution {
        id: step.id,
        kind: step.tool_choice.plan.map_or_else(
            || StepKind::of_tool(&step.tool_choice.tool),
            |sub_plan| StepKind::Plan(sub_plan.id),
        ),
        inputs: step
            .tool_choice
            .plan
            .and_then(|sub_plan| sub_plan.inputs.clone())
            .map(PlanInputs::new),
        tool: step.tool_choice.tool,
        parameters: step.checked_parameters.parameters,
        template: templates.template,
        depends_on,
        output_mapping: step.mapping,
        policy: step.policy,
        when,
        for_each: for_each.map(|(written, list)| ForEach { written, list }),
        compensate,
    })
}
