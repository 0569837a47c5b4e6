//! The positions of ordered nodes, and the routes of edges between them.

use super::{
    Drawing, PartEdge, Point, Size, Style,
    layers::{EdgePath, Layered},
};

const SWEEPS: usize = 12;
/// The space of an edge that passes a layer, as a share of the gap between nodes.
const PASSING_EDGE_SPACE: f64 = 0.5;
/// The pull between places of one edge, which keeps long edges straight.
const EDGE_PULL: f64 = 6.0;
/// The pull of a node without neighbours towards its current place.
const LOOSE_NODE_PULL: f64 = 0.01;
/// The share of a node's side that its edges use.
const PORT_SHARE: f64 = 0.7;
const MAX_PORT_GAP: f64 = 14.0;
const LOOP_SIZE: f64 = 16.0;
/// The distance up to which a point counts as on a line.
const STRAIGHT_TOLERANCE: f64 = 0.05;

/// Places the nodes of ordered layers and routes the edges between them.
pub(super) fn draw_layers(
    graph: &Layered,
    sizes: &[Size],
    edges: &[PartEdge],
    style: &Style,
) -> Drawing {
    let placed = place_nodes(graph, sizes, style);
    let ports = Ports::new(graph, &placed, sizes);
    let mut width = placed.width;
    let paths = graph.paths.iter().zip(edges).enumerate();
    let routes = paths.map(|(at, (path, edge))| match path {
        EdgePath::Loop => {
            let points = self_loop(placed.middle[edge.from], sizes[edge.from]);
            width = points.iter().map(|point| point.x).fold(width, f64::max);
            points
        }
        EdgePath::Through { is_reversed, places, .. } => {
            let mut points = vec![ports.upper[at]];
            for place in places {
                let band = placed.bands[graph.layer_of[*place]];
                let x = placed.middle[*place].x;
                points.extend([Point { x, y: band.top }, Point { x, y: band.bottom }]);
            }
            points.push(ports.lower[at]);
            straighten_path(points, *is_reversed)
        }
        EdgePath::Straight { is_reversed, .. } => {
            straighten_path(vec![ports.upper[at], ports.lower[at]], *is_reversed)
        }
    });
    let edges = routes.collect();
    let nodes = placed.middle[..graph.real].to_vec();
    let height = placed.bands.last().map_or(0.0, |band| band.bottom);
    Drawing { width, height, nodes, edges }
}

struct Ports {
    upper: Vec<Point>,
    lower: Vec<Point>,
}

impl Ports {
    fn new(graph: &Layered, placed: &PlacedNodes, sizes: &[Size]) -> Self {
        let nowhere = vec![Point::default(); graph.paths.len()];
        let mut ports = Self { upper: nowhere.clone(), lower: nowhere };
        // The edges at each side, and their other ends.
        let mut leaving = vec![Vec::new(); graph.real];
        let mut reaching = vec![Vec::new(); graph.real];
        for (at, path) in graph.paths.iter().enumerate() {
            let (upper, lower, first, last) = match path {
                EdgePath::Loop => continue,
                EdgePath::Through { upper, places, lower, .. } => {
                    let first = places.first().unwrap_or(lower);
                    (*upper, *lower, *first, *places.last().unwrap_or(upper))
                }
                EdgePath::Straight { upper, lower, .. } => (*upper, *lower, *lower, *upper),
            };
            leaving[upper].push((placed.middle[first].x, at));
            reaching[lower].push((placed.middle[last].x, at));
        }
        for node in 0..graph.real {
            let Point { x, y } = placed.middle[node];
            let Size { width, height } = sizes[node];
            for (x, at) in spread_ports(&mut leaving[node], x, width) {
                ports.upper[at] = Point { x, y: y + height / 2.0 };
            }
            for (x, at) in spread_ports(&mut reaching[node], x, width) {
                ports.lower[at] = Point { x, y: y - height / 2.0 };
            }
        }
        ports
    }
}

fn spread_ports(edges: &mut [(f64, usize)], middle: f64, width: f64) -> Vec<(f64, usize)> {
    edges.sort_by(|(a, at), (b, other)| a.total_cmp(b).then(at.cmp(other)));
    let count = f64::from(u32::try_from(edges.len()).unwrap_or(u32::MAX));
    let step = MAX_PORT_GAP.min(width * PORT_SHARE / count.max(1.0));
    let mut x = middle - step * (count - 1.0) / 2.0;
    let placed = edges.iter().map(|(_, at)| {
        let port = (x, *at);
        x += step;
        port
    });
    placed.collect()
}

fn self_loop(Point { x, y }: Point, Size { width, height }: Size) -> Vec<Point> {
    let (right, up, down) = (x + width / 2.0, y - height / 4.0, y + height / 4.0);
    [(right, up), (right + LOOP_SIZE, up), (right + LOOP_SIZE, down), (right, down)]
        .map(|(x, y)| Point { x, y })
        .into()
}

