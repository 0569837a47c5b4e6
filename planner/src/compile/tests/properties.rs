//! What holds for every draft.

use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::Map;

use super::*;
use crate::draft::{Draft, DraftRetry, DraftStep};

const NAMES: [&str; 14] = [
    "a",
    "b",
    "c",
    "createAuthor",
    "createBlog",
    "demo.createBlog",
    "flow.echo",
    "flow",
    "glob",
    "weather",
    "nobody",
    "item",
    "a b",
    "",
];

fn name() -> impl Strategy<Value = String> {
    prop_oneof![8 => select(&NAMES[..]).prop_map(str::to_owned), 1 => ".{0,12}"]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        name().prop_map(|it| format!("{{{{{it}}}}}")),
        name().prop_map(|it| format!("x {{{{ {it}.y[0] }}}} {{{{vars.v}}}}")),
        "[{}a.\\[\\]\" ]{0,12}",
        name(),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            fields(inner).prop_map(Value::Object),
        ]
    })
}

fn fields(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let key =
        prop_oneof![select(&["name", "email", "age", "tags"][..]).prop_map(str::to_owned), text()];
    vec((key, inner), 0..4).prop_map(|it| it.into_iter().collect())
}

fn step() -> impl Strategy<Value = DraftStep> {
    let tool = (option::of(name()), option::weighted(0.9, name()), option::weighted(0.1, name()));
    let references = (
        option::of(value()),
        option::of(prop_oneof![name().prop_map(Value::from), value()]),
        option::weighted(0.3, fields(text().prop_map(Value::from))),
    );
    let policy = (option::of(-9_i64..9), option::of(any::<f64>()), option::weighted(0.1, name()));
    (tool, references, policy).prop_map(|(tool, references, policy)| DraftStep {
        id: tool.0,
        name: tool.1,
        tool_name: tool.2,
        parameters: references.0,
        depends_on: references.1,
        output_mapping: references.2,
        retry: Some(DraftRetry {
            max_attempts: policy.0,
            multiplier: policy.1,
            ..DraftRetry::default()
        }),
        timeout_ms: policy.0,
        on_error: policy.2,
        ..DraftStep::default()
    })
}

fn draft() -> impl Strategy<Value = Draft> {
    (vec(step(), 0..8), option::of(vec(name(), 0..8))).prop_map(|(tools, execution_order)| Draft {
        tools,
        execution_order,
        ..Draft::default()
    })
}

/// Numbers of steps, and who depends on whom: acyclic, but written in any order.
fn acyclic() -> impl Strategy<Value = Vec<Vec<usize>>> {
    (1_usize..12)
        .prop_flat_map(|n| {
            (Just((0..n).collect::<Vec<_>>()).prop_shuffle(), vec((0..n, 0..n), 0..3 * n))
        })
        .prop_map(|(ranks, pairs)| {
            let mut edges = vec![Vec::new(); ranks.len()];
            for (a, b) in pairs.into_iter().filter(|(a, b)| ranks[*a] > ranks[*b]) {
                edges[a].push(b);
            }
            edges
        })
}

/// Any edges at all.
fn cyclic() -> impl Strategy<Value = Vec<Vec<usize>>> {
    (1_usize..10).prop_flat_map(|n| vec(vec(0..n, 0..3), n))
}

fn graph(edges: &[Vec<usize>]) -> Value {
    let step = |(at, on): (usize, &Vec<usize>)| {
        // Half of the dependencies are templates.
        let (named, looked): (Vec<usize>, Vec<usize>) = on.iter().partition(|it| **it % 2 == 0);
        let named: Vec<_> = named.iter().map(|it| format!("s{it}")).collect();
        let looked: Vec<_> = looked.iter().map(|it| format!("{{{{s{it}.x}}}}")).collect();
        json!({ "id": format!("s{at}"), "name": "flow.echo", "dependsOn": named, "parameters": { "x": looked } })
    };
    json!({ "tools": edges.iter().enumerate().map(step).collect::<Vec<_>>() })
}

/// The contract's sentence about the order, word for word, in quadratic time.
fn naive_order(edges: &[Vec<usize>]) -> Vec<usize> {
    let mut placed = Vec::new();
    let is_ready = |at: &usize, placed: &[usize]| {
        !placed.contains(at) && edges[*at].iter().all(|it| placed.contains(it))
    };
    while let Some(next) = (0..edges.len()).find(|it| is_ready(it, &placed)) {
        placed.push(next);
    }
    placed
}

fn reaches(edges: &[Vec<usize>], from: usize) -> Vec<bool> {
    let mut seen = vec![false; edges.len()];
    let mut open = edges[from].clone();
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut seen[at], true) {
            open.extend(&edges[at]);
        }
    }
    seen
}

proptest! {
    #[test]
    fn compiling_never_panics_and_errors_stand_in_the_way(draft in draft()) {
        match compile(&draft, about(), &catalog()) {
            Ok(plan) => prop_assert!(plan.diagnostics().iter().all(|it| !it.is_error())),
            Err(found) => {
                prop_assert!(found.iter().any(Diagnostic::is_error));
                prop_assert!(found.iter().all(|it| it.code != "plan.internal"), "{}", lines(&found));
            }
        }
    }

    #[test]
    fn reading_never_panics(value in value(), text in ".{0,40}") {
        let _ = parse_value(value.clone());
        let _ = parse_value(json!({ "tools": [value] }));
        let _ = super::super::parse(&text);
    }

    #[test]
    fn the_order_is_the_naive_one(edges in acyclic()) {
        let plan = good(graph(&edges));
        let expected: Vec<_> = naive_order(&edges).iter().map(|it| format!("s{it}")).collect();
        prop_assert_eq!(ids(&plan), expected);
        let mut depth = vec![0; edges.len()];
        for at in naive_order(&edges) {
            depth[at] = edges[at].iter().map(|it| depth[*it] + 1).max().unwrap_or(0);
        }
        for (layer, steps) in plan.layers().iter().enumerate() {
            for step in steps {
                let at: usize = plan.step(*step).id.as_str()[1..].parse().unwrap();
                prop_assert_eq!(depth[at], layer);
            }
        }
    }

    #[test]
    fn cycles_are_cycles_and_one_a_component(edges in cyclic()) {
        let reach: Vec<_> = (0..edges.len()).map(|it| reaches(&edges, it)).collect();
        let firsts: Vec<_> = (0..edges.len())
            .filter(|a| reach[*a][*a] && (0..*a).all(|b| !(reach[*a][b] && reach[b][*a])))
            .collect();
        let found = compile_json(graph(&edges)).map_or_else(|it| it, |_| Vec::new());
        prop_assert_eq!(found.len(), firsts.len());
        for (found, first) in found.iter().zip(firsts) {
            let names = found.message.rsplit(": ").next().unwrap_or_default();
            let cycle: Vec<usize> =
                names.split(" -> ").map(|it| it[1..].parse().unwrap()).collect();
            prop_assert_eq!((cycle[0], cycle[cycle.len() - 1]), (first, first));
            prop_assert!(cycle.windows(2).all(|it| edges[it[0]].contains(&it[1])), "{}", names);
            let mut inside = cycle[1..].to_vec();
            inside.sort_unstable();
            inside.dedup();
            prop_assert_eq!(inside.len(), cycle.len() - 1);
        }
    }
}
