//! Which span goes into which slot: the best together, each span once.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    fit::{Fit, Text},
    property::Role,
    slot::Slot,
    span::Said,
    words,
};

/// What a slot that must be filled is worth more.
const REQUIRED: f32 = 1.0;
/// What a slot that may stay empty needs.
const OPTIONAL: f32 = 2.6;
/// How much of that must come from words that announce it.
const ANNOUNCED: f32 = 1.1;
/// How much worse two spans may fit when they change places to stand in the order of the slots.
const ORDER: f32 = 0.35;
/// What a span needs for a slot, however little there is else.
const LEAST: f32 = -1.5;
/// How often spans may change places.
const ROUNDS: usize = 8;
/// Words of flags that say only that something is to be done.
const IDLE_FLAGS: &[&str] = &[
    "include", "is", "has", "get", "show", "return", "allow", "enable", "use", "want", "need",
    "only", "with", "flag", "should", "if", "option", "the", "for", "of", "require", "required",
    "enabled", "status", "in", "to",
];
/// Words that deny what follows them.
const DENIALS: &[&str] = &[
    "not",
    "no",
    "without",
    "don't",
    "doesn't",
    "exclude",
    "excluding",
    "isn't",
    "never",
    "non",
    "disable",
    "avoid",
    "except",
];

/// The spans that were given to slots.
pub(super) type Given = BTreeMap<usize, (usize, Fit)>;

