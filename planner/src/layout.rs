//! Where the nodes of a directed graph go, and which way its edges take.
//!
//! A layered drawing after Sugiyama: edges that close a cycle are turned round, every node gets a
//! layer below those that lead to it, edges that pass layers get places in them, the order within
//! layers is chosen so that few edges cross, and then every node goes as near to its neighbours as
//! that order allows. Parts that do not hang together are drawn side by side.
//!
//! Everything is deterministic and has a bound: the same graph has the same drawing, and one of
//! 2,000 nodes and 6,000 edges takes a fraction of a second.

mod layers;
mod ordering;
mod pack;
mod place;
mod route;

use self::{layers::Layered, pack::Part};

/// How large a node is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    /// From left to right.
    pub width: f64,
    /// From top to bottom.
    pub height: f64,
}

/// A place in a drawing, from its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the right.
    pub x: f64,
    /// Down.
    pub y: f64,
}

/// Which way edges lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From top to bottom.
    Down,
    /// From left to right.
    Right,
}

/// How a graph is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Style {
    /// Which way edges lead.
    pub direction: Direction,
    /// Between layers.
    pub layer_gap: f64,
    /// Between two nodes of a layer.
    pub node_gap: f64,
    /// Between parts that do not hang together.
    pub part_gap: f64,
}

impl Default for Style {
    fn default() -> Self {
        Self { direction: Direction::Down, layer_gap: 60.0, node_gap: 24.0, part_gap: 48.0 }
    }
}

/// Where everything is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawing {
    /// How wide it is.
    pub width: f64,
    /// How high it is.
    pub height: f64,
    /// The middle of each node.
    pub nodes: Vec<Point>,
    /// Each edge, from the border of the node that it leads from to the border of the one that it
    /// leads to, with the points in between where it bends.
    pub edges: Vec<Vec<Point>>,
}

/// Draws a graph. Edges are pairs of places in `nodes`; those that name others are drawn as
/// nothing.
pub fn layout(nodes: &[Size], edges: &[(usize, usize)], style: &Style) -> Drawing {
    let turned: Vec<Size> = nodes.iter().map(|it| turned_size(*it, style.direction)).collect();
    let parts = pack::parts(turned.len(), edges);
    let drawn: Vec<(Part, Drawing)> = parts
        .into_iter()
        .map(|part| {
            let drawing = layout_part(&part, &turned, style);
            (part, drawing)
        })
        .collect();
    let mut drawing = pack::together(drawn, nodes.len(), edges.len(), style);
    if style.direction == Direction::Right {
        std::mem::swap(&mut drawing.width, &mut drawing.height);
        let points = drawing.nodes.iter_mut().chain(drawing.edges.iter_mut().flatten());
        for Point { x, y } in points {
            std::mem::swap(x, y);
        }
    }
    drawing
}

fn turned_size(size: Size, direction: Direction) -> Size {
    match direction {
        Direction::Down => size,
        Direction::Right => Size { width: size.height, height: size.width },
    }
}

fn layout_part(part: &Part, sizes: &[Size], style: &Style) -> Drawing {
    let sizes: Vec<Size> = part.nodes.iter().map(|it| sizes[*it]).collect();
    let mut layered = Layered::new(sizes.len(), &part.edges);
    ordering::reduce_crossings(&mut layered);
    let placed = place::place(&layered, &sizes, style);
    route::route(&layered, &placed, &sizes, &part.edges)
}

#[cfg(test)]
mod tests;
