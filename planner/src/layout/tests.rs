use proptest::prelude::*;

use super::*;

const NODE_SIZE: Size = Size { width: 80.0, height: 30.0 };

fn draw_graph(nodes: usize, edges: &[(usize, usize)]) -> Drawing {
    layout_graph(&vec![NODE_SIZE; nodes], edges, &Style::default())
}

fn count_straight_crossings(drawing: &Drawing, edges: &[(usize, usize)]) -> usize {
    let side = |a: Point, b: Point, c: Point| (b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x);
    let lines: Vec<(Point, Point)> =
        edges.iter().map(|(a, b)| (drawing.nodes[*a], drawing.nodes[*b])).collect();
    let crosses = |n: usize, m: usize| {
        let ((a, b), (c, d)) = (lines[n], lines[m]);
        side(a, b, c) * side(a, b, d) < 0.0 && side(c, d, a) * side(c, d, b) < 0.0
    };
    (0..lines.len())
        .flat_map(|n| (0..n).map(move |m| (n, m)))
        .filter(|(n, m)| crosses(*n, *m))
        .count()
}

#[test]
fn an_empty_graph_has_an_empty_drawing() {
    assert_eq!(draw_graph(0, &[]), Drawing::default());
    let one = draw_graph(1, &[]);
    assert_eq!((one.width, one.height), (NODE_SIZE.width, NODE_SIZE.height));
    assert_eq!(one.nodes, [Point { x: 40.0, y: 15.0 }]);
    assert_eq!(draw_graph(1, &[(0, 5), (7, 0)]).edges, [vec![], vec![]], "the ends are not nodes");
}

#[test]
fn a_chain_is_a_straight_line_down() {
    let drawing = draw_graph(3, &[(0, 1), (1, 2)]);
    assert!(drawing.nodes.iter().all(|node| (node.x - 40.0).abs() < 1e-9), "{drawing:?}");
    assert!(drawing.edges.iter().all(|points| points.len() == 2));
    let style = Style { direction: Direction::Right, ..Style::default() };
    let right = layout_graph(&[NODE_SIZE; 3], &[(0, 1), (1, 2)], &style);
    assert!(right.nodes.iter().all(|node| (node.y - 15.0).abs() < 1e-9), "{right:?}");
    assert!((right.width - (3.0 * 80.0 + 2.0 * 60.0)).abs() < 1e-9);
}

#[test]
fn trees_and_ladders_have_no_crossings() {
    let tree: Vec<(usize, usize)> = (1..31).map(|n| ((n - 1) / 2, n)).collect();
    assert_eq!(count_straight_crossings(&draw_graph(31, &tree), &tree), 0);
    // The order of the edges makes all of them cross at first.
    let ladder: Vec<(usize, usize)> =
        (0..8).map(|n| (n, 15 - n)).chain((0..7).map(|n| (n, 14 - n))).collect();
    assert_eq!(count_straight_crossings(&draw_graph(16, &ladder), &ladder), 0);
}

#[test]
fn unconnected_parts_are_placed_side_by_side() {
    let edges: Vec<(usize, usize)> = (0..20).map(|n| (2 * n, 2 * n + 1)).collect();
    let drawing = draw_graph(40, &edges);
    let ratio = drawing.width / drawing.height;
    assert!((0.5..4.0).contains(&ratio), "{} × {}", drawing.width, drawing.height);
}

#[test]
fn a_dense_graph_is_drawn_with_bounded_work() {
    // One long chain, and edges from its beginning to every part of it. These edges need more
    // placeholders than the limit.
    let chain = (1..1_500).map(|n| (n - 1, n));
    let edges: Vec<(usize, usize)> = chain.chain((2..1_500).map(|n| (n % 7, n))).collect();
    let drawing = draw_graph(1_500, &edges);
    check_drawing(&drawing, 1_500, &edges);
}

fn check_drawing(drawing: &Drawing, nodes: usize, edges: &[(usize, usize)]) {
    let mut sorted_nodes: Vec<Point> = drawing.nodes.clone();
    sorted_nodes.sort_by(|a, b| a.y.total_cmp(&b.y).then(a.x.total_cmp(&b.x)));
    for pair in sorted_nodes.windows(2) {
        let is_apart = pair[1].y - pair[0].y > NODE_SIZE.height - 1e-6
            || pair[1].x - pair[0].x > NODE_SIZE.width - 1e-6;
        assert!(is_apart, "{pair:?}");
    }
    let is_inside = |point: &Point| {
        (-1e-6..=drawing.width + 1e-6).contains(&point.x)
            && (-1e-6..=drawing.height + 1e-6).contains(&point.y)
    };
    assert_eq!(drawing.nodes.len(), nodes);
    assert!(drawing.nodes.iter().all(is_inside));
    for ((from, to), points) in edges.iter().zip(&drawing.edges) {
        assert!(points.len() >= 2 && points.iter().all(is_inside), "{points:?} of {drawing:?}");
        for (node, end) in [(from, points.first()), (to, points.last())] {
            let (node, end) = (drawing.nodes[*node], end.copied().unwrap_or(node_at_infinity()));
            assert!((node.x - end.x).abs() <= NODE_SIZE.width / 2.0 + 1e-6, "{node:?} {end:?}");
            assert!((node.y - end.y).abs() <= NODE_SIZE.height / 2.0 + 1e-6, "{node:?} {end:?}");
        }
    }
}

fn node_at_infinity() -> Point {
    Point { x: f64::INFINITY, y: f64::INFINITY }
}

proptest! {
    #[test]
    fn random_graphs_are_drawn_validly_and_deterministically(
        nodes in 1..40_usize,
        ends in prop::collection::vec((0..40_usize, 0..40_usize), 0..80),
    ) {
        let edges: Vec<_> = ends.into_iter().map(|(a, b)| (a % nodes, b % nodes)).collect();
        let drawing = draw_graph(nodes, &edges);
        check_drawing(&drawing, nodes, &edges);
        prop_assert_eq!(draw_graph(nodes, &edges), drawing, "the same again");
    }

    #[test]
    fn without_cycles_edges_lead_down(
        nodes in 2..30_usize,
        ends in prop::collection::vec((0..30_usize, 0..30_usize), 0..60),
    ) {
        let ends = ends.into_iter().map(|(a, b)| (a % nodes, b % nodes));
        let edges: Vec<_> = ends.filter(|(a, b)| a < b).collect();
        let drawing = draw_graph(nodes, &edges);
        for (from, to) in &edges {
            prop_assert!(drawing.nodes[*from].y < drawing.nodes[*to].y);
        }
        for points in &drawing.edges {
            prop_assert!(points.is_sorted_by(|a, b| a.y <= b.y), "{:?}", points);
        }
    }
}
