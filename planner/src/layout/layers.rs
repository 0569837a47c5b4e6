//! Which layer every node is in, and where edges pass layers.

use super::pack::PartEdge;

/// Places that edges may have in the layers that they pass, for each node of the graph: above that,
/// long edges are drawn straight, so that a tangle costs no more than a page.
const PLACES_PER_NODE: usize = 16;
/// Places that there may be at least.
const PLACES: usize = 4_000;
/// How often nodes are moved towards their neighbours.
const PULLS: usize = 4;

/// A graph whose edges lead from one layer to the next.
///
/// Behind the nodes of the graph come the places where edges pass a layer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layered {
    /// How many nodes the graph has.
    pub(super) real: usize,
    /// The layer of each.
    pub(super) layer_of: Vec<usize>,
    /// Those of each layer, in their order.
    pub(super) layers: Vec<Vec<usize>>,
    /// Where edges lead to, one layer below.
    pub(super) below: Vec<Vec<usize>>,
    /// Where edges come from, one layer above.
    pub(super) above: Vec<Vec<usize>>,
    /// The way of each edge of the graph.
    pub(super) ways: Vec<Way>,
}

/// The way of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It leads back to where it comes from.
    Loop,
    /// From the upper end to the lower one by way of these places.
    Through { upper: usize, places: Vec<usize>, lower: usize, is_turned: bool },
    /// Straight from one end to the other: the graph is too tangled for its long edges.
    Straight { upper: usize, lower: usize, is_turned: bool },
}

impl Layered {
    pub(super) fn new(nodes: usize, edges: &[PartEdge]) -> Self {
        let turned = turned(nodes, edges);
        let down: Vec<(usize, usize)> = edges
            .iter()
            .zip(&turned)
            .map(|(it, turned)| if *turned { (it.to, it.from) } else { (it.from, it.to) })
            .collect();
        let mut layer_of = longest_paths(nodes, &down);
        pull(&mut layer_of, &down);
        let mut layered = Self {
            real: nodes,
            layers: Vec::new(),
            below: vec![Vec::new(); nodes],
            above: vec![Vec::new(); nodes],
            ways: Vec::with_capacity(edges.len()),
            layer_of,
        };
        let longest = layered.longest_way(&down);
        for ((upper, lower), is_turned) in down.into_iter().zip(turned) {
            let way = layered.way(upper, lower, is_turned, longest);
            layered.ways.push(way);
        }
        let count = layered.layer_of.iter().max().map_or(0, |it| it + 1);
        layered.layers = vec![Vec::new(); count];
        for (node, layer) in layered.layer_of.iter().enumerate() {
            layered.layers[*layer].push(node);
        }
        layered
    }

    /// Returns how many layers an edge may pass to get places in them.
    fn longest_way(&self, down: &[(usize, usize)]) -> usize {
        let passes = |(upper, lower): &(usize, usize)| {
            self.layer_of[*lower].saturating_sub(self.layer_of[*upper] + 1)
        };
        let mut spans: Vec<usize> = down.iter().map(passes).collect();
        spans.sort_unstable();
        let most = (self.real * PLACES_PER_NODE).max(PLACES);
        let mut sum = 0;
        let too_long = spans.iter().find(|it| {
            sum += **it;
            sum > most
        });
        too_long.map_or(usize::MAX, |it| it - 1)
    }

    fn way(&mut self, upper: usize, lower: usize, is_turned: bool, longest: usize) -> Way {
        if upper == lower {
            return Way::Loop;
        }
        let (first, last) = (self.layer_of[upper] + 1, self.layer_of[lower]);
        if last - first > longest {
            return Way::Straight { upper, lower, is_turned };
        }
        let mut places = Vec::with_capacity(last - first);
        let mut at = upper;
        for layer in first..last {
            let place = self.layer_of.len();
            self.layer_of.push(layer);
            self.below.push(Vec::new());
            self.above.push(Vec::new());
            self.connect(at, place);
            places.push(place);
            at = place;
        }
        self.connect(at, lower);
        Way::Through { upper, places, lower, is_turned }
    }

