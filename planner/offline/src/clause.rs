//! A query cut into clauses, each of which asks for one kind of call.
//!
//! A comma or an `and` ends a clause only where something that can begin one follows; inside a
//! text (`titled …`, `saying …`) the evidence must be stronger, so that titles keep their commas.

use super::{
    profile::Vocabulary,
    token::{Kind, Token},
    words,
};

/// Clauses that a query may have: people do not write more.
pub(super) const CLAUSES: usize = 256;
/// How far behind a verb its object is looked for.
const REACH: usize = 5;

/// Words that may stand between two clauses, and that may make one polite.
const JOINT: usize = 32;

/// A part of a query that asks for something.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Clause {
    /// Its words, without what only makes it polite.
    pub(super) tokens: Vec<Token>,
    /// Whether it begins with its verb.
    pub(super) has_verb: bool,
    /// Whether it was asked for after the one before it.
    pub(super) is_sequel: bool,
}

impl Clause {
    /// Returns which bytes of the query its words lie between.
    pub(super) fn bytes(&self) -> Option<std::ops::Range<usize>> {
        let start = self.tokens.iter().map(|it| it.start).min()?;
        let end = self.tokens.iter().map(|it| it.end).max()?;
        Some(start..end)
    }

    /// Returns the clause as it was written.
    pub(super) fn text<'q>(&self, query: &'q str) -> &'q str {
        match (self.tokens.first(), self.tokens.last()) {
            (Some(first), Some(last)) => query.get(first.start..last.end).unwrap_or_default(),
            _ => "",
        }
    }
}

/// How two clauses hang together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Link {
    #[default]
    And,
    Then,
    /// `… after creating …`: what follows comes first.
    Before,
}

/// What stands between two clauses.
#[derive(Clone, Copy, Debug, Default)]
struct Joint {
    end: usize,
    is_hard: bool,
    is_sentence: bool,
    link: Link,
}

/// Cuts a query into clauses, in the order in which they are to be carried out.
pub(super) fn clauses(tokens: &[Token], vocabulary: &Vocabulary) -> Vec<Clause> {
    let splitter = Splitter { tokens, vocabulary };
    let is_question = tokens.first().is_some_and(|it| {
        words::is_filler(&it.lower) || words::families(&it.stem).contains(&words::Family::Get)
    });
    let mut clauses: Vec<Clause> = Vec::new();
    for (range, link) in splitter.split() {
        let Some(mut clause) = splitter.trim(&tokens[range], is_question) else { continue };
        clause.is_sequel = link == Link::Then && !clauses.is_empty();
        match (link, clauses.pop()) {
            (Link::Before, Some(last)) => {
                let is_sequel = last.is_sequel;
                clauses.push(Clause { is_sequel, ..clause });
                clauses.push(Clause { is_sequel: true, ..last });
            }
            (_, last) => {
                clauses.extend(last);
                clauses.push(clause);
            }
        }
    }
    clauses
}

struct Splitter<'a> {
    tokens: &'a [Token],
    vocabulary: &'a Vocabulary,
}

