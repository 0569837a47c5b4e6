//! A tool as what it takes: its parameters, those inside objects too, each with all that its name,
//! schema and description say about the words that may fill it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use shared::tool::{Effect, ToolDefinition};

use super::{
    describe::{self, Described},
    property::{Property, Role},
    unit::{self, Dimension, Unit},
    words,
};

/// Slots of a tool that are read.
const SLOTS: usize = 96;
/// Words that many parameters have in their names, so that they tell little.
const COMMON: &[&str] = &[
    "name",
    "type",
    "number",
    "value",
    "id",
    "list",
    "get",
    "is",
    "has",
    "include",
    "specific",
    "format",
    "data",
    "num",
    "info",
    "information",
    "the",
    "of",
    "to",
    "if",
    "whether",
    "string",
    "first",
    "second",
    "new",
];

/// What kind of thing a text for a slot is.
#[expect(clippy::struct_excessive_bools, reason = "a parameter may be several of these at once")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    /// A place.
    pub(super) is_place: bool,
    /// A place that is said together with the one around it: `New York, NY`.
    pub(super) is_wide: bool,
    /// Somebody.
    pub(super) is_person: bool,
    /// A day.
    pub(super) is_day: bool,
    /// A time of day.
    pub(super) is_time: bool,
    /// Letters and digits that identify something.
    pub(super) is_code: bool,
    /// Something to compute.
    pub(super) is_formula: bool,
    /// A year.
    pub(super) is_year: bool,
}

/// A parameter, perhaps inside an object.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// The names that lead to it.
    pub(super) path: Vec<String>,
    /// The stems of its names.
    pub(super) words: BTreeSet<String>,
    /// What its description says.
    pub(super) said: Described,
    /// What its schema says.
    pub(super) property: Property,
    /// Its place among parameters that differ by it: two for `num2`.
    pub(super) place: Option<u32>,
    /// What kind of thing it takes.
    pub(super) traits: Traits,
    /// What a number for it measures.
    pub(super) measures: Option<Dimension>,
    /// The unit in which it wants a number, by its description or its name.
    pub(super) unit: Option<&'static Unit>,
}

impl Slot {
    fn read(property: &Property, above: &[String]) -> Self {
        let mut path = above.to_vec();
        path.push(property.name.clone());
        let mut place = None;
        let parts: Vec<String> = path
            .iter()
            .flat_map(|it| words::split_identifier(it))
            .map(|it| {
                let plain = it.trim_end_matches(|it: char| it.is_ascii_digit());
                if plain.len() < it.len() && !plain.is_empty() {
                    place = place.or_else(|| it[plain.len()..].parse().ok());
                    plain.to_owned()
                } else {
                    it
                }
            })
            .collect();
        let said = Described::read(&property.description);
        let ordinal = |text: &str| {
            ["first", "second", "third", "fourth"].iter().position(|it| text.contains(it))
        };
        let place = place
            .or_else(|| ordinal(&property.description).and_then(|it| u32::try_from(it + 1).ok()));
        let words = parts.iter().map(|it| words::stem(it)).collect();
        let measures = said
            .unit
            .map(|it| it.dimension)
            .or_else(|| {
                parts
                    .iter()
                    .find_map(|it| unit::find(it).filter(|_| it.len() > 1))
                    .map(|it| it.dimension)
            })
            .or_else(|| parts.iter().rev().find_map(|it| unit::measured(it)));
        let traits = traits(&parts, &said, property);
        let unit = said.unit.or_else(|| unit::named(parts.last()?));
        Self { unit, path, words, said, property: property.clone(), place, traits, measures }
    }

    /// Returns whether several values go into it.
    pub(super) fn is_list(&self) -> bool {
        self.property.role == Role::List
    }

    /// Returns what kind of words fill it, or one item of it.
    pub(super) fn role(&self) -> Role {
        if self.is_list() { self.property.item } else { self.property.role }
    }

    /// Returns whether a word is one of its name, or begins as one does: `standardization` says
    /// `standardize`.
    pub(super) fn is_named_by(&self, stem: &str) -> bool {
        let is_near = |it: &String| it.len() > 4 && stem.len() > 4 && it.get(..5) == stem.get(..5);
        self.words.iter().any(|it| it == stem || is_near(it))
    }

    /// Returns whether it takes a number.
    pub(super) fn is_numeric(&self) -> bool {
        match self.role() {
            Role::Number | Role::Integer => true,
            Role::Id => self.property.is_number,
            _ => false,
        }
    }

    /// Returns the value that it has where nobody says one, by its schema or description.
    pub(super) fn default(&self) -> Option<Value> {
        if let Some(value) = &self.property.default {
            return Some(value.clone());
        }
        let text = self.said.default.as_deref()?;
        match self.property.role {
            Role::Bool => text.to_lowercase().parse().ok().map(Value::Bool),
            Role::Number | Role::Integer => super::token::number(text).map(Value::Number),
            Role::Enum => self
                .property
                .values
                .iter()
                .find(|it| it.as_str().is_some_and(|it| it.eq_ignore_ascii_case(text)))
                .cloned(),
            Role::List | Role::Other | Role::Id | Role::Email => None,
            _ => Some(super::value::literal(text)),
        }
    }
}

