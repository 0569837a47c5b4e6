//! Changes of a toolkit, kept apart from the configured graph, because they are the same on all
//! nodes.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use shared::id::NodeName;

use super::{Node, Toolkit};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    /// Actions and tools that were added, described again or removed. Added actions and tools keep
    /// their order.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty", with = "in_order")]
    nodes: IndexMap<NodeName, NodeChange>,
    /// Edges that were added or scored: source, target, score.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    edges: BTreeMap<NodeName, BTreeMap<NodeName, f64>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeChange {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_removed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<Node>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.edges.is_empty()
    }

    #[must_use]
    pub fn applied_to(&self, configured: &Toolkit) -> Toolkit {
        let mut graph = configured.clone();
        for (name, NodeChange { is_removed, node }) in &self.nodes {
            // A vertex in these changes replaces a vertex of the same name in a later
            // configuration.
            let is_other =
                |node: &Node| graph.get(name.as_str()).is_some_and(|known| known.kind != node.kind);
            if *is_removed || node.as_ref().is_some_and(is_other) {
                graph.take(name.as_str());
            }
            if let Some(node) = node {
                graph.put(name, node);
            }
        }
        for (from, edges) in &self.edges {
            if graph.action(from.as_str()).is_none() {
                continue;
            }
            for (to, score) in edges {
                graph.connect(from, to, *score);
            }
        }
        graph
    }

    /// Records the changes from `before` to `after`. `before` is `configured` with the earlier
    /// changes.
    pub fn record(&mut self, configured: &Toolkit, before: &Toolkit, after: &Toolkit) {
        for (name, _) in before.nodes().filter(|(name, _)| after.get(name.as_str()).is_none()) {
            self.forget_node(name);
            if configured.get(name.as_str()).is_some() {
                let change = NodeChange { is_removed: true, node: None };
                self.nodes.insert(name.clone(), change);
            }
        }
        for (name, node) in after.nodes() {
            match before.get(name.as_str()) {
                Some(there) if there == node => (),
                Some(_) => {
                    let change = self.nodes.entry(name.clone());
                    change.or_insert(NodeChange { is_removed: false, node: None }).node =
                        Some(node.clone());
                }
                None => {
                    let before = self.nodes.shift_remove(name);
                    let is_removed = before.is_some_and(|change| change.is_removed);
                    let change = NodeChange { is_removed, node: Some(node.clone()) };
                    self.nodes.insert(name.clone(), change);
                }
            }
        }
        for edge in after.ordered_edges() {
            let (from, to) = (edge.from, edge.to);
            if before.edge_score(from.as_str(), to.as_str()) != Some(edge.score) {
                self.edges.entry(from.clone()).or_default().insert(to.clone(), edge.score);
            }
        }
    }

    fn forget_node(&mut self, name: &NodeName) {
        self.nodes.shift_remove(name);
        self.edges.remove(name);
        self.edges.retain(|_, edges| {
            edges.remove(name);
            !edges.is_empty()
        });
    }
}

/// Serializes a map as a list of pairs, which keeps its order.
mod in_order {
    use indexmap::IndexMap;
    use serde::{Deserialize, Deserializer, Serializer};
    use shared::id::NodeName;

    use super::NodeChange;

    pub(super) fn serialize<S: Serializer>(
        map: &IndexMap<NodeName, NodeChange>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<IndexMap<NodeName, NodeChange>, D::Error> {
        let pairs = Vec::<(NodeName, NodeChange)>::deserialize(deserializer)?;
        Ok(pairs.into_iter().collect())
    }
}
