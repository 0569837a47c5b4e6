use serde_json::Value;
use shared::tool::{Effect, ToolDefinition};

use super::{
    lexicon::Lexicon,
    token::{self, stem},
};

const MAX_OUTPUT_LEVELS: usize = 2;
/// Maximum number of words of a description that are used. The first words describe the purpose of
/// the tool.
const MAX_DESCRIPTION_WORDS: usize = 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    Number,
    Flag,
    Choice,
    Object,
    Email,
    Url,
    Path,
    Moment,
    Id,
    Query,
    Title,
    Text,
    Pattern,
    Word,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Slot {
    pub(super) parameter: String,
    pub(super) field: Option<String>,
    pub(super) words: Vec<String>,
    pub(super) description: String,
    pub(super) about: Vec<String>,
    pub(super) kind: SlotKind,
    pub(super) choices: Vec<String>,
    pub(super) is_required: bool,
    pub(super) is_list: bool,
    pub(super) is_numeric: bool,
    pub(super) is_whole: bool,
    pub(super) has_time: bool,
    /// The slot is a part of `owner/repo`.
    pub(super) is_slashed: bool,
    pub(super) options: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) path: String,
    pub(super) words: Vec<String>,
    pub(super) kind: OutputKind,
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
    pub(super) order: String,
    pub(super) has_effect: bool,
    pub(super) verb: String,
    pub(super) nouns: Vec<String>,
    pub(super) about: Vec<String>,
    pub(super) slots: Vec<Slot>,
    pub(super) outputs: Vec<Output>,
}

impl Tool {
    /// Reads a tool. Plans use `name` for it.
    pub(super) fn read(definition: &ToolDefinition, name: String, lexicon: &Lexicon) -> Self {
        let name_parts = definition.name.as_str().rsplit_once('.');
        let (space, short) = name_parts.unwrap_or(("", definition.name.as_str()));
        let words = name_words(short);
        let sentence = definition.description.split(['.', '\n']).next().unwrap_or_default();
        let mut about: Vec<String> = description_words(sentence).collect();
        let (verb, count) = read_verb(&words, &about, lexicon);
        about.extend(name_words(space).iter().map(|word| stem(word)));
        let nouns = words.iter().skip(count).filter(|word| !lexicon.fillers.contains(*word));
        let nouns: Vec<String> = nouns.map(|word| stem(word)).collect();
        let schema = &definition.input_schema;
        let slots = read_slots(schema, schema, true, &nouns, lexicon);
        let output = definition.output_schema.as_ref();
        let outputs = output.map(|schema| read_outputs(schema, schema, "", MAX_OUTPUT_LEVELS));
        let outputs = outputs.unwrap_or_default();
        let has_effect = definition.effect != Effect::Read;
        Self { name, order: words.join(" "), has_effect, verb, nouns, about, slots, outputs }
    }

    pub(super) fn has_noun(&self, noun: &str, lexicon: &Lexicon) -> bool {
        self.nouns.iter().any(|own| lexicon.is_same_noun(own, noun))
    }

    pub(super) fn words(&self) -> impl Iterator<Item = &String> {
        let slots = self.slots.iter();
        let words = slots.flat_map(|slot| [&slot.words, &slot.choices, &slot.options]).flatten();
        self.nouns.iter().chain([&self.verb]).chain(words)
    }

    pub(super) fn list(&self) -> Option<&Output> {
        let is_list =
            |output: &&Output| output.kind == OutputKind::List && !output.items.is_empty();
        self.outputs.iter().find(is_list)
    }
}

