//! Which way edges take between nodes that have their places.

use super::{
    Drawing, Point, Size,
    layers::{Layered, Way},
    pack::PartEdge,
    place::Placed,
};

/// How much of a node's side its edges spread over.
const SPREAD: f64 = 0.7;
/// The most room between two edges at a node's side.
const PORT: f64 = 14.0;
/// How far a loop reaches out.
const LOOP: f64 = 16.0;
/// How far a point may be off a line to count as on it.
const STRAIGHT: f64 = 0.05;

/// Draws a part whose nodes have their places.
pub(super) fn route(
    graph: &Layered,
    placed: &Placed,
    sizes: &[Size],
    edges: &[PartEdge],
) -> Drawing {
    let ports = Ports::new(graph, placed, sizes);
    let mut width = placed.width;
    let ways = graph.ways.iter().zip(edges).enumerate().map(|(at, (way, edge))| match way {
        Way::Loop => {
            let points = around(placed.middle[edge.from], sizes[edge.from]);
            width = points.iter().map(|it| it.x).fold(width, f64::max);
            points
        }
        Way::Through { is_turned, places, .. } => {
            let mut points = vec![ports.upper[at]];
            for place in places {
                let band = placed.bands[graph.layer_of[*place]];
                let x = placed.middle[*place].x;
                points.extend([Point { x, y: band.top }, Point { x, y: band.bottom }]);
            }
            points.push(ports.lower[at]);
            straightened(points, *is_turned)
        }
        Way::Straight { is_turned, .. } => {
            straightened(vec![ports.upper[at], ports.lower[at]], *is_turned)
        }
    });
    let edges = ways.collect();
    let nodes = placed.middle[..graph.real].to_vec();
    Drawing { width, height: placed.height, nodes, edges }
}

/// Where edges leave nodes and reach them.
struct Ports {
    upper: Vec<Point>,
    lower: Vec<Point>,
}

impl Ports {
    fn new(graph: &Layered, placed: &Placed, sizes: &[Size]) -> Self {
        let nowhere = Point { x: 0.0, y: 0.0 };
        let mut ports =
            Self { upper: vec![nowhere; graph.ways.len()], lower: vec![nowhere; graph.ways.len()] };
        // The edges of each side, and where they come from or lead to.
        let mut leaving = vec![Vec::new(); graph.real];
        let mut reaching = vec![Vec::new(); graph.real];
        for (at, way) in graph.ways.iter().enumerate() {
            let (upper, lower, first, last) = match way {
                Way::Loop => continue,
                Way::Through { upper, places, lower, .. } => {
                    let first = places.first().unwrap_or(lower);
                    (*upper, *lower, *first, *places.last().unwrap_or(upper))
                }
                Way::Straight { upper, lower, .. } => (*upper, *lower, *lower, *upper),
            };
            leaving[upper].push((placed.middle[first].x, at));
            reaching[lower].push((placed.middle[last].x, at));
        }
        for node in 0..graph.real {
            let Point { x, y } = placed.middle[node];
            let Size { width, height } = sizes[node];
            for (x, at) in spread(&mut leaving[node], x, width) {
                ports.upper[at] = Point { x, y: y + height / 2.0 };
            }
            for (x, at) in spread(&mut reaching[node], x, width) {
                ports.lower[at] = Point { x, y: y - height / 2.0 };
            }
        }
        ports
    }
}

/// Spreads edges over the side of a node, in the order of where they lead.
fn spread(edges: &mut [(f64, usize)], middle: f64, width: f64) -> Vec<(f64, usize)> {
    edges.sort_by(|(a, at), (b, other)| a.total_cmp(b).then(at.cmp(other)));
    let count = f64::from(u32::try_from(edges.len()).unwrap_or(u32::MAX));
    let step = PORT.min(width * SPREAD / count.max(1.0));
    let mut x = middle - step * (count - 1.0) / 2.0;
    let placed = edges.iter().map(|(_, at)| {
        let port = (x, *at);
        x += step;
        port
    });
    placed.collect()
}

/// Returns a way around the right side of a node.
fn around(Point { x, y }: Point, Size { width, height }: Size) -> Vec<Point> {
    let (right, up, down) = (x + width / 2.0, y - height / 4.0, y + height / 4.0);
    [(right, up), (right + LOOP, up), (right + LOOP, down), (right, down)]
        .map(|(x, y)| Point { x, y })
        .into()
}

/// Leaves out what lies on a line between its neighbours, and turns round what was turned.
fn straightened(points: Vec<Point>, is_turned: bool) -> Vec<Point> {
    let mut kept: Vec<Point> = Vec::with_capacity(points.len());
    for point in points {
        if let [.., a, b] = kept[..] {
            let cross = (b.x - a.x) * (point.y - a.y) - (b.y - a.y) * (point.x - a.x);
            let length = (point.x - a.x).hypot(point.y - a.y).max(1.0);
            if (cross / length).abs() < STRAIGHT {
                kept.pop();
            }
        }
        kept.push(point);
    }
    if is_turned {
        kept.reverse();
    }
    kept
}
