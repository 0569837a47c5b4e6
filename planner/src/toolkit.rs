//! The toolkit: a directed graph of **actions** and **tools**. A `next` edge leads from an action
//! to a possible successor, and a `call` edge leads from an action to a tool that it calls.

pub mod chain;
mod changes;
pub mod draw;
mod edit;
pub mod learned;
mod order;
mod recommend;
pub mod written;

use indexmap::{IndexMap, IndexSet};
use serde::{Deserialize, Serialize};
use shared::{id::NodeName, limits};

pub use self::{
    changes::Changes,
    recommend::{RecommendationReach, ToolsAndActions},
};

pub const DEFAULT_SCORE: f64 = 1.0;

#[derive(Clone, Debug, Default)]
pub struct Toolkit {
    vertices: IndexMap<NodeName, Vertex>,
    edge_count: usize,
}

#[derive(Clone, Debug, PartialEq)]
struct Vertex {
    node: Node,
    next: IndexMap<NodeName, f64>,
    before: IndexSet<NodeName>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub kind: NodeKind,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    Action,
    Tool,
}

/// The origin of a tool, as its file describes it. Faber only stores the origin, because it finds
/// its own tools by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Module(String),
    Mcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeKind {
    Next,
    Call,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge<'a> {
    pub from: &'a NodeName,
    pub to: &'a NodeName,
    pub kind: EdgeKind,
    pub score: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolkitError {
    #[error("`{name}` is already {}, and a name can have only one meaning: use another name", .is.with_article())]
    Clash { name: NodeName, is: NodeKind },
    #[error("the score from `{from}` to `{to}` is not a number")]
    Score { from: NodeName, to: NodeName },
    #[error("the toolkit would have more than {maximum} {noun}: remove some")]
    TooMany { noun: &'static str, maximum: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    #[error("action `{action}` is not in the toolkit: its edge with `{with}` was left out")]
    MissingAction { action: NodeName, with: NodeName },
    #[error("tool `{0}` has no connected actions and was left out")]
    Unconnected(NodeName),
}

impl NodeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Action => "action",
            Self::Tool => "tool",
        }
    }

    fn with_article(self) -> &'static str {
        match self {
            Self::Action => "an action",
            Self::Tool => "a tool",
        }
    }
}

impl EdgeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Call => "call",
        }
    }
}

impl Node {
    pub fn action(description: impl Into<String>) -> Self {
        Self { kind: NodeKind::Action, description: description.into(), origin: None }
    }

    pub fn tool(description: impl Into<String>) -> Self {
        Self { kind: NodeKind::Tool, description: description.into(), origin: None }
    }
}

/// Graphs are equal if they have the same vertices in the same order, and the same edges.
impl PartialEq for Toolkit {
    fn eq(&self, other: &Self) -> bool {
        self.vertices.len() == other.vertices.len()
            && self.edge_count == other.edge_count
            && self.vertices.iter().zip(&other.vertices).all(|((name, a), (other, b))| {
                name == other && a.node == b.node && a.next == b.next
            })
    }
}

impl Toolkit {
    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    pub fn is_empty(&self) -> bool {
        self.vertices.is_empty()
    }

    pub fn edge_count(&self) -> usize {
        self.edge_count
    }

    pub fn get(&self, name: &str) -> Option<&Node> {
        self.vertices.get(name).map(|vertex| &vertex.node)
    }

    pub fn action(&self, name: &str) -> Option<&Node> {
        self.get(name).filter(|node| node.kind == NodeKind::Action)
    }

    pub fn tool(&self, name: &str) -> Option<&Node> {
        self.get(name).filter(|node| node.kind == NodeKind::Tool)
    }

    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (&NodeName, &Node)> {
        self.vertices.iter().map(|(name, vertex)| (name, &vertex.node))
    }

    /// Returns the score of an edge. [`DEFAULT_SCORE`] if no such edge exists.
    pub fn score(&self, from: &str, to: &str) -> f64 {
        self.edge_score(from, to).unwrap_or(DEFAULT_SCORE)
    }

    pub fn edge_score(&self, from: &str, to: &str) -> Option<f64> {
        self.vertices.get(from)?.next.get(to).copied()
    }

    pub fn successors(&self, name: &str) -> impl Iterator<Item = Edge<'_>> {
        let found = self.vertices.get_full(name);
        found.into_iter().flat_map(move |(_, from, vertex)| {
            vertex.next.iter().map(move |(to, score)| self.edge_between(from, to, *score))
        })
    }

    pub fn predecessors(&self, name: &str) -> impl Iterator<Item = &NodeName> {
        self.vertices.get(name).into_iter().flat_map(|vertex| &vertex.before)
    }

    fn edge_between<'a>(&self, from: &'a NodeName, to: &'a NodeName, score: f64) -> Edge<'a> {
        let is_tool = self.tool(to.as_str()).is_some();
        let kind = if is_tool { EdgeKind::Call } else { EdgeKind::Next };
        Edge { from, to, kind, score }
    }

    pub fn check_size(&self) -> Result<(), ToolkitError> {
        let too_many = |noun, maximum| Err(ToolkitError::TooMany { noun, maximum });
        if self.len() > limits::TOOLKIT_NODES {
            return too_many("actions and tools", limits::TOOLKIT_NODES);
        }
        if self.edge_count > limits::TOOLKIT_EDGES {
            return too_many("edges", limits::TOOLKIT_EDGES);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
