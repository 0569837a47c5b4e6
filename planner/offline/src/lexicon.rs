//! The words that the planner knows, from one file.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

use serde::Deserialize;

use super::token::{Kind, Token, stem};

/// The entries of a list, by their keys.
type Groups = BTreeMap<String, Vec<String>>;

#[derive(Debug, Deserialize)]
struct File {
    verbs: Groups,
    states: BTreeMap<String, String>,
    nouns: Vec<Vec<String>>,
    cues: Groups,
    prepositions: Groups,
    fillers: Vec<String>,
    references: Groups,
    joins: Vec<String>,
    moods: Groups,
    conditions: Groups,
    forms: Groups,
    kinds: Groups,
}

/// A fixed phrase with its key.
#[derive(Debug)]
struct Phrase {
    words: Vec<String>,
    key: String,
}

/// Phrases by their first words.
#[derive(Debug, Default)]
pub(super) struct Phrases(BTreeMap<String, Vec<Phrase>>);

/// A phrase that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) key: &'a str,
    pub(super) len: usize,
}

impl Phrases {
    fn add(&mut self, phrase: &str, key: &str) {
        let words: Vec<String> = phrase.split(' ').map(str::to_owned).collect();
        let Some(first) = words.first().cloned() else { return };
        let phrases = self.0.entry(first).or_default();
        phrases.push(Phrase { words, key: key.to_owned() });
        phrases.sort_by_key(|phrase| std::cmp::Reverse(phrase.words.len()));
    }

    fn of_groups(groups: &Groups) -> Self {
        let mut phrases = Self::default();
        for (key, entries) in groups {
            entries.iter().for_each(|entry| phrases.add(entry, key));
        }
        phrases
    }

    fn of_list(entries: &[String]) -> Self {
        let mut phrases = Self::default();
        entries.iter().for_each(|entry| phrases.add(entry, entry));
        phrases
    }

    /// Finds the longest phrase that begins at a token.
    pub(super) fn find(&self, tokens: &[Token], at: usize) -> Option<Found<'_>> {
        let first = tokens.get(at).filter(|token| token.kind != Kind::Quoted)?;
        let is_there = |phrase: &&Phrase| {
            phrase.words.iter().enumerate().all(|(offset, word)| {
                tokens
                    .get(at + offset)
                    .is_some_and(|token| token.kind != Kind::Quoted && token.lower == *word)
            })
        };
        let phrase = self.0.get(&first.lower)?.iter().find(is_there)?;
        Some(Found { key: &phrase.key, len: phrase.words.len() })
    }

    /// Returns whether a single word is a phrase.
    pub(super) fn has(&self, word: &str) -> bool {
        self.0.get(word).is_some_and(|phrases| phrases.iter().any(|phrase| phrase.words.len() == 1))
    }
}

/// Single words.
#[derive(Debug, Default)]
pub(super) struct Words(BTreeSet<String>);

impl Words {
    pub(super) fn has(&self, word: &str) -> bool {
        self.0.contains(word)
    }
}

/// The words of one language.
#[derive(Debug)]
pub(super) struct Lexicon {
    /// Concepts by the stems of verbs. A phrase has its words' stems with spaces between.
    verbs: BTreeMap<String, Vec<String>>,
    /// The group of a noun, by its stem.
    nouns: BTreeMap<String, usize>,
    pub(super) states: BTreeMap<String, String>,
    pub(super) cues: Groups,
    pub(super) prepositions: Groups,
    pub(super) fillers: Words,
    pub(super) pronouns: Phrases,
    pub(super) ranks: Phrases,
    pub(super) joins: Phrases,
    pub(super) moods: Phrases,
    pub(super) conditions: Phrases,
    pub(super) loops: Phrases,
    pub(super) forms: Groups,
    /// Words for kinds of values in the names of parameters.
    pub(super) kinds: Groups,
    /// Words that may stand before a verb.
    pub(super) soft: Phrases,
    /// Particles of the verbs that have two words, by the verbs' stems.
    particles: BTreeMap<String, Vec<String>>,
}

