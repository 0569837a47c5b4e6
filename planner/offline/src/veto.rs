//! Words that take something away from an order, leave it open, or take it back.
//!
//! What was understood of a query may be right but for one of them: `delete all files but a.txt`,
//! `book Rome or Oslo`, `… Never mind.` What changes the world is not done then. Inside a value, and
//! between quotation marks, they are text.

use std::ops::Range;

use serde_json::{Map, Value};

use super::{
    profile::Profile,
    property::Role,
    token::{Kind, Token},
    words,
};

/// A value's bytes, and where the last ends of those that begin no later.
type Reach = (Range<usize>, usize);

/// Words that leave something out, or open.
const OPEN: [&str; 12] = [
    "but",
    "except",
    "excepting",
    "excluding",
    "besides",
    "unless",
    "otherwise",
    "instead",
    "or",
    "nor",
    "either",
    "neither",
];
/// The same in two words.
const OPEN_PAIRS: [(&str, &str); 5] =
    [("other", "than"), ("rather", "than"), ("apart", "from"), ("aside", "from"), ("save", "for")];
/// Words before a thing that is not meant, or before a time that is not the one.
const BESIDE: [&str; 6] = ["after", "before", "behind", "beside", "near", "opposite"];
/// Words by which a sentence takes back what was said, or asks whether it is to be done.
const BACK: &str = "don't dont never nevermind wait stop cancel no nope kidding scratch undo not forget ignore \
                    actually joking oops abort hold revert wrong should shall";
/// What else stands in such a sentence.
const BACK_WITH: &str = "mind it that do this just now yet sorry please but ok okay or my mistake on second thought am \
                         i i'm we was only all the order of really";
/// Words by which a sentence puts off what was said.
const LATER: [&str; 2] = ["wait", "hold"];
/// Verbs that the word behind them turns into the opposite.
const TURNED: [&str; 8] = ["turn", "switch", "power", "put", "log", "sign", "lock", "check"];
/// Words that do so, and what does the opposite.
const OPPOSITES: [(&str, &str); 6] =
    [("on", "off"), ("off", "on"), ("up", "down"), ("down", "up"), ("in", "out"), ("out", "in")];
/// Words up to the one that turns a verb.
const REACH: usize = 4;

/// Finds the first words, by their bytes, for which the tools that act are not told this.
pub(super) fn find(
    query: &str,
    tokens: &[Token],
    calls: &[(&Profile, Map<String, Value>)],
) -> Option<Range<usize>> {
    let acting: Vec<&Profile> = calls.iter().map(|it| it.0).filter(|it| it.acts()).collect();
    let all = calls.iter().flat_map(|(_, told)| told.values());
    let contents = calls.iter().flat_map(|(profile, told)| {
        let slots = profile.frame().slots.iter();
        let slots = slots.filter(|it| it.property.role == Role::Content);
        slots.filter_map(|it| told.get(it.path.first()?))
    });
    let (values, contents) = (Values::of(query, all), Values::of(query, contents));
    let veto = Veto { tokens, acting: &acting, values: &values, contents: &contents };
    let found = (0..tokens.len())
        .find_map(|at| veto.open(at).or_else(|| veto.beside(at)).or_else(|| veto.turned(at)));
    let found = found.or_else(|| veto.taken_back())?;
    Some(tokens[found.start].start..tokens[found.end - 1].end)
}

/// Where the values stand in a query that calls are told: in their order, each with the last end up
/// to it.
struct Values(Vec<Reach>);

impl Values {
    fn of<'a>(query: &str, values: impl Iterator<Item = &'a Value>) -> Self {
        let mut texts = Vec::new();
        values.for_each(|it| collect(it, &mut texts));
        texts.sort_unstable();
        texts.dedup();
        let at = texts.iter().filter(|it| !it.is_empty()).flat_map(|text| {
            query.match_indices(text.as_str()).map(|(at, text)| at..at + text.len())
        });
        // `y` is no part of `you`.
        let is_whole = |it: &Range<usize>| {
            !query[..it.start].ends_with(char::is_alphanumeric)
                && !query[it.end..].starts_with(char::is_alphanumeric)
        };
        let mut ranges: Vec<Range<usize>> = at.filter(is_whole).collect();
        ranges.sort_unstable_by_key(|it| (it.start, it.end));
        let last = ranges.into_iter().scan(0, |last, it| {
            *last = it.end.max(*last);
            Some((it, *last))
        });
        Self(last.collect())
    }

    /// Returns the values that begin before a byte, and those that begin there.
    fn split(&self, at: usize) -> (&[Reach], &[Reach]) {
        let from = self.0.partition_point(|it| it.0.start < at);
        let to = self.0.partition_point(|it| it.0.start <= at);
        (&self.0[..from], &self.0[from..to])
    }

    /// Returns whether a word is part of a value.
    fn has(&self, token: &Token) -> bool {
        let (before, here) = self.split(token.start);
        before.last().is_some_and(|it| it.1 >= token.end)
            || here.last().is_some_and(|it| it.0.end > token.end)
    }

    fn begins(&self, token: &Token) -> bool {
        !self.split(token.start).1.is_empty()
    }
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Number(number) => texts.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|it| collect(it, texts)),
        Value::Object(fields) => fields.values().for_each(|it| collect(it, texts)),
        Value::Bool(_) | Value::Null => (),
    }
}

