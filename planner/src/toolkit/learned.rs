//! What executions that succeeded teach: which tool follows which, and how often each is called.
//!
//! Counts of calls and of transitions from one tool to the next, in which what is older counts
//! less. Scores are shares of them, smoothed: what was seen a few times says little yet. What is
//! learned never changes what somebody configured: both are there, and shown apart.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use shared::{
    clock::Timestamp,
    id::{NodeName, ToolName},
};

use super::{EdgeKind, Toolkit};

/// How long it takes until something counts half.
pub const HALF_LIFE: TimeDelta = TimeDelta::days(30);
/// No score is lower: what was never seen may still be right.
pub const FLOOR: f64 = 0.05;
/// How many calls the expectation counts for that there is before anything was seen.
const PRIOR: f64 = 2.0;
/// The most tools that are remembered.
const TOOLS: usize = 5_000;
/// The most tools that are remembered behind one.
const FOLLOWERS: usize = 200;
/// Half-lives after which weights are written anew, before they become too large to add to.
pub(crate) const AGES: f64 = 30.0;

/// What was learned.
///
/// Weights are relative to a moment: what happens a half-life later counts twice as much, so that
/// nothing needs to be touched when time passes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learned {
    /// The moment; the time of the first lesson.
    since: Option<Timestamp>,
    /// Each tool that was called.
    tools: BTreeMap<ToolName, Seen>,
}

/// What was seen of one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    /// How often it was called.
    calls: f64,
    /// How often something came after it.
    left: f64,
    /// How often each came after it.
    next: BTreeMap<ToolName, f64>,
}

/// A tool that usually follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Follower {
    /// The tool.
    pub tool: ToolName,
    /// How likely it is.
    pub score: f64,
}

impl Learned {
    /// Returns whether nothing was learned yet.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Takes in the calls of an execution that succeeded, and which of them came right after which,
    /// by their places.
    pub fn learn(&mut self, calls: &[ToolName], after: &[(usize, usize)], at: Timestamp) {
        let weight = self.weight(at);
        for tool in calls {
            self.tools.entry(tool.clone()).or_default().calls += weight;
        }
        for (from, to) in after {
            let (Some(from), Some(to)) = (calls.get(*from), calls.get(*to)) else { continue };
            if let Some(seen) = self.tools.get_mut(from) {
                seen.left += weight;
                *seen.next.entry(to.clone()).or_default() += weight;
                drop_least(&mut seen.next, FOLLOWERS, |it| *it);
            }
        }
        drop_least(&mut self.tools, TOOLS, |it| it.calls);
    }

    /// Returns what a lesson counts.
    fn weight(&mut self, at: Timestamp) -> f64 {
        let since = *self.since.get_or_insert(at);
        let ages = ages(since, at);
        if ages < AGES {
            return ages.exp2();
        }
        let factor = (-ages).exp2();
        for seen in self.tools.values_mut() {
            seen.calls *= factor;
            seen.left *= factor;
            seen.next.values_mut().for_each(|it| *it *= factor);
        }
        self.since = Some(at);
        1.0
    }

    /// Returns what the weights are to be multiplied with, so that they are counts at a time.
    fn faded(&self, at: Timestamp) -> f64 {
        self.since.map_or(1.0, |since| (-ages(since, at)).exp2())
    }

    /// Returns whether any tool has ever followed one.
    pub fn is_followed(&self, tool: &ToolName) -> bool {
        self.tools.get(tool).is_some_and(|it| !it.next.is_empty())
    }

    /// Returns the tools that usually follow one, the likeliest first: those that did, and behind
    /// them those that are called most.
    pub fn followers(&self, tool: &ToolName, most: usize, at: Timestamp) -> Vec<Follower> {
        let faded = self.faded(at);
        let all: f64 = self.tools.values().map(|it| it.calls).sum();
        let seen = self.tools.get(tool);
        let left = seen.map_or(0.0, |it| it.left) * faded;
        let score = |tool: &ToolName, calls: f64| {
            let followed = seen.and_then(|it| it.next.get(tool)).copied().unwrap_or(0.0);
            (followed * faded + PRIOR * calls / all) / (left + PRIOR)
        };
        let mut followers: Vec<Follower> = self
            .tools
            .iter()
            .map(|(tool, seen)| Follower { tool: tool.clone(), score: score(tool, seen.calls) })
            .collect();
        followers.sort_by(|a, b| b.score.total_cmp(&a.score));
        followers.truncate(most);
        followers
    }

    /// Returns the learned score of an edge of a toolkit, unless nothing that its action calls was
    /// ever called. `tool` says which tool a name in the graph means.
    ///
    /// Executions call tools, not actions: a tool that several actions call counts for each of them
    /// by its share.
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
            let calls = |name: &NodeName| self.calls(toolkit, name, &tool);
            let tools = edges().filter(|it| it.kind == EdgeKind::Call);
            let (all, choices) =
                tools.fold((0.0, 0.0), |(sum, n), it| (sum + calls(it.to), n + 1.0));
            (calls(to), all, choices)
        } else {
            let others = edges().filter(|it| it.kind == EdgeKind::Next);
            let (all, choices) = others.fold((0.0, 0.0), |(sum, n), it| {
                (sum + self.transitions(toolkit, from, it.to, &tool), n + 1.0)
            });
            (self.transitions(toolkit, from, to, &tool), all, choices)
        };
        if all <= 0.0 {
            return None;
        }
        let faded = self.faded(at);
        let score = (seen * faded + PRIOR / choices) / (all * faded + PRIOR);
        Some(score.clamp(FLOOR, 1.0))
    }

    /// Returns how often a tool was called for one of the actions that call it.
    fn calls(
        &self,
        toolkit: &Toolkit,
        name: &NodeName,
        tool: &impl Fn(&NodeName) -> Option<ToolName>,
    ) -> f64 {
        let seen = tool(name).and_then(|it| self.tools.get(&it)).map_or(0.0, |it| it.calls);
        seen / callers(toolkit, name)
    }

    /// Returns how often a tool of one action came right after a tool of another.
    fn transitions(
        &self,
        toolkit: &Toolkit,
        from: &NodeName,
        to: &NodeName,
        tool: &impl Fn(&NodeName) -> Option<ToolName>,
    ) -> f64 {
        let tools = |action: &NodeName| {
            let edges = toolkit.successors(action.as_str());
            let calls = edges.filter(|it| it.kind == EdgeKind::Call);
            calls
                .filter_map(|it| Some((tool(it.to)?, callers(toolkit, it.to))))
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

fn callers(toolkit: &Toolkit, tool: &NodeName) -> f64 {
    let count = toolkit.predecessors(tool.as_str()).count();
    f64::from(u32::try_from(count).unwrap_or(u32::MAX)).max(1.0)
}

/// Returns how many half-lives are between two moments; negative ones are none.
pub(crate) fn ages(since: Timestamp, at: Timestamp) -> f64 {
    let passed = (at - since).max(TimeDelta::zero());
    passed.as_seconds_f64() / HALF_LIFE.as_seconds_f64()
}

/// Forgets the least of many.
pub(crate) fn drop_least<T>(
    all: &mut BTreeMap<ToolName, T>,
    most: usize,
    weight: impl Fn(&T) -> f64,
) {
    while all.len() > most {
        let least = all.iter().min_by(|(_, a), (_, b)| weight(a).total_cmp(&weight(b)));
        let Some(name) = least.map(|(name, _)| name.clone()) else { return };
        all.remove(&name);
    }
}
