//! The steps so far, and what later clauses can refer to.

use serde_json::{Map, Value};

use super::{
    lexicon::Lexicon,
    tool::{Output, OutputKind, Slot, SlotKind, Tool},
};

/// A step of the plan.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) id: String,
    pub(super) tool: usize,
    pub(super) parameters: Map<String, Value>,
    pub(super) is_loop: bool,
}

/// The steps so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) steps: Vec<Done>,
}

/// A value from an earlier step.
#[derive(Clone, Debug)]
pub(super) struct Recalled {
    pub(super) value: Value,
    /// The step that gives it.
    pub(super) step: usize,
}

/// A template of an output field.
pub(super) fn template(id: &str, path: &str) -> Value {
    let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
    Value::String(format!("{{{{{id}{dot}{path}}}}}"))
}

impl Memory {
    /// Finds the value of an id, a name or an address for a slot. `noun` is the noun that the query
    /// says, as in `that issue`.
    pub(super) fn value_for(
        &self,
        slot: &Slot,
        tool: &Tool,
        noun: Option<&str>,
        tools: &[Tool],
        lexicon: &Lexicon,
    ) -> Option<Recalled> {
        let wanted: Vec<&String> = slot.nouns(tool, lexicon);
        for (at, step) in self.steps.iter().enumerate().rev() {
            if step.is_loop {
                continue;
            }
            let own = &tools[step.tool];
            let is_named = noun.is_none_or(|noun| {
                own.has_noun(noun, lexicon)
                    || slot.words.iter().any(|word| lexicon.is_same_noun(word, noun))
                    || own.outputs.iter().any(|output| {
                        output.words.iter().any(|word| lexicon.is_same_noun(word, noun))
                    })
            });
            if !is_named {
                continue;
            }
            let found = |value: Value| Some(Recalled { value, step: at });
            if let Some(value) = step
                .parameters
                .get(&slot.parameter)
                .filter(|_| !slot.is_list || slot.kind != SlotKind::Email)
            {
                return found(value.clone());
            }
            if let Some(output) = own
                .outputs
                .iter()
                .find(|output| output.path == slot.parameter && output.kind != OutputKind::List)
            {
                return found(template(&step.id, &output.path));
            }
            let is_same =
                |stem: &String| wanted.iter().any(|noun| lexicon.is_same_noun(noun, stem));
            let is_own = own.nouns.iter().any(is_same);
            if slot.kind == SlotKind::Email {
                if let Some(path) =
                    email_of(&own.outputs).or_else(|| first_item(own, |output| is_email(output)))
                {
                    return found(template(&step.id, &path));
                }
                continue;
            }
            if slot.kind == SlotKind::Id && is_own {
                if let Some(path) = id_of(&own.outputs, slot) {
                    return found(template(&step.id, &path));
                }
            }
            if let Some(list) = own.list() {
                let is_item = list.words.iter().any(is_same) || is_own;
                let exact = list.items.iter().find(|item| item.path == slot.parameter);
                if let Some(item) = exact.map(|item| item.path.clone()).or_else(|| {
                    (slot.kind == SlotKind::Id && is_item)
                        .then(|| id_of(&list.items, slot))
                        .flatten()
                }) {
                    return found(template(&step.id, &format!("{}[0].{item}", list.path)));
                }
            }
            // A path is wherever the earlier step had one.
            let path = own.slots.iter().find(|other| {
                other.kind == SlotKind::Path && step.parameters.contains_key(&other.parameter)
            });
            if let (SlotKind::Path, Some(other)) = (slot.kind, path) {
                return found(step.parameters[&other.parameter].clone());
            }
            // `a pull request from it`: the earlier step has a value of which the description speaks.
            let related = step.parameters.iter().find(|(name, value)| {
                value.is_string()
                    && slot.kind == SlotKind::Word
                    && slot.about.contains(&super::token::stem(&name.to_lowercase()))
                    && !matches!(name.as_str(), "owner" | "repo")
            });
            if let Some((_, value)) = related {
                return found(value.clone());
            }
            if !own.acts && own.outputs.is_empty() && slot.kind == SlotKind::Id && is_own {
                return found(template(&step.id, "id"));
            }
            if own.acts && own.outputs.is_empty() && slot.kind == SlotKind::Id && is_own {
                let name = if slot.description.contains("`_id`") || slot.description.contains("_id")
                {
                    "_id"
                } else {
                    "id"
                };
                return found(template(&step.id, name));
            }
        }
        None
    }

