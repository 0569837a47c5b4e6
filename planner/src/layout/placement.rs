use super::{
    Drawing, GraphEdge, Point, Size, Style,
    layers::{EdgePath, LayeredGraph},
};

const SWEEPS: usize = 12;
const PASSING_EDGE_SPACE: f64 = 0.5;
/// The pull between placeholders of one edge, which keeps long edges straight.
const EDGE_PULL: f64 = 6.0;
/// The pull of a node without neighbours towards its current place.
const LOOSE_NODE_PULL: f64 = 0.01;
const PORT_SHARE: f64 = 0.7;
const MAX_PORT_GAP: f64 = 14.0;
const LOOP_SIZE: f64 = 16.0;
const STRAIGHT_TOLERANCE: f64 = 0.05;

pub(super) fn draw_layers(
    graph: &LayeredGraph,
    sizes: &[Size],
    edges: &[GraphEdge],
    style: &Style,
) -> Drawing {
    let placed_nodes = place_nodes(graph, sizes, style);
    let ports = Ports::new(graph, &placed_nodes, sizes);
    let mut width = placed_nodes.width;
    let paths = graph.paths.iter().zip(edges).enumerate();
    let routes = paths.map(|(position, (path, edge))| match path {
        EdgePath::Loop => {
            let points = self_loop_points(placed_nodes.centres[edge.from], sizes[edge.from]);
            width = points.iter().map(|point| point.x).fold(width, f64::max);
            points
        }
        EdgePath::ViaPlaceholders { is_reversed, placeholders, .. } => {
            let mut points = vec![ports.upper[position]];
            for place in placeholders {
                let band = placed_nodes.bands[graph.layer_of[*place]];
                let x = placed_nodes.centres[*place].x;
                points.extend([Point { x, y: band.top }, Point { x, y: band.bottom }]);
            }
            points.push(ports.lower[position]);
            straighten_path(points, *is_reversed)
        }
        EdgePath::Straight { is_reversed, .. } => {
            straighten_path(vec![ports.upper[position], ports.lower[position]], *is_reversed)
        }
    });
    let edges = routes.collect();
    let nodes = placed_nodes.centres[..graph.real_node_count].to_vec();
    let height = placed_nodes.bands.last().map_or(0.0, |band| band.bottom);
    Drawing { width, height, nodes, edges }
}

struct Ports {
    upper: Vec<Point>,
    lower: Vec<Point>,
}

impl Ports {
    fn new(graph: &LayeredGraph, placed_nodes: &PlacedNodes, sizes: &[Size]) -> Self {
        let nowhere = vec![Point::default(); graph.paths.len()];
        let mut ports = Self { upper: nowhere.clone(), lower: nowhere };
        // The edges above and below each node, each with the position of the node or placeholder at
        // its other end.
        let mut leaving = vec![Vec::new(); graph.real_node_count];
        let mut reaching = vec![Vec::new(); graph.real_node_count];
        for (position, path) in graph.paths.iter().enumerate() {
            let (upper, lower, first, last) = match path {
                EdgePath::Loop => continue,
                EdgePath::ViaPlaceholders { upper, placeholders, lower, .. } => {
                    let first = placeholders.first().unwrap_or(lower);
                    (*upper, *lower, *first, *placeholders.last().unwrap_or(upper))
                }
                EdgePath::Straight { upper, lower, .. } => (*upper, *lower, *lower, *upper),
            };
            leaving[upper].push((placed_nodes.centres[first].x, position));
            reaching[lower].push((placed_nodes.centres[last].x, position));
        }
        for node in 0..graph.real_node_count {
            let Point { x, y } = placed_nodes.centres[node];
            let Size { width, height } = sizes[node];
            for (x, position) in spread_ports(&mut leaving[node], x, width) {
                ports.upper[position] = Point { x, y: y + height / 2.0 };
            }
            for (x, position) in spread_ports(&mut reaching[node], x, width) {
                ports.lower[position] = Point { x, y: y - height / 2.0 };
            }
        }
        ports
    }
}

fn spread_ports(edges: &mut [(f64, usize)], centre: f64, width: f64) -> Vec<(f64, usize)> {
    edges.sort_by(|(a, position), (b, other)| a.total_cmp(b).then(position.cmp(other)));
    let count = f64::from(u32::try_from(edges.len()).unwrap_or(u32::MAX));
    let step = MAX_PORT_GAP.min(width * PORT_SHARE / count.max(1.0));
    let mut x = centre - step * (count - 1.0) / 2.0;
    let ports = edges.iter().map(|(_, position)| {
        let port = (x, *position);
        x += step;
        port
    });
    ports.collect()
}

