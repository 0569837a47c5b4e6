//! Typed fields: parameters and outputs of tools, with the keys by which they fit.

use std::{collections::BTreeSet, sync::LazyLock};

use serde_json::Value;

use crate::select::words;

const MAX_LEVELS: usize = 3;
const MAX_REFERENCES: usize = 8;
/// Minimum number of different words outside [`COMMON_WORDS`] that a description needs. Only then
/// can the description serve as the type of a field.
const MIN_TELLING_WORDS: usize = 2;

/// Words that name a property of any thing. Alone, they do not show which thing it belongs to.
const PROPERTY_WORDS: &str = "id uuid guid key number name title email mail address phone date time day status \
    state type kind category url link path amount total price cost count quantity size description text body \
    content comment message note value code label display";
/// Words before the name of a thing that tell which thing it is, but not the kind of the thing:
/// `parent_id` of a page.
const QUALIFIER_WORDS: &str = "first last full created updated start end begin default current new old parent child \
    root source target previous next other";
const ID_WORDS: &str = "id uuid guid key number";
/// Names of objects that only wrap a result.
const WRAPPER_WORDS: &str = "data result response payload output";
/// Words that may describe any parameter, so they do not distinguish parameters.
const COMMON_WORDS: &str = "unique id identifier identifies number string integer value field parameter record \
    object entity resource item thing name type key fetch get read return use example optional required";
const READING_VERBS: &str = "get read show find fetch search lookup look retrieve list describe query check \
    load view resolve tell display see";
/// Words after which a tool's name no longer names the thing: `get_order_by_number` is about an
/// order.
const END_WORDS: [&str; 9] = ["by", "from", "for", "of", "with", "using", "to", "in", "on"];
const CAUTION_WORDS: [&str; 22] = [
    "deprecated",
    "legacy",
    "obsolete",
    "outdated",
    "stale",
    "unreliable",
    "not dependable",
    "no longer",
    "relied on",
    "do not use",
    "not be used",
    "not suitable",
    "not usable",
    "not appropriate",
    "unsupported",
    "experimental",
    "preview",
    "cache",
    "estimate",
    "predicted",
    "lagging",
    "non-authoritative",
];

fn stems(words: &str) -> BTreeSet<String> {
    words::stem_words(words).into_iter().collect()
}

static PROPERTY_STEMS: LazyLock<BTreeSet<String>> = LazyLock::new(|| stems(PROPERTY_WORDS));
static QUALIFIER_STEMS: LazyLock<BTreeSet<String>> = LazyLock::new(|| stems(QUALIFIER_WORDS));
static ID_STEMS: LazyLock<BTreeSet<String>> = LazyLock::new(|| stems(ID_WORDS));
static WRAPPER_STEMS: LazyLock<BTreeSet<String>> = LazyLock::new(|| stems(WRAPPER_WORDS));
static COMMON_STEMS: LazyLock<BTreeSet<String>> = LazyLock::new(|| stems(COMMON_WORDS));
static VERB_STEMS: LazyLock<BTreeSet<String>> = LazyLock::new(|| stems(READING_VERBS));

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The names agree, and so do the things to which the fields belong.
    Exact,
    /// The descriptions are the same, or only one of the two fields has a format.
    Described,
    /// The names agree, but the fields may belong to different things: the `city` of a customer and
    /// the `city` of a forecast. An id never fits in this way.
    Near,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    Text,
    Integer,
    Number,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) fit: Fit,
    text: String,
}

#[derive(Clone, Debug)]
pub struct Field {
    /// The name of a parameter, or the path of an output.
    pub path: String,
    /// The stems of the words that name the field: its name, its name with the thing that it
    /// belongs to, and its title.
    pub names: Vec<Vec<String>>,
    pub shape: Shape,
    pub is_required: bool,
    pub description: String,
    pub(super) keys: Vec<Key>,
    /// The format, or the allowed values. Empty if the field has neither.
    pub(super) form: String,
}

impl Field {
    /// Returns whether both fields have the same type, not only the same name.
    pub fn is_same_type(&self, other: &Self) -> bool {
        let is_sure = |key: &&Key| key.fit != Fit::Near;
        self.keys.iter().filter(is_sure).any(|key| other.keys.contains(key))
    }