/// Removes points on a straight line, and restores the direction of reversed edges.
fn straighten_path(points: Vec<Point>, is_reversed: bool) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::with_capacity(points.len());
    for point in points {
        if let [.., a, b] = kept[..] {
            let cross = (b.x - a.x) * (point.y - a.y) - (b.y - a.y) * (point.x - a.x);
            let length = (point.x - a.x).hypot(point.y - a.y).max(1.0);
            if (cross / length).abs() < STRAIGHT_TOLERANCE {
                kept.pop();
            }
        }
        kept.push(point);
    }
    if is_reversed {
        kept.reverse();
    }
    kept
}

struct PlacedNodes {
    /// The centre of each node and of each place of an edge.
    middle: Vec<Point>,
    bands: Vec<LayerBand>,
    width: f64,
}

#[derive(Clone, Copy)]
struct LayerBand {
    top: f64,
    bottom: f64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Above,
    Below,
    Both,
}

fn place_nodes(graph: &Layered, sizes: &[Size], style: &Style) -> PlacedNodes {
    let bands = layer_bands(graph, sizes, style);
    let offsets: Vec<Vec<f64>> =
        graph.layers.iter().map(|layer| node_offsets(graph, layer, sizes, style)).collect();
    let mut xs = vec![0.0; graph.layer_of.len()];
    for (layer, offsets) in graph.layers.iter().zip(&offsets) {
        for (node, offset) in layer.iter().zip(offsets) {
            xs[*node] = *offset;
        }
    }
    for sweep in 0..SWEEPS {
        let side = match sweep {
            last if last + 2 >= SWEEPS => Side::Both,
            even if even % 2 == 0 => Side::Above,
            _ => Side::Below,
        };
        let layers = graph.layers.len();
        for step in 0..layers {
            let layer = if side == Side::Below { layers - 1 - step } else { step };
            settle_layer(graph, &graph.layers[layer], &offsets[layer], side, &mut xs);
        }
    }
    let half = |node: usize| half_width(sizes, node);
    let left = (0..xs.len()).map(|node| xs[node] - half(node)).fold(f64::INFINITY, f64::min);
    let right = (0..xs.len()).map(|node| xs[node] + half(node)).fold(f64::NEG_INFINITY, f64::max);
    let middle = xs.iter().zip(&graph.layer_of).map(|(x, layer)| {
        let LayerBand { top, bottom } = bands[*layer];
        Point { x: x - left, y: f64::midpoint(top, bottom) }
    });
    PlacedNodes { middle: middle.collect(), width: (right - left).max(0.0), bands }
}

fn half_width(sizes: &[Size], node: usize) -> f64 {
    sizes.get(node).map_or(0.0, |size| size.width / 2.0)
}

fn layer_bands(graph: &Layered, sizes: &[Size], style: &Style) -> Vec<LayerBand> {
    let mut top = 0.0;
    let band = |layer: &Vec<usize>| {
        let heights = layer.iter().filter_map(|node| sizes.get(*node)).map(|size| size.height);
        let band = LayerBand { top, bottom: top + heights.fold(0.0, f64::max) };
        top = band.bottom + style.layer_gap;
        band
    };
    graph.layers.iter().map(band).collect()
}

/// Returns the leftmost offsets of a layer's nodes.
fn node_offsets(graph: &Layered, layer: &[usize], sizes: &[Size], style: &Style) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(layer.len());
    let mut before: Option<(f64, usize)> = None;
    for node in layer {
        let x = before.map_or(0.0, |(x, left)| {
            let is_passage = graph.is_place(left) && graph.is_place(*node);
            let gap = if is_passage { style.node_gap * PASSING_EDGE_SPACE } else { style.node_gap };
            x + half_width(sizes, left) + gap + half_width(sizes, *node)
        });
        offsets.push(x);
        before = Some((x, *node));
    }
    offsets
}

/// Adjacent nodes at minimal distance.
struct Block {
    at: f64,
    weight: f64,
    count: usize,
}

/// Moves the nodes of a layer as near to their neighbours as their order allows.
///
/// This is isotonic regression: after subtracting the offsets, positions must not decrease from left
/// to right. Pooling adjacent violators gives the least sum of squares.
fn settle_layer(graph: &Layered, layer: &[usize], offsets: &[f64], side: Side, xs: &mut [f64]) {
    let mut blocks: Vec<Block> = Vec::with_capacity(layer.len());
    for (node, offset) in layer.iter().zip(offsets) {
        let (x, weight) = wished_place(graph, *node, side, xs);
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

/// Returns the wanted position of a node, and its weight.
fn wished_place(graph: &Layered, node: usize, side: Side, xs: &[f64]) -> (f64, f64) {
    let above = graph.above[node].iter().filter(|_| side != Side::Below);
    let below = graph.below[node].iter().filter(|_| side != Side::Above);
    let (mut sum, mut weight) = (0.0, 0.0);
    for to in above.chain(below) {
        let pull = match (graph.is_place(node), graph.is_place(*to)) {
            (true, true) => EDGE_PULL,
            (true, false) | (false, true) => 2.0,
            (false, false) => 1.0,
        };
        sum += xs[*to] * pull;
        weight += pull;
    }
    if weight == 0.0 { (xs[node], LOOSE_NODE_PULL) } else { (sum / weight, weight) }
}
