//! How well a span of words fits a slot, and the value that it is there.

mod given;
mod kind;

use super::{
    amount::Amount,
    property::Role,
    slot::{Frame, Slot},
    span::{Said, Span},
    token::{Kind, Token},
    unit::{self, Dimension},
    words,
};

/// Words before a span that may announce it.
const LEFT: usize = 7;
/// Words behind a span that may say what it was.
const RIGHT: usize = 3;
/// From here on a fit is no accident.
pub(super) const SURE: f32 = 2.2;

/// Which prepositions announce slots with which words in their names.
const TIES: &[(&str, &str)] = &[
    ("from", "from start origin source departure begin initial min lower sender base after since"),
    ("to", "to end destination target final arrival max upper recipient stop before until"),
    ("between", "start from origin begin first initial min lower"),
    ("and", "end to destination second final max upper"),
    ("after", "start from after begin since min"),
    ("since", "start from after begin since"),
    ("before", "end before until max"),
    ("until", "end to until"),
    ("under", "max limit budget price"),
    ("below", "max limit"),
    ("than", "max min limit"),
    ("in", "location city place country state region year month language unit currency area"),
    ("at", "location place venue time at rate temperature"),
    ("near", "location place near"),
    ("for", "for query duration days item term period recipient"),
    ("by", "author artist by creator composer painter writer manufacturer"),
    ("with", "with"),
    ("on", "date day on platform topic"),
    ("as", "as role type"),
    ("into", "into target language to"),
    ("about", "topic subject about query"),
    ("per", "per rate"),
    ("of", "of"),
    ("using", "method algorithm model using"),
    ("through", "method transportation"),
    ("via", "method transportation platform"),
];

/// How well a span fits a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fit {
    /// More is better; nothing below zero fits.
    pub(super) score: f32,
    /// How much of it comes from words that announce the slot.
    pub(super) cue: f32,
}

/// A text, read for one tool.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    /// Its words.
    pub(super) tokens: &'a [Token],
    /// Its spans.
    pub(super) spans: &'a [Span],
    /// The tool.
    pub(super) frame: &'a Frame,
}