    pub fn is_id(&self) -> bool {
        self.names.first().and_then(|name| name.last()).is_some_and(|last| is_id(last))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ValueForm<'a> {
    pub(super) shape: Shape,
    pub(super) form: &'a str,
}

pub(super) fn fit_of(key: &Key, value: ValueForm<'_>, to: &Field) -> Option<Fit> {
    let ValueForm { shape, form } = value;
    let is_shape = shape == to.shape || shape == Shape::Integer && to.shape == Shape::Number;
    let is_choice = to.form.starts_with('|');
    match (form == to.form, form.is_empty() || to.form.is_empty()) {
        _ if !is_shape => None,
        (true, _) => Some(key.fit),
        // If only one of the two has a form, the value may fit. Allowed values must be the same.
        (false, true) if !is_choice => Some(key.fit.max(Fit::Described)),
        _ => None,
    }
}

fn is_id(stem: &str) -> bool {
    ID_STEMS.contains(stem)
}

pub(super) fn has_caution(description: &str) -> bool {
    let lower = description.to_lowercase();
    CAUTION_WORDS.iter().any(|caution| lower.contains(caution))
}

/// The thing that a tool or an output object is about, as the stems of the words in its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Owner(Vec<String>);

impl Owner {
    pub(super) fn of_tool(name: &str) -> Self {
        let name = name.rsplit('.').next().unwrap_or_default();
        let mut all = words::split_words(name);
        let is_verb = |word: &String| {
            words::stem_words(word).first().is_some_and(|stem| VERB_STEMS.contains(stem))
        };
        if all.first().is_some_and(is_verb) {
            all.remove(0);
        } else if all.last().is_some_and(is_verb) {
            all.pop();
        }
        let end = all.iter().position(|word| END_WORDS.contains(&word.as_str()));
        all.truncate(end.unwrap_or(all.len()));
        Self(words::stem_words(&all.join(" ")))
    }

    /// Returns the word that may begin names of the thing's properties: `order` of `order_status`.
    pub(super) fn subject(&self) -> Option<&str> {
        let first = self.0.first()?;
        (!PROPERTY_STEMS.contains(first)).then_some(first)
    }

    fn identified(&self, description: &str) -> Option<Vec<String>> {
        if self.0.len() <= 1 {
            return Some(self.0.clone());
        }
        let description_words = words::stem_words(description);
        let named_words: Vec<String> =
            self.0.iter().filter(|word| description_words.contains(word)).cloned().collect();
        (!named_words.is_empty()).then_some(named_words)
    }
}

pub(super) fn inputs_of(
    schema: &Value,
    owner: &Owner,
    subjects: &BTreeSet<String>,
) -> (Vec<Field>, bool) {
    let required = schema["required"].as_array();
    let is_required = |name: &String| required.is_some_and(|all| all.iter().any(|one| one == name));
    let mut fields = Vec::new();
    let mut has_all = true;
    for (name, described) in schema["properties"].as_object().into_iter().flatten() {
        let field = read_field(name, described, schema, owner, subjects);
        has_all &= field.is_some() || !is_required(name);
        let is_required = is_required(name);
        fields.extend(field.map(|field| Field { path: name.clone(), is_required, ..field }));
    }
    (fields, has_all)
}

/// Returns the outputs of a tool that are texts or numbers, including those inside objects. A list
/// has no outputs.
pub(super) fn outputs_of(schema: &Value, owner: &Owner, subjects: &BTreeSet<String>) -> Vec<Field> {
    let mut fields = Vec::new();
    let top = OutputObject { schema, path: String::new(), owner: owner.clone() };
    let mut open = vec![(top, MAX_LEVELS)];
    while let Some((place, levels)) = open.pop() {
        let object = resolve(place.schema, schema);
        for (name, described) in object["properties"].as_object().into_iter().flatten() {
            let dot = if place.path.is_empty() { "" } else { "." };
            let path = format!("{}{dot}{name}", place.path);
            if let Some(field) = read_field(name, described, schema, &place.owner, subjects) {
                fields.push(Field { path, ..field });
            } else if resolve(described, schema)["properties"].is_object() && levels > 1 {
                let name_words = words::stem_words(name);
                let is_wrapper = name_words.iter().all(|word| WRAPPER_STEMS.contains(word));
                let owner = if is_wrapper { place.owner.clone() } else { Owner(name_words) };
                open.push((OutputObject { schema: described, path, owner }, levels - 1));
            }
        }
    }
    fields.sort_by(|a, b| a.path.cmp(&b.path));
    fields
}

struct OutputObject<'a> {
    schema: &'a Value,
    path: String,
    owner: Owner,
}

