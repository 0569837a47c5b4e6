use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::Map;

use shared::id::PlanId;

use super::super::{compile_all, compile_with};
use super::*;
use crate::{
    draft::{Draft, DraftRetry, DraftStep, SubDraft},
    sub_plans::{SubPlan, SubPlans},
};

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
        name().prop_map(|name| format!("{{{{{name}}}}}")),
        name().prop_map(|name| format!("x {{{{ {name}.y[0] }}}} {{{{vars.v}}}}")),
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
    vec((key, inner), 0..4).prop_map(|fields| fields.into_iter().collect())
}

fn condition() -> impl Strategy<Value = String> {
    prop_oneof![
        name().prop_map(|name| format!("steps[\"{name}\"].ok == true")),
        select(&["a.x > 1", "vars.v == b", "input.x", "true", "c", "a &&", "item == 1"][..])
            .prop_map(str::to_owned),
        text(),
    ]
}

fn undo() -> impl Strategy<Value = Value> {
    let given = (name(), option::of(value()), option::of(-9_i64..9));
    let made = given.prop_map(|(name, parameters, timeout)| {
        json!({ "name": name, "parameters": parameters, "timeoutMs": timeout })
    });
    prop_oneof![3 => made, 1 => value()]
}

fn step() -> impl Strategy<Value = DraftStep> {
    let numbers = [option::weighted(0.1, -9_i64..20), option::weighted(0.1, -9_i64..20)];
    let [parallel, cache] = numbers;
    let more = (
        option::weighted(0.3, condition()),
        option::weighted(0.3, text()),
        option::weighted(0.3, undo()),
        option::weighted(0.1, name()),
    );
    (plain_step(), more, parallel, cache).prop_map(|(step, more, parallel, cache)| DraftStep {
        when: more.0,
        for_each: more.1,
        compensate: more.2,
        plan: more.3.map(SubDraft::Named),
        max_parallel: parallel,
        cache_ttl_ms: cache,
        idle_timeout_ms: parallel,
        ..step
    })
}

