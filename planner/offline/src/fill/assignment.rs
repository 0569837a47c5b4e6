use super::{Candidate, Filler, reading::Repeat, to_f32};
use crate::tool::SlotKind;

const BEAM_WIDTH: usize = 24;

#[derive(Clone, Default)]
pub(super) struct Assignment {
    pub(super) candidates: Vec<usize>,
    pub(super) score: f32,
    counts: Vec<u8>,
}

impl Filler<'_> {
    /// Chooses candidates that do not overlap and fill each slot once, unless they may repeat. At
    /// each token, only the best choices so far are kept (beam search).
    pub(super) fn choose(&self, candidates: &[Candidate], costs: &[f32]) -> Assignment {
        let count = self.tokens.len();
        let mut states: Vec<Vec<Assignment>> = vec![Vec::new(); count + 1];
        let mut by_start: Vec<Vec<(usize, &Candidate)>> = vec![Vec::new(); count + 1];
        for (at, candidate) in candidates.iter().enumerate() {
            by_start[candidate.tokens.start].push((at, candidate));
        }
        let counts = vec![0; self.tool.slots.len()];
        states[0].push(Assignment { counts, ..Assignment::default() });
        for at in 0..count {
            for state in best_states(std::mem::take(&mut states[at])) {
                for (index, candidate) in &by_start[at] {
                    if let Some(gain) = self.gain(&state, candidate, candidates) {
                        states[candidate.tokens.end].push(state.with(*index, candidate, gain));
                    }
                }
                states[at + 1].push(Assignment { score: state.score - costs[at], ..state });
            }
        }
        let last = states.pop().unwrap_or_default();
        last.into_iter().max_by(|a, b| a.score.total_cmp(&b.score)).unwrap_or_default()
    }

    /// Returns the points that a candidate adds to a choice, or `None` if its slot already has a
    /// value and the candidate may not repeat.
    fn gain(&self, state: &Assignment, candidate: &Candidate, all: &[Candidate]) -> Option<f32> {
        let weights = self.weights;
        let is_used = |(slot, _): &(usize, _)| state.counts[*slot] > 0;
        if !candidate.fills.iter().any(is_used) {
            let is_required = |slot: usize| self.tool.slots[slot].is_required;
            let needed = candidate.fills.iter().filter(|(slot, _)| is_required(*slot)).count();
            return Some(candidate.score + weights.required * to_f32(needed));
        }
        let slot = candidate.slot();
        let slots = || state.candidates.iter().map(|at| all[*at].slot());
        let last = &all[*state.candidates.last()?];
        let order = (last.slot(), slot);
        let is_new = order.0 != slot;
        let is_list = self.tool.slots[slot].is_list;
        let follows = is_new && slots().zip(slots().skip(1)).any(|pair| pair == order);
        // If the first slot gets another value, the values of the next call begin here.
        let begins = is_new && slots().next() == Some(slot) && self.is_complete(state);
        let is_item = |end: usize| !is_new && end == last.tokens.end;
        let more = match candidate.repeat {
            Repeat::Never => return None,
            _ if self.tool.slots[slot].kind == SlotKind::Choice => {
                weights.typed - weights.near_form
            }
            Repeat::After(end) if is_item(end) && is_list => weights.required + weights.typed,
            Repeat::After(end) if is_item(end) => 0.0,
            _ if follows => weights.near_form,
            _ if begins || is_list => 0.0,
            _ => -weights.cue,
        };
        Some(candidate.score - weights.typed + more)
    }

    fn is_complete(&self, state: &Assignment) -> bool {
        let mut slots = self.tool.slots.iter().zip(&state.counts);
        slots.all(|(slot, count)| !slot.is_required || *count > 0)
    }
}

impl Assignment {
    fn with(&self, index: usize, candidate: &Candidate, gain: f32) -> Self {
        let mut next = self.clone();
        next.score += gain;
        next.candidates.push(index);
        for (slot, _) in &candidate.fills {
            next.counts[*slot] = next.counts[*slot].saturating_add(1);
        }
        next
    }
}

fn best_states(mut states: Vec<Assignment>) -> Vec<Assignment> {
    states.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut seen: Vec<Vec<u8>> = Vec::new();
    states.retain(|state| {
        let is_new = !seen.contains(&state.counts);
        seen.push(state.counts.clone());
        is_new
    });
    states.truncate(BEAM_WIDTH);
    states
}
