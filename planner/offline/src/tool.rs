//! Tools as the planner sees them: verbs, nouns, slots for values, and outputs.

use serde_json::Value;
use shared::tool::{Effect, ToolDefinition};

use super::{
    lexicon::Lexicon,
    token::{self, stem},
};

/// Levels of objects whose outputs can be referred to.
const OUTPUT_LEVELS: usize = 2;
/// Words of a description that count. The first sentence says what the tool does.
const DESCRIPTION_WORDS: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    Number,
    Flag,
    Choice,
    Email,
    Url,
    Path,
    Moment,
    Id,
    Query,
    Title,
    Text,
    Pattern,
    /// Any other text: a name, a room, a branch.
    Word,
}

/// A parameter, or a field of the objects in a list parameter.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) parameter: String,
    /// The field of the items, if the parameter is a list of objects.
    pub(super) field: Option<String>,
    pub(super) words: Vec<String>,
    pub(super) description: String,
    pub(super) about: Vec<String>,
    pub(super) kind: SlotKind,
    pub(super) choices: Vec<String>,
    pub(super) is_required: bool,
    pub(super) is_list: bool,
    /// The schema asks for a whole or decimal number, also where the slot is an id.
    pub(super) is_numeric: bool,
    pub(super) with_time: bool,
    /// The slot is a part of `owner/repo`.
    pub(super) is_slashed: bool,
    /// Values that the description shows behind `e.g.`, in lower case.
    pub(super) examples: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Output {
    /// Its path in the output, with dots.
    pub(super) path: String,
    pub(super) words: Vec<String>,
    pub(super) kind: OutputKind,
    /// The fields of the items, if it is a list of objects.
    pub(super) items: Vec<Output>,
}

