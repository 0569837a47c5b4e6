use std::collections::BTreeSet;

use shared::id::NodeName;

use super::{Node, NodeKind, Toolkit};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecommendationReach {
    pub threshold: f64,
    pub hops: usize,
}

impl Default for RecommendationReach {
    fn default() -> Self {
        Self { threshold: 0.5, hops: 0 }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ToolsAndActions<'a> {
    pub tools: Vec<(&'a NodeName, &'a Node)>,
    pub actions: Vec<(&'a NodeName, &'a Node)>,
}

impl Toolkit {
    /// Returns the graph of these vertices and the edges between them. Unknown names are ignored.
    #[must_use]
    pub fn subgraph<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let kept: BTreeSet<&str> = names.into_iter().collect();
        self.strong_part(&kept, f64::NEG_INFINITY)
    }

    /// Returns the graph near some actions. Each edge must reach the threshold, because scores do
    /// not add up along a path. Unknown actions are ignored.
    #[must_use]
    pub fn recommend<'a>(
        &self,
        actions: impl IntoIterator<Item = &'a str>,
        reach: RecommendationReach,
    ) -> Self {
        let find_known = |name: &str| {
            let found = self.vertices.get_key_value(name);
            found
                .filter(|(_, vertex)| vertex.node.kind == NodeKind::Action)
                .map(|(name, _)| name.as_str())
        };
        let mut kept: BTreeSet<&str> = actions.into_iter().filter_map(find_known).collect();
        let mut frontier: Vec<&str> = kept.iter().copied().collect();
        for _ in 0..reach.hops {
            let mut next = Vec::new();
            for from in frontier {
                for to in self.strong_successors(from, NodeKind::Action, reach.threshold) {
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
            kept.extend(self.strong_successors(from, NodeKind::Tool, reach.threshold));
        }
        self.strong_part(&kept, reach.threshold)
    }

    pub fn tools_and_actions(&self) -> ToolsAndActions<'_> {
        let (tools, actions) =
            self.ordered_nodes().into_iter().partition(|(_, node)| node.kind == NodeKind::Tool);
        ToolsAndActions { tools, actions }
    }

    fn strong_successors(
        &self,
        from: &str,
        kind: NodeKind,
        threshold: f64,
    ) -> impl Iterator<Item = &str> {
        let next = self.vertices.get(from).into_iter().flat_map(|vertex| &vertex.next);
        next.filter(move |(_, score)| **score >= threshold)
            .map(|(to, _)| to.as_str())
            .filter(move |to| self.get(to).is_some_and(|node| node.kind == kind))
    }

    fn strong_part(&self, kept: &BTreeSet<&str>, threshold: f64) -> Self {
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
