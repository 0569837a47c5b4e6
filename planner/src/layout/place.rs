//! Where nodes stand, once it is known in which order.

use super::{Point, Size, Style, layers::Layered};

/// How often all layers are gone through.
const SWEEPS: usize = 12;
/// How much room an edge has where it passes a layer, in gaps between nodes.
const PASSAGE: f64 = 0.5;
/// How strongly a place of an edge is drawn to its neighbours: long edges become straight.
const STRAIGHT: f64 = 6.0;
/// How strongly a node without neighbours stays where it is.
const LOOSE: f64 = 0.01;

/// Where everything is.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placed {
    /// The middle of each node, and of each place of an edge.
    pub(super) middle: Vec<Point>,
    /// How far each layer goes up and down.
    pub(super) bands: Vec<Band>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A layer, from top to bottom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Band {
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// Which neighbours draw.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Above,
    Below,
    Both,
}

pub(super) fn place(graph: &Layered, sizes: &[Size], style: &Style) -> Placed {
    let bands = bands(graph, sizes, style);
    let offsets: Vec<Vec<f64>> =
        graph.layers.iter().map(|it| offsets(graph, it, sizes, style)).collect();
    let mut xs = vec![0.0; graph.layer_of.len()];
    for (layer, offsets) in graph.layers.iter().zip(&offsets) {
        for (node, offset) in layer.iter().zip(offsets) {
            xs[*node] = *offset;
        }
    }
    for sweep in 0..SWEEPS {
        let side = match sweep {
            it if it + 2 >= SWEEPS => Side::Both,
            it if it % 2 == 0 => Side::Above,
            _ => Side::Below,
        };
        let layers = graph.layers.len();
        for step in 0..layers {
            let layer = if side == Side::Below { layers - 1 - step } else { step };
            settle(graph, &graph.layers[layer], &offsets[layer], side, &mut xs);
        }
    }
    let half = |node: usize| sizes.get(node).map_or(0.0, |it| it.width / 2.0);
    let left = (0..xs.len()).map(|it| xs[it] - half(it)).fold(f64::INFINITY, f64::min);
    let right = (0..xs.len()).map(|it| xs[it] + half(it)).fold(f64::NEG_INFINITY, f64::max);
    let middle = xs.iter().zip(&graph.layer_of).map(|(x, layer)| {
        let Band { top, bottom } = bands[*layer];
        Point { x: x - left, y: f64::midpoint(top, bottom) }
    });
    let height = bands.last().map_or(0.0, |it| it.bottom);
    Placed { middle: middle.collect(), width: (right - left).max(0.0), height, bands }
}

fn bands(graph: &Layered, sizes: &[Size], style: &Style) -> Vec<Band> {
    let mut top = 0.0;
    let band = |layer: &Vec<usize>| {
        let heights = layer.iter().filter_map(|it| sizes.get(*it)).map(|it| it.height);
        let band = Band { top, bottom: top + heights.fold(0.0, f64::max) };
        top = band.bottom + style.layer_gap;
        band
    };
    graph.layers.iter().map(band).collect()
}

/// Returns where the nodes of a layer are if each stands as far left as it may.
fn offsets(graph: &Layered, layer: &[usize], sizes: &[Size], style: &Style) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(layer.len());
    let mut before: Option<(f64, usize)> = None;
    for node in layer {
        let half = |node: usize| sizes.get(node).map_or(0.0, |it| it.width / 2.0);
        let x = before.map_or(0.0, |(x, left)| {
            let is_passage = graph.is_place(left) && graph.is_place(*node);
            let gap = if is_passage { style.node_gap * PASSAGE } else { style.node_gap };
            x + half(left) + gap + half(*node)
        });
        offsets.push(x);
        before = Some((x, *node));
    }
    offsets
}

/// Some nodes of a layer that stand as close as they may.
struct Block {
    /// Where the first would be if all stood at zero offset.
    at: f64,
    weight: f64,
    count: usize,
}

/// Puts the nodes of a layer as near to their neighbours as their order allows.
///
/// This is isotonic regression: with the offsets taken off, places must not fall from left to
/// right, and pooling those that would gives the least sum of squares.
fn settle(graph: &Layered, layer: &[usize], offsets: &[f64], side: Side, xs: &mut [f64]) {
    let mut blocks: Vec<Block> = Vec::with_capacity(layer.len());
    for (node, offset) in layer.iter().zip(offsets) {
        let (x, weight) = wish(graph, *node, side, xs);
        let mut block = Block { at: x - offset, weight, count: 1 };
        while let Some(left) = blocks.pop() {
            if left.at <= block.at {
                blocks.push(left);
                break;
            }
            let weight = left.weight + block.weight;
            let at = (left.at * left.weight + block.at * block.weight) / weight;
            block = Block { at, weight, count: left.count + block.count };
        }
        blocks.push(block);
    }
    let mut nodes = layer.iter().zip(offsets);
    for Block { at, count, .. } in blocks {
        for (node, offset) in nodes.by_ref().take(count) {
            xs[*node] = at + offset;
        }
    }
}

/// Returns where a node would like to be, and how much.
fn wish(graph: &Layered, node: usize, side: Side, xs: &[f64]) -> (f64, f64) {
    let above = graph.above[node].iter().filter(|_| side != Side::Below);
    let below = graph.below[node].iter().filter(|_| side != Side::Above);
    let (mut sum, mut weight) = (0.0, 0.0);
    for to in above.chain(below) {
        let drawn = match (graph.is_place(node), graph.is_place(*to)) {
            (true, true) => STRAIGHT,
            (true, false) | (false, true) => 2.0,
            (false, false) => 1.0,
        };
        sum += xs[*to] * drawn;
        weight += drawn;
    }
    if weight == 0.0 { (xs[node], LOOSE) } else { (sum / weight, weight) }
}
