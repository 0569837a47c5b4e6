//! What words mean without asking anybody: stems, verbs and the words that carry no meaning.

use std::{collections::BTreeMap, sync::LazyLock};

/// What kind of thing a verb asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Something new.
    Create,
    /// One thing that exists.
    Get,
    /// All things of a kind.
    List,
    /// Things that fit.
    Search,
    /// A change of one thing.
    Update,
    /// The end of one thing.
    Delete,
    /// Something that goes to somebody.
    Send,
}

use Family::{Create, Delete, Get, List, Search, Send, Update};

/// The verbs that everybody uses, each with what it may mean, likeliest first.
const VERBS: &[(&str, &[Family])] = &[
    (
        "create make new generate compose draft insert register open start build publish upload attach leave \
         schedule book plan arrange produce save store record enter submit",
        &[Create, Send],
    ),
    ("add write post put", &[Create, Update, Send]),
    ("send mail message notify forward share deliver", &[Send, Create]),
    (
        "get show fetch retrieve display view see give tell load return compute calculate determine",
        &[Get, List, Search],
    ),
    ("read check open inspect", &[Get, List]),
    ("what which who how where when is are", &[Get, List, Search]),
    ("find look lookup search query", &[Search, Get, List]),
    ("list enumerate browse", &[List, Search]),
    ("set", &[Update, Create]),
    ("update change rename edit modify revise replace correct fix adjust alter mark", &[Update]),
    ("delete remove drop erase destroy discard trash cancel", &[Delete]),
];

static FAMILIES: LazyLock<BTreeMap<String, Vec<Family>>> = LazyLock::new(|| {
    let mut families: BTreeMap<String, Vec<Family>> = BTreeMap::new();
    for (words, means) in VERBS {
        for word in words.split_whitespace() {
            let known = families.entry(stem(word)).or_default();
            known
                .extend(means.iter().filter(|it| !known.contains(it)).copied().collect::<Vec<_>>());
        }
    }
    families
});

/// Returns what a stemmed verb may mean, likeliest first; nothing for an uncommon one.
pub(super) fn families(stem: &str) -> &'static [Family] {
    FAMILIES.get(stem).map_or(&[], Vec::as_slice)
}

/// Words at the beginning of a clause that only make it polite or number it.
const FILLERS: &[&str] = &[
    "please",
    "can",
    "could",
    "would",
    "will",
    "you",
    "i",
    "we",
    "i'd",
    "i'll",
    "want",
    "wants",
    "need",
    "to",
    "like",
    "let's",
    "lets",
    "let",
    "also",
    "then",
    "next",
    "finally",
    "first",
    "firstly",
    "second",
    "secondly",
    "third",
    "lastly",
    "last",
    "now",
    "afterwards",
    "afterward",
    "later",
    "kindly",
    "just",
    "so",
    "hey",
    "hello",
    "hi",
    "and",
    "go",
    "ahead",
    "help",
    "me",
    "us",
    "after",
    "before",
    "by",
    "once",
    "done",
    "step",
    "thanks",
    "ok",
    "okay",
    "plus",
    "have",
    "should",
    "must",
    "it's",
    "use",
];

/// Words that stand before a thing and say little about it.
const DETERMINERS: &[&str] = &[
    "a", "an", "the", "that", "this", "these", "those", "new", "another", "same", "my", "our",
    "your", "some", "all", "every", "each", "any", "me", "us", "up", "existing", "current",
    "first", "one", "'s", "of", "both",
];

/// Words that tie things together.
const PREPOSITIONS: &[&str] = &[
    "by", "on", "for", "of", "to", "from", "in", "at", "with", "into", "under", "about", "as",
    "onto", "within", "inside", "per", "through", "between", "after", "before", "than", "via",
    "using", "without",
];

/// Words that may be left over without loss.
const IDLE: &[&str] = &[
    "a",
    "an",
    "the",
    "that",
    "this",
    "these",
    "those",
    "new",
    "another",
    "same",
    "my",
    "our",
    "your",
    "some",
    "all",
    "every",
    "each",
    "any",
    "me",
    "us",
    "up",
    "existing",
    "of",
    "by",
    "on",
    "for",
    "to",
    "from",
    "in",
    "at",
    "with",
    "into",
    "as",
    "and",
    "or",
    "is",
    "are",
    "was",
    "be",
    "it",
    "its",
    "him",
    "his",
    "her",
    "he",
    "she",
    "they",
    "them",
    "their",
    "please",
    "thanks",
    "thank",
    "you",
    "now",
    "whose",
    "who",
    "which",
    "has",
    "have",
    "having",
    "set",
    "using",
    "use",
    "id",
    "ids",
    "do",
    "does",
    "there",
    "what's",
    "what",
    "how",
    "like",
    "one",
    "will",
    "be",
    "just",
    "then",
    "also",
    "i",
    "we",
    "value",
    "values",
    "out",
    "so",
    "too",
    "first",
    "current",
    "currently",
    "here",
    "details",
    "detail",
    "information",
    "info",
    "simultaneously",
    "together",
    "both",
    "parallel",
    "'s",
    "again",
];

