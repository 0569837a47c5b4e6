use chrono::TimeDelta;
use serde_json::json;

use super::*;

/// The steps of a plan (ids, dependencies, parameters), and the expected error.
type Case<'a> = (&'a [(&'a str, &'a [&'a str], Value)], &'a str);

fn plan(steps: &[(&str, &[&str], Value)]) -> Result<Plan, PlanError> {
    let steps = steps.iter().map(|(id, on, parameters)| UncheckedStep {
        id: id.parse().unwrap(),
        tool: "set.tool".parse().unwrap(),
        parameters: Arc::new(parameters.clone()),
        depends_on: on.iter().map(|id| id.parse().unwrap()).collect(),
        output_mapping: vec![("_id".to_owned(), format!("{id}_id"))],
        policy: StepPolicy::default(),
        plan: None,
        inputs: None,
        when: None,
        for_each: None,
        compensate: None,
    });
    let about = PlanInfo {
        id: "plan_1_aaaaaaaaa".parse().unwrap(),
        request: "req_1_aaaaaaaaa".parse().unwrap(),
        version: 1,
        query: "q".to_owned(),
        planner: "explicit".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
    };
    let steps = steps.collect();
    Plan::try_from(UncheckedPlan { about, steps, written: Vec::new(), diagnostics: Vec::new() })
}

#[test]
fn a_stored_plan_is_loaded_unchanged() {
    let parameters = json!({ "z": "{{a._id}}", "a": [1.5, 9_007_199_254_740_993_u64] });
    let plan = plan(&[("a", &[], json!({})), ("b", &["a"], parameters)]).unwrap();
    let again = Plan::from_json(&plan.to_json()).unwrap();
    assert_eq!(again.to_unchecked(), plan.to_unchecked());
    assert_eq!(again.steps()[1].parameters.to_string(), plan.steps()[1].parameters.to_string());
}

#[test]
fn invalid_plans_are_rejected() {
    assert_eq!(plan(&[]).unwrap_err(), PlanError::Empty);
    let cases: [Case<'_>; 6] = [
        (&[("a", &["b"], json!({})), ("b", &[], json!({}))], "`a` depends on `b`"),
        (&[("a", &["a"], json!({}))], "`a` depends on `a`"),
        (&[("a", &[], json!({})), ("a", &[], json!({}))], "two steps"),
        (&[("a", &[], json!({})), ("b", &[], json!("{{a}}"))], "`b` depends on `{{a}}`"),
        (&[("a", &[], json!("{{c}}"))], "names no step"),
        (&[("a", &[], json!({})), ("b", &[], json!("{{vars.a_id}}"))], "{{vars.a_id}}"),
    ];
    for (steps, expected) in cases {
        let err = plan(steps).unwrap_err().to_string();
        assert!(err.contains(expected), "{err}");
    }
}

#[test]
fn the_layer_of_a_step_is_its_longest_path_from_a_start() {
    let none = json!({});
    let plan = plan(&[
        ("a", &[], none.clone()),
        ("b", &["a"], none.clone()),
        ("c", &[], none.clone()),
        ("d", &["b", "c"], none),
    ])
    .unwrap();
    let layers: Vec<Vec<usize>> =
        plan.layers().iter().map(|layer| layer.iter().map(|step| step.get()).collect()).collect();
    assert_eq!(layers, [vec![0, 2], vec![1], vec![3]]);
    assert_eq!(plan.dependents(StepNumber::new(0)), [StepNumber::new(1)]);
}

#[test]
fn layers_keep_the_order_in_which_steps_were_written() {
    let none = json!({});
    let unchecked = plan(&[
        ("a", &[], none.clone()),
        ("y", &["a"], none.clone()),
        ("b", &[], none.clone()),
        ("x", &["b"], none),
    ]);
    let unchecked = unchecked.unwrap().to_unchecked();
    assert_eq!(unchecked.written, [], "the plan's own order is not written down");
    let written = |written: Vec<usize>| {
        let written = written.into_iter().map(StepNumber::new).collect();
        Plan::try_from(UncheckedPlan { written, ..unchecked.clone() })
    };
    let plan = written(vec![3, 1, 0, 2]).unwrap();
    let plan = Plan::from_json(&plan.to_json()).unwrap();
    let layers: Vec<Vec<usize>> =
        plan.layers().iter().map(|layer| layer.iter().map(|step| step.get()).collect()).collect();
    assert_eq!(layers, [vec![0, 2], vec![3, 1]]);
    for wrong in [vec![0], vec![0, 1, 2, 2], vec![0, 1, 2, 4], vec![0, 1, 2, 3, 3]] {
        assert_eq!(written(wrong).unwrap_err(), PlanError::Written);
    }
}

#[test]
fn retry_delays_grow_up_to_the_maximum() {
    let policy = RetryPolicy { max_attempts: 5, jitter: false, ..RetryPolicy::default() };
    let waits: Vec<_> = (1..=5).map(|failures| policy.delay(failures, 0)).collect();
    let ms = |delay| Some(TimeDelta::milliseconds(delay));
    assert_eq!(waits, [ms(100), ms(200), ms(400), ms(800), None]);
    let policy = RetryPolicy { max_attempts: 500, ..policy };
    assert_eq!(policy.delay(400, 7), ms(30_000));
    let jittered = RetryPolicy { jitter: true, ..policy }.delay(400, 7).unwrap();
    assert!(jittered >= TimeDelta::seconds(15) && jittered <= TimeDelta::seconds(30));
}
