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

/// The length of a suffix: `_` and as many digits as [`shared::limits::PLAN_STEPS`] has.
const SUFFIX_LEN: usize = 7;

/// Gives every step an id. Explicit ids come first. Every other step gets its tool's name (or its
/// own id, if this id is invalid or taken), or the first free name of `name_2`, `name_3`, …
pub(super) fn assign_ids(draft: &Draft, report: &mut Report) -> Vec<StepId> {
    let mut ids = StepIds::default();
    let mut explicit = Vec::with_capacity(draft.tools.len());
    for (index, step) in draft.tools.iter().enumerate() {
        let id = step.id.as_deref().and_then(|id| parse_explicit_id(index, id, report));
        explicit.push(id.filter(|id| ids.take_id(index, id, report)));
    }
    let steps = draft.tools.iter().zip(explicit);
    steps
        .map(|(step, explicit)| {
            let requested_id = step.id.as_deref().or_else(|| written_name(step));
            explicit.unwrap_or_else(|| ids.free_id(requested_id.unwrap_or_default()))
        })
        .collect()
}

fn parse_explicit_id(index: usize, id: &str, report: &mut Report) -> Option<StepId> {
    let err = match id.parse() {
        Ok(id) => return Some(id),
        Err(err) => err,
    };
    report.error(index, || {
        let place = place::field_path(index, "id");
        let diagnostic = Diagnostic::error("plan.invalid_step_id", place, format!("{err}"));
        if RESERVED_STEP_IDS.contains(&id) {
            return diagnostic
                .with_help("the word has another meaning in templates; choose another id");
        }
        let suggestion = make_base_id(id);
        diagnostic.with_help(format!("for example `{suggestion}`"))
    });
    None
}

#[derive(Debug, Default)]
struct StepIds {
    taken_ids: IndexMap<StepId, usize>,
    /// The next suffix to try for a name, so that many steps of one tool are cheap.
    next_suffix: BTreeMap<String, usize>,
}

impl StepIds {
    fn take_id(&mut self, index: usize, id: &StepId, report: &mut Report) -> bool {
        let Some(first) = self.taken_ids.get(id) else {
            self.taken_ids.insert(id.clone(), index);
            return true;
        };
        report.error(index, || {
            let message = format!("`{id}` is the id of `tools[{first}]` already");
            Diagnostic::error("plan.duplicate_step", place::field_path(index, "id"), message)
                .with_help("give each step a different id")
        });
        false
    }

    fn free_id(&mut self, requested_id: &str) -> StepId {
        let base = make_base_id(requested_id);
        if let Some(id) = self.parse_free(&base) {
            return id;
        }
        let stem: String = base.chars().take(STEP_ID_LEN - SUFFIX_LEN).collect();
        let mut number = self.next_suffix.get(&stem).copied().unwrap_or(2);
        loop {
            let id = self.parse_free(&format!("{stem}_{number}"));
            number += 1;
            if let Some(id) = id {
                self.next_suffix.insert(stem, number);
                return id;
            }
        }
    }

    fn parse_free(&mut self, name: &str) -> Option<StepId> {
        if self.taken_ids.contains_key(name) {
            return None;
        }
        let id: StepId = name.parse().ok()?;
        self.taken_ids.insert(id.clone(), usize::MAX);
        Some(id)
    }
}

/// Makes an id from a tool's name. The result may be a reserved name.
fn make_base_id(name: &str) -> String {
    let chars = name.chars().take(STEP_ID_LEN);
    let base: String = chars.map(|c| if is_step_id_char(c) { c } else { '_' }).collect();
    if base.is_empty() { "step".to_owned() } else { base }
}

pub(super) struct Naming<'a> {
    pub(super) names: StepNames,
    pub(super) variables: BTreeMap<&'a str, Vec<StepNumber>>,
    steps: &'a [Step<'a>],
    /// The steps that use each tool, by its qualified name and by its name without the set.
    /// Computed when a message needs it.
    tool_users: OnceCell<BTreeMap<&'a str, Vec<usize>>>,
}

impl<'a> Naming<'a> {
    pub(super) fn new(steps: &'a [Step<'a>]) -> Self {
        let names = StepNames::new(steps.iter().map(|step| (&step.id, &step.tool_choice.tool)));
        let mut variables: BTreeMap<&str, Vec<StepNumber>> = BTreeMap::new();
        for (index, step) in steps.iter().enumerate() {
            for mapping in &step.mapping {
                let by = variables.entry(&*mapping.variable).or_default();
                if by.last() != Some(&StepNumber::new(index)) {
                    by.push(StepNumber::new(index));
                }
            }
        }
        let names = names.expect("every step got a different id");
        Self { names, variables, steps, tool_users: OnceCell::new() }
    }

    /// Returns the reason why a name, perhaps followed by a path, matches no step, and a
    /// suggestion. The message uses `first` as the name if it is unclear where the name ends.
    pub(super) fn describe_unknown_name(&self, name: &str, first: &str) -> (String, String) {
        let ends = name.char_indices().rev().filter(|(_, c)| matches!(c, '.' | '['));
        let prefixes = std::iter::once(name).chain(ends.map(|(end, _)| name[..end].trim_end()));
        if let Some((tool, tool_users)) =
            prefixes.take(8).find_map(|prefix| Some((prefix, self.tool_users().get(prefix)?)))
        {
            let ids: Vec<_> = tool_users
                .iter()
                .take(10)
                .map(|user| format!("`{}`", self.steps[*user].id))
                .collect();
            let and_more = if tool_users.len() > 10 { ", …" } else { "" };
            let message = format!("{} steps use the tool `{tool}`", tool_users.len());
            return (message, format!("name one of them: {}{and_more}", ids.join(", ")));
        }
        let head = name.split('[').next().unwrap_or_default().trim();
        let ids = || self.steps.iter().map(|step| step.id.as_str());
        let help = did_you_mean(head, ids())
            .or_else(|| did_you_mean(first, ids()))
            .unwrap_or_else(|| format!("the plan has {}", self.list_some_ids()));
        (format!("no step is called `{}`", shorten_name(first)), help)
    }

    fn tool_users(&self) -> &BTreeMap<&'a str, Vec<usize>> {
        self.tool_users.get_or_init(|| {
            let mut tool_users: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
            for (index, step) in self.steps.iter().enumerate() {
                let tool = step.tool_choice.tool.as_str();
                tool_users.entry(tool).or_default().push(index);
                if let Some((_, plain)) = tool.split_once('.') {
                    tool_users.entry(plain).or_default().push(index);
                }
            }
            tool_users
        })
    }

    fn list_some_ids(&self) -> String {
        let ids = self.steps.iter().take(10).map(|step| format!("`{}`", step.id));
        let ids = ids.collect::<Vec<_>>().join(", ");
        if self.steps.len() > 10 { format!("{ids}, …") } else { ids }
    }
}

fn written_name(step: &DraftStep) -> Option<&str> {
    let tool = step.name.as_deref().or(step.tool_name.as_deref());
    tool.or_else(|| match step.plan.as_ref()? {
        SubDraft::Named(name) => Some(name),
        SubDraft::Inline(_) => Some("plan"),
    })
}

pub(super) fn shorten_name(text: &str) -> String {
    const MAX_NAME_CHARS: usize = 200;
    match text.char_indices().nth(MAX_NAME_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
