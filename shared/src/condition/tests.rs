mod expressions;
mod hostile;

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;
use crate::id::StepNumber;

/// The ids and outputs of steps. The index of an item is the number of the step. The variable
/// `city` is the city of the first output.
struct TestValues(Vec<(&'static str, Option<Value>)>);

impl ResolveNames for TestValues {
    fn find_step(&self, name: &str) -> Option<StepNumber> {
        self.0.iter().position(|(id, _)| *id == name).map(StepNumber::new)
    }

    fn find_tool_step(&self, name: &str) -> Option<StepNumber> {
        matches!(name, "createAuthor" | "blog.createAuthor").then(|| StepNumber::new(0))
    }
}

impl LookUpValues for TestValues {
    fn find_value(&self, target: &Target) -> Option<&Value> {
        if let Target::Step(step) = target {
            return self.0.get(step.get())?.1.as_ref();
        }
        let is_city = matches!(target, Target::Variable(name) if &**name == "city");
        is_city.then(|| self.0[0].1.as_ref()?.get("city"))?
    }
}

fn test_values() -> TestValues {
    let author = json!({
        "name": "Alice", "city": "Rome", "age": 42, "one": 1.0, "half": 0.5, "active": true,
        "nul": null, "tags": ["a", "b"], "mixed": [1, 2.0, "x"], "home page": "https://a.test",
        "big": 18_446_744_073_709_551_615_u64, "large": 9_007_199_254_740_993_i64,
        "address": { "zip": "00100" }, "at": "2026-01-31T08:00:00Z", "empty": [],
    });
    TestValues(vec![
        ("author", Some(author)),
        ("list", Some(json!([{ "ok": true, "n": 1 }, { "ok": false, "n": 2 }, { "n": 3 }]))),
        ("flow.echo", Some(json!({ "ok": true }))),
        ("skipped", Some(Value::Null)),
        ("failed", None),
        ("n", Some(json!(3))),
        ("package", Some(json!(7))),
        ("int", Some(json!("a step"))),
    ])
}

fn evaluate(source: &str) -> Result<bool, String> {
    let world = test_values();
    let condition =
        Condition::parse(source, &world).unwrap_or_else(|error| panic!("{source}: {error}"));
    condition.evaluate(&world, &json!({ "dry": false, "limit": 10 }))
}

#[track_caller]
fn assert_all_hold(sources: &[&str]) {
    for source in sources {
        assert_eq!(evaluate(source), Ok(true), "{source}");
        assert_eq!(evaluate(&format!("!({source}\n)")), Ok(false), "not {source}");
    }
}

#[test]
fn names_resolve_to_steps_variables_and_the_input() {
    assert_all_hold(&[
        "author.name == \"Alice\"",
        "steps.author.name == 'Alice'",
        "steps[\"author\"].name == 'Alice'",
        "steps[\"flow.echo\"].ok",
        "steps.package == 7",
        "steps['int'] == 'a step'",
        "createAuthor.name == 'Alice'",
        "steps['blog.createAuthor'].name == 'Alice'",
        "vars.city == 'Rome' && vars[\"city\"] == 'Rome'",
        "input.limit == 10 && !input.dry",
        "has(vars.city) && !has(vars.town)",
        "has(steps.author) && steps[\"flow.echo\"] != null",
        "author.address.zip == '00100' && author['home page'].startsWith('https://')",
    ]);
}

#[test]
fn a_step_without_output_is_null() {
    assert_all_hold(&[
        "skipped == null",
        "failed == null",
        "steps.failed == null && author.nul == null",
        "!has(steps.skipped) && !has(steps.failed)",
        "!has(skipped.anything) && !has(failed.a)",
        "skipped == null || skipped.ok",
        "author != null",
    ]);
}

#[test]
fn integers_and_doubles_compare_by_value() {
    assert_all_hold(&[
        "author.one == 1 && 1 == author.one && author.one == 1u",
        "author.age == 42.0 && author.age > 41.5 && 42.5 > author.age",
        "author.big == 18446744073709551615u && author.big > 9223372036854775807",
        "author.big > -1 && -1 < author.big",
        "author.large != 9007199254740992.0 && author.large > 9007199254740992.0",
        "author.mixed == [1.0, 2, 'x'] && 2 in author.mixed && 1.0 in author.mixed",
        "{'a': 1} == {'a': 1.0}",
        "author.age + author.half == 42.5 && author.age * 2 == 84 && n - 5 == -2",
        "n / 2 == 1 && n % 2 == 1 && 4.0 % 2 == 0 && 1 / 2.0 == author.half",
        "-n == -3 && -author.half < 0",
        "author.tags[1.0] == 'b'",
        "9223372036854775807 + 1 == 9223372036854775808u",
        "0.0 / 0.0 != 0.0 / 0.0 && !(0.0 / 0.0 < 1)",
    ]);
}

#[test]
fn standard_functions_return_the_values_of_cel() {
    assert_all_hold(&[
        "size(author.tags) == 2 && author.tags.size() == 2 && size('añb') == 3",
        "size(author.address) == 1 && size(author.empty) == 0",
        "'a' in author.tags && !('c' in author.tags) && 'zip' in author.address",
        "author.name.contains('lic') && author.name.endsWith('e')",
        "author.name.matches('^[A-Z][a-z]+$') && matches(author.name, \"(?i)ALICE\")",
        "'a@b.example'.matches('^\\\\w+@\\\\w+[.]\\\\w+$')",
        "int('12') == 12 && int(2.9) == 2 && uint('3') == 3 && double('1.5') == 1.5",
        "string(author.age) == '42' && string(true) == 'true' && bool('true')",
        "type(author.age) == type(1) && type(author.name) == string && type(author) == map",
        "type(author.half) == double && type(author.nul) == null_type && type(type(1)) == type",
        "dyn(author.active)",
        "author.age > 40 ? author.active : false",
        "[1, 2] + [3] == [1, 2, 3] && 'a' + 'b' == 'ab'",
        "{'a': 1, 2: 'b'}[2] == 'b' && {'a': {'b': true}}.a.b",
        "true && !!true // and a comment",
        "r\"\\d\" == '\\\\d' && '''a'b''' == \"a'b\"",
        "'a' < 'b' && false < true",
    ]);
}

#[test]
fn times_can_be_compared_and_added() {
    assert_all_hold(&[
        "timestamp(author.at) < timestamp('2026-02-01T00:00:00+01:00')",
        "timestamp(author.at) - timestamp('2026-01-31T06:30:00Z') == duration('1h30m')",
        "timestamp(author.at) + duration('1.5s') > timestamp(author.at)",
        "timestamp(author.at) - duration('8h') == timestamp('2026-01-31T00:00:00Z')",
        "duration('90m') == duration('1h') + duration('30m') && duration('-1s') < duration('0s')",
        "string(timestamp(author.at)) == author.at && timestamp(int(timestamp(author.at))) == timestamp(author.at)",
    ]);
}

#[test]
fn macro_variables_hide_other_names() {
    assert_all_hold(&[
        "author.tags.all(it, it.size() == 1)",
        "list.exists(it, it.n == 2) && !list.exists(it, it.n == 4)",
        "list.exists_one(it, it.n > 2) && !list.exists_one(it, it.n > 1)",
        "list.filter(it, has(it.ok) && it.ok).size() == 1",
        "list.map(it, it.n) == [1, 2, 3] && list.map(it, it.n > 1, it.n * 2) == [4, 6]",
        "list.all(author, author.n > 0)",
        "[1, 2].all(x, [1, 2, 3].exists(y, y == x + 1 && [x].all(x, x > 0)))",
        "author.address.all(key, key == 'zip') && {'a': 1}.map(key, key) == ['a']",
        "author.empty.all(it, false) && !author.empty.exists(it, true)",
        "[{'x': 1}].all(steps, steps.x == 1)",
    ]);
}

#[test]
fn a_logical_operator_ignores_an_error_if_the_other_side_decides() {
    assert_all_hold(&[
        "author.missing || true",
        "true || author.missing",
        "!(author.missing && false)",
        "list.exists(it, it.ok)",
        "!list.all(it, it.ok)",
        "list.map(it, it.n)[0] == 1 || author.missing",
    ]);
    assert!(evaluate("author.missing || false").is_err());
    assert!(evaluate("list.filter(it, it.n > 1).exists(it, it.ok)").is_err());
}

#[test]
fn targets_list_each_referenced_step_and_variable_once() {
    let step = |index| Target::Step(StepNumber::new(index));
    for (source, targets) in [
        ("author.age > 1 && steps.author.age < createAuthor.age", vec![step(0)]),
        ("steps['flow.echo'].ok || has(steps.list)", vec![step(2), step(1)]),
        ("has(vars.x) && vars['x'] == n", vec![Target::Variable("x".into()), step(5)]),
        ("input.dry", vec![]),
        ("[1].all(author, author > 0)", vec![]),
        ("has(author.name)", vec![step(0)]),
    ] {
        let condition = Condition::parse(source, &test_values()).unwrap();
        assert_eq!(condition.targets(), targets, "{source}");
        assert_eq!(condition.source(), source);
    }
}

#[test]
fn a_condition_is_cheap_to_share_and_equal_by_its_text() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    let condition = Condition::parse("author.active", &test_values()).unwrap();
    shared(&condition);
    assert_eq!(condition, Condition::parse("author.active", &test_values()).unwrap());
    assert_ne!(condition, Condition::parse("author.active ", &test_values()).unwrap());
}

fn check_outcome(source: &str, expected: &Expect) {
    let output = match Condition::parse(source, &test_values()) {
        Ok(_) => evaluate(source).map_or_else(|error| error, |holds| format!("it is {holds}")),
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&output);
}

#[test]
fn evaluation_errors_are_explained() {
    check_outcome(
        "author.missing == 1",
        &expect!["`author` has no `missing`; check `has(author.missing)` first"],
    );
    check_outcome(
        "steps[\"flow.echo\"].done",
        &expect![[
            r#"`steps["flow.echo"]` has no `done`; check `has(steps["flow.echo"].done)` first"#
        ]],
    );
    check_outcome(
        "author['not there'] == 1",
        &expect![[r#"`author` has no `not there`; check `"not there" in author` first"#]],
    );
    check_outcome(
        "author[author.name] == 1",
        &expect![[r#"`author` has no `Alice`; check `"Alice" in author` first"#]],
    );
    check_outcome(
        "skipped.ok",
        &expect![
            "`skipped` is null, as is the output of a skipped step, and has no `ok`; check `skipped != null` first"
        ],
    );
    check_outcome(
        "author.name.first == 'A'",
        &expect!["`author.name` is a string and has no `first`"],
    );
    check_outcome(
        "author.tags[2] == 'c'",
        &expect![
            "`author.tags` has no item 2: there are 2, counted from 0; check `size(author.tags)` first"
        ],
    );
    check_outcome(
        "author.tags[-1] == 'c'",
        &expect![
            "`author.tags` has no item -1: there are 2, counted from 0; check `size(author.tags)` first"
        ],
    );
    check_outcome("author.tags['0'] == 'c'", &expect!["`author.tags` is a list and has no `0`"]);
    check_outcome("list[0.5] == 'c'", &expect!["`0.5` is a number, not a whole number"]);
    check_outcome(
        "vars.town == 'Rome'",
        &expect!["`vars.town` has no value; check `has(vars.town)` first"],
    );
    check_outcome("author.name", &expect!["its value is a string, neither true nor false"]);
    check_outcome("author.name && true", &expect!["`author.name` is a string, not true or false"]);
    check_outcome(
        "author.age > '41'",
        &expect![[r#"`>` takes no number and string (`author.age` > `"41"`)"#]],
    );
    check_outcome(
        "author.name + 1 == 'Alice1'",
        &expect!["`+` takes no string and number (`author.name` + `1`)"],
    );
    check_outcome(
        "'lic' in author.name",
        &expect![[
            r#"`in` takes no string and string (`"lic"` in `author.name`); write `text.contains(part)`"#
        ]],
    );
    check_outcome(
        "author.tags.contains('a')",
        &expect!["`contains` of `author.tags`: looks into strings; write `x in list` for lists"],
    );
    check_outcome("author.age / 0 == 1", &expect!["`/`: division by zero"]);
}

#[test]
fn calculation_errors_are_explained() {
    check_outcome("author.big + 1 > 0", &expect!["`+`: the result is too large"]);
    check_outcome("author.half % 2 == 0", &expect!["`%`: needs whole numbers"]);
    check_outcome(
        "int('12x') == 12",
        &expect![[r#"`int` of `"12x"`: `12x` is not a 64-bit integer"#]],
    );
    check_outcome(
        "timestamp('yesterday') == null",
        &expect![[
            r#"`timestamp` of `"yesterday"`: `yesterday` is not a time such as `2026-01-31T08:00:00Z`"#
        ]],
    );
    check_outcome(
        "size(n) == 1",
        &expect!["`size` of `n`: needs a string, a list or an object, and got a number"],
    );
    check_outcome("n.all(it, true)", &expect!["`n` is a number, not a list or an object"]);
    check_outcome("{'a': 1, 'a': 2} == null", &expect!["a map has one key twice"]);
    check_outcome("{1.5: 1} == null", &expect!["a number cannot be the key of a map"]);
    check_outcome("list.all(it, it.ok)", &expect!["it is false"]);
}

#[test]
fn syntax_and_name_errors_are_reported_when_parsing() {
    check_outcome("", &expect!["error: line 1, column 1: it ends too early"]);
    check_outcome("author.age >", &expect!["error: line 1, column 13: it ends too early"]);
    check_outcome(
        "author.age = 1",
        &expect!["error: line 1, column 12: `=` does not compare; write `==`"],
    );
    check_outcome(
        "author.age == 1 & true",
        &expect!["error: line 1, column 17: `&` is not an operator; write `&&`"],
    );
    check_outcome(
        "author.name == \"Alice",
        &expect!["error: line 1, column 22: a string is not closed"],
    );
    check_outcome(
        "author.name == 'a\\q'",
        &expect![[r"error: line 1, column 18: `\` begins no known escape"]],
    );
    check_outcome("author.age == 1\n  && )", &expect!["error: line 2, column 6: unexpected token"]);
    check_outcome("athor.age == 1", &expect!["error: `athor` names no step of the plan"]);
    check_outcome("steps.athor.age == 1", &expect!["error: `athor` names no step of the plan"]);
    check_outcome("steps['flow.eco'].ok", &expect!["error: `flow.eco` names no step of the plan"]);
    check_outcome(
        "flow.echo.ok",
        &expect![[r#"error: `flow.echo` has a dot in its name; write `steps["flow.echo"]`"#]],
    );
    check_outcome("item == 1", &expect!["error: `item` names no step of the plan"]);
    check_outcome(
        "steps[author.name].ok",
        &expect![
            "error: `steps[…]` needs a name in quotes, so that the plan shows which value it reads"
        ],
    );
    check_outcome(
        "size(steps) == 1",
        &expect![[r#"error: `steps` has no value by itself; write `steps.x` or `steps["x"]`"#]],
    );
    check_outcome(
        "has(vars)",
        &expect!["error: line 1, column 5: `has` needs a field, as in `has(a.b)`"],
    );
    check_outcome(
        "has(author)",
        &expect!["error: line 1, column 5: `has` needs a field, as in `has(a.b)`"],
    );
}

#[test]
fn wrong_calls_are_reported_when_parsing() {
    check_outcome(
        "package == 7",
        &expect![[
            r#"error: line 1, column 1: `package` is a word of CEL; write `steps["package"]`"#
        ]],
    );
    check_outcome(
        "author.name.upper() == 'ALICE'",
        &expect!["error: there is no function `upper`"],
    );
    check_outcome("size(1, 2) == 1", &expect!["error: `size` takes 1 argument"]);
    check_outcome(
        "list.all(it.x, true)",
        &expect![
            "error: line 1, column 12: a name for the item comes first, as in `list.all(it, it > 0)`"
        ],
    );
    check_outcome("list.all(it)", &expect!["error: `all` takes 2 arguments"]);
    check_outcome(
        "author.name.matches(author.city)",
        &expect![[
            r#"error: `matches` needs its pattern written out, as in `a.matches("^[a-z]+$")`"#
        ]],
    );
    check_outcome(
        "author.name.matches('(')",
        &expect!["error: the pattern of `matches`: unclosed group"],
    );
    check_outcome(
        "author.name.matches('(a{1000}){1000}')",
        &expect!["error: the pattern of `matches`: it becomes too large; repeat less"],
    );
    check_outcome("b'abc' == b'abc'", &expect!["error: expressions have no bytes"]);
    check_outcome("Author{name: 'x'} == 1", &expect!["error: expressions have no `Author {…}`"]);
    check_outcome(
        "author.?name == 1",
        &expect!["error: line 1, column 7: unsupported syntax '.?'"],
    );
    check_outcome(
        "'Alice'",
        &expect!["error: its value is neither true nor false; compare the value with something"],
    );
    check_outcome(
        "author.age + 1",
        &expect!["error: its value is neither true nor false; compare the value with something"],
    );
    check_outcome(
        "author.name == {{author.name}}",
        &expect!["error: line 1, column 29: expected ':' in map entry"],
    );
    check_outcome(
        "author.name == ünknown",
        &expect!["error: line 1, column 16: `ü` is not allowed here"],
    );
    check_outcome(".author.active", &expect!["error: `.author` names no step of the plan"]);
    check_outcome(
        "99999999999999999999 == 1",
        &expect!["error: line 1, column 1: invalid int literal"],
    );
}

#[test]
fn the_cost_of_a_pattern_is_its_compiled_size() {
    let cost = |source: &str| Condition::parse(source, &test_values()).unwrap().pattern_cost();
    assert_eq!(cost("author.active"), 0);
    assert_eq!(cost("author.name.matches('a') && author.name.matches('b')"), 2_000);
    let repeated = |n: usize| format!("author.name.matches('a{{{n}}}')");
    let large = [500, 1_000, 2_000, 4_000].map(repeated);
    let large = large.iter().filter_map(|source| Condition::parse(source, &test_values()).ok());
    assert_eq!(large.map(|condition| condition.pattern_cost()).max(), Some(limits::PATTERN_COST));
}

#[test]
fn a_condition_lists_the_values_that_it_read() {
    let world = test_values();
    let input = json!({ "dry": false });
    let read = |source: &str| {
        let condition = Condition::parse(source, &world).unwrap();
        let read = condition.values_read(&world, &input);
        let values = read.iter().map(|(place, value)| match value {
            Some(value) => format!("{place}={value}"),
            None => format!("{place} is missing"),
        });
        values.collect::<Vec<_>>().join(" ")
    };
    for (source, expected) in [
        ("author.age > 50 && author.age < 60", "author.age=42"),
        ("list[0].n == 2 || input.dry", "list[0].n=1 input.dry=false"),
        ("steps[\"flow.echo\"].ok == false", "steps[\"flow.echo\"].ok=true"),
        (
            "author[\"home page\"] == \"x\" && vars.city == \"x\"",
            "author[\"home page\"]=\"https://a.test\" vars.city=\"Rome\"",
        ),
        ("author.address.zip.size() > 9", "author.address.zip=\"00100\""),
        ("author.nothing == 1", "author.nothing is missing"),
        (
            "list.exists(x, x.n > 5)",
            "list=[{\"ok\":true,\"n\":1},{\"ok\":false,\"n\":2},{\"n\":3}]",
        ),
        ("!has(author.age)", "author.age=42"),
        ("false", ""),
    ] {
        assert_eq!(read(source), expected, "{source}");
    }
}
