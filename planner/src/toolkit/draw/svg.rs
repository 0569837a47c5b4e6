use std::fmt::Write;

use super::{ACTION_COLORS, TOOL_COLORS, format_score, node_numbers};
use crate::{
    escape,
    layout::{Direction, Drawing, Point, Size, Style, layout_graph},
    toolkit::{Edge, EdgeKind, Node, NodeKind, Toolkit},
};
use shared::id::NodeName;

const NODE_HEIGHT: f64 = 34.0;
const NAME_PADDING: f64 = 14.0;
/// The width of letters in most scripts, and in wide scripts.
const LETTER_WIDTHS: (f64, f64) = (7.3, 13.0);
const MAX_NAME_WIDTH: f64 = 230.0;
const DRAWING_MARGIN: f64 = 16.0;
const TITLE_HEIGHT: f64 = 28.0;

struct Labelled<'a> {
    name: &'a NodeName,
    node: &'a Node,
    label: String,
}

pub fn svg(toolkit: &Toolkit, title: &str) -> String {
    let nodes: Vec<Labelled<'_>> = toolkit
        .ordered_nodes()
        .into_iter()
        .map(|(name, node)| Labelled { name, node, label: cut_name(name.as_str()) })
        .collect();
    let sizes: Vec<Size> = nodes
        .iter()
        .map(|node| Size {
            width: text_width(&node.label) + 2.0 * NAME_PADDING,
            height: NODE_HEIGHT,
        })
        .collect();
    let numbers = node_numbers(toolkit);
    let edges = toolkit.ordered_edges();
    let ends: Vec<(usize, usize)> =
        edges.iter().map(|edge| (numbers[edge.from], numbers[edge.to])).collect();
    let style = Style { direction: Direction::Down, ..Style::default() };
    let drawing = layout_graph(&sizes, &ends, &style);
    let mut text = svg_head(&drawing, title);
    for (edge, points) in edges.iter().zip(&drawing.edges) {
        draw_edge(&mut text, edge, points);
    }
    for ((node, middle), size) in nodes.iter().zip(&drawing.nodes).zip(&sizes) {
        draw_node(&mut text, node, *middle, *size);
    }
    // Labels come after the lines, so that lines do not hide them.
    for (edge, points) in edges.iter().zip(&drawing.edges) {
        draw_score(&mut text, edge, points);
    }
    text.push_str("</g>\n</svg>\n");
    text
}

fn svg_head(drawing: &Drawing, title: &str) -> String {
    let title = escape::escape_xml(title);
    let width =
        (drawing.width + 2.0 * DRAWING_MARGIN).max(self::text_width(&title) + 2.0 * DRAWING_MARGIN);
    let height = drawing.height + 2.0 * DRAWING_MARGIN + TITLE_HEIGHT;
    let ((action, action_border), (tool, tool_border)) = (ACTION_COLORS, TOOL_COLORS);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" font-family=\"system-ui, sans-serif\" \
         font-size=\"13\">\n\
         <title>{title}</title>\n\
         <style>\n\
         .tk-action rect {{ fill: {action}; stroke: {action_border}; }}\n\
         .tk-tool rect {{ fill: {tool}; stroke: {tool_border}; }}\n\
         .tk-next {{ fill: none; stroke: {action_border}; }}\n\
         .tk-call {{ fill: none; stroke: {tool_border}; stroke-dasharray: 5 4; }}\n\
         .tk-score {{ font-size: 11px; paint-order: stroke; stroke: #fff; stroke-width: 3px; }}\n\
         </style>\n\
         <defs>\n{}{}</defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{DRAWING_MARGIN}\" y=\"{:.0}\" font-weight=\"bold\">{title}</text>\n\
         <g transform=\"translate({DRAWING_MARGIN} {:.0})\" stroke-width=\"1.3\">\n",
        svg_marker("tk-next-end", action_border),
        svg_marker("tk-call-end", tool_border),
        DRAWING_MARGIN + 8.0,
        DRAWING_MARGIN + TITLE_HEIGHT,
    )
}

fn svg_marker(id: &str, colour: &str) -> String {
    format!(
        "<marker id=\"{id}\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto-start-reverse\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"{colour}\"/></marker>\n"
    )
}

fn draw_node(text: &mut String, labelled: &Labelled<'_>, middle: Point, size: Size) {
    let Labelled { name, node, label } = labelled;
    let (kind, radius) = match node.kind {
        NodeKind::Action => ("action", 5.0),
        NodeKind::Tool => ("tool", size.height / 2.0),
    };
    let about = match node.description.as_str() {
        "" => format!("{kind} {name}"),
        description => format!("{kind} {name}: {description}"),
    };
    let (about, label) = (escape::escape_xml(&about), escape::escape_xml(label));
    let Size { width, height } = size;
    let (x, y) = (middle.x - width / 2.0, middle.y - height / 2.0);
    let _ = writeln!(
        text,
        "<g class=\"tk-{kind}\"><title>{about}</title>\
         <rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius}\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text></g>",
        middle.x,
        middle.y + 4.5,
    );
}

fn draw_edge(text: &mut String, edge: &Edge<'_>, points: &[Point]) {
    let [first, rest @ ..] = points else { return };
    let mut path = format!("M{:.1} {:.1}", first.x, first.y);
    let mut from = *first;
    for to in rest {
        let is_loop = edge.from == edge.to;
        if is_loop || (from.x - to.x).abs() < 0.5 {
            let _ = write!(path, "L{:.1} {:.1}", to.x, to.y);
        } else {
            let middle = f64::midpoint(from.y, to.y);
            let _ = write!(
                path,
                "C{:.1} {middle:.1} {:.1} {middle:.1} {:.1} {:.1}",
                from.x, to.x, to.x, to.y
            );
        }
        from = *to;
    }
    let kind = edge.kind.as_str();
    let _ = writeln!(
        text,
        "<path class=\"tk-{kind}\" marker-end=\"url(#tk-{kind}-end)\" d=\"{path}\"/>"
    );
}

fn draw_score(text: &mut String, edge: &Edge<'_>, points: &[Point]) {
    let [a, b, ..] = points else { return };
    let (x, y) = (f64::midpoint(a.x, b.x), f64::midpoint(a.y, b.y) + 4.0);
    let colour = match edge.kind {
        EdgeKind::Next => ACTION_COLORS.1,
        EdgeKind::Call => TOOL_COLORS.1,
    };
    let score = format_score(edge.score);
    let _ = writeln!(
        text,
        "<text class=\"tk-score\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" \
         fill=\"{colour}\">{score}</text>"
    );
}

fn letter_width(c: char) -> f64 {
    // From this character on, most letters are wide.
    if c >= '\u{1100}' { LETTER_WIDTHS.1 } else { LETTER_WIDTHS.0 }
}

fn text_width(text: &str) -> f64 {
    text.chars().map(letter_width).sum()
}

fn cut_name(name: &str) -> String {
    if text_width(name) <= MAX_NAME_WIDTH {
        return name.to_owned();
    }
    let mut room = MAX_NAME_WIDTH - LETTER_WIDTHS.0;
    let fits = |c: &char| {
        room -= letter_width(*c);
        room >= 0.0
    };
    name.chars().take_while(fits).chain(['…']).collect()
}
