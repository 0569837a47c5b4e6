//! Pictures of toolkits. Actions and tools differ in shape and colour, edges in line style, and
//! every edge shows its score.

mod svg;

use std::{collections::BTreeMap, fmt::Write};

use shared::id::NodeName;

use super::{Edge, EdgeKind, NodeKind, Toolkit};
use crate::escape;

pub use self::svg::svg;

const ACTION_COLORS: (&str, &str) = ("#dbeafe", "#1d4ed8");
const TOOL_COLORS: (&str, &str) = ("#fef3c7", "#b45309");

/// Draws a toolkit as a Mermaid flowchart. Nodes are numbered, because names may contain any text.
pub fn mermaid(toolkit: &Toolkit) -> String {
    let mut text = String::from("flowchart TD\n");
    let numbers = node_numbers(toolkit);
    for (index, (name, node)) in toolkit.ordered_nodes().into_iter().enumerate() {
        let name = escape::escape_mermaid(name.as_str());
        let _ = match node.kind {
            NodeKind::Action => writeln!(text, "    n{index}[\"{name}\"]:::action"),
            NodeKind::Tool => writeln!(text, "    n{index}([\"{name}\"]):::tool"),
        };
    }
    for edge in toolkit.ordered_edges() {
        let (from, to) = (numbers[edge.from], numbers[edge.to]);
        let arrow = match edge.kind {
            EdgeKind::Next => "-->",
            EdgeKind::Call => "-.->",
        };
        let _ = writeln!(text, "    n{from} {arrow}|\"{}\"| n{to}", format_score(edge.score));
    }
    for (class, (fill, stroke)) in [("action", ACTION_COLORS), ("tool", TOOL_COLORS)] {
        let _ = writeln!(text, "    classDef {class} fill:{fill},stroke:{stroke},color:#111827");
    }
    text
}

pub fn dot(toolkit: &Toolkit) -> String {
    let mut text = String::from("digraph toolkit {\n    rankdir=TB;\n    node [style=filled];\n");
    let numbers = node_numbers(toolkit);
    for (index, (name, node)) in toolkit.ordered_nodes().into_iter().enumerate() {
        let name = escape::escape_dot(name.as_str());
        let (shape, (fill, stroke)) = match node.kind {
            NodeKind::Action => ("box", ACTION_COLORS),
            NodeKind::Tool => ("ellipse", TOOL_COLORS),
        };
        let _ = writeln!(
            text,
            "    n{index} [label=\"{name}\", shape={shape}, fillcolor=\"{fill}\", color=\"{stroke}\"];"
        );
    }
    for edge in toolkit.ordered_edges() {
        let Edge { from, to, kind, score: value } = edge;
        let style = match kind {
            EdgeKind::Next => "solid",
            EdgeKind::Call => "dashed",
        };
        let (from, to, label) = (numbers[from], numbers[to], format_score(value));
        let _ = writeln!(text, "    n{from} -> n{to} [label=\"{label}\", style={style}];");
    }
    text.push_str("}\n");
    text
}

fn node_numbers(toolkit: &Toolkit) -> BTreeMap<&NodeName, usize> {
    toolkit
        .ordered_nodes()
        .into_iter()
        .enumerate()
        .map(|(index, (name, _))| (name, index))
        .collect()
}

/// Formats a score with at most three decimals.
pub fn format_score(score: f64) -> String {
    if score.abs() >= 1e6 {
        return format!("{score:.2e}");
    }
    let text = format!("{score:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
