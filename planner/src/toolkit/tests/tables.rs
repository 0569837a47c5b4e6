use expect_test::expect;

use super::*;

#[test]
fn the_test_graph_has_the_expected_nodes_and_edges() {
    let graph = seed();
    assert_eq!((graph.len(), graph.edge_count()), (8, 9));
    let count = |kind| graph.ordered_edges().iter().filter(|edge| edge.kind == kind).count();
    assert_eq!((count(EdgeKind::Next), count(EdgeKind::Call)), (5, 4));
    assert_eq!(names(&graph), ["a1", "a2", "t1", "a3", "t2", "a4", "t3", "t4"]);
    let edges: Vec<String> = graph
        .ordered_edges()
        .iter()
        .map(|edge| format!("{}>{} {} {}", edge.from, edge.to, edge.kind.as_str(), edge.score))
        .collect();
    let expected = [
        "a1>a2 next 0.8",
        "a1>t1 call 0.9",
        "a1>a3 next 0.6",
        "a2>a3 next 0.7",
        "a2>t2 call 0.8",
        "a2>a4 next 0.9",
        "a3>a4 next 0.7",
        "a3>t3 call 0.9",
        "a4>t4 call 0.8",
    ];
    assert_eq!(edges, expected);
    assert!((graph.score("a1", "a2") - 0.8).abs() < 1e-12);
    for (from, to) in [("a2", "a1"), ("a1", "nowhere"), ("nowhere", "a1"), ("t1", "a1")] {
        assert!((graph.score(from, to) - DEFAULT_SCORE).abs() < 1e-12);
        assert_eq!(graph.edge_score(from, to), None);
    }
}

#[test]
fn recommendations_match_the_table() {
    let all = ["a1", "a2", "t1", "a3", "t2", "a4", "t3", "t4"];
    for (start, threshold, hops, vertices, edges) in [
        (&["a1"][..], 0.5, 0, &["a1", "t1"][..], 1),
        (&["a1"], 0.5, 1, &["a1", "a2", "t1", "a3", "t2", "t3"], 6),
        (&["a1"], 0.5, 2, &all, 9),
        (&["a1"], 0.7, 1, &["a1", "a2", "t1", "t2"], 3),
        (&["a1"], 0.7, 2, &all, 8),
        (&["a1"], 0.8, 2, &["a1", "a2", "t1", "a4", "t2", "t4"], 5),
        (&["a1"], 0.9, 0, &["a1", "t1"], 1),
        (&["a1"], 0.9, 1, &["a1", "t1"], 1),
        (&["a1"], 0.9, 2, &["a1", "t1"], 1),
        (&["a1"], 0.9, 3, &["a1", "t1"], 1),
        (&["a1", "a3"], 0.6, 1, &all, 9),
        (&["nowhere"], 0.5, 5, &[], 0),
        (&["nowhere", "a4"], 0.5, 5, &["a4", "t4"], 1),
        // A search cannot start from a tool.
        (&["t1"], 0.5, 5, &[], 0),
        (&[], 0.5, 5, &[], 0),
    ] {
        let found =
            seed().recommend(start.iter().copied(), RecommendationReach { threshold, hops });
        let mut expected = vertices.to_vec();
        let mut there = names(&found);
        assert_eq!(found.edge_count(), edges, "{start:?} {threshold} {hops}");
        assert!(found.ordered_edges().iter().all(|edge| edge.score >= threshold));
        expected.sort_unstable();
        there.sort_unstable();
        assert_eq!(there, expected, "{start:?} {threshold} {hops}");
    }
    let cut = seed().recommend(["a1"], RecommendationReach { threshold: 0.7, hops: 2 });
    assert_eq!(cut.edge_score("a1", "a3"), None, "the weak edge is cut, its ends stay");
    let one = seed().recommend(["a1"], RecommendationReach { threshold: 0.5, hops: 1 });
    assert_eq!(names(&one), ["a1", "a2", "t1", "a3", "t2", "t3"]);
    let ToolsAndActions { tools, actions } = one.tools_and_actions();
    let names = |of: Vec<(&NodeName, &Node)>| -> Vec<String> {
        of.iter().map(|(name, _)| name.to_string()).collect()
    };
    assert_eq!(names(tools), ["t1", "t2", "t3"]);
    assert_eq!(names(actions), ["a1", "a2", "a3"]);
}