impl Text<'_> {
    /// Gives spans to slots.
    pub(super) fn assign(&self) -> Given {
        let slots = &self.frame.slots;
        let mut options: Vec<(f32, usize, usize, Fit)> = Vec::new();
        for (slot, it) in slots.iter().enumerate() {
            for span in 0..self.spans.len() {
                let Some(fit) = self.fit(slot, span) else { continue };
                let is_wanted =
                    it.property.is_required || is_announced(it, fit, &self.spans[span].said);
                if is_wanted && fit.score > LEAST {
                    let bonus = if it.property.is_required { REQUIRED } else { 0.0 };
                    options.push((fit.score + bonus, slot, span, fit));
                }
            }
        }
        options.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.2, a.1).cmp(&(b.2, b.1))));
        let mut given = Given::new();
        for (_, slot, span, fit) in options {
            let is_used = given.values().any(|(it, _)| self.spans[*it].overlaps(&self.spans[span]));
            if !given.contains_key(&slot) && !is_used {
                given.insert(slot, (span, fit));
            }
        }
        self.satisfy(&mut given);
        self.reorder(&mut given);
        given
    }

    /// Lets slots that must be filled, and are not, have what others can do without: a span of a slot
    /// that may stay empty, or one whose slot has another that nobody took.
    fn satisfy(&self, given: &mut Given) {
        for slot in 0..self.frame.slots.len() {
            let it = &self.frame.slots[slot];
            if !it.property.is_required
                || it.property.role == Role::Bool
                || given.contains_key(&slot)
            {
                continue;
            }
            let moves = given.iter().filter_map(|(&from, &(span, _))| {
                let fit = self.fit(slot, span).filter(|it| it.score > LEAST)?;
                if !self.frame.slots[from].property.is_required {
                    return Some((fit.score, from, span, fit, None));
                }
                let other = self.best_left(from, given)?;
                Some((fit.score + other.1.score, from, span, fit, Some(other)))
            });
            let best = moves.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            if let Some((_, from, span, fit, other)) = best {
                given.remove(&from);
                given.extend(other.map(|it| (from, it)));
                given.insert(slot, (span, fit));
            }
        }
    }

    /// Returns the best span for a slot among those that are not given.
    fn best_left(&self, slot: usize, given: &Given) -> Option<(usize, Fit)> {
        let is_left = |span: &usize| {
            !given.values().any(|(it, _)| self.spans[*it].overlaps(&self.spans[*span]))
        };
        let fits = (0..self.spans.len())
            .filter(is_left)
            .filter_map(|span| Some((span, self.fit(slot, span)?)));
        fits.filter(|it| it.1.score > LEAST)
            .max_by(|a, b| a.1.score.total_cmp(&b.1.score).then(b.0.cmp(&a.0)))
    }

    /// Gives the only number that is left over to the only slot that is left for it, where that may
    /// be known: in one call of a tool that only looks.
    pub(super) fn complete(&self, given: &mut Given) {
        if self.frame.acts {
            return;
        }
        let left = (0..self.spans.len()).filter(|span| {
            let it = &self.spans[*span];
            let is_number = matches!(&it.said, Said::Number(it) if !it.is_ordinal && it.number.as_i64() != Some(1));
            is_number && !given.values().any(|(other, _)| self.spans[*other].overlaps(it))
        });
        let left: Vec<usize> = left.collect();
        let [span] = left.as_slice() else { return };
        let free = (0..self.frame.slots.len()).filter(|it| !given.contains_key(it));
        let fits = free.filter_map(|slot| {
            let it = &self.frame.slots[slot];
            let fit = self.fit(slot, *span).filter(|_| it.is_numeric() && !it.is_list())?;
            // A word such as `two` counts what is behind it, unless that is the slot's.
            let is_word = matches!(&self.spans[*span].said, Said::Number(it) if it.is_word);
            (!is_word || fit.cue > ANNOUNCED).then_some((slot, fit))
        });
        let fits: Vec<(usize, Fit)> = fits.collect();
        if let [(slot, fit)] = fits.as_slice()
            && fit.score > LEAST
        {
            given.insert(*slot, (*span, *fit));
        }
    }

    /// Lets spans change places where both fit as well, and the order of the slots says so.
    fn reorder(&self, given: &mut Given) {
        for _ in 0..ROUNDS {
            let slots: Vec<usize> = given.keys().copied().collect();
            let mut has_changed = false;
            for (place, &a) in slots.iter().enumerate() {
                for &b in &slots[place + 1..] {
                    let ((span_a, fit_a), (span_b, fit_b)) = (given[&a], given[&b]);
                    let (Some(new_a), Some(new_b)) = (self.fit(a, span_b), self.fit(b, span_a))
                    else {
                        continue;
                    };
                    let gain = new_a.score + new_b.score - fit_a.score - fit_b.score;
                    let is_disordered = self.spans[span_a].from > self.spans[span_b].from;
                    let gain =
                        if self.are_in_order(a, b) && is_disordered { gain + ORDER } else { gain };
                    if gain > if is_disordered { 0.001 } else { ORDER } {
                        given.insert(a, (span_b, new_a));
                        given.insert(b, (span_a, new_b));
                        has_changed = true;
                    }
                }
            }
            if !has_changed {
                return;
            }
        }
    }

    /// Returns whether two slots are said one after the other: the schema's order, or their number.
    fn are_in_order(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.frame.slots[a], &self.frame.slots[b]);
        a.place.zip(b.place).is_none_or(|(a, b)| a <= b)
    }

    /// Returns the flag that the words say, if they speak of it.
    pub(super) fn flag(&self, slot: &Slot) -> Option<bool> {
        let telling: Vec<&String> = slot
            .words
            .iter()
            .filter(|it| !IDLE_FLAGS.iter().any(|idle| words::stem(idle) == **it))
            .collect();
        if telling.is_empty() {
            return None;
        }
        let said = |word: &&&String| {
            self.tokens.iter().position(|it| {
                it.stem == ***word
                    || it.stem.len() > 4 && word.len() > 4 && it.stem.get(..5) == word.get(..5)
            })
        };
        let places: Vec<usize> = telling.iter().filter_map(|it| said(&it)).collect();
        let is_own = telling
            .iter()
            .all(|it| self.frame.name.contains(*it) || self.frame.about.contains(*it));
        if places.len() * 2 <= telling.len()
            && !(telling.len() == 2 && places.len() == 1 && slot.property.is_required)
            || is_own && !slot.property.is_required && places.len() < 2
        {
            return None;
        }
        let first = places.iter().copied().min()?;
        let reach = first.saturating_sub(4)..first;
        let is_denied = self.tokens[reach].iter().any(|it| DENIALS.contains(&it.lower.as_str()));
        Some(!is_denied)
    }

    /// Returns the value of a slot that no words fill: a flag, or what it is where nobody says.
    pub(super) fn unsaid(&self, slot: &Slot) -> Option<Value> {
        if slot.property.role == Role::Bool {
            let said = self.flag(slot).map(Value::Bool);
            let is_needed = slot.property.is_required;
            // Nobody confirms by saying nothing.
            return said
                .or_else(|| slot.default().filter(|_| is_needed))
                .or((is_needed && self.frame.is_read).then_some(Value::Bool(true)));
        }
        slot.default().filter(|_| slot.property.is_required)
    }
}

/// Returns whether a slot that may stay empty is spoken of.
fn is_announced(slot: &Slot, fit: Fit, said: &Said) -> bool {
    let is_default =
        matches!(said, Said::Choice { value, .. } if slot.default().as_ref() == Some(value));
    match said {
        Said::Choice { is_close, .. } => !is_default && (!is_close || fit.cue > 1.0),
        Said::Day(_) => fit.score >= 3.5,
        Said::Number(amount) => {
            let is_measured =
                amount.unit.is_some() && fit.score - fit.cue >= 3.0 && !amount.is_word;
            fit.score >= OPTIONAL && (fit.cue >= ANNOUNCED || is_measured)
        }
        _ => fit.score >= OPTIONAL && fit.cue >= ANNOUNCED,
    }
}
