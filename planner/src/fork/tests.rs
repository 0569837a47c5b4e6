use serde_json::json;
use shared::{
    clock::Timestamp,
    event::{Event, Outcome, RecordedEvent, Settled, Settlement, StepStarted},
    id::{Attempt, ExecutionId, Part, PlanId, RequestId, Seq},
    plan::{PlanInfo, UncheckedPlan},
    tool::ToolError,
};

use super::*;

/// Builds a plan from steps as stores keep them.
fn plan_of(steps: Value) -> Arc<Plan> {
    let now = Timestamp::UNIX_EPOCH;
    let about = PlanInfo {
        id: PlanId::draw(now),
        request: RequestId::draw(now),
        version: 1,
        query: "q".to_owned(),
        planner: "explicit".to_owned(),
        created_at: now,
    };
    let mut steps = steps;
    for step in steps.as_array_mut().unwrap() {
        let step = step.as_object_mut().unwrap();
        step.entry("tool").or_insert(json!("shop.pay"));
        step.entry("parameters").or_insert(json!({}));
        step.entry("policy").or_insert(json!({ "effect": "once" }));
    }
    let steps = serde_json::from_value(steps).unwrap();
    Arc::new(
        UncheckedPlan { about, steps, written: Vec::new(), diagnostics: Vec::new() }
            .try_into()
            .unwrap(),
    )
}

/// A finished execution under construction.
struct Story {
    execution: Execution,
}

impl Story {
    fn start(plan: &Arc<Plan>, input: Value) -> Self {
        let options = ExecutionOptions { input: Arc::new(input), ..ExecutionOptions::default() };
        Self::start_from(plan, Created::new(plan.id(), plan.info().request, options))
    }

    fn start_from(plan: &Arc<Plan>, created: Created) -> Self {
        let at = Timestamp::UNIX_EPOCH;
        let event = Event::Created(Box::new(created));
        let first = RecordedEvent { seq: Seq::START.next(), at, by: None, event };
        let id = ExecutionId::draw(at);
        Self { execution: Execution::create(id, Arc::clone(plan), &first).unwrap() }
    }

    fn apply(&mut self, event: Event) {
        let (seq, at) = (self.execution.seq().next(), Timestamp::UNIX_EPOCH);
        self.execution.apply(&RecordedEvent { seq, at, by: None, event }).unwrap();
    }

    fn run(mut self, step: &str, result: Result<Value, ToolError>) -> Self {
        let number = self.execution.plan().step_number(&step.parse().unwrap()).unwrap();
        let template = &self.execution.plan().step(number).template;
        let scope = self.execution.template_scope(number.into());
        let parameters = Arc::new(template.render(&scope, limits::OUTPUT_BYTES).unwrap().value);
        let (step, part, attempt): (StepId, _, _) =
            (step.parse().unwrap(), Part::WHOLE, Attempt::FIRST);
        self.apply(Event::StepStarted(StepStarted {
            step: step.clone(),
            part,
            attempt,
            parameters,
            warnings: Vec::new(),
            until: None,
            items: None,
            child: None,
            key: None,
            effect: None,
        }));
        self.apply(match result {
            Ok(output) => Event::StepSucceeded {
                step,
                part,
                attempt,
                output: Some(Arc::new(output)),
                cached: false,
                stderr: None,
            },
            Err(error) => Event::StepFailed { step, part, attempt, error, command: None },
        });
        self
    }

    fn skip(mut self, step: &str, reason: SkipReason) -> Self {
        self.apply(Event::StepSkipped { step: step.parse().unwrap(), part: Part::WHOLE, reason });
        self
    }

    fn end(mut self, outcome: Outcome) -> Execution {
        self.apply(Event::Finished { outcome });
        self.execution
    }
}

fn given(outputs: &[(&str, Value)]) -> BTreeMap<StepId, Arc<Value>> {
    let outputs = outputs.iter();
    outputs.map(|(step, output)| (step.parse().unwrap(), Arc::new(output.clone()))).collect()
}

/// Returns a letter for each step: `k`ept, `s`kipped again, `g`iven, `u`nchanged but runs, `r`uns.
#[track_caller]
fn letters(ended: &Execution, plan: &Plan, input: Value, outputs: &[(&str, Value)]) -> String {
    let (input, outputs) = (Arc::new(input), given(outputs));
    let fork = Fork::new(ended, plan, &input, &outputs).unwrap();
    let letter = |forked| match forked {
        ForkedStep::Kept => 'k',
        ForkedStep::SkippedAgain => 's',
        ForkedStep::Given => 'g',
        ForkedStep::Runs { is_unchanged: true } => 'u',
        ForkedStep::Runs { is_unchanged: false } => 'r',
    };
    fork.steps().map(|(_, forked)| letter(forked)).collect()
}

