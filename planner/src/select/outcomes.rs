//! Learned outcomes: tools that succeeded or failed for queries of a kind. The leader algorithm
//! (Hartigan, “Clustering Algorithms”, 1975, chapter 3) groups queries.

use std::{cmp::Ordering, collections::BTreeMap};

use serde::{Deserialize, Serialize};
use shared::{clock::Timestamp, id::ToolName};

use crate::toolkit::learned::{MAX_HALF_LIVES, drop_lightest, half_lives_between};

/// The least cosine between a query and the first query of its kind. With common models, sentences
/// that differ only in names reach this value, and sentences with another purpose do not.
pub const MIN_SIMILARITY: f64 = 0.75;
/// The weight of the prior expectation. The expected score is 0: neither success nor failure.
const PRIOR_WEIGHT: f64 = 2.0;
pub(super) const MAX_KINDS: usize = 256;
const MAX_TOOLS: usize = 32;
const MAX_QUERY_BYTES: usize = 1_000;

/// The learned outcomes of queries. Weights are relative to a time, like the weights of learned
/// transitions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcomes {
    since: Option<Timestamp>,
    kinds: Vec<QueryKind>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueryKind {
    query: String,
    /// The time of the last change. `None` in entries of earlier versions.
    #[serde(default)]
    at: Option<Timestamp>,
    tools: BTreeMap<ToolName, Outcome>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outcome {
    well: f64,
    failed: f64,
}

impl Outcomes {
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    pub fn queries(&self) -> impl ExactSizeIterator<Item = &str> {
        self.kinds.iter().map(|kind| kind.query.as_str())
    }

    pub fn learn(
        &mut self,
        kind: Option<usize>,
        query: &str,
        tools: &[(ToolName, bool)],
        at: Timestamp,
    ) {
        let weight = self.current_weight(at);
        let place =
            kind.filter(|place| *place < self.kinds.len()).unwrap_or_else(|| self.add_kind(query));
        let kind = &mut self.kinds[place];
        kind.at = kind.at.max(Some(at));
        let known_tools = &mut kind.tools;
        for (tool, did_well) in tools {
            let outcome = known_tools.entry(tool.clone()).or_default();
            let counted = if *did_well { &mut outcome.well } else { &mut outcome.failed };
            *counted += weight;
        }
        drop_lightest(known_tools, MAX_TOOLS, Outcome::current_weight);
    }

    pub fn forget(&mut self, before: Timestamp) -> usize {
        let had = self.kinds.len();
        self.kinds.retain(|kind| kind.at.is_some_and(|at| at >= before));
        had - self.kinds.len()
    }

    /// Adds a kind of query. If there are too many kinds, it replaces the kind with the least
    /// weight.
    fn add_kind(&mut self, query: &str) -> usize {
        let query = query[..query.floor_char_boundary(MAX_QUERY_BYTES)].to_owned();
        let kind = QueryKind { query, at: None, tools: BTreeMap::new() };
        if self.kinds.len() < MAX_KINDS {
            self.kinds.push(kind);
            return self.kinds.len() - 1;
        }
        let weights = self.kinds.iter().map(QueryKind::current_weight).enumerate();
        let minimum = weights.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |minimum| minimum.0);
        self.kinds[minimum] = kind;
        minimum
    }

    fn current_weight(&mut self, at: Timestamp) -> f64 {
        let since = *self.since.get_or_insert(at);
        let half_lives = half_lives_between(since, at);
        if half_lives < MAX_HALF_LIVES {
            return half_lives.exp2();
        }
        let factor = (-half_lives).exp2();
        for outcome in self.kinds.iter_mut().flat_map(|kind| kind.tools.values_mut()) {
            outcome.well *= factor;
            outcome.failed *= factor;
        }
        self.since = Some(at);
        1.0
    }

    /// Returns the learned score of each tool for a kind, from -1 (always failed) to 1 (always
    /// succeeded). The score is near 0 after few outcomes.
    pub fn list_verdicts(
        &self,
        kind: usize,
        at: Timestamp,
    ) -> impl Iterator<Item = (&ToolName, f64)> {
        let faded = self.since.map_or(1.0, |since| (-half_lives_between(since, at)).exp2());
        let tools = self.kinds.get(kind).into_iter().flat_map(|kind| &kind.tools);
        tools.map(move |(tool, outcome)| {
            let balance = (outcome.well - outcome.failed) * faded;
            (tool, balance / (outcome.current_weight() * faded + PRIOR_WEIGHT))
        })
    }
}

impl QueryKind {
    fn current_weight(&self) -> f64 {
        self.tools.values().map(Outcome::current_weight).sum()
    }
}

impl Outcome {
    fn current_weight(&self) -> f64 {
        self.well + self.failed
    }
}