impl Splitter<'_> {
    fn split(&self) -> Vec<(std::ops::Range<usize>, Link)> {
        let mut parts = Vec::new();
        let (mut start, mut link, mut at) = (0, Link::And, 0);
        let mut text = OpenText::default();
        while at < self.tokens.len() {
            text.step(self, at);
            if at > start
                && let Some((end, next)) = self.boundary(start, at, text.is_open())
            {
                parts.push((start..at, link));
                (start, link, at) = (end, next, end);
                text = OpenText::default();
                continue;
            }
            at += 1;
        }
        parts.push((start..self.tokens.len(), link));
        parts
    }

    /// Returns where the next clause begins if one ends at `at`.
    fn boundary(&self, start: usize, at: usize, is_open: bool) -> Option<(usize, Link)> {
        let is_numbering = at == start + 1
            && self.tokens[start].kind == Kind::Number
            && self.tokens[at].is_mark(".");
        let joint = self.joint(at).filter(|_| !is_numbering)?;
        let begin = self.past_fillers(joint.end);
        if self.continues(begin) {
            return None;
        }
        if joint.link == Link::Before {
            return Some((begin, Link::Before));
        }
        let is_then = joint.link == Link::Then;
        let splits = if joint.is_hard {
            true
        } else if is_open {
            self.begins_surely(begin) || (is_then && self.is_noun_near(begin))
        } else {
            is_then || joint.is_sentence || self.begins(begin)
        };
        splits.then_some((joint.end, joint.link))
    }

    /// Returns whether `at` only says more about what came before: `email: …`, `her name is …`.
    fn continues(&self, at: usize) -> bool {
        let is_cue =
            |at: usize| self.word(at).is_some_and(|it| self.vocabulary.cues.contains(&it.stem));
        let is_owned = self
            .word(at)
            .is_some_and(|it| matches!(it.lower.as_str(), "his" | "her" | "its" | "their"));
        let is_assigned =
            self.tokens.get(at + 1).is_some_and(|it| it.is_mark(":") || it.is_mark("="));
        (is_cue(at) && is_assigned) || (is_owned && is_cue(at + 1))
    }

    /// Reads what may stand between clauses, from `at` on.
    fn joint(&self, at: usize) -> Option<Joint> {
        let mut joint = Joint { end: at, ..Joint::default() };
        while let Some(token) = self.tokens.get(joint.end).filter(|_| joint.end - at < JOINT) {
            let is_first = joint.end == at;
            match token.value.as_str() {
                ";" | "\n" if token.kind == Kind::Mark => joint.is_hard = true,
                "." | "!" | "?" if token.kind == Kind::Mark => {
                    joint.is_sentence |= !self.is_initial(joint.end);
                }
                "," | "&" if token.kind == Kind::Mark => (),
                "-" | "*" | "•" if token.kind == Kind::Mark && joint.is_hard => (),
                _ => match token.lower.as_str() {
                    "and" | "plus" => (),
                    "then" => joint.link = Link::Then,
                    "next" | "finally" | "afterwards" | "later" | "lastly" if !is_first => {
                        joint.link = Link::Then;
                    }
                    "also" | "please" if !is_first => (),
                    "after"
                        if self.is_word(joint.end + 1, "that")
                            || self.is_word(joint.end + 1, "this") =>
                    {
                        joint.link = Link::Then;
                        joint.end += 1;
                    }
                    "after" if is_first && self.is_event(joint.end + 1) => {
                        joint.link = Link::Before;
                        joint.end += 1;
                        return Some(joint);
                    }
                    "before" if is_first && self.is_event(joint.end + 1) => joint.link = Link::Then,
                    _ => break,
                },
            }
            joint.end += 1;
        }
        let is_initial_only = joint.end == at + 1 && self.is_initial(at);
        (joint.end > at && joint.end < self.tokens.len() && !is_initial_only).then_some(joint)
    }

    fn is_word(&self, at: usize, word: &str) -> bool {
        self.tokens.get(at).is_some_and(|it| it.is(word))
    }

    /// Returns whether the full stop at `at` only shortens a name: `J. Smith`, `Dr. No`.
    fn is_initial(&self, at: usize) -> bool {
        let is_stop = self.tokens.get(at).is_some_and(|it| it.is_mark("."));
        let before = at.checked_sub(1).and_then(|it| self.tokens.get(it));
        let is_name = self.tokens.get(at + 1).is_some_and(|it| {
            it.is_capitalised()
                && !self.vocabulary.is_verb(&it.stem)
                && !words::is_filler(&it.lower)
        });
        is_stop
            && is_name
            && before.is_some_and(|it| {
                it.is_capitalised()
                    && (it.value.chars().count() == 1
                        || ["dr", "mr", "mrs", "ms", "st"].contains(&it.lower.as_str()))
            })
    }

    fn past_fillers(&self, mut at: usize) -> usize {
        let most = at + JOINT;
        while self
            .tokens
            .get(at)
            .is_some_and(|it| it.kind == Kind::Word && words::is_filler(&it.lower))
            && at < most
        {
            at += 1;
        }
        at
    }

    /// Returns whether something to do is spoken of: `creating …`, `you create …`.
    fn is_event(&self, at: usize) -> bool {
        let is_told =
            self.word(at).is_some_and(|it| matches!(it.lower.as_str(), "you" | "we" | "i"));
        self.is_gerund(at)
            || (is_told && self.word(at + 1).is_some_and(|it| self.vocabulary.is_verb(&it.stem)))
    }

    fn is_gerund(&self, at: usize) -> bool {
        self.tokens
            .get(at)
            .is_some_and(|it| it.lower.ends_with("ing") && self.vocabulary.is_verb(&it.stem))
    }

    fn word(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at).filter(|it| it.kind == Kind::Word)
    }

    /// Returns whether a clause may begin at `at`, where no text is under way.
    fn begins(&self, at: usize) -> bool {
        let Some(token) = self.word(at) else { return false };
        if self.begins_surely(at) {
            return true;
        }
        let is_cue = self.vocabulary.cues.contains(&token.stem);
        if self.vocabulary.is_verb(&token.stem) && !is_cue && !words::is_preposition(&token.lower) {
            return !matches!(
                token.lower.as_str(),
                "is" | "are" | "who" | "which" | "when" | "where"
            );
        }
        self.is_noun_phrase(at) || self.is_unknown_verb(at)
    }

    /// Returns whether a clause certainly begins at `at`: a verb with an object in reach.
    fn begins_surely(&self, at: usize) -> bool {
        let Some(token) = self.word(at) else { return false };
        let is_verb = self.vocabulary.is_verb(&token.stem) && !words::is_preposition(&token.lower);
        if is_verb
            && !matches!(
                token.lower.as_str(),
                "is" | "are" | "who" | "which" | "when" | "where" | "what" | "how"
            )
        {
            return self.has_object(at + 1);
        }
        let is_noun = self.vocabulary.nouns.contains(&token.stem);
        let is_tied = self.word(at + 1).is_some_and(|it| words::is_preposition(&it.lower));
        is_noun && is_tied && self.has_object(at + 2)
    }

    fn has_object(&self, from: usize) -> bool {
        self.tokens[from.min(self.tokens.len())..]
            .iter()
            .take(REACH)
            .take_while(|it| {
                !it.is_separator() && !it.is("then") && !is_content_cue(it) && !is_name_cue(it)
            })
            .any(|it| {
                it.kind == Kind::Id
                    || (it.kind == Kind::Word
                        && (self.vocabulary.things.contains(&it.stem)
                            || words::is_pronoun(&it.lower)
                            || words::is_result(&it.stem)))
            })
    }

    /// Returns whether a thing is named at `at`, so that the verb before holds for it too.
    fn is_noun_phrase(&self, mut at: usize) -> bool {
        while self.word(at).is_some_and(|it| {
            words::is_determiner(&it.lower)
                || matches!(it.lower.as_str(), "his" | "her" | "its" | "their")
        }) {
            at += 1;
        }
        self.word(at).is_some_and(|it| {
            self.vocabulary.nouns.contains(&it.stem) && !self.vocabulary.cues.contains(&it.stem)
        })
    }

    fn is_noun_near(&self, at: usize) -> bool {
        self.is_noun_phrase(at)
            || self.word(at).is_some_and(|it| self.vocabulary.nouns.contains(&it.stem))
    }

    /// Returns whether `at` looks like a verb that no tool knows: `frobnicate the blog`.
    fn is_unknown_verb(&self, at: usize) -> bool {
        let Some(token) = self.word(at) else { return false };
        let is_known = self.vocabulary.cues.contains(&token.stem)
            || words::is_preposition(&token.lower)
            || words::is_idle(&token.lower)
            || words::is_pronoun(&token.lower)
            || token.is_capitalised();
        let Some(next) = self.word(at + 1).filter(|_| !is_known) else { return false };
        words::is_pronoun(&next.lower)
            || (matches!(next.lower.as_str(), "the" | "that" | "a" | "an" | "all")
                && self.has_object(at + 2))
    }

    /// Takes away what only makes a clause polite or numbers it.
    fn trim(&self, tokens: &[Token], is_question: bool) -> Option<Clause> {
        let mut from = 0;
        while let Some(token) = tokens.get(from) {
            let is_number = token.kind == Kind::Number
                && tokens.get(from + 1).is_some_and(|it| it.is_mark(".") || it.is_mark(")"));
            let is_noise = token.kind == Kind::Mark
                || is_number
                || (token.kind == Kind::Word && words::is_filler(&token.lower));
            if !is_noise {
                break;
            }
            from += 1;
        }
        let mut to = tokens.len();
        while let Some(token) =
            to.checked_sub(1).filter(|it| *it > from).and_then(|it| tokens.get(it))
        {
            let is_noise = [",", ".", ";", "\n"].iter().any(|it| token.is_mark(it))
                || (is_question && token.is_mark("?"))
                || ["please", "thanks", "and"].iter().any(|it| token.is(it));
            if !is_noise {
                break;
            }
            to -= 1;
        }
        let tokens = tokens.get(from..to).filter(|it| it.iter().any(|it| it.kind != Kind::Mark))?;
        let has_verb = tokens.first().is_some_and(|it| self.is_leading_verb(it, tokens.get(1)));
        Some(Clause { tokens: tokens.to_vec(), has_verb, is_sequel: false })
    }

    /// Returns whether a clause begins with a verb and not with a noun that looks like one.
    fn is_leading_verb(&self, first: &Token, next: Option<&Token>) -> bool {
        let is_noun = self.vocabulary.nouns.contains(&first.stem);
        let is_tied =
            next.is_none_or(|it| words::is_preposition(&it.lower) || it.kind == Kind::Mark);
        first.kind == Kind::Word
            && self.vocabulary.is_verb(&first.stem)
            && !words::is_determiner(&first.lower)
            && !(is_noun && is_tied && !self.vocabulary.verbs.contains(&first.stem))
    }
}

