//! The queue of the calls that wait for the same limits. Tokens take turns, so a token with many
//! waiting calls does not hold up the calls of other tokens.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use tokio::sync::Notify;

/// The name of the token to which a call belongs. Calls without a token share one turn.
pub(super) type Token = Option<Arc<str>>;

/// The position among the calls of a token: the arrival time minus the head start, and the holder.
pub(super) type QueuePosition = (i64, String);

#[derive(Debug, Default)]
pub(super) struct Queue {
    calls: BTreeMap<Token, BTreeMap<QueuePosition, Arc<Notify>>>,
    /// The token whose first call may send requests.
    turn: Token,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.calls.values().map(BTreeMap::len).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn insert(&mut self, token: &Token, position: QueuePosition, turn: Arc<Notify>) {
        if self.calls.is_empty() {
            self.turn.clone_from(token);
        }
        self.calls.entry(token.clone()).or_default().insert(position, turn);
    }

    /// Removes a call and wakes the call that is first now. If the removed call was first, the next
    /// token has its turn.
    pub(super) fn remove(&mut self, token: &Token, position: &QueuePosition) {
        let was_first = self.is_first(token, position);
        let Some(calls) = self.calls.get_mut(token) else { return };
        calls.remove(position);
        if calls.is_empty() {
            self.calls.remove(token);
        }
        if was_first {
            let after = (Bound::Excluded(token), Bound::Unbounded);
            let next = self.calls.range::<Token, _>(after).next();
            if let Some((next, _)) = next.or_else(|| self.calls.first_key_value()) {
                self.turn = next.clone();
            }
        }
        if let Some((_, first)) = self.first() {
            first.notify_one();
        }
    }

    pub(super) fn is_first(&self, token: &Token, position: &QueuePosition) -> bool {
        self.turn == *token && self.first().is_some_and(|(first, _)| first == position)
    }

    fn first(&self) -> Option<(&QueuePosition, &Arc<Notify>)> {
        self.calls.get(&self.turn)?.first_key_value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "a call without a token has `None`")]
    fn token(name: &str) -> Token {
        Some(name.into())
    }

    fn drain(queue: &mut Queue) -> Vec<String> {
        let mut order = Vec::new();
        while let Some((position, _)) = queue.first() {
            let (position, token) = (position.clone(), queue.turn.clone());
            order.push(token.as_deref().unwrap_or("-").to_owned());
            queue.remove(&token, &position);
        }
        order
    }

    #[test]
    fn tokens_take_turns() {
        let mut queue = Queue::default();
        let calls = [token("a"), token("a"), token("a"), token("b"), None, token("b")];
        for (n, owner) in calls.iter().enumerate() {
            queue.insert(owner, (0, n.to_string()), Arc::default());
        }
        assert_eq!(queue.len(), 6);
        assert_eq!(drain(&mut queue), ["a", "b", "-", "a", "b", "a"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_call_that_gives_up_takes_no_turn() {
        let mut queue = Queue::default();
        for n in 0..3 {
            queue.insert(&token("a"), (n, String::new()), Arc::default());
        }
        queue.insert(&token("b"), (0, String::new()), Arc::default());
        queue.remove(&token("a"), &(1, String::new()));
        queue.remove(&token("c"), &(1, String::new()));
        assert!(queue.is_first(&token("a"), &(0, String::new())));
        assert_eq!(drain(&mut queue), ["a", "b", "a"]);
    }
}
