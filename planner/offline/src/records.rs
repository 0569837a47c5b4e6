//! Calls of one tool that are said one after the other, each in its own words: `'A' in the Louvre,
//! and 'B' in the British Museum`. What the first says and a later one does not holds for that, too.

use std::collections::BTreeSet;

use super::{
    broad::{self, Broad, Reading},
    property::Role,
    slot::Slot,
    token::{Kind, Token},
};

/// Parts that are looked at.
const RECORDS: usize = 16;

/// How much less sure orders may be that are read each for itself.
const DOUBT: f32 = 0.1;

/// Where a text is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cut {
    /// Where sentences end.
    Sentence,
    /// Also where a clause surely begins: `, and`, `then`, `while`.
    Clause,
    /// Also at every `and`.
    And,
}

impl Broad<'_> {
    /// Returns what is asked for one after the other, where that explains more than `whole` does.
    ///
    /// Only for what looks: what acts is not ordered in half sentences.
    pub(super) fn records(
        &self,
        tool: usize,
        from: usize,
        to: usize,
        whole: &[Reading],
    ) -> Option<Vec<Reading>> {
        if let Some(readings) = self.ordered_apart(tool, from, to, whole) {
            return Some(readings);
        }
        if self.profiles[tool].acts() {
            return None;
        }
        let is_whole = whole.iter().all(|it| it.missing.is_empty());
        let most = if is_whole { self.explains(from, whole) } else { 0 };
        let mut best: Option<(usize, Vec<Reading>)> = None;
        let mut tried: Vec<usize> = Vec::new();
        for cut in [Cut::Sentence, Cut::Clause, Cut::And] {
            let cuts = self.cuts(from, to, cut);
            if cuts.is_empty() || cuts == tried || cuts.len() >= RECORDS {
                continue;
            }
            let readings = self.read_records(tool, from, to, &cuts);
            tried = cuts;
            let Some(readings) = readings else { continue };
            let explained = self.explains(from, &readings);
            // What is said in the same way in every part is said part by part.
            let is_even = is_alike(&readings) && readings.len() <= whole.len();
            let least = usize::from(!is_even);
            let best_yet = best.as_ref().map_or(most + least, |it| it.0 + 1);
            if explained >= best_yet {
                best = Some((explained, readings));
            }
        }
        best.map(|it| it.1)
    }

    /// Reads orders for one tool that each begin with its verb, each for itself: `find … in Oslo, then
    /// find … in Bergen`. For a tool that acts each must say all that it needs; for one that looks, what
    /// a later one lacks is what was said before.
    fn ordered_apart(
        &self,
        tool: usize,
        from: usize,
        to: usize,
        whole: &[Reading],
    ) -> Option<Vec<Reading>> {
        let (profile, parts) = (&self.profiles[tool], self.own_orders(tool, from, to));
        if parts.len() < 2 || parts.len() > RECORDS {
            return None;
        }
        let slots = &profile.frame().slots;
        let mut all: Vec<Reading> = Vec::new();
        for (begin, end) in parts {
            let mut readings = self.fill(tool, begin, end);
            for reading in &mut readings {
                let has_own = !reading.used.is_empty();
                if let Some(before) = all.last().filter(|_| !profile.acts() && has_own) {
                    broad::inherit(reading, before, slots);
                }
                for used in &mut reading.used {
                    *used = (used.0 + begin - from, used.1 + begin - from);
                }
            }
            all.append(&mut readings);
        }
        let is_sure = |it: &Reading| it.missing.is_empty() && it.confidence >= broad::CONFIDENCE;
        let is_whole = whole.iter().all(|it| it.missing.is_empty());
        let least = |it: &[Reading]| it.iter().map(|it| it.confidence).fold(1.0, f32::min);
        let is_better = !is_whole
            || self.explains(from, &all) >= self.explains(from, whole)
                && least(&all) + DOUBT >= least(whole);
        if all.iter().all(is_sure) && is_better {
            return Some(all);
        }
        // An order that lacks something is not filled from another one.
        let is_own = |it: &Reading| self.explains(from, std::slice::from_ref(it)) > 0;
        (profile.acts() || all.iter().all(is_own)).then_some(all)
    }

    /// Returns the parts that each begin as an order for a tool: for one that acts, with its own verb
    /// or the one of the first.
    fn own_orders(&self, tool: usize, from: usize, to: usize) -> Vec<(usize, usize)> {
        let profile = &self.profiles[tool];
        let mut parts: Vec<(usize, usize)> = Vec::new();
        let mut first: Option<&str> = None;
        for (begin, end) in self.segments(&self.tokens[from..to]) {
            let (begin, end) = (begin + from, end + from);
            let head = self.order_head(tool, begin, end);
            let is_own = |stem: &str| {
                !profile.acts()
                    || first == Some(stem)
                    || profile.verbs.first().is_some_and(|it| it == stem)
            };
            let is_order = head.is_some_and(|stem| first.is_none() || is_own(stem));
            match parts.last_mut() {
                Some(last) if !is_order || first.is_none() => last.1 = end,
                Some(_) => parts.push((begin, end)),
                None => parts.push((from, end)),
            }
            first = first.or(head);
        }
        parts
    }

    /// Returns the words behind the first where something else may begin.
    fn cuts(&self, from: usize, to: usize, cut: Cut) -> Vec<usize> {
        let tokens = self.tokens;
        let begins = |at: &usize| {
            let (before, token) = (&tokens[*at - 1], &tokens[*at]);
            let is_end = [".", "?", "!", ";", "\n"].iter().any(|it| before.is_mark(it));
            let next = tokens.get(at + 1);
            let is_joint = token.is("and")
                && (before.is_mark(",") || next.is_some_and(|it| it.is("then") || it.is("also")));
            let is_clause = is_joint
                || !before.is("and")
                    && ["then", "while", "whereas", "also"].iter().any(|it| token.is(it));
            is_end || cut >= Cut::Clause && is_clause || cut == Cut::And && token.is("and")
        };
        (from + 1..to).filter(begins).collect()
    }

    /// Reads each part for itself; nothing where they are not several that are said alike.
    fn read_records(
        &self,
        tool: usize,
        from: usize,
        to: usize,
        cuts: &[usize],
    ) -> Option<Vec<Reading>> {
        let slots = &self.profiles[tool].frame().slots;
        let starts = std::iter::once(from).chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain([to]);
        let mut parts: Vec<(usize, usize)> = starts.zip(ends).collect();
        let told: Vec<BTreeSet<usize>> =
            parts.iter().map(|it| said(&self.fill(tool, it.0, it.1), slots)).collect();
        // The first that says most begins; before it stands what leads to it.
        let has_said = self.tokens[from..to].iter().any(|it| it.is("respectively"));
        if has_said {
            return None;
        }
        // One thing in each may be anything; several are said alike.
        let most = told.iter().map(BTreeSet::len).max().filter(|it| *it > 1)?;
        let first = told.iter().position(|it| it.len() == most)?;
        let mut records: Vec<(usize, usize)> = Vec::new();
        for (at, (_, end)) in parts.drain(..).enumerate() {
            match records.last_mut() {
                None => records.push((from, end)),
                Some(last) if at <= first || told[at].is_empty() => last.1 = end,
                Some(last) => {
                    let begin = last.1;
                    records.push((begin, end));
                }
            }
        }
        if records.len() < 2 {
            return None;
        }
        let mut all: Vec<Reading> = Vec::new();
        for (nth, &(begin, end)) in records.iter().enumerate() {
            let mut readings = self.fill(tool, begin, end);
            let own = said(&readings, slots);
            let is_alike = own.is_subset(&told[first]) && own.len() * 2 > most;
            if nth > 0 && !is_alike {
                return None;
            }
            for reading in &mut readings {
                for used in &mut reading.used {
                    *used = (used.0 + begin - from, used.1 + begin - from);
                }
                if let Some(before) = all.last() {
                    broad::inherit(reading, before, slots);
                }
            }
            all.append(&mut readings);
        }
        let is_sure = |it: &Reading| it.missing.is_empty() && it.confidence >= broad::CONFIDENCE;
        all.iter().all(is_sure).then_some(all)
    }

    /// Returns how many names, numbers and quotations readings have used.
    fn explains(&self, from: usize, readings: &[Reading]) -> usize {
        let is_strong = |it: &Token| it.kind != Kind::Word || it.is_capitalised();
        let used: BTreeSet<usize> =
            readings.iter().flat_map(|it| &it.used).flat_map(|it| it.0..it.1).collect();
        used.into_iter().filter(|it| self.tokens.get(from + it).is_some_and(is_strong)).count()
    }
}

/// Returns whether the same parameters are said for every call.
fn is_alike(readings: &[Reading]) -> bool {
    let said = |it: &Reading| it.sure.iter().map(|it| it.0.clone()).collect::<BTreeSet<String>>();
    readings.windows(2).all(|it| said(&it[0]) == said(&it[1]))
        && readings.iter().all(|it| it.used.len() > 1)
}

/// Returns the slots that must be filled and that words fill in every one of some readings.
fn said(readings: &[Reading], slots: &[Slot]) -> BTreeSet<usize> {
    let is_said = |at: &usize| {
        let slot = &slots[*at];
        let name = slot.path.join(".");
        slot.property.is_required
            && slot.property.role != Role::Bool
            && readings.iter().all(|it| it.sure.iter().any(|known| known.0 == name))
    };
    (0..slots.len()).filter(is_said).collect()
}
