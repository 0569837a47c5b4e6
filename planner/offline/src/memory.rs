//! What earlier clauses made, and which of it a word means.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    profile::{Profile, has_underscore_ids},
    property,
    token::Token,
    words::{self, Family},
};

/// Words of a name by which something is known again.
const NAME: usize = 16;

/// Something that an earlier step gives.
#[derive(Clone, Debug)]
pub(super) struct Entity {
    /// The step's id, for templates.
    pub(super) step: String,
    /// The stems by which it is known: `blog`, `post`.
    pub(super) nouns: Vec<String>,
    /// The same, from its tool's name only.
    pub(super) own_nouns: Vec<String>,
    /// What it is called, as it was written.
    pub(super) name: Option<String>,
    /// The steps that it refers to.
    pub(super) links: Vec<String>,
    /// Where its identifier is in the step's output, if it is a thing.
    pub(super) id_path: Option<String>,
    /// The whole template of the value that a computation gave.
    pub(super) result: String,
}

impl Entity {
    /// Returns the template of its identifier.
    pub(super) fn id_template(&self) -> Option<Value> {
        let path = self.id_path.as_ref()?;
        Some(Value::String(format!("{{{{{}.{path}}}}}", self.step)))
    }

    fn is_called(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.name.as_deref().is_some_and(|own| calls(own).contains(&name))
    }
}

/// Returns what something is called, in lower case: all of its name, and the first word of it.
fn calls(name: &str) -> Vec<String> {
    let lower = name.to_lowercase();
    let first = lower.split_whitespace().next().map(str::to_owned);
    first.into_iter().filter(|it| *it != lower).chain([lower.clone()]).collect()
}

/// Why a mention means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// Nothing of that kind was made before.
    Nothing,
    /// Several things fit.
    Many(Vec<String>),
}

/// What a clause says about a thing that exists.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Mention {
    /// What kind of thing, as a stem.
    pub(super) noun: Option<String>,
    /// What it is called.
    pub(super) name: Option<String>,
    /// Its identifier, as it was written.
    pub(super) literal: Option<String>,
    /// Who or what it belongs to, by name.
    pub(super) owner: Option<String>,
    /// Whether it was spoken of just now: `it`, `that blog`.
    pub(super) is_pointed: bool,
}

/// What earlier clauses made, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    entities: Vec<Entity>,
    /// The latest thing that is called something, in lower case.
    names: BTreeMap<String, usize>,
    /// The words of the longest name.
    longest: usize,
    /// The parameters of the latest step.
    said: serde_json::Map<String, Value>,
    has_underscore_ids: bool,
}

impl Memory {
    /// Makes a memory for a catalog's tools.
    pub(super) fn new(tools: &[Profile]) -> Self {
        Self {
            entities: Vec::new(),
            names: BTreeMap::new(),
            longest: 0,
            said: serde_json::Map::new(),
            has_underscore_ids: has_underscore_ids(tools),
        }
    }

    /// Remembers what a step gives.
    pub(super) fn remember(
        &mut self,
        profile: &Profile,
        step: &str,
        name: Option<String>,
        links: Vec<String>,
    ) {
        if profile.family == Some(Family::Delete) {
            return;
        }
        let schema = profile.tool.output_schema.as_ref();
        let id_path = profile.gives_a_thing().then(|| {
            let by_schema = schema.and_then(|it| property::id_path(it, profile.noun()));
            by_schema
                .unwrap_or_else(|| if self.has_underscore_ids { "_id" } else { "id" }.to_owned())
        });
        // What is looked at or changed is the thing itself, not another one.
        let is_known = profile.family != Some(Family::Create)
            && !profile.nouns.is_empty()
            && links.iter().any(|it| {
                self.entities
                    .iter()
                    .any(|known| known.step == *it && known.own_nouns == profile.nouns)
            });
        if is_known {
            return;
        }
        let result = match schema.and_then(property::value_path) {
            Some(path) => format!("{{{{{step}.{path}}}}}"),
            None => format!("{{{{{step}}}}}"),
        };
        let nouns = profile.nouns.iter().cloned().chain(profile.head.iter().cloned()).collect();
        if let Some(name) = &name {
            self.longest = self.longest.max(name.split_whitespace().count());
            if id_path.is_some() {
                self.names.extend(calls(name).into_iter().map(|it| (it, self.entities.len())));
            }
        }
        self.entities.push(Entity {
            step: step.to_owned(),
            nouns,
            own_nouns: profile.nouns.clone(),
            name,
            links,
            id_path,
            result,
        });
    }

