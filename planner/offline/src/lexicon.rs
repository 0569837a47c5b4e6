use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde::Deserialize;

use super::token::{Token, TokenKind, stem};

type WordGroups = BTreeMap<String, Vec<String>>;

const MAX_PHRASE_WORDS: usize = 4;

#[derive(Debug, Deserialize)]
pub(super) struct LexiconFile {
    verbs: WordGroups,
    pub(super) states: BTreeMap<String, String>,
    nouns: Vec<Vec<String>>,
    cues: WordGroups,
    pub(super) prepositions: WordGroups,
    fillers: Vec<String>,
    references: WordGroups,
    joins: Vec<String>,
    moods: WordGroups,
    conditions: WordGroups,
    pub(super) forms: WordGroups,
    pub(super) kinds: WordGroups,
}

#[derive(Debug, Default)]
pub(super) struct Phrases(BTreeMap<String, String>);

#[derive(Clone, Copy, Debug)]
pub(super) struct FoundPhrase<'a> {
    pub(super) key: &'a str,
    pub(super) len: usize,
}

impl Phrases {
    fn of_groups(groups: &WordGroups) -> Self {
        let pairs = groups.iter().flat_map(|(key, entries)| {
            entries.iter().map(move |entry| (entry.clone(), key.clone()))
        });
        Self(pairs.collect())
    }

    fn of_list(entries: &[String]) -> Self {
        Self(entries.iter().map(|entry| (entry.clone(), entry.clone())).collect())
    }

    pub(super) fn find(&self, tokens: &[Token], at: usize) -> Option<FoundPhrase<'_>> {
        (1..=MAX_PHRASE_WORDS).rev().find_map(|len| {
            let said = tokens.get(at..at + len)?;
            let words: Vec<&str> = said.iter().map(|token| token.lower.as_str()).collect();
            let key = self.0.get(&words.join(" "))?;
            let has_quotation = said.iter().any(|token| token.kind == TokenKind::Quoted);
            (!has_quotation).then_some(FoundPhrase { key, len })
        })
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.0.contains_key(word)
    }

    fn has_first(&self, word: &str) -> bool {
        self.0.keys().any(|phrase| phrase.split(' ').next() == Some(word))
    }
}

#[derive(Debug)]
pub(super) struct Lexicon {
    pub(super) file: LexiconFile,
    verbs: WordGroups,
    nouns: BTreeMap<String, usize>,
    pub(super) fillers: BTreeSet<String>,
    pub(super) pronouns: Phrases,
    pub(super) ranks: Phrases,
    pub(super) joins: Phrases,
    pub(super) moods: Phrases,
    pub(super) conditions: Phrases,
    pub(super) loops: Phrases,
    pub(super) soft_words: Phrases,
}

pub(super) fn english() -> &'static Lexicon {
    static ENGLISH: LazyLock<Lexicon> = LazyLock::new(|| {
        let file = serde_saphyr::from_str(include_str!("../lexicon.en.yml"));
        Lexicon::from_file(file.expect("the lexicon is valid: a test reads it"))
    });
    &ENGLISH
}

impl Lexicon {
    fn from_file(file: LexiconFile) -> Self {
        let mut verbs = WordGroups::new();
        let stem_all = |phrase: &str| phrase.split(' ').map(stem).collect::<Vec<_>>().join(" ");
        for (concept, words) in &file.verbs {
            for word in words.iter().chain([concept]) {
                let key = match word.split_once(' ') {
                    Some((head, particle)) => format!("{} {particle}", stem(head)),
                    None => stem(word),
                };
                let concepts = verbs.entry(key).or_default();
                let concept = stem_all(concept);
                if !concepts.contains(&concept) {
                    concepts.push(concept);
                }
            }
        }
        let mut nouns = BTreeMap::new();
        for (group, words) in file.nouns.iter().enumerate() {
            for word in words {
                nouns.entry(stem_all(word)).or_insert(group);
            }
        }
        // Adds the small words of other lists, because they are never values.
        let small = file.fillers.iter().chain(file.prepositions.keys()).chain(&file.joins);
        let small = small.chain(&file.references["pronouns"]).chain(&file.moods["questions"]);
        let small = small.chain(&file.references["soft"]).chain(&file.references["ranks"]).cloned();
        let fillers = small.filter(|word| !word.contains(' ')).collect();
        Self {
            verbs,
            nouns,
            fillers,
            pronouns: Phrases::of_list(&file.references["pronouns"]),
            ranks: Phrases::of_list(&file.references["ranks"]),
            loops: Phrases::of_list(&file.references["loops"]),
            soft_words: Phrases::of_list(&file.references["soft"]),
            joins: Phrases::of_list(&file.joins),
            moods: Phrases::of_groups(&file.moods),
            conditions: Phrases::of_groups(&file.conditions),
            file,
        }
    }

