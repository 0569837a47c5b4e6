//! The toolkit: which tool serves which action, and which action usually comes next.
//!
//! A directed graph. Its vertices are **actions**, things to be done, and **tools**; a `next` edge
//! leads from an action to one that may follow, a `call` edge from an action to a tool that it
//! calls. Every edge has a score. From a few actions the graph [recommends](Toolkit::recommend)
//! what is near: the actions and tools that whoever plans should look at.
//!
//! Everything here is pure. What a file says is [read](written::read) into a graph and
//! [written](written::write) from one; what was changed is kept as [`Changes`], apart from the
//! graph that they change; [`draw`] makes pictures.

mod chain;
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
    chain::{ChainError, ChainItem},
    changes::Changes,
    recommend::{Reach, ToolsAndActions},
};

/// The score of an edge that has none of its own.
pub const DEFAULT_SCORE: f64 = 1.0;

/// A graph of actions and tools, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct Toolkit {
    vertices: IndexMap<NodeName, Vertex>,
    edges: usize,
}

/// What is known of one vertex.
#[derive(Clone, Debug, PartialEq)]
struct Vertex {
    node: Node,
    /// Where its edges lead, with their scores.
    next: IndexMap<NodeName, f64>,
    /// Where edges come from.
    before: IndexSet<NodeName>,
}

/// An action or a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Which of both.
    pub kind: NodeKind,
    /// What it is for, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where a file says that a tool comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

/// What a vertex is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// Something to be done.
    Action,
    /// Something to call.
    Tool,
}

/// Where a file says that a tool comes from. Faber keeps it for who reads the file next, and finds
/// its own tools by their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A module of the program that the file was written for.
    Module(String),
    /// An MCP server.
    Mcp,
}

/// What an edge says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeKind {
    /// That an action may follow another.
    Next,
    /// That an action calls a tool.
    Call,
}

/// An edge of the graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge<'a> {
    /// The action that it leads from.
    pub from: &'a NodeName,
    /// The action or tool that it leads to.
    pub to: &'a NodeName,
    /// What it says.
    pub kind: EdgeKind,
    /// How strong the connection is.
    pub score: f64,
}

/// What keeps a graph from being changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolkitError {
    /// An action and a tool cannot have one name.
    #[error("`{name}` is {} already, and a name means one thing: use another", .is.with_article())]
    Clash {
        /// The name.
        name: NodeName,
        /// What has it.
        is: NodeKind,
    },
    /// Scores are numbers.
    #[error("the score from `{from}` to `{to}` is not a number")]
    Score {
        /// Where the edge comes from.
        from: NodeName,
        /// Where it leads.
        to: NodeName,
    },
    /// There are too many.
    #[error("the toolkit would have more than {most} {what}: remove some")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
}

/// Something that was left out of a change, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// An edge needs an action that is not there.
    #[error("action `{action}` is not in the toolkit: its edge with `{with}` was left out")]
    MissingAction {
        /// What is missing.
        action: NodeName,
        /// The other end of the edge.
        with: NodeName,
    },
    /// No action calls the tool.
    #[error("tool `{0}` has no connected actions and was left out")]
    Unconnected(NodeName),
}

impl NodeKind {
    /// Returns its name.
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
    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Call => "call",
        }
    }
}

impl Node {
    /// Makes an action.
    pub fn action(description: impl Into<String>) -> Self {
        Self { kind: NodeKind::Action, description: description.into(), origin: None }
    }

    /// Makes a tool.
    pub fn tool(description: impl Into<String>) -> Self {
        Self { kind: NodeKind::Tool, description: description.into(), origin: None }
    }
}

/// Two graphs are equal if they have the same vertices in the same order, and the same edges.
impl PartialEq for Toolkit {
    fn eq(&self, other: &Self) -> bool {
        self.vertices.len() == other.vertices.len()
            && self.edges == other.edges
            && self.vertices.iter().zip(&other.vertices).all(|((name, a), (other, b))| {
                name == other && a.node == b.node && a.next == b.next
            })
    }
}

impl Toolkit {
    /// Returns how many actions and tools there are.
    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    /// Returns whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.vertices.is_empty()
    }

    /// Returns how many edges there are.
    pub fn edge_count(&self) -> usize {
        self.edges
    }

    /// Returns an action or a tool.
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.vertices.get(name).map(|it| &it.node)
    }

    /// Returns an action.
    pub fn action(&self, name: &str) -> Option<&Node> {
        self.get(name).filter(|it| it.kind == NodeKind::Action)
    }

    /// Returns a tool.
    pub fn tool(&self, name: &str) -> Option<&Node> {
        self.get(name).filter(|it| it.kind == NodeKind::Tool)
    }

    /// Returns all actions and tools in the order in which they were added.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (&NodeName, &Node)> {
        self.vertices.iter().map(|(name, it)| (name, &it.node))
    }

    /// Returns the score of an edge, and [`DEFAULT_SCORE`] where there is none.
    pub fn score(&self, from: &str, to: &str) -> f64 {
        self.edge_score(from, to).unwrap_or(DEFAULT_SCORE)
    }

    /// Returns the score of an edge, if there is one.
    pub fn edge_score(&self, from: &str, to: &str) -> Option<f64> {
        self.vertices.get(from)?.next.get(to).copied()
    }

    /// Returns what follows an action, or is called by it, in the order in which it was connected.
    pub fn successors(&self, name: &str) -> impl Iterator<Item = Edge<'_>> {
        let found = self.vertices.get_full(name);
        found.into_iter().flat_map(move |(_, from, it)| {
            it.next.iter().map(move |(to, score)| self.edge(from, to, *score))
        })
    }

    /// Returns what leads to an action or a tool.
    pub fn predecessors(&self, name: &str) -> impl Iterator<Item = &NodeName> {
        self.vertices.get(name).into_iter().flat_map(|it| &it.before)
    }

    fn edge<'a>(&self, from: &'a NodeName, to: &'a NodeName, score: f64) -> Edge<'a> {
        let is_tool = self.tool(to.as_str()).is_some();
        let kind = if is_tool { EdgeKind::Call } else { EdgeKind::Next };
        Edge { from, to, kind, score }
    }

    /// Refuses a graph that is larger than one may be.
    pub fn check_size(&self) -> Result<(), ToolkitError> {
        let too_many = |what, most| Err(ToolkitError::TooMany { what, most });
        if self.len() > limits::TOOLKIT_NODES {
            return too_many("actions and tools", limits::TOOLKIT_NODES);
        }
        if self.edges > limits::TOOLKIT_EDGES {
            return too_many("edges", limits::TOOLKIT_EDGES);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