impl Text<'_> {
    /// Returns how well a span fits a slot, or nothing where it cannot.
    pub(super) fn fit(&self, slot: usize, span: usize) -> Option<Fit> {
        let it = &self.frame.slots[slot];
        let said = &self.spans[span];
        let kind = match &said.said {
            Said::Several(items) => {
                if !it.is_list() {
                    return None;
                }
                let first = self.fit(slot, *items.first()?)?;
                let score = first.score + 0.6;
                return items
                    .iter()
                    .all(|at| self.fit(slot, *at).is_some())
                    .then_some(Fit { score, ..first });
            }
            Said::Values(values) => {
                let is_fit = it.is_list() && values.iter().all(|value| kind::is_item(it, value));
                is_fit.then_some(4.0)?
            }
            Said::Object(_) => (it.property.role == Role::Other).then_some(4.0)?,
            Said::Choice { slot: of, is_close, .. } => {
                let close = if *is_close { 1.2 } else { 0.0 };
                (*of == slot).then_some(4.0 - close)?
            }
            Said::Number(amount) => self.number(it, amount, said)?,
            Said::Day(_) if it.is_numeric() => self.period(it, said)?,
            Said::Day(when) => kind::day(it, when)?,
            _ => kind::word(it, said)? + self.place(it, said) + self.person(it, said),
        };
        let cue = self.cue(it, span) + self.own_kind(it, said);
        let example = example(it, said);
        Some(Fit { score: kind + cue + example, cue: cue + example })
    }

    fn number(&self, slot: &Slot, amount: &Amount, span: &Span) -> Option<f32> {
        if !slot.is_numeric() {
            return kind::number_as_text(slot, amount);
        }
        if slot.property.role == Role::Integer
            || slot.is_list() && slot.property.item == Role::Integer
        {
            given::number(slot, amount)?;
        }
        let mut score = 1.0;
        if amount.is_word {
            score -= if amount.is_ordinal { 2.0 } else { 1.6 };
        }
        let years = amount.is_year() && amount.number.as_i64().is_some_and(|it| it > 1700);
        if slot.traits.is_year {
            score += if amount.is_year() { 3.0 } else { -2.0 };
        } else if years && slot.measures != Some(Dimension::Money) {
            score -= 0.7;
        }
        if amount.is_ordinal {
            score -= 0.3;
        }
        // What was said in another unit, and cannot be told in this one, is not this number.
        if let (Some(from), Some(to)) = (amount.unit, slot.unit)
            && from.dimension == to.dimension
            && !unit::is_vague(from)
            && !unit::is_vague(to)
        {
            unit::convert(amount.number.as_f64()?, from, to)?;
        }
        let unit_words = amount.unit.map(|_| self.tokens[span.to - 1].stem.clone());
        let is_unit_named = unit_words.is_some_and(|it| slot.words.contains(&it));
        score += match (amount.unit, slot.measures) {
            _ if is_unit_named => 3.0,
            (Some(unit), _) if slot.unit == Some(unit) => 2.6,
            (Some(unit), Some(dimension)) if unit.dimension == dimension => 2.0,
            (Some(unit), Some(_)) if unit.dimension == Dimension::Duration => -1.5,
            (Some(_), Some(_)) => -2.0,
            (Some(_), None) => -0.6,
            _ => 0.0,
        };
        Some(score)
    }

    /// Returns how well one `next month` fits a slot that counts months.
    fn period(&self, slot: &Slot, span: &Span) -> Option<f32> {
        let is_one = span.to == span.from + 2
            && ["next", "last", "coming"].iter().any(|it| self.tokens[span.from].is(it));
        (is_one && slot.words.contains(&self.tokens[span.to - 1].stem)).then_some(1.5)
    }

    /// Returns how much it matters to a slot that a place is said together with the one around it:
    /// all of it belongs to the only slot for places, and its halves to those for a city and a country.
    fn place(&self, slot: &Slot, span: &Span) -> f32 {
        let is_around = |it: &Slot| {
            let around = ["state", "country", "province", "region"];
            it.traits.is_place && around.iter().any(|word| it.words.contains(&words::stem(word)))
        };
        let has_around = self.frame.slots.iter().any(is_around);
        let has_tail = |span: &Span| {
            self.spans.iter().any(|it| it.is_wide && it.from == span.from && it.to > span.to)
        };
        if is_around(slot) {
            return if span.is_tail {
                1.8
            } else if has_tail(span) {
                -1.5
            } else {
                0.0
            };
        }
        let is_town = slot.words.contains("city") || slot.words.contains("town");
        let is_whole =
            span.is_wide && slot.traits.is_place && !slot.traits.is_wide && !is_town && !has_around;
        if is_whole { 1.9 } else { 0.0 }
    }

    /// Returns how much better words fit somebody, or what somebody made: `Verdi's 'Aida'`.
    fn person(&self, slot: &Slot, span: &Span) -> f32 {
        let is_owner = span.said == Said::Name && self.tokens[span.to - 1].is_possessive();
        let has_person = || self.frame.slots.iter().any(|it| it.traits.is_person);
        match (&span.said, slot.traits.is_person) {
            (Said::Quoted, true) => -0.8,
            (Said::Name, true) if is_owner => 1.2,
            (Said::Name, false) if is_owner && has_person() => -0.6,
            _ => 0.0,
        }
    }

    /// Returns how much the words around a span announce a slot.
    fn cue(&self, slot: &Slot, span: usize) -> f32 {
        let it = &self.spans[span];
        let reach = self.reach(it);
        let mut cue = 0.0_f32;
        for (distance, at) in (reach..it.from).rev().enumerate() {
            let token = &self.tokens[at];
            if token.kind != Kind::Word {
                continue;
            }
            let near = 1.0 / (1.0 + 0.22 * as_f32(distance));
            cue += self.said_of(slot, &token.stem, &token.lower) * near;
        }
        cue += self.tie(slot, it, reach);
        for (distance, token) in self.tokens[it.to..].iter().take(RIGHT).enumerate() {
            let is_end = token.kind != Kind::Word
                || words::is_preposition(&token.lower)
                || token.is_separator();
            if is_end
                || self.spans.iter().any(|other| other.from == it.to + distance && is_strong(other))
            {
                break;
            }
            let near = 0.9 / (1.0 + 0.5 * as_f32(distance));
            cue += self.said_of(slot, &token.stem, &token.lower) * near;
        }
        cue.min(6.0)
    }

    /// Returns where the words begin that may announce a span: behind the span before it.
    fn reach(&self, span: &Span) -> usize {
        let before = self
            .spans
            .iter()
            .filter(|it| it.to <= span.from && is_strong(it))
            .map(|it| it.to)
            .max()
            .unwrap_or(0);
        let stop = self.tokens[..span.from]
            .iter()
            .rposition(|it| it.is_mark(".") || it.is_mark("?") || it.is_mark(";"))
            .map_or(0, |it| it + 1);
        before.max(stop).max(span.from.saturating_sub(LEFT))
    }

    fn said_of(&self, slot: &Slot, stem: &str, lower: &str) -> f32 {
        if slot.words.contains(stem) {
            return 3.0 * self.frame.telling(stem);
        }
        let is_part = stem.len() > 3
            && slot
                .words
                .iter()
                .any(|it| it.len() > 2 && (it.starts_with(stem) || stem.starts_with(it.as_str())));
        if is_part {
            return 1.8 * self.frame.telling(stem);
        }
        let is_idle = words::is_idle(lower) || words::is_preposition(lower);
        if slot.said.words.contains(stem) && !is_idle {
            1.1 * self.frame.telling(stem)
        } else {
            0.0
        }
    }

    /// Returns how much the preposition before a span announces a slot.
    fn tie(&self, slot: &Slot, span: &Span, reach: usize) -> f32 {
        let mut at = span.from;
        while at > reach
            && words::is_determiner(&self.tokens[at - 1].lower)
            && self.tokens[at - 1].lower != "of"
        {
            at -= 1;
        }
        let Some(token) = at.checked_sub(1).map(|it| &self.tokens[it]) else { return 0.0 };
        let Some((_, likely)) = TIES.iter().find(|(it, _)| token.is(it)) else { return 0.0 };
        // `and` ties only where a range is under way.
        if token.is("and") && !self.tokens[..at].iter().rev().take(8).any(|it| it.is("between")) {
            return 0.0;
        }
        let named = likely.split_whitespace().any(|it| {
            let stem = words::stem(it);
            slot.words.contains(&stem)
        });
        let told = likely.split_whitespace().any(|it| slot.said.words.contains(&words::stem(it)));
        let is_place = slot.traits.is_place
            && ["in", "at", "near", "from", "to", "for", "around", "of", "between"]
                .iter()
                .any(|it| token.is(it));
        let mut score = if named {
            1.8
        } else if told {
            0.7
        } else {
            0.0
        };
        if is_place {
            score += if token.is("in") || token.is("near") { 1.2 } else { 0.4 };
        }
        if slot.traits.is_person && token.is("by") {
            score += 1.5;
        }
        score
    }

    /// Returns how much a name says itself what it is: `British Museum` is a museum.
    fn own_kind(&self, slot: &Slot, span: &Span) -> f32 {
        if span.said != Said::Name {
            return 0.0;
        }
        let tokens = &self.tokens[span.from..span.to];
        let named = tokens.iter().filter(|it| slot.words.contains(&it.stem));
        let kind: f32 = named.map(|it| 1.4 * self.frame.telling(&it.stem)).sum();
        let is_all_own =
            tokens.iter().all(|it| self.frame.is_own(&it.stem) || words::is_idle(&it.lower));
        if is_all_own { -1.5 } else { kind.min(1.4) }
    }
}

/// Returns whether a span ends the words that announce another.
fn is_strong(span: &Span) -> bool {
    !matches!(span.said, Said::Phrase { .. } | Said::Several(_) | Said::Choice { .. })
}

fn as_f32(number: usize) -> f32 {
    f32::from(u16::try_from(number).unwrap_or(u16::MAX))
}

fn example(slot: &Slot, span: &Span) -> f32 {
    let lower = span.text.to_lowercase();
    let is_shown = slot.said.examples.contains(&lower)
        || slot.said.choices.iter().any(|it| it.value.eq_ignore_ascii_case(&lower));
    if is_shown && !matches!(span.said, Said::Number(_)) { 2.5 } else { 0.0 }
}