#[test]
fn recommendations_end_on_cycles_and_omit_weak_tools() {
    let mut graph = Toolkit::default();
    for index in 0..3 {
        graph.add_action(&name(&format!("c{index}")), "", &[], &[]).unwrap();
    }
    for (from, to) in [("c0", "c1"), ("c1", "c2"), ("c2", "c0")] {
        graph.add_action(&name(from), "", &links(&[(to, 0.9)]), &[]).unwrap();
    }
    let reach = |threshold, hops| RecommendationReach { threshold, hops };
    let found = graph.recommend(["c0"], reach(0.5, usize::MAX));
    assert_eq!((found.len(), found.edge_count()), (3, 3));
    assert_eq!(names(&found), ["c0", "c1", "c2"], "a cycle keeps the order of addition");
    let found = graph.recommend(["c0"], reach(0.5, 1));
    assert_eq!((names(&found), found.edge_count()), (vec!["c0", "c1"], 1));
    graph.add_tool(&name("t"), &Node::tool(""), &links(&[("c0", 0.3), ("c1", 0.8)])).unwrap();
    assert!(graph.recommend(["c0"], reach(0.5, 0)).tool("t").is_none());
    assert!(graph.recommend(["c0"], reach(0.3, 0)).tool("t").is_some(), "the least score counts");
    let both = graph.recommend(["c0", "c1"], reach(0.5, 0));
    assert_eq!((both.edge_score("c0", "t"), both.edge_score("c1", "t")), (None, Some(0.8)));
    graph.add_action(&name("c0"), "", &links(&[("c0", 0.7)]), &[]).unwrap();
    assert_eq!(graph.recommend(["c0"], reach(0.6, 3)).edge_score("c0", "c0"), Some(0.7));
}

#[test]
fn adding_a_node_again_changes_only_its_edges() {
    let mut graph = seed();
    graph.add_action(&name("a1"), "other words", &links(&[("a2", 0.4)]), &[]).unwrap();
    graph.add_tool(&name("t1"), &Node::tool("other words"), &links(&[("a1", 0.3)])).unwrap();
    assert_eq!((graph.len(), graph.edge_count()), (8, 9));
    assert_eq!(graph.action("a1").unwrap().description, "Action 1.");
    assert_eq!(graph.tool("t1").unwrap().description, "Tool 1.");
    assert_eq!(graph.edge_score("a1", "a2"), Some(0.4));
    assert_eq!(graph.edge_score("a1", "t1"), Some(0.3));
    // Without any existing action, the tool is not changed.
    let warnings = graph.add_tool(&name("t1"), &Node::tool(""), &links(&[("x", 1.0)])).unwrap();
    let messages: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(messages, ["action `x` is not in the toolkit: its edge with `t1` was left out"]);
    assert_eq!(graph.edge_score("a1", "t1"), Some(0.3));
}

