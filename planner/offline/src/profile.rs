//! What a tool's name, description and schema say in words: the only thing that choosing and
//! filling look at, so that nothing here knows any particular toolset.

mod looks;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use serde_json::Value;
use shared::tool::{Effect, ToolDefinition};

use super::{
    property::{self, Property, Role},
    slot::Frame,
    words::{self, Family},
};

/// Bytes of a description that are read: what matters comes first.
const DESCRIPTION_BYTES: usize = 1_024;
/// The sets that are always there: their tools are called by their own verbs, never on a guess.
const MACHINERY: &[&str] = &["flow", "ToolSet"];
/// Examples that are read.
const EXAMPLES: usize = 32;

/// A tool in words. All words are stems.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    /// The tool.
    pub(super) tool: Arc<ToolDefinition>,
    /// The name by which a draft calls it.
    pub(super) name: String,
    /// What its name or description asks for.
    pub(super) verbs: Vec<String>,
    /// What kind of thing it does, if it is one that many tools do.
    pub(super) family: Option<Family>,
    /// What it is about, by its name.
    pub(super) nouns: Vec<String>,
    /// What else its name mentions: `blog` in `listCommentsByBlog`.
    pub(super) others: Vec<String>,
    /// What it is about, by its description.
    pub(super) head: BTreeSet<String>,
    /// Everything else that it says.
    pub(super) about: BTreeSet<String>,
    /// Whether its verbs say that it only looks.
    looks: bool,
    /// The words that a parameter of it may be: `dog` is one of the species.
    pub(super) choices: BTreeSet<String>,
    /// The words of its examples.
    pub(super) examples: Vec<Vec<String>>,
    /// Its parameters: required ones first, as its schema lists them.
    pub(super) properties: Vec<Property>,
    /// What it takes, those inside objects too; read when first asked for.
    frame: OnceLock<Frame>,
}

impl Profile {
    /// Reads a tool.
    pub(super) fn read(tool: &Arc<ToolDefinition>, name: String) -> Self {
        let segments: Vec<Vec<String>> =
            tool.name.as_str().split(['.', '/', ':']).map(words::split_identifier).collect();
        let (last, before) = segments
            .split_last()
            .map_or((&[][..], &[][..]), |(last, before)| (last.as_slice(), before));
        let described = described_words(&tool.description);
        let named = Named::read(last, &described);
        let family = named
            .verbs
            .iter()
            .find_map(|it| words::families(it).first())
            .copied()
            .map(|family| plural_family(family, last));
        let others: Vec<String> = named
            .others
            .into_iter()
            .chain(before.iter().flatten().map(|it| words::stem(it)))
            .collect();
        let properties = property::read_all(&tool.input_schema);
        let about = described
            .iter()
            .map(|it| words::stem(it))
            .chain(properties.iter().flat_map(|it| it.words.clone()))
            .filter(|it| !words::is_idle(it))
            .collect();
        Self {
            tool: Arc::clone(tool),
            name,
            looks: looks::looks(&named.verbs, family, last, &tool.description),
            verbs: named.verbs,
            family,
            nouns: named.nouns,
            others,
            head: description_head(&tool.description),
            about,
            choices: choices(&properties),
            examples: examples(tool),
            frame: OnceLock::new(),
            properties,
        }
    }

    /// Returns whether a word names what the tool is about.
    pub(super) fn is_about(&self, stem: &str) -> bool {
        self.nouns.iter().any(|it| it == stem) || self.head.contains(stem)
    }

    /// Returns whether calling it changes nothing.
    pub(super) fn only_looks(&self) -> bool {
        self.tool.effect == Effect::Read || self.looks
    }

    /// Returns whether calling it may do something that was not wanted: it does not say that it only
    /// looks, and its name does not either.
    pub(super) fn acts(&self) -> bool {
        !self.only_looks()
    }

    /// Returns whether a word is one by which an order for it begins.
    pub(super) fn owns_verb(&self, stem: &str) -> bool {
        let is_near = |it: &String| it == stem || stem.len() > 3 && it.starts_with(stem);
        let of_family = |it: Family| words::families(stem).contains(&it);
        self.verbs.iter().any(|it| it == stem)
            || self.family.is_some_and(of_family)
            || self.nouns.iter().chain(&self.others).any(is_near)
            || self.examples.iter().any(|it| it.first().is_some_and(|it| it == stem))
    }

    /// Returns whether it is part of what carries plans out, not of what they are about.
    pub(super) fn is_machinery(&self) -> bool {
        MACHINERY.contains(&self.tool.set.as_str())
    }

