use indexmap::{IndexMap, IndexSet};
use shared::id::NodeName;

use super::{Node, NodeKind, Toolkit, ToolkitError, Vertex, Warning};

pub(super) type Link = (NodeName, f64);

impl Toolkit {
    /// Adds an action with edges to its successors and from its predecessors. An existing action
    /// stays and gets the new edges and scores. Edges with unknown actions are left out with a
    /// warning.
    pub fn add_action(
        &mut self,
        name: &NodeName,
        description: &str,
        next: &[Link],
        before: &[Link],
    ) -> Result<Vec<Warning>, ToolkitError> {
        self.check_kind(name, NodeKind::Action)?;
        for (other, score) in next.iter().chain(before) {
            self.check_kind(other, NodeKind::Action)?;
            check_score(name, other, *score)?;
        }
        if !self.vertices.contains_key(name) {
            self.insert(name.clone(), Node::action(description));
        }
        let mut warnings = Vec::new();
        let mut connect = |from: &NodeName, to: &NodeName, other: &NodeName, score| {
            if self.vertices.contains_key(other) {
                self.connect(from, to, score);
            } else {
                let (action, with) = (other.clone(), name.clone());
                warnings.push(Warning::MissingAction { action, with });
            }
        };
        for (other, score) in next {
            connect(name, other, other, *score);
        }
        for (other, score) in before {
            connect(other, name, other, *score);
        }
        Ok(warnings)
    }

    /// Adds a tool with an edge from each action that calls it. An existing tool stays and gets the
    /// new edges and scores. Unknown actions are left out with a warning.
    pub fn add_tool(
        &mut self,
        name: &NodeName,
        tool: &Node,
        actions: &[Link],
    ) -> Result<Vec<Warning>, ToolkitError> {
        self.check_kind(name, NodeKind::Tool)?;
        for (action, score) in actions {
            self.check_kind(action, NodeKind::Action)?;
            check_score(action, name, *score)?;
        }
        let mut warnings = Vec::new();
        for (action, score) in actions {
            if !self.vertices.contains_key(action) {
                let (action, with) = (action.clone(), name.clone());
                warnings.push(Warning::MissingAction { action, with });
                continue;
            }
            if !self.vertices.contains_key(name) {
                self.insert(name.clone(), tool.clone());
            }
            self.connect(action, name, *score);
        }
        if !self.vertices.contains_key(name) {
            warnings.push(Warning::Unconnected(name.clone()));
        }
        Ok(warnings)
    }

    pub fn set_score(
        &mut self,
        from: &NodeName,
        to: &NodeName,
        score: f64,
    ) -> Result<bool, ToolkitError> {
        check_score(from, to, score)?;
        let edge = self.vertices.get_mut(from).and_then(|vertex| vertex.next.get_mut(to));
        Ok(edge.map(|old| *old = score).is_some())
    }

    /// Removes a vertex with its edges. With an action, also removes the tools that only this
    /// action calls. Returns the removed names, the given name first.
    pub fn remove(&mut self, name: &str) -> Vec<NodeName> {
        let Some((name, vertex)) = self.vertices.get_key_value(name) else { return Vec::new() };
        let is_alone = |tool: &&NodeName| {
            let tool = self.vertices.get(*tool);
            tool.is_some_and(|vertex| {
                vertex.node.kind == NodeKind::Tool && vertex.before.len() == 1
            })
        };
        let mut removed = vec![name.clone()];
        removed.extend(vertex.next.keys().filter(is_alone).cloned());
        for name in &removed {
            self.take(name.as_str());
        }
        removed
    }

    pub fn update(&mut self, other: &Self) -> Result<(), ToolkitError> {
        for (name, node) in other.nodes() {
            self.check_kind(name, node.kind)?;
        }
        for (name, node) in other.nodes() {
            self.put(name, node);
        }
        for (from, vertex) in &other.vertices {
            for (to, score) in &vertex.next {
                if self.edge_score(from.as_str(), to.as_str()).is_none() {
                    self.connect(from, to, *score);
                }
            }
        }
        Ok(())
    }

    /// Returns the same graph with renamed tools. Merges tools that get the same name.
    #[must_use]
    pub fn with_renamed_tools(&self, rename: impl Fn(&NodeName) -> NodeName) -> Self {
        let rename = |name: &NodeName| match self.tool(name.as_str()) {
            Some(_) => rename(name),
            None => name.clone(),
        };
        let mut graph = Self::default();
        for (name, node) in self.nodes() {
            graph.put(&rename(name), node);
        }
        for (from, vertex) in &self.vertices {
            for (to, score) in &vertex.next {
                graph.connect(from, &rename(to), *score);
            }
        }
        graph
    }

    pub(super) fn put(&mut self, name: &NodeName, node: &Node) {
        match self.vertices.get_mut(name) {
            Some(there) => there.node = node.clone(),
            None => self.insert(name.clone(), node.clone()),
        }
    }

    pub(super) fn insert(&mut self, name: NodeName, node: Node) {
        let vertex = Vertex { node, next: IndexMap::new(), before: IndexSet::new() };
        self.vertices.insert(name, vertex);
    }

    pub(super) fn connect(&mut self, from: &NodeName, to: &NodeName, score: f64) {
        if !self.vertices.contains_key(to) {
            return;
        }
        let Some(start) = self.vertices.get_mut(from) else { return };
        if start.next.insert(to.clone(), score).is_some() {
            return;
        }
        self.edge_count += 1;
        if let Some(end) = self.vertices.get_mut(to) {
            end.before.insert(from.clone());
        }
    }

    pub(super) fn take(&mut self, name: &str) {
        let Some(removed) = self.vertices.shift_remove(name) else { return };
        let loops = usize::from(removed.next.contains_key(name));
        self.edge_count -= removed.next.len() + removed.before.len() - loops;
        for to in removed.next.keys() {
            if let Some(end) = self.vertices.get_mut(to) {
                end.before.shift_remove(name);
            }
        }
        for from in &removed.before {
            if let Some(start) = self.vertices.get_mut(from) {
                start.next.shift_remove(name);
            }
        }
    }

    /// Puts vertices in an order, as if they had been added in this order. Other vertices come
    /// last, in their order.
    pub(super) fn arrange<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let mut arranged = IndexMap::with_capacity(self.len());
        for name in names {
            if let Some((name, vertex)) = self.vertices.get_key_value(name) {
                arranged.entry(name.clone()).or_insert_with(|| vertex.clone());
            }
        }
        for (name, vertex) in std::mem::take(&mut self.vertices) {
            arranged.entry(name).or_insert(vertex);
        }
        self.vertices = arranged;
    }

    fn check_kind(&self, name: &NodeName, kind: NodeKind) -> Result<(), ToolkitError> {
        match self.get(name.as_str()) {
            Some(there) if there.kind != kind => {
                Err(ToolkitError::Clash { name: name.clone(), is: there.kind })
            }
            _ => Ok(()),
        }
    }
}

fn check_score(from: &NodeName, to: &NodeName, score: f64) -> Result<(), ToolkitError> {
    if score.is_finite() {
        return Ok(());
    }
    Err(ToolkitError::Score { from: from.clone(), to: to.clone() })
}
