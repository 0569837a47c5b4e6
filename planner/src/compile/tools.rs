use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use shared::{diagnostic::Diagnostic, id::ToolName, tool::ToolDefinition};

use super::{
    CompileContext,
    report::Report,
    sub_plan::{self, FoundPlan},
};
use crate::{
    catalog::{Catalog, CatalogTool},
    draft::{Draft, DraftCompensation, DraftStep, SubDraft},
    sub_plans::SubPlan,
    suggest::{MAX_CANDIDATES, did_you_mean},
};

#[derive(Clone, Debug)]
pub(super) struct ToolChoice<'a> {
    /// The name that the plan stores. If no such tool exists, the name in the draft.
    pub(super) tool: ToolName,
    pub(super) definition: Option<&'a Arc<ToolDefinition>>,
    pub(super) plan: Option<&'a SubPlan>,
}

pub(super) fn choose_tools<'a>(
    draft: &'a Draft,
    context: &CompileContext<'a>,
    report: &mut Report,
) -> Vec<ToolChoice<'a>> {
    let mut choice_by_name: BTreeMap<&str, ToolChoice<'a>> = BTreeMap::new();
    let choices = draft.tools.iter().enumerate().map(|(index, step)| {
        let call = Call::of_step(index, step);
        call.check_fields(step.plan.as_ref(), report);
        match (&step.plan, call.written_name()) {
            (Some(plan), None) => {
                ToolChoice::of_plan(&sub_plan::find_plan(index, plan, context, report))
            }
            (_, written) => {
                let written = written.unwrap_or_default();
                let found = call.find_tool(context.catalog, report);
                choice_by_name
                    .entry(written)
                    .or_insert_with(|| ToolChoice::new(written, found))
                    .clone()
            }
        }
    });
    choices.collect()
}

pub(super) fn choose_undo<'a>(
    index: usize,
    undo: &DraftCompensation,
    catalog: &'a Catalog,
    report: &mut Report,
) -> ToolChoice<'a> {
    let call = Call::of_undo(index, undo);
    call.check_fields(None, report);
    let found = call.find_tool(catalog, report);
    ToolChoice::new(call.written_name().unwrap_or_default(), found)
}

impl<'a> ToolChoice<'a> {
    fn new(written: &str, found: Option<&'a CatalogTool>) -> Self {
        let definition = found.map(|tool| &tool.definition);
        let tool = definition.map_or_else(|| tool_name(written), |tool| tool.qualified_name());
        Self { tool, definition, plan: None }
    }

    fn of_plan(found: &FoundPlan<'a>) -> Self {
        Self { tool: tool_name(&found.name), definition: None, plan: found.plan }
    }

    pub(super) fn input_schema(&self) -> Option<&'a Value> {
        let of_tool = self.definition.map(|tool| &tool.input_schema);
        of_tool.or_else(|| self.plan.and_then(|plan| plan.inputs.as_deref()))
    }

    pub(super) fn output_schema(&self) -> Option<&'a Value> {
        self.definition.and_then(|tool| tool.output_schema.as_ref())
    }
}

/// Converts a written name. An invalid name was reported before and gets a substitute.
fn tool_name(written: &str) -> ToolName {
    let unnamed = || "?".parse().expect("`?` has no control characters");
    written.parse().unwrap_or_else(|_| unnamed())
}

struct Call<'a> {
    step_index: usize,
    field_prefix: &'static str,
    name: Option<&'a str>,
    tool_name: Option<&'a str>,
}

impl<'a> Call<'a> {
    fn of_step(index: usize, step: &'a DraftStep) -> Self {
        Self {
            step_index: index,
            field_prefix: "",
            name: step.name.as_deref(),
            tool_name: step.tool_name.as_deref(),
        }
    }

    fn of_undo(index: usize, undo: &'a DraftCompensation) -> Self {
        let (name, tool_name) = (undo.name.as_deref(), undo.tool_name.as_deref());
        Self { step_index: index, field_prefix: "compensate.", name, tool_name }
    }