/// Names of parameters that take places.
const PLACES: &str = "location city place country state region area destination origin address county town loc \
                      departure arrival pickup venue neighborhood continent";
/// Names of parameters that take somebody.
const PEOPLE: &str = "author artist actor player director scientist person user customer composer painter \
                      character president leader owner recipient sender guest";
/// Names of parameters that take letters and digits.
const CODES: &str = "id code isbn sku symbol ticker zip zipcode";
/// Names of parameters that take days.
const DAYS: &str = "date day when dates checkin checkout";

fn traits(parts: &[String], said: &Described, property: &Property) -> Traits {
    let has = |them: &str| parts.iter().any(|it| them.split_whitespace().any(|one| one == it));
    let says = |them: &str| them.split_whitespace().any(|it| said.words.contains(&words::stem(it)));
    let last = parts.last().map_or("", String::as_str);
    let is_numeric = matches!(property.role, Role::Number | Role::Integer);
    let is_told_place = last != "name"
        && parts.len() < 3
        && says("city country location place")
        && !has("date time type unit category");
    let is_dated = has(DAYS) || said.form.is_some();
    let is_day = property.role == Role::Date || !is_numeric && is_dated;
    let is_around = says("city") && says("state country") && !has("city state country");
    let is_coded = has(CODES) || last == "number";
    Traits {
        is_place: !is_numeric && (has(PLACES) || is_told_place),
        is_wide: is_around || said.examples.iter().any(|it| it.contains(", ")),
        is_person: has(PEOPLE),
        is_day,
        is_time: !is_numeric && !is_day && has("time hour clock"),
        is_code: property.role == Role::Id || !is_numeric && is_coded,
        is_formula: has("function expression equation formula polynomial"),
        is_year: last == "year"
            || parts.first().is_some_and(|it| it == "year") && has("of built from to start end"),
    }
}

/// A tool as what it takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    /// What it takes, required first.
    pub(super) slots: Vec<Slot>,
    /// The stems of its name.
    pub(super) name: BTreeSet<String>,
    /// The stems of its description.
    pub(super) about: BTreeSet<String>,
    /// The stems of what its slots' descriptions say and show.
    pub(super) shown: BTreeSet<String>,
    /// Whether calling it changes nothing, so that what nobody said may be assumed.
    pub(super) is_read: bool,
    /// Whether calling it may do something that was not wanted.
    pub(super) acts: bool,
    /// How many slots have a word in their names or descriptions.
    shared: BTreeMap<String, u32>,
}

impl Frame {
    /// Reads a tool whose parameters are known.
    pub(super) fn read(tool: &ToolDefinition, properties: &[Property], acts: bool) -> Self {
        let mut slots = Vec::new();
        for property in properties {
            collect(property, &[], property.is_required, &mut slots);
        }
        slots.truncate(SLOTS);
        let mut shared = BTreeMap::new();
        for slot in &slots {
            for word in slot.words.union(&slot.said.words) {
                *shared.entry(word.clone()).or_default() += 1;
            }
        }
        let described = Described::read(&tool.description);
        let shown = slots.iter().flat_map(|it| it.said.stems()).cloned().collect();
        Self {
            slots,
            shown,
            is_read: tool.effect == Effect::Read,
            acts,
            name: describe::stems(tool.name.as_str()).into_iter().collect(),
            about: described.words,
            shared,
        }
    }

    /// Returns how much a word tells about one slot rather than another.
    pub(super) fn telling(&self, word: &str) -> f32 {
        let slots = self.shared.get(word).copied().unwrap_or(1).max(1);
        let share = if slots == 1 {
            1.0
        } else if slots == 2 {
            0.6
        } else {
            0.25
        };
        if COMMON.iter().any(|it| words::stem(it) == word) { share * 0.4 } else { share }
    }

    /// Returns whether a word says what the tool does, not what with.
    pub(super) fn is_own(&self, stem: &str) -> bool {
        self.name.contains(stem)
            || self.about.contains(stem)
            || self.slots.iter().any(|it| it.words.contains(stem))
    }

    /// Returns whether several values go into any slot.
    pub(super) fn has_list(&self) -> bool {
        self.slots.iter().any(Slot::is_list)
    }
}

fn collect(property: &Property, above: &[String], is_required: bool, slots: &mut Vec<Slot>) {
    if property.role != Role::Other || property.inside.is_empty() {
        let mut slot = Slot::read(property, above);
        slot.property.is_required = is_required;
        slots.push(slot);
        return;
    }
    let mut path = above.to_vec();
    path.push(property.name.clone());
    for inner in &property.inside {
        collect(inner, &path, is_required && inner.is_required, slots);
    }
}