impl Slot {
    /// Reads a parameter. For a list, `schema` is the schema of its items, and `described` the
    /// schema of the list.
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
        let choices = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let format = schema["format"].as_str().unwrap_or_default();
        let tells_time = about.iter().any(|word| word == "time" || word == "iso");
        let slot = Self {
            parameter: name.to_owned(),
            field: None,
            options: read_options(&description),
            words,
            about,
            kind: SlotKind::Word,
            choices: choices.map(str::to_owned).collect(),
            is_required: false,
            is_list: false,
            is_numeric: has_type(schema, "number") || has_type(schema, "integer"),
            is_whole: has_type(schema, "integer"),
            has_time: format == "date-time" || format != "date" && tells_time,
            is_slashed: lexicon.file.forms["slashed"].iter().any(|slashed| slashed == name),
            description,
        };
        Self { kind: slot.read_kind(schema, nouns, lexicon), ..slot }
    }

    /// Returns the kind of the values: from the schema, otherwise from the last word of the name
    /// and from the description.
    fn read_kind(&self, schema: &Value, nouns: &[String], lexicon: &Lexicon) -> SlotKind {
        let last = self.words.last().map_or("", String::as_str);
        let is = |kind: &str| is_kind(last, kind, lexicon);
        let tells = |word: &str| self.about.iter().any(|own| own == word);
        let tells_any = |words: &[&str]| words.iter().any(|word| tells(word));
        let format = schema["format"].as_str().unwrap_or_default();
        let is_id = is("id");
        let is_moment =
            last == "date" || tells_any(&["date", "time", "iso", "yyyi", "yyyy", "day"]);
        let has_path = nouns.iter().any(|noun| is_kind(noun, "path", lexicon));
        let is_address = tells("email") && tells("address") && !tells_any(&["usernam", "name"]);
        let kinds = [
            (!self.choices.is_empty(), SlotKind::Choice),
            (has_type(schema, "boolean"), SlotKind::Flag),
            (has_type(schema, "object"), SlotKind::Object),
            (self.is_numeric && is_id, SlotKind::Id),
            (self.is_numeric, SlotKind::Number),
            (format == "email", SlotKind::Email),
            (matches!(format, "date" | "date-time"), SlotKind::Moment),
            (matches!(format, "uri" | "url"), SlotKind::Url),
            (is("query"), SlotKind::Query),
            (is("pattern"), SlotKind::Pattern),
            (is("moment") && is_moment, SlotKind::Moment),
            (is("path") || is("file") && has_path, SlotKind::Path),
            (is("email") || is_address, SlotKind::Email),
            (is("url"), SlotKind::Url),
            (is("text"), SlotKind::Text),
            (is_id, SlotKind::Id),
            (is("title"), SlotKind::Title),
        ];
        kinds.into_iter().find(|(is_it, _)| *is_it).map_or(SlotKind::Word, |(_, kind)| kind)
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

    /// Returns the nouns of the thing that an id identifies: `issue` of `issue_number`. For a bare
    /// `id`, these are the nouns of the tool.
    pub(super) fn nouns<'a>(&'a self, tool: &'a Tool, lexicon: &Lexicon) -> Vec<&'a String> {
        let own: Vec<&String> =
            self.words.iter().filter(|word| !is_kind(word, "id", lexicon)).collect();
        if own.is_empty() {
            return tool.nouns.iter().collect();
        }
        own
    }

    pub(super) fn mentions(&self, stem: &String) -> bool {
        self.words.contains(stem) || self.about.contains(stem)
    }

    pub(super) fn takes_people(&self) -> bool {
        self.about.iter().any(|word| matches!(word.as_str(), "email" | "sender" | "author"))
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
        slots.push(Slot { kind, is_required, is_list, ..slot });
    }
    slots
}

fn is_kind(word: &str, kind: &str, lexicon: &Lexicon) -> bool {
    lexicon.file.kinds.get(kind).is_some_and(|words| words.iter().any(|known| stem(known) == word))
}

fn has_type(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::String(own) => own == kind,
        Value::Array(own) => own.iter().any(|own| own == kind),
        _ => false,
    }
}

fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..8 {
        let target = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        let options = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
        let option = options.and_then(|all| all.iter().find(|option| option["type"] != "null"));
        let Some(next) = target.and_then(|path| root.pointer(path)).or(option) else { break };
        schema = next;
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
        if !char.is_alphanumeric() || char.is_uppercase() && was_lower {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| char.is_alphanumeric()) {
            word.extend(char.to_lowercase());
        }
        was_lower = char.is_lowercase() || char.is_ascii_digit();
    }
    words.retain(|word| !word.is_empty());
    words
}

fn description_words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|char: char| !char.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .take(MAX_DESCRIPTION_WORDS)
        .map(|word| stem(&word.to_lowercase()))
}

/// Returns the stem of the verb in a name, and the number of its words. If the name has no verb,
/// returns the first word of the description, and 0.
fn read_verb(words: &[String], about: &[String], lexicon: &Lexicon) -> (String, usize) {
    let first = about.first().cloned().unwrap_or_default();
    let Some(head) = words.first().map(|word| stem(word)) else { return (first, 0) };
    let is_verb = !lexicon.concepts(&head).is_empty() || head == first;
    if !is_verb && (words.len() == 1 || lexicon.is_noun(&head)) {
        return (first, 0);
    }
    let phrasal = words.get(1).map(|particle| format!("{head} {particle}"));
    match phrasal.filter(|verb| !lexicon.concepts(verb).is_empty()) {
        Some(verb) => (verb, 2),
        None => (head, 1),
    }
}

/// Reads the values that a description shows: `'summary' or 'detailed'`, `such as villa, condo`,
/// `(oil, acrylic)`.
pub(super) fn read_options(description: &str) -> Vec<String> {
    let quoted = description.split(['\'', '"', '‘', '’']).skip(1).step_by(2);
    let marks = ["e.g.", "E.g.", "such as", "for example", "For example", "like "];
    let shown = marks.iter().filter_map(|mark| description.split_once(mark));
    let shown = shown.map(|(_, rest)| rest.split(['.', ';', '(', ')']).next().unwrap_or_default());
    let items = shown.flat_map(|list| list.split(','));
    let items = items.flat_map(|item| item.split(" or ")).flat_map(|item| item.split(" and "));
    let items = items.map(|item| item.trim().trim_matches(['\'', '"']));
    let is_value = |item: &&str| {
        item.starts_with(char::is_alphanumeric) && item.len() <= 30 && item.split(' ').count() <= 3
    };
    quoted.chain(items).filter(is_value).map(str::to_owned).collect()
}

/// Returns whether two stems are the same word in other forms: `weigh` and `weight`.
pub(super) fn is_alike(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    short == long || short.len() >= 4 && long.starts_with(short) && long.len() <= short.len() + 4
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
