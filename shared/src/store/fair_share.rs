//! Shares of tokens in a list of due executions.
//!
//! If executions of several tokens are due, a list has about as many of each token. Otherwise a
//! token with thousands of due executions would fill each list, and no worker would see the
//! execution of another token. `docs/design/quotas.md` explains the choice.

use super::ExecutionHead;

/// Moves the token that has its turn to the front.
pub fn rotate_tokens<T>(tokens: &mut [T], turn: u32) {
    if !tokens.is_empty() {
        tokens.rotate_left(turn as usize % tokens.len());
    }
}

/// Returns the number of executions of one token in a list.
pub fn token_share(places: usize, tokens: usize) -> usize {
    places.div_ceil(tokens.max(1))
}

/// Merges the lists of all tokens: first the first execution of each token, then the second.
pub fn interleave_heads<T>(lists: Vec<Vec<T>>) -> Vec<T> {
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
/// executions that have been due the longest.
pub fn aged_places(most: usize) -> usize {
    if most < 2 { 0 } else { (most / 8).max(1) }
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

    #[test]
    fn lists_are_merged_in_turns() {
        let merged = interleave_heads(vec![vec![1, 4, 6], vec![2], vec![], vec![3, 5]]);
        assert_eq!(merged, [1, 2, 3, 4, 5, 6]);
        let mut tokens = ["a", "b", "c"];
        rotate_tokens(&mut tokens, 5);
        assert_eq!(tokens, ["c", "a", "b"]);
        rotate_tokens::<u8>(&mut [], 5);
        assert_eq!((token_share(1, 3), token_share(8, 3), token_share(8, 0)), (1, 3, 8));
    }
}
