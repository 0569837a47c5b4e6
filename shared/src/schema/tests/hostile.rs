//! Schemas and values for which a validator without limits would take very long.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::*;

/// Far more time than a limited check needs on a slow machine, and far less than a check without
/// limits would need.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

fn assert_ends_soon<T>(description: &str, run: impl FnOnce() -> T) -> T {
    let started_at = Instant::now();
    let result = run();
    assert!(started_at.elapsed() < TEST_TIMEOUT, "{description} took {:?}", started_at.elapsed());
    result
}

/// Returns definitions that each apply the next definition ten times.
fn exponential_schema(keyword: &str, home: &str) -> Value {
    let mut defs = Map::new();
    for index in 0..14 {
        let next = json!({ "$ref": format!("#/{home}/d{}", index + 1) });
        defs.insert(format!("d{index}"), json!({ keyword: vec![next; 10] }));
    }
    defs.insert("d14".to_owned(), json!({ "type": "object" }));
    json!({ "$ref": format!("#/{home}/d0"), home: defs })
}

#[test]
fn a_schema_with_too_many_references_to_itself_is_rejected() {
    for (keyword, home) in [
        ("allOf", "$defs"),
        ("anyOf", "$defs"),
        ("oneOf", "definitions"),
        ("allOf", "x-schemas"),
        ("anyOf", "components"),
    ] {
        let schema = exponential_schema(keyword, home);
        let error = assert_ends_soon(keyword, || Schema::new(&schema).unwrap_err());
        assert!(error.contains("more than 20000 evaluations"), "{error}");
        let inside =
            json!({ "type": "object", "properties": { "a": schema.clone() }, home: schema[home] });
        assert!(check_cost(&inside).is_err(), "{keyword} {home}");
    }
    // In old drafts of JSON Schema, the keywords beside a reference have no effect.
    let mut old = exponential_schema("allOf", "definitions");
    old["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    assert!(Schema::new(&old).is_err());
}

#[test]
fn too_large_and_too_deep_schemas_are_rejected() {
    let mut deep = json!({});
    for _ in 0..200 {
        deep = json!({ "not": deep });
    }
    assert!(Schema::new(&deep).unwrap_err().contains("deeper than"));
    let wide = json!({ "description": "x".repeat(2 << 20) });
    assert!(Schema::new(&wide).unwrap_err().contains("bytes"));
    let link =
        |index: usize| (format!("d{index}"), json!({ "$ref": format!("#/$defs/d{}", index + 1) }));
    let mut chain: Map<String, Value> = (0..5_000).map(link).collect();
    chain.insert("d5000".to_owned(), json!({}));
    let chain = json!({ "$ref": "#/$defs/d0", "$defs": chain });
    assert!(Schema::new(&chain).unwrap_err().contains("in a row"));
}

#[test]
fn circular_references_end_quickly() {
    for schema in [
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }, { "$ref": "#" }] }),
        json!({ "anyOf": [{ "$ref": "#/$defs/a" }], "$defs": {
            "a": { "anyOf": [{ "$ref": "#/$defs/b" }, { "$ref": "#/$defs/b" }] },
            "b": { "oneOf": [{ "$ref": "#/$defs/a" }, { "not": { "$ref": "#/$defs/a" } }] },
        } }),
        json!({ "$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#" }),
        json!({ "$dynamicAnchor": "n", "allOf": [{ "$dynamicRef": "#n" }, { "$dynamicRef": "#n" }] }),
    ] {
        assert_ends_soon("a circle", || {
            if let Ok(schema) = Schema::new(&schema) {
                schema.complaint(&json!({ "a": 1 }));
                schema.complaint(&json!(1));
            }
        });
    }
}

fn nested_value(depth: usize) -> Value {
    (0..depth).fold(json!("end"), |inner, _| json!({ "a": inner }))
}

#[test]
fn a_check_whose_cost_grows_with_the_value_is_stopped() {
    let twice = json!([{ "$ref": "#/$defs/n" }, { "$ref": "#/$defs/n" }]);
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let node =
            json!({ "properties": { "a": { keyword: twice } }, "not": { "type": "string" } });
        let schema = Schema::new(&json!({ "$ref": "#/$defs/n", "$defs": { "n": node } })).unwrap();
        assert_ends_soon(keyword, || schema.complaint(&nested_value(90)));
        assert_ends_soon(keyword, || schema.violations(&nested_value(90)));
    }
    let node =
        json!({ "additionalProperties": { "anyOf": twice }, "unevaluatedProperties": false });
    let schema = Schema::new(&json!({ "$ref": "#/$defs/n", "$defs": { "n": node } })).unwrap();
    assert_ends_soon("unevaluated", || schema.complaint(&nested_value(90)));
    let (is_valid, taken) = {
        let mut budget = Budget::for_plan();
        (
            schema.is_valid_within(&nested_value(90), &mut budget),
            MAX_PLAN_EVALUATIONS - budget.evaluations,
        )
    };
    assert!(!is_valid || taken < MAX_PLAN_EVALUATIONS, "{taken}");
}