#[test]
fn edges_to_missing_nodes_are_left_out_with_a_warning() {
    let mut graph = seed();
    let before = graph.clone();
    let warnings = graph.add_tool(&name("t9"), &Node::tool(""), &links(&[("x", 1.0)])).unwrap();
    let messages: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    expect![[r#"
        [
            "action `x` is not in the toolkit: its edge with `t9` was left out",
            "tool `t9` has no connected actions and was left out",
        ]
    "#]]
    .assert_debug_eq(&messages);
    assert_eq!(graph.add_tool(&name("t9"), &Node::tool(""), &[]).unwrap().len(), 1);
    assert_eq!(graph, before);
    let links = links(&[("x", 0.5), ("a1", 0.5)]);
    let warnings = graph.add_action(&name("a5"), "", &links, &links).unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert_eq!(
        (graph.edge_score("a5", "a1"), graph.edge_score("a1", "a5")),
        (Some(0.5), Some(0.5))
    );
}

#[test]
fn an_action_and_a_tool_cannot_share_a_name() {
    let mut graph = seed();
    let before = graph.clone();
    let clash = |result: Result<Vec<Warning>, ToolkitError>| result.unwrap_err().to_string();
    let reason = clash(graph.add_action(&name("t1"), "", &[], &[]));
    assert_eq!(
        reason,
        "`t1` is already a tool, and a name can have only one meaning: use another name"
    );
    clash(graph.add_tool(&name("a1"), &Node::tool(""), &links(&[("a2", 1.0)])));
    clash(graph.add_action(&name("a9"), "", &links(&[("t1", 1.0)]), &[]));
    clash(graph.add_tool(&name("t9"), &Node::tool(""), &links(&[("t1", 1.0)])));
    clash(graph.add_action(&name("a9"), "", &links(&[("a1", f64::NAN)]), &[]));
    let mut other = Toolkit::default();
    other.add_action(&name("t1"), "", &[], &[]).unwrap();
    assert!(graph.update(&other).is_err());
    assert!(graph.set_score(&name("a1"), &name("a2"), f64::INFINITY).is_err());
    assert_eq!(graph, before, "a refusal changes nothing");
}

#[test]
fn removing_an_action_removes_tools_that_only_it_calls() {
    let mut graph = seed();
    let gone = graph.remove("a1");
    assert_eq!(gone, [name("a1"), name("t1")]);
    assert_eq!((graph.len(), graph.edge_count()), (6, 6));
    assert!((graph.score("a1", "a2") - DEFAULT_SCORE).abs() < 1e-12);
    let mut graph = seed();
    graph.add_tool(&name("t1"), &Node::tool(""), &links(&[("a2", 0.5)])).unwrap();
    assert_eq!(graph.remove("a1"), [name("a1")], "another action calls the tool");
    assert_eq!((graph.len(), graph.edge_count()), (7, 7));
    assert_eq!(graph.remove("t2"), [name("t2")]);
    assert_eq!(graph.remove("nowhere"), []);
    graph.add_action(&name("a2"), "", &links(&[("a2", 1.0)]), &[]).unwrap();
    graph.remove("a2");
    assert_eq!((graph.len(), graph.edge_count()), (4, 3));
}

#[test]
fn updating_adds_nodes_and_keeps_scores() {
    let mut graph = seed();
    let mut other = Toolkit::default();
    other.add_action(&name("a2"), "new words", &[], &[]).unwrap();
    other.add_action(&name("a1"), "Action 1.", &links(&[("a2", 0.11)]), &[]).unwrap();
    other.add_action(&name("a5"), "Action 5.", &[], &links(&[("a1", 0.2)])).unwrap();
    other.add_tool(&name("t5"), &Node::tool(""), &links(&[("a5", 0.4)])).unwrap();
    graph.update(&other).unwrap();
    assert_eq!((graph.len(), graph.edge_count()), (10, 11));
    assert_eq!(graph.edge_score("a1", "a2"), Some(0.8), "an edge keeps its score");
    assert_eq!(graph.edge_score("a1", "a5"), Some(0.2));
    assert_eq!(graph.action("a2").unwrap().description, "new words");
}

#[test]
fn a_subgraph_has_all_edges_between_its_nodes() {
    let graph = seed();
    let part = graph.subgraph(["t2", "a2", "a1", "nowhere"]);
    assert_eq!(names(&part), ["a1", "a2", "t2"]);
    assert_eq!(part.edge_count(), 2);
    assert_eq!(part.edge_score("a1", "a2"), Some(0.8));
    assert!(graph.subgraph([]).is_empty());
}

#[test]
fn topological_generations_keep_the_order_of_addition() {
    let mut graph = Toolkit::default();
    for action in ["z", "y", "x", "w"] {
        graph.add_action(&name(action), "", &[], &[]).unwrap();
    }
    // The traversal reaches `x` before `y`, although `y` was added first.
    graph.add_action(&name("z"), "", &links(&[("x", 1.0)]), &[]).unwrap();
    graph.add_action(&name("w"), "", &links(&[("y", 1.0)]), &[]).unwrap();
    assert_eq!(names(&graph), ["z", "w", "y", "x"]);
}

#[test]
fn drawings_distinguish_kinds_and_scores() {
    let mut graph = Toolkit::default();
    graph.add_action(&name("odd \"a\\\"]`<x> #1;"), "", &[], &[]).unwrap();
    let start = links(&[("odd \"a\\\"]`<x> #1;", 0.5)]);
    graph.add_action(&name("then"), "", &[], &start).unwrap();
    graph.add_tool(&name("t&l"), &Node::tool("<script>"), &links(&[("then", 1.0 / 3.0)])).unwrap();
    expect![[r#"
        flowchart TD
            n0["odd #34;a#92;#34;#93;#96;#60;x#62; #35;1#59;"]:::action
            n1["then"]:::action
            n2(["t#38;l"]):::tool
            n0 -->|"0.5"| n1
            n1 -.->|"0.333"| n2
            classDef action fill:#dbeafe,stroke:#1d4ed8,color:#111827
            classDef tool fill:#fef3c7,stroke:#b45309,color:#111827
    "#]]
    .assert_eq(&draw::mermaid(&graph));
    expect![[r##"
        digraph toolkit {
            rankdir=TB;
            node [style=filled];
            n0 [label="odd \"a\\\"]`<x> #1;", shape=box, fillcolor="#dbeafe", color="#1d4ed8"];
            n1 [label="then", shape=box, fillcolor="#dbeafe", color="#1d4ed8"];
            n2 [label="t&amp;l", shape=ellipse, fillcolor="#fef3c7", color="#b45309"];
            n0 -> n1 [label="0.5", style=solid];
            n1 -> n2 [label="0.333", style=dashed];
        }
    "##]]
    .assert_eq(&draw::dot(&graph));
    let svg = draw::svg(&graph, "<Toolkit>");
    for part in [
        "<title>&lt;Toolkit&gt;</title>",
        "class=\"tk-action\"><title>action odd &quot;a\\&quot;]`&lt;x&gt; #1;</title>",
        "class=\"tk-tool\"><title>tool t&amp;l: &lt;script&gt;</title>",
        "class=\"tk-next\" marker-end",
        "class=\"tk-call\" marker-end",
        ">0.5</text>",
        ">0.333</text>",
    ] {
        assert!(svg.contains(part), "{part} is missing in {svg}");
    }
    assert!(!svg.contains("<script>"));
    for (score, text) in [(1.0, "1"), (0.1 + 0.2, "0.3"), (-0.0001, "0"), (1e300, "1.00e300")] {
        assert_eq!(draw::format_score(score), text);
    }
}