fn chain() -> Value {
    json!([
        { "id": "a", "parameters": { "n": "{{input.n}}" } },
        { "id": "b", "parameters": { "n": "{{input.m}}" } },
        { "id": "c", "parameters": { "n": "{{a.n}}" }, "depends_on": ["a"] },
        { "id": "d", "parameters": { "n": "{{b.n}} of {{input.m}}" }, "depends_on": ["b"] },
    ])
}

fn ended_chain(plan: &Arc<Plan>) -> Execution {
    Story::start(plan, json!({ "n": 1, "m": 2 }))
        .run("a", Ok(json!({ "n": 10 })))
        .run("b", Ok(json!({ "n": 20 })))
        .run("c", Ok(json!({ "n": 30 })))
        .run("d", Err(ToolError::failed("no")))
        .end(Outcome::Failed)
}

#[test]
fn an_output_is_kept_if_step_parameters_and_earlier_steps_are_unchanged() {
    let plan = plan_of(chain());
    let ended = ended_chain(&plan);
    for (input, outputs, expected, why) in [
        (json!({ "n": 1, "m": 2 }), &[][..], "kkku", "only the failed step has no output"),
        (json!({ "n": 1.0, "m": 2, "new": 3 }), &[], "kkku", "no step reads the new field"),
        (json!({ "n": 1, "m": 3 }), &[], "krkr", "`b` reads the changed field"),
        (json!({ "n": 5, "m": 2 }), &[], "rkru", "`c` follows `a`"),
        (json!({ "n": 1, "m": 2 }), &[("a", json!({ "n": 10, "x": 1 }))], "gkru", "another output"),
        (json!({ "n": 1, "m": 2 }), &[("a", json!({ "n": 10 }))], "kkku", "the same output"),
        (json!({ "n": 5, "m": 2 }), &[("a", json!({ "n": 10 }))], "gkru", "`a` would run"),
        (json!({ "n": 1, "m": 2 }), &[("d", json!(null))], "kkkg", "the failed step is given"),
    ] {
        assert_eq!(letters(&ended, &plan, input, outputs), expected, "{why}");
    }
}

#[test]
fn another_version_keeps_the_outputs_of_its_unchanged_steps() {
    let ended = ended_chain(&plan_of(chain()));
    let input = || json!({ "n": 1, "m": 2 });
    let change = |step: usize, key: &str, value: Value| {
        let mut steps = chain();
        steps[step][key] = value;
        plan_of(steps)
    };
    for (plan, expected, why) in [
        (change(0, "parameters", json!({ "n": 1 })), "kkku", "the rendered parameters are equal"),
        (change(0, "parameters", json!({ "n": 2 })), "rkru", "other parameters"),
        (change(0, "tool", json!("shop.refund")), "rkru", "another tool"),
        (change(2, "when", json!("a.n > 1")), "kkru", "a new condition"),
        (change(1, "policy", json!({ "effect": "once", "timeout_ms": 7 })), "kkku", "a policy"),
        (change(2, "id", json!("x")), "kkru", "a new step"),
    ] {
        assert_eq!(letters(&ended, &plan, input(), &[]), expected, "{why}");
    }
}

