use super::*;

fn read(text: &str) -> Result<TestFile, String> {
    TestFile::read(&engine::yaml::parse(text).unwrap(), Path::new("folder"))
}

#[track_caller]
fn read_test(text: &str) -> Test {
    let indented: Vec<String> = text.lines().map(|line| format!("    {line}")).collect();
    let indented = indented.join("\n");
    read(&format!("plan: a.yaml\ntests:\n  - name: t\n{indented}")).unwrap().tests.remove(0)
}

#[test]
fn a_plan_is_a_file_an_id_or_a_saved_name() {
    let source = |plan: &str| read(&format!("plan: {plan}\ntests: [{{ name: t }}]")).unwrap().plan;
    assert_eq!(source("pay.yaml"), PlanSource::File(PathBuf::from("folder/pay.yaml")));
    assert_eq!(source("../pay.json"), PlanSource::File(PathBuf::from("folder/../pay.json")));
    assert_eq!(source("plan_1_aaaaaaaaa"), PlanSource::Id("plan_1_aaaaaaaaa".parse().unwrap()));
    assert_eq!(source("pay an order"), PlanSource::Saved("pay an order".to_owned()));
}

#[test]
fn a_mock_is_an_output_an_error_or_a_list_of_them() {
    let mut test = read_test(
        "tools:\n  a: { id: 1 }\n  b: [1, { error: busy }, [2]]\n  c: { error: { code: tool.timeout } }\n  \
         d: { output: { error: 1 } }\n  e: { error: 1, more: 2 }\n  f: null",
    );
    let mut take = |tool: &str| test.tools.get_mut(tool).unwrap().take_next();
    assert_eq!(take("a"), Some(Outcome::Output(json!({ "id": 1 }))));
    assert_eq!(take("a"), Some(Outcome::Output(json!({ "id": 1 }))), "an output is for all calls");
    assert_eq!(take("b"), Some(Outcome::Output(json!(1))));
    assert_eq!(take("b"), Some(Outcome::Error(ToolError::failed("busy"))));
    assert_eq!(take("b"), Some(Outcome::Output(json!([2]))));
    assert_eq!(take("b"), None, "a list is used up");
    let Some(Outcome::Error(timeout)) = take("c") else { panic!("no error") };
    assert!(timeout.is_outcome_unknown() && timeout.retryable, "{timeout:?}");
    assert_eq!(take("d"), Some(Outcome::Output(json!({ "error": 1 }))));
    assert_eq!(take("e"), Some(Outcome::Output(json!({ "error": 1, "more": 2 }))));
    assert_eq!(take("f"), Some(Outcome::Output(Value::Null)));
}

#[test]
fn an_expectation_names_parts_of_what_happened() {
    let test = read_test(
        "input: { n: 1 }\nrecord: exec_1_aaaaaaaaa\nsignals: { go: [1, 2] }\n\
         approvals: { pay: true, 'each[1]': [false, true] }\nexpect:\n  state: completed\n  \
         outputs: { pay: { id: 1 } }\n  calls: [pay, { tool: pay, parameters: { n: 1 }, times: 2 }]\n  \
         order: [a, b]\n  findings: [tool.failed, { stepId: pay, message: busy }]",
    );
    assert_eq!(test.input, Some(json!({ "n": 1 })));
    assert_eq!(test.record.map(|id| id.to_string()).as_deref(), Some("exec_1_aaaaaaaaa"));
    assert_eq!(test.approvals["pay"], Script::Always(true));
    assert_eq!(test.approvals["each[1]"], Script::InTurn([false, true].into()));
    assert_eq!(test.signals["go"], Script::InTurn([json!(1), json!(2)].into()));
    let Expectation { state, outputs, calls, order, findings } = test.expect;
    assert_eq!(state, Some(ExecutionState::Completed));
    assert_eq!(Value::Object(outputs.unwrap()), json!({ "pay": { "id": 1 } }));
    assert_eq!((calls.len(), calls[0].times, calls[1].times), (2, None, Some(2)));
    assert_eq!(order, ["a", "b"]);
    assert_eq!(findings[0]["code"], "tool.failed");
    assert_eq!(findings[1]["message"], "busy");
}

#[test]
fn a_wrong_file_names_the_place_and_the_remedy() {
    for (text, expected) in [
        ("[]", "the file must be a map"),
        ("tests: []", "`plan` is missing: write a file, an id or the name of a saved plan"),
        ("plan: a.yaml", "`tests` is missing: write a list of tests"),
        ("plan: a.yaml\ntests: []", "`tests` is empty: write at least one test"),
        ("plan: a.yaml\ntest: []", "the file: `test` is unknown: did you mean `tests`?"),
        ("plan: a.yaml\ntests: [{ input: 1 }]", "`tests[0].name` is missing"),
        (
            "plan: a.yaml\ntests: [{ name: a }, { name: a }]",
            "`tests[1].name`: two tests are called `a`",
        ),
        (
            "plan: a.yaml\ntests: [{ name: a, record: plan_1_aaaaaaaaa }]",
            "`tests[0].record`: `plan_1_aaaaaaaaa` is no id of an execution",
        ),
        (
            "plan: a.yaml\ntests: [{ name: a, tools: { b: { error: { kind: 1 } } } }]",
            "`tests[0].tools.b.error`: `kind` is unknown: its keys are code, message, retryable",
        ),
        (
            "plan: a.yaml\ntests: [{ name: a, approvals: { b: 1 } }]",
            "`tests[0].approvals.b` must be `true` or `false`",
        ),
        (
            "plan: a.yaml\ntests: [{ name: a, expect: { state: COMPLETE } }]",
            "`tests[0].expect.state`: there is no state `COMPLETE`: did you mean `COMPLETED`?",
        ),
        (
            "plan: a.yaml\ntests: [{ name: a, expect: { calls: [{ tool: b, times: -1 }] } }]",
            "`tests[0].expect.calls[0].times` must be a whole number, 0 or more",
        ),
    ] {
        assert_eq!(read(text).unwrap_err(), expected, "{text}");
    }
}

/// Each key that the reader knows is in the schema, and the other way round.
#[test]
fn the_schema_has_the_keys_of_the_reader() {
    let schema = super::super::schema::test_file_schema();
    let keys = |schema: &Value| -> Vec<String> {
        let mut keys: Vec<String> =
            schema["properties"].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    let sorted = |known: &[&str]| {
        let mut known: Vec<String> = known.iter().map(|key| (*key).to_owned()).collect();
        known.sort();
        known
    };
    let test = &schema["properties"]["tests"]["items"];
    let expect = &test["properties"]["expect"];
    let alternative = |key: &str| expect["properties"][key]["items"]["anyOf"][1].clone();
    assert_eq!(keys(&schema), sorted(&FILE_KEYS));
    assert_eq!(keys(test), sorted(&TEST_KEYS));
    assert_eq!(keys(expect), sorted(&EXPECT_KEYS));
    assert_eq!(keys(&alternative("calls")), sorted(&CALL_KEYS));
    assert_eq!(keys(&alternative("findings")), sorted(&FINDING_KEYS));
}
