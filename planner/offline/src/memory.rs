use serde_json::{Map, Value};

use super::{
    lexicon::Lexicon,
    token::stem,
    tool::{Output, OutputKind, Slot, SlotKind, Tool},
};

pub(super) type Parameters = Map<String, Value>;

#[derive(Clone, Debug)]
pub(super) struct PlannedStep {
    pub(super) id: String,
    pub(super) tool: usize,
    pub(super) parameters: Map<String, Value>,
    pub(super) is_loop: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    pub(super) steps: Vec<PlannedStep>,
}

#[derive(Clone, Copy)]
pub(super) struct WantedValue<'a> {
    pub(super) slot: &'a Slot,
    pub(super) tool: &'a Tool,
    pub(super) noun: Option<&'a str>,
    pub(super) tools: &'a [Tool],
    pub(super) lexicon: &'a Lexicon,
}

#[derive(Clone, Debug)]
pub(super) struct RecalledValue {
    pub(super) value: Value,
    pub(super) step: usize,
}

pub(super) fn write_template(id: &str, path: &str) -> Value {
    let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
    Value::String(format!("{{{{{id}{dot}{path}}}}}"))
}

impl Memory {
    pub(super) fn value_for(&self, wanted: &WantedValue<'_>) -> Option<RecalledValue> {
        self.find(|step| {
            let own = &wanted.tools[step.tool];
            wanted.is_named(own).then(|| wanted.value_of(step, own)).flatten()
        })
    }

    /// Finds a text that a phrase such as `its title` means. If the phrase has no noun, returns the
    /// main text of a step that only reads.
    pub(super) fn text(&self, wanted: &WantedValue<'_>) -> Option<RecalledValue> {
        self.find(|step| {
            let own = &wanted.tools[step.tool];
            let path = match wanted.noun {
                Some(noun) => text_field(own, noun, wanted.lexicon),
                None => (!own.has_effect).then(|| main_text(&own.outputs)),
            };
            path.map(|path| write_template(&step.id, &path))
        })
    }

    pub(super) fn named(&self, name: &str, wanted: &WantedValue<'_>) -> Option<RecalledValue> {
        let name = name.to_lowercase();
        self.find(|step| {
            let own = &wanted.tools[step.tool];
            let mut values = step.parameters.values().filter_map(Value::as_str);
            let has_name = values.any(|text| text.to_lowercase() == name);
            (has_name && wanted.is_of(&own.nouns)).then(|| {
                let path = id_of(&own.outputs, wanted.slot);
                write_template(&step.id, &path.unwrap_or_else(|| wanted.slot.id_name()))
            })
        })
    }

    fn find(&self, value: impl Fn(&PlannedStep) -> Option<Value>) -> Option<RecalledValue> {
        let steps = self.steps.iter().enumerate().rev();
        let mut steps = steps.filter(|(_, step)| !step.is_loop);
        steps.find_map(|(at, step)| Some(RecalledValue { value: value(step)?, step: at }))
    }
}

impl WantedValue<'_> {
    fn is_named(&self, own: &Tool) -> bool {
        let lexicon = self.lexicon;
        let Some(noun) = self.noun else { return true };
        let is_noun = |word: &String| lexicon.is_same_noun(word, noun);
        own.has_noun(noun, lexicon)
            || self.slot.words.iter().any(is_noun)
            || own.outputs.iter().any(|output| output.words.iter().any(is_noun))
    }

    fn is_of(&self, words: &[String]) -> bool {
        let nouns = self.slot.nouns(self.tool, self.lexicon);
        let is_same =
            |word: &String| nouns.iter().any(|noun| self.lexicon.is_same_noun(noun, word));
        words.iter().any(is_same)
    }

    fn value_of(&self, step: &PlannedStep, own: &Tool) -> Option<Value> {
        let slot = self.slot;
        let field = |path: String| write_template(&step.id, &path);
        // Uses the parameter of the step, because parameters are known before the step runs.
        let is_copy = slot.is_list && slot.kind == SlotKind::Email;
        if let Some(value) = step.parameters.get(&slot.parameter).filter(|_| !is_copy) {
            return Some(value.clone());
        }
        let is_own = self.is_of(&own.nouns);
        let item = || {
            let list = own.list()?;
            let item = field_for(&list.items, slot, is_own || self.is_of(&list.words))?;
            Some(format!("{}[0].{item}", list.path))
        };
        field_for(&own.outputs, slot, is_own)
            .or_else(item)
            .map(field)
            .or_else(|| self.parameter_of(step, own))
            .or_else(|| {
                // A tool whose outputs are unknown is assumed to return an id, unless it lists
                // items.
                let is_one = own.outputs.is_empty() && own.verb != "list";
                let is_unknown = is_one && slot.kind == SlotKind::Id && is_own;
                is_unknown.then(|| field(slot.id_name()))
            })
    }

    /// Returns a parameter of the step that fits the slot. A slot for a name must mention the
    /// parameter in its description: `a pull request from it` needs the branch.
    fn parameter_of(&self, step: &PlannedStep, own: &Tool) -> Option<Value> {
        let is_path = |other: &&Slot| other.kind == SlotKind::Path;
        match self.slot.kind {
            SlotKind::Path => {
                let mut paths = own.slots.iter().filter(is_path);
                paths.find_map(|other| step.parameters.get(&other.parameter)).cloned()
            }
            SlotKind::Word => {
                let is_related = |other: &&Slot| {
                    self.slot.about.contains(&stem(&other.parameter.to_lowercase()))
                        && !other.is_slashed
                };
                let mut related = own.slots.iter().filter(is_related);
                related
                    .find_map(|other| step.parameters.get(&other.parameter))
                    .filter(|value| value.is_string())
                    .cloned()
            }
            _ => None,
        }
    }
}