#[test]
fn lists_and_conditions_are_compared_by_their_values() {
    let plan = plan_of(json!([
        { "id": "each", "for_each": "{{input.list}}", "parameters": { "x": "{{item.x}} {{input.n}}" } },
        { "id": "cold", "when": "input.n < 5" },
        { "id": "hot", "when": "input.n >= 5", "parameters": {} },
        { "id": "after", "depends_on": ["hot"], "parameters": {} },
    ]));
    let input = |list: Value, n: u32| json!({ "list": list, "n": n });
    let list = || json!([{ "x": 1, "y": 1 }]);
    // The list is empty in the log, which is enough to finish the step.
    let ended = |given: Value| {
        let mut story = Story::start(&plan, given);
        let (step, part, attempt): (StepId, _, _) =
            ("each".parse().unwrap(), Part::WHOLE, Attempt::FIRST);
        let items = story.execution.list(StepNumber::new(0)).unwrap().len();
        story.apply(Event::StepStarted(StepStarted {
            step: step.clone(),
            part,
            attempt,
            parameters: Arc::default(),
            warnings: Vec::new(),
            until: None,
            items: u32::try_from(items).ok(),
            child: None,
            key: None,
            effect: None,
        }));
        for index in 0..items {
            let part = Part { item: u32::try_from(index).ok(), undo: false };
            let parameters = Arc::default();
            story.apply(Event::StepStarted(StepStarted {
                step: step.clone(),
                part,
                attempt,
                parameters,
                warnings: Vec::new(),
                until: None,
                items: None,
                child: None,
                key: None,
                effect: None,
            }));
            let output = Some(Arc::new(json!(index)));
            let (cached, stderr) = (false, None);
            let step = step.clone();
            story.apply(Event::StepSucceeded { step, part, attempt, output, cached, stderr });
        }
        let (output, cached, stderr) = (None, false, None);
        story.apply(Event::StepSucceeded { step, part, attempt, output, cached, stderr });
        story
            .run("cold", Ok(json!("done")))
            .skip("hot", SkipReason::Condition)
            .skip("after", SkipReason::Dependency)
            .end(Outcome::Completed)
    };
    let ended = ended(input(list(), 1));
    for (given, expected, why) in [
        (input(list(), 1), "kkss", "nothing changed"),
        (input(list(), 2), "rkss", "the items read the changed number"),
        (input(json!([{ "x": 1, "y": 2 }]), 1), "rkss", "the list changed"),
        (input(list(), 7), "ruur", "the conditions hold the other way round"),
    ] {
        assert_eq!(letters(&ended, &plan, given, &[]), expected, "{why}");
    }
}

#[test]
fn a_fork_has_new_keys_except_of_calls_with_an_unknown_outcome() {
    let plan = plan_of(chain());
    let unknown = || Err(ToolError::outcome_unknown("the worker was lost"));
    let story = Story::start(&plan, json!({ "n": 1, "m": 2 }))
        .run("a", Ok(json!({ "n": 10 })))
        .run("b", unknown());
    let mut ended = story
        .skip("c", SkipReason::ExecutionFailed)
        .skip("d", SkipReason::ExecutionFailed)
        .end(Outcome::Failed);
    let create = |ended: &Execution, plan: &Plan, outputs: &[(&str, Value)]| {
        let (input, outputs) = (Arc::new(json!({ "n": 1, "m": 2 })), given(outputs));
        Fork::new(ended, plan, &input, &outputs).unwrap().create().unwrap()
    };
    let created = create(&ended, &plan, &[("c", json!("by hand"))]);
    assert_eq!((created.forked_from, created.retry_of), (Some(ended.id()), None));
    let reused: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(reused, ["a", "c"]);
    let keys: Vec<_> = created.call_keys.iter().map(|key| &*key.key).collect();
    assert_eq!(keys, [format!("{}/b", ended.id())]);
    let fork = Story::start_from(&plan, created).execution;
    assert_eq!(fork.continued_from(), Some(ended.id()));
    let head = shared::store::ExecutionHead::from_execution(&fork, None, None);
    assert_eq!(head.labels[shared::labels::FORKED_FROM], ended.id().to_string());
    assert_eq!(fork.options().labels, shared::labels::Labels::new());

    let mut other_tool = chain();
    other_tool[1]["tool"] = json!("shop.refund");
    assert_eq!(create(&ended, &plan_of(other_tool), &[]).call_keys, [], "another tool");

    let (outcome, output) = (Settled::Succeeded, Some(Arc::new(json!({ "n": 20 }))));
    let settlement = Settlement { outcome, output, comment: None };
    ended.add_settlements([("b".parse().unwrap(), None, settlement)]);
    let created = create(&ended, &plan, &[]);
    let reused: Vec<_> = created.reused.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!((reused, created.call_keys.len()), (vec!["a", "b"], 0));
    assert_eq!(created.settled.len(), 1, "a compensation undoes the settled step");
    let created = create(&ended, &plan, &[("b", json!("by hand"))]);
    assert_eq!(created.settled, [], "a given output replaces the decision");
}

#[test]
fn a_fork_of_an_unfinished_execution_or_with_too_large_outputs_is_refused() {
    let plan = plan_of(chain());
    let open = Story::start(&plan, json!({})).execution;
    let (input, outputs) = (Arc::new(json!({})), given(&[]));
    let refused = Fork::new(&open, &plan, &input, &outputs).unwrap_err();
    assert_eq!(refused, ReuseError::Open(open.id()));
    let ended = ended_chain(&plan);
    let outputs = given(&[("a", json!("x".repeat(limits::REUSED_BYTES)))]);
    let fork = Fork::new(&ended, &plan, &input, &outputs).unwrap();
    assert_eq!(fork.create(), Err(ReuseError::TooMuchKept));
}
