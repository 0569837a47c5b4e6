//! A query read by what its words may be worth, where its grammar gave no plan: which parts ask
//! for which tools, which spans go into which slots, and how sure that is.

use std::{collections::BTreeSet, ops::Range};

use serde_json::{Map, Value};

use super::{
    assign::Given,
    fit::{self, Text},
    memory::{Entity, Memory, Mention},
    phrase,
    profile::{Profile, Vocabulary},
    property::Role,
    repeat,
    slot::Slot,
    span::{self, Span},
    token::{Kind, Token},
    unit::Dimension,
    value,
    words::{self, Family},
};

/// Tools that are filled to find out which is meant.
const TRIED: usize = 6;
/// Parts of a query that are looked at.
const PARTS: usize = 64;
/// Words of a query that are read: the time grows with their number.
const TOKENS: usize = 1_200;
/// How much better another tool must fit a part than the one that fits the whole.
const BETTER: f32 = 1.25;
/// What a plan must reach that only looks.
pub(super) const CONFIDENCE: f32 = 0.2;
/// How sure what nobody said is.
pub(super) const ASSUMED: f32 = 0.5;
/// What it is worth that words begin with a tool's verb.
const ORDERED: f32 = 0.4;
/// What it is worth that a number measures what a tool takes.
const MEASURED: f32 = 0.4;
/// What it is worth that what is asked for is in a tool's name.
const ASKED: f32 = 0.5;
/// Words that say what is asked for.
const HEAD: usize = 5;
/// Runs of words that a part left over and that are told.
const LEFT_OVER: usize = 8;

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