    /// Finds a text that a phrase such as `its title` means. Without a word, returns the main text.
    pub(super) fn text(
        &self,
        word: Option<&str>,
        tools: &[Tool],
        lexicon: &Lexicon,
    ) -> Option<Recalled> {
        for (at, step) in self.steps.iter().enumerate().rev() {
            if step.is_loop {
                continue;
            }
            let own = &tools[step.tool];
            let found = |path: &str| Some(Recalled { value: template(&step.id, path), step: at });
            let Some(word) = word else {
                if own.acts {
                    continue;
                }
                return match main_text(&own.outputs) {
                    Some(output) => found(&output.path),
                    None => found(""),
                };
            };
            let scalar = own
                .outputs
                .iter()
                .filter(|output| !matches!(output.kind, OutputKind::List | OutputKind::Object));
            if let Some(output) = best_field(scalar, word, lexicon) {
                return found(&output.path);
            }
            let exact = |output: &&Output| output.words.iter().any(|own| own == word);
            if let Some((list, item)) =
                own.list().and_then(|list| Some((list, list.items.iter().find(exact)?)))
            {
                return found(&format!("{}[0].{}", list.path, item.path));
            }
            let is_whole = own.has_noun(word, lexicon)
                || matches!(word, "list" | "result" | "output" | "answer");
            if is_whole && !own.acts {
                return match main_text(&own.outputs) {
                    Some(output) => found(&output.path),
                    None => found(""),
                };
            }
        }
        None
    }

    /// Finds the step whose parameters have a name: `by Alice`.
    pub(super) fn named(
        &self,
        name: &str,
        slot: &Slot,
        tool: &Tool,
        tools: &[Tool],
        lexicon: &Lexicon,
    ) -> Option<Recalled> {
        let name = name.to_lowercase();
        let wanted = slot.nouns(tool, lexicon);
        self.steps.iter().enumerate().rev().find_map(|(at, step)| {
            let own = &tools[step.tool];
            let has_name = step
                .parameters
                .values()
                .any(|value| value.as_str().is_some_and(|text| text.to_lowercase() == name));
            let is_kind = own
                .nouns
                .iter()
                .any(|noun| wanted.iter().any(|wanted| lexicon.is_same_noun(wanted, noun)));
            if !has_name || !is_kind {
                return None;
            }
            let path = id_of(&own.outputs, slot).unwrap_or_else(|| {
                if slot.description.contains("_id") { "_id".to_owned() } else { "id".to_owned() }
            });
            Some(Recalled { value: template(&step.id, &path), step: at })
        })
    }
}

/// Returns the path of the field that identifies a thing.
pub(super) fn id_of(outputs: &[Output], slot: &Slot) -> Option<String> {
    let is_fit = |output: &&Output| {
        !matches!(output.kind, OutputKind::List | OutputKind::Object | OutputKind::Flag)
            && (!slot.is_numeric || output.kind == OutputKind::Number)
    };
    let ends_with = |name: &str| {
        outputs
            .iter()
            .filter(is_fit)
            .find(|output| output.path == name || output.path.ends_with(&format!(".{name}")))
    };
    let found = ends_with(&slot.parameter).or_else(|| ends_with("id")).or_else(|| ends_with("_id"));
    let found = found.or_else(|| ends_with("number")).or_else(|| {
        let mut ids = outputs
            .iter()
            .filter(is_fit)
            .filter(|output| output.words.last().is_some_and(|word| word == "id"));
        ids.next().filter(|_| ids.next().is_none())
    });
    found.map(|output| output.path.clone())
}

fn is_email(output: &Output) -> bool {
    output.words.last().is_some_and(|word| word == "email")
}

fn email_of(outputs: &[Output]) -> Option<String> {
    outputs.iter().find(|output| is_email(output)).map(|output| output.path.clone())
}

fn first_item(tool: &Tool, is_wanted: impl Fn(&Output) -> bool) -> Option<String> {
    let list = tool.list()?;
    let item = list.items.iter().find(|item| is_wanted(item))?;
    Some(format!("{}[0].{}", list.path, item.path))
}

fn main_text(outputs: &[Output]) -> Option<&Output> {
    let named = outputs.iter().find(|output| {
        output.kind == OutputKind::Text
            && output
                .words
                .last()
                .is_some_and(|word| matches!(word.as_str(), "content" | "bodi" | "text"))
    });
    named.or_else(|| match outputs {
        [only] => Some(only),
        _ => None,
    })
}

fn best_field<'a>(
    outputs: impl Iterator<Item = &'a Output> + Clone,
    word: &str,
    lexicon: &Lexicon,
) -> Option<&'a Output> {
    let exact = outputs.clone().find(|output| output.words.last().is_some_and(|own| own == word));
    let near = || {
        outputs
            .clone()
            .find(|output| output.words.iter().any(|own| lexicon.is_same_noun(own, word)))
    };
    exact
        .or_else(|| outputs.clone().find(|output| output.words.iter().any(|own| own == word)))
        .or_else(near)
}

/// Returns the field of a list's items that fills a slot.
pub(super) fn item_field(list: &Output, slot: &Slot) -> Option<String> {
    let exact = list.items.iter().find(|item| item.path == slot.parameter);
    let found = exact.map(|item| item.path.clone());
    match slot.kind {
        SlotKind::Email => found.or_else(|| email_of(&list.items)),
        SlotKind::Id => found.or_else(|| id_of(&list.items, slot)),
        _ => found,
    }
}
