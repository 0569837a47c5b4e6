use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::toolkit::written;

#[derive(Clone, Debug)]
enum Doing {
    Action { name: usize, next: Vec<(usize, f64)>, before: Vec<(usize, f64)> },
    Tool { name: usize, actions: Vec<(usize, f64)> },
    Remove { is_tool: bool, name: usize },
    Score { from: usize, is_tool: bool, to: usize, score: f64 },
    Update(Vec<Doing>),
}

fn score() -> impl Strategy<Value = f64> {
    (0..=10_u32).prop_map(|n| f64::from(n) / 10.0)
}

fn links_to() -> impl Strategy<Value = Vec<(usize, f64)>> {
    prop::collection::vec((0..5_usize, score()), 0..4)
}

fn doing() -> impl Strategy<Value = Doing> {
    let one = prop_oneof![
        4 => (0..5_usize, links_to(), links_to())
            .prop_map(|(name, next, before)| Doing::Action { name, next, before }),
        4 => (0..5_usize, links_to()).prop_map(|(name, actions)| Doing::Tool { name, actions }),
        2 => (any::<bool>(), 0..5_usize).prop_map(|(is_tool, name)| Doing::Remove { is_tool, name }),
        2 => (0..5_usize, any::<bool>(), 0..5_usize, score())
            .prop_map(|(from, is_tool, to, score)| Doing::Score { from, is_tool, to, score }),
    ];
    let one = one.boxed();
    prop_oneof![
        8 => one.clone(),
        1 => prop::collection::vec(one, 0..6).prop_map(Doing::Update),
    ]
}

fn a(index: usize) -> NodeName {
    name(&format!("a{index}"))
}

fn t(index: usize) -> NodeName {
    name(&format!("t{index}"))
}

fn actions(of: &[(usize, f64)]) -> Vec<(NodeName, f64)> {
    of.iter().map(|(index, score)| (a(*index), *score)).collect()
}

fn act(graph: &mut Toolkit, doing: &Doing, turn: usize) {
    match doing {
        Doing::Action { name, next, before } => {
            let words = format!("since {turn}");
            graph.add_action(&a(*name), &words, &actions(next), &actions(before)).unwrap();
        }
        Doing::Tool { name, actions: of } => {
            let tool = &Node::tool(format!("since {turn}"));
            graph.add_tool(&t(*name), tool, &actions(of)).unwrap();
        }
        Doing::Remove { is_tool, name } => {
            graph.remove(if *is_tool { t(*name) } else { a(*name) }.as_str());
        }
        Doing::Score { from, is_tool, to, score } => {
            let to = if *is_tool { t(*to) } else { a(*to) };
            graph.set_score(&a(*from), &to, *score).unwrap();
        }
        Doing::Update(all) => {
            let mut other = Toolkit::default();
            for doing in all {
                act(&mut other, doing, turn + 100);
            }
            graph.update(&other).unwrap();
        }
    }
}

fn made(all: &[Doing]) -> Toolkit {
    let mut graph = Toolkit::default();
    for (turn, doing) in all.iter().enumerate() {
        act(&mut graph, doing, turn);
    }
    graph
}

fn edges(graph: &Toolkit) -> BTreeMap<(String, String), String> {
    let edges = graph.ordered_edges().into_iter();
    edges
        .map(|edge| ((edge.from.to_string(), edge.to.to_string()), edge.score.to_string()))
        .collect()
}

/// Recommends by the algorithm of Faber's predecessor, which does not remember visited nodes.
fn by_the_words(
    graph: &Toolkit,
    start: &[&str],
    reach: RecommendationReach,
) -> (BTreeSet<String>, usize) {
    let strong = |from: &str, kind| {
        let next: Vec<_> = graph.successors(from).collect();
        let next =
            next.into_iter().filter(move |edge| edge.kind == kind && edge.score >= reach.threshold);
        next.map(|edge| edge.to.to_string()).collect::<Vec<_>>()
    };
    let mut kept: BTreeSet<String> = start
        .iter()
        .filter(|name| graph.action(name).is_some())
        .map(|name| (*name).to_owned())
        .collect();
    let mut frontier = kept.clone();
    for _ in 0..reach.hops {
        let next: BTreeSet<String> =
            frontier.iter().flat_map(|name| strong(name, EdgeKind::Next)).collect();
        kept.extend(next.iter().cloned());
        frontier = next;
    }
    let tools: Vec<String> = kept.iter().flat_map(|name| strong(name, EdgeKind::Call)).collect();
    kept.extend(tools);
    let inside = |edge: &&Edge<'_>| {
        kept.contains(edge.from.as_str())
            && kept.contains(edge.to.as_str())
            && edge.score >= reach.threshold
    };
    let count = graph.ordered_edges().iter().filter(inside).count();
    (kept, count)
}

