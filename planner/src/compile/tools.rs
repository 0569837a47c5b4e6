//! Which tool each step calls.

use std::{collections::BTreeMap, sync::Arc};

use shared::{diagnostic::Diagnostic, id::ToolName, tool::ToolDefinition};

use super::{place, report::Report};
use crate::{
    catalog::{Catalog, CatalogTool},
    draft::{Draft, DraftStep},
    nearest::{CANDIDATES, did_you_mean},
};

/// The tool of a step, as far as there is one.
#[derive(Clone, Debug)]
pub(super) struct Choice<'a> {
    /// The name as a plan has it; as it was written where there is no such tool.
    pub(super) tool: ToolName,
    /// What the tool is.
    pub(super) definition: Option<&'a Arc<ToolDefinition>>,
}

/// Finds every step's tool.
pub(super) fn choose<'a>(
    draft: &'a Draft,
    catalog: &'a Catalog,
    report: &mut Report,
) -> Vec<Choice<'a>> {
    let mut known: BTreeMap<&str, Choice<'a>> = BTreeMap::new();
    let choices = draft.tools.iter().enumerate().map(|(at, step)| {
        check_fields(at, step, report);
        let written = written(step).unwrap_or_default();
        let found = catalog.find(written);
        match found {
            None if written.is_empty() => (),
            None => report.error(at, || unknown(at, step, written, catalog)),
            Some(tool) => check_use(at, step, tool, report),
        }
        known.entry(written).or_insert_with(|| Choice::new(written, found)).clone()
    });
    choices.collect()
}

/// Returns the tool's name as it was written.
pub(super) fn written(step: &DraftStep) -> Option<&str> {
    step.name.as_deref().or(step.tool_name.as_deref())
}

impl<'a> Choice<'a> {
    fn new(written: &str, found: Option<&'a CatalogTool>) -> Self {
        let definition = found.map(|it| &it.definition);
        let tool = definition.map(|it| it.qualified()).or_else(|| written.parse().ok());
        // A name that cannot be one has been reported; the step goes on under this one.
        let tool = tool.unwrap_or_else(|| "?".parse().expect("`?` has no control characters"));
        Self { tool, definition }
    }
}

fn field(step: &DraftStep) -> &'static str {
    if step.name.is_none() && step.tool_name.is_some() { "toolName" } else { "name" }
}

fn check_fields(at: usize, step: &DraftStep, report: &mut Report) {
    let place = format!("tools[{at}]");
    match (&step.name, &step.tool_name) {
        (Some(_), Some(_)) => report.error(at, || {
            Diagnostic::error("plan.two_tools", place, "both `name` and `toolName` are there")
                .with_help("keep exactly one of them")
        }),
        (None, None) => report.error(at, || {
            Diagnostic::error("plan.missing_tool", place, "the step names no tool")
                .with_help("write the tool's name as `name`")
        }),
        (Some(name), None) | (None, Some(name)) if name.is_empty() => report.error(at, || {
            let place = place::field(at, field(step));
            Diagnostic::error("plan.missing_tool", place, "the tool's name is empty")
                .with_help("write the tool's name")
        }),
        _ => (),
    }
}

fn unknown(at: usize, step: &DraftStep, written: &str, catalog: &Catalog) -> Diagnostic {
    let plain = || catalog.tools().iter().map(|it| it.definition.name.as_str());
    let qualified: Vec<ToolName> =
        catalog.tools().iter().take(CANDIDATES).map(|it| it.definition.qualified()).collect();
    let after_set = written.rsplit_once('.').map(|(_, name)| name);
    let help = did_you_mean(written, plain())
        .or_else(|| did_you_mean(written, qualified.iter().map(ToolName::as_str)))
        .or_else(|| did_you_mean(after_set?, plain()))
        .unwrap_or_else(|| "`faber tools list` shows the tools that there are".to_owned());
    let message = format!("no tool is called `{written}`");
    Diagnostic::error("plan.unknown_tool", place::field(at, field(step)), message).with_help(help)
}

fn check_use(at: usize, step: &DraftStep, tool: &CatalogTool, report: &mut Report) {
    let CatalogTool { definition, is_active } = tool;
    let (set, place) = (&definition.set, || place::field(at, field(step)));
    if !is_active {
        report.error(at, || {
            let message = format!("`{}` belongs to the inactive set `{set}`", definition.name);
            Diagnostic::error("plan.inactive_tool", place(), message)
                .with_help(format!("switch it on: `faber toolsets activate {set}`"))
        });
    } else if !definition.is_callable {
        report.error(at, || {
            let message = format!("`{}` can be selected but not called", definition.name);
            Diagnostic::error("plan.not_callable", place(), message)
                .with_help("give it a `run` in the configuration")
        });
    }
}