fn plain_step() -> impl Strategy<Value = DraftStep> {
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

fn draft_with_inline_drafts() -> impl Strategy<Value = Draft> {
    (draft(), option::weighted(0.3, draft())).prop_map(|(mut draft, inner)| {
        if let (Some(step), Some(inner)) = (draft.tools.first_mut(), inner) {
            step.plan = Some(SubDraft::Inline(Box::new(inner)));
        }
        draft
    })
}

fn sub_plans() -> SubPlans {
    let id: PlanId = "plan_1_bbbbbbbbb".parse().unwrap();
    SubPlans::new([("c".to_owned(), SubPlan { id, depth: 0, inputs: None })])
}

fn valid_steps() -> impl Strategy<Value = Value> {
    let step = (0_usize..6, any::<[bool; 6]>(), 0_usize..100);
    vec(step, 1..10).prop_map(|steps| {
        let steps = steps.into_iter().enumerate().map(|(index, (tool, has, pick))| {
            let before = pick % index.max(1);
            let look = if index == 0 { "input".to_owned() } else { format!("s{before}") };
            let mut step = json!({ "id": format!("s{index}"), "parameters": {
                "x": format!("{{{{{look}}}}}"), "n": pick,
            }, "retry": { "maxAttempts": 1 + pick, "multiplier": 1.5 }, "timeoutMs": 1 + pick });
            let names = ["flow.echo", "listAuthors", "createBlog", "flow.noop", "other.createBlog"];
            match names.get(tool) {
                Some(name) => step["name"] = json!(name),
                None => step["plan"] = json!("c"),
            }
            if has[0] {
                let has_before = index > 0;
                step["when"] = json!(if has_before { format!("s{before} != null") } else { "input.x == 1".to_owned() });
            }
            if has[1] {
                step["forEach"] = json!(format!("{{{{{look}.list}}}}"));
                step["maxParallel"] = json!(1 + pick);
                step["parameters"]["i"] = json!("{{item.x}} {{index}}");
            }
            if has[2] {
                step["compensate"] = json!({ "name": "flow.noop", "timeoutMs": 1 + pick, "parameters": {
                    "own": format!("{{{{s{index}._id}}}}"), "other": format!("{{{{{look}}}}}"),
                } });
            }
            if has[3] && tool == 1 {
                step["cacheTtlMs"] = json!(1 + pick);
            }
            if has[4] {
                step["idleTimeoutMs"] = json!(1 + pick);
                step["onError"] = json!(["fail", "continue", "ignore", "wait"][pick % 4]);
            }
            if has[5] {
                step["outputMapping"] = json!({ "a.b": format!("v{index}"), "[0]": "w" });
                step["requiresApproval"] = json!(pick % 2 == 0);
            }
            step
        });
        json!({ "tools": steps.collect::<Vec<_>>() })
    })
}

fn acyclic_edges() -> impl Strategy<Value = Vec<Vec<usize>>> {
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

fn cyclic_edges() -> impl Strategy<Value = Vec<Vec<usize>>> {
    (1_usize..10).prop_flat_map(|n| vec(vec(0..n, 0..3), n))
}

fn draft_of_edges(edges: &[Vec<usize>]) -> Value {
    let step = |(index, on): (usize, &Vec<usize>)| {
        let (by_name, by_template): (Vec<usize>, Vec<usize>) =
            on.iter().partition(|n| **n % 2 == 0);
        let by_name: Vec<_> = by_name.iter().map(|n| format!("s{n}")).collect();
        let by_template: Vec<_> = by_template.iter().map(|n| format!("{{{{s{n}.x}}}}")).collect();
        json!({ "id": format!("s{index}"), "name": "flow.echo", "dependsOn": by_name, "parameters": { "x": by_template } })
    };
    json!({ "tools": edges.iter().enumerate().map(step).collect::<Vec<_>>() })
}

fn naive_order(edges: &[Vec<usize>]) -> Vec<usize> {
    let mut placed = Vec::new();
    let is_ready = |index: &usize, placed: &[usize]| {
        !placed.contains(index) && edges[*index].iter().all(|on| placed.contains(on))
    };
    while let Some(next) = (0..edges.len()).find(|index| is_ready(index, &placed)) {
        placed.push(next);
    }
    placed
}

fn reachable_steps(edges: &[Vec<usize>], from: usize) -> Vec<bool> {
    let mut seen = vec![false; edges.len()];
    let mut open = edges[from].clone();
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut seen[index], true) {
            open.extend(&edges[index]);
        }
    }
    seen
}