#[test]
fn a_check_that_exceeds_its_budget_reports_it() {
    let choices: Vec<Value> = (0..20_000).map(|n| json!({ "choice": n })).collect();
    let schema = json!({ "type": "array", "items": { "enum": choices } });
    let schema = Schema::new(&schema).unwrap();
    let items: Vec<Value> = (0..100_000).map(|n| json!({ "choice": n % 20_000 })).collect();
    let value = Value::from(items);
    let mut budget = Budget::for_plan();
    let misfits =
        assert_ends_soon("choices", || schema.violations_where(&value, &mut budget, |_| true));
    assert_eq!(misfits[0].kind, ViolationKind::Unchecked);
    assert!(misfits[0].message.contains("it takes too long"), "{misfits:?}");
    assert!(budget.evaluations < MAX_PLAN_EVALUATIONS);
    let mut none = Budget { evaluations: 0 };
    assert!(!schema.is_valid_within(&Value::from(vec![json!({ "choice": 1 }); 10_000]), &mut none));
}

#[test]
fn a_stop_signal_ends_running_and_waiting_checks() {
    let schema = json!({ "items": { "allOf": vec![json!({ "minimum": 0 }); 30] } });
    let schema = Schema::new(&schema).unwrap();
    let value = std::sync::Arc::new(Value::from((0..1_000_000).collect::<Vec<_>>()));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let stop = CheckStop::default();
    let checks = (0..5).map(|_| {
        let (schema, value) = (schema.clone(), std::sync::Arc::clone(&value));
        runtime.spawn(stop.watch(async move { schema.complaint(&value) }))
    });
    let checks: Vec<_> = checks.collect();
    while !threads::is_check_running() {
        std::thread::yield_now();
    }
    stop.stop_checks();
    for check in checks {
        let complaint = runtime.block_on(check).unwrap();
        assert_eq!(complaint.as_deref(), Some(threads::STOPPED_MESSAGE));
    }
    assert!(schema.complaint(&json!([-1])).is_some());
}

#[test]
fn patterns_with_backtracking_end_quickly() {
    let schema = json!({ "items": { "pattern": "^(?=(a|aa)+$)(a|aa)+b$" } });
    let schema = Schema::new(&schema).unwrap();
    let value = Value::from(vec!["a".repeat(5_000); 200]);
    assert_ends_soon("a pattern", || assert!(!schema.is_valid(&value)));
    let far = json!({ "pattern": r"^(\w{1000}){1000}$" });
    assert!(assert_ends_soon("a far pattern", || Schema::new(&far)).is_err());
    let many: Map<String, Value> = (0..1_900)
        .map(|n| (format!("p{n}"), json!({ "pattern": format!(r"^{n}\w{{250}}$") })))
        .collect();
    assert_ends_soon("many patterns", || drop(Schema::new(&json!({ "properties": many }))));
    let many: Map<String, Value> = (0..3_000).map(|n| (format!("^{n}$"), json!({}))).collect();
    let error = Schema::new(&json!({ "patternProperties": many })).unwrap_err();
    assert!(error.contains("patterns"), "{error}");
}

#[test]
fn large_ordinary_schemas_and_values_are_accepted() {
    let kinds: Vec<Value> = (0..300)
        .map(|n| {
            json!({
                "type": "object",
                "required": ["kind"],
                "properties": {
                    "kind": { "const": format!("k{n}") },
                    "left": { "$ref": "#/$defs/node" },
                    "right": { "$ref": "#/$defs/node" },
                    "name": { "$ref": "#/$defs/name" },
                },
            })
        })
        .collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$ref": "#/$defs/node",
        "$defs": {
            "node": { "oneOf": kinds },
            "name": { "$ref": "#/$defs/node/oneOf/7/properties/kind/$defs/a~1b%20c" , "type": "string" },
        },
    });
    // Adds the target of the reference, in the middle of another schema. Its name must be encoded.
    let mut schema = schema;
    schema["$defs"]["node"]["oneOf"][7]["properties"]["kind"]["$defs"] =
        json!({ "a/b c": { "minLength": 2 } });
    let schema = Schema::new(&schema).unwrap();
    let tree = |depth: usize| {
        (0..depth).fold(
            json!({ "kind": "k299", "name": "ok" }),
            |inner, _| json!({ "kind": "k150", "left": inner, "right": { "kind": "k2" } }),
        )
    };
    assert_eq!(schema.complaint(&tree(8)), None);
    assert!(schema.is_valid(&tree(40)));
    assert!(!schema.is_valid(&json!({ "kind": "k1", "name": "x" })));
    assert!(!schema.is_valid(&json!({ "kind": "k1", "left": { "kind": "k300" } })));

    let numbers = Schema::new(
        &json!({ "items": { "$ref": "#/$defs/n" }, "$defs": { "n": { "type": "integer" } } }),
    );
    let numbers = numbers.unwrap();
    let many: Vec<u64> = (0..300_000).collect();
    assert_eq!(numbers.complaint(&json!(many)), None);
    let reason = numbers.complaint(&json!([1, "x"])).unwrap();
    assert_eq!(reason, "at `/1`: \"x\" is not of type \"integer\"");
}

