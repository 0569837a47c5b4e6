//! What is near a few actions.

use std::collections::BTreeSet;

use shared::id::NodeName;

use super::{Node, NodeKind, Toolkit};

/// How far a recommendation goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reach {
    /// The least score of an edge that counts.
    pub threshold: f64,
    /// How many `next` edges away an action may be.
    pub hops: usize,
}

impl Default for Reach {
    fn default() -> Self {
        Self { threshold: 0.5, hops: 0 }
    }
}

/// What is recommended, each in the order of the graph that it was taken from.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolsAndActions<'a> {
    /// The tools.
    pub tools: Vec<(&'a NodeName, &'a Node)>,
    /// The actions.
    pub actions: Vec<(&'a NodeName, &'a Node)>,
}

impl Toolkit {
    /// Returns the part of the graph with these actions and tools, and the edges between them.
    /// Unknown names are ignored.
    #[must_use]
    pub fn subgraph<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let kept: BTreeSet<&str> = names.into_iter().collect();
        self.part(&kept, f64::NEG_INFINITY)
    }

    /// Returns what is near some actions: those that are at most so many `next` edges away, the
    /// tools that any of them calls, and the edges between all of these, wherever a score is at
    /// least the threshold. Each edge counts by itself: scores do not add up along a way.
    ///
    /// Unknown actions are ignored.
    #[must_use]
    pub fn recommend<'a>(&self, actions: impl IntoIterator<Item = &'a str>, reach: Reach) -> Self {
        let known = |name: &str| {
            let found = self.vertices.get_key_value(name);
            found.filter(|(_, it)| it.node.kind == NodeKind::Action).map(|(name, _)| name.as_str())
        };
        let mut kept: BTreeSet<&str> = actions.into_iter().filter_map(known).collect();
        let mut frontier: Vec<&str> = kept.iter().copied().collect();
        for _ in 0..reach.hops {
            let mut next = Vec::new();
            for from in frontier {
                for to in self.strong(from, NodeKind::Action, reach.threshold) {
                    if kept.insert(to) {
                        next.push(to);
                    }
                }
            }
            if next.is_empty() {
                break;
            }
            frontier = next;
        }
        let reached: Vec<&str> = kept.iter().copied().collect();
        for from in reached {
            kept.extend(self.strong(from, NodeKind::Tool, reach.threshold));
        }
        self.part(&kept, reach.threshold)
    }

    /// Returns its tools and its actions, each in topological order.
    pub fn tools_and_actions(&self) -> ToolsAndActions<'_> {
        let (tools, actions) =
            self.ordered().into_iter().partition(|(_, it)| it.kind == NodeKind::Tool);
        ToolsAndActions { tools, actions }
    }

    /// Returns the successors of a kind whose edges are strong enough.
    fn strong(&self, from: &str, kind: NodeKind, threshold: f64) -> impl Iterator<Item = &str> {
        let next = self.vertices.get(from).into_iter().flat_map(|it| &it.next);
        next.filter(move |(_, score)| **score >= threshold)
            .map(|(to, _)| to.as_str())
            .filter(move |to| self.get(to).is_some_and(|it| it.kind == kind))
    }

    /// Returns the part with these vertices and the edges between them that are strong enough.
    fn part(&self, kept: &BTreeSet<&str>, threshold: f64) -> Self {
        let mut part = Self::default();
        let chosen = || self.vertices.iter().filter(|(name, _)| kept.contains(name.as_str()));
        for (name, vertex) in chosen() {
            part.insert(name.clone(), vertex.node.clone());
        }
        for (from, vertex) in chosen() {
            for (to, score) in vertex.next.iter().filter(|(_, score)| **score >= threshold) {
                part.connect(from, to, *score);
            }
        }
        part
    }
}