    fn connect(&mut self, upper: usize, lower: usize) {
        self.below[upper].push(lower);
        self.above[lower].push(upper);
    }

    /// Returns whether it is a place of an edge.
    pub(super) fn is_place(&self, node: usize) -> bool {
        node >= self.real
    }
}

/// Says which edges are turned round so that none leads back: those that lead to an earlier node
/// with which theirs is on a cycle.
fn turned(nodes: usize, edges: &[PartEdge]) -> Vec<bool> {
    let component = components(nodes, edges);
    edges.iter().map(|it| it.to < it.from && component[it.to] == component[it.from]).collect()
}

/// Numbers the strongly connected components, after Tarjan, without recursion.
fn components(nodes: usize, edges: &[PartEdge]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let mut next = vec![Vec::new(); nodes];
    for edge in edges {
        next[edge.from].push(edge.to);
    }
    let (mut index, mut low) = (vec![NONE; nodes], vec![0; nodes]);
    let (mut component, mut components) = (vec![NONE; nodes], 0);
    let (mut open, mut count) = (Vec::new(), 0);
    for start in 0..nodes {
        if index[start] != NONE {
            continue;
        }
        // The node, and how many of its edges have been gone along.
        let mut path = vec![(start, 0)];
        while let Some((node, gone)) = path.last_mut() {
            let node = *node;
            if *gone == 0 {
                (index[node], low[node]) = (count, count);
                count += 1;
                open.push(node);
            }
            if let Some(to) = next[node].get(*gone) {
                *gone += 1;
                if index[*to] == NONE {
                    path.push((*to, 0));
                } else if component[*to] == NONE {
                    low[node] = low[node].min(index[*to]);
                }
                continue;
            }
            path.pop();
            if let Some((above, _)) = path.last() {
                low[*above] = low[*above].min(low[node]);
            }
            if low[node] == index[node] {
                while let Some(member) = open.pop() {
                    component[member] = components;
                    if member == node {
                        break;
                    }
                }
                components += 1;
            }
        }
    }
    component
}

/// Puts every node one layer below the lowest that leads to it.
fn longest_paths(nodes: usize, down: &[(usize, usize)]) -> Vec<usize> {
    let mut below = vec![Vec::new(); nodes];
    let mut waiting = vec![0_usize; nodes];
    for (upper, lower) in down.iter().filter(|(upper, lower)| upper != lower) {
        below[*upper].push(*lower);
        waiting[*lower] += 1;
    }
    let mut layer_of = vec![0; nodes];
    let mut ready: Vec<usize> = (0..nodes).filter(|it| waiting[*it] == 0).collect();
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

/// Moves nodes down towards what they lead to, where that makes edges shorter.
fn pull(layer_of: &mut [usize], down: &[(usize, usize)]) {
    let mut above = vec![0_usize; layer_of.len()];
    let mut below = vec![Vec::new(); layer_of.len()];
    for (upper, lower) in down.iter().filter(|(upper, lower)| upper != lower) {
        below[*upper].push(*lower);
        above[*lower] += 1;
    }
    for _ in 0..PULLS {
        let mut nodes: Vec<usize> = (0..layer_of.len()).collect();
        nodes.sort_by_key(|it| std::cmp::Reverse(layer_of[*it]));
        let mut has_moved = false;
        for node in nodes {
            let nearest = below[node].iter().map(|it| layer_of[*it]).min();
            let Some(nearest) = nearest.filter(|_| below[node].len() > above[node]) else {
                continue;
            };
            if nearest > layer_of[node] + 1 {
                layer_of[node] = nearest - 1;
                has_moved = true;
            }
        }
        if !has_moved {
            break;
        }
    }
}