/// Returns the words of English.
pub(super) fn english() -> &'static Lexicon {
    static ENGLISH: LazyLock<Lexicon> = LazyLock::new(|| {
        let file = serde_saphyr::from_str(include_str!("../lexicon.en.yml"));
        Lexicon::from_file(file.expect("the lexicon is valid: a test reads it"))
    });
    &ENGLISH
}

impl Lexicon {
    fn from_file(file: File) -> Self {
        let mut verbs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut particles: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (concept, words) in &file.verbs {
            for word in words.iter().chain([concept]) {
                let (head, rest) = word.split_once(' ').unwrap_or((word, ""));
                let key =
                    if rest.is_empty() { stem(head) } else { format!("{} {rest}", stem(head)) };
                if !rest.is_empty() {
                    particles.entry(stem(head)).or_default().push(rest.to_owned());
                }
                let concepts = verbs.entry(key).or_default();
                let concept = concept.split(' ').map(stem).collect::<Vec<_>>().join(" ");
                if !concepts.contains(&concept) {
                    concepts.push(concept);
                }
            }
        }
        let mut nouns = BTreeMap::new();
        for (group, words) in file.nouns.iter().enumerate() {
            words.iter().for_each(|word| {
                let stems: Vec<String> = word.split(' ').map(stem).collect();
                nouns.entry(stems.join(" ")).or_insert(group);
            });
        }
        // Small words of other lists have no value of their own either.
        let small = file.fillers.iter().chain(file.prepositions.keys()).chain(&file.joins);
        let small = small.chain(&file.references["pronouns"]).chain(&file.moods["questions"]);
        let small = small.chain(&file.references["soft"]).chain(&file.references["ranks"]).cloned();
        let fillers = Words(small.filter(|word| !word.contains(' ')).collect());
        Self {
            verbs,
            nouns,
            states: file.states,
            cues: file.cues,
            prepositions: file.prepositions,
            fillers,
            pronouns: Phrases::of_list(&file.references["pronouns"]),
            ranks: Phrases::of_list(&file.references["ranks"]),
            loops: Phrases::of_list(&file.references["loops"]),
            soft: Phrases::of_list(&file.references["soft"]),
            joins: Phrases::of_list(&file.joins),
            moods: Phrases::of_groups(&file.moods),
            conditions: Phrases::of_groups(&file.conditions),
            forms: file.forms,
            kinds: file.kinds,
            particles,
        }
    }

    /// Returns the concepts of a verb, by its stem.
    /// The concepts are stems.
    pub(super) fn concepts(&self, verb: &str) -> &[String] {
        self.verbs.get(verb).map_or(&[], Vec::as_slice)
    }

    /// Returns the particle of a verb that stands at `at`, with its distance: `turn the lights off`.
    pub(super) fn particle(&self, tokens: &[Token], at: usize) -> Option<(String, usize)> {
        let particles = self.particles.get(&tokens[at].stem)?;
        let near = tokens.iter().enumerate().skip(at + 1).take(5);
        near.take_while(|(_, token)| token.kind == Kind::Word)
            .find(|(_, token)| particles.contains(&token.lower))
            .map(|(place, token)| (token.lower.clone(), place))
    }

    /// Returns whether two stems are the same noun.
    pub(super) fn is_same_noun(&self, first: &str, second: &str) -> bool {
        first == second || {
            let group = self.nouns.get(first);
            group.is_some() && group == self.nouns.get(second)
        }
    }

    /// Returns whether a stem is a known noun.
    pub(super) fn is_noun(&self, stem: &str) -> bool {
        self.nouns.contains_key(stem)
    }

    /// Returns the nouns that mean the same.
    pub(super) fn synonyms(&self, noun: &str) -> Vec<&String> {
        let group = self.nouns.get(noun);
        self.nouns.iter().filter(|(_, other)| group == Some(*other)).map(|(word, _)| word).collect()
    }

