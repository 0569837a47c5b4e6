//! Step ids, and the resolution of names in templates and dependencies.

use std::{cell::OnceCell, collections::BTreeMap};

use indexmap::IndexMap;
use shared::{
    diagnostic::Diagnostic,
    id::{RESERVED_STEP_IDS, STEP_ID_LEN, StepId, StepNumber, is_step_id_char},
    plan::StepNames,
};

use super::{Step, place, report::Report};
use crate::{
    draft::{Draft, DraftStep, SubDraft},
    suggest::did_you_mean,
};

/// The length of a suffix: `_` and the digits of [`shared::limits::PLAN_STEPS`].
const SUFFIX_LEN: usize = 7;

/// Gives every step an id: explicit ones first, then its tool's name or the first free `name_2`,
/// `name_3`, …
pub(super) fn assign_ids(draft: &Draft, report: &mut Report) -> Vec<StepId> {
    let mut ids = StepIds::default();
    let mut explicit = Vec::with_capacity(draft.tools.len());
    for (at, step) in draft.tools.iter().enumerate() {
        let id = step.id.as_deref().and_then(|id| parse(at, id, report));
        explicit.push(id.filter(|id| ids.take_id(at, id, report)));
    }
    let steps = draft.tools.iter().zip(explicit);
    steps
        .map(|(step, explicit)| {
            let wanted = step.id.as_deref().or_else(|| written_name(step));
            explicit.unwrap_or_else(|| ids.free_id(wanted.unwrap_or_default()))
        })
        .collect()
}

fn parse(at: usize, id: &str, report: &mut Report) -> Option<StepId> {
    let err = match id.parse() {
        Ok(id) => return Some(id),
        Err(err) => err,
    };
    report.error(at, || {
        let place = place::field_path(at, "id");
        let diagnostic = Diagnostic::error("plan.invalid_step_id", place, format!("{err}"));
        if RESERVED_STEP_IDS.contains(&id) {
            return diagnostic
                .with_help("templates give that word another meaning; choose another");
        }
        let suggestion = base_id(id);
        diagnostic.with_help(format!("for example `{suggestion}`"))
    });
    None
}

#[derive(Debug, Default)]
struct StepIds {
    taken: IndexMap<StepId, usize>,
    /// The next number to try for a name, so that many steps of one tool are cheap.
    next: BTreeMap<String, usize>,
}

impl StepIds {
    fn take_id(&mut self, at: usize, id: &StepId, report: &mut Report) -> bool {
        let Some(first) = self.taken.get(id) else {
            self.taken.insert(id.clone(), at);
            return true;
        };
        report.error(at, || {
            let message = format!("`{id}` is the id of `tools[{first}]` already");
            Diagnostic::error("plan.duplicate_step", place::field_path(at, "id"), message)
                .with_help("give each step a different id")
        });
        false
    }

    fn free_id(&mut self, wanted: &str) -> StepId {
        let base = base_id(wanted);
        if let Some(id) = self.parse_free(&base) {
            return id;
        }
        let stem: String = base.chars().take(STEP_ID_LEN - SUFFIX_LEN).collect();
        let mut number = self.next.get(&stem).copied().unwrap_or(2);
        loop {
            let id = self.parse_free(&format!("{stem}_{number}"));
            number += 1;
            if let Some(id) = id {
                self.next.insert(stem, number);
                return id;
            }
        }
    }

    fn parse_free(&mut self, name: &str) -> Option<StepId> {
        if self.taken.contains_key(name) {
            return None;
        }
        let id: StepId = name.parse().ok()?;
        self.taken.insert(id.clone(), usize::MAX);
        Some(id)
    }
}

/// The result may be a reserved name.
fn base_id(name: &str) -> String {
    let chars = name.chars().take(STEP_ID_LEN);
    let base: String = chars.map(|c| if is_step_id_char(c) { c } else { '_' }).collect();
    if base.is_empty() { "step".to_owned() } else { base }
}

pub(super) struct Naming<'a> {
    pub(super) names: StepNames,
    /// The steps that set a variable, in draft order.
    pub(super) variables: BTreeMap<&'a str, Vec<StepNumber>>,
    steps: &'a [Step<'a>],
    /// The steps that use a tool, by its qualified and its plain name. Computed on demand.
    users: OnceCell<BTreeMap<&'a str, Vec<usize>>>,
}

impl<'a> Naming<'a> {
    pub(super) fn new(steps: &'a [Step<'a>]) -> Self {
        let names = StepNames::new(steps.iter().map(|step| (&step.id, &step.choice.tool)));
        let mut variables: BTreeMap<&str, Vec<StepNumber>> = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            for mapping in &step.mapping {
                let by = variables.entry(&*mapping.variable).or_default();
                if by.last() != Some(&StepNumber::new(at)) {
                    by.push(StepNumber::new(at));
                }
            }
        }
        let names = names.expect("every step got a different id");
        Self { names, variables, steps, users: OnceCell::new() }
    }

    /// Returns the reason why `name`, perhaps followed by a path, means no step, and a suggestion.
    ///
    /// `first` names the step in the message if the end of the name is unclear.
    pub(super) fn why_not(&self, name: &str, first: &str) -> (String, String) {
        let ends = name.char_indices().rev().filter(|(_, c)| matches!(c, '.' | '['));
        let prefixes = std::iter::once(name).chain(ends.map(|(at, _)| name[..at].trim_end()));
        if let Some((tool, users)) =
            prefixes.take(8).find_map(|prefix| Some((prefix, self.variable_users().get(prefix)?)))
        {
            let ids: Vec<_> =
                users.iter().take(10).map(|user| format!("`{}`", self.steps[*user].id)).collect();
            let and_more = if users.len() > 10 { ", …" } else { "" };
            let message = format!("{} steps use the tool `{tool}`", users.len());
            return (message, format!("name one of them: {}{and_more}", ids.join(", ")));
        }
        let head = name.split('[').next().unwrap_or_default().trim();
        let ids = || self.steps.iter().map(|step| step.id.as_str());
        let help = did_you_mean(head, ids())
            .or_else(|| did_you_mean(first, ids()))
            .unwrap_or_else(|| format!("the plan has {}", self.some_ids()));
        (format!("no step is called `{}`", clip(first)), help)
    }

    fn variable_users(&self) -> &BTreeMap<&'a str, Vec<usize>> {
        self.users.get_or_init(|| {
            let mut users: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
            for (at, step) in self.steps.iter().enumerate() {
                let tool = step.choice.tool.as_str();
                users.entry(tool).or_default().push(at);
                if let Some((_, plain)) = tool.split_once('.') {
                    users.entry(plain).or_default().push(at);
                }
            }
            users
        })
    }

    fn some_ids(&self) -> String {
        let ids = self.steps.iter().take(10).map(|step| format!("`{}`", step.id));
        let ids = ids.collect::<Vec<_>>().join(", ");
        if self.steps.len() > 10 { format!("{ids}, …") } else { ids }
    }
}

/// Returns the name of the step's tool or plan, as it is written.
fn written_name(step: &DraftStep) -> Option<&str> {
    let tool = step.name.as_deref().or(step.tool_name.as_deref());
    tool.or_else(|| match step.plan.as_ref()? {
        SubDraft::Named(name) => Some(name),
        SubDraft::Inline(_) => Some("plan"),
    })
}

pub(super) fn clip(text: &str) -> String {
    const MOST: usize = 200;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
