use std::collections::BTreeMap;

use async_graphql::{Enum, InputObject, SimpleObject};
use planner::layout::{self, Point, Size, Style};
use tokio::task;

use super::error::{ApiResult, invalid_argument};

/// Allowed width and height of nodes, in pixels.
const SIDE_RANGE: std::ops::RangeInclusive<f64> = 1.0..=2_000.0;
/// Allowed width and height of a node with a size of its own, in pixels. The maximum is large,
/// because a client can show a whole drawing inside a node.
const NODE_SIDE_RANGE: std::ops::RangeInclusive<f64> = 1.0..=10_000_000.0;

/// Direction of the edges in a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "layout::Direction")]
pub(super) enum LayoutDirection {
    /// From top to bottom.
    Down,
    /// From left to right.
    Right,
}

/// Positions in the drawing of a graph, in pixels from the upper left corner.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Layout {
    /// Width of the drawing in pixels.
    width: f64,
    /// Height of the drawing in pixels.
    height: f64,
    /// Nodes of the drawing.
    nodes: Vec<LayoutNode>,
    /// Edges of the drawing.
    edges: Vec<LayoutEdge>,
}

/// Position and size of a node.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct LayoutNode {
    /// Name of the node: the id of a step, or the name of an action or tool.
    name: String,
    /// Distance in pixels from the left edge of the drawing to the left edge of the node.
    x: f64,
    /// Distance in pixels from the top of the drawing to the top of the node.
    y: f64,
    /// Width of the node in pixels.
    width: f64,
    /// Height of the node in pixels.
    height: f64,
}

/// Line that represents an edge.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct LayoutEdge {
    /// Name of the node where the edge starts.
    from: String,
    /// Name of the node where the edge ends.
    to: String,
    /// Points of the line in pixels, as alternating x and y: its start, bends and end.
    points: Vec<f64>,
}

pub(super) struct Graph {
    pub(super) names: Vec<String>,
    pub(super) edges: Vec<(usize, usize)>,
}

/// Size of a single node.
#[derive(Clone, Debug, InputObject)]
pub(super) struct NodeSizeInput {
    /// Name of the node. Fails with `INVALID_ARGUMENT` if no node has the name.
    pub(super) name: String,
    /// Width in pixels, from 1 to 10000000.
    pub(super) width: f64,
    /// Height in pixels, from 1 to 10000000.
    pub(super) height: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct DrawingOptions {
    pub(super) direction: Option<LayoutDirection>,
    pub(super) width: Option<f64>,
    pub(super) height: Option<f64>,
    /// Sizes of single nodes, which replace `width` and `height`.
    pub(super) sizes: Vec<NodeSizeInput>,
}

pub(super) async fn draw_graph(graph: Graph, options: DrawingOptions) -> ApiResult<Layout> {
    let sizes = check_sizes(&graph, &options)?;
    let direction = options.direction.unwrap_or(LayoutDirection::Right).into();
    let style = Style { direction, ..Style::default() };
    // Runs on a blocking thread, because a large drawing would block other requests.
    let layout = task::spawn_blocking(move || layout_graph(graph, &sizes, &style)).await;
    layout.map_err(|err| invalid_argument(format!("the graph cannot be drawn: {err}")))
}

fn check_sizes(graph: &Graph, options: &DrawingOptions) -> ApiResult<Vec<Size>> {
    let checked = |value: Option<f64>, usual, field| match value.unwrap_or(usual) {
        side if SIDE_RANGE.contains(&side) => Ok(side),
        side => Err(invalid_argument(format!("`{field}` is {side}: it must be from 1 to 2000"))),
    };
    let usual = Size {
        width: checked(options.width, 200.0, "nodeWidth")?,
        height: checked(options.height, 52.0, "nodeHeight")?,
    };
    let mut sizes = vec![usual; graph.names.len()];
    if options.sizes.is_empty() {
        return Ok(sizes);
    }
    let places: BTreeMap<&str, usize> =
        graph.names.iter().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
    for NodeSizeInput { name, width, height } in &options.sizes {
        if !NODE_SIDE_RANGE.contains(width) || !NODE_SIDE_RANGE.contains(height) {
            let complaint = format!("the size of `{name}` is {width} by {height}");
            return Err(invalid_argument(format!("{complaint}: each must be from 1 to 10000000")));
        }
        let place = places.get(name.as_str());
        let place = place.ok_or_else(|| {
            invalid_argument(format!("`sizes` names `{name}`, which is not a node"))
        })?;
        sizes[*place] = Size { width: *width, height: *height };
    }
    Ok(sizes)
}

fn layout_graph(Graph { names, edges }: Graph, sizes: &[Size], style: &Style) -> Layout {
    let drawing = layout::layout_graph(sizes, &edges, style);
    let lines = edges.iter().zip(drawing.edges).filter_map(|((from, to), points)| {
        let (from, to) = (names.get(*from)?.clone(), names.get(*to)?.clone());
        let points = points
            .into_iter()
            .flat_map(|Point { x, y }| [round_to_tenth(x), round_to_tenth(y)])
            .collect();
        Some(LayoutEdge { from, to, points })
    });
    let edges = lines.collect();
    let nodes = names.into_iter().zip(drawing.nodes).zip(sizes);
    let nodes = nodes.map(|((name, Point { x, y }), &Size { width, height })| LayoutNode {
        name,
        x: round_to_tenth(x - width / 2.0),
        y: round_to_tenth(y - height / 2.0),
        width,
        height,
    });
    Layout {
        nodes: nodes.collect(),
        edges,
        width: round_to_tenth(drawing.width),
        height: round_to_tenth(drawing.height),
    }
}

/// Rounds to a tenth of a pixel, because more digits would only make the answer larger.
fn round_to_tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_graph(edges: &[(usize, usize)]) -> Graph {
        let names = ["a", "b", "c"].map(str::to_owned).into();
        Graph { names, edges: edges.to_vec() }
    }

