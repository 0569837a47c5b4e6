//! Shares of tokens in a list of due executions. A token with thousands of due executions would
//! otherwise fill each list, and no worker would see the execution of another token.

use std::collections::VecDeque;

use super::ExecutionHead;

/// A list of one execution is for the executions that have been due longest once in this number of
/// turns.
const AGED_TURNS: u32 = 8;

/// Moves the token that has its turn in a list of `most` executions to the front.
pub fn rotate_tokens<T>(tokens: &mut [T], turn: u32, most: usize) {
    // A turn in which a list of one execution has no place for tokens moves no token. Otherwise one
    // of eight tokens would never be first in such a list.
    let turn = if most == 1 { turn - turn / AGED_TURNS } else { turn };
    if !tokens.is_empty() {
        tokens.rotate_left(turn as usize % tokens.len());
    }
}

/// Divides the places of a list among tokens. Read what [`next_read`](Self::next_read) asks for and
/// pass it to [`add_found`](Self::add_found), until `next_read` returns `None`.
#[derive(Debug)]
pub struct PlaceShares<T> {
    places: usize,
    lists: Vec<Vec<T>>,
    /// The share of each token in the places that were free when this round of reads began.
    share: usize,
    /// The tokens that this round has not read yet.
    unread: VecDeque<usize>,
    /// The tokens that filled their shares in this round.
    open: VecDeque<usize>,
}

/// A read of the first due executions of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenRead {
    /// The place of the token in the list of tokens.
    pub token: usize,
    /// The maximum number of executions. It includes the executions of earlier reads.
    pub most: usize,
}

impl<T> PlaceShares<T> {
    /// Divides `places` among a number of tokens, the token that has its turn first.
    pub fn new(places: usize, tokens: usize) -> Self {
        Self {
            places,
            lists: (0..tokens).map(|_| Vec::new()).collect(),
            share: token_share(places, tokens),
            unread: (0..tokens).collect(),
            open: VecDeque::new(),
        }
    }

    /// Returns the next read, or `None` if all places are filled or no token has more due executions.
    pub fn next_read(&mut self) -> Option<TokenRead> {
        let filled: usize = self.lists.iter().map(Vec::len).sum();
        let free = self.places.saturating_sub(filled);
        if free == 0 {
            return None;
        }
        if self.unread.is_empty() {
            self.unread = std::mem::take(&mut self.open);
            self.share = token_share(free, self.unread.len());
        }
        let token = self.unread.pop_front()?;
        Some(TokenRead { token, most: self.lists[token].len() + self.share.min(free) })
    }

    /// Stores the result of a read.
    pub fn add_found(&mut self, read: TokenRead, found: Vec<T>) {
        if found.len() >= read.most {
            self.open.push_back(read.token);
        }
        self.lists[read.token] = found;
    }

    /// Returns the executions of all tokens in turns.
    pub fn into_list(self) -> Vec<T> {
        interleave_lists(self.lists)
    }
}

fn token_share(places: usize, tokens: usize) -> usize {
    places.div_ceil(tokens.max(1))
}

/// Merges the lists of all tokens: first the first execution of each token, then the second.
fn interleave_lists<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut merged = Vec::with_capacity(lists.iter().map(ExactSizeIterator::len).sum());
    while !lists.is_empty() {
        lists.retain_mut(|list| match list.next() {
            Some(item) => {
                merged.push(item);
                true
            }
            None => false,
        });
    }
    merged
}

/// Returns the number of entries in a list of `most` due executions that are reserved for the
/// executions that have been due the longest. Otherwise a worker might never claim these
/// executions.
pub fn aged_places(most: usize, turn: u32) -> usize {
    match most {
        0 => 0,
        1 => usize::from(turn % AGED_TURNS == AGED_TURNS - 1),
        _ => (most / 8).max(1),
    }
}

/// Appends the heads of `longest` that `heads` does not contain, until `heads` has `most` entries.
pub fn add_longest_due(heads: &mut Vec<ExecutionHead>, longest: Vec<ExecutionHead>, most: usize) {
    for head in longest {
        if heads.len() < most && heads.iter().all(|other| other.execution != head.execution) {
            heads.push(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Divides places among tokens with these numbers of due executions. Returns the token of each
    /// place, and the number of reads.
    fn share_places(places: usize, due: &[usize]) -> (Vec<usize>, usize) {
        let mut shares = PlaceShares::new(places, due.len());
        let mut reads = 0;
        while let Some(read) = shares.next_read() {
            reads += 1;
            shares.add_found(read, vec![read.token; read.most.min(due[read.token])]);
        }
        (shares.into_list(), reads)
    }

    #[test]
    fn tokens_leave_unused_places_to_others() {
        assert_eq!(share_places(6, &[9, 9, 9]), (vec![0, 1, 2, 0, 1, 2], 3));
        assert_eq!(share_places(6, &[0, 9, 1]), (vec![1, 2, 1, 1, 1, 1], 4));
        assert_eq!(share_places(9, &[9, 2, 4]), (vec![0, 1, 2, 0, 1, 2, 0, 2, 0], 4));
        assert_eq!(share_places(9, &[1, 2]), (vec![0, 1, 1], 2));
        assert_eq!(share_places(1, &[0, 0, 3, 3]), (vec![2], 3));
        assert_eq!(share_places(2, &[9, 9, 9]), (vec![0, 1], 2));
        assert_eq!(share_places(0, &[9]), (vec![], 0));
        assert_eq!(share_places(5, &[]), (vec![], 0));
    }

    #[test]
    fn lists_are_merged_in_turns() {
        let merged = interleave_lists(vec![vec![1, 4, 6], vec![2], vec![], vec![3, 5]]);
        assert_eq!(merged, [1, 2, 3, 4, 5, 6]);
        assert_eq!((token_share(1, 3), token_share(8, 3), token_share(8, 0)), (1, 3, 8));
    }

    #[test]
    fn each_token_is_first_in_lists_of_any_length() {
        let first = |turn, most| {
            let mut tokens = ["a", "b", "c"];
            rotate_tokens(&mut tokens, turn, most);
            tokens[0]
        };
        assert_eq!([0, 1, 2, 3, 8].map(|turn| first(turn, 9)), ["a", "b", "c", "a", "c"]);
        rotate_tokens::<u8>(&mut [], 5, 9);
        // The eighth list of one execution has no place for tokens.
        for count in 1..=24 {
            let turns = (0..8 * count).filter(|turn| aged_places(1, *turn) == 0);
            let fronts = turns.map(|turn| {
                let mut tokens: Vec<u32> = (0..count).collect();
                rotate_tokens(&mut tokens, turn, 1);
                tokens[0]
            });
            let mut found: Vec<u32> = fronts.collect();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found, (0..count).collect::<Vec<_>>(), "{count} tokens");
        }
    }

    #[test]
    fn the_longest_due_have_a_place_in_lists_of_one_execution() {
        assert_eq!([0, 1, 2, 9, 16, 100].map(|most| aged_places(most, 0)), [0, 0, 1, 1, 2, 12]);
        let aged: Vec<u32> = (0..24).filter(|turn| aged_places(1, *turn) == 1).collect();
        assert_eq!(aged, [7, 15, 23]);
        assert_eq!(aged_places(0, 7), 0);
    }
}
