use std::collections::BTreeMap;

use shared::id::NodeName;

use super::{Edge, Node, Toolkit};

impl Toolkit {
    /// Returns actions and tools in topological order. Nodes at the same depth keep the order of
    /// their addition. If the graph has a cycle, all nodes keep the order of their addition.
    pub fn ordered_nodes(&self) -> Vec<(&NodeName, &Node)> {
        let order = self.topological_order();
        order
            .into_iter()
            .filter_map(|index| self.vertices.get_index(index))
            .map(|(name, vertex)| (name, &vertex.node))
            .collect()
    }

    pub fn numbered_graph(&self) -> (Vec<&NodeName>, Vec<(usize, usize)>) {
        let names: Vec<&NodeName> =
            self.ordered_nodes().into_iter().map(|(name, _)| name).collect();
        let places: BTreeMap<&NodeName, usize> =
            names.iter().enumerate().map(|(index, name)| (*name, index)).collect();
        let ends = |edge: Edge<'_>| Some((*places.get(edge.from)?, *places.get(edge.to)?));
        let edges = self.ordered_edges().into_iter().filter_map(ends).collect();
        (names, edges)
    }

    pub fn ordered_edges(&self) -> Vec<Edge<'_>> {
        let order = self.topological_order();
        let mut places = vec![0; order.len()];
        for (place, index) in order.iter().enumerate() {
            places[*index] = place;
        }
        let mut edges = Vec::with_capacity(self.edge_count);
        for index in order {
            let Some((from, vertex)) = self.vertices.get_index(index) else { continue };
            let begin = edges.len();
            edges.extend(vertex.next.iter().map(|(to, score)| self.edge_between(from, to, *score)));
            edges[begin..].sort_by_key(|edge: &Edge<'_>| {
                self.vertices.get_index_of(edge.to).and_then(|to| places.get(to))
            });
        }
        edges
    }

    fn topological_order(&self) -> Vec<usize> {
        let mut waiting: Vec<usize> =
            self.vertices.values().map(|vertex| vertex.before.len()).collect();
        let mut order = Vec::with_capacity(self.len());
        let mut generation: Vec<usize> =
            (0..self.len()).filter(|index| waiting[*index] == 0).collect();
        while !generation.is_empty() {
            let mut next = Vec::new();
            for index in &generation {
                for to in self.vertices[*index].next.keys() {
                    let Some(to) = self.vertices.get_index_of(to) else { continue };
                    waiting[to] -= 1;
                    if waiting[to] == 0 {
                        next.push(to);
                    }
                }
            }
            next.sort_unstable();
            order.append(&mut generation);
            generation = next;
        }
        if order.len() == self.len() { order } else { (0..self.len()).collect() }
    }
}