/// What one call is told.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    /// Its parameters.
    pub(super) parameters: Map<String, Value>,
    /// How sure each is.
    pub(super) sure: Vec<(String, f32)>,
    /// What nobody said but the tool does for itself.
    pub(super) assumed: Vec<String>,
    /// The slots that must be filled and are not.
    pub(super) missing: Vec<usize>,
    /// The words that were used, each as its first token and the one behind its last.
    pub(super) used: Vec<(usize, usize)>,
    /// How sure all of it is.
    pub(super) confidence: f32,
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
            let is_joint = before.is_separator() || before.is("then") || before.is("also");
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

    /// Returns the words of a part that nothing was made of, as they were written: at most a few.
    pub(super) fn left_over(&self, part: &Part) -> Vec<String> {
        let profile = &self.profiles[part.tool];
        let frame = profile.frame();
        let tokens = &self.tokens[part.from..part.to];
        let is_used = |at: usize| {
            part.calls.iter().flat_map(|it| &it.used).any(|it| (it.0..it.1).contains(&at))
        };
        // `the subject is Hello` says a value, `the back door is open` tells something.
        let is_told = |at: usize| {
            let mut behind = (at + 1..tokens.len()).skip_while(|it| {
                tokens[*it].kind == Kind::Mark || words::is_determiner(&tokens[*it].lower)
            });
            matches!(tokens[at].lower.as_str(), "is" | "are" | "was" | "were" | "has" | "had")
                && !behind.next().is_some_and(is_used)
        };
        let is_known = |at: usize| {
            let token = &tokens[at];
            token.kind == Kind::Mark
                || is_used(at)
                || token.kind == Kind::Word
                    && (phrase::is_grammar(token) && !(profile.acts() && is_told(at))
                        || frame.is_own(&token.stem)
                        || frame.shown.contains(&token.stem)
                        || profile.owns_verb(&token.stem)
                        || words::is_result(&token.stem)
                        || !profile.acts() && !words::families(&token.stem).is_empty())
        };
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for at in (0..tokens.len()).filter(|it| !is_known(*it)) {
            match runs.last_mut() {
                Some((_, end)) if *end == at => *end = at + 1,
                _ => runs.push((at, at + 1)),
            }
        }
        let said = |(from, to): (usize, usize)| value::text(self.query, &tokens[from..to]);
        runs.into_iter().filter_map(said).take(LEFT_OVER).collect()
    }

    /// Returns the first order in the parts that no call answers: a verb that none of them has.
    pub(super) fn unanswered(&self, parts: &[Part]) -> Option<String> {
        let tokens = &self.tokens[..self.tokens.len().min(TOKENS)];
        self.segments(tokens).into_iter().find_map(|(from, to)| {
            let head = (from..to).find(|it| {
                tokens[*it].kind != Kind::Mark && !words::is_filler(&tokens[*it].lower)
            })?;
            let stem = &tokens[head].stem;
            let acts = words::families(stem).iter().all(|it| {
                matches!(it, Family::Create | Family::Update | Family::Delete | Family::Send)
            });
            if !acts
                || !self.is_order(&tokens[head])
                || tokens[head].is_capitalised() && head > from
            {
                return None;
            }
            let has_owner =
                parts.iter().filter(|it| (it.from..it.to).contains(&head)).any(|part| {
                    let profile = &self.profiles[part.tool];
                    let at = head - part.from;
                    let is_value = part
                        .calls
                        .iter()
                        .flat_map(|it| &it.used)
                        .any(|it| (it.0..it.1).contains(&at));
                    is_value || profile.owns_verb(stem) || profile.frame().is_own(stem)
                });
            if has_owner {
                return None;
            }
            value::text(self.query, &tokens[head..to])
        })
    }

    /// Returns whether something between two bytes of the query became a value of some call.
    pub(super) fn answers(&self, parts: &[Part], bytes: &Range<usize>) -> bool {
        parts.iter().any(|part| {
            let tokens = &self.tokens[part.from..part.to];
            part.calls.iter().flat_map(|it| &it.used).any(|it| {
                tokens.get(it.0).is_some_and(|it| bytes.contains(&it.start))
            })
        })
    }

    /// Returns whether a part begins as an order for its tool does.
    pub(super) fn is_ordered(&self, part: &Part) -> bool {
        self.begins_order(part.tool, part.from, part.to)
    }

    /// Returns the tool that a part asks for, filled from it.
    fn best(&self, from: usize, to: usize) -> Option<Part> {
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
        let told: Vec<(usize, f32)> = parts.iter().map(|it| (it.1.tool, it.0)).collect();
        let (_, part) = parts.into_iter().next()?;
        Some(Part { scores: told, ..part })
    }

    fn near(&self, tool: usize) -> f32 {
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
    fn words_score(&self, tool: usize, from: usize, to: usize) -> f32 {
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
        let asked: f32 = asked.map(|it| ASKED * self.vocabulary.rarity(&it.stem, self.profiles)).sum();
        score + asked + 1.5 * count(named) / whole + MEASURED * count(measured.take(2).count()) + ordered
    }

    /// Returns whether words begin as an order for a tool does.
    pub(super) fn begins_order(&self, tool: usize, from: usize, to: usize) -> bool {
        let head = self.tokens[from..to].iter().find(|it| {
            it.kind != Kind::Mark
                && !(it.kind == Kind::Word && (words::is_filler(&it.lower) || it.is("but")))
        });
        head.is_some_and(|it| it.kind == Kind::Word && self.profiles[tool].owns_verb(&it.stem))
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
        calls.iter().map(|it| reading(&text, it)).collect()
    }

    /// Returns how much of what the query says a plan has used or knows: one is all of it.
    pub(super) fn explained(&self, parts: &[Part]) -> f32 {
        let mut told = 0_usize;
        let mut known = 0_usize;
        for part in parts {
            let frame = self.profiles[part.tool].frame();
            let said: String = part
                .calls
                .iter()
                .map(|it| Value::Object(it.parameters.clone()).to_string().to_lowercase())
                .collect();
            for (at, token) in self.tokens[part.from..part.to].iter().enumerate() {
                if token.kind == Kind::Mark
                    || words::is_idle(&token.lower)
                    || words::is_preposition(&token.lower)
                    || words::is_filler(&token.lower)
                {
                    continue;
                }
                told += 1;
                let is_asked = words::families(&token.stem).contains(&Family::Get);
                // What was converted is not there as it was said.
                let is_used =
                    part.calls.iter().flat_map(|it| &it.used).any(|it| (it.0..it.1).contains(&at));
                let is_own = frame.is_own(&token.stem);
                if is_asked || is_used || is_own || said.contains(&token.lower) {
                    known += 1;
                }
            }
        }
        if told == 0 { 0.0 } else { count(known) / count(told) }
    }
}

/// Reads the parameters out of what was given.
fn reading(text: &Text<'_>, given: &Given) -> Reading {
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
pub(super) fn inherit(reading: &mut Reading, before: &Reading, slots: &[Slot]) {
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
pub(super) fn recall(reading: &mut Reading, slots: &[Slot], memory: &Memory) {
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

fn count(number: usize) -> f32 {
    f32::from(u16::try_from(number).unwrap_or(u16::MAX))
}
