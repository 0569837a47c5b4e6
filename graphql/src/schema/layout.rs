//! Where the nodes of a graph are drawn, for clients that draw it themselves.

use std::collections::BTreeMap;

use async_graphql::{Enum, InputObject, SimpleObject};
use planner::layout::{self, Point, Size, Style};
use tokio::task;

use super::error::{ApiResult, invalid};

/// How wide or high a node may be.
const SIDE: std::ops::RangeInclusive<f64> = 1.0..=2_000.0;
/// How wide or high a node with a size of its own may be: a whole drawing may stand in it.
const OWN_SIDE: std::ops::RangeInclusive<f64> = 1.0..=10_000_000.0;

/// Which way edges lead in a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
#[graphql(remote = "layout::Direction")]
pub(super) enum LayoutDirection {
    /// From top to bottom.
    Down,
    /// From left to right.
    Right,
}

/// Where everything is in a drawing of a graph, in pixels from its upper left corner.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct Layout {
    /// How wide it is.
    width: f64,
    /// How high it is.
    height: f64,
    /// Its nodes.
    nodes: Vec<LayoutNode>,
    /// Its edges.
    edges: Vec<LayoutEdge>,
}

/// Where a node is drawn.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct LayoutNode {
    /// What it stands for: a step by its id, an action or tool by its name.
    name: String,
    /// From the left to its left border.
    x: f64,
    /// From the top to its upper border.
    y: f64,
    /// How wide it is.
    width: f64,
    /// How high it is.
    height: f64,
}

/// Which way an edge takes.
#[derive(Clone, Debug, SimpleObject)]
pub(super) struct LayoutEdge {
    /// The node that it leads from.
    from: String,
    /// The node that it leads to.
    to: String,
    /// Where it begins, bends and ends: x and y by turns.
    points: Vec<f64>,
}

/// A graph that is to be drawn: its nodes' names, and its edges as pairs of places in them.
pub(super) struct Graph {
    pub(super) names: Vec<String>,
    pub(super) edges: Vec<(usize, usize)>,
}

/// The size of a node that is not as large as the others.
#[derive(Clone, Debug, InputObject)]
pub(super) struct NodeSizeInput {
    /// The node.
    pub(super) name: String,
    /// How wide it is, 1 to 10000000.
    pub(super) width: f64,
    /// How high it is, 1 to 10000000.
    pub(super) height: f64,
}

/// How it is to be drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct Wish {
    pub(super) direction: Option<LayoutDirection>,
    pub(super) width: Option<f64>,
    pub(super) height: Option<f64>,
    /// The nodes that are not as large as that.
    pub(super) sizes: Vec<NodeSizeInput>,
}

/// Draws a graph.
pub(super) async fn draw(graph: Graph, wish: Wish) -> ApiResult<Layout> {
    let sizes = sizes(&graph, &wish)?;
    let direction = wish.direction.unwrap_or(LayoutDirection::Right).into();
    let style = Style { direction, ..Style::default() };
    // A large one takes a while, in which others want to be answered.
    let drawn = task::spawn_blocking(move || of(graph, &sizes, &style)).await;
    drawn.map_err(|err| invalid(format!("the graph cannot be drawn: {err}")))
}

/// Returns how large each node is.
fn sizes(graph: &Graph, wish: &Wish) -> ApiResult<Vec<Size>> {
    let checked = |value: Option<f64>, usual, what| match value.unwrap_or(usual) {
        side if SIDE.contains(&side) => Ok(side),
        side => Err(invalid(format!("`{what}` is {side}; side is 1 to 2000"))),
    };
    let usual = Size {
        width: checked(wish.width, 200.0, "nodeWidth")?,
        height: checked(wish.height, 52.0, "nodeHeight")?,
    };
    let mut sizes = vec![usual; graph.names.len()];
    if wish.sizes.is_empty() {
        return Ok(sizes);
    }
    let places: BTreeMap<&str, usize> =
        graph.names.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    for NodeSizeInput { name, width, height } in &wish.sizes {
        if !OWN_SIDE.contains(width) || !OWN_SIDE.contains(height) {
            let what = format!("the size of `{name}` is {width} by {height}");
            return Err(invalid(format!("{what}; each is 1 to 10000000")));
        }
        let at = places.get(name.as_str());
        let at = at.ok_or_else(|| invalid(format!("`sizes` names `{name}`, which is no node")))?;
        sizes[*at] = Size { width: *width, height: *height };
    }
    Ok(sizes)
}