    /// Returns whether a word stands for a noun of several words, such as `PR` for `pull request`.
    pub(super) fn is_compound_of(&self, word: &str, nouns: &[String]) -> bool {
        let whole = nouns.join(" ");
        let has_all = |pair: &[String]| self.is_same_noun(&pair.join(" "), word);
        self.nouns.contains_key(word)
            && (self.is_same_noun(&whole, word) || nouns.windows(2).any(has_all))
    }

    /// Returns whether a stem begins a verb of two words.
    pub(super) fn is_phrasal(&self, stem: &str) -> bool {
        self.particles.contains_key(stem)
    }

    /// Returns the number that a word says.
    pub(super) fn small_number(&self, word: &str) -> Option<usize> {
        self.forms["numbers"].iter().position(|number| number == word)
    }

    /// Returns the month, from one, that a word says.
    pub(super) fn month(word: &str) -> Option<u32> {
        let month: chrono::Month = word.trim_end_matches('.').parse().ok()?;
        Some(month.number_from_month())
    }

    /// Returns the stem of the unit that a word means: `mins` is a minute.
    pub(super) fn unit(&self, word: &str) -> Option<&'static str> {
        ["seconds", "minutes", "hours"].into_iter().find(|unit| {
            *unit == word
                || self.forms[*unit].iter().any(|form| form == word || stem(form) == stem(word))
        })
    }

    /// Corrects words that are one edit away from a known one: `teh`, `isue`. Their values stay.
    pub(super) fn correct(&self, tokens: &mut [Token], known: &BTreeSet<String>) {
        for token in tokens {
            let is_candidate = token.kind == Kind::Word
                && token.lower.len() >= 3
                && token.lower.bytes().all(|byte| byte.is_ascii_lowercase())
                && token.lower == token.value
                && !known.contains(&token.stem)
                && !self.is_known(&token.lower, &token.stem);
            if !is_candidate {
                continue;
            }
            let verbs = self.verbs.keys().filter(|verb| !verb.contains(' '));
            let words = verbs.chain(self.nouns.keys()).chain(&self.fillers.0).chain(known);
            if let Some(word) = words
                .into_iter()
                .find(|word| is_misspelt(&token.stem, word) || is_misspelt(&token.lower, word))
            {
                token.lower.clone_from(word);
                token.stem = stem(word);
            }
        }
    }

    fn is_known(&self, lower: &str, stem: &str) -> bool {
        self.verbs.contains_key(stem)
            || self.nouns.contains_key(stem)
            || self.fillers.has(lower)
            || self.states.contains_key(lower)
            || self.particles.contains_key(stem)
            || self.cues.values().any(|cues| cues.iter().any(|cue| cue == lower))
            || Self::month(lower).is_some()
            || self.unit(lower).is_some()
            || [&self.moods, &self.conditions, &self.loops]
                .iter()
                .any(|phrases| phrases.0.contains_key(lower))
    }

    /// Counts the entries, which a test limits.
    #[cfg(test)]
    fn count(file: &File) -> usize {
        let groups = [
            &file.verbs,
            &file.cues,
            &file.prepositions,
            &file.moods,
            &file.conditions,
            &file.forms,
            &file.kinds,
            &file.references,
        ];
        let lists = [&file.fillers, &file.joins];
        groups.iter().flat_map(|group| group.values()).map(Vec::len).sum::<usize>()
            + lists.iter().map(|list| list.len()).sum::<usize>()
            + file.nouns.iter().map(Vec::len).sum::<usize>()
            + file.states.len()
    }
}

/// Returns whether a word is another one with one letter more, less or changed, or with two letters
/// swapped. Of three letters, two may only be swapped.
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

    #[test]
    fn the_lexicon_is_small() {
        let file: File = serde_saphyr::from_str(include_str!("../lexicon.en.yml")).unwrap();
        let count = Lexicon::count(&file);
        // Some 35 words stand in the code.
        assert!(count <= 415, "{count} entries");
    }
}
