//! The layer of every node, and the placeholders of edges that pass layers.

use super::GraphEdge;

/// Maximum average number of placeholders for each node of the graph. Beyond this limit, long edges
/// are drawn straight, so that a dense graph stays cheap.
const PLACEHOLDERS_PER_NODE: usize = 16;
const MIN_PLACEHOLDER_LIMIT: usize = 4_000;

/// A graph whose edges connect adjacent layers. An edge that passes a layer has a placeholder in
/// it, unless the edge is drawn straight. The placeholders come after the real nodes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LayeredGraph {
    pub(super) real_node_count: usize,
    pub(super) layer_of: Vec<usize>,
    pub(super) layers: Vec<Vec<usize>>,
    /// The successors of each node, one layer below it.
    pub(super) below: Vec<Vec<usize>>,
    /// The predecessors of each node, one layer above it.
    pub(super) above: Vec<Vec<usize>>,
    pub(super) paths: Vec<EdgePath>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EdgePath {
    Loop,
    ViaPlaceholders {
        upper: usize,
        placeholders: Vec<usize>,
        lower: usize,
        is_reversed: bool,
    },
    /// The edge leads straight from end to end, because the graph is too dense for placeholders.
    Straight {
        upper: usize,
        lower: usize,
        is_reversed: bool,
    },
}

impl LayeredGraph {
    pub(super) fn new(nodes: usize, edges: &[GraphEdge]) -> Self {
        let reversed = find_reversed_edges(nodes, edges);
        let down: Vec<(usize, usize)> = edges
            .iter()
            .zip(&reversed)
            .map(
                |(edge, reversed)| {
                    if *reversed { (edge.to, edge.from) } else { (edge.from, edge.to) }
                },
            )
            .collect();
        let mut layered = Self {
            real_node_count: nodes,
            layers: Vec::new(),
            below: vec![Vec::new(); nodes],
            above: vec![Vec::new(); nodes],
            paths: Vec::with_capacity(edges.len()),
            layer_of: assign_layers(nodes, &down),
        };
        let longest = layered.max_span(&down);
        for ((upper, lower), is_reversed) in down.into_iter().zip(reversed) {
            let path = layered.add_edge(upper, lower, is_reversed, longest);
            layered.paths.push(path);
        }
        let count = layered.layer_of.iter().max().map_or(0, |layer| layer + 1);
        layered.layers = vec![Vec::new(); count];
        for (node, layer) in layered.layer_of.iter().enumerate() {
            layered.layers[*layer].push(node);
        }
        layered
    }

    fn max_span(&self, down: &[(usize, usize)]) -> usize {
        let passes = |(upper, lower): &(usize, usize)| {
            self.layer_of[*lower].saturating_sub(self.layer_of[*upper] + 1)
        };
        let mut spans: Vec<usize> = down.iter().map(passes).collect();
        spans.sort_unstable();
        let maximum = (self.real_node_count * PLACEHOLDERS_PER_NODE).max(MIN_PLACEHOLDER_LIMIT);
        let mut sum = 0;
        let too_long = spans.iter().find(|span| {
            sum += **span;
            sum > maximum
        });
        too_long.map_or(usize::MAX, |span| span - 1)
    }

    fn add_edge(
        &mut self,
        upper: usize,
        lower: usize,
        is_reversed: bool,
        longest: usize,
    ) -> EdgePath {
        if upper == lower {
            return EdgePath::Loop;
        }
        let (first, last) = (self.layer_of[upper] + 1, self.layer_of[lower]);
        if last - first > longest {
            return EdgePath::Straight { upper, lower, is_reversed };
        }
        let mut placeholders = Vec::with_capacity(last - first);
        let mut current = upper;
        for layer in first..last {
            let place = self.layer_of.len();
            self.layer_of.push(layer);
            self.below.push(Vec::new());
            self.above.push(Vec::new());
            self.connect(current, place);
            placeholders.push(place);
            current = place;
        }
        self.connect(current, lower);
        EdgePath::ViaPlaceholders { upper, placeholders, lower, is_reversed }
    }

    fn connect(&mut self, upper: usize, lower: usize) {
        self.below[upper].push(lower);
        self.above[lower].push(upper);
    }

    pub(super) fn is_placeholder(&self, node: usize) -> bool {
        node >= self.real_node_count
    }
}

/// Returns the edges to reverse to remove all cycles: the edges that lead back to the path of a
/// depth-first search.
fn find_reversed_edges(nodes: usize, edges: &[GraphEdge]) -> Vec<bool> {
    let mut leaving = vec![Vec::new(); nodes];
    for (index, edge) in edges.iter().enumerate() {
        leaving[edge.from].push((index, edge.to));
    }
    let mut reversed = vec![false; edges.len()];
    let (mut is_visited, mut is_on_path) = (vec![false; nodes], vec![false; nodes]);
    for start in 0..nodes {
        // The nodes of the path, each with the number of its visited edges.
        let mut path = if is_visited[start] { Vec::new() } else { vec![(start, 0)] };
        while let Some((node, visited)) = path.last_mut() {
            let node = *node;
            (is_visited[node], is_on_path[node]) = (true, true);
            let Some((edge, to)) = leaving[node].get(*visited) else {
                is_on_path[node] = false;
                path.pop();
                continue;
            };
            *visited += 1;
            if is_on_path[*to] {
                reversed[*edge] = true;
            } else if !is_visited[*to] {
                path.push((*to, 0));
            }
        }
    }
    reversed
}

fn assign_layers(nodes: usize, down: &[(usize, usize)]) -> Vec<usize> {
    let mut below = vec![Vec::new(); nodes];
    let mut waiting = vec![0_usize; nodes];
    for (upper, lower) in down.iter().filter(|(upper, lower)| upper != lower) {
        below[*upper].push(*lower);
        waiting[*lower] += 1;
    }
    let mut layer_of = vec![0; nodes];
    let mut ready: Vec<usize> = (0..nodes).filter(|node| waiting[*node] == 0).collect();
    while let Some(node) = ready.pop() {
        for to in &below[node] {
            layer_of[*to] = layer_of[*to].max(layer_of[node] + 1);
            waiting[*to] -= 1;
            if waiting[*to] == 0 {
                ready.push(*to);
            }
        }
    }
    layer_of
}
