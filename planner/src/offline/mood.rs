//! What a query says that is no order: what is not to be done, what only under a condition, what
//! is asked, and what is told. No tool that does anything is called for such words.
//!
//! It is read off the words alone, once, before any tool is known: each [`Finding`] holds for the
//! sentence in which it stands. Quotations say nothing here, and neither does what `saying …` begins.

use std::ops::Range;

use shared::tool::Effect;

use super::{
    explain::{self, Problem},
    profile::{Profile, Vocabulary},
    property::Role,
    text::Texts,
    token::{Kind, Token},
    words,
};

/// Words of a finding that a message shows.
const SHOWN: usize = 8;
/// How far behind a denial the name of the flag stands that it denies.
const FLAG: usize = 3;

/// Why words are no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// What is not to be done: `do not …`, `but not …`, `undo …`.
    Denied,
    /// What is to be done only if something holds.
    Conditional,
    /// What is asked.
    Asked,
    /// What is told: what somebody did, or wishes.
    Told,
}

/// What excuses a finding, once a tool is known.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Excuse {
    Nothing,
    /// The stems behind a `not` or `without`: one of them may name a flag, which it then denies.
    Flag(Vec<String>),
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
    /// The words, as they were written.
    pub(super) said: String,
    /// The tokens that a tool which only looks may leave out.
    pub(super) cut: Option<Range<usize>>,
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
        let reader = Reader { query, tokens, vocabulary, texts: &texts };
        let mut findings = Vec::new();
        for sentence in sentences(tokens) {
            reader.sentence(sentence, &mut findings);
        }
        Self { findings }
    }

    /// Returns why a tool is not to be called for the words between two bytes of the query.
    pub(super) fn against(&self, profile: &Profile, bytes: &Range<usize>) -> Option<Problem> {
        if profile.tool.effect == Effect::Read {
            return None;
        }
        let holds = |it: &&Finding| {
            it.scope.start < bytes.end
                && bytes.start < it.scope.end
                && (it.mood != Mood::Asked || profile.acts())
                && !it.is_excused(profile)
        };
        let found = self.findings.iter().find(holds)?;
        let (tool, said) = (profile.name.clone(), found.said.clone());
        let order = explain::order(profile);
        Some(Problem::NoOrder { tool, said, order, mood: found.mood })
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
        match &self.excuse {
            Excuse::Nothing => false,
            Excuse::Flag(stems) => profile
                .frame()
                .slots
                .iter()
                .filter(|it| it.property.role == Role::Bool)
                .any(|it| stems.iter().any(|stem| it.words.contains(stem))),
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

struct Reader<'a> {
    query: &'a str,
    tokens: &'a [Token],
    vocabulary: &'a Vocabulary,
    texts: &'a Texts,
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
        let is_text = self.texts.is_inside(from);
        let mut is_order = false;
        for at in from..to {
            if self.texts.is_inside(at) && !(is_text && at == from) {
                continue;
            }
            let is_head = begins(at);
            let found = (is_head && !is_text)
                .then(|| self.head(at, to, at == from, &mut is_order))
                .flatten()
                .or_else(|| self.denial(at, to, is_head, is_text))
                .or_else(|| self.condition(at, to, is_head).filter(|_| !is_text));
            findings.extend(found.map(|it| self.finding(it, at, &sentence)));
        }
        let is_asked = self.tokens[to - 1].is_mark("?") && !self.texts.is_inside(to - 1);
        if is_asked && !is_order && !is_text {
            findings.push(self.finding((Mood::Asked, Excuse::Nothing, None), from, &sentence));
        }
    }

    fn finding(
        &self,
        (mood, excuse, cut): (Mood, Excuse, Option<Range<usize>>),
        at: usize,
        sentence: &Range<usize>,
    ) -> Finding {
        let last = sentence.end.min(at + SHOWN).max(at + 1) - 1;
        let bytes = self.tokens[at].start..self.tokens[last].end;
        let said = self.query.get(bytes).unwrap_or_default().trim_end_matches(['?', '.', ',']);
        let scope = self.tokens[sentence.start].start..self.tokens[sentence.end - 1].end;
        Finding { mood, excuse, scope, said: explain::shown(said), cut }
    }

    fn word(&self, at: usize) -> &str {
        self.tokens.get(at).filter(|it| it.kind == Kind::Word).map_or("", |it| it.lower.as_str())
    }

    fn is_verb(&self, at: usize) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|it| it.kind == Kind::Word && self.vocabulary.is_verb(&it.stem))
    }

    /// Skips what makes an order polite, and returns where the order itself begins and whether
    /// words such as `could you` say that it is one.
    fn politeness(&self, at: usize) -> (usize, bool) {
        let (mut at, mut is_told) = (at, false);
        loop {
            let (word, next) = (self.word(at), self.word(at + 1));
            let wants = matches!(next, "want" | "need" | "wish" | "like" | "love");
            let would =
                matches!(next, "would" | "'d") && matches!(self.word(at + 2), "like" | "love");
            let len = match word {
                "can" | "could" | "would" | "will" if next == "you" => 2,
                "i" | "we" if would => 3,
                "i" | "we" | "i'd" | "we'd" if wants => 2,
                "let" if next == "us" => 2,
                "let's" | "lets" => 1,
                _ => 0,
            };
            if len > 0 {
                is_told = true;
                at += len;
                continue;
            }
            let is_told_to = is_told && matches!(word, "to" | "you" | "mind" | "us");
            let is_mark = self.tokens.get(at).is_some_and(|it| {
                it.kind == Kind::Mark && !matches!(it.value.as_str(), "?" | "!" | ".")
                    || it.kind == Kind::Number
                        && self
                            .tokens
                            .get(at + 1)
                            .is_some_and(|it| it.is_mark(".") || it.is_mark(")"))
            });
            if !is_polite(word) && !is_told_to && !is_mark {
                return (at, is_told);
            }
            at += 1;
        }
    }

    /// Reads the beginning of a sentence, or of a part of it.
    fn head(
        &self,
        at: usize,
        to: usize,
        is_first: bool,
        is_order: &mut bool,
    ) -> Option<(Mood, Excuse, Option<Range<usize>>)> {
        let (begin, is_told) = self.politeness(at);
        if begin >= to {
            return None;
        }
        let (word, next) = (self.word(begin), self.word(begin + 1));
        *is_order |= is_first && is_told;
        if is_told {
            return None;
        }
        let is_subject = |word: &str| SUBJECTS.split_whitespace().any(|it| it == word);
        let asked = Some((Mood::Asked, Excuse::Nothing, None));
        let told = Some((Mood::Told, Excuse::Nothing, None));
        let is_auxiliary = AUXILIARIES.split_whitespace().any(|it| it == word);
        if is_auxiliary && (is_first || is_subject(next)) {
            return asked;
        }
        if matches!(word, "do" | "have") && is_subject(next) {
            return asked;
        }
        if is_first && QUESTIONS.split_whitespace().any(|it| it == word) {
            return asked;
        }
        if matches!(word, "yesterday" | "earlier" | "previously" | "recently" | "already")
            && is_first
        {
            return told;
        }
        if is_subject(word) && (is_first || self.is_past(begin + 1)) {
            return told;
        }
        let contracted = ["'m", "'ve", "'re", "'ll"].iter().any(|it| word.ends_with(it));
        if contracted && is_first {
            return told;
        }
        let is_somebody = self.tokens[begin].is_capitalised() && !self.is_verb(begin);
        let is_passive = self.word(begin + 2) == "by";
        (is_first && is_somebody && self.is_past(begin + 1) && !is_passive)
            .then_some(told)
            .flatten()
    }

    /// Returns whether a verb at `at` says what was done: `deleted`, `have deleted`.
    fn is_past(&self, at: usize) -> bool {
        let word = self.word(at);
        let is_past = word.ends_with("ed") && self.is_verb(at)
            || matches!(
                word,
                "sent" | "made" | "wrote" | "built" | "put" | "gave" | "told" | "said"
            );
        is_past || matches!(word, "have" | "has" | "had" | "was" | "were" | "already")
    }

    /// Reads a word that denies what is said with it.
    fn denial(
        &self,
        at: usize,
        to: usize,
        is_head: bool,
        is_text: bool,
    ) -> Option<(Mood, Excuse, Option<Range<usize>>)> {
        let (word, next) = (self.word(at), self.word(at + 1));
        if word.is_empty() {
            return None;
        }
        let before = at.checked_sub(1).map_or("", |it| self.word(it));
        let (begin, _) = if is_head { self.politeness(at) } else { (at, false) };
        let is_contracted =
            word.ends_with("n't") || matches!(word, "dont" | "doesnt" | "cannot" | "wont");
        let is_forbidden =
            is_contracted || word == "never" || word == "not" && (is_modal(before) || next == "to");
        if is_forbidden {
            // `I don't know` denies no order, and neither does a text that goes on.
            let verb = if word == "not" && next == "to" { at + 2 } else { at + 1 };
            let wants = matches!(self.word(verb), "want" | "wish" | "need" | "like");
            if is_text && !self.is_verb(verb) {
                return None;
            }
            let start = if word == "not" && is_modal(before) { at - 1 } else { at };
            let start = if wants && start > 0 { start - 1 } else { start };
            let cut = (is_head || wants || before == "but" || self.is_verb(verb))
                .then(|| start..self.clause_end(at + 1, to));
            return Some((Mood::Denied, Excuse::Nothing, cut));
        }
        if is_text {
            return None;
        }
        let is_two = matches!(
            (word, next),
            ("other" | "rather", "than") | ("instead", "of") | ("apart", "from") | ("but", "not")
        );
        let is_comparison = matches!(
            next,
            "only"
                | "more"
                | "less"
                | "later"
                | "earlier"
                | "fewer"
                | "longer"
                | "exceeding"
                | "over"
                | "under"
        );
        let is_not = word == "not" && before != "but" && !is_comparison;
        let is_without = matches!(word, "without" | "except" | "excluding" | "neither" | "nor");
        let is_no = word == "no" && !is_comparison && self.is_no(at);
        if is_two || is_not || is_without || is_no {
            let behind = self.tokens[at + 1..to.max(at + 1)].iter();
            let stems: Vec<String> = behind
                .filter(|it| it.kind == Kind::Word)
                .take(FLAG)
                .map(|it| it.stem.clone())
                .collect();
            let is_tail = is_two || matches!(word, "without" | "except" | "excluding") || is_head;
            let cut = (is_tail && !is_no).then(|| at..self.clause_end(at + 1, to));
            return Some((Mood::Denied, Excuse::Flag(stems), cut));
        }
        is_head.then(|| self.ending(begin)).flatten()
    }

    /// Reads a verb that ends or undoes something.
    fn ending(&self, at: usize) -> Option<(Mood, Excuse, Option<Range<usize>>)> {
        const ENDS: &str = "undo revert reverse rollback cancel stop avoid prevent refrain abort skip forget ignore halt";
        let begin = self.tokens.get(at).filter(|it| it.kind == Kind::Word)?;
        let is_end = ENDS.split_whitespace().any(|it| it == begin.lower);
        is_end.then(|| (Mood::Denied, Excuse::Verb(begin.stem.clone()), None))
    }

    /// Returns whether a `no` denies what follows: not `No. 5`, `The No Club`, `refundable: no`.
    fn is_no(&self, at: usize) -> bool {
        let token = &self.tokens[at];
        let is_title = token.is_capitalised() && at > 0;
        let is_value =
            self.tokens.get(at + 1).is_none_or(|it| it.kind != Kind::Word || it.is_separator());
        let is_told = at
            .checked_sub(1)
            .map(|it| &self.tokens[it])
            .is_some_and(|it| it.is_mark(":") || it.is_mark("="));
        !is_title && !is_value && !is_told
    }

    /// Reads a word that begins a condition.
    fn condition(
        &self,
        at: usize,
        to: usize,
        is_head: bool,
    ) -> Option<(Mood, Excuse, Option<Range<usize>>)> {
        let (word, next) = (self.word(at), self.word(at + 1));
        let is_if = matches!(
            word,
            "if" | "unless"
                | "until"
                | "till"
                | "whenever"
                | "provided"
                | "providing"
                | "assuming"
                | "otherwise"
                | "whether"
        );
        let is_phrase = matches!(
            (word, next),
            ("as" | "so", "long")
                | ("in", "case")
                | ("or", "else")
                | ("depending", "on")
                | ("only", "when")
        );
        let is_somebody = matches!(
            next,
            "i" | "he"
                | "she"
                | "they"
                | "someone"
                | "somebody"
                | "everyone"
                | "everybody"
                | "it"
                | "we"
                | "you"
        );
        // `after you create …` is an order of clauses; `after I approve` waits for somebody.
        let is_event = matches!(next, "i" | "we" | "you") && self.is_verb(at + 2);
        let is_after =
            matches!(word, "after" | "before" | "once" | "while") && is_somebody && !is_event;
        let is_when =
            word == "when" && !(is_head && at + 1 == to) && !self.tokens.get(at + 1)?.is_mark(":");
        (is_if || is_phrase || is_after || is_when).then_some((
            Mood::Conditional,
            Excuse::Nothing,
            None,
        ))
    }

    /// Returns where what is denied ends: at a comma or a `but`, or where something else is ordered.
    fn clause_end(&self, from: usize, to: usize) -> usize {
        (from..to)
            .find(|at| {
                let token = &self.tokens[*at];
                let is_joint = token.is("and") || token.is("then");
                let is_end = [".", "!", "?", ";", "\n", ")"].iter().any(|it| token.is_mark(it));
                is_end
                    || token.is("but")
                    || token.is_mark(",")
                    || is_joint && (self.is_verb(at + 1) || self.word(at + 1) == "please")
            })
            .unwrap_or(to)
    }
}

/// Who may be said to do something.
const SUBJECTS: &str =
    "i we he she they you it someone somebody anyone anybody everyone everybody nobody";
/// Words that questions begin with, and that are no orders.
const AUXILIARIES: &str = "did does is are was were has had should shall may might can could would will am isn't \
                           aren't wasn't weren't didn't doesn't hasn't haven't";
/// The same, that no subject needs to follow.
const QUESTIONS: &str =
    "who what what's whats which where why how whose who's where's how's when's";

/// Returns whether a word is one that `not` may follow to deny a verb.
fn is_modal(word: &str) -> bool {
    const MODALS: &str = "do does did should must can could would will may shall";
    MODALS.split_whitespace().any(|it| it == word)
}

/// Returns whether a word only makes an order polite or numbers it.
fn is_polite(word: &str) -> bool {
    const POLITE: &str = "please kindly just now also then next finally first firstly second secondly third lastly \
                          afterwards afterward later hey hello hi ok okay so and but or thanks go ahead help me \
                          after that step";
    !word.is_empty() && (POLITE.split_whitespace().any(|it| it == word)) && !words::is_pronoun(word)
}