#[test]
fn metering_does_not_change_the_result_of_a_check() {
    let meta = "http://json-schema.org/draft-07/schema#";
    let schemas = [
        json!({ "type": "object", "properties": { "a": { "$ref": "#/properties/b" }, "b": { "type": "integer" } }, "additionalProperties": false }),
        json!({ "$id": "https://x/root", "$defs": { "c": { "$id": "child", "$defs": { "d": { "type": "string" } }, "properties": { "a": { "$ref": "#/$defs/d" } } } }, "$ref": "child" }),
        json!({ "properties": { "a": { "$ref": "#low" } }, "$defs": { "x": { "$anchor": "low", "maximum": 3 } } }),
        json!({ "allOf": [{ "properties": { "a": true } }], "unevaluatedProperties": false }),
        json!({ "$schema": meta, "definitions": { "p": { "minimum": 2 } }, "properties": { "a": { "$ref": "#/definitions/p", "maximum": 1 } } }),
        json!({ "$schema": meta, "properties": { "a": { "$ref": meta } } }),
        json!({ "if": { "required": ["a"] }, "then": { "required": ["b"] }, "else": { "maxProperties": 1 }, "dependentSchemas": { "b": { "$ref": "#/$defs/s" } }, "$defs": { "s": { "minProperties": 2 } } }),
        json!({ "$dynamicAnchor": "n", "properties": { "a": { "anyOf": [{ "type": "integer" }, { "$dynamicRef": "#n" }] } } }),
        json!({ "patternProperties": { "^a": { "$ref": "#/x-kept/0" } }, "x-kept": [{ "enum": [1, "s", { "b": 2 }] }] }),
    ];
    let values = [
        json!({}),
        json!({ "a": 1 }),
        json!({ "a": "s" }),
        json!({ "a": 5, "b": 1 }),
        json!({ "b": "x" }),
        json!({ "a": { "b": 2 } }),
        json!({ "a": { "type": "strnig" } }),
        json!({ "a": { "a": "deep" } }),
        json!([1]),
        json!(null),
    ];
    for schema in &schemas {
        let figures = cost::measure_schema(schema).unwrap();
        let plain = build_validator(schema, figures.pattern_bytes())
            .unwrap_or_else(|err| panic!("{schema}: {err}"));
        let metered = meter::add_meters(schema).unwrap();
        let built = build_validator(&metered, figures.pattern_bytes())
            .unwrap_or_else(|err| panic!("{metered}: {err}"));
        for value in &values {
            let sorted_errors = |valid: &Validator| -> Vec<String> {
                let mut errors: Vec<_> =
                    valid.iter_errors(value).map(|err| err.to_string()).collect();
                errors.sort();
                errors
            };
            assert_eq!(sorted_errors(&plain), sorted_errors(&built), "{schema} {value}");
            assert_eq!(plain.is_valid(value), built.is_valid(value), "{schema} {value}");
        }
    }
}

#[test]
fn a_reference_to_something_that_is_no_schema_is_rejected() {
    let link = json!([{ "$ref": "#/x/properties" }, { "$ref": "#/x/properties" }]);
    let schema = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/x/properties", "x": { "properties": { "allOf": link } } });
    assert!(Schema::new(&schema).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_parallel_checks_do_not_block_the_runtime() {
    let node = json!({ "properties": { "a": { "oneOf": [{ "$ref": "#/$defs/n" }, { "$ref": "#/$defs/n" }] } }, "not": { "type": "string" } });
    let schema = Schema::new(&json!({ "$ref": "#/$defs/n", "$defs": { "n": node } })).unwrap();
    let mut checks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let schema = schema.clone();
        checks.spawn(async move { schema.violations(&nested_value(90)) });
    }
    // If the checks blocked the threads of the runtime, this loop would wait for all checks.
    let mut answered = 0;
    while checks.try_join_next().is_none() && answered < 100 {
        tokio::task::yield_now().await;
        answered += 1;
    }
    while checks.join_next().await.is_some() {}
}
