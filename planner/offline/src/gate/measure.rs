//! Whether numbers are whole, and measure what their parameters do.

use super::{
    Doubt, Found, Gate,
    claim::{Claims, Place, Said},
};
use crate::{amount, token::Kind, unit::Dimension};

/// Words of numbers that go on behind an `and`: `one hundred and five`.
const LARGE: &str = "hundred thousand million billion dozen";

impl Gate<'_> {
    /// Checks the numbers of a passage.
    pub(super) fn measured(&self, place: &Place, claims: &Claims<'_>) -> Option<Found> {
        let numbers: Vec<&Said<'_>> = claims
            .numbers
            .iter()
            .filter(|it| {
                claims
                    .at(it.at.start)
                    .is_some_and(|at| at.slot.is_none_or(|it| it.property.is_numeric()))
            })
            .collect();
        numbers
            .iter()
            .find_map(|it| self.unit(it))
            .or_else(|| numbers.windows(2).find_map(|it| self.compound(it[0], it[1])))
            .or_else(|| self.unfinished(place, &numbers))
    }

    /// Checks that a number measures what its parameter does.
    fn unit(&self, said: &Said<'_>) -> Option<Found> {
        let unit = said.amount.unit?;
        let slot = said.slot?;
        let words = &self.tokens[said.at.clone()];
        if words.iter().any(|it| it.kind == Kind::Word && slot.words.contains(&it.stem)) {
            return None;
        }
        let is_other = slot.measures.is_some_and(|it| it != unit.dimension)
            || slot.measures.is_none() && unit.dimension == Dimension::Share && !said.is_converted;
        // What was said in another unit of the same kind and not told in the parameter's own.
        let is_raw = !said.is_converted
            && slot.unit.is_some_and(|it| {
                it.dimension == unit.dimension
                    && it != unit
                    && it.factor.is_some()
                    && unit.factor.is_some()
            });
        (is_other || is_raw).then(|| (said.at.clone(), Doubt::Unit))
    }

    /// Checks that two numbers are not one: `one hundred and five`, `1 hour and 20 minutes`, and
    /// that a unit behind the second does not belong to the first.
    fn compound(&self, one: &Said<'_>, other: &Said<'_>) -> Option<Found> {
        let between = &self.tokens[one.at.end..other.at.start.max(one.at.end)];
        let is_joint = between.iter().all(|it| it.is("and") || it.is_mark(","));
        if !is_joint {
            return None;
        }
        let last = &self.tokens[one.at.end - 1];
        let is_large = LARGE.split(' ').any(|it| last.is(it));
        let units = (one.amount.unit, other.amount.unit);
        let is_split = matches!(units, (Some(a), Some(b)) if a != b && a.dimension == b.dimension);
        let is_shared = units.0.is_none() && units.1.is_some() && other.is_converted;
        let is_bare = between.is_empty();
        let is_doubtful = is_large || is_split || is_shared || is_bare && units.1.is_none();
        is_doubtful.then_some((one.at.start..other.at.end, Doubt::Apart))
    }

    /// Checks that no number goes on behind one that was taken: `one hundred and five`.
    fn unfinished(&self, place: &Place, numbers: &[&Said<'_>]) -> Option<Found> {
        numbers.iter().find_map(|it| {
            let last = &self.tokens[it.at.end - 1];
            let is_large = LARGE.split(' ').any(|word| last.is(word));
            let is_and = self.tokens.get(it.at.end).is_some_and(|it| it.is("and"));
            let next = it.at.end + usize::from(is_and);
            let goes_on = is_large && next < place.to && amount::read(self.tokens, next).is_some();
            goes_on.then(|| (it.at.start..next + 1, Doubt::Apart))
        })
    }
}