    fn written_name(&self) -> Option<&'a str> {
        self.name.or(self.tool_name)
    }

    fn place(&self) -> String {
        let field =
            if self.name.is_none() && self.tool_name.is_some() { "toolName" } else { "name" };
        format!("tools[{}].{}{field}", self.step_index, self.field_prefix)
    }

    fn check_fields(&self, plan: Option<&SubDraft>, report: &mut Report) {
        let fields = [
            ("name", self.name),
            ("toolName", self.tool_name),
            (
                "plan",
                plan.map(|plan| if let SubDraft::Named(name) = plan { name } else { "inline" }),
            ),
        ];
        let checked_parameters: Vec<_> =
            fields.iter().filter_map(|(field, name)| Some((field, (*name)?))).collect();
        let place = || format!("tools[{}].{}", self.step_index, self.field_prefix);
        let place = || place().trim_end_matches('.').to_owned();
        match checked_parameters.as_slice() {
            [] => report.error(self.step_index, || {
                Diagnostic::error("plan.missing_tool", place(), "the step names no tool")
                    .with_help("write the tool's name as `name`")
            }),
            [(field, "")] => report.error(self.step_index, || {
                let noun = if **field == "plan" { "plan" } else { "tool" };
                let place = format!("tools[{}].{}{field}", self.step_index, self.field_prefix);
                let message = format!("the {noun}'s name is empty");
                Diagnostic::error("plan.missing_tool", place, message)
                    .with_help(format!("write the {noun}'s name"))
            }),
            [_] => (),
            [(first, _), (second, _), ..] => report.error(self.step_index, || {
                let message = format!("the step has both `{first}` and `{second}`");
                Diagnostic::error("plan.two_tools", place(), message)
                    .with_help("keep exactly one of them")
            }),
        }
    }

    fn find_tool<'c>(&self, catalog: &'c Catalog, report: &mut Report) -> Option<&'c CatalogTool> {
        let written = self.written_name().unwrap_or_default();
        let found = catalog.find(written);
        match found {
            None if written.is_empty() => (),
            None => {
                report
                    .error(self.step_index, || unknown_tool_error(self.place(), written, catalog));
            }
            Some(tool) => self.check_use(tool, report),
        }
        found
    }

    fn check_use(&self, tool: &CatalogTool, report: &mut Report) {
        let CatalogTool { definition, is_active } = tool;
        let set = &definition.set;
        if !is_active {
            report.error(self.step_index, || {
                let message =
                    format!("`{}` belongs to the inactive toolset `{set}`", definition.name);
                Diagnostic::error("plan.inactive_tool", self.place(), message)
                    .with_help(format!("activate it: `faber toolsets activate {set}`"))
            });
        } else if !definition.is_callable {
            report.error(self.step_index, || {
                let message = format!("`{}` can be selected but not called", definition.name);
                Diagnostic::error("plan.not_callable", self.place(), message)
                    .with_help("see its description with `faber tools show`, or add `run` to it")
            });
        }
    }
}

const MAX_FAILED_SETS: usize = 3;
const FAILED_SEPARATOR: &str = ", which failed: ";

fn describe_failed_sets(written: &str, catalog: &Catalog) -> Option<String> {
    let suspects = catalog.find_failed_sets(written);
    let first = suspects.first()?;
    let names: Vec<_> =
        suspects.iter().take(MAX_FAILED_SETS).map(|set| format!("`{}`", set.name)).collect();
    Some(format!("{}{FAILED_SEPARATOR}{}", names.join(" or "), first.error))
}

/// Returns `true` if a diagnostic is about a missing tool that a failed toolset may have, and no
/// other tool has a similar name.
pub fn may_be_in_failed_set(diagnostic: &Diagnostic) -> bool {
    let help = diagnostic.help.as_deref().unwrap_or_default();
    diagnostic.code == "plan.unknown_tool"
        && help.starts_with("perhaps in ")
        && help.contains(FAILED_SEPARATOR)
}

fn unknown_tool_error(place: String, written: &str, catalog: &Catalog) -> Diagnostic {
    let plain = || catalog.tools().iter().map(|tool| tool.definition.name.as_str());
    let qualified: Vec<ToolName> = catalog
        .tools()
        .iter()
        .take(MAX_CANDIDATES)
        .map(|tool| tool.definition.qualified_name())
        .collect();
    let after_set = written.rsplit_once('.').map(|(_, name)| name);
    // A name that begins with the name of a set never means a tool of another set.
    let tool_with_this_name =
        catalog.tools().iter().find(|tool| tool.definition.name.as_str() == written);
    let tool_with_this_name = tool_with_this_name.map(|tool| tool.definition.qualified_name());
    let near = tool_with_this_name
        .map(|name| {
            format!("did you mean `{name}`? The name begins with the name of another toolset")
        })
        .or_else(|| did_you_mean(written, plain()))
        .or_else(|| did_you_mean(written, qualified.iter().map(ToolName::as_str)))
        .or_else(|| did_you_mean(after_set?, plain()));
    let help = match (near, describe_failed_sets(written, catalog)) {
        (near, None) => near.unwrap_or_else(|| "`faber tools list` lists the tools".to_owned()),
        (None, Some(suspects)) => format!("perhaps in {suspects}"),
        (Some(near), Some(suspects)) => format!("{near} Or perhaps in {suspects}"),
    };
    let message = format!("no tool is called `{written}`");
    Diagnostic::error("plan.unknown_tool", place, message).with_help(help)
}
