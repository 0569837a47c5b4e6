//! Whether two queries ask for the same in other words.
//!
//! How near two texts are by an encoder says what they are about, not what they want: `from Oslo to
//! Bergen` and `from Bergen to Oslo` are as near as two texts can be, and `inbound` is nearer to
//! `outbound` than `create` is to `make`. So what is known to mean the same is in closed lists
//! ([`lists`]); everything else, every fact, every `not` and every word that nobody knows, must be
//! said to the letter and in the same order. Nearness is a second lock, and chooses among several.

mod lists;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::Value;

use self::lists::{Class, Head};
use super::{
    token::{self, Kind, Token},
    words,
};
use crate::{
    catalog::Catalog,
    draft::{Draft, SubDraft},
};

/// How near two queries must be that ask for the same: all that a table of paraphrases has are, by
/// the built-in encoder, and most that ask for something else are, too.
pub const SIMILARITY: f64 = 0.65;
/// Bytes of a query that may be like another.
const BYTES: usize = 2 << 10;
/// Words and marks of such a query.
const TOKENS: usize = 256;
/// How far behind `list` the things are that it lists.
const REACH: usize = 4;

/// What is left of a query without what says nothing: two with the same ask for the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Essence(Vec<String>);

impl Essence {
    /// Returns what a query comes to, for these tools; nothing where that is too much to say.
    pub fn of(query: &str, catalog: &Catalog) -> Option<Self> {
        if query.len() > BYTES {
            return None;
        }
        let query = super::unquoted(query);
        let tokens = token::tokens(query);
        if tokens.len() > TOKENS {
            return None;
        }
        let named = catalog.plannable().flat_map(|it| words::split_identifier(it.name.as_str()));
        let mut reader = Reader { items: items(&tokens), at: 0, units: Vec::new() };
        reader.read(&named.collect());
        (!reader.units.is_empty()).then_some(Self(reader.units))
    }

    /// Returns it as a text that no other has.
    pub fn key(&self) -> String {
        // Nothing else in JSON is two different lists.
        Value::from(self.0.clone()).to_string()
    }
}

/// Returns whether the texts that a draft took from one query stand in another as well, to the
/// letter.
pub fn keeps_texts(draft: &Draft, before: &str, now: &str) -> bool {
    draft.tools.iter().all(|step| {
        let given = step.parameters.iter().chain(&step.compensate);
        let inner = match &step.plan {
            Some(SubDraft::Inline(inner)) => keeps_texts(inner, before, now),
            _ => true,
        };
        inner && given.into_iter().all(|it| keeps(it, before, now))
    })
}

fn keeps(value: &Value, before: &str, now: &str) -> bool {
    match value {
        Value::String(text) => text.split("{{").all(|part| {
            let said = part.split_once("}}").map_or(part, |it| it.1);
            let said = said.trim_matches(|it: char| !it.is_alphanumeric());
            let is_in = |query: &str| query.contains(said);
            let is_like = |query: &str| query.to_lowercase().contains(&said.to_lowercase());
            (!is_in(before) || is_in(now)) && (!is_like(before) || is_like(now))
        }),
        Value::Array(items) => items.iter().all(|it| keeps(it, before, now)),
        Value::Object(fields) => fields.values().all(|it| keeps(it, before, now)),
        _ => true,
    }
}

/// A word, a value or a mark of a query.
#[derive(Clone, Debug)]
struct Item {
    kind: Kind,
    value: String,
    lower: String,
}

impl Item {
    fn word(word: &str) -> Self {
        Self { kind: Kind::Word, value: word.to_owned(), lower: word.to_owned() }
    }

    fn is(&self, word: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.lower == word
    }

    /// Returns whether it begins or ends something, and says nothing else.
    fn separates(&self) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && lists::separates(&self.lower)
    }

    fn is_capitalised(&self) -> bool {
        self.kind == Kind::Word && self.value.starts_with(char::is_uppercase)
    }
}

/// Makes items of tokens; contractions are taken apart.
fn items(tokens: &[Token]) -> Vec<Item> {
    let mut items = Vec::with_capacity(tokens.len());
    for token in tokens {
        let parts = (token.kind == Kind::Word).then(|| lists::apart(&token.lower)).flatten();
        match parts {
            Some(parts) => items.extend(parts.iter().map(|it| Item::word(it))),
            None => items.push(Item {
                kind: token.kind,
                value: token.value.clone(),
                lower: token.lower.clone(),
            }),
        }
    }
    items
}

/// Reads the items of a query, from the first to the last.
struct Reader {
    items: Vec<Item>,
    at: usize,
    units: Vec<String>,
}