impl Output {
    pub(super) fn is_called(&self, stems: &[&str]) -> bool {
        self.words.last().is_some_and(|word| stems.contains(&word.as_str()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputKind {
    Text,
    Number,
    Flag,
    List,
    Object,
}

#[derive(Clone, Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    /// The words of the name: an order that asks for the tool.
    pub(super) order: String,
    pub(super) acts: bool,
    /// The stem of the verb, with its particle: `turn on`.
    pub(super) verb: String,
    /// Stems of the other words in the name.
    pub(super) nouns: Vec<String>,
    /// Stems of the words in the first sentence of the description, and of examples.
    pub(super) about: Vec<String>,
    pub(super) slots: Vec<Slot>,
    pub(super) outputs: Vec<Output>,
}

impl Tool {
    /// Reads a tool that plans call `name`.
    pub(super) fn read(definition: &ToolDefinition, name: String, lexicon: &Lexicon) -> Self {
        let short = definition.name.as_str().rsplit('.').next().unwrap_or_default();
        let words = name_words(short);
        let sentence = definition.description.split(['.', '\n']).next().unwrap_or_default();
        let about: Vec<String> = description_words(sentence).collect();
        let (verb, nouns) = read_verb(&words, &about, lexicon);
        let nouns: Vec<String> = nouns
            .iter()
            .filter(|word| !lexicon.fillers.contains(word.as_str()))
            .map(|word| stem(word))
            .collect();
        let schema = &definition.input_schema;
        let slots = read_slots(schema, schema, true, &nouns, lexicon);
        let outputs = definition
            .output_schema
            .as_ref()
            .map(|schema| read_outputs(schema, schema, "", OUTPUT_LEVELS))
            .unwrap_or_default();
        let acts = definition.effect != Effect::Read;
        Self { name, order: words.join(" "), acts, verb, nouns, about, slots, outputs }
    }

    pub(super) fn has_noun(&self, noun: &str, lexicon: &Lexicon) -> bool {
        self.nouns.iter().any(|own| lexicon.is_same_noun(own, noun))
    }

    pub(super) fn words(&self) -> impl Iterator<Item = &String> {
        let choices = self
            .slots
            .iter()
            .flat_map(|slot| slot.words.iter().chain(&slot.choices).chain(&slot.examples));
        self.nouns.iter().chain([&self.verb]).chain(choices)
    }

    /// Returns the output field that lists items, if there is one.
    pub(super) fn list(&self) -> Option<&Output> {
        self.outputs
            .iter()
            .find(|output| output.kind == OutputKind::List && !output.items.is_empty())
    }
}

impl Slot {
    /// Reads a parameter. The type of a list is that of its items.
    fn read(
        name: &str,
        schema: &Value,
        described: &Value,
        nouns: &[String],
        lexicon: &Lexicon,
    ) -> Self {
        let description = described["description"].as_str().unwrap_or_default().to_owned();
        let words: Vec<String> = name_words(name).iter().map(|word| stem(word)).collect();
        let about: Vec<String> = description_words(&description).collect();
        let choices: Vec<String> = schema["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        let kind = slot_kind(schema, &words, &about, &choices, nouns, lexicon);
        let is_numeric = has_type(schema, "number") || has_type(schema, "integer");
        let format = schema["format"].as_str().unwrap_or_default();
        let with_time = format == "date-time"
            || format != "date" && (about.iter().any(|word| word == "time" || word == "iso"));
        Self {
            parameter: name.to_owned(),
            field: None,
            examples: read_examples(&description),
            words,
            about,
            kind,
            choices,
            is_required: false,
            is_list: false,
            is_numeric,
            with_time,
            is_slashed: lexicon.forms["slashed"].iter().any(|slashed| slashed == name),
            description,
        }
    }

    pub(super) fn path(&self) -> String {
        match &self.field {
            Some(field) => format!("{}[0].{field}", self.parameter),
            None => self.parameter.clone(),
        }
    }

    pub(super) fn cue(&self) -> String {
        name_words(self.field.as_ref().unwrap_or(&self.parameter)).join(" ")
    }

    /// Returns the nouns of what an id identifies: `issue` of `issue_number`.
    pub(super) fn nouns<'a>(&'a self, tool: &'a Tool, lexicon: &Lexicon) -> Vec<&'a String> {
        let own: Vec<&String> =
            self.words.iter().filter(|word| !is_kind(word, "id", lexicon)).collect();
        if own.is_empty() {
            let known = self.about.iter().filter(|word| tool.nouns.contains(word));
            let known: Vec<&String> = known.collect();
            return if known.is_empty() { tool.nouns.iter().collect() } else { known };
        }
        own
    }

    pub(super) fn mentions(&self, stem: &String) -> bool {
        self.words.contains(stem) || self.about.contains(stem)
    }

    pub(super) fn takes_people(&self) -> bool {
        self.about.iter().any(|word| matches!(word.as_str(), "email" | "sender" | "author"))
    }

    /// Returns whether the slot is an id whose examples have no digit: a number is none.
    pub(super) fn has_wordy_examples(&self) -> bool {
        let has_digit = |example: &String| example.bytes().any(|byte| byte.is_ascii_digit());
        !self.examples.is_empty() && !self.examples.iter().any(has_digit)
    }

    pub(super) fn id_name(&self) -> String {
        if self.description.contains("_id") { "_id" } else { "id" }.to_owned()
    }

    pub(super) fn is_free(&self) -> bool {
        matches!(self.kind, SlotKind::Query | SlotKind::Title | SlotKind::Text | SlotKind::Word)
    }
}

fn read_slots(
    schema: &Value,
    root: &Value,
    is_needed: bool,
    nouns: &[String],
    lexicon: &Lexicon,
) -> Vec<Slot> {
    let required = schema["required"].as_array();
    let mut slots = Vec::new();
    for (name, value) in schema["properties"].as_object().into_iter().flatten() {
        let value = resolve(value, root);
        let is_named = required.is_some_and(|names| names.iter().any(|one| one == name));
        let is_required = is_needed && is_named;
        let items = resolve(&value["items"], root);
        if value["type"] == "array" && items["properties"].is_object() {
            let fields = read_slots(items, root, is_required, nouns, lexicon);
            slots.extend(fields.into_iter().map(|slot| {
                let field = Some(slot.parameter.clone());
                Slot { parameter: name.clone(), field, ..slot }
            }));
            continue;
        }
        let is_list = value["type"] == "array";
        let of = if is_list { items } else { value };
        let slot = Slot::read(name, of, value, nouns, lexicon);
        let kind = if is_list && slot.is_free() { SlotKind::Word } else { slot.kind };
        slots.push(Slot { kind, is_list, is_required, ..slot });
    }
    slots
}

/// Returns whether a stem names a kind of value, such as `path`.
fn is_kind(word: &str, kind: &str, lexicon: &Lexicon) -> bool {
    lexicon.kinds.get(kind).is_some_and(|words| words.iter().any(|known| stem(known) == word))
}

fn has_type(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::String(own) => own == kind,
        Value::Array(own) => own.iter().any(|own| own == kind),
        _ => false,
    }
}

fn slot_kind(
    schema: &Value,
    words: &[String],
    about: &[String],
    choices: &[String],
    nouns: &[String],
    lexicon: &Lexicon,
) -> SlotKind {
    let last = words.last().map_or("", String::as_str);
    let is = |kind: &str| is_kind(last, kind, lexicon);
    let tells = |word: &str| about.iter().any(|own| own == word);
    if !choices.is_empty() {
        return SlotKind::Choice;
    }
    if has_type(schema, "boolean") {
        return SlotKind::Flag;
    }
    let is_id = is("id") || words == ["id"] || about.first().is_some_and(|first| first == "id");
    if has_type(schema, "number") || has_type(schema, "integer") {
        return if is_id { SlotKind::Id } else { SlotKind::Number };
    }
    match schema["format"].as_str() {
        Some("email") => return SlotKind::Email,
        Some("date" | "date-time") => return SlotKind::Moment,
        Some("uri" | "url") => return SlotKind::Url,
        _ => {}
    }
    let has_date = ["date", "time", "iso", "yyyi", "yyyy", "day"].into_iter().any(tells);
    if is("query") {
        SlotKind::Query
    } else if is("pattern") {
        SlotKind::Pattern
    } else if is("moment") && (has_date || last == "date") {
        SlotKind::Moment
    } else if is("path") || is("file") && nouns.iter().any(|noun| is_kind(noun, "path", lexicon)) {
        SlotKind::Path
    } else if is("email")
        || tells("email") && tells("address") && !tells("usernam") && !tells("name")
    {
        SlotKind::Email
    } else if is("url") {
        SlotKind::Url
    } else if is("text") {
        SlotKind::Text
    } else if is_id {
        SlotKind::Id
    } else if is("title") {
        SlotKind::Title
    } else {
        SlotKind::Word
    }
}

/// Follows `$ref` and takes the first type of `anyOf` that is not null.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..8 {
        if let Some(target) = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#')) {
            let Some(found) = root.pointer(target) else { return schema };
            schema = found;
        } else if let Some(options) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
            let Some(found) = options.iter().find(|option| option["type"] != "null") else {
                return schema;
            };
            schema = found;
        } else {
            break;
        }
    }
    schema
}

