//! The dependencies of each step: from `dependsOn`, templates and conditions.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;
use shared::{
    condition::{Condition, ConditionError},
    diagnostic::Diagnostic,
    id::StepNumber,
    limits,
    plan::StepNames,
    template::{Reference, Target, Template, TemplateError, TemplateErrorKind},
};

use super::{
    Step, compute, looping,
    names::{Naming, shorten_name},
    outputs, place,
    report::{Report, WHOLE_DRAFT},
    site::{FOR_EACH_FIELD, PARAMETERS_FIELD, TemplateSite},
};
use crate::suggest::did_you_mean;

/// Maximum number of dependencies of all steps. `{{vars.x}}` depends on every step that sets `x`,
/// so even a short draft can have very many.
const MAX_DEPENDENCIES: usize = 16_000_000;

#[derive(Default)]
pub(super) struct DependencyLinks {
    pub(super) edges: Vec<Vec<StepNumber>>,
    pub(super) templates: Vec<StepTemplates>,
}

/// The templates and references of a step. Complete only for a valid draft.
pub(super) struct StepTemplates {
    pub(super) template: Template,
    pub(super) list: Option<Reference>,
    pub(super) undo: Option<Template>,
}

pub(super) fn collect_links<'a>(
    steps: &'a [Step<'a>],
    naming: &Naming<'a>,
    report: &mut Report,
) -> DependencyLinks {
    let mut dependencies_left = MAX_DEPENDENCIES;
    let mut links = DependencyLinks::default();
    links.edges.reserve(steps.len());
    links.templates.reserve(steps.len());
    for index in 0..steps.len() {
        let (dependencies, variables) = (Vec::new(), BTreeSet::new());
        let mut looking = TemplateReader {
            step_index: index,
            steps,
            naming,
            dependencies,
            variables,
            list: None,
            report,
        };
        let (template, undo) = looking.read_templates();
        let templates = StepTemplates { template, list: looking.list, undo };
        let mut dependencies = looking.dependencies;
        dependencies.sort_unstable();
        dependencies.dedup();
        dependencies.shrink_to_fit();
        if dependencies.len() > dependencies_left {
            report.error(WHOLE_DRAFT, too_many_dependencies_error);
            links.edges.resize_with(steps.len(), Vec::new);
            return links;
        }
        dependencies_left -= dependencies.len();
        links.edges.push(dependencies);
        links.templates.push(templates);
    }
    links
}

fn too_many_dependencies_error() -> Diagnostic {
    let message = format!("the steps together have more than {MAX_DEPENDENCIES} dependencies");
    Diagnostic::error("plan.too_large", "tools", message).with_help(
        "let one step collect the outputs that the other steps need, and depend on that step",
    )
}

struct TemplateReader<'a, 'r> {
    step_index: usize,
    steps: &'a [Step<'a>],
    naming: &'r Naming<'a>,
    dependencies: Vec<StepNumber>,
    /// The variables that were added so far, so that each is looked up once.
    variables: BTreeSet<Arc<str>>,
    list: Option<Reference>,
    report: &'r mut Report,
}

