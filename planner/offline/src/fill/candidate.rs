//! Words that may fill slots.

use std::ops::Range;

use super::reading::Filling;

/// Words that may fill one slot, or several that belong together.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) fills: Vec<(usize, Filling)>,
    pub(super) tokens: Range<usize>,
    /// The tokens of the value alone, without cues.
    pub(super) value: Range<usize>,
    pub(super) score: f32,
    /// The step that the value comes from.
    pub(super) link: Option<usize>,
    pub(super) is_guess: bool,
}

impl Candidate {
    pub(super) fn new(fills: Vec<(usize, Filling)>, tokens: Range<usize>, score: f32) -> Self {
        let value = tokens.clone();
        Self { fills, tokens, value, score, link: None, is_guess: false }
    }

    /// Tells which of the tokens are the value.
    pub(super) fn valued(self, value: Range<usize>) -> Self {
        Self { value, ..self }
    }
}