    /// Returns whether what it makes is a thing with an identity, not a value.
    pub(super) fn gives_a_thing(&self) -> bool {
        !self.nouns.is_empty()
            && matches!(self.family, Some(Family::Create | Family::Get | Family::Update))
    }

    /// Returns whether a text may be assumed for it: only where something new is made.
    pub(super) fn may_assume(&self) -> bool {
        self.family == Some(Family::Create)
    }

    /// Returns what it takes, those inside objects too.
    pub(super) fn frame(&self) -> &Frame {
        self.frame.get_or_init(|| Frame::read(&self.tool, &self.properties, self.acts()))
    }

    /// Returns whether it must be told the identifier of something.
    pub(super) fn has_references(&self) -> bool {
        self.properties.iter().any(|it| it.role == Role::Id && it.is_required)
    }

    /// Returns the noun by which people know it.
    pub(super) fn noun(&self) -> Option<&str> {
        self.nouns.last().map(String::as_str)
    }

    /// Returns the parameter that identifies the very thing that the tool is about.
    pub(super) fn own_id(&self) -> Option<usize> {
        self.properties.iter().position(|it| {
            it.role == Role::Id
                && match &it.noun {
                    None => true,
                    Some(noun) => self.nouns.contains(noun),
                }
        })
    }
}

/// The words of a tool's name, sorted by what they do.
struct Named {
    verbs: Vec<String>,
    nouns: Vec<String>,
    others: Vec<String>,
}

impl Named {
    fn read(words_of_name: &[String], described: &[String]) -> Self {
        let stems: Vec<String> = words_of_name.iter().map(|it| words::stem(it)).collect();
        let split = words_of_name
            .iter()
            .skip(1)
            .position(|it| words::is_preposition(it))
            .map_or(stems.len(), |it| it + 1);
        let (main, others) = stems.split_at(split);
        let said = described.first().map(|it| words::stem(it));
        let known = main.iter().position(|it| !words::families(it).is_empty() && !is_question(it));
        let verb_at = match known {
            Some(at) => Some(at),
            None if main.len() == 1 => None,
            None => main.iter().position(|it| Some(it) == said.as_ref()).or(Some(0)),
        };
        let mut verbs: Vec<String> = match verb_at {
            Some(at) => main.get(at).cloned().into_iter().collect(),
            None => main.to_vec(),
        };
        if let Some(said) = said
            && !verbs.contains(&said)
            && !words::is_idle(&said)
        {
            verbs.push(said);
        }
        let nouns = main
            .iter()
            .enumerate()
            .filter(|(at, it)| Some(*at) != verb_at && (verb_at.is_some() || !is_verb(it, &verbs)))
            .map(|(_, it)| it.clone())
            .filter(|it| it != "al" && !words::is_determiner(it))
            .collect();
        let others = others.iter().filter(|it| !words::is_preposition(it)).cloned().collect();
        Self { verbs, nouns, others }
    }
}

fn is_question(stem: &str) -> bool {
    ["what", "which", "who", "how", "where", "when", "is", "are"]
        .iter()
        .any(|it| words::stem(it) == stem)
}

fn is_verb(stem: &str, verbs: &[String]) -> bool {
    verbs.iter().any(|it| it == stem)
}

/// Makes `getAuthors` a tool that lists.
fn plural_family(family: Family, name: &[String]) -> Family {
    let noun = name.iter().skip(1).take_while(|it| !words::is_preposition(it)).last();
    let is_many = noun.is_some_and(|it| words::is_plural(it)) || name.iter().any(|it| it == "all");
    if family == Family::Get && is_many { Family::List } else { family }
}

fn clipped(text: &str) -> &str {
    &text[..text.floor_char_boundary(DESCRIPTION_BYTES)]
}

