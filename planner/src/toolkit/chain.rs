//! Chains: a short way to write down what follows what.

use shared::id::NodeName;

use super::{DEFAULT_SCORE, Node, Toolkit, ToolkitError, Warning};

/// A link of a chain.
#[derive(Clone, Debug, PartialEq)]
pub enum ChainItem {
    /// An action, and the score of the edge from the action before it.
    Action(NodeName, Node, f64),
    /// A tool that the action before it calls, and the score of the edge.
    Tool(NodeName, Node, f64),
    /// All tools of a set, which the action before them calls.
    ToolSet(Vec<(NodeName, Node)>),
    /// Several links: where the first is an action they are read one after another, otherwise they
    /// are tools that the action before them calls.
    Together(Vec<ChainItem>),
}

/// What is wrong with a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// It begins with something else.
    #[error("a chain must start with an action")]
    Start,
    /// A tool or a set stands behind something else than an action.
    #[error("{0} can only come right behind an action")]
    Place(&'static str),
    /// Links that are no tools are put together.
    #[error("only tools and toolsets can be put together")]
    Together,
    /// The graph does not take it.
    #[error(transparent)]
    Toolkit(#[from] ToolkitError),
}

impl Toolkit {
    /// Adds a chain: each action follows the one before it, and calls the tools behind it. A chain
    /// with something wrong adds nothing.
    pub fn chain(&mut self, items: &[ChainItem]) -> Result<Vec<Warning>, ChainError> {
        let flat = flattened(items);
        check(&flat)?;
        let mut graph = self.clone();
        let mut last: Option<&NodeName> = None;
        let mut warnings = Vec::new();
        for item in flat {
            match item {
                ChainItem::Action(name, node, score) => {
                    let before: Vec<_> = last.map(|it| (it.clone(), *score)).into_iter().collect();
                    warnings.extend(graph.add_action(name, &node.description, &[], &before)?);
                    last = Some(name);
                }
                other => {
                    for (name, node, score) in tools(other) {
                        let action: Vec<_> =
                            last.map(|it| (it.clone(), score)).into_iter().collect();
                        warnings.extend(graph.add_tool(name, node, &action)?);
                    }
                }
            }
        }
        *self = graph;
        Ok(warnings)
    }
}

/// Puts groups that begin with an action into the sequence.
fn flattened(items: &[ChainItem]) -> Vec<&ChainItem> {
    let mut flat = Vec::new();
    for item in items {
        match item {
            ChainItem::Together(inner) if matches!(inner.first(), Some(ChainItem::Action(..))) => {
                flat.extend(flattened(inner));
            }
            other => flat.push(other),
        }
    }
    flat
}

fn check(flat: &[&ChainItem]) -> Result<(), ChainError> {
    let mut is_behind_action = false;
    for (at, item) in flat.iter().enumerate() {
        let what = match item {
            ChainItem::Action(..) => {
                is_behind_action = true;
                continue;
            }
            _ if at == 0 => return Err(ChainError::Start),
            ChainItem::Tool(..) => "a tool",
            ChainItem::ToolSet(_) => "a toolset",
            ChainItem::Together(inner) => {
                let is_tool =
                    |it: &ChainItem| matches!(it, ChainItem::Tool(..) | ChainItem::ToolSet(_));
                if !inner.iter().all(is_tool) {
                    return Err(ChainError::Together);
                }
                "a group of tools"
            }
        };
        if !is_behind_action {
            return Err(ChainError::Place(what));
        }
        is_behind_action = false;
    }
    Ok(())
}

/// Returns the tools of a link.
fn tools(item: &ChainItem) -> Vec<(&NodeName, &Node, f64)> {
    match item {
        ChainItem::Action(..) => Vec::new(),
        ChainItem::Tool(name, node, score) => vec![(name, node, *score)],
        ChainItem::ToolSet(all) => {
            all.iter().map(|(name, node)| (name, node, DEFAULT_SCORE)).collect()
        }
        ChainItem::Together(inner) => inner.iter().flat_map(tools).collect(),
    }
}