proptest! {
    #[test]
    fn compiling_random_drafts_returns_a_plan_or_errors(draft in draft_with_inline_drafts()) {
        let _ = compile(&draft, plan_info(), &make_catalog());
        match compile_all(&draft, plan_info(), &make_catalog(), &sub_plans(), &mut |_| plan_info()) {
            Ok(compiled) => for plan in compiled.inner.into_iter().chain([compiled.plan]) {
                prop_assert!(plan.diagnostics().iter().all(|diagnostic| !diagnostic.is_error()));
                let stored = Plan::from_json(&plan.to_json()).unwrap();
                prop_assert_eq!(stored.to_unchecked(), plan.to_unchecked());
            },
            Err(found) => {
                prop_assert!(found.iter().any(Diagnostic::is_error));
                prop_assert!(found.iter().all(|diagnostic| diagnostic.code != "plan.internal"), "{}", format_diagnostics(&found));
            }
        }
    }

    #[test]
    fn a_plan_survives_storage_and_conversion_to_a_draft(draft in valid_steps()) {
        let draft = parse_value(draft).unwrap();
        let plan = compile_with(&draft, plan_info(), &make_catalog(), &sub_plans());
        let plan = plan.unwrap_or_else(|diagnostics| panic!("{}", format_diagnostics(&diagnostics)));
        let stored = Plan::from_json(&plan.to_json()).unwrap();
        prop_assert_eq!(stored.to_unchecked(), plan.to_unchecked());
        for (stored, step) in stored.steps().iter().zip(plan.steps()) {
            // The stored text is parsed to the same template.
            prop_assert_eq!(&stored.template, &step.template);
            prop_assert_eq!(&stored.depends_on, &step.depends_on);
            prop_assert_eq!(&stored.for_each, &step.for_each);
            prop_assert_eq!(&stored.compensate, &step.compensate);
            let targets = |step: &shared::plan::ToolExecution| step.when.as_ref().map(|when| when.targets().to_vec());
            prop_assert_eq!(targets(stored), targets(step));
        }
        let again = compile_with(&Draft::from_plan(&plan), plan_info(), &make_catalog(), &SubPlans::of_plan(&plan));
        prop_assert_eq!(again.unwrap().to_unchecked().steps, plan.to_unchecked().steps);
        let exported = serde_json::to_string(&Draft::for_export(&plan)).unwrap();
        let read = super::super::parse(&exported).unwrap();
        let again = compile_with(&read, plan_info(), &make_catalog(), &SubPlans::of_plan(&plan)).unwrap();
        prop_assert_eq!(again.to_unchecked().steps, plan.to_unchecked().steps);
        prop_assert_eq!(&again.info().query, &plan.info().query);
    }

    #[test]
    fn parsing_random_json_does_not_panic(value in value(), text in ".{0,40}") {
        let _ = parse_value(value.clone());
        let _ = parse_value(json!({ "tools": [value] }));
        let _ = super::super::parse(&text);
    }

    #[test]
    fn the_execution_order_equals_that_of_a_naive_algorithm(edges in acyclic_edges()) {
        let plan = compile_valid(draft_of_edges(&edges));
        let expected: Vec<_> = naive_order(&edges).iter().map(|n| format!("s{n}")).collect();
        prop_assert_eq!(list_ids(&plan), expected);
        let mut depth = vec![0; edges.len()];
        for at in naive_order(&edges) {
            depth[at] = edges[at].iter().map(|on| depth[*on] + 1).max().unwrap_or(0);
        }
        let stored = Plan::from_json(&plan.to_json()).unwrap();
        let mut placed = 0;
        for (layer, steps) in stored.layers().iter().enumerate() {
            let written = steps.iter().map(|number| plan.step(*number).id.as_str()[1..].parse().unwrap());
            let written: Vec<usize> = written.collect();
            prop_assert!(written.is_sorted(), "as written inside a layer: {written:?}");
            prop_assert!(written.iter().all(|at| depth[*at] == layer));
            placed += written.len();
        }
        prop_assert_eq!(placed, edges.len());
    }

    #[test]
    fn each_component_reports_one_real_cycle(edges in cyclic_edges()) {
        let reach: Vec<_> = (0..edges.len()).map(|from| reachable_steps(&edges, from)).collect();
        let firsts: Vec<_> = (0..edges.len())
            .filter(|a| reach[*a][*a] && (0..*a).all(|b| !(reach[*a][b] && reach[b][*a])))
            .collect();
        let found = compile_json(draft_of_edges(&edges)).map_or_else(|diagnostics| diagnostics, |_| Vec::new());
        prop_assert_eq!(found.len(), firsts.len());
        for (found, first) in found.iter().zip(firsts) {
            let names = found.message.rsplit(": ").next().unwrap_or_default();
            let cycle: Vec<usize> =
                names.split(" -> ").map(|name| name[1..].parse().unwrap()).collect();
            prop_assert_eq!((cycle[0], cycle[cycle.len() - 1]), (first, first));
            prop_assert!(cycle.windows(2).all(|pair| edges[pair[0]].contains(&pair[1])), "{}", names);
            let mut inside = cycle[1..].to_vec();
            inside.sort_unstable();
            inside.dedup();
            prop_assert_eq!(inside.len(), cycle.len() - 1);
        }
    }
}
