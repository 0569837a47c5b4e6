//! Whether prose asks for what it names, or tells not to do it: followed word by word, so that no
//! sentence is read twice.

use super::source::Source;

/// Longer words say nothing here.
const WORD_BYTES: usize = 16;
/// Words that may be a call's before its name.
const VERBS: [&str; 12] = [
    "use",
    "using",
    "call",
    "calling",
    "run",
    "running",
    "invoke",
    "invoking",
    "execute",
    "executing",
    "try",
    "trying",
];
/// Words that turn around what follows in their sentence.
const TURNS: [&str; 38] = [
    "not",
    "never",
    "cannot",
    "cant",
    "dont",
    "doesnt",
    "didnt",
    "wont",
    "shouldnt",
    "mustnt",
    "avoid",
    "avoiding",
    "avoids",
    "refrain",
    "refraining",
    "forbid",
    "forbids",
    "forbidden",
    "prohibit",
    "prohibits",
    "prohibited",
    "disallowed",
    "banned",
    "against",
    "neither",
    "nor",
    "unable",
    "refuse",
    "refusing",
    "decline",
    "declining",
    "unnecessary",
    "needless",
    "prevent",
    "unsafe",
    "impossible",
    "skip",
    "skipping",
];
/// Words that do so up to a comma.
const TURNS_PART: [&str; 5] = ["without", "lest", "unless", "stop", "stopping"];
/// Words that do so right behind `no`: `no need to`.
const NEEDS: [&str; 20] = [
    "need",
    "reason",
    "point",
    "use",
    "way",
    "longer",
    "sense",
    "cause",
    "call",
    "calls",
    "more",
    "circumstances",
    "circumstance",
    "condition",
    "account",
    "case",
    "event",
    "one",
    "intention",
    "permission",
];
/// Words right behind one that turns, which show that it turned only them: `not only`, `not found`.
const TURNED: [&str; 12] = [
    "only", "just", "sure", "certain", "know", "see", "find", "found", "exist", "enough", "clear",
    "remember",
];
/// Words that begin a clause of its own.
const STARTS: [&str; 10] =
    ["but", "so", "then", "therefore", "thus", "hence", "however", "otherwise", "will", "now"];
/// Words that do so behind a comma.
const SUBJECTS: [&str; 12] = [
    "i", "we", "let", "you", "this", "please", "it", "using", "calling", "running", "trying",
    "next",
];
/// Words that begin what a comma ends: `if it is not there, use …`.
const CONDITIONS: [&str; 12] = [
    "if", "when", "since", "as", "because", "while", "although", "though", "until", "once",
    "where", "whether",
];
/// Words right before a name by which it is told what was done.
const DONE: [&str; 7] = ["called", "ran", "used", "invoked", "executed", "tried", "than"];
/// Words that come between an article and a name.
const KINDS: [&str; 4] = ["function", "tool", "method", "command"];
const ARTICLES: [&str; 8] = ["the", "a", "an", "this", "that", "our", "each", "your"];
/// Words right behind a call by which it is told what it does, or did.
const TELLS: [&str; 34] = [
    "is", "was", "are", "were", "has", "had", "does", "did", "lists", "listed", "returns",
    "returned", "shows", "showed", "finds", "found", "gives", "gave", "prints", "printed", "reads",
    "writes", "searches", "deletes", "clears", "cleared", "fails", "failed", "works", "worked",
    "takes", "needs", "expects", "already",
];
/// Words that may stand between a call and the word that forbids it.
const MODALS: [&str; 11] =
    ["is", "was", "would", "must", "should", "can", "could", "may", "are", "be", "will"];
/// What turns a call around from behind.
const FORBIDS: [&str; 18] = [
    "not",
    "never",
    "cannot",
    "can't",
    "mustn't",
    "shouldn't",
    "isn't",
    "won't",
    "wouldn't",
    "forbidden",
    "prohibited",
    "disallowed",
    "banned",
    "unsafe",
    "unnecessary",
    "avoided",
    "impossible",
    "dangerous",
];

/// How far something is turned around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turned {
    #[default]
    No,
    /// Up to the next comma.
    Part,
    All,
}

