use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::{
    condition::{Expression, ExpressionError},
    json,
};

fn values() -> Map<String, Value> {
    let values = json!({
        "n": [3, 1, 2], "half": [0.5, 1], "words": ["b", "a", "ä"], "none": [], "mixed": [1, "a"],
        "deep": [[1], 2, [], [[3]]], "text": "a,b,,c", "big": [18_446_744_073_709_551_615_u64, 1],
        "same": [1, 1.0, "1", {"a": 1, "b": 2}, {"b": 2, "a": 1.0}, [1], [1.0], null, null],
        "at": "2026-01-31T08:00:00Z", "steps": 1, "item": {"price": 2.5}, "long": "x".repeat(200_000),
    });
    values.as_object().cloned().unwrap()
}

fn parse(source: &str) -> Result<Expression, ExpressionError> {
    let values = values();
    Expression::parse(source, &|name| values.contains_key(name))
}

fn compute(source: &str) -> Result<Value, String> {
    parse(source).map_err(|err| format!("error: {err}"))?.evaluate(&values())
}

#[track_caller]
fn assert_results(cases: &[(&str, &str)]) {
    for (source, expected) in cases {
        let result = compute(source).map_or_else(|error| error, |value| value.to_string());
        assert_eq!(result, *expected, "{source}");
    }
}