fn self_loop_points(Point { x, y }: Point, Size { width, height }: Size) -> Vec<Point> {
    let (right, up, down) = (x + width / 2.0, y - height / 4.0, y + height / 4.0);
    [(right, up), (right + LOOP_SIZE, up), (right + LOOP_SIZE, down), (right, down)]
        .map(|(x, y)| Point { x, y })
        .into()
}

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
    centres: Vec<Point>,
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

fn place_nodes(graph: &LayeredGraph, sizes: &[Size], style: &Style) -> PlacedNodes {
    let bands = layer_bands(graph, sizes, style);
    let offsets: Vec<Vec<f64>> =
        graph.layers.iter().map(|layer| node_offsets(graph, layer, sizes, style)).collect();
    let mut positions = vec![0.0; graph.layer_of.len()];
    for (layer, offsets) in graph.layers.iter().zip(&offsets) {
        for (node, offset) in layer.iter().zip(offsets) {
            positions[*node] = *offset;
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
            move_nodes_to_neighbours(
                graph,
                &graph.layers[layer],
                &offsets[layer],
                side,
                &mut positions,
            );
        }
    }
    let half = |node: usize| half_width(sizes, node);
    let left =
        (0..positions.len()).map(|node| positions[node] - half(node)).fold(f64::INFINITY, f64::min);
    let right = (0..positions.len())
        .map(|node| positions[node] + half(node))
        .fold(f64::NEG_INFINITY, f64::max);
    let centres = positions.iter().zip(&graph.layer_of).map(|(x, layer)| {
        let LayerBand { top, bottom } = bands[*layer];
        Point { x: x - left, y: f64::midpoint(top, bottom) }
    });
    PlacedNodes { centres: centres.collect(), width: (right - left).max(0.0), bands }
}

fn half_width(sizes: &[Size], node: usize) -> f64 {
    sizes.get(node).map_or(0.0, |size| size.width / 2.0)
}

fn layer_bands(graph: &LayeredGraph, sizes: &[Size], style: &Style) -> Vec<LayerBand> {
    let mut top = 0.0;
    let band = |layer: &Vec<usize>| {
        let heights = layer.iter().filter_map(|node| sizes.get(*node)).map(|size| size.height);
        let band = LayerBand { top, bottom: top + heights.fold(0.0, f64::max) };
        top = band.bottom + style.layer_gap;
        band
    };
    graph.layers.iter().map(band).collect()
}

fn node_offsets(graph: &LayeredGraph, layer: &[usize], sizes: &[Size], style: &Style) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(layer.len());
    let mut before: Option<(f64, usize)> = None;
    for node in layer {
        let x = before.map_or(0.0, |(x, left)| {
            let is_passage = graph.is_placeholder(left) && graph.is_placeholder(*node);
            let gap = if is_passage { style.node_gap * PASSING_EDGE_SPACE } else { style.node_gap };
            x + half_width(sizes, left) + gap + half_width(sizes, *node)
        });
        offsets.push(x);
        before = Some((x, *node));
    }
    offsets
}

struct Block {
    position: f64,
    weight: f64,
    count: usize,
}

/// Moves the nodes of a layer as near to their neighbours as their order allows. This is isotonic
/// regression with the least sum of squares.
fn move_nodes_to_neighbours(
    graph: &LayeredGraph,
    layer: &[usize],
    offsets: &[f64],
    side: Side,
    positions: &mut [f64],
) {
    let mut blocks: Vec<Block> = Vec::with_capacity(layer.len());
    for (node, offset) in layer.iter().zip(offsets) {
        let (x, weight) = preferred_position(graph, *node, side, positions);
        let mut block = Block { position: x - offset, weight, count: 1 };
        while let Some(left) = blocks.pop() {
            if left.position <= block.position {
                blocks.push(left);
                break;
            }
            let weight = left.weight + block.weight;
            let position = (left.position * left.weight + block.position * block.weight) / weight;
            block = Block { position, weight, count: left.count + block.count };
        }
        blocks.push(block);
    }
    let mut nodes = layer.iter().zip(offsets);
    for Block { position, count, .. } in blocks {
        for (node, offset) in nodes.by_ref().take(count) {
            positions[*node] = position + offset;
        }
    }
}

fn preferred_position(
    graph: &LayeredGraph,
    node: usize,
    side: Side,
    positions: &[f64],
) -> (f64, f64) {
    let above = graph.above[node].iter().filter(|_| side != Side::Below);
    let below = graph.below[node].iter().filter(|_| side != Side::Above);
    let (mut sum, mut weight) = (0.0, 0.0);
    for to in above.chain(below) {
        let pull = match (graph.is_placeholder(node), graph.is_placeholder(*to)) {
            (true, true) => EDGE_PULL,
            (true, false) | (false, true) => 2.0,
            (false, false) => 1.0,
        };
        sum += positions[*to] * pull;
        weight += pull;
    }
    if weight == 0.0 { (positions[node], LOOSE_NODE_PULL) } else { (sum / weight, weight) }
}
