//! Where the nodes of a graph are drawn, for clients that draw it themselves.

use async_graphql::{Enum, SimpleObject};
use planner::layout::{self, Point, Size, Style};
use tokio::task;

use super::error::{ApiResult, invalid};

/// How wide or high a node may be.
const SIDE: std::ops::RangeInclusive<f64> = 1.0..=2_000.0;

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

/// How it is to be drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish {
    pub(super) direction: Option<LayoutDirection>,
    pub(super) width: Option<f64>,
    pub(super) height: Option<f64>,
}

/// Draws a graph.
pub(super) async fn draw(graph: Graph, wish: Wish) -> ApiResult<Layout> {
    let checked = |value: Option<f64>, usual, what| match value.unwrap_or(usual) {
        it if SIDE.contains(&it) => Ok(it),
        it => Err(invalid(format!("`{what}` is {it}; it is 1 to 2000"))),
    };
    let size = Size {
        width: checked(wish.width, 200.0, "nodeWidth")?,
        height: checked(wish.height, 52.0, "nodeHeight")?,
    };
    let direction = wish.direction.unwrap_or(LayoutDirection::Right).into();
    let style = Style { direction, ..Style::default() };
    // A large one takes a while, in which others want to be answered.
    let drawn = task::spawn_blocking(move || of(graph, size, &style)).await;
    drawn.map_err(|err| invalid(format!("the graph cannot be drawn: {err}")))
}

fn of(Graph { names, edges }: Graph, size: Size, style: &Style) -> Layout {
    let drawing = layout::layout(&vec![size; names.len()], &edges, style);
    let Size { width, height } = size;
    let ways = edges.iter().zip(drawing.edges).filter_map(|((from, to), points)| {
        let (from, to) = (names.get(*from)?.clone(), names.get(*to)?.clone());
        let points = points.into_iter().flat_map(|Point { x, y }| [tenth(x), tenth(y)]).collect();
        Some(LayoutEdge { from, to, points })
    });
    let edges = ways.collect();
    let nodes = names.into_iter().zip(drawing.nodes).map(|(name, Point { x, y })| LayoutNode {
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
fn tenth(it: f64) -> f64 {
    (it * 10.0).round() / 10.0
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
            let wish = Wish { direction: Some(direction), width: Some(100.0), height: Some(40.0) };
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
            let wish = Wish { direction: None, width: Some(width), height: None };
            assert!(draw(graph(&[]), wish).await.is_err(), "{width}");
        }
    }
}
