//! How much of what is said and done an agent keeps: each turn is given all that came before it, and
//! what templates bring in has a limit.

use executor::tool::dispatch::RESULT_BYTES;
use shared::limits;

/// Bytes that a turn has, however much was said before it.
const LEAST: usize = 24 << 10;
/// Bytes of a model's words that are kept.
const TEXT_BYTES: usize = 64 << 10;
/// Bytes of a turn besides words and calls: who answered, and what was tried before.
const FRAME: usize = 3 << 10;
/// Bytes around one result, besides the name of the tool.
const ENVELOPE: usize = 192;

/// The bytes that a turn and its results may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room(usize);

impl Room {
    /// Returns the room of a turn behind which there may be so many more, all that came before it
    /// having so many bytes. What earlier turns did not need is there for later ones.
    pub(super) fn of(used: usize, after: usize) -> Self {
        let left = limits::OUTPUT_BYTES.saturating_sub(used);
        let even = left / (after + 1);
        let spare = left.saturating_sub(after.saturating_mul(LEAST));
        Self(even.max(spare.min(left / 4)))
    }

    /// Returns the bytes of its words.
    pub(super) fn words(self) -> usize {
        (self.0 / 4).saturating_sub(FRAME).min(TEXT_BYTES)
    }

    /// Returns the bytes of its calls, with what they are given.
    pub(super) fn calls(self) -> usize {
        self.0 / 4
    }

    /// Returns the bytes of the calls that are not made.
    pub(super) fn refused(self) -> usize {
        self.0 / 8
    }

    /// Returns the bytes of the result of each of so many calls.
    pub(super) fn result(self, calls: usize, tool: &str) -> usize {
        let each = self.0 / 8 * 3 / calls.max(1);
        each.saturating_sub(ENVELOPE + tool.len()).min(RESULT_BYTES)
    }
}

/// Returns a text of at most so many bytes, and a sign where it was longer.
pub(super) fn clipped(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub('…'.len_utf8())));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::MOST_TURNS;

    #[test]
    fn turns_that_use_all_their_room_leave_enough_for_the_others() {
        for of in 1..=MOST_TURNS as usize {
            let mut used = 0;
            for turn in 1..=of {
                let room = Room::of(used, of - turn);
                assert!(room.0 >= LEAST, "turn {turn} of {of}: {room:?}");
                used += room.0;
            }
            assert!(used <= limits::OUTPUT_BYTES, "{of} turns: {used}");
        }
    }

    #[test]
    fn a_few_large_results_are_whole() {
        for of in [1, 3, 32] {
            assert_eq!(Room::of(0, of - 1).result(2, "files.read"), RESULT_BYTES, "{of} turns");
        }
    }

    #[test]
    fn words_are_cut_between_letters() {
        assert_eq!(clipped("ab".to_owned(), 2), "ab");
        assert_eq!(clipped("äää".to_owned(), 5), "ä…");
        assert_eq!(clipped("äää".to_owned(), 0), "…");
    }
}