impl Reader {
    /// Reads all, where tools' names have these words.
    fn read(&mut self, named: &BTreeSet<String>) {
        let is_polite = self.leave_lead();
        self.leave_end();
        let mut is_head = true;
        let mut is_look = false;
        while let Some(item) = self.items.get(self.at) {
            if item.separates() {
                self.at += 1;
                if !is_head {
                    self.units.push(",".to_owned());
                }
                is_head = true;
            } else if item.is("?") {
                self.at += 1;
                // A question about an act is no order; one that only looks is one.
                if !is_polite && !is_look {
                    self.units.push("?".to_owned());
                }
            } else if let Some(class) = self.head(is_head, named) {
                is_look |= self.units.is_empty() && class.looks();
                self.units.push(class.unit().to_owned());
                is_head = false;
            } else if self.item() {
                is_head = false;
            }
        }
        while self.units.last().is_some_and(|it| it == ",") {
            self.units.pop();
        }
    }

    fn says(&self, words: &[&str]) -> bool {
        words.iter().enumerate().all(|(at, word)| self.is(at, word))
    }

    fn is(&self, ahead: usize, word: &str) -> bool {
        self.items.get(self.at + ahead).is_some_and(|it| it.is(word))
    }

    /// Passes over what makes a query polite, and says whether it began with a question.
    fn leave_lead(&mut self) -> bool {
        let mut is_polite = false;
        while let Some(lead) = lists::leads().find(|it| self.says(it)) {
            is_polite |= lead.contains(&"you");
            self.at += lead.len();
            while self.is(0, ",") {
                self.at += 1;
            }
        }
        is_polite
    }

    /// Leaves out what makes the end of a query polite.
    fn leave_end(&mut self) {
        loop {
            let is_mark = |it: &&Item| it.separates() || it.is("?");
            let end = self.items.len() - self.items.iter().rev().take_while(is_mark).count();
            let is_end = |words: &[&str]| {
                end.checked_sub(words.len()).filter(|from| *from > self.at).is_some_and(|from| {
                    words.iter().zip(&self.items[from..]).all(|(word, it)| it.is(word))
                })
            };
            let Some(words) = lists::ends().find(|it| is_end(it)) else { return };
            // The question mark of `…, please?` stays where it would without.
            self.items.drain(end - words.len()..end);
        }
    }

    /// Reads the verb of an order, if it is one that others mean the same as.
    fn head(&mut self, is_head: bool, named: &BTreeSet<String>) -> Option<Class> {
        if !is_head {
            return None;
        }
        let head = lists::heads().find(|it| self.says(it.words) && self.fits(it))?;
        if head.class.keeps_apart(head.words[0], named) {
            return None;
        }
        self.at += head.words.len();
        match head.class {
            Class::Look => self.leave_all(),
            Class::Create => {
                self.at += usize::from(lists::is_article(self.items.get(self.at)));
                self.at += usize::from(self.is(0, "new"));
            }
            _ => (),
        }
        Some(head.class)
    }

    /// Returns whether what follows a verb leaves it its usual meaning.
    fn fits(&self, head: &Head) -> bool {
        let next = self.items.get(self.at + head.words.len());
        let Some(next) = next.filter(|it| !it.separates()) else { return false };
        // How something is turned is said apart.
        if head.class != Class::Turn && next.kind == Kind::Word && lists::turns(&next.lower) {
            return false;
        }
        match head.words {
            ["make"] => next.is("a") || next.is("an") || next.is("new"),
            ["add"] => next.kind != Kind::Number,
            ["list"] => {
                let from = self.at + 1;
                let things = self.items[from..].iter().take(REACH);
                let mut things = things.take_while(|it| it.kind == Kind::Word);
                things
                    .any(|it| words::is_plural(&it.lower) || matches!(&*it.lower, "all" | "every"))
            }
            _ => true,
        }
    }

    /// Passes over `all of the` and the like, which looking at several things means anyway.
    fn leave_all(&mut self) {
        let ways: [&[&str]; 2] = [&["a", "list", "of"], &["the", "list", "of"]];
        if let Some(way) = ways.iter().find(|it| self.says(it)) {
            self.at += way.len();
        }
        if self.is(0, "all") {
            self.at += 1;
            self.at += usize::from(self.is(0, "of"));
        } else if self.is(0, "every") || self.is(0, "each") {
            self.at += 1;
            if let Some(thing) = self.items.get_mut(self.at).filter(|it| it.kind == Kind::Word) {
                *thing = Item::word(&lists::plural(&thing.lower));
            }
        }
    }

    /// Reads one item as it is, and says whether it says anything.
    fn item(&mut self) -> bool {
        let item = self.items[self.at].clone();
        let is_first = self.at == 0;
        self.at += 1;
        if lists::is_article(Some(&item)) || item.is("please") || item.is("kindly") {
            return false;
        }
        let next = self.items.get(self.at);
        let is_named = next.is_some_and(|it| it.kind == Kind::Quoted || it.is_capitalised());
        if is_named && item.kind == Kind::Word && lists::names(&item.lower) {
            return true;
        }
        if item.is("e-mail") || item.is("email") {
            let is_address = self.is(0, "address")
                && self.items.get(self.at + 1).is_some_and(|it| it.kind == Kind::Email);
            self.at += usize::from(is_address);
            self.units.push("email".to_owned());
            return true;
        }
        self.units.push(match item.kind {
            Kind::Quoted => format!("\"{}\"", item.value),
            Kind::Word if is_first => item.lower,
            _ => item.value,
        });
        true
    }
}
