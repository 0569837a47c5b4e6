//! Which tool words ask for: by those that tell tools apart, and by how much of what it needs is said.

use std::collections::BTreeSet;

use super::{
    super::{
        token::{Kind, Token},
        words,
    },
    Broad, Part, count,
};

/// Tools that are filled to find out which is meant.
const TRIED: usize = 6;
/// What it is worth that words begin with a tool's verb.
const ORDERED: f32 = 0.4;
/// What it is worth that a number measures what a tool takes.
const MEASURED: f32 = 0.4;
/// What it is worth that what is asked for is in a tool's name.
const ASKED: f32 = 0.5;
/// Words that say what is asked for.
const HEAD: usize = 5;

impl Broad<'_> {
    /// Returns the tool that a part asks for, filled from it.
    pub(super) fn best(&self, from: usize, to: usize) -> Option<Part> {
        let mut scores: Vec<(usize, f32)> = (0..self.profiles.len())
            .filter(|tool| !self.profiles[*tool].is_machinery())
            .map(|tool| (tool, self.words_score(tool, from, to) + self.near(tool)))
            .filter(|it| it.1 > 0.0)
            .collect();
        scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        scores.truncate(TRIED);
        let best = scores.first()?.1;
        let mut parts: Vec<(f32, Part)> = scores
            .iter()
            .filter(|it| it.1 > best * 0.4)
            .map(|(tool, score)| {
                let part = self.part(*tool, from, to);
                (score + self.filled(&part) * (0.6 + best * 0.12), part)
            })
            .collect();
        parts.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.tool.cmp(&b.1.tool)));
        if parts.len() > 1 {
            self.close.0.borrow_mut().extend(parts.iter().map(|it| it.1.tool));
        }
        let told: Vec<(usize, f32)> = parts.iter().map(|it| (it.1.tool, it.0)).collect();
        let (_, part) = parts.into_iter().next()?;
        Some(Part { scores: told, ..part })
    }

    pub(super) fn near(&self, tool: usize) -> f32 {
        self.meaning.and_then(|it| it.get(tool)).map_or(0.0, |it| (it - 0.15).max(0.0) * 6.0)
    }

    /// Returns how much of what a tool needs was said.
    fn filled(&self, part: &Part) -> f32 {
        let slots = &self.profiles[part.tool].frame().slots;
        let needed = slots.iter().filter(|it| it.property.is_required).count();
        let Some(call) = part.calls.first() else { return 0.0 };
        let lacking = call.missing.len();
        let share =
            if needed == 0 { 0.6 } else { count(needed - lacking.min(needed)) / count(needed) };
        let sure: f32 =
            call.sure.iter().map(|it| it.1).sum::<f32>() / count(call.sure.len().max(1));
        share + 0.5 * sure
    }

    /// Returns how much the words of a part are those of a tool.
    pub(super) fn words_score(&self, tool: usize, from: usize, to: usize) -> f32 {
        let frame = self.profiles[tool].frame();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut score = 0.0;
        let mut named = 0;
        for token in &self.tokens[from..to] {
            let is_told = matches!(token.kind, Kind::Word | Kind::Path)
                && !words::is_idle(&token.lower)
                && !words::is_preposition(&token.lower);
            if !is_told || !seen.insert(&token.stem) {
                continue;
            }
            let stem = &token.stem;
            let rarity = self.vocabulary.rarity(stem, self.profiles);
            if frame.name.contains(stem) {
                named += 1;
                score += 2.0 * rarity;
            } else if frame.about.contains(stem) {
                score += 1.3 * rarity;
            } else if frame.slots.iter().any(|it| it.words.contains(stem)) {
                score += 0.8 * rarity;
            } else if frame.shown.contains(stem) {
                score += 0.35 * rarity;
            }
        }
        let whole = count(frame.name.len().max(2));
        let measured = self.measures.iter().filter(|it| (from..to).contains(&it.0)).filter(|it| {
            frame.slots.iter().any(|slot| slot.is_numeric() && slot.measures == Some(it.1))
        });
        let ordered = if self.orders(tool, from, to) { ORDERED } else { 0.0 };
        let asked = self.asked(from, to).filter(|it| frame.name.contains(&it.stem));
        let asked: f32 =
            asked.map(|it| ASKED * self.vocabulary.rarity(&it.stem, self.profiles)).sum();
        score
            + asked
            + 1.5 * count(named) / whole
            + MEASURED * count(measured.take(2).count())
            + ordered
    }

    /// Returns the verb with which words begin as an order for a tool does.
    pub(crate) fn order_head(&self, tool: usize, from: usize, to: usize) -> Option<&str> {
        let head = self.tokens[from..to].iter().find(|it| {
            it.kind != Kind::Mark
                && !(it.kind == Kind::Word && (words::is_filler(&it.lower) || it.is("but")))
        })?;
        let is_order = head.kind == Kind::Word && self.profiles[tool].owns_verb(&head.stem);
        is_order.then_some(head.stem.as_str())
    }

    /// Returns whether words begin with the very verb of a tool, also where that says little: `set`.
    fn orders(&self, tool: usize, from: usize, to: usize) -> bool {
        let head = self.tokens[from..to].iter().find(|it| {
            it.kind != Kind::Mark && !(it.kind == Kind::Word && words::is_filler(&it.lower))
        });
        let verb = self.profiles[tool].verbs.first();
        head.is_some_and(|it| it.kind == Kind::Word && verb == Some(&it.stem))
    }

    /// Returns the words that say what is asked for: those before the first preposition.
    fn asked(&self, from: usize, to: usize) -> impl Iterator<Item = &Token> {
        let is_lead = |it: &&Token| {
            it.kind == Kind::Mark
                || words::is_filler(&it.lower)
                || words::is_idle(&it.lower)
                || words::is_determiner(&it.lower)
                || !words::families(&it.stem).is_empty()
        };
        self.tokens[from..to]
            .iter()
            .skip_while(is_lead)
            .take_while(|it| it.kind == Kind::Word && !words::is_preposition(&it.lower))
            .take(HEAD)
    }
}