/// Whether a text is under way that commas do not end.
#[derive(Clone, Copy, Debug, Default)]
enum OpenText {
    #[default]
    None,
    /// A cue was there, its value not yet.
    Cued {
        is_content: bool,
    },
    Open {
        is_content: bool,
    },
}

impl OpenText {
    fn is_open(self) -> bool {
        matches!(self, Self::Open { .. })
    }

    fn step(&mut self, splitter: &Splitter<'_>, at: usize) {
        let token = &splitter.tokens[at];
        let is_typed =
            !matches!(token.kind, Kind::Word | Kind::Mark | Kind::Path | Kind::Number | Kind::Time);
        let is_link = ["is", "of", "to", "as"].iter().any(|it| token.is(it))
            || token.is_mark(":")
            || token.is_mark("=");
        *self = match *self {
            Self::Cued { .. } if token.is_separator() || token.is("then") => Self::None,
            Self::Cued { .. } if token.kind != Kind::Word && token.kind != Kind::Mark => Self::None,
            Self::Cued { is_content } if is_link => Self::Cued { is_content },
            Self::Cued { is_content } => Self::Open { is_content },
            Self::Open { is_content: false } if is_typed => Self::None,
            open => open,
        };
        if token.is_mark(":") && matches!(self, Self::None) {
            *self = Self::Cued { is_content: true };
        }
        let is_inside = matches!(self, Self::Open { is_content: true });
        if token.kind == Kind::Word && !is_inside {
            let is_content = is_content_cue(token);
            if is_content || is_name_cue(token) || splitter.vocabulary.cues.contains(&token.stem) {
                *self = Self::Cued { is_content };
            }
        }
    }
}

/// Returns whether a word announces what a text says.
pub(super) fn is_content_cue(token: &Token) -> bool {
    matches!(
        token.lower.as_str(),
        "saying"
            | "says"
            | "say"
            | "about"
            | "content"
            | "contents"
            | "text"
            | "body"
            | "message"
            | "reading"
    )
}

/// Returns whether a word announces what something is called.
pub(super) fn is_name_cue(token: &Token) -> bool {
    matches!(
        token.lower.as_str(),
        "titled" | "entitled" | "called" | "named" | "title" | "captioned"
    )
}