proptest! {
    #[test]
    fn each_edge_is_stored_at_both_ends(all in prop::collection::vec(doing(), 0..40)) {
        let graph = made(&all);
        let mut count = 0;
        for (name, _) in graph.nodes() {
            for edge in graph.successors(name.as_str()) {
                count += 1;
                prop_assert!(graph.action(edge.from.as_str()).is_some());
                prop_assert!(graph.predecessors(edge.to.as_str()).any(|before| before == name));
            }
            for before in graph.predecessors(name.as_str()) {
                prop_assert!(graph.edge_score(before.as_str(), name.as_str()).is_some());
            }
        }
        prop_assert_eq!(count, graph.edge_count());
        let has_no_caller = |(name, node): &(&NodeName, &Node)| {
            node.kind == NodeKind::Tool && graph.predecessors(name.as_str()).next().is_none()
        };
        prop_assert!(!graph.nodes().any(|entry| has_no_caller(&entry)), "a tool without an action");
    }

    #[test]
    fn the_order_is_topological(all in prop::collection::vec(doing(), 0..30)) {
        let graph = made(&all);
        let order = names(&graph);
        prop_assert_eq!(order.len(), graph.len());
        let place = |name: &str| order.iter().position(|other| *other == name);
        let leads_back = |edge: &Edge<'_>| place(edge.from.as_str()) >= place(edge.to.as_str());
        let edges = graph.ordered_edges();
        if edges.iter().any(leads_back) {
            let added: Vec<&str> = graph.nodes().map(|(name, _)| name.as_str()).collect();
            prop_assert_eq!(&order, &added, "only a cycle has edges that lead back");
        }
        let places: Vec<_> =
            edges.iter().map(|edge| (place(edge.from.as_str()), place(edge.to.as_str()))).collect();
        prop_assert!(places.is_sorted());
    }

    #[test]
    fn recommendations_equal_a_naive_search(
        all in prop::collection::vec(doing(), 0..30),
        start in prop::collection::vec(0..6_usize, 0..3),
        threshold in score(),
        hops in 0..5_usize,
    ) {
        let graph = made(&all);
        let start: Vec<String> = start.iter().map(|n| format!("a{n}")).collect();
        let start: Vec<&str> = start.iter().map(String::as_str).collect();
        let reach = RecommendationReach { threshold, hops };
        let found = graph.recommend(start.iter().copied(), reach);
        let there: BTreeSet<String> = found.nodes().map(|(name, _)| name.to_string()).collect();
        prop_assert_eq!((there, found.edge_count()), by_the_words(&graph, &start, reach));
    }

    #[test]
    fn recorded_changes_reproduce_the_graph(
        configured in prop::collection::vec(doing(), 0..15),
        then in prop::collection::vec(doing(), 0..25),
    ) {
        let configured = made(&configured);
        let mut changes = Changes::default();
        let mut graph = configured.clone();
        for (turn, doing) in then.iter().enumerate() {
            let before = graph.clone();
            act(&mut graph, doing, 1_000 + turn);
            changes.record(&configured, &before, &graph);
            let json = serde_json::to_value(&changes).unwrap();
            changes = serde_json::from_value(json).unwrap();
            prop_assert_eq!(&changes.applied_to(&configured), &graph, "after {:?}", doing);
        }
    }

    #[test]
    fn a_written_toolkit_is_read_unchanged(all in prop::collection::vec(doing(), 0..30)) {
        let graph = made(&all);
        let read = written::read(&written::write(&graph)).unwrap();
        prop_assert_eq!(read.warnings, Vec::<String>::new());
        prop_assert_eq!(edges(&read.toolkit), edges(&graph));
        prop_assert_eq!(&read.toolkit, &graph, "with its order");
        prop_assert_eq!(written::write(&read.toolkit), written::write(&graph));
    }
}