/// Returns whether a word only makes a clause polite or numbers it.
pub(super) fn is_filler(lower: &str) -> bool {
    FILLERS.contains(&lower)
}

/// Returns whether a word stands before a thing and says little about it.
pub(super) fn is_determiner(lower: &str) -> bool {
    DETERMINERS.contains(&lower)
}

/// Returns whether a word ties things together.
pub(super) fn is_preposition(lower: &str) -> bool {
    PREPOSITIONS.contains(&lower)
}

/// Returns whether a word may be left over without loss.
pub(super) fn is_idle(lower: &str) -> bool {
    IDLE.contains(&lower)
}

/// Returns whether a word stands for something said before.
pub(super) fn is_pronoun(lower: &str) -> bool {
    matches!(
        lower,
        "it" | "him" | "her" | "his" | "hers" | "them" | "their" | "its" | "he" | "she" | "they"
    )
}

/// Returns whether a stem names what a computation gave.
pub(super) fn is_result(stem: &str) -> bool {
    matches!(
        stem,
        "result"
            | "answer"
            | "sum"
            | "product"
            | "output"
            | "total"
            | "diferenc"
            | "difference"
            | "quotient"
            | "outcom"
            | "number"
    ) || stem == self::stem("difference")
}

/// Cuts an English word down to what its forms share. Crude, but the same for both sides.
pub(super) fn stem(word: &str) -> String {
    let mut word = word.to_lowercase();
    for possessive in ["'s", "’s", "'", "’"] {
        if let Some(rest) = word.strip_suffix(possessive)
            && !rest.is_empty()
        {
            word.truncate(rest.len());
            break;
        }
    }
    if !word.is_ascii() || word.len() < 3 {
        return word;
    }
    strip_plural(&mut word);
    for suffix in ["ing", "ed"] {
        if let Some(rest) = word.strip_suffix(suffix)
            && rest.len() >= 3
            && rest.bytes().any(|it| b"aeiouy".contains(&it))
        {
            word.truncate(rest.len());
            break;
        }
    }
    if word.len() > 3 && word.ends_with('e') {
        word.pop();
    }
    let bytes = word.as_bytes();
    let len = bytes.len();
    if len >= 3 && bytes[len - 1] == bytes[len - 2] && !b"aeiou".contains(&bytes[len - 1]) {
        word.pop();
    }
    word
}

fn strip_plural(word: &mut String) {
    let len = word.len();
    if word.ends_with("ies") && len > 4 {
        word.truncate(len - 3);
        word.push('y');
    } else if word.ends_with("es")
        && ["xes", "ses", "zes", "ches", "shes"].iter().any(|it| word.ends_with(it))
        && len > 4
    {
        word.truncate(len - 2);
    } else if word.ends_with('s') && !word.ends_with("ss") && len > 3 {
        word.pop();
    }
}

/// Returns whether a word says what was done to something: `scheduled`, not `feed`.
pub(super) fn is_participle(lower: &str) -> bool {
    lower.len() > 4 && lower.ends_with("ed") && !lower.ends_with("eed") && lower != "embed"
}

/// Returns whether a word looks like the plural of a noun.
pub(super) fn is_plural(lower: &str) -> bool {
    lower.len() > 3
        && lower.ends_with('s')
        && !lower.ends_with("ss")
        && !lower.ends_with("'s")
        && !lower.ends_with("’s")
        && !lower.ends_with("us")
}

/// Splits `camelCase`, `snake_case`, `kebab-case` and `HTTPServer` into lower-case words.
pub(super) fn split_identifier(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    for (at, &char) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|it| chars[it]);
        let after = chars.get(at + 1);
        let starts = char.is_uppercase()
            && before.is_some_and(|it| {
                it.is_lowercase()
                    || it.is_ascii_digit()
                    || (it.is_uppercase() && after.is_some_and(|it| it.is_lowercase()))
            });
        if (starts || !char.is_alphanumeric()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if char.is_alphanumeric() {
            word.extend(char.to_lowercase());
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_share_a_stem() {
        for forms in [
            &["create", "creating", "created", "creates"][..],
            &["add", "adding", "adds", "added"],
            &["author", "authors", "author's"],
            &["category", "categories"],
            &["title", "titled", "titles"],
            &["tag", "tagged", "tags"],
            &["box", "boxes"],
            &["picture", "pictures"],
        ] {
            let stems: Vec<String> = forms.iter().map(|it| stem(it)).collect();
            assert!(stems.iter().all(|it| *it == stems[0]), "{stems:?}");
        }
        assert_ne!(stem("string"), stem("str"));
    }

    #[test]
    fn identifiers_split_into_words() {
        for (name, words) in [
            ("createBlogPost", "create blog post"),
            ("list_pets-by.status", "list pets by status"),
            ("getHTTPServer2", "get http server2"),
            ("", ""),
        ] {
            assert_eq!(split_identifier(name).join(" "), words);
        }
    }

    #[test]
    fn common_verbs_have_a_family() {
        assert_eq!(families(&stem("creating"))[0], Family::Create);
        assert_eq!(families(&stem("removed"))[0], Family::Delete);
        assert!(families(&stem("frobnicate")).is_empty());
    }
}