    #[tokio::test]
    async fn nodes_do_not_overlap_and_edges_join_their_borders() {
        for direction in [LayoutDirection::Down, LayoutDirection::Right] {
            let (width, height) = (Some(100.0), Some(40.0));
            let options =
                DrawingOptions { direction: Some(direction), width, height, sizes: Vec::new() };
            let layout = draw_graph(make_graph(&[(0, 1), (0, 2)]), options).await.unwrap();
            let [top, left, right] = layout.nodes.as_slice() else { panic!("three nodes") };
            let (apart, below) = ((left.x - right.x).abs(), (left.y - right.y).abs());
            assert!(apart >= 100.0 || below >= 40.0, "{layout:?}");
            let first = &layout.edges[0].points;
            match direction {
                LayoutDirection::Down => assert!((first[1] - (top.y + 40.0)).abs() < 0.2),
                LayoutDirection::Right => assert!((first[0] - (top.x + 100.0)).abs() < 0.2),
            }
            assert_eq!((layout.edges[1].from.as_str(), layout.edges[1].to.as_str()), ("a", "c"));
        }
    }

    #[tokio::test]
    async fn sizes_out_of_range_are_rejected() {
        for width in [0.0, -1.0, 1e9, f64::NAN, f64::INFINITY] {
            let options = DrawingOptions { width: Some(width), ..DrawingOptions::default() };
            assert!(draw_graph(make_graph(&[]), options).await.is_err(), "{width}");
            let options = DrawingOptions {
                sizes: vec![node_size("a", width * 100.0, 1.0)],
                ..DrawingOptions::default()
            };
            assert!(draw_graph(make_graph(&[]), options).await.is_err(), "{width}");
        }
        let options =
            DrawingOptions { sizes: vec![node_size("d", 10.0, 10.0)], ..DrawingOptions::default() };
        let error = draw_graph(make_graph(&[]), options).await.unwrap_err();
        let error = format!("{error:?}");
        assert!(error.contains("`sizes` names `d`, which is not a node"), "{error}");
    }

    fn node_size(name: &str, width: f64, height: f64) -> NodeSizeInput {
        NodeSizeInput { name: name.to_owned(), width, height }
    }

    #[tokio::test]
    async fn a_node_with_its_own_size_gets_enough_room() {
        for direction in [LayoutDirection::Down, LayoutDirection::Right] {
            let options = DrawingOptions {
                direction: Some(direction),
                sizes: vec![node_size("b", 900.0, 700.0)],
                ..DrawingOptions::default()
            };
            let layout = draw_graph(make_graph(&[(0, 1), (0, 2), (1, 2)]), options).await.unwrap();
            assert_eq!((layout.nodes[1].width, layout.nodes[1].height), (900.0, 700.0));
            assert_eq!((layout.nodes[2].width, layout.nodes[2].height), (200.0, 52.0));
            assert!(layout.width >= 900.0 && layout.height >= 700.0, "{layout:?}");
            for (index, one) in layout.nodes.iter().enumerate() {
                assert!(one.x >= 0.0 && one.x + one.width <= layout.width + 0.1, "{layout:?}");
                assert!(one.y >= 0.0 && one.y + one.height <= layout.height + 0.1, "{layout:?}");
                for other in &layout.nodes[..index] {
                    let beside = one.x + one.width <= other.x || other.x + other.width <= one.x;
                    let below = one.y + one.height <= other.y || other.y + other.height <= one.y;
                    assert!(beside || below, "{one:?} {other:?}");
                }
            }
        }
    }
}