fn of(Graph { names, edges }: Graph, sizes: &[Size], style: &Style) -> Layout {
    let drawing = layout::layout_graph(sizes, &edges, style);
    let ways = edges.iter().zip(drawing.edges).filter_map(|((from, to), points)| {
        let (from, to) = (names.get(*from)?.clone(), names.get(*to)?.clone());
        let points = points.into_iter().flat_map(|Point { x, y }| [tenth(x), tenth(y)]).collect();
        Some(LayoutEdge { from, to, points })
    });
    let edges = ways.collect();
    let nodes = names.into_iter().zip(drawing.nodes).zip(sizes);
    let nodes = nodes.map(|((name, Point { x, y }), &Size { width, height })| LayoutNode {
        name,
        x: tenth(x - width / 2.0),
        y: tenth(y - height / 2.0),
        width,
        height,
    });
    Layout {
        nodes: nodes.collect(),
        edges,
        width: tenth(drawing.width),
        height: tenth(drawing.height),
    }
}

/// Rounds to what can be seen, so that large drawings stay small texts.
fn tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(usize, usize)]) -> Graph {
        let names = ["a", "b", "c"].map(str::to_owned).into();
        Graph { names, edges: edges.to_vec() }
    }

    #[tokio::test]
    async fn nodes_do_not_overlap_and_edges_join_their_borders() {
        for direction in [LayoutDirection::Down, LayoutDirection::Right] {
            let (width, height) = (Some(100.0), Some(40.0));
            let wish = Wish { direction: Some(direction), width, height, sizes: Vec::new() };
            let drawn = draw(graph(&[(0, 1), (0, 2)]), wish).await.unwrap();
            let [top, left, right] = drawn.nodes.as_slice() else { panic!("three nodes") };
            let (apart, below) = ((left.x - right.x).abs(), (left.y - right.y).abs());
            assert!(apart >= 100.0 || below >= 40.0, "{drawn:?}");
            let first = &drawn.edges[0].points;
            match direction {
                LayoutDirection::Down => assert!((first[1] - (top.y + 40.0)).abs() < 0.2),
                LayoutDirection::Right => assert!((first[0] - (top.x + 100.0)).abs() < 0.2),
            }
            assert_eq!((drawn.edges[1].from.as_str(), drawn.edges[1].to.as_str()), ("a", "c"));
        }
    }

    #[tokio::test]
    async fn absurd_sizes_are_refused() {
        for width in [0.0, -1.0, 1e9, f64::NAN, f64::INFINITY] {
            let wish = Wish { width: Some(width), ..Wish::default() };
            assert!(draw(graph(&[]), wish).await.is_err(), "{width}");
            let wish = Wish { sizes: vec![own("a", width * 100.0, 1.0)], ..Wish::default() };
            assert!(draw(graph(&[]), wish).await.is_err(), "{width}");
        }
        let wish = Wish { sizes: vec![own("d", 10.0, 10.0)], ..Wish::default() };
        let error = draw(graph(&[]), wish).await.unwrap_err();
        let error = format!("{error:?}");
        assert!(error.contains("`sizes` names `d`, which is no node"), "{error}");
    }

    fn own(name: &str, width: f64, height: f64) -> NodeSizeInput {
        NodeSizeInput { name: name.to_owned(), width, height }
    }

    #[tokio::test]
    async fn a_node_with_a_size_of_its_own_has_all_of_that_room() {
        for direction in [LayoutDirection::Down, LayoutDirection::Right] {
            let wish = Wish {
                direction: Some(direction),
                sizes: vec![own("b", 900.0, 700.0)],
                ..Wish::default()
            };
            let drawn = draw(graph(&[(0, 1), (0, 2), (1, 2)]), wish).await.unwrap();
            assert_eq!((drawn.nodes[1].width, drawn.nodes[1].height), (900.0, 700.0));
            assert_eq!((drawn.nodes[2].width, drawn.nodes[2].height), (200.0, 52.0));
            assert!(drawn.width >= 900.0 && drawn.height >= 700.0, "{drawn:?}");
            for (at, one) in drawn.nodes.iter().enumerate() {
                assert!(one.x >= 0.0 && one.x + one.width <= drawn.width + 0.1, "{drawn:?}");
                assert!(one.y >= 0.0 && one.y + one.height <= drawn.height + 0.1, "{drawn:?}");
                for other in &drawn.nodes[..at] {
                    let beside = one.x + one.width <= other.x || other.x + other.width <= one.x;
                    let below = one.y + one.height <= other.y || other.y + other.height <= one.y;
                    assert!(beside || below, "{one:?} {other:?}");
                }
            }
        }
    }
}
