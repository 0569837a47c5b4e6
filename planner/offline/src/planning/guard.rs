//! Whether the words of a query ask for what a draft does to the world, and for nothing else.

use serde_json::{Map, Value};

use super::{
    super::{
        effort::Stop,
        explain::{self, Problem},
        gate::{self, Call, Passage},
        mood::Taken,
        profile::Profile,
        token::Token,
        veto,
    },
    Planning,
};

/// What a step was made of.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// Which part of the query.
    pub(super) passage: usize,
    /// The parameters that nobody said.
    pub(super) assumed: Vec<String>,
    /// The words that became values, where that was noted.
    pub(super) taken: Vec<Taken>,
}

impl Planning<'_> {
    /// Refuses what changes the world where words leave it open or take it back, and where words are
    /// left that no call accounts for.
    pub(crate) fn guard(&mut self, tokens: &[Token], stop: &Stop) {
        if !self.problems.is_empty() {
            return;
        }
        let told: Vec<Map<String, Value>> = self
            .steps
            .iter()
            .map(|it| {
                it.1.parameters.as_ref().and_then(Value::as_object).cloned().unwrap_or_default()
            })
            .collect();
        let problem = self.vetoed(tokens, &told).or_else(|| self.doubted(tokens, &told, stop));
        if let Some(problem) = problem {
            self.nearest.extend(self.tools.iter().copied());
            self.problems.push((explain::shown(self.query), problem));
        }
    }

    fn vetoed(&self, tokens: &[Token], told: &[Map<String, Value>]) -> Option<Problem> {
        let called = self.called();
        let first = called.iter().find(|it| it.acts())?;
        let calls: Vec<(&Profile, Map<String, Value>)> =
            called.iter().copied().zip(told.iter().cloned()).collect();
        let found = veto::find(self.query, tokens, &calls)?;
        let words = explain::shown(self.query.get(found).unwrap_or_default());
        Some(Problem::Vetoed { tool: first.name.clone(), words })
    }

    fn doubted(
        &self,
        tokens: &[Token],
        told: &[Map<String, Value>],
        stop: &Stop,
    ) -> Option<Problem> {
        let mut passages: Vec<Passage<'_>> = self
            .passages
            .iter()
            .map(|(bytes, has_verb)| Passage {
                bytes: bytes.clone(),
                has_verb: *has_verb,
                calls: Vec::new(),
            })
            .collect();
        let steps = self.steps.iter().map(|it| it.0.as_str());
        let calls = self.tools.iter().zip(&self.origins).zip(told).zip(steps);
        for (((tool, origin), parameters), step) in calls {
            let profile = &self.profiles[*tool];
            let (assumed, taken) = (origin.assumed.as_slice(), origin.taken.as_slice());
            if let Some(passage) = passages.get_mut(origin.passage) {
                passage.calls.push(Call { step, profile, parameters, assumed, taken });
            }
        }
        gate::check(self.query, tokens, self.vocabulary, &passages, stop)
    }
}
