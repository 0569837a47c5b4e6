//! Learned followers: the tools that follow each other in executions that succeeded. Scores are
//! smoothed, so a few observations have little influence.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use shared::{
    clock::Timestamp,
    id::{NodeName, ToolName},
};

use super::{EdgeKind, Toolkit};

/// The time after which the weight of an observation is halved.
pub const HALF_LIFE: TimeDelta = TimeDelta::days(30);
/// The lowest score of an edge. It is above 0, because a transition that was never seen may still
/// be right.
pub const MIN_SCORE: f64 = 0.05;
/// The weight of the prior expectation, in calls.
const PRIOR_CALLS: f64 = 2.0;
const MAX_TOOLS: usize = 5_000;
const MAX_FOLLOWERS: usize = 200;
/// Number of half-lives after which all weights are rescaled, before they overflow.
pub(crate) const MAX_HALF_LIVES: f64 = 30.0;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// The reference time: the time of the first observation, or of the last rescaling.
    since: Option<Timestamp>,
    tools: BTreeMap<ToolName, ToolCounts>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolCounts {
    calls: f64,
    /// Transitions from this tool to a following call.
    left: f64,
    next: BTreeMap<ToolName, f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Follower {
    pub tool: ToolName,
    pub score: f64,
}

impl Learned {
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Adds the calls of an execution that succeeded. `after` has pairs of indexes. The second call
    /// of a pair follows the first.
    pub fn learn(&mut self, calls: &[ToolName], after: &[(usize, usize)], at: Timestamp) {
        let weight = self.observation_weight(at);
        for tool in calls {
            self.tools.entry(tool.clone()).or_default().calls += weight;
        }
        for (from, to) in after {
            let (Some(from), Some(to)) = (calls.get(*from), calls.get(*to)) else { continue };
            if let Some(seen) = self.tools.get_mut(from) {
                seen.left += weight;
                *seen.next.entry(to.clone()).or_default() += weight;
                drop_lightest(&mut seen.next, MAX_FOLLOWERS, |count| *count);
            }
        }
        drop_lightest(&mut self.tools, MAX_TOOLS, |tool| tool.calls);
    }

    fn observation_weight(&mut self, at: Timestamp) -> f64 {
        let since = *self.since.get_or_insert(at);
        let half_lives = half_lives_between(since, at);
        if half_lives < MAX_HALF_LIVES {
            return half_lives.exp2();
        }
        let factor = (-half_lives).exp2();
        for seen in self.tools.values_mut() {
            seen.calls *= factor;
            seen.left *= factor;
            seen.next.values_mut().for_each(|count| *count *= factor);
        }
        self.since = Some(at);
        1.0
    }

    fn fade_factor(&self, at: Timestamp) -> f64 {
        self.since.map_or(1.0, |since| (-half_lives_between(since, at)).exp2())
    }

    pub fn is_followed(&self, tool: &ToolName) -> bool {
        self.tools.get(tool).is_some_and(|seen| !seen.next.is_empty())
    }

    /// Returns the likeliest followers of a tool, likeliest first. Every learned tool has a score.
    /// Observed followers usually come before other tools that are called often.
    pub fn followers(&self, tool: &ToolName, limit: usize, at: Timestamp) -> Vec<Follower> {
        let faded = self.fade_factor(at);
        let all: f64 = self.tools.values().map(|tool| tool.calls).sum();
        let seen = self.tools.get(tool);
        let left = seen.map_or(0.0, |seen| seen.left) * faded;
        let score = |tool: &ToolName, calls: f64| {
            let followed = seen.and_then(|seen| seen.next.get(tool)).copied().unwrap_or(0.0);
            (followed * faded + PRIOR_CALLS * calls / all) / (left + PRIOR_CALLS)
        };
        let mut followers: Vec<Follower> = self
            .tools
            .iter()
            .map(|(tool, seen)| Follower { tool: tool.clone(), score: score(tool, seen.calls) })
            .collect();
        followers.sort_by(|a, b| b.score.total_cmp(&a.score));
        followers.truncate(limit);
        followers
    }

    /// Returns the learned score of an edge, or `None` if no such call or transition of its action
    /// was observed. `tool` returns the tool of a name in the graph.
    pub fn score(
        &self,
        toolkit: &Toolkit,
        from: &NodeName,
        to: &NodeName,
        tool: impl Fn(&NodeName) -> Option<ToolName>,
        at: Timestamp,
    ) -> Option<f64> {
        let edges = || toolkit.successors(from.as_str());
        let is_call = toolkit.tool(to.as_str()).is_some();
        let (seen, all, choices) = if is_call {
            let calls = |name: &NodeName| self.count_calls(toolkit, name, &tool);
            let tools = edges().filter(|edge| edge.kind == EdgeKind::Call);
            let (all, choices) =
                tools.fold((0.0, 0.0), |(sum, n), edge| (sum + calls(edge.to), n + 1.0));
            (calls(to), all, choices)
        } else {
            let others = edges().filter(|edge| edge.kind == EdgeKind::Next);
            let (all, choices) = others.fold((0.0, 0.0), |(sum, n), edge| {
                (sum + self.transition_count(toolkit, from, edge.to, &tool), n + 1.0)
            });
            (self.transition_count(toolkit, from, to, &tool), all, choices)
        };
        if all <= 0.0 {
            return None;
        }
        let faded = self.fade_factor(at);
        let score = (seen * faded + PRIOR_CALLS / choices) / (all * faded + PRIOR_CALLS);
        Some(score.clamp(MIN_SCORE, 1.0))
    }

    fn count_calls(
        &self,
        toolkit: &Toolkit,
        name: &NodeName,
        tool: &impl Fn(&NodeName) -> Option<ToolName>,
    ) -> f64 {
        let seen = tool(name).and_then(|tool| self.tools.get(&tool)).map_or(0.0, |seen| seen.calls);
        seen / caller_count(toolkit, name)
    }

    fn transition_count(
        &self,
        toolkit: &Toolkit,
        from: &NodeName,
        to: &NodeName,
        tool: &impl Fn(&NodeName) -> Option<ToolName>,
    ) -> f64 {
        let tools = |action: &NodeName| {
            let edges = toolkit.successors(action.as_str());
            let calls = edges.filter(|edge| edge.kind == EdgeKind::Call);
            calls
                .filter_map(|edge| Some((tool(edge.to)?, caller_count(toolkit, edge.to))))
                .collect::<Vec<(ToolName, f64)>>()
        };
        let after = tools(to);
        let mut sum = 0.0;
        for (tool, share) in tools(from) {
            let Some(seen) = self.tools.get(&tool) else { continue };
            for (next, other) in &after {
                sum += seen.next.get(next).copied().unwrap_or(0.0) / (share * other);
            }
        }
        sum
    }
}

fn caller_count(toolkit: &Toolkit, tool: &NodeName) -> f64 {
    let count = toolkit.predecessors(tool.as_str()).count();
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)).max(1.0)
}

pub(crate) fn half_lives_between(since: Timestamp, at: Timestamp) -> f64 {
    let passed = (at - since).max(TimeDelta::zero());
    passed.as_seconds_f64() / HALF_LIFE.as_seconds_f64()
}

pub(crate) fn drop_lightest<T>(
    all: &mut BTreeMap<ToolName, T>,
    limit: usize,
    weight: impl Fn(&T) -> f64,
) {
    while all.len() > limit {
        let minimum = all.iter().min_by(|(_, a), (_, b)| weight(a).total_cmp(&weight(b)));
        let Some(name) = minimum.map(|(name, _)| name.clone()) else { return };
        all.remove(&name);
    }
}