    pub(super) fn is_filler(&self, token: &Token) -> bool {
        token.kind == TokenKind::Word && self.fillers.contains(&token.lower)
    }

    pub(super) fn is_content(&self, token: &Token) -> bool {
        token.kind == TokenKind::Word && !self.is_filler(token)
    }

    pub(super) fn is_preposition(&self, token: &Token) -> bool {
        token.kind == TokenKind::Word && self.file.prepositions.contains_key(&token.lower)
    }

    pub(super) fn is_pronoun(&self, token: &Token) -> bool {
        token.kind == TokenKind::Word && self.pronouns.has(&token.lower)
    }

    pub(super) fn is_cue_of(&self, token: &Token, kind: &str) -> bool {
        self.file.cues.get(kind).is_some_and(|cues| cues.contains(&token.lower))
    }

    /// Returns the ending of files that a word means: `py` for `python`. Any other word of at most
    /// four letters that is no filler is an ending itself.
    pub(super) fn file_ending(&self, token: &Token) -> Option<String> {
        let mut pairs = self.file.forms["endings"].iter().filter_map(|pair| pair.split_once('='));
        if let Some((ending, _)) = pairs.find(|(_, name)| *name == token.lower) {
            return Some(ending.to_owned());
        }
        let is_ending =
            token.lower.len() <= 4 && !self.is_filler(token) && !self.loops.has(&token.lower);
        is_ending.then(|| token.lower.clone())
    }

    /// Returns whether a verb expresses a noun, as `email` does in `send email`, and `invite` for
    /// `invitation`.
    pub(super) fn is_noun_of_verb(&self, noun: &str, verb: &str) -> bool {
        self.is_same_noun(noun, verb) || verb.len() >= 4 && noun.starts_with(verb)
    }

    pub(super) fn means(&self, verb: &str, concept: &str) -> bool {
        self.concepts(verb).iter().any(|own| own == concept)
    }

    pub(super) fn concepts(&self, verb: &str) -> &[String] {
        self.verbs.get(verb).map_or(&[], Vec::as_slice)
    }

    pub(super) fn is_same_noun(&self, first: &str, second: &str) -> bool {
        first == second || {
            let group = self.nouns.get(first);
            group.is_some() && group == self.nouns.get(second)
        }
    }

    pub(super) fn is_noun(&self, stem: &str) -> bool {
        self.nouns.contains_key(stem)
    }

    pub(super) fn is_compound_of(&self, word: &str, nouns: &[String]) -> bool {
        let whole = nouns.join(" ");
        let has_all = |pair: &[String]| self.is_same_noun(&pair.join(" "), word);
        self.nouns.contains_key(word)
            && (self.is_same_noun(&whole, word) || nouns.windows(2).any(has_all))
    }

    pub(super) fn is_phrasal(&self, stem: &str) -> bool {
        self.verbs.keys().any(|verb| verb.split_once(' ').is_some_and(|(head, _)| head == stem))
    }

    pub(super) fn small_number(&self, word: &str) -> Option<usize> {
        self.file.forms["numbers"].iter().position(|number| number == word)
    }

    pub(super) fn month(word: &str) -> Option<u32> {
        let month: chrono::Month = word.trim_end_matches('.').parse().ok()?;
        Some(month.number_from_month())
    }