struct Veto<'a> {
    tokens: &'a [Token],
    acting: &'a [&'a Profile],
    values: &'a Values,
    /// Those that are texts of many words, which have sentences of their own.
    contents: &'a Values,
}

impl Veto<'_> {
    /// Returns a word that is no part of a value.
    fn word(&self, at: usize) -> &str {
        let token = self.tokens.get(at);
        let token = token.filter(|it| it.kind == Kind::Word && !self.values.has(it));
        token.map_or("", |it| it.lower.as_str())
    }

    /// Returns the same, or the first word of a value where it is no name: `all pages but Imprint`
    /// are not those called `but Imprint`.
    fn led(&self, at: usize) -> &str {
        let is_first = |it: &&Token| {
            it.kind == Kind::Word
                && self.values.begins(it)
                && it.value.starts_with(char::is_lowercase)
        };
        let first = self.tokens.get(at).filter(is_first);
        first.map_or_else(|| self.word(at), |it| it.lower.as_str())
    }

    /// Finds what leaves something out, or open.
    fn open(&self, at: usize) -> Option<Range<usize>> {
        let word = self.led(at);
        if OPEN.contains(&word) && !self.is_own(&self.tokens[at]) {
            return Some(at..at + 1);
        }
        OPEN_PAIRS.contains(&(word, self.word(at + 1))).then_some(at..at + 2)
    }

    /// Finds a value that only says where, or when, something else is.
    fn beside(&self, at: usize) -> Option<Range<usize>> {
        let is_next_to = self.led(at) == "next" && self.tokens.get(at + 1)?.is("to");
        let behind = if is_next_to { at + 2 } else { at + 1 };
        let says_where = is_next_to || BESIDE.contains(&self.led(at));
        let begins = |it: &Token| self.values.begins(it) || self.values.begins(&self.tokens[at]);
        let value = self.tokens.get(behind).filter(|it| says_where && begins(it))?;
        let is_event = value.kind == Kind::Word && value.lower.ends_with("ing");
        (!is_event && !self.is_own(&self.tokens[at])).then_some(at..behind + 1)
    }

    /// Finds what turns a verb into the opposite of what is called.
    fn turned(&self, at: usize) -> Option<Range<usize>> {
        if !TURNED.contains(&self.word(at)) {
            return None;
        }
        let (to, opposite) = (at + 1..=at + REACH).find_map(|to| {
            let found = OPPOSITES.iter().find(|it| it.0 == self.word(to))?;
            Some((to, found.1))
        })?;
        let has = |word: &str| self.acting.iter().any(|it| name(it).iter().any(|it| it == word));
        (has(opposite) && !has(self.word(to))).then_some(at..to + 1)
    }

    /// Finds a sentence that takes back, or puts off, what another one says.
    fn taken_back(&self) -> Option<Range<usize>> {
        let is_end = |it: &Token| [".", "!", "?", ";", "\n"].iter().any(|at| it.is_mark(at));
        let mut begin = 0;
        for end in 0..=self.tokens.len() {
            if self.tokens.get(end).is_none_or(is_end) {
                if self.takes_back(begin..end) {
                    return Some(begin..end);
                }
                begin = end + 1;
            }
        }
        None
    }

    fn takes_back(&self, sentence: Range<usize>) -> bool {
        let said: Vec<&Token> =
            self.tokens[sentence].iter().filter(|it| it.kind != Kind::Mark).collect();
        let is_free = |it: &&Token| it.kind == Kind::Word && !self.contents.has(it);
        if said.is_empty() || said.iter().any(|it| self.is_verb(it)) {
            return false;
        }
        let is_in = |list: &str, it: &Token| list.split_whitespace().any(|word| it.is(word));
        let is_back =
            said.iter().all(|it| is_free(it) && (is_in(BACK, it) || is_in(BACK_WITH, it)))
                && said.iter().any(|it| is_in(BACK, it));
        is_back || LATER.iter().any(|it| said[0].is(it)) && is_free(&said[0])
    }

    /// Returns whether a word is one of a tool's name, or of its parameters'.
    fn is_own(&self, token: &Token) -> bool {
        self.acting.iter().any(|it| {
            let mut slots = it.frame().slots.iter();
            name(it).contains(&token.lower) || slots.any(|it| it.words.contains(&token.stem))
        })
    }

    /// Returns whether a word is a tool's verb.
    fn is_verb(&self, token: &Token) -> bool {
        self.acting.iter().any(|it| it.verbs.contains(&token.stem))
    }
}

/// Returns the words of a tool's own name.
fn name(profile: &Profile) -> Vec<String> {
    let name = profile.tool.name.as_str();
    words::split_identifier(name.rsplit(['.', '/', ':']).next().unwrap_or(name))
}