impl<'a> TemplateReader<'a, '_> {
    fn current_step(&self) -> &'a Step<'a> {
        &self.steps[self.step_index]
    }

    fn read_templates(&mut self) -> (Template, Option<Template>) {
        let step = self.current_step();
        add_named_steps(self.step_index, step, self.naming, &mut self.dependencies, self.report);
        let (mut own_template, mut undo) = (Template::default(), None);
        for site in TemplateSite::list_sites(self.step_index, step) {
            let template = self.collect_site(&site);
            match site.field {
                FOR_EACH_FIELD => {
                    self.list = template.and_then(|template| self.check_list_template(template));
                }
                PARAMETERS_FIELD => own_template = template.unwrap_or_default(),
                _ => undo = template,
            }
        }
        if let Some(when) = &step.written.when {
            self.add_condition(when);
        }
        (own_template, undo)
    }

    /// Collects the references of one value. Returns `None` if one of its strings is not a valid
    /// template.
    fn collect_site(&mut self, site: &TemplateSite<'a>) -> Option<Template> {
        match Template::parse_shared(site.value, &self.naming.names) {
            Ok(template) => {
                template.visit_references(&mut |reference| self.add_reference(site, reference));
                Some(template)
            }
            Err(errors) => {
                let is_reported = self.has_expression(site);
                let is_reported =
                    |error: &TemplateError| is_reported && compute::is_expression(&error.at);
                let errors = errors.into_iter().filter(|error| !is_reported(error));
                for error in errors.collect::<Vec<_>>() {
                    self.report
                        .error(self.step_index, || template_diagnostic(site, &error, self.naming));
                }
                let naming = self.naming;
                visit_valid_references(site.value, &naming.names, &mut |reference| {
                    self.add_reference(site, reference);
                });
                None
            }
        }
    }

    /// Returns whether the value has an expression. Template errors in such a value are not
    /// reported twice, because the check of expressions reports every template in it.
    fn has_expression(&self, site: &TemplateSite<'_>) -> bool {
        let step = self.current_step();
        let tool_choice = match &step.undo {
            Some(undo) if site.is_compensation() => &undo.tool_choice,
            _ => &step.tool_choice,
        };
        compute::is_compute(&tool_choice.tool) && site.field != FOR_EACH_FIELD
    }

    fn add_reference(&mut self, site: &TemplateSite<'_>, reference: &Reference) {
        match &reference.target {
            // A compensation may use the output of its own step.
            Target::Step(dependencies)
                if site.is_compensation() && dependencies.get() == self.step_index => {}
            Target::Step(dependencies) => self.dependencies.push(*dependencies),
            Target::Variable(name) => {
                self.add_variable(name, &reference.text, &|text| site.path_of(text));
            }
            Target::Input => (),
            Target::Item | Target::Index => {
                let is_reported = self.has_expression(site)
                    && compute::is_in_expression(site.value, &reference.text);
                if is_reported {
                    return;
                }
                if self.current_step().for_each.is_none() || site.field == FOR_EACH_FIELD {
                    let (text, place) = (&reference.text, || site.path_of(&reference.text));
                    let is_list = site.field == FOR_EACH_FIELD;
                    self.report.error(self.step_index, || {
                        if is_list {
                            looping::no_item_yet_error(place(), text)
                        } else {
                            looping::no_item_error(place(), text)
                        }
                    });
                    return;
                }
            }
        }
        outputs::check_outputs(self.steps, site, self.list.as_ref(), reference, self.report);
    }

    fn check_list_template(&mut self, template: Template) -> Option<Reference> {
        let Template::Whole(list) = template else {
            let written = self.current_step().written.for_each.as_deref().unwrap_or_default();
            self.report
                .error(self.step_index, || looping::not_whole_error(self.step_index, written));
            return None;
        };
        outputs::check_list(self.steps, self.step_index, &list, self.report);
        Some(list)
    }

    fn add_variable(&mut self, name: &Arc<str>, text: &str, place: &dyn Fn(&str) -> String) {
        if !self.variables.insert(Arc::clone(name)) {
            return;
        }
        if let Some(by) = self.naming.variables.get(&**name) {
            self.dependencies.extend(by);
            return;
        }
        self.report.error(self.step_index, || {
            let message = format!(
                "`{}`: no step maps the variable `{}`",
                shorten_name(text),
                shorten_name(name)
            );
            let help = did_you_mean(name, self.naming.variables.keys().copied());
            let help = help.unwrap_or_else(|| {
                format!("map it: `\"outputMapping\": {{\"path\": \"{}\"}}`", shorten_name(name))
            });
            Diagnostic::error("plan.unknown_variable", place(text), message).with_help(help)
        });
    }

    fn add_condition(&mut self, written: &str) {
        let place = || place::field_path(self.step_index, "when");
        if !self.report.add_pattern_cost(0) {
            let reason = "the patterns of earlier conditions have reached the limit of a plan";
            self.report.error(self.step_index, || {
                let help = "use fewer patterns, or fewer repetitions in them";
                Diagnostic::error("plan.too_large", place(), reason).with_help(help)
            });
            return;
        }
        let condition = match Condition::parse(written, &self.naming.names) {
            Ok(condition) => condition,
            Err(err) => {
                let naming = self.naming;
                if matches!(err, ConditionError::Pattern { .. }) {
                    // Adds the cost of a rejected pattern, too, because rejecting a pattern costs
                    // as much as compiling it.
                    self.report.add_pattern_cost(limits::PATTERN_COST);
                }
                self.report.error(self.step_index, || {
                    wrong_condition_error(place(), written, &err, naming)
                });
                return;
            }
        };
        self.report.add_pattern_cost(condition.pattern_cost());
        let index = self.step_index;
        for target in condition.targets() {
            match target {
                Target::Step(dependencies) => self.dependencies.push(*dependencies),
                Target::Variable(name) => {
                    let text = format!("vars.{name}");
                    self.add_variable(name, &text, &|_| place::field_path(index, "when"));
                }
                Target::Input | Target::Item | Target::Index => (),
            }
        }
    }
}

fn wrong_condition_error(
    place: String,
    written: &str,
    err: &ConditionError,
    naming: &Naming<'_>,
) -> Diagnostic {
    const INVALID_CONDITION: &str = "plan.invalid_condition";
    let (reason, help) = match err {
        ConditionError::Unknown { name } if matches!(name.as_str(), "item" | "index") => (
            format!(
                "`{name}` has no value in a condition, which is evaluated once for the whole step"
            ),
            "use `{{item}}` and `{{index}}` in `parameters` and `compensate`".to_owned(),
        ),
        ConditionError::Unknown { name } => naming.describe_unknown_name(name, name),
        _ if written.contains("{{") => (
            shorten_name(&err.to_string()),
            "a condition cannot contain templates: write the names without braces".to_owned(),
        ),
        _ => (
            shorten_name(&err.to_string()),
            "write CEL over earlier steps, such as `steps[\"createAuthor\"].age > 17`".to_owned(),
        ),
    };
    Diagnostic::error(INVALID_CONDITION, place, reason).with_help(help)
}

