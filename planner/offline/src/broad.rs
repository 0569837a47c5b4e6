//! A query read by what its words may be worth, where its grammar gave no plan: which parts ask
//! for which tools, which spans go into which slots, and how sure that is.

mod choice;
mod reading;
mod rest;

pub(super) use self::reading::{Reading, inherit, recall};
use super::{
    Close,
    fit::Text,
    profile::{Profile, Vocabulary},
    repeat,
    span::{self, Span},
    token::{Kind, Token},
    unit::Dimension,
    words,
};

/// Parts of a query that are looked at.
const PARTS: usize = 64;
/// Words of a query that are read: the time grows with their number.
const TOKENS: usize = 1_200;
/// How much better another tool must fit a part than the one that fits the whole.
const BETTER: f32 = 1.25;
/// What a plan must reach that only looks.
pub(super) const CONFIDENCE: f32 = 0.2;

/// A part of a query that asks for calls of one tool.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Which tool.
    pub(super) tool: usize,
    /// Its first token.
    pub(super) from: usize,
    /// Behind its last token.
    pub(super) to: usize,
    /// What each call is told.
    pub(super) calls: Vec<Reading>,
    /// The tools that were looked at, and how well they fit.
    pub(super) scores: Vec<(usize, f32)>,
}

/// A query and the tools that it may mean.
#[derive(Clone, Copy)]
pub(super) struct Broad<'a> {
    /// The query.
    pub(super) query: &'a str,
    /// Its tokens.
    pub(super) tokens: &'a [Token],
    /// The tools.
    pub(super) profiles: &'a [Profile],
    /// Their words.
    pub(super) vocabulary: &'a Vocabulary,
    /// What numbers with units measure, and where they stand.
    pub(super) measures: &'a [(usize, Dimension)],
    /// How near each tool is by its meaning, where somebody knows.
    pub(super) meaning: Option<&'a [f32]>,
    /// Where it is noted between which tools words do not decide.
    pub(super) close: &'a Close,
}