/// What the last word was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    #[default]
    Other,
    /// One that turned what follows.
    Turn,
    /// One behind that, which was all that was turned.
    Spared,
    /// `no`
    No,
    /// `instead`, which `of` turns around, or `rather`, which `than` does.
    Instead,
    Article,
    /// `the function`
    Kind,
    /// `called`
    Done,
    /// One whose end an apostrophe and a `t` may be.
    EndsWithN,
}

/// Where on its line the next word is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Inside,
    Fresh,
    /// Behind the bullet or the number of a list.
    Bullet,
}

/// What has been said so far in a sentence.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is another thing that a reader keeps in mind"
)]
pub(super) struct Mood {
    turned: Turned,
    last: Last,
    /// Whether somebody is to call something.
    has_verb: bool,
    /// Whether a comma ends what is said now.
    is_condition: bool,
    is_behind_comma: bool,
    /// Whether the last word may be a call's.
    ends_in_verb: bool,
    line: Line,
    /// Whether what is turned around goes on below: a colon ends the line.
    is_list: bool,
    /// Whether something stands there already.
    has_items: bool,
}

impl Mood {
    /// Takes the next word in.
    pub(super) fn word(&mut self, word: &str) {
        if self.line == Line::Fresh
            && word.trim_end_matches('.').bytes().all(|it| it.is_ascii_digit())
        {
            return self.bullet();
        }
        let is_short =
            ["e.g.", "i.e.", "etc.", "vs."].iter().any(|it| word.eq_ignore_ascii_case(it));
        let ends = word.ends_with('.') && !is_short;
        let is_capital = word.starts_with(|it: char| it.is_ascii_uppercase()) && word != "I";
        if is_capital && (self.line == Line::Fresh || self.line == Line::Bullet && !self.is_list) {
            self.end();
        }
        self.has_items = self.is_list;
        let word = word.trim_end_matches('.');
        let mut letters = [0; WORD_BYTES];
        let is_behind_comma = std::mem::take(&mut self.is_behind_comma);
        self.line = Line::Inside;
        self.ends_in_verb = false;
        match letters.get_mut(..word.len()) {
            Some(lower) if !word.is_empty() => {
                lower.copy_from_slice(word.as_bytes());
                lower.make_ascii_lowercase();
                self.lower(std::str::from_utf8(lower).unwrap_or_default(), is_behind_comma);
            }
            _ => self.last = Last::Other,
        }
        if ends {
            self.end();
        }
    }

    fn lower(&mut self, word: &str, is_behind_comma: bool) {
        let last = std::mem::take(&mut self.last);
        self.last = match (word, last) {
            ("t", Last::EndsWithN) | ("to" | "any", Last::Spared) => return self.turn(Turned::All),
            ("of" | "than", Last::Instead) => return self.turn(Turned::Part),
            (it, Last::No) if NEEDS.contains(&it) => return self.turn(Turned::All),
            (it, Last::Turn) if TURNED.contains(&it) => {
                self.turned = Turned::No;
                Last::Spared
            }
            (it, Last::Turn) if STARTS.contains(&it) => Last::Turn,
            ("no", _) => Last::No,
            (it, _) if TURNS.contains(&it) => return self.turn(Turned::All),
            (it, _) if TURNS_PART.contains(&it) => return self.turn(Turned::Part),
            ("instead" | "rather", _) => {
                self.turned = Turned::No;
                Last::Instead
            }
            (it, _) if STARTS.contains(&it) || is_behind_comma && SUBJECTS.contains(&it) => {
                self.turned = Turned::No;
                Last::Other
            }
            (it, _) if DONE.contains(&it) => Last::Done,
            (it, Last::Article) if KINDS.contains(&it) => Last::Kind,
            (it, _) if ARTICLES.contains(&it) => Last::Article,
            (
                "don" | "doesn" | "didn" | "won" | "wouldn" | "shouldn" | "couldn" | "can"
                | "mustn" | "needn" | "isn" | "aren" | "wasn" | "weren" | "haven" | "hasn" | "hadn"
                | "shan",
                _,
            ) => Last::EndsWithN,
            _ => Last::Other,
        };
        self.ends_in_verb = VERBS.contains(&word);
        self.has_verb |= self.ends_in_verb;
        self.is_condition |= CONDITIONS.contains(&word) && self.turned == Turned::No;
    }

