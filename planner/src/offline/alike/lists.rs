//! The closed lists: which words mean the same, and which say nothing.

use std::collections::BTreeSet;

use super::{Item, Kind};

/// Verbs that mean the same at the head of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// To see what is there.
    Look,
    /// To look for it.
    Find,
    /// To make something new.
    Create,
    /// To end it.
    Delete,
    /// To change it.
    Update,
    /// To buy it.
    Buy,
    /// To have it kept for oneself.
    Book,
    /// To do sums.
    Compute,
    /// To turn it on or off.
    Turn,
    /// To begin it.
    Begin,
}

use Class::{Begin, Book, Buy, Compute, Create, Delete, Find, Look, Turn, Update};

impl Class {
    /// Returns what stands for the verb. No word has a sign like that.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Look => "=look",
            Find => "=find",
            Create => "=create",
            Delete => "=delete",
            Update => "=update",
            Buy => "=buy",
            Book => "=book",
            Compute => "=compute",
            Turn => "=turn",
            Begin => "=begin",
        }
    }

    /// Returns whether nothing comes of it but knowing.
    pub(super) fn looks(self) -> bool {
        matches!(self, Look | Find | Compute)
    }

    /// Returns whether tools with these words in their names tell a verb from the others of its
    /// class. Nearly all have a `get` beside a `list`, which a plural tells apart.
    pub(super) fn keeps_apart(self, verb: &str, named: &BTreeSet<String>) -> bool {
        if self == Look {
            return !matches!(verb, "get" | "list") && named.contains(verb);
        }
        let verbs: BTreeSet<&str> =
            heads().filter(|it| it.class == self).map(|it| it.words[0]).collect();
        verbs.into_iter().filter(|it| named.contains(*it)).count() > 1
    }
}

/// How an order may begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    /// The words.
    pub(super) words: &'static [&'static str],
    /// What they mean.
    pub(super) class: Class,
}

/// What orders begin with, the longer before what they begin with.
const HEADS: &[(Class, &[&[&str]])] = &[
    (Delete, &[&["get", "rid", "of"], &["delete"], &["remove"], &["erase"]]),
    (
        Look,
        &[
            &["what", "is"],
            &["what", "are"],
            &["which", "are"],
            &["how", "is", "the"],
            &["how", "are", "the"],
            &["tell", "me"],
            &["tell", "us"],
            &["give", "me"],
            &["give", "us"],
            &["show", "me"],
            &["show", "us"],
            &["get", "me"],
            &["get", "us"],
            &["show"],
            &["display"],
            &["retrieve"],
            &["fetch"],
            &["get"],
            &["list"],
        ],
    ),
    (
        Find,
        &[
            &["search", "for"],
            &["look", "for"],
            &["look", "up"],
            &["find", "me"],
            &["find"],
            &["search"],
        ],
    ),
    (Create, &[&["create"], &["make"], &["add"]]),
    (Update, &[&["update"], &["change"], &["edit"], &["modify"]]),
    (Buy, &[&["buy"], &["purchase"]]),
    (Book, &[&["book"], &["reserve"]]),
    (Compute, &[&["calculate"], &["compute"]]),
    (Turn, &[&["turn"], &["switch"]]),
    (Begin, &[&["begin"], &["start"]]),
];

/// What makes the beginning polite, the longer before what it begins with.
const LEADS: &[&[&str]] = &[
    &["i", "would", "like", "you", "to"],
    &["i", "want", "you", "to"],
    &["i", "need", "you", "to"],
    &["i", "would", "like", "to"],
    &["we", "would", "like", "to"],
    &["i", "want", "to"],
    &["i", "need", "to"],
    &["we", "want", "to"],
    &["we", "need", "to"],
    &["can", "you"],
    &["could", "you"],
    &["would", "you"],
    &["will", "you"],
    &["go", "ahead", "and"],
    &["help", "me", "to"],
    &["help", "me"],
    &["let", "us"],
    &["please"],
    &["kindly"],
    &["hello"],
    &["hi"],
    &["hey"],
    &["ok"],
    &["okay"],
    &["just"],
];
/// What makes the end polite.
const ENDS: &[&[&str]] = &[&["thank", "you"], &["thanks"], &["please"], &["for", "me"]];
/// Contractions, and what they are short for. Others stay as they are.
const CONTRACTIONS: &[(&str, &[&str])] = &[
    ("what's", &["what", "is"]),
    ("how's", &["how", "is"]),
    ("i'd", &["i", "would"]),
    ("we'd", &["we", "would"]),
    ("let's", &["let", "us"]),
    ("lets", &["let", "us"]),
    ("don't", &["do", "not"]),
    ("dont", &["do", "not"]),
    ("doesn't", &["does", "not"]),
    ("didn't", &["did", "not"]),
    ("can't", &["can", "not"]),
    ("cannot", &["can", "not"]),
    ("isn't", &["is", "not"]),
    ("aren't", &["are", "not"]),
];
/// Words behind a verb that make it another.
const TURNING: &str = "out off up down away back over in on through by around about to started ready \
                       rid going better lost it well sure";
/// Words and marks between orders, and between the items of a list.
const SEPARATORS: &str = ", . ; ! & \n and then also";
/// Words before a name that say that it is one.
const NAMING: &str = "called named titled entitled";

fn has(list: &str, word: &str) -> bool {
    list.split(' ').any(|it| it == word)
}

/// Returns what orders begin with.
pub(super) fn heads() -> impl Iterator<Item = Head> {
    HEADS.iter().flat_map(|(class, ways)| ways.iter().map(|words| Head { words, class: *class }))
}

/// Returns what makes a beginning polite.
pub(super) fn leads() -> impl Iterator<Item = &'static [&'static str]> {
    LEADS.iter().copied()
}

/// Returns what makes an end polite.
pub(super) fn ends() -> impl Iterator<Item = &'static [&'static str]> {
    ENDS.iter().copied()
}

/// Returns what a contraction is short for.
pub(super) fn apart(lower: &str) -> Option<&'static [&'static str]> {
    CONTRACTIONS.iter().find(|it| it.0 == lower).map(|it| it.1)
}

/// Returns whether a word behind a verb makes it another.
pub(super) fn turns(lower: &str) -> bool {
    has(TURNING, lower)
}

/// Returns whether a word or a mark stands between orders, and says nothing else.
pub(super) fn separates(lower: &str) -> bool {
    has(SEPARATORS, lower)
}

/// Returns whether a word only says that a name follows.
pub(super) fn names(lower: &str) -> bool {
    has(NAMING, lower)
}

/// Returns whether that is an article. A letter that is a grade is written large.
pub(super) fn is_article(item: Option<&Item>) -> bool {
    item.is_some_and(|it| {
        it.kind == Kind::Word && matches!(it.value.as_str(), "a" | "an" | "the" | "The" | "An")
    })
}

/// Returns the plural of a common noun.
pub(super) fn plural(noun: &str) -> String {
    let is_hissing = ["s", "x", "z", "ch", "sh"].iter().any(|it| noun.ends_with(it));
    let stem = noun.strip_suffix('y').filter(|it| !it.ends_with(['a', 'e', 'i', 'o', 'u']));
    match stem {
        Some(stem) => format!("{stem}ies"),
        None if is_hissing => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}
