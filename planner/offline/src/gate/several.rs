//! Whether several calls of one passage are what it lists: their values joined like a list, and
//! each with its own.

use std::{collections::BTreeMap, ops::Range};

use super::{
    super::token::{Kind, Token},
    Doubt, Found, Gate, Passage,
    claim::Claims,
    lists,
};

impl Gate<'_> {
    /// Checks the calls of a passage that has several.
    pub(super) fn several(&self, passage: &Passage<'_>, claims: &Claims<'_>) -> Option<Found> {
        if passage.calls.len() < 2 {
            return None;
        }
        // The values of each parameter in which calls differ, by call.
        let mut told: BTreeMap<String, Vec<Option<Range<usize>>>> = BTreeMap::new();
        for claim in claims.all.iter().filter(|it| !it.is_name) {
            let Some(slot) = claim.slot else { continue };
            let is_all = claim.calls.len() == passage.calls.len();
            if let Some(found) = self.shared(claim.at.clone(), is_all) {
                return Some(found);
            }
            let differs = |is_before: bool| {
                claims.all.iter().any(|it| {
                    let is_there = if is_before {
                        it.at.end <= claim.at.start
                    } else {
                        claim.at.end <= it.at.start
                    };
                    is_there
                        && !it.is_name
                        && it.calls.len() < passage.calls.len()
                        && !it.calls.is_empty()
                })
            };
            let is_once = claims
                .all
                .iter()
                .filter(|it| it.slot.map(|it| &it.path) == claim.slot.map(|it| &it.path))
                .count()
                == 1;
            let is_between = is_all && is_once && differs(true) && differs(false);
            if is_between {
                return Some((claim.at.clone(), Doubt::Apart));
            }
            if is_all {
                continue;
            }
            let places =
                told.entry(slot.path.join(".")).or_insert_with(|| vec![None; passage.calls.len()]);
            for call in &claim.calls {
                places[*call] = places[*call].clone().or(Some(claim.at.clone()));
            }
        }
        for places in told.values() {
            let said: Vec<&Range<usize>> = places.iter().flatten().collect();
            if let Some(found) = said.windows(2).find_map(|it| self.unjoined(it[0], it[1])) {
                return Some(found);
            }
            // `Ann to readers, and Bob` goes on with somebody else; two things need no comma.
            if let [one, other] = said.as_slice()
                && one.end < other.start
                && let [comma, and] = &self.tokens[one.end..other.start]
                && comma.is_mark(",")
                && and.is("and")
                && self.tokens[other.start].is_capitalised()
                    != self.tokens[one.start].is_capitalised()
            {
                return Some((one.start..other.end, Doubt::Apart));
            }
        }
        Self::unpaired(&told)
    }

    /// Checks that what all calls share is not itself a list.
    fn shared(&self, at: Range<usize>, is_all: bool) -> Option<Found> {
        let lists = |it: &Token| it.is("and") || it.is_mark(",");
        let is_list = is_all && at.len() > 2 && self.tokens[at.clone()].iter().any(lists);
        is_list.then_some((at, Doubt::Apart))
    }

    /// Checks that a word or a mark between two values makes a list of them.
    fn unjoined(&self, one: &Range<usize>, other: &Range<usize>) -> Option<Found> {
        if one == other {
            return None;
        }
        let (one, other) = if one.start < other.start { (one, other) } else { (other, one) };
        let between = self.tokens.get(one.end..other.start)?;
        (!between.iter().any(lists::joins)).then_some((one.start..other.end, Doubt::Apart))
    }

    /// Checks that values which stand beside each other are told together: `a to x, b to y`.
    fn unpaired(told: &BTreeMap<String, Vec<Option<Range<usize>>>>) -> Option<Found> {
        let lists: Vec<Vec<&Range<usize>>> = told
            .values()
            .map(|it| it.iter().flatten().collect::<Vec<_>>())
            .filter(|it| it.len() > 1)
            .collect();
        for (nth, one) in lists.iter().enumerate() {
            for other in &lists[nth + 1..] {
                if one.len() != other.len() {
                    continue;
                }
                let ends = |it: &[&Range<usize>]| {
                    let from = it.iter().map(|it| it.start).min();
                    from.zip(it.iter().map(|it| it.end).max())
                };
                let (Some(a), Some(b)) = (ends(one), ends(other)) else { continue };
                let is_ordered =
                    |it: &[&Range<usize>]| it.windows(2).all(|it| it[0].start <= it[1].start);
                let are_blocks = (a.1 <= b.0 || b.1 <= a.0) && is_ordered(one) && is_ordered(other);
                let pairs: Vec<(usize, usize)> = one
                    .iter()
                    .zip(other)
                    .map(|(a, b)| (a.start.min(b.start), a.end.max(b.end)))
                    .collect();
                let are_records = pairs.windows(2).all(|it| it[0].1 <= it[1].0);
                if !are_blocks && !are_records {
                    return Some((a.0.min(b.0)..a.1.max(b.1), Doubt::Apart));
                }
            }
        }
        None
    }

    /// Checks that no two values were cut out of what is written as one: `5,00`, `f(1)`.
    pub(super) fn cut_apart(&self, claims: &Claims<'_>) -> Option<Found> {
        let pairs = claims.all.windows(2);
        pairs.filter(|it| !(it[0].is_item && it[1].is_item)).find_map(|it| {
            let (one, other) = (&it[0].at, &it[1].at);
            let between = self.tokens.get(one.end..other.start)?;
            let bytes = self.tokens[one.end - 1].end..self.tokens[other.start].start;
            let said = self.query.get(bytes)?;
            let is_quoted = self.tokens[other.start].kind == Kind::Quoted && between.is_empty();
            let is_one = !said.contains(char::is_whitespace)
                && between
                    .iter()
                    .all(|it| it.kind == Kind::Mark && !it.is_mark("=") && !it.is_mark(";"))
                && !is_quoted;
            is_one.then_some((one.start..other.end, Doubt::Apart))
        })
    }
}
