//! The choice of the candidates that fit together best.

use super::{Candidate, Filler, count_f32};

/// Partial assignments that are kept at each token.
const BEAM_WIDTH: usize = 24;
/// Slots of a tool that can be filled: one bit for each.
const MAX_SLOTS: usize = 64;

/// The chosen candidates with the sum of their scores, less the costs of the words without a place.
#[derive(Clone, Default)]
pub(super) struct Chosen {
    pub(super) candidates: Vec<usize>,
    pub(super) score: f32,
    slots: u64,
}

impl Filler<'_> {
    /// Chooses candidates that do not overlap and fill each slot at most once. A beam of the best
    /// choices for the tokens so far moves from token to token.
    pub(super) fn choose(&self, candidates: &[Candidate], costs: &[f32]) -> Chosen {
        let count = self.tokens.len();
        let mut states: Vec<Vec<Chosen>> = vec![Vec::new(); count + 1];
        let mut by_start: Vec<Vec<(usize, &Candidate)>> = vec![Vec::new(); count + 1];
        for (at, candidate) in candidates.iter().enumerate() {
            if candidate.fills.iter().all(|(slot, _)| *slot < MAX_SLOTS) {
                by_start[candidate.tokens.start].push((at, candidate));
            }
        }
        states[0].push(Chosen::default());
        for at in 0..count {
            for state in best_states(std::mem::take(&mut states[at])) {
                for (index, candidate) in &by_start[at] {
                    if let Some(next) = self.with_candidate(&state, *index, candidate) {
                        states[candidate.tokens.end].push(next);
                    }
                }
                states[at + 1].push(Chosen { score: state.score - costs[at], ..state });
            }
        }
        let last = states.pop().unwrap_or_default();
        last.into_iter().max_by(|a, b| a.score.total_cmp(&b.score)).unwrap_or_default()
    }

    fn with_candidate(
        &self,
        state: &Chosen,
        index: usize,
        candidate: &Candidate,
    ) -> Option<Chosen> {
        let slots = candidate.fills.iter().fold(0_u64, |bits, (slot, _)| bits | 1 << slot);
        if slots & state.slots != 0 {
            return None;
        }
        let is_required = |slot: usize| self.tool.slots[slot].is_required;
        let needed = candidate.fills.iter().filter(|(slot, _)| is_required(*slot)).count();
        let mut candidates = state.candidates.clone();
        candidates.push(index);
        let score = state.score + candidate.score + self.weights.required * count_f32(needed);
        Some(Chosen { candidates, score, slots: state.slots | slots })
    }
}

fn best_states(mut states: Vec<Chosen>) -> Vec<Chosen> {
    states.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut seen: Vec<u64> = Vec::new();
    states.retain(|state| {
        let is_new = !seen.contains(&state.slots);
        seen.push(state.slots);
        is_new
    });
    states.truncate(BEAM_WIDTH);
    states
}