    /// Returns the steps whose identifiers or results are among `values`.
    pub(super) fn steps_in<'v>(&self, values: impl Iterator<Item = &'v Value>) -> Vec<String> {
        let said: Vec<&str> = values.filter_map(Value::as_str).collect();
        let is_used = |it: &&Entity| {
            said.contains(&it.result.as_str())
                || it
                    .id_template()
                    .as_ref()
                    .and_then(Value::as_str)
                    .is_some_and(|it| said.contains(&it))
        };
        self.entities.iter().filter(is_used).map(|it| it.step.clone()).collect()
    }

    /// Returns the thing that a step gives.
    pub(super) fn of_step(&self, step: &str) -> Option<&Entity> {
        self.entities.iter().find(|it| it.step == step)
    }

    /// Remembers what a step was told.
    pub(super) fn hear(&mut self, parameters: &serde_json::Map<String, Value>) {
        self.said.clone_from(parameters);
    }

    /// Returns what the latest step was told as a parameter of this name.
    pub(super) fn said(&self, parameter: &str) -> Option<&Value> {
        self.said.get(parameter)
    }

    /// Returns the value that the latest computation gave.
    pub(super) fn result(&self) -> Option<&Entity> {
        self.entities.last()
    }

    /// Returns the latest thing with an identity.
    pub(super) fn latest(&self) -> Option<&Entity> {
        self.entities.iter().rev().find(|it| it.id_path.is_some())
    }

    /// Returns the things, the latest first.
    pub(super) fn things_latest_first(&self) -> impl Iterator<Item = &Entity> {
        self.entities.iter().rev().filter(|it| it.id_path.is_some())
    }

    /// Returns the thing that has this name.
    pub(super) fn called(&self, name: &str) -> Option<&Entity> {
        self.names.get(&name.to_lowercase()).map(|at| &self.entities[*at])
    }

    /// Returns whether anything of a kind was made.
    pub(super) fn has(&self, noun: &str) -> bool {
        !self.of(noun).is_empty()
    }

    /// Returns the longest name of a known thing that begins at `tokens`, and how many they are.
    pub(super) fn name_at(&self, tokens: &[Token]) -> Option<(String, usize)> {
        let longest = self.longest.min(tokens.len()).min(NAME);
        (1..=longest).rev().find_map(|len| {
            let said = &tokens[..len];
            let (last, init) = said.split_last()?;
            let mut name = String::new();
            for token in init {
                name.push_str(&token.value);
                name.push(' ');
            }
            [last.value.as_str(), last.without_possessive()].iter().find_map(|last| {
                let name = format!("{name}{last}");
                self.called(&name).map(|_| (name, len))
            })
        })
    }

    /// Returns what a mention means, for a parameter that identifies a `noun`.
    pub(super) fn resolve(
        &self,
        mention: &Mention,
        noun: Option<&str>,
    ) -> Result<&Entity, Unresolved> {
        let noun = noun.or(mention.noun.as_deref());
        let mut fitting = noun.map_or_else(|| self.things(), |it| self.of(it));
        if let Some(name) = &mention.name {
            fitting.retain(|it| it.is_called(name));
        }
        if let Some(owner) = mention.owner.as_deref().and_then(|it| self.called(it)) {
            fitting.retain(|it| it.links.contains(&owner.step));
        }
        match fitting.as_slice() {
            [] => Err(Unresolved::Nothing),
            [one] => Ok(one),
            [.., last] if mention.is_pointed || mention.name.is_some() => Ok(last),
            many => Err(Unresolved::Many(many.iter().map(|it| it.label()).collect())),
        }
    }

    fn things(&self) -> Vec<&Entity> {
        self.entities.iter().filter(|it| it.id_path.is_some()).collect()
    }

    /// Returns the things of a kind: by their tools' names, else by what those tools say.
    fn of(&self, noun: &str) -> Vec<&Entity> {
        let mut own = self.things();
        own.retain(|it| it.own_nouns.iter().any(|it| it == noun));
        if own.is_empty() {
            own = self.things();
            own.retain(|it| it.nouns.iter().any(|it| it == noun));
        }
        own
    }
}

impl Entity {
    fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.step.clone())
    }
}

/// Returns whether a stem is a word for a kind of person, so that `by` and `her` may mean one.
pub(super) fn is_person(stem: &str) -> bool {
    [
        "author", "user", "owner", "creator", "person", "customer", "member", "employee", "writer",
        "contact", "client", "student", "teacher", "artist", "editor", "sender", "account",
        "player", "assignee", "patient",
    ]
    .iter()
    .any(|it| words::stem(it) == stem)
}
