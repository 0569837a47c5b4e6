//! Makes inputs from a corpus: changed bytes, parts of other entries, and words of the language.

use rand::{RngExt, SeedableRng, rngs::SmallRng};

/// Inputs stay short, because long ones are slow and find no more than short ones.
const MAX_BYTES: usize = 4 << 10;
/// Maximum number of changes of one input.
const MAX_CHANGES: usize = 6;

pub(super) struct Mutator<'a> {
    random: SmallRng,
    corpus: &'a [Vec<u8>],
    tokens: &'a [&'a str],
}

impl<'a> Mutator<'a> {
    pub(super) fn new(seed: u64, corpus: &'a [Vec<u8>], tokens: &'a [&'a str]) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), corpus, tokens }
    }

    pub(super) fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.pick_entry().to_vec();
        for _ in 0..self.random.random_range(1..=MAX_CHANGES) {
            self.change(&mut input);
            input.truncate(MAX_BYTES);
        }
        input
    }

    fn pick_entry(&mut self) -> &'a [u8] {
        &self.corpus[self.random.random_range(0..self.corpus.len())]
    }

    /// Returns a random range of positions, which can be empty.
    fn pick_range(&mut self, len: usize) -> std::ops::Range<usize> {
        let [one, other] = [(); 2].map(|()| self.random.random_range(0..=len));
        one.min(other)..one.max(other)
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.random.random_range(0..=input.len());
        match self.random.random_range(0..7) {
            0 => input.insert(at, self.random.random()),
            1 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.random.random_range(0..8);
                }
            }
            2 => drop(input.drain(self.pick_range(input.len()))),
            3 => {
                let part = input[self.pick_range(input.len())].to_vec();
                let times = self.random.random_range(1..8);
                drop(input.splice(at..at, part.repeat(times)));
            }
            4 => {
                let other = self.pick_entry();
                let part = &other[self.pick_range(other.len())];
                drop(input.splice(at..at, part.iter().copied()));
            }
            _ => {
                let token = self.tokens[self.random.random_range(0..self.tokens.len())];
                drop(input.splice(at..at, token.bytes()));
            }
        }
    }
}