fn read_field(
    name: &str,
    described: &Value,
    root: &Value,
    owner: &Owner,
    subjects: &BTreeSet<String>,
) -> Option<Field> {
    let schema = resolve(described, root);
    let shape = shape_of(schema)?;
    let description = [described, schema].iter().find_map(|from| from["description"].as_str());
    let description = description.unwrap_or_default().to_owned();
    let name_words = words::stem_words(name);
    let whole = whole_name(&name_words, &description, owner, subjects);
    let mut keys = Vec::new();
    let key = |fit, text: String| Key { fit, text };
    keys.extend(whole.as_ref().map(|whole| key(Fit::Exact, whole.join(" "))));
    keys.extend(comparable_description(&description).map(|text| key(Fit::Described, text)));
    let is_property =
        |word: &String| PROPERTY_STEMS.contains(word) || QUALIFIER_STEMS.contains(word);
    let is_telling =
        !name_words.first().is_none_or(is_property) && !name_words.iter().any(|word| is_id(word));
    keys.extend(is_telling.then(|| key(Fit::Near, name_words.join(" "))));
    let mut names: Vec<Vec<String>> = whole.into_iter().collect();
    let title = described["title"].as_str().or(schema["title"].as_str()).map(words::stem_words);
    names.extend(title.into_iter().chain([name_words]).filter(|words| !words.is_empty()));
    names.dedup();
    let (form, path) = (form_of(schema), name.to_owned());
    Some(Field { path, names, shape, is_required: false, description, keys, form })
}

fn whole_name(
    name_words: &[String],
    description: &str,
    owner: &Owner,
    subjects: &BTreeSet<String>,
) -> Option<Vec<String>> {
    let (first, last) = (name_words.first()?, name_words.last()?);
    // For example, `phone_number` names a property, and `category_id` names a thing.
    let is_thing = !PROPERTY_STEMS.contains(first) || last == "id" && !is_id(first);
    let is_whole = name_words.len() > 1
        && is_thing
        && !QUALIFIER_STEMS.contains(first)
        && (is_id(last) || subjects.contains(first));
    if is_whole {
        return Some(name_words.to_vec());
    }
    let owner = if is_id(last) { owner.identified(description)? } else { owner.0.clone() };
    // `status` and `order_status` of an order are the same property.
    let shared = (0..=owner.len().min(name_words.len()))
        .rev()
        .find(|count| owner.ends_with(&name_words[..*count]))
        .unwrap_or_default();
    (!owner.is_empty()).then(|| owner.iter().chain(&name_words[shared..]).cloned().collect())
}

/// Returns the stemmed words of a description, for comparison with other descriptions. Returns
/// `None` if too few of the words describe the value.
fn comparable_description(description: &str) -> Option<String> {
    let words = words::stem_words(description);
    let telling: BTreeSet<&String> =
        words.iter().filter(|word| !COMMON_STEMS.contains(*word)).collect();
    (telling.len() >= MIN_TELLING_WORDS).then(|| words.join(" "))
}

fn shape_of(schema: &Value) -> Option<Shape> {
    let types = schema["type"].as_array();
    let of_union = || types?.iter().find(|kind| *kind != "null")?.as_str();
    match schema["type"].as_str().or_else(of_union)? {
        "string" => Some(Shape::Text),
        "integer" => Some(Shape::Integer),
        "number" => Some(Shape::Number),
        _ => None,
    }
}

/// Returns the format of a text. For an enumeration, returns the allowed values with `|` before
/// them.
fn form_of(schema: &Value) -> String {
    let Some(choices) = schema["enum"].as_array() else {
        return schema["format"].as_str().unwrap_or_default().to_owned();
    };
    let mut choices: Vec<String> = choices.iter().map(Value::to_string).collect();
    choices.sort();
    format!("|{}", choices.join("|"))
}

fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_REFERENCES {
        let target = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        let mut options = ["anyOf", "oneOf"]
            .iter()
            .filter_map(|key| schema[*key].as_array())
            .flatten()
            .filter(|option| option["type"] != "null");
        let only = options.next().filter(|_| options.next().is_none());
        let Some(next) = target.and_then(|path| root.pointer(path)).or(only) else { break };
        schema = next;
    }
    schema
}
