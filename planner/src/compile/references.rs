//! What each step depends on: what `dependsOn` names, and what templates look at.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use shared::{
    diagnostic::Diagnostic,
    id::StepIx,
    plan::StepNames,
    template::{Reference, Target, Template, TemplateError, TemplateErrorKind},
};

use super::{
    Step,
    names::{Naming, clip},
    outputs,
    parameters::has_braces,
    place,
    report::{Report, WHOLE},
};
use crate::nearest::did_you_mean;

/// The most dependencies of a plan, one step on another: `{{vars.x}}` depends on every step that
/// fills `x`, which a short draft can make a very large number.
const DEPENDENCIES: usize = 16_000_000;

/// Returns what each step depends on, in written numbers, sorted and without repetition.
pub(super) fn dependencies(
    steps: &[Step<'_>],
    naming: &Naming<'_>,
    report: &mut Report,
) -> Vec<Vec<StepIx>> {
    let mut room = DEPENDENCIES;
    let mut edges = Vec::with_capacity(steps.len());
    for (at, step) in steps.iter().enumerate() {
        let mut on = Vec::new();
        named(at, step, naming, &mut on, report);
        let variables = look(at, steps, naming, &mut on, report);
        fill((at, step), &variables, naming, &mut on, report);
        on.sort_unstable();
        on.dedup();
        on.shrink_to_fit();
        if on.len() > room {
            report.error(WHOLE, too_many);
            edges.resize_with(steps.len(), Vec::new);
            return edges;
        }
        room -= on.len();
        edges.push(on);
    }
    edges
}

fn too_many() -> Diagnostic {
    let message = format!("the steps have more than {DEPENDENCIES} dependencies");
    Diagnostic::error("plan.too_large", "tools", message)
        .with_help("let one step gather what the others need, and depend on that")
}

/// Adds what `dependsOn` names.
fn named(
    at: usize,
    step: &Step<'_>,
    naming: &Naming<'_>,
    on: &mut Vec<StepIx>,
    report: &mut Report,
) {
    let place = || place::field(at, "dependsOn");
    let mut add = |place: &dyn Fn() -> String, written: &Value| match written {
        Value::String(name) => match naming.names.find(name) {
            Some(step) => on.push(step),
            None => report.error(at, || {
                let (message, help) = naming.why_not(name, name);
                Diagnostic::error("plan.unknown_dependency", place(), message).with_help(help)
            }),
        },
        other => report.error(at, || {
            let message = format!("a dependency must be a step's id, not {}", place::kind(other));
            Diagnostic::error("plan.invalid_dependency", place(), message)
                .with_help("write null, a name, or a list of names")
        }),
    };
    match &step.written.depends_on {
        None | Some(Value::Null) => (),
        Some(Value::Array(items)) => {
            for (n, item) in items.iter().enumerate() {
                add(&|| format!("{}[{n}]", place()), item);
            }
        }
        Some(other) => add(&place, other),
    }
}

/// Adds the steps that templates look at; returns the variables that they look at.
fn look(
    at: usize,
    steps: &[Step<'_>],
    naming: &Naming<'_>,
    on: &mut Vec<StepIx>,
    report: &mut Report,
) -> BTreeMap<Arc<str>, Arc<str>> {
    let mut variables = BTreeMap::new();
    let parameters = &steps[at].parameters;
    if !has_braces(parameters) {
        return variables;
    }
    match Template::parse(parameters, &naming.names) {
        Ok(template) => template.references(&mut |reference| {
            if let Target::Step(target) = reference.target {
                on.push(target);
                outputs::check((at, &steps[at]), &steps[target.get()], reference, report);
            } else {
                note_variable(reference, &mut variables);
            }
        }),
        Err(errors) => {
            for error in errors {
                report.error(at, || diagnostic(at, &error, naming));
            }
            each_good(parameters, &naming.names, &mut |reference| match reference.target {
                Target::Step(target) => on.push(target),
                Target::Variable(_) => note_variable(reference, &mut variables),
                Target::Input | Target::Item | Target::Index => (),
            });
        }
    }
    variables
}

fn note_variable(reference: &Reference, variables: &mut BTreeMap<Arc<str>, Arc<str>>) {
    if let Target::Variable(name) = &reference.target {
        variables.entry(Arc::clone(name)).or_insert_with(|| Arc::clone(&reference.text));
    }
}

/// Adds the steps that fill variables.
fn fill(
    (at, step): (usize, &Step<'_>),
    variables: &BTreeMap<Arc<str>, Arc<str>>,
    naming: &Naming<'_>,
    on: &mut Vec<StepIx>,
    report: &mut Report,
) {
    for (name, text) in variables {
        match naming.variables.get(&**name) {
            Some(by) => on.extend(by),
            None => report.error(at, || {
                let message =
                    format!("`{}`: no step maps the variable `{}`", clip(text), clip(name));
                let help = did_you_mean(name, naming.variables.keys().copied());
                let help = help.unwrap_or_else(|| {
                    format!("map it: `\"outputMapping\": {{\"path\": \"{}\"}}`", clip(name))
                });
                let place = place::template(at, &step.parameters, text);
                Diagnostic::error("plan.unknown_variable", place, message).with_help(help)
            }),
        }
    }
}

fn diagnostic(at: usize, error: &TemplateError, naming: &Naming<'_>) -> Diagnostic {
    let place = format!("tools[{at}].parameters{}", error.at);
    match &error.kind {
        TemplateErrorKind::Invalid { text, why } => {
            let message = format!("`{}` is not a template: {}", clip(text), clip(&why.to_string()));
            let help = "write `{{step.path}}`, or `{{{{` for two literal braces";
            Diagnostic::error("plan.invalid_template", place, message).with_help(help)
        }
        TemplateErrorKind::Unknown { text, name } => {
            let inner = text.trim_start_matches("{{").trim_end_matches("}}").trim();
            let (why, help) = match name.as_str() {
                "vars" => ("no variable is named".to_owned(), "write `{{vars.name}}`".to_owned()),
                _ => naming.why_not(inner, name),
            };
            let message = format!("`{}`: {why}", clip(text));
            Diagnostic::error("plan.unknown_step_in_template", place, message).with_help(help)
        }
    }
}

/// Returns the references of every string of a value, without those that are wrong.
fn each_good(value: &Value, names: &StepNames, visit: &mut dyn FnMut(&Reference)) {
    each_string(value, &mut |text| {
        let template = Template::parse(text, names);
        let mended = || mended(text.as_str()?, template.as_ref().err()?, names);
        match &template {
            Ok(template) => template.references(visit),
            Err(_) => mended().iter().for_each(|it| it.references(visit)),
        }
    });
}

/// Parses a string again, without the braces that were wrong.
fn mended(text: &str, errors: &[TemplateError], names: &StepNames) -> Option<Template> {
    /// More than these in one string, and the rest of it must wait until they are mended.
    const MOST: usize = 20;
    let wrong = errors.iter().take(MOST).map(|it| match &it.kind {
        TemplateErrorKind::Invalid { text, .. } | TemplateErrorKind::Unknown { text, .. } => text,
    });
    let text = wrong.fold(text.to_owned(), |text, wrong| text.replace(wrong.as_str(), " "));
    Template::parse(&Value::String(text), names).ok()
}

fn each_string(value: &Value, visit: &mut dyn FnMut(&Value)) {
    match value {
        Value::String(_) => visit(value),
        Value::Array(items) => items.iter().for_each(|it| each_string(it, visit)),
        Value::Object(fields) => fields.values().for_each(|it| each_string(it, visit)),
        _ => (),
    }
}

/// Says where it is written that one step depends on another, and what to change.
pub(super) fn explain(
    steps: &[Step<'_>],
    naming: &Naming<'_>,
    (from, to): (StepIx, StepIx),
) -> (String, String) {
    let (step, id) = (&steps[from.get()], &steps[to.get()].id);
    let is_named = |it: &Value| it.as_str().and_then(|it| naming.names.find(it)) == Some(to);
    let is_dependency = step.written.depends_on.as_ref().is_some_and(|it| match it {
        Value::Array(items) => items.iter().any(is_named),
        other => is_named(other),
    });
    if is_dependency {
        let place = place::field(from.get(), "dependsOn");
        let help = format!("for example, take `{id}` out of `{place}`");
        return (place, help);
    }
    let mut looking = None;
    each_good(&step.parameters, &naming.names, &mut |reference| {
        let is_it = match &reference.target {
            Target::Step(target) => *target == to,
            Target::Variable(name) => {
                naming.variables.get(&**name).is_some_and(|by| by.contains(&to))
            }
            Target::Input | Target::Item | Target::Index => false,
        };
        if is_it {
            looking.get_or_insert_with(|| Arc::clone(&reference.text));
        }
    });
    let Some(text) = looking else {
        let place = place::field(from.get(), "parameters");
        return (place, format!("for example, do not look at `{id}` there"));
    };
    let place = place::template(from.get(), &step.parameters, &text);
    let help =
        format!("for example, take `{}`, which looks at `{id}`, out of `{place}`", clip(&text));
    (place, help)
}
