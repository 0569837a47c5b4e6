//! Parts of a graph that do not hang together, and how they share the paper.

use super::{Drawing, Point, Style};

/// Nodes that hang together, and the edges between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// The nodes, by their places in the whole graph.
    pub(super) nodes: Vec<usize>,
    /// The edges: their places in the whole graph, and both ends by their places in `nodes`.
    pub(super) edges: Vec<PartEdge>,
}

/// An edge of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartEdge {
    pub(super) at: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// How much wider than high the whole should be.
const ASPECT: f64 = 1.6;

/// Takes a graph apart. Parts come in the order of their first nodes.
pub(super) fn parts(nodes: usize, edges: &[(usize, usize)]) -> Vec<Part> {
    let mut roots: Vec<usize> = (0..nodes).collect();
    for (from, to) in edges.iter().filter(|(from, to)| *from < nodes && *to < nodes) {
        let (a, b) = (root(&mut roots, *from), root(&mut roots, *to));
        roots[a.max(b)] = a.min(b);
    }
    let mut places = vec![0; nodes];
    let mut part_of = vec![usize::MAX; nodes];
    let mut parts: Vec<Part> = Vec::new();
    for node in 0..nodes {
        let first = root(&mut roots, node);
        if first == node {
            part_of[node] = parts.len();
            parts.push(Part::default());
        }
        part_of[node] = part_of[first];
        let part = &mut parts[part_of[node]];
        places[node] = part.nodes.len();
        part.nodes.push(node);
    }
    for (at, (from, to)) in edges.iter().enumerate() {
        if *from < nodes && *to < nodes {
            let edge = PartEdge { at, from: places[*from], to: places[*to] };
            parts[part_of[*from]].edges.push(edge);
        }
    }
    parts
}

/// Returns the least node that hangs together with this one, as far as is known.
fn root(roots: &mut [usize], mut node: usize) -> usize {
    while roots[node] != node {
        roots[node] = roots[roots[node]];
        node = roots[node];
    }
    node
}

/// Puts drawings beside and below each other: rows, the highest first.
pub(super) fn together(
    mut drawn: Vec<(Part, Drawing)>,
    nodes: usize,
    edges: usize,
    style: &Style,
) -> Drawing {
    let gap = style.part_gap;
    let area: f64 = drawn.iter().map(|(_, it)| (it.width + gap) * (it.height + gap)).sum();
    let widest = drawn.iter().map(|(_, it)| it.width).fold(0.0, f64::max);
    let row_width = widest.max((area * ASPECT).sqrt());
    drawn.sort_by(|(_, a), (_, b)| b.height.total_cmp(&a.height));
    let nowhere = Point { x: 0.0, y: 0.0 };
    let mut whole = Drawing {
        nodes: vec![nowhere; nodes],
        edges: vec![Vec::new(); edges],
        ..Drawing::default()
    };
    let (mut x, mut y, mut row_height) = (0.0_f64, 0.0, 0.0_f64);
    for (part, drawing) in drawn {
        if x > 0.0 && x + drawing.width > row_width {
            y += row_height + gap;
            (x, row_height) = (0.0, 0.0);
        }
        let moved = |it: Point| Point { x: it.x + x, y: it.y + y };
        for (node, point) in part.nodes.iter().zip(drawing.nodes) {
            whole.nodes[*node] = moved(point);
        }
        for (edge, points) in part.edges.iter().zip(drawing.edges) {
            whole.edges[edge.at] = points.into_iter().map(moved).collect();
        }
        whole.width = whole.width.max(x + drawing.width);
        whole.height = whole.height.max(y + drawing.height);
        row_height = row_height.max(drawing.height);
        x += drawing.width + gap;
    }
    whole
}
