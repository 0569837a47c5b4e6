//! Layered drawings of directed graphs, after Sugiyama. The result is deterministic.

mod layers;
mod ordering;
mod placement;

use self::layers::LayeredGraph;

const ASPECT_RATIO: f64 = 1.6;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    pub width: f64,
    pub height: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Down,
    Right,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Style {
    pub direction: Direction,
    pub layer_gap: f64,
    pub node_gap: f64,
    pub part_gap: f64,
}

impl Default for Style {
    fn default() -> Self {
        Self { direction: Direction::Down, layer_gap: 60.0, node_gap: 24.0, part_gap: 48.0 }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawing {
    pub width: f64,
    pub height: f64,
    pub nodes: Vec<Point>,
    pub edges: Vec<Vec<Point>>,
}

#[derive(Clone, Debug, Default)]
struct ConnectedPart {
    nodes: Vec<usize>,
    edges: Vec<GraphEdge>,
}

/// An edge: its index in the whole graph, and its ends by their indexes in
/// [`ConnectedPart::nodes`].
#[derive(Clone, Copy, Debug)]
struct GraphEdge {
    index: usize,
    from: usize,
    to: usize,
}

/// Draws a graph. Edges are pairs of indexes into `nodes`. An edge with an invalid index gets no
/// points.
pub fn layout_graph(nodes: &[Size], edges: &[(usize, usize)], style: &Style) -> Drawing {
    let is_down = style.direction == Direction::Down;
    let turn = |size: &Size| Size { width: size.height, height: size.width };
    let sizes: Vec<Size> =
        nodes.iter().map(|size| if is_down { *size } else { turn(size) }).collect();
    let draw = |part: ConnectedPart| {
        let drawing = layout_part(&part, &sizes, style);
        (part, drawing)
    };
    let drawings = connected_parts(sizes.len(), edges).into_iter().map(draw).collect();
    let mut drawing = pack_parts(drawings, nodes.len(), edges.len(), style.part_gap);
    if !is_down {
        std::mem::swap(&mut drawing.width, &mut drawing.height);
        let points = drawing.nodes.iter_mut().chain(drawing.edges.iter_mut().flatten());
        points.for_each(|Point { x, y }| std::mem::swap(x, y));
    }
    drawing
}

fn layout_part(part: &ConnectedPart, sizes: &[Size], style: &Style) -> Drawing {
    let sizes: Vec<Size> = part.nodes.iter().map(|node| sizes[*node]).collect();
    let mut layered = LayeredGraph::new(sizes.len(), &part.edges);
    ordering::reduce_crossings(&mut layered);
    placement::draw_layers(&layered, &sizes, &part.edges, style)
}

fn connected_parts(nodes: usize, edges: &[(usize, usize)]) -> Vec<ConnectedPart> {
    let mut roots: Vec<usize> = (0..nodes).collect();
    for (from, to) in edges.iter().filter(|(from, to)| *from < nodes && *to < nodes) {
        let (a, b) = (find_root(&mut roots, *from), find_root(&mut roots, *to));
        roots[a.max(b)] = a.min(b);
    }
    let mut places = vec![0; nodes];
    let mut part_of = vec![usize::MAX; nodes];
    let mut parts: Vec<ConnectedPart> = Vec::new();
    for node in 0..nodes {
        let first = find_root(&mut roots, node);
        if first == node {
            part_of[node] = parts.len();
            parts.push(ConnectedPart::default());
        }
        part_of[node] = part_of[first];
        let part = &mut parts[part_of[node]];
        places[node] = part.nodes.len();
        part.nodes.push(node);
    }
    for (index, (from, to)) in edges.iter().enumerate() {
        if *from < nodes && *to < nodes {
            let edge = GraphEdge { index, from: places[*from], to: places[*to] };
            parts[part_of[*from]].edges.push(edge);
        }
    }
    parts
}

fn find_root(roots: &mut [usize], mut node: usize) -> usize {
    while roots[node] != node {
        roots[node] = roots[roots[node]];
        node = roots[node];
    }
    node
}

fn pack_parts(
    mut drawings: Vec<(ConnectedPart, Drawing)>,
    nodes: usize,
    edges: usize,
    gap: f64,
) -> Drawing {
    let area: f64 =
        drawings.iter().map(|(_, drawing)| (drawing.width + gap) * (drawing.height + gap)).sum();
    let widest = drawings.iter().map(|(_, drawing)| drawing.width).fold(0.0, f64::max);
    let row_width = widest.max((area * ASPECT_RATIO).sqrt());
    drawings.sort_by(|(_, a), (_, b)| b.height.total_cmp(&a.height));
    let mut whole = Drawing {
        nodes: vec![Point::default(); nodes],
        edges: vec![Vec::new(); edges],
        ..Drawing::default()
    };
    let (mut x, mut y, mut row_height) = (0.0_f64, 0.0, 0.0_f64);
    for (part, drawing) in drawings {
        if x > 0.0 && x + drawing.width > row_width {
            y += row_height + gap;
            (x, row_height) = (0.0, 0.0);
        }
        let moved = |point: Point| Point { x: point.x + x, y: point.y + y };
        for (node, point) in part.nodes.iter().zip(drawing.nodes) {
            whole.nodes[*node] = moved(point);
        }
        for (edge, points) in part.edges.iter().zip(drawing.edges) {
            whole.edges[edge.index] = points.into_iter().map(moved).collect();
        }
        whole.width = whole.width.max(x + drawing.width);
        whole.height = whole.height.max(y + drawing.height);
        row_height = row_height.max(drawing.height);
        x += drawing.width + gap;
    }
    whole
}

#[cfg(test)]
mod tests;