    pub(super) fn unit(&self, word: &str) -> Option<u32> {
        let is_unit = |unit: &str| {
            unit == word || self.file.forms[unit].iter().any(|form| stem(form) == stem(word))
        };
        let units = [("seconds", 1), ("minutes", 60), ("hours", 3600)];
        units.into_iter().find(|(unit, _)| is_unit(unit)).map(|(_, seconds)| seconds)
    }

    /// Corrects words that are one edit away from a known word: `teh`, `isue`. The values of the
    /// tokens stay as written.
    pub(super) fn correct_words(&self, tokens: &mut [Token], known: &BTreeSet<String>) {
        for token in tokens {
            let is_candidate = token.kind == TokenKind::Word
                && token.lower.len() >= 3
                && token.value.bytes().all(|byte| byte.is_ascii_lowercase())
                && !known.contains(&token.stem)
                && !self.is_known(&token.lower, &token.stem);
            if !is_candidate {
                continue;
            }
            let verbs = self.verbs.keys().filter(|verb| !verb.contains(' '));
            let mut words = verbs.chain(self.nouns.keys()).chain(&self.fillers).chain(known);
            let is_meant =
                |word: &&String| is_misspelt(&token.stem, word) || is_misspelt(&token.lower, word);
            if let Some(word) = words.find(is_meant) {
                token.lower.clone_from(word);
                token.stem = stem(word);
            }
        }
    }

    /// Returns whether at least a third of the words are known. Otherwise the query is in another
    /// language. A query of one or two words always passes.
    pub(super) fn knows_enough_words(&self, tokens: &[Token], names: &BTreeSet<String>) -> bool {
        let words = || tokens.iter().filter(|token| token.kind == TokenKind::Word);
        let is_known = |token: &&Token| {
            names.contains(&token.stem) || self.is_known(&token.lower, &token.stem)
        };
        let (count, known) = (words().count(), words().filter(is_known).count());
        count < 3 || 3 * known >= count
    }

    fn is_known(&self, lower: &str, stem: &str) -> bool {
        self.verbs.contains_key(stem)
            || self.nouns.contains_key(stem)
            || self.fillers.contains(lower)
            || self.file.states.contains_key(lower)
            || self.is_phrasal(stem)
            || self.file.cues.values().any(|cues| cues.iter().any(|cue| cue == lower))
            || Self::month(lower).is_some()
            || self.unit(lower).is_some()
            || self.small_number(lower).is_some()
            || [&self.moods, &self.conditions, &self.loops].iter().any(|list| list.has_first(lower))
    }
}

/// Returns whether a word is another word with two adjacent letters swapped. If the other word has
/// at least five letters, one letter after the first may also be added, missing or changed.
fn is_misspelt(written: &str, word: &str) -> bool {
    let (a, b) = (written.as_bytes(), word.as_bytes());
    let start = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let end =
        a[start..].iter().rev().zip(b[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[start..a.len() - end], &b[start..b.len() - end]);
    let is_swap = matches!((a, b), ([a, b], [c, d]) if a == d && b == c);
    let is_edit = a.len() <= 1 && b.len() <= 1 && word.len() >= 5 && start > 0;
    is_swap && word.len() >= 3 || is_edit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_entries(file: &LexiconFile) -> usize {
        let groups = [
            &file.verbs,
            &file.cues,
            &file.prepositions,
            &file.references,
            &file.moods,
            &file.conditions,
            &file.forms,
            &file.kinds,
        ];
        groups.iter().flat_map(|group| group.values()).map(Vec::len).sum::<usize>()
            + file.nouns.iter().map(Vec::len).sum::<usize>()
            + file.fillers.len()
            + file.joins.len()
            + file.states.len()
    }

    #[test]
    fn the_lexicon_is_small() {
        let file: LexiconFile = serde_saphyr::from_str(include_str!("../lexicon.en.yml")).unwrap();
        let count = count_entries(&file);
        // The count leaves out about 35 words that are in the code.
        assert!(count <= 450, "{count} entries");
    }
}