#[test]
fn an_expression_can_return_any_json_value() {
    assert_results(&[
        ("n", "[3,1,2]"),
        ("item.price * 2", "5.0"),
        ("7 / 2", "3"),
        ("9223372036854775807 + 1", "9223372036854775808"),
        ("{'a': [true, null], 1: 2.0, true: 'x'}", r#"{"a":[true,null],"1":2.0,"true":"x"}"#),
        ("n.map(x, {'n': x})", r#"[{"n":3},{"n":1},{"n":2}]"#),
        ("size(n) > 2 ? 'many' : 'few'", r#""many""#),
        ("timestamp(at) + duration('90m')", r#""2026-01-31T09:30:00Z""#),
        ("[duration('90m'), duration('-1.5s'), duration('0s')]", r#"["5400s","-1.5s","0s"]"#),
        ("type(n)", r#""list""#),
        ("steps + 1", "2"),
        ("0.0 / 0", "the result contains `NaN`, which JSON cannot express"),
        ("[1.0 / 0]", "the result contains `inf`, which JSON cannot express"),
        ("{1: 'a', '1': 'b'}", "the result has the key `1` twice"),
    ]);
}

#[test]
fn sum_is_exact_for_integers_and_like_plus_for_doubles() {
    assert_results(&[
        ("sum(n)", "6"),
        ("n.sum()", "6"),
        ("sum([])", "0"),
        ("sum(half)", "1.5"),
        ("sum([0.1, 0.2, 0.3]) == 0.1 + 0.2 + 0.3", "true"),
        ("sum([18446744073709551615u, 1, -2])", "18446744073709551614"),
        ("sum(big)", "`sum` of `big`: the result is too large"),
        ("sum(mixed)", "`sum` of `mixed`: item 1 is a string, not a number"),
        ("sum([null])", "`sum` of `[…]`: item 0 is null, not a number"),
        ("sum(text)", "`sum` of `text`: needs a list, and got a string"),
        ("sum(1, 2)", "error: line 1, column 1: `sum` takes 1 argument"),
    ]);
}

#[test]
fn min_and_max_need_values_of_one_kind() {
    assert_results(&[
        ("[min(n), max(n), n.min(), n.max()]", "[1,3,1,3]"),
        ("min(2, 1.5, 3)", "1.5"),
        ("max('a', 'b')", r#""b""#),
        ("[min([1, 1.0]), max([1.0, 1])]", "[1,1.0]"),
        ("max([false, true])", "true"),
        ("min([timestamp(at), timestamp(0)])", r#""1970-01-01T00:00:00Z""#),
        ("min(none)", "`min` of `none`: the list is empty; check `size(list) > 0` first"),
        ("max(mixed)", "`max` of `mixed`: item 1 is a string, and item 0 is a number"),
        ("max([[1]])", "`max` of `[…]`: item 0 is a list, which has no order"),
        ("max([1, 0.0 / 0])", "`max` of `[…]`: item 1 is a number, which has no order"),
        ("min()", "error: line 1, column 1: `min` takes at least 1 argument"),
        ("n.min(1)", "error: line 1, column 3: `min` takes 0 arguments"),
    ]);
}

#[test]
fn sort_and_distinct_keep_the_order_of_equal_items() {
    assert_results(&[
        ("sort(n)", "[1,2,3]"),
        ("words.sort()", r#"["a","b","ä"]"#),
        ("sort([2, 1.0, 1])", "[1.0,1,2]"),
        ("sort(none)", "[]"),
        ("sort(mixed)", "`sort` of `mixed`: item 1 is a string, and item 0 is a number"),
        ("sort([{}])", "`sort` of `[…]`: item 0 is an object, which has no order"),
        ("sort([null, null])", "`sort` of `[…]`: item 0 is null, which has no order"),
        ("distinct(same)", r#"[1,"1",{"a":1,"b":2},[1],null]"#),
        ("none.distinct()", "[]"),
        ("size(distinct([0.0 / 0, 0.0 / 0, 0.0, -0.0]))", "3"),
        ("distinct(text)", "`distinct` of `text`: needs a list, and got a string"),
    ]);
}

#[test]
fn join_split_and_flatten_return_the_documented_lists_and_texts() {
    assert_results(&[
        ("join(words, ', ')", r#""b, a, ä""#),
        ("words.join()", r#""baä""#),
        ("join([1, 2.5, true, timestamp(at)], ' ')", r#""1 2.5 true 2026-01-31T08:00:00Z""#),
        ("join(none, ',')", r#""""#),
        (
            "join([null], ',')",
            "`join` of `[…]`: item 0 is null, neither a string, a number, a boolean nor a timestamp",
        ),
        ("join(words, 1)", "`join` of `words`: needs a string between the items, and got a number"),
        ("split(text, ',')", r#"["a","b","","c"]"#),
        ("text.split('')", r#"["a",",","b",",",",","c"]"#),
        ("[split('', ','), split('', '')]", r#"[[""],[]]"#),
        ("('x' + text).split(',')[0]", r#""xa""#),
        ("split(n, ',')", "`split` of `n`: needs two strings, and got a list and a string"),
        ("split(text)", "error: line 1, column 1: `split` takes 2 arguments"),
        ("flatten(deep)", "[1,2,[3]]"),
        ("deep.flatten().flatten()", "[1,2,3]"),
        ("flatten(none)", "[]"),
        ("flatten(item)", "`flatten` of `item`: needs a list, and got an object"),
    ]);
}

#[test]
fn list_functions_are_available_in_conditions() {
    assert_all_hold(&[
        "sum(list.map(x, x.n)) == 6 && max(author.tags) == 'b'",
        "join(sort(distinct(author.tags)), '-') == 'a-b'",
        "min([true, false]) == false && author.name.split('l')[0] == 'A'",
        "[[1], [2]].flatten() == [1, 2]",
    ]);
    check_outcome(
        "sum([1])",
        &expect!["error: its value is neither true nor false; compare the value with something"],
    );
    check_outcome("min([true])", &expect!["it is true"]);
}

#[test]
fn an_error_of_an_expression_names_the_place() {
    assert_results(&[
        ("1 + price", "error: line 1, column 5: `price` is not a field of `values`"),
        ("item.other +\n other", "error: line 2, column 2: `other` is not a field of `values`"),
        ("'price' + price", "error: line 1, column 11: `price` is not a field of `values`"),
        ("n.total()", "error: line 1, column 3: there is no function `total`"),
        ("sum(n", "error: line 1, column 6: it ends too early"),
        ("", "error: line 1, column 1: it ends too early"),
        (
            "package",
            "error: line 1, column 1: `package` is a word of CEL; give the value another name",
        ),
        ("text.matches('(')", "error: line 1, column 6: the pattern of `matches`: unclosed group"),
        ("input", "error: line 1, column 1: `input` is not a field of `values`"),
        ("b'x'", "error: expressions have no bytes"),
        ("n[3]", "`n` has no item 3: there are 3, counted from 0; check `size(n)` first"),
    ]);
}

#[test]
fn an_expression_stops_at_the_limits_of_work_and_result_size() {
    let work = "it takes too many operations, more than 1000000; use fewer items, or let a step \
                prepare them";
    let size = "the result has more than 1048576 bytes; return less";
    let doubled = format!("[n]{}", ".map(x, [x, x])".repeat(30));
    for (source, expected) in [
        ("long.split('').map(x, long.split(''))", work),
        ("long.split('').map(x, sort([long, long]))", work),
        ("long.split('').map(x, join([long, long]))", work),
        ("long.split('').map(x, distinct([long, long]))", work),
        ("[long, long, long, long, long, long]", size),
        (doubled.as_str(), size),
    ] {
        assert_eq!(compute(source), Err(expected.to_owned()), "{source}");
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-c,]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::vec(("[a-c]", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

const CALLS: [&str; 14] = [
    "sum(@)",
    "min(@)",
    "max(@)",
    "join(@)",
    "join(@, ',')",
    "split(@, ',')",
    "split(@, '')",
    "sort(@)",
    "distinct(@)",
    "flatten(@)",
    "[@]",
    "[@, v]",
    "{'k': @}",
    "@.map(x, [x, v])",
];

proptest! {
    #[test]
    fn random_calls_on_random_values_do_not_panic(
        value in any_value(),
        calls in proptest::collection::vec(proptest::sample::select(&CALLS[..]), 0..8),
    ) {
        let source = calls.iter().fold("v".to_owned(), |inner, call| call.replace('@', &inner));
        let values = Map::from_iter([("v".to_owned(), value)]);
        let Ok(expression) = Expression::parse(&source, &|name| name == "v") else { return Ok(()) };
        let result = expression.evaluate(&values);
        prop_assert_eq!(&result, &expression.evaluate(&values));
        if let Ok(result) = result {
            prop_assert!(json::json_size(&result) <= limits::OUTPUT_BYTES);
            prop_assert!(!json::is_deeper_than(&result, limits::JSON_DEPTH));
        }
    }

    #[test]
    fn list_functions_agree_with_rust(numbers in proptest::collection::vec(-9_i64..9, 0..40)) {
        let run = |source| {
            let values = Map::from_iter([("v".to_owned(), json!(numbers))]);
            Expression::parse(source, &|_| true).unwrap().evaluate(&values).ok()
        };
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        prop_assert_eq!(run("sort(v)"), Some(json!(sorted)));
        prop_assert_eq!(run("sum(v)"), Some(json!(numbers.iter().sum::<i64>())));
        prop_assert_eq!(run("min(v)"), numbers.iter().min().map(|least| json!(least)));
        prop_assert_eq!(run("max(v)"), numbers.iter().max().map(|most| json!(most)));
        sorted.dedup();
        prop_assert_eq!(run("sort(distinct(v))"), Some(json!(sorted)));
        prop_assert_eq!(run("split(join(v, ','), ',').map(x, int(x))"),
            Some(json!(numbers)).filter(|_| !numbers.is_empty()));
    }

    #[test]
    fn random_text_is_parsed_without_panic(source in "\\PC{0,80}") {
        if let Ok(expression) = parse(&source) {
            let _ = expression.evaluate(&values());
        }
    }
}