pub(super) fn id_of(outputs: &[Output], slot: &Slot) -> Option<String> {
    let is_fit = |output: &&Output| {
        !matches!(output.kind, OutputKind::List | OutputKind::Object | OutputKind::Flag)
            && (!slot.is_numeric || output.kind == OutputKind::Number)
    };
    let ends_with = |name: &str| {
        let mut fit = outputs.iter().filter(is_fit);
        fit.find(|output| output.path == name || output.path.ends_with(&format!(".{name}")))
    };
    let names = [slot.parameter.as_str(), "id", "_id", "number"];
    names.into_iter().find_map(ends_with).map(|output| output.path.clone())
}

fn text_field(tool: &Tool, noun: &str, lexicon: &Lexicon) -> Option<String> {
    let is_scalar =
        |output: &&Output| !matches!(output.kind, OutputKind::List | OutputKind::Object);
    let scalars = || tool.outputs.iter().filter(is_scalar);
    let has_word = |output: &&Output| output.words.iter().any(|own| own == noun);
    let is_near = |output: &&Output| output.words.iter().any(|own| lexicon.is_same_noun(own, noun));
    let found =
        scalars().find(|output| output.is_called(&[noun])).or_else(|| scalars().find(is_near));
    let item = || {
        let list = tool.list()?;
        let item = list.items.iter().find(has_word)?;
        Some(format!("{}[0].{}", list.path, item.path))
    };
    let is_whole = || {
        let is_result = matches!(noun, "list" | "result" | "output" | "answer");
        !tool.has_effect && (is_result || tool.has_noun(noun, lexicon))
    };
    found
        .map(|output| output.path.clone())
        .or_else(item)
        .or_else(|| is_whole().then(|| main_text(&tool.outputs)))
}

fn main_text(outputs: &[Output]) -> String {
    let is_text = |output: &&Output| {
        output.kind == OutputKind::Text && output.is_called(&["content", "bodi", "text"])
    };
    outputs.iter().find(is_text).map(|output| output.path.clone()).unwrap_or_default()
}

/// Returns the path of the output that fills a slot. An output `id` identifies the thing that has
/// the outputs, so it fits only if the slot means this thing.
pub(super) fn field_for(outputs: &[Output], slot: &Slot, is_own: bool) -> Option<String> {
    let mut scalars = outputs.iter().filter(|output| output.kind != OutputKind::List);
    let called = |name: &str| {
        let output = outputs.iter().find(|output| output.is_called(&[name]))?;
        Some(output.path.clone())
    };
    // `lock each of the doors` needs the names of the doors.
    let is_name = slot.kind == SlotKind::Word && slot.is_required && !slot.is_slashed;
    let same = scalars.find(|output| output.path == slot.parameter);
    same.map(|output| output.path.clone()).or_else(|| match slot.kind {
        SlotKind::Email => called("email"),
        SlotKind::Id if is_own => id_of(outputs, slot),
        _ if is_name => called("name"),
        _ => None,
    })
}