fn read_outputs(schema: &Value, root: &Value, prefix: &str, levels: usize) -> Vec<Output> {
    let schema = resolve(schema, root);
    let mut outputs = Vec::new();
    if levels == 0 {
        return outputs;
    }
    for (name, value) in schema["properties"].as_object().into_iter().flatten() {
        let value = resolve(value, root);
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let words = name_words(name).iter().map(|word| stem(word)).collect();
        let kind = match value["type"].as_str() {
            Some("number" | "integer") => OutputKind::Number,
            Some("boolean") => OutputKind::Flag,
            Some("array") => OutputKind::List,
            Some("object") => OutputKind::Object,
            None if value["properties"].is_object() => OutputKind::Object,
            _ => OutputKind::Text,
        };
        let items = match kind {
            OutputKind::List => read_outputs(&value["items"], root, "", levels),
            _ => Vec::new(),
        };
        if kind == OutputKind::Object {
            outputs.extend(read_outputs(value, root, &path, levels - 1));
        }
        outputs.push(Output { path, words, kind, items });
    }
    outputs
}

/// Cuts `createAuthor`, `create_author` and `create-author` into words in lower case.
fn name_words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for char in name.chars() {
        if !char.is_alphanumeric() {
            words.push(String::new());
        } else {
            if char.is_uppercase() && was_lower {
                words.push(String::new());
            }
            words.last_mut().expect("there is a word").extend(char.to_lowercase());
        }
        was_lower = char.is_lowercase() || char.is_ascii_digit();
    }
    words.retain(|word| !word.is_empty());
    words
}

fn description_words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|char: char| !char.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .take(DESCRIPTION_WORDS)
        .map(|word| stem(&word.to_lowercase()))
}

fn read_verb<'a>(
    words: &'a [String],
    about: &[String],
    lexicon: &Lexicon,
) -> (String, Vec<&'a String>) {
    let first = about.first().cloned().unwrap_or_default();
    let is_verb = |word: &String| !lexicon.concepts(&stem(word)).is_empty() || stem(word) == first;
    let Some(head) = words.first() else { return (first, Vec::new()) };
    let is_known_noun = !is_verb(head) && (words.len() == 1 || lexicon.is_noun(&stem(head)));
    if is_known_noun {
        return (first, words.iter().collect());
    }
    let with_particle = words.get(1).map(|next| format!("{} {next}", stem(head)));
    match with_particle.filter(|verb| !lexicon.concepts(verb).is_empty()) {
        Some(verb) => (verb, words.iter().skip(2).collect()),
        None => (stem(head), words.iter().skip(1).collect()),
    }
}

/// Reads the examples behind `e.g.` in a description.
fn read_examples(description: &str) -> Vec<String> {
    let Some((_, rest)) = description.split_once("e.g.") else { return Vec::new() };
    let rest = rest.split([';', '(', ')', '.']).next().unwrap_or_default();
    let items = rest.split(',').map(|item| item.trim().trim_matches('"').to_lowercase());
    items.filter(|item| !item.is_empty()).collect()
}

pub(super) fn is_file(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.contains('.'))
}

/// Returns whether a code has the form of an example: `C-61` and `C-204`.
pub(super) fn has_form(code: &str, example: &str) -> bool {
    let form = |text: &str| {
        let mut form = String::new();
        for char in text.chars() {
            let class = if char.is_ascii_digit() { '9' } else { char.to_ascii_lowercase() };
            if class != '9' || !form.ends_with('9') {
                form.push(class);
            }
        }
        form
    };
    let has_digits = |text: &str| text.bytes().any(|byte| byte.is_ascii_digit());
    match (has_digits(example), has_digits(code)) {
        (true, _) => form(code) == form(example),
        (false, _) => {
            token::is_code(&code.to_uppercase()) && code.contains('-') == example.contains('-')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_at_every_style() {
        for name in ["createBlogPost", "create_blog_post", "create-blog.post"] {
            assert_eq!(name_words(name), ["create", "blog", "post"]);
        }
    }

    #[test]
    fn a_code_has_the_form_of_its_example() {
        assert!(has_form("C-61", "c-204"));
        assert!(!has_form("A-1020", "c-204"));
        assert!(has_form("LAMP-01", "mug-blue"));
    }
}
