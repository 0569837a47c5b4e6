//! The words of a passage as one text, in which values are found without case and spaces.

use std::ops::Range;

use super::{
    super::{
        effort::Effort,
        token::{Kind, Token},
    },
    claim::Place,
};

/// A passage as it was said.
#[derive(Debug)]
pub(super) struct Text<'a> {
    tokens: &'a [Token],
    from: usize,
    chars: Vec<char>,
    /// Where each token begins and ends in it, and where it ends without `'s`.
    places: Vec<(usize, usize, usize)>,
}

impl<'a> Text<'a> {
    /// Reads a passage.
    pub(super) fn read(query: &str, tokens: &'a [Token], place: &Place) -> Self {
        let mut chars = Vec::new();
        let mut places = Vec::new();
        let mut read = tokens.get(place.from).map_or(0, |it| it.start);
        for token in &tokens[place.from..place.to] {
            chars.extend(folded(query.get(read..token.start).unwrap_or_default()));
            let begin = chars.len();
            let owned = token.end - (token.value.len() - token.without_possessive().len());
            chars.extend(folded(query.get(token.start..owned).unwrap_or_default()));
            let bare = chars.len();
            chars.extend(folded(query.get(owned..token.end).unwrap_or_default()));
            places.push((begin, chars.len(), bare));
            read = token.end;
        }
        Self { tokens, from: place.from, chars, places }
    }

    /// Returns the words that say a text as it is, nothing where that would take too long.
    pub(super) fn find(&self, text: &str, effort: &Effort) -> Vec<Range<usize>> {
        let wanted: Vec<char> = folded(text).collect();
        if text.is_empty() || !effort.spend(self.chars.len() + wanted.len() + self.places.len()) {
            return Vec::new();
        }
        let lower = text.to_lowercase();
        let starts = self.occurrences(&wanted);
        let mut found = Vec::new();
        for (nth, (begin, ..)) in self.places.iter().enumerate() {
            let first = &self.tokens[self.from + nth];
            let at = self.from + nth;
            if first.kind == Kind::Quoted && first.value == text {
                found.push(at..at + 1);
                continue;
            }
            let plain = first.value.trim_start_matches('#');
            let is_begin = lower.starts_with(first.without_possessive().to_lowercase().as_str())
                || text.starts_with(plain);
            if !is_begin {
                continue;
            }
            let marks = first.value.len() - plain.len();
            let end = [*begin, begin + marks].into_iter().find_map(|it| {
                starts.get(it).copied().unwrap_or_default().then_some(())?;
                self.ends(nth, it + wanted.len())
            });
            found.extend(end.map(|it| at..it));
        }
        found
    }

    /// Returns behind which token a text ends, if it ends with one.
    fn ends(&self, nth: usize, end: usize) -> Option<usize> {
        let behind = &self.places[nth..];
        let last = behind.partition_point(|it| it.1 < end);
        let (_, whole, bare) = behind.get(last)?;
        (*whole == end || *bare == end).then_some(self.from + nth + last + 1)
    }

    /// Returns for each character whether the text begins there, looking at each only twice.
    fn occurrences(&self, wanted: &[char]) -> Vec<bool> {
        let mut starts = vec![false; self.chars.len()];
        // How much of the beginning of the text its first characters end with.
        let mut ends_with = vec![0; wanted.len()];
        let mut same = 0;
        for at in 1..wanted.len() {
            while same > 0 && wanted[at] != wanted[same] {
                same = ends_with[same - 1];
            }
            same += usize::from(wanted[at] == wanted[same]);
            ends_with[at] = same;
        }
        same = 0;
        for (at, char) in self.chars.iter().enumerate() {
            while same > 0 && (same == wanted.len() || *char != wanted[same]) {
                same = ends_with[same - 1];
            }
            same += usize::from(wanted.first().is_some_and(|_| *char == wanted[same]));
            if same == wanted.len() && same > 0 {
                starts[at + 1 - same] = true;
            }
        }
        starts
    }
}

fn folded(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter(|it| !it.is_whitespace()).flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::super::effort::Stop, *};
    use crate::token;

    fn find(query: &str, text: &str) -> (Vec<String>, usize) {
        let tokens = token::tokens(query);
        let place = Place { from: 0, to: tokens.len() };
        let effort = Effort::until(&Stop::default());
        let said = Text::read(query, &tokens, &place);
        let found = said.find(text, &effort).into_iter();
        let found =
            found.map(|it| query[tokens[it.start].start..tokens[it.end - 1].end].to_owned());
        (found.collect(), effort.spent())
    }

    #[test]
    fn a_text_is_found_as_whole_words() {
        for (query, text, found) in [
            ("banana ana", "ana", &["ana"][..]),
            ("xab aba abab", "aba", &["aba"]),
            ("add ANN's friend Ann", "Ann", &["ANN's", "Ann"]),
            ("add New  York, new york", "New York", &["New  York", "new york"]),
            ("order #7 and 7", "7", &["#7", "7"]),
            ("say 'a b' and a b", "a b", &["'a b'", "a b"]),
            ("a a a", "a a", &["a a", "a a"]),
            ("nothing", "", &[]),
        ] {
            assert_eq!(find(query, text).0, found, "{query}: {text}");
        }
    }

    #[test]
    fn words_that_are_said_again_and_again_take_as_many_steps_as_there_are_letters() {
        let query = "a ".repeat(9_000);
        let (_, steps) = find(&query, query.trim());
        assert!(steps < 60_000, "{steps}");
    }

    #[test]
    fn what_is_stopped_finds_nothing_and_says_so() {
        let tokens = token::tokens("close north");
        let stop = Stop::default();
        let (effort, place) = (Effort::until(&stop), Place { from: 0, to: 2 });
        let said = Text::read("close north", &tokens, &place);
        assert_eq!(said.find("north", &effort).first(), Some(&(1..2)));
        stop.stop();
        assert!(said.find("north", &effort).is_empty());
        assert!(effort.is_over());
    }

    proptest! {
        /// What is found is the text, and what says it as words is found.
        #[test]
        fn it_is_what_is_said(query in "[ab ]{0,40}", from in 0_usize..12, len in 1_usize..6) {
            let tokens = token::tokens(&query);
            let to = (from + len).min(tokens.len());
            if from < to {
                let text = &query[tokens[from].start..tokens[to - 1].end];
                let (found, _) = find(&query, text);
                prop_assert!(found.contains(&text.to_owned()));
                let plain = |it: &str| it.replace(' ', "");
                prop_assert!(found.iter().all(|it| plain(it) == plain(text)));
            }
        }
    }
}
