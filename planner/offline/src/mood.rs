//! What a query says that is no order: what is not to be done, what only under a condition, what
//! is asked, and what is told. No tool that does anything is called for such words.
//!
//! It is read off the words alone, once, before any tool is known: each [`Finding`] holds for the
//! sentence in which it stands. Quotations say nothing here, and neither does what `saying …` begins.

mod condition;
mod denial;
mod head;
mod lists;

use std::ops::Range;

use shared::tool::Effect;

use self::lists::{SUBJECTS, is_forbidding, is_modal};
use super::{
    explain::{self, Problem},
    profile::{Profile, Vocabulary},
    property::Role,
    text::Texts,
    token::{Kind, Token},
};

/// Words of a finding that a message shows.
const SHOWN: usize = 8;
/// Words that may make one order polite.
const POLITENESS: usize = 16;
/// How far behind a denial the name of the flag stands that it denies.
const FLAG: usize = 3;

/// Why words are no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// What is not to be done: `do not …`, `but not …`, `undo …`.
    Denied,
    /// What is to be done only if something holds.
    Conditional,
    /// What is looked at or with only if it holds: `check whether …`, `what is it if …?`.
    Given,
    /// What is asked.
    Asked,
    /// What is told: what somebody did, or wishes.
    Told,
}

/// What excuses a finding, once a tool is known.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Excuse {
    Nothing,
    /// The stems behind a `not`: one of them may name a flag, which it then denies.
    Flag(Vec<String>),
    /// The same behind a `without`, which may also say in the tool's own words what it looks at:
    /// `without air resistance`.
    Lack(Vec<String>),
    /// The stem of a verb that ends something: the tool may be the one for that.
    Verb(String),
}

/// Words that are no order.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    mood: Mood,
    excuse: Excuse,
    /// The bytes of the sentence for which it holds.
    scope: Range<usize>,
    /// The bytes of its own clause.
    clause: Range<usize>,
    /// Whether it stands in what may be a text: then it holds only for what begins behind that.
    is_in_text: bool,
    /// The words, as they were written.
    pub(super) said: String,
    /// The tokens that a tool which only looks may leave out.
    pub(super) cut: Option<Range<usize>>,
}

/// Words that became a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Where they stand in the query.
    pub(super) bytes: Range<usize>,
    /// Whether they are a number.
    pub(super) is_number: bool,
}

/// All that a query says that is no order.
#[derive(Clone, Debug, Default)]
pub(super) struct Moods {
    findings: Vec<Finding>,
}

impl Moods {
    /// Reads a query.
    pub(super) fn read(query: &str, tokens: &[Token], vocabulary: &Vocabulary) -> Self {
        let texts = Texts::read(tokens);
        let reader =
            Reader { query, tokens, vocabulary, texts: &texts, ends: &ends(tokens, vocabulary) };
        let mut findings = Vec::new();
        for sentence in sentences(tokens) {
            reader.sentence(sentence, &mut findings);
        }
        Self { findings }
    }

    /// Returns why a tool is not to be called for the words between two bytes of the query, some of
    /// which became values, where that was noted.
    ///
    /// A tool that only looks by its name may be asked, and told what to look with: `if the radius is
    /// 5 m` gives it a number, `if it rains` does not.
    pub(super) fn against(
        &self,
        profile: &Profile,
        bytes: &Range<usize>,
        taken: &[Taken],
    ) -> Option<Problem> {
        if profile.tool.effect == Effect::Read {
            return None;
        }
        let acts = profile.acts();
        let share = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
        let holds = |it: &&Finding| {
            let is_meant = match it.mood {
                Mood::Denied => true,
                Mood::Conditional => {
                    let is_given = |at: &Taken| at.is_number && share(&at.bytes, &it.clause);
                    acts || !taken.iter().any(is_given)
                }
                Mood::Given | Mood::Asked | Mood::Told => acts,
            };
            let is_read = !it.is_in_text
                || bytes.start >= it.scope.start
                || taken.iter().any(|at| share(&at.bytes, &it.scope));
            is_meant && is_read && share(&it.scope, bytes) && !it.is_excused(profile)
        };
        let found = self.findings.iter().find(holds)?;
        let (tool, said) = (profile.name.clone(), found.said.clone());
        let order = explain::order(profile);
        let is_final = acts || found.mood != Mood::Conditional;
        Some(Problem::NoOrder { tool, said, order, mood: found.mood, is_final })
    }

    /// Returns what those who only look leave out.
    pub(super) fn left_out<'m>(
        &'m self,
        called: &'m [&'m Profile],
    ) -> impl Iterator<Item = &'m Finding> {
        let is_meant = |it: &&Finding| !called.iter().any(|profile| it.is_excused(profile));
        self.findings.iter().filter(|it| it.cut.is_some()).filter(is_meant)
    }
}

impl Finding {
    fn is_excused(&self, profile: &Profile) -> bool {
        let names_flag = |stems: &[String]| {
            let flags = profile.frame().slots.iter();
            flags
                .filter(|it| it.property.role == Role::Bool)
                .any(|it| stems.iter().any(|stem| it.words.contains(stem)))
        };
        match &self.excuse {
            Excuse::Nothing => false,
            Excuse::Flag(stems) => names_flag(stems),
            Excuse::Lack(stems) => {
                let is_own = |it: &String| profile.frame().about.contains(it);
                names_flag(stems) || !profile.acts() && stems.iter().any(is_own)
            }
            Excuse::Verb(stem) => profile.owns_verb(stem),
        }
    }
}