    fn turn(&mut self, turned: Turned) {
        self.turned = turned;
        self.last = Last::Turn;
    }

    /// Takes in what stands at `at` and is no word.
    pub(super) fn mark(&mut self, source: &Source<'_>, at: usize, byte: u8) {
        match byte {
            b'!' | b'?' | b';' => self.end(),
            b',' => self.comma(),
            b'\n' => self.line(source, at),
            b'*' if self.line == Line::Fresh => self.bullet(),
            0xe2 if ["–", "—"].iter().any(|it| source.word_at(at, it).is_some()) => {
                self.comma();
            }
            0xe3 if source.word_at(at, "。").is_some() => self.end(),
            b'\'' | 0xe2 if self.last == Last::EndsWithN => {}
            0x80..0xc0 | b' ' | b'\t' | b'\r' | b'`' | b'*' | b'"' | b'\'' | b'_' => {}
            _ => self.last = Last::Other,
        }
    }

    fn comma(&mut self) {
        let is_aside = self.last == Last::Turn;
        if self.turned == Turned::Part || self.is_condition && !is_aside {
            self.turned = Turned::No;
        }
        self.is_condition = false;
        self.is_behind_comma = true;
        self.last = Last::Other;
    }

    /// Takes in the bullet of a list.
    pub(super) fn bullet(&mut self) {
        if self.line == Line::Fresh {
            self.line = Line::Bullet;
        }
    }

    fn line(&mut self, source: &Source<'_>, at: usize) {
        if source.byte_before(at, b"") == Some(b'\n') {
            if !self.is_list || self.has_items {
                self.end();
            }
        } else if self.turned != Turned::No {
            let before = source.byte_before(at, b"*`_");
            self.is_list |= matches!(before, Some(b':' | b',')) || self.ends_in_verb;
        }
        self.line = Line::Fresh;
    }

    /// Ends the sentence.
    pub(super) fn end(&mut self) {
        *self = Self { line: self.line, ..Self::default() };
    }

    /// Returns whether what begins here, in the form of a sentence or a function, is told and not
    /// asked for.
    pub(super) fn is_turned(&self) -> bool {
        let is_turned = self.turned != Turned::No || self.last == Last::No;
        is_turned && (self.is_list || self.line == Line::Inside)
    }

    /// Returns whether a function that is `start..end` is only spoken of.
    pub(super) fn is_mention(&self, source: &Source<'_>, end: usize) -> bool {
        let is_told = match self.last {
            Last::Done => true,
            Last::Kind => !self.has_verb,
            _ => false,
        };
        let next = next_word(source, source.skip_marks(end)).0;
        is_told || (!self.has_verb || next == "already") && TELLS.contains(&next)
    }

    /// Takes in that a call was read.
    pub(super) fn call(&mut self) {
        self.last = Last::Other;
        self.is_behind_comma = false;
        self.line = Line::Inside;
        self.has_items = self.is_list;
    }
}

/// Returns whether what follows a call at `end` in its sentence forbids it: `… is forbidden`.
pub(super) fn is_forbidden_behind(source: &Source<'_>, end: usize) -> bool {
    let (first, mut at) = next_word(source, source.skip_marks(end));
    if FORBIDS.contains(&first) {
        return true;
    }
    let mut word = first;
    for _ in 0..3 {
        if !MODALS.contains(&word) {
            return false;
        }
        (word, at) = next_word(source, source.skip_blanks(at));
        if FORBIDS.contains(&word) {
            return true;
        }
    }
    false
}

/// Returns the word at `at`, if it is short, and where it ends.
fn next_word<'a>(source: &Source<'a>, at: usize) -> (&'a str, usize) {
    let mut end = at;
    while end - at <= WORD_BYTES
        && source.byte(end).is_some_and(|it| it.is_ascii_alphabetic() || it == b'\'')
    {
        end += 1;
    }
    (source.slice(at..end), end)
}