impl Broad<'_> {
    /// Returns the parts that ask for something, in their order; nothing where nothing is asked.
    pub(super) fn parts(&self) -> Vec<Part> {
        let tokens = &self.tokens[..self.tokens.len().min(TOKENS)];
        let whole = self.best(0, tokens.len());
        let Some(whole) = whole else { return Vec::new() };
        let segments = self.segments(tokens);
        if self.profiles.len() == 1 || segments.len() < 2 {
            return vec![self.apart(whole)];
        }
        self.several(&segments, whole).into_iter().map(|it| self.apart(it)).collect()
    }

    /// Gives segments to the tools that they ask for; neighbours with one tool are one part.
    fn several(&self, segments: &[(usize, usize)], whole: Part) -> Vec<Part> {
        let mut owners: Vec<Option<usize>> = Vec::new();
        for &(from, to) in segments {
            let best = self.best(from, to);
            let own = self.words_score(whole.tool, from, to) + self.near(whole.tool);
            let other = best.filter(|it| {
                let score = self.words_score(it.tool, from, to) + self.near(it.tool);
                it.tool != whole.tool
                    && score > own * BETTER + 0.4
                    && it
                        .calls
                        .iter()
                        .all(|call| call.missing.is_empty() || self.points_back(from, to))
            });
            let is_own = own > self.near(whole.tool) + 0.5;
            owners.push(other.map(|it| it.tool).or(is_own.then_some(whole.tool)));
        }
        if owners.iter().flatten().all(|it| *it == whole.tool) {
            return vec![whole];
        }
        let mut runs: Vec<(Option<usize>, usize, usize)> = Vec::new();
        for (owner, &(from, to)) in owners.into_iter().zip(segments) {
            match runs.last_mut() {
                Some((last, _, end)) if owner.is_none() || *last == owner || last.is_none() => {
                    *last = last.or(owner);
                    *end = to;
                }
                _ => runs.push((owner, from, to)),
            }
        }
        let mut parts: Vec<Part> = Vec::new();
        let mut begin = None;
        for (tool, from, to) in runs {
            let Some(tool) = tool else { continue };
            let from = begin.take().unwrap_or(from);
            let part = self.part(tool, from, to);
            // `I need your help with my data.` asks for nothing yet: it belongs to what follows.
            let is_idle = part.calls.iter().all(|it| it.used.is_empty() && !it.missing.is_empty());
            if is_idle && to < self.tokens.len() && !self.points_back(from, to) {
                begin = Some(from);
            } else {
                parts.push(part);
            }
        }
        parts
    }

    /// Returns whether words speak of something said before.
    pub(super) fn points_back(&self, from: usize, to: usize) -> bool {
        self.tokens[from..to].iter().any(|it| {
            it.kind == Kind::Word
                && (words::is_pronoun(&it.lower)
                    || matches!(
                        it.lower.as_str(),
                        "that" | "this" | "those" | "these" | "same" | "result" | "obtained"
                    ))
        })
    }

    /// Cuts where sentences end, and where an `and` or a comma is followed by something to do.
    pub(super) fn segments(&self, tokens: &[Token]) -> Vec<(usize, usize)> {
        let mut cuts = vec![0];
        for at in 1..tokens.len() {
            let before = &tokens[at - 1];
            let is_end = [".", "?", "!", ";", "\n"].iter().any(|it| before.is_mark(it));
            let is_joint = before.is_separator()
                || ["then", "also", "finally", "lastly"].iter().any(|it| before.is(it));
            let token = &tokens[at];
            let is_verb = token.kind == Kind::Word
                && token.value.starts_with(char::is_lowercase)
                && self.is_order(token)
                && !words::is_participle(&token.lower)
                && !matches!(
                    token.lower.as_str(),
                    "is" | "are" | "when" | "where" | "who" | "which"
                )
                && tokens.get(at + 1).is_some_and(|it| it.kind == Kind::Word && !it.is_separator());
            if (is_end || is_joint && is_verb) && cuts.len() < PARTS {
                cuts.push(at);
            }
        }
        let ends = cuts.iter().skip(1).copied().chain([tokens.len()]);
        cuts.iter().copied().zip(ends).filter(|(from, to)| to - from > 1).collect()
    }

    /// Returns whether a word may begin an order: a common verb, or one that some tool has.
    fn is_order(&self, token: &Token) -> bool {
        token.kind == Kind::Word
            && !words::is_preposition(&token.lower)
            && (!words::families(&token.stem).is_empty()
                || self.profiles.iter().any(|it| it.verbs.first() == Some(&token.stem)))
    }

    /// Returns whether a part begins as an order for its tool does.
    pub(super) fn is_ordered(&self, part: &Part) -> bool {
        self.order_head(part.tool, part.from, part.to).is_some()
    }

    /// Fills a tool from a part.
    fn part(&self, tool: usize, from: usize, to: usize) -> Part {
        Part { tool, from, to, calls: self.fill(tool, from, to), scores: Vec::new() }
    }

    /// Reads the only part of a query once more, for calls that are said one after the other.
    fn apart(&self, part: Part) -> Part {
        let calls = self.records(part.tool, part.from, part.to, &part.calls);
        Part { calls: calls.unwrap_or(part.calls), ..part }
    }

    /// Fills a tool from words, read at once.
    pub(super) fn fill(&self, tool: usize, from: usize, to: usize) -> Vec<Reading> {
        let frame = self.profiles[tool].frame();
        let tokens = &self.tokens[from..to];
        let spans: Vec<Span> = span::spans(self.query, tokens, frame);
        let text = Text { tokens, spans: &spans, frame };
        let given = text.assign();
        let mut calls = repeat::repeated(&text, &given);
        if let [only] = calls.as_mut_slice() {
            text.complete(only);
        }
        calls.iter().map(|it| reading::reading(&text, it)).collect()
    }
}

fn count(number: usize) -> f32 {
    f32::from(u16::try_from(number).unwrap_or(u16::MAX))
}
