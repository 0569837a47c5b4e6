//! The types that words name: `shipment id`, `the current refund status`. A type has the words of
//! all its fields, because tools call one thing by several names.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ChainGraph,
    field::{Field, Fit, Key},
};
use crate::select::words;

/// The points of any word of a name, besides the points for a rare word.
const WORD_POINTS: f64 = 2.0;
/// Factor for the points of a word that only the description has.
const DESCRIBED_WORD_FACTOR: f64 = 0.4;
/// Additional points for each word of the longest name of several words that the text contains as a
/// whole.
const WHOLE_NAME_POINTS: f64 = 1.0;
/// Additional points for an id, because people name the id of a thing more often than its status.
const ID_POINTS: f64 = 0.5;
/// Factor by which the points of the best type must exceed the points of any other type.
const MIN_LEAD_FACTOR: f64 = 1.05;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub tool: usize,
    pub at: usize,
    pub is_input: bool,
}

#[derive(Clone, Debug, Default)]
struct ValueType {
    places: Vec<Place>,
    names: BTreeSet<Vec<String>>,
    words: BTreeSet<String>,
    described: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Vocabulary {
    types: Vec<ValueType>,
    /// By word: the number of types that have it in a name or a description.
    counts: BTreeMap<String, usize>,
}

#[derive(Clone, Debug)]
pub struct NamedType<'a> {
    pub places: &'a [Place],
    pub words: Vec<usize>,
    pub points: f64,
    /// `true` if the words contain a whole name, or two words of the type.
    pub is_whole: bool,
    pub is_identified: bool,
}

impl ChainGraph {
    pub fn vocabulary(&self) -> Vocabulary {
        let mut types = self.group_fields();
        for kind in &mut types {
            for place in &kind.places {
                let field = self.field(*place);
                kind.names.extend(field.names.iter().cloned());
                let about = field.description.split(". ").next().unwrap_or_default();
                kind.described.extend(words::stem_words(about));
            }
            kind.words = kind.names.iter().flatten().cloned().collect();
        }
        let mut counts = BTreeMap::new();
        for kind in &types {
            for word in kind.words.union(&kind.described) {
                *counts.entry(word.clone()).or_default() += 1;
            }
        }
        Vocabulary { types, counts }
    }

    pub fn field(&self, place: Place) -> &Field {
        let tool = &self.tools[place.tool];
        if place.is_input { &tool.inputs[place.at] } else { &tool.outputs[place.at] }
    }

    fn group_fields(&self) -> Vec<ValueType> {
        let mut types: Vec<ValueType> = Vec::new();
        let mut type_by_key: BTreeMap<&Key, usize> = BTreeMap::new();
        let tools = self.tools.iter().enumerate().filter(|(_, tool)| tool.can_link);
        let places = tools.flat_map(|(tool, chain_tool)| {
            let inputs = (0..chain_tool.inputs.len()).map(move |index| Place {
                tool,
                at: index,
                is_input: true,
            });
            let outputs = (0..chain_tool.outputs.len()).map(move |index| Place {
                tool,
                at: index,
                is_input: false,
            });
            inputs.chain(outputs)
        });
        for place in places {
            let is_sure = |key: &&Key| key.fit != Fit::Near;
            let keys = || self.field(place).keys.iter().filter(is_sure);
            let Some(first) = keys().find_map(|key| type_by_key.get(key).copied()).or_else(|| {
                keys().next().map(|_| {
                    types.push(ValueType::default());
                    types.len() - 1
                })
            }) else {
                continue;
            };
            types[first].places.push(place);
            for key in keys() {
                let other = *type_by_key.entry(key).or_insert(first);
                if other != first {
                    // Merges the two groups of fields, because this field belongs to both.
                    let moved = std::mem::take(&mut types[other].places);
                    types[first].places.extend(moved);
                    type_by_key.values_mut().filter(|group| **group == other).for_each(|group| {
                        *group = first;
                    });
                }
            }
        }
        types.retain(|kind| !kind.places.is_empty());
        for kind in &mut types {
            kind.places.sort_unstable();
        }
        types
    }
}

impl Vocabulary {
    /// Returns the type that a piece of a sentence names. Returns `None` if another type fits about
    /// as well. `accepts` must be `true` for the fields of the type.
    pub fn find(
        &self,
        query_words: &[&str],
        accepts: impl Fn(&[Place]) -> bool,
    ) -> Option<NamedType<'_>> {
        let mut best: Option<(f64, usize)> = None;
        let mut second = 0.0;
        for (index, kind) in self.types.iter().enumerate() {
            let points =
                self.points(kind, query_words) + if kind.is_id() { ID_POINTS } else { 0.0 };
            if best.is_none_or(|(best_points, _)| points > best_points) {
                second = best.map_or(0.0, |(best_points, _)| best_points);
                best = Some((points, index));
            } else if points > second {
                second = points;
            }
        }
        let (points, index) = best.filter(|(points, _)| *points > second * MIN_LEAD_FACTOR)?;
        let kind = &self.types[index];
        let has_word = |index: &usize| kind.words.contains(query_words[*index]);
        let words: Vec<usize> = (0..query_words.len()).filter(has_word).collect();
        let has_name = kind.names.iter().any(|name| has_piece(query_words, name));
        let is_whole = has_name || words.len() > 1;
        let thing =
            |name: &Vec<String>| name.iter().filter(|word| *word != "id").cloned().collect();
        let things: Vec<Vec<String>> = kind.names.iter().map(thing).collect();
        let is_identified = things.iter().any(|thing| has_piece(query_words, thing));
        let named = NamedType { places: &kind.places, words, points, is_whole, is_identified };
        (!named.words.is_empty() && accepts(&kind.places)).then_some(named)
    }

    fn points(&self, kind: &ValueType, query_words: &[&str]) -> f64 {
        let distinct: BTreeSet<&str> = query_words.iter().copied().collect();
        let words = distinct.into_iter().map(|word| {
            let share = match (kind.words.contains(word), kind.described.contains(word)) {
                (true, _) => 1.0,
                (false, true) => DESCRIBED_WORD_FACTOR,
                _ => 0.0,
            };
            share * (WORD_POINTS + self.rarity(word))
        });
        let pieces =
            kind.names.iter().filter(|name| name.len() > 1 && has_piece(query_words, name));
        let piece = pieces.map(Vec::len).max().unwrap_or_default();
        words.sum::<f64>() + WHOLE_NAME_POINTS * to_f64(piece)
    }

    fn rarity(&self, word: &str) -> f64 {
        let count = self.counts.get(word).copied().unwrap_or_default();
        ((to_f64(self.types.len()) + 1.0) / (to_f64(count) + 0.5)).ln().max(0.0)
    }
}

impl ValueType {
    fn is_id(&self) -> bool {
        self.words.contains("id")
    }
}

fn has_piece(words: &[&str], name: &[String]) -> bool {
    !name.is_empty() && words.windows(name.len()).any(|piece| piece == name)
}

fn to_f64(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}