pub(super) fn nearest_kind(cosines: impl Iterator<Item = f64>) -> Option<usize> {
    let nearest = cosines.enumerate().max_by(|a, b| match a.1.total_cmp(&b.1) {
        // Of equally near kinds, the earliest is returned.
        Ordering::Equal => b.0.cmp(&a.0),
        other => other,
    })?;
    (nearest.1 >= MIN_SIMILARITY).then_some(nearest.0)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;
    use crate::toolkit::learned::HALF_LIFE;

    fn parse_tool(name: &str) -> ToolName {
        name.parse().unwrap()
    }

    fn find_verdict(outcomes: &Outcomes, kind: usize, name: &str, at: Timestamp) -> f64 {
        let mut found =
            outcomes.list_verdicts(kind, at).filter(|verdict| verdict.0.as_str() == name);
        found.next().map_or(f64::NAN, |verdict| verdict.1)
    }

    #[test]
    fn successes_and_failures_change_the_learned_score() {
        let (mut outcomes, at) = (Outcomes::default(), Timestamp::UNIX_EPOCH);
        for _ in 0..6 {
            let kind = (!outcomes.is_empty()).then_some(0);
            outcomes.learn(
                kind,
                "a query",
                &[(parse_tool("s.good"), true), (parse_tool("s.bad"), false)],
                at,
            );
        }
        outcomes.learn(None, "another", &[(parse_tool("s.bad"), true)], at);
        assert_eq!(outcomes.queries().collect::<Vec<_>>(), ["a query", "another"]);
        assert!((find_verdict(&outcomes, 0, "s.good", at) - 0.75).abs() < 1e-12);
        assert!((find_verdict(&outcomes, 0, "s.bad", at) + 0.75).abs() < 1e-12);
        let once = find_verdict(&outcomes, 1, "s.bad", at);
        assert!((once - 1.0 / 3.0).abs() < 1e-12, "one outcome has little influence: {once}");
        assert_eq!(outcomes.list_verdicts(2, at).count(), 0);
        let kept = serde_json::to_value(&outcomes).unwrap();
        assert_eq!(serde_json::from_value::<Outcomes>(kept).unwrap(), outcomes);
    }

    #[test]
    fn unused_kinds_of_queries_are_removed() {
        let (mut outcomes, at) = (Outcomes::default(), Timestamp::UNIX_EPOCH);
        let tools = [(parse_tool("s.t"), true)];
        let later = at + TimeDelta::days(1);
        for query in ["a", "b", "c"] {
            outcomes.learn(None, query, &tools, at);
        }
        outcomes.learn(Some(1), "like b", &tools, later);
        outcomes.learn(Some(1), "one that comes late", &tools, at);
        assert_eq!(outcomes.forget(at), 0);
        assert_eq!(outcomes.forget(later), 2);
        assert_eq!(outcomes.queries().collect::<Vec<_>>(), ["b"]);
        let before = r#"{ "since": null, "kinds": [{ "query": "q", "tools": {} }] }"#;
        let mut kept: Outcomes = serde_json::from_str(before).unwrap();
        assert_eq!(kept.forget(at), 1, "the age is unknown");
    }

    #[test]
    fn older_outcomes_count_less() {
        let (mut outcomes, mut at) = (Outcomes::default(), Timestamp::UNIX_EPOCH);
        outcomes.learn(None, "q", &[(parse_tool("s.t"), true), (parse_tool("s.t"), true)], at);
        assert!((find_verdict(&outcomes, 0, "s.t", at) - 0.5).abs() < 1e-12);
        at += HALF_LIFE;
        assert!((find_verdict(&outcomes, 0, "s.t", at) - 1.0 / 3.0).abs() < 1e-12);
        outcomes.learn(Some(0), "q", &[(parse_tool("s.t"), false)], at);
        assert!(
            find_verdict(&outcomes, 0, "s.t", at).abs() < 1e-12,
            "one success and one failure cancel out"
        );
        for _ in 0..80 {
            at += HALF_LIFE;
            outcomes.learn(Some(0), "q", &[(parse_tool("s.t"), false)], at);
        }
        let verdict = find_verdict(&outcomes, 0, "s.t", at);
        assert!((verdict + 0.5).abs() < 1e-6, "the weights sum up to two half-lives: {verdict}");
    }

    #[test]
    fn learned_outcomes_are_limited() {
        let (mut outcomes, at) = (Outcomes::default(), Timestamp::UNIX_EPOCH);
        let often = [(parse_tool("s.often"), true), (parse_tool("s.often"), true)];
        outcomes.learn(None, "often", &often, at);
        for n in 0..MAX_KINDS + 20 {
            outcomes.learn(None, &format!("{n} {}", "é".repeat(MAX_QUERY_BYTES)), &often[..1], at);
        }
        assert_eq!(outcomes.queries().len(), MAX_KINDS);
        assert_eq!(outcomes.queries().next(), Some("often"), "the least goes");
        assert!(outcomes.queries().all(|query| query.len() <= MAX_QUERY_BYTES));
        for n in 0..2 * MAX_TOOLS {
            outcomes.learn(
                Some(0),
                "often",
                &[(parse_tool(&format!("s.t{n}")), true)],
                at + TimeDelta::zero(),
            );
        }
        assert_eq!(outcomes.list_verdicts(0, at).count(), MAX_TOOLS);
        assert!(find_verdict(&outcomes, 0, "s.often", at) > 0.0);
    }

    #[test]
    fn a_query_belongs_to_the_nearest_kind() {
        for (cosines, expected) in [
            (&[0.2, 0.8, 0.9, 0.9][..], Some(2)),
            (&[0.75], Some(0)),
            (&[0.749], None),
            (&[], None),
        ] {
            assert_eq!(nearest_kind(cosines.iter().copied()), expected, "{cosines:?}");
        }
    }
}
