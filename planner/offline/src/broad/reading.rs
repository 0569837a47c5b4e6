//! What one call is told, and how sure that is.

use serde_json::{Map, Value};

use super::super::{
    assign::Given,
    fit::{self, Text},
    memory::{Entity, Memory, Mention},
    property::Role,
    slot::Slot,
};

/// How sure what nobody said is.
const ASSUMED: f32 = 0.5;

/// What one call is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    /// Its parameters.
    pub(crate) parameters: Map<String, Value>,
    /// How sure each is.
    pub(crate) sure: Vec<(String, f32)>,
    /// What nobody said but the tool does for itself.
    pub(crate) assumed: Vec<String>,
    /// The slots that must be filled and are not.
    pub(crate) missing: Vec<usize>,
    /// The words that were used, each as its first token and the one behind its last.
    pub(crate) used: Vec<(usize, usize)>,
    /// How sure all of it is.
    pub(crate) confidence: f32,
}

/// Reads the parameters out of what was given.
pub(super) fn reading(text: &Text<'_>, given: &Given) -> Reading {
    let mut all = Reading { confidence: 1.0, ..Reading::default() };
    for (at, slot) in text.frame.slots.iter().enumerate() {
        let found =
            given.get(&at).and_then(|(span, fit)| Some((text.value(at, *span)?, fit.score)));
        let name = slot.path.join(".");
        if let Some((value, score)) = found {
            let sure = sureness(score);
            all.used.extend(given.get(&at).map(|it| (text.spans[it.0].from, text.spans[it.0].to)));
            put(&mut all.parameters, &slot.path, value);
            all.sure.push((name, sure));
            if slot.property.is_required {
                all.confidence = all.confidence.min(sure);
            }
        } else if let Some(value) = text.unsaid(slot) {
            put(&mut all.parameters, &slot.path, value);
            if slot.property.role != Role::Bool || text.flag(slot).is_none() {
                all.assumed.push(name);
                all.confidence = all.confidence.min(ASSUMED);
            } else {
                all.sure.push((name, 0.7));
            }
        } else if slot.property.is_required {
            all.missing.push(at);
        }
    }
    all
}

/// Returns how sure a fit is, between nothing and one.
fn sureness(score: f32) -> f32 {
    let sure = 1.0 - (-(score + 1.0) / (fit::SURE + 0.6)).exp();
    (sure.clamp(0.05, 0.98) * 100.0).round() / 100.0
}

fn put(parameters: &mut Map<String, Value>, path: &[String], value: Value) {
    let Some((last, above)) = path.split_last() else { return };
    let mut inside = parameters;
    for name in above {
        let next = inside.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(fields) = next else { return };
        inside = fields;
    }
    inside.insert(last.clone(), value);
}

/// Fills what is missing with what was said for the call before.
pub(crate) fn inherit(reading: &mut Reading, before: &Reading, slots: &[Slot]) {
    reading.missing.retain(|at| {
        let slot = &slots[*at];
        let pointer = format!("/{}", slot.path.join("/"));
        let known = Value::Object(before.parameters.clone()).pointer(&pointer).cloned();
        let Some(value) = known else { return true };
        put(&mut reading.parameters, &slot.path, value);
        let name = slot.path.join(".");
        let sure = before.sure.iter().find(|it| it.0 == name).map_or(ASSUMED, |it| it.1);
        reading.confidence = reading.confidence.min(sure);
        reading.sure.push((name, sure));
        false
    });
}

/// Fills what is missing with what an earlier step gives, where the words point back.
pub(crate) fn recall(reading: &mut Reading, slots: &[Slot], memory: &Memory) {
    reading.missing.retain(|at| {
        let slot = &slots[*at];
        let pointed = Mention { is_pointed: true, ..Mention::default() };
        let value = if slot.property.role == Role::Id {
            memory
                .resolve(&pointed, slot.property.noun.as_deref())
                .ok()
                .and_then(Entity::id_template)
        } else {
            memory.result().map(|it| Value::String(it.result.clone()))
        };
        match value {
            Some(value) => {
                put(&mut reading.parameters, &slot.path, value);
                reading.sure.push((slot.path.join("."), 0.6));
                false
            }
            None => true,
        }
    });
}
