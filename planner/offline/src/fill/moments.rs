//! Days and times as values.

use serde_json::json;

use super::{Candidate, Filler};
use crate::{
    moment::{Moment, write_moment},
    tool::Slot,
};

/// The most tokens between a day and its time that become one value with them.
const NEAR: usize = 6;

impl Filler<'_> {
    pub(super) fn add_moments(&self, at: usize, slot: &Slot, candidates: &mut Vec<Candidate>) {
        let weights = self.weights;
        let days: Vec<&Moment> =
            self.moments.iter().filter(|moment| moment.day.is_some()).collect();
        let times: Vec<&Moment> =
            self.moments.iter().filter(|moment| moment.time.is_some()).collect();
        // The second day or time is the end.
        let is_end = slot.words.iter().any(|word| word == "end" || word == "until");
        let place = usize::from(is_end);
        let own_day = days.get(place).copied();
        let time = times.get(place).copied().filter(|_| slot.with_time);
        if is_end && days.len() < 2 && time.is_none() {
            return;
        }
        let said = own_day.or(days.first().copied()).and_then(|moment| moment.day);
        let Some(day) = said.or_else(|| self.recalled_day()) else { return };
        let parts = || own_day.into_iter().chain(time);
        let first = parts().map(|moment| moment.tokens.start).min();
        let last = parts().map(|moment| moment.tokens.end).max();
        let (Some(mut first), Some(last)) = (first, last) else { return };
        // A time apart from its day claims only itself, because values may stand between them.
        if last - first > NEAR {
            first = time.map_or(first, |moment| moment.tokens.start);
        }
        let context = self.context(first, slot);
        let least = if is_end { 0.0 } else { f32::MIN };
        let score = weights.typed + weights.form + context.score.max(least);
        let time = time.and_then(|moment| moment.time);
        let value = json!(write_moment(day, time));
        candidates.push(self.one(at, value, context.start..last, score));
    }

    /// Returns the day of an earlier step: `at 11:00 that day`.
    fn recalled_day(&self) -> Option<chrono::NaiveDate> {
        let steps = self.scene.memory.steps.iter().rev();
        let mut values = steps.flat_map(|step| step.parameters.values());
        values.find_map(|value| value.as_str()?.get(..10)?.parse().ok())
    }
}
