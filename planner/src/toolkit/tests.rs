mod learned;
mod properties;
mod tables;
mod written;

use shared::id::NodeName;

use super::*;

fn name(text: &str) -> NodeName {
    text.parse().unwrap()
}

fn links(of: &[(&str, f64)]) -> Vec<(NodeName, f64)> {
    of.iter().map(|(node, score)| (name(node), *score)).collect()
}

fn seed() -> Toolkit {
    let mut graph = Toolkit::default();
    for index in 1..=4 {
        graph
            .add_action(&name(&format!("a{index}")), &format!("Action {index}."), &[], &[])
            .unwrap();
    }
    for (from, to, score) in [
        ("a1", "a2", 0.8),
        ("a1", "a3", 0.6),
        ("a2", "a3", 0.7),
        ("a2", "a4", 0.9),
        ("a3", "a4", 0.7),
    ] {
        graph.add_action(&name(from), "", &links(&[(to, score)]), &[]).unwrap();
    }
    for (n, score) in [(1, 0.9), (2, 0.8), (3, 0.9), (4, 0.8)] {
        let action = format!("a{n}");
        let tool = &Node::tool(format!("Tool {n}."));
        let warnings = graph.add_tool(&name(&format!("t{n}")), tool, &links(&[(&action, score)]));
        assert_eq!(warnings.unwrap(), []);
    }
    graph
}

fn names(graph: &Toolkit) -> Vec<&str> {
    graph.ordered_nodes().iter().map(|(name, _)| name.as_str()).collect()
}