/// Cuts where sentences end; `J. Smith` and `No. 5` end none.
fn sentences(tokens: &[Token]) -> Vec<Range<usize>> {
    let mut cuts = vec![0];
    for at in 1..tokens.len() {
        let end = &tokens[at - 1];
        let is_short = at.checked_sub(2).map(|it| &tokens[it]).is_some_and(|it| {
            it.is_capitalised() && it.value.chars().count() < 4 || it.kind == Kind::Number
        });
        let is_end =
            ["!", "?", ";", "\n"].iter().any(|it| end.is_mark(it)) || end.is_mark(".") && !is_short;
        if is_end {
            cuts.push(at);
        }
    }
    let ends = cuts.iter().skip(1).copied().chain([tokens.len()]);
    cuts.iter().copied().zip(ends).map(|(from, to)| from..to).filter(|it| !it.is_empty()).collect()
}

/// Returns for each word where what is denied there ends: at a comma or a `but`, or where something
/// else is ordered.
fn ends(tokens: &[Token], vocabulary: &Vocabulary) -> Vec<usize> {
    let is_order =
        |it: &Token| it.kind == Kind::Word && vocabulary.is_verb(&it.stem) || it.is("please");
    let mut ends = vec![tokens.len(); tokens.len()];
    let mut end = tokens.len();
    for (at, token) in tokens.iter().enumerate().rev() {
        let is_joint = token.is("and") || token.is("then");
        let is_end = [".", "!", "?", ";", "\n", ")", ","].iter().any(|it| token.is_mark(it))
            || token.is("but")
            || is_joint && tokens.get(at + 1).is_some_and(is_order);
        end = if is_end { at } else { end };
        ends[at] = end;
    }
    ends
}

struct Reader<'a> {
    query: &'a str,
    tokens: &'a [Token],
    vocabulary: &'a Vocabulary,
    texts: &'a Texts,
    ends: &'a [usize],
}

impl Reader<'_> {
    fn sentence(&self, sentence: Range<usize>, findings: &mut Vec<Finding>) {
        let (from, to) = (sentence.start, sentence.end);
        let begins = |at: usize| {
            at == from
                || self.tokens.get(at - 1).is_some_and(|it| {
                    it.is_separator() || ["but", "then", "or", "so"].iter().any(|word| it.is(word))
                })
        };
        // What begins in a text may be the text going on, or an order of its own.
        let is_text = self.texts.is_inside(from);
        let (before, mut is_order) = (findings.len(), false);
        for at in from..to {
            let is_inside = self.texts.is_inside(at);
            if is_inside && !is_text {
                continue;
            }
            let is_head = begins(at);
            let found = is_head
                .then(|| self.head(at, to, at == from, &mut is_order))
                .flatten()
                .or_else(|| self.denial(at, to, is_head))
                .or_else(|| self.condition(at, to, is_head));
            let is_in_text = is_inside && !self.forbids(at, from);
            findings.extend(found.map(|it| self.finding(it, at, &sentence, is_in_text)));
        }
        let is_asked =
            self.tokens[to - 1].is_mark("?") && (is_text || !self.texts.is_inside(to - 1));
        if is_asked && !is_order {
            let asked = (Mood::Asked, Excuse::Nothing, None);
            findings.push(self.finding(asked, from, &sentence, is_text));
        }
        // `what is it if …?` asks: nothing waits for the condition.
        let own = &mut findings[before..];
        if own.iter().any(|it| it.mood == Mood::Asked) {
            own.iter_mut()
                .filter(|it| it.mood == Mood::Conditional)
                .for_each(|it| it.mood = Mood::Given);
        }
    }

    /// Returns whether a sentence forbids something with its first words: no text goes on like that.
    fn forbids(&self, at: usize, from: usize) -> bool {
        let word = self.word(at);
        let begin = from + usize::from(SUBJECTS.contains(&self.word(from)));
        let is_modal = at == begin + 1 && is_modal(self.word(begin)) && word == "not";
        (is_modal || at == begin && is_forbidding(word)) && self.is_verb(at + 1)
    }

    fn finding(
        &self,
        (mood, excuse, cut): (Mood, Excuse, Option<Range<usize>>),
        at: usize,
        sentence: &Range<usize>,
        is_in_text: bool,
    ) -> Finding {
        let cut = cut.filter(|_| !is_in_text);
        let last = sentence.end.min(at + SHOWN).max(at + 1) - 1;
        let bytes = self.tokens[at].start..self.tokens[last].end;
        let said = self.query.get(bytes).unwrap_or_default().trim_end_matches(['?', '.', ',']);
        let scope = self.tokens[sentence.start].start..self.tokens[sentence.end - 1].end;
        let end = self.clause_end(at + 1, sentence.end).max(at + 1);
        let clause = self.tokens[at].start..self.tokens[end - 1].end;
        Finding { mood, excuse, scope, clause, is_in_text, said: explain::shown(said), cut }
    }

    fn word(&self, at: usize) -> &str {
        self.tokens.get(at).filter(|it| it.kind == Kind::Word).map_or("", |it| it.lower.as_str())
    }

    fn is_verb(&self, at: usize) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|it| it.kind == Kind::Word && self.vocabulary.is_verb(&it.stem))
    }

    /// Returns where what is denied ends, at `to` at the latest.
    fn clause_end(&self, from: usize, to: usize) -> usize {
        self.ends.get(from).copied().unwrap_or(to).min(to)
    }
}