fn add_named_steps(
    index: usize,
    step: &Step<'_>,
    naming: &Naming<'_>,
    dependencies: &mut Vec<StepNumber>,
    report: &mut Report,
) {
    let place = || place::field_path(index, "dependsOn");
    let mut add = |place: &dyn Fn() -> String, written: &Value| match written {
        Value::String(name) => match naming.names.find(name) {
            Some(step) => dependencies.push(step),
            None => report.error(index, || {
                let (message, help) = naming.describe_unknown_name(name, name);
                Diagnostic::error("plan.unknown_dependency", place(), message).with_help(help)
            }),
        },
        other => report.error(index, || {
            let message =
                format!("a dependency must be a step's id, not {}", place::describe_kind(other));
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

fn template_diagnostic(
    site: &TemplateSite<'_>,
    error: &TemplateError,
    naming: &Naming<'_>,
) -> Diagnostic {
    let place = format!("tools[{}].{}{}", site.step_index, site.field, error.at);
    match &error.kind {
        TemplateErrorKind::Invalid { text, reason } => {
            let message = format!(
                "`{}` is not a template: {}",
                shorten_name(text),
                shorten_name(&reason.to_string())
            );
            let help = "write `{{step.path}}`, or `{{{{` for two literal braces";
            Diagnostic::error("plan.invalid_template", place, message).with_help(help)
        }
        TemplateErrorKind::Unknown { text, name } => {
            let inner = text.trim_start_matches("{{").trim_end_matches("}}").trim();
            let (reason, help) = match name.as_str() {
                "vars" => ("no variable is named".to_owned(), "write `{{vars.name}}`".to_owned()),
                _ => naming.describe_unknown_name(inner, name),
            };
            let message = format!("`{}`: {reason}", shorten_name(text));
            Diagnostic::error("plan.unknown_step_in_template", place, message).with_help(help)
        }
    }
}

fn visit_valid_references(value: &Value, names: &StepNames, visit: &mut dyn FnMut(&Reference)) {
    visit_strings(value, &mut |text| {
        let template = Template::parse(text, names);
        let mended = || parse_without_errors(text.as_str()?, template.as_ref().err()?, names);
        match &template {
            Ok(template) => template.visit_references(visit),
            Err(_) => mended().iter().for_each(|template| template.visit_references(visit)),
        }
    });
}

fn parse_without_errors(
    text: &str,
    errors: &[TemplateError],
    names: &StepNames,
) -> Option<Template> {
    /// Maximum number of wrong templates that are removed from one string. When they are repaired,
    /// the next check reports the remaining templates.
    const MAX_REMOVED_ERRORS: usize = 20;
    let wrong = errors.iter().take(MAX_REMOVED_ERRORS).map(|error| match &error.kind {
        TemplateErrorKind::Invalid { text, .. } | TemplateErrorKind::Unknown { text, .. } => text,
    });
    let text = wrong.fold(text.to_owned(), |text, wrong| text.replace(wrong.as_str(), " "));
    Template::parse(&Value::String(text), names).ok()
}

fn visit_strings(value: &Value, visit: &mut dyn FnMut(&Value)) {
    match value {
        Value::String(_) => visit(value),
        Value::Array(items) => items.iter().for_each(|item| visit_strings(item, visit)),
        Value::Object(fields) => fields.values().for_each(|field| visit_strings(field, visit)),
        _ => (),
    }
}

pub(super) fn explain_dependency(
    steps: &[Step<'_>],
    naming: &Naming<'_>,
    from: StepNumber,
    to: StepNumber,
) -> (String, String) {
    let (step, id) = (&steps[from.get()], &steps[to.get()].id);
    let is_named =
        |value: &Value| value.as_str().and_then(|name| naming.names.find(name)) == Some(to);
    let is_dependency = step.written.depends_on.as_ref().is_some_and(|names| match names {
        Value::Array(items) => items.iter().any(is_named),
        other => is_named(other),
    });
    if is_dependency {
        let place = place::field_path(from.get(), "dependsOn");
        let help = format!("for example, take `{id}` out of `{place}`");
        return (place, help);
    }
    let is_it = |target: &Target| match target {
        Target::Step(target) => *target == to,
        Target::Variable(name) => naming.variables.get(&**name).is_some_and(|by| by.contains(&to)),
        Target::Input | Target::Item | Target::Index => false,
    };
    for site in TemplateSite::list_sites(from.get(), step) {
        let mut looking = None;
        visit_valid_references(site.value, &naming.names, &mut |reference| {
            if is_it(&reference.target) && looking.is_none() {
                looking = Some(Arc::clone(&reference.text));
            }
        });
        if let Some(text) = looking {
            let place = site.path_of(&text);
            let text = shorten_name(&text);
            let help = format!("for example, take `{text}`, which reads `{id}`, out of `{place}`");
            return (place, help);
        }
    }
    let place = place::field_path(from.get(), "when");
    let help = format!("for example, do not read `{id}` in `{place}`");
    (place, help)
}