fn described_words(description: &str) -> Vec<String> {
    clipped(description)
        .split(|it: char| !it.is_alphanumeric())
        .filter(|it| !it.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Returns what the first sentence is about: `Create a comment on a blog post` is about a comment.
fn description_head(description: &str) -> BTreeSet<String> {
    let sentence =
        clipped(description).split(['.', ',', ';', '(', '\n', ':']).next().unwrap_or_default();
    let mut words = sentence
        .split_whitespace()
        .map(str::to_lowercase)
        .skip_while(|it| words::is_determiner(it));
    words.next();
    words
        .skip_while(|it| words::is_preposition(it))
        .take_while(|it| !words::is_preposition(it) && it != "that" && it != "which")
        .filter(|it| !words::is_idle(it))
        .map(|it| words::stem(it.trim_matches(|it: char| !it.is_alphanumeric())))
        .filter(|it| it.len() > 1)
        .collect()
}

fn choices(properties: &[Property]) -> BTreeSet<String> {
    let values = properties.iter().flat_map(|it| &it.values).take(EXAMPLES);
    values.filter_map(Value::as_str).map(words::stem).collect()
}

fn examples(tool: &ToolDefinition) -> Vec<Vec<String>> {
    tool.examples
        .iter()
        .take(EXAMPLES)
        .map(|it| described_words(it).iter().map(|it| words::stem(it)).collect())
        .collect()
}

/// The words that a catalog's tools know.
#[derive(Clone, Debug, Default)]
pub(super) struct Vocabulary {
    /// What tools do.
    pub(super) verbs: BTreeSet<String>,
    /// What tools are about, by their names.
    pub(super) nouns: BTreeSet<String>,
    /// What tools are about, by their descriptions too.
    pub(super) things: BTreeSet<String>,
    /// What parameters are called.
    pub(super) cues: BTreeSet<String>,
    /// Which kinds of things a word of a description may mean: `post` a `blog`.
    pub(super) kinds: BTreeMap<String, BTreeSet<String>>,
    /// How many tools have a word; counted when first asked for.
    tools_with: OnceLock<BTreeMap<String, u32>>,
}

impl Vocabulary {
    /// Collects the words of tools.
    pub(super) fn of(profiles: &[Profile]) -> Self {
        let mut all = Self::default();
        for profile in profiles {
            all.verbs.extend(profile.verbs.iter().cloned());
            all.nouns.extend(profile.nouns.iter().cloned());
            all.things.extend(profile.nouns.iter().cloned());
            if profile.family.is_some() {
                all.things.extend(profile.head.iter().cloned());
            }
            if let Some(noun) = profile.noun().filter(|_| profile.gives_a_thing()) {
                for word in profile.head.iter().chain(&profile.nouns) {
                    all.kinds.entry(word.clone()).or_default().insert(noun.to_owned());
                }
            }
            let texts = profile.properties.iter().filter(|it| it.role != Role::Id);
            all.cues.extend(texts.filter(|it| it.words.len() == 1).flat_map(|it| it.words.clone()));
        }
        all
    }

    /// Returns how much a word tells about one of these tools rather than another.
    pub(super) fn rarity(&self, stem: &str, profiles: &[Profile]) -> f32 {
        let counted = self.tools_with.get_or_init(|| {
            let mut counted = BTreeMap::new();
            for frame in profiles.iter().map(Profile::frame) {
                let slots = frame.slots.iter().flat_map(|it| &it.words);
                let words: BTreeSet<&String> =
                    frame.name.iter().chain(&frame.about).chain(slots).collect();
                for word in words {
                    *counted.entry(word.clone()).or_default() += 1;
                }
            }
            counted
        });
        let as_f32 = |it: u32| f32::from(u16::try_from(it).unwrap_or(u16::MAX));
        let tools = u32::try_from(profiles.len()).unwrap_or(u32::MAX).max(1);
        let with = counted.get(stem).copied().unwrap_or(1).max(1);
        let is_everywhere = with > 1 && with == tools;
        let rarity = (0.25 + as_f32(tools) / as_f32(with)).ln_1p().min(4.0);
        rarity - if is_everywhere { 0.5 } else { 0.0 }
    }

    /// Returns whether a stem is something that a clause can ask for.
    pub(super) fn is_verb(&self, stem: &str) -> bool {
        self.verbs.contains(stem) || !words::families(stem).is_empty()
    }
}

/// Returns whether any tool says that things are identified by `_id`, as document stores do.
pub(super) fn has_underscore_ids(tools: &[Profile]) -> bool {
    tools.iter().any(|it| {
        mentions(&it.tool.input_schema, 0)
            || it.tool.output_schema.as_ref().is_some_and(|it| mentions(it, 0))
            || says_underscore_id(clipped(&it.tool.description))
    })
}

fn says_underscore_id(text: &str) -> bool {
    let lower = text.to_lowercase();
    lower.contains("objectid")
        || lower.split(|it: char| !it.is_alphanumeric() && it != '_').any(|it| it == "_id")
        || lower.contains("[0-9a-f]{24}")
        || lower.contains("[a-f0-9]{24}")
        || lower.contains("[0-9a-fa-f]{24}")
        || lower.contains("24 hex")
        || lower.contains("24-hex")
}

fn mentions(value: &Value, depth: usize) -> bool {
    match value {
        _ if depth > property::DEPTH => false,
        Value::String(text) => says_underscore_id(clipped(text)),
        Value::Array(items) => items.iter().any(|it| mentions(it, depth + 1)),
        Value::Object(fields) => {
            fields.iter().any(|(key, it)| key == "_id" || mentions(it, depth + 1))
        }
        _ => false,
    }
}
