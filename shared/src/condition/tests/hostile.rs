//! Tests that no untrusted condition panics, overflows the stack, or needs much time.

use std::thread;

use proptest::prelude::*;
use serde_json::json;

use super::{TestValues, evaluate, test_values};
use crate::condition::{number::Number, *};

/// Runs `act` on a stack of 1 MiB.
fn on_a_small_stack<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(1 << 20);
        thread.spawn_scoped(scope, act).unwrap().join().unwrap()
    })
}

#[test]
fn deeply_nested_text_does_not_overflow_the_stack() {
    let n = limits::CONDITION_BYTES / 2 - 1;
    for (source, expected) in [
        (format!("{}1{}", "(".repeat(n), ")".repeat(n)), ConditionError::TooDeep),
        ("[".repeat(n), ConditionError::TooDeep),
        ("{1:".repeat(n / 2), ConditionError::TooDeep),
        (format!("1{}", "+1".repeat(n)), ConditionError::TooManyOperators),
        (format!("author{}", ".a".repeat(n - 6)), ConditionError::TooManyOperators),
        (format!("{}true", "!".repeat(n)), ConditionError::TooManyOperators),
        (format!("{}1", "1?1:".repeat(n / 2)), ConditionError::TooManyOperators),
        (format!("1{}", " in 1".repeat(n / 3)), ConditionError::TooManyOperators),
        (format!("1{}", "\nin\n1".repeat(n / 3)), ConditionError::TooManyOperators),
        (
            format!("0xbr\"\\\"{}\"", "(".repeat(n)),
            ConditionError::Syntax {
                line: 1,
                column: 5,
                reason: "a number and a string need an operator between them".to_owned(),
            },
        ),
        (
            " ".repeat(limits::CONDITION_BYTES + 1),
            ConditionError::TooLong { bytes: limits::CONDITION_BYTES + 1 },
        ),
    ] {
        let error = on_a_small_stack(|| Condition::parse(&source, &test_values()).err());
        assert_eq!(error, Some(expected), "{source}");
    }
}

#[test]
fn the_deepest_allowed_condition_needs_little_stack() {
    let depth = limits::CONDITION_DEPTH;
    let chain = limits::CONDITION_OPERATORS - 1;
    for source in [
        format!("{}true{}", "(".repeat(depth), ")".repeat(depth)),
        format!("{}1{} != 1", "[".repeat(depth), "]".repeat(depth)),
        format!("1{} > 0", "+1".repeat(chain)),
        format!("{}1 == 1", "1+".repeat(chain - depth - 1)),
        format!("true{}", "&&true".repeat(600)),
        format!("false{}", "&&false||true".repeat(300)),
        format!("{}true", "true?true:".repeat(chain)),
        format!(
            "{}{}1{} != 1",
            "[".repeat(depth),
            "1+".repeat(chain - depth - 1),
            "]".repeat(depth)
        ),
        format!("{}true", "!".repeat(chain - 1)),
        format!("{}[true]{}[0]", "[".repeat(depth - 1), "][0]".repeat(depth - 1)),
        format!("1{} == false", " in [1]".repeat(chain / 2)),
        format!("has(input{}) == false", ".a".repeat(chain - 3)),
    ] {
        let result = on_a_small_stack(|| evaluate(&source));
        assert!(result.is_ok() || source.contains("in"), "{source}: {result:?}");
    }
}

/// Parses and evaluates a condition twice, and checks that both results are equal, because a worker
/// parses a condition again that the compiler accepted.
fn check_without_panic(source: &str) -> Result<(), TestCaseError> {
    let world = test_values();
    let Ok(condition) = Condition::parse(source, &world) else { return Ok(()) };
    prop_assert_eq!(condition.source(), source);
    let again = Condition::parse(source, &world);
    prop_assert_eq!(
        again.map(|parsed| parsed.targets().to_vec()),
        Ok(condition.targets().to_vec())
    );
    let result = condition.evaluate(&world, &Value::Null);
    prop_assert_eq!(result, condition.evaluate(&world, &Value::Null));
    Ok(())
}

const VALID_CONDITIONS: [&str; 8] = [
    "steps[\"flow.echo\"].ok && author.age >= 42 || !has(author.x)",
    "list.filter(it, has(it.ok) && it.ok).map(it, it.n * 2)[0] == 2.5e1",
    "author.tags.all(t, t in ['a', \"b\\u0041\"]) ? input.x : false",
    "timestamp(author.at) - duration('1h') < timestamp(\"2026-01-31T08:00:00Z\")",
    "{'a': [1, 2u, 0x1F, -3]}.a[1] % 2 == 0 && author.name.matches(r'^\\w+$')",
    "list.exists_one(a, [a].exists(b, b.n == a.n)) && '''x''' + \"y\" != 'xy'",
    "size(author.tags) in [1, 2] && string(n).startsWith('3') // really",
    "((((1 + 2) * 3 - 4) / 5) % 6) <= 7 && [[{'x': {}}]][0][0].x == {}",
];

const TOKENS: [&str; 49] = [
    "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "!", "-", "+", "*", "/", "%", "<", "<=", ">",
    "==", "!=", "&&", "||", " in ", "author", "steps", "vars", "input", "list", "it", "has(",
    ".all(it,", ".map(it,", ".exists(", "size(", "true", "null", "1", "2.5", "7u", "0x", "1e",
    "'a'", "\"", "'''", "r'", "\\", "//", "\n",
];

proptest! {
    #[test]
    fn random_text_is_parsed_without_panic(source in "\\PC{0,200}") {
        check_without_panic(&source)?;
    }

    #[test]
    fn random_tokens_are_parsed_without_panic(
        tokens in proptest::collection::vec(proptest::sample::select(&TOKENS[..]), 0..60),
    ) {
        check_without_panic(&tokens.concat())?;
    }

    #[test]
    fn a_condition_with_one_corrupted_character_is_parsed_without_panic(
        good in proptest::sample::select(&VALID_CONDITIONS[..]),
        at in any::<proptest::sample::Index>(),
        length in 0_usize..6,
        other in prop_oneof![
            "\\PC{0,3}",
            proptest::sample::select(&TOKENS[..]).prop_map(str::to_owned),
        ],
    ) {
        let at = at.index(good.len());
        let after = (at + length).min(good.len());
        check_without_panic(&format!("{}{other}{}", &good[..at], &good[after..]))?;
    }

    #[test]
    fn integers_and_doubles_compare_exactly(left: i64, right: i64, half: bool) {
        let double = Number::Integer(right.into()).to_double();
        let double = if half { double + 0.5 } else { double };
        let world = TestValues(vec![("a", Some(json!(left))), ("b", Some(json!(double)))]);
        let holds = |source| Condition::parse(source, &world).unwrap().evaluate(&world, &Value::Null);
        let order = number::compare_exactly(left.into(), double).unwrap();
        prop_assert_eq!(holds("a < b"), Ok(order.is_lt()));
        prop_assert_eq!(holds("b > a"), Ok(order.is_lt()));
        prop_assert_eq!(holds("a == b"), Ok(order.is_eq()));
        prop_assert_eq!(holds("a >= b"), Ok(order.is_ge()));
    }

    #[test]
    fn a_large_integer_and_the_half_beside_it_are_ordered_exactly(left in -9_i64..9, right in -9_i32..9) {
        let world = TestValues(vec![("a", Some(json!(left))), ("b", Some(json!(f64::from(right) / 2.0)))]);
        let holds = |source| Condition::parse(source, &world).unwrap().evaluate(&world, &Value::Null);
        prop_assert_eq!(holds("a < b"), Ok(left * 2 < i64::from(right)));
        prop_assert_eq!(holds("a == b"), Ok(left * 2 == i64::from(right)));
        prop_assert_eq!(holds("a > b"), Ok(left * 2 > i64::from(right)));
    }
}

#[test]
fn the_sample_conditions_are_valid() {
    for source in VALID_CONDITIONS {
        Condition::parse(source, &test_values()).unwrap();
    }
}

/// Outputs for the tests: a long list, such as a loop may return, and a long text.
fn large_values() -> TestValues {
    let items: Vec<_> = (0..10_000).map(|n| json!({ "n": n, "ok": true, "tags": ["a"] })).collect();
    TestValues(vec![("l", Some(items.into())), ("t", Some("ab".repeat(250_000).into()))])
}

#[test]
fn a_macro_reads_a_list_of_ten_thousand_items() {
    let world = large_values();
    for source in [
        "l.all(it, it.ok && it.n >= 0 && 'a' in it.tags)",
        "l.filter(it, it.n % 2 == 0).map(it, it.n).size() == 5000",
        "l == l",
        "t.endsWith('ab') && !t.contains('bb') && t == t",
    ] {
        let condition = Condition::parse(source, &world).unwrap();
        assert_eq!(condition.evaluate(&world, &Value::Null), Ok(true), "{source}");
    }
}

#[test]
fn a_condition_that_exceeds_its_work_limit_is_stopped() {
    let world = large_values();
    let doubled = format!("['x']{}[0] == ''", ".map(x, x + x)".repeat(25));
    let longer = format!("[l]{}[0] == []", ".map(x, x + x)".repeat(25));
    for source in [
        "l.all(a, l.all(b, l.all(c, true)))",
        "l.exists(a, l.exists(b, a.n + b.n < 0))",
        "l.map(a, l).all(b, b == l)",
        "l.all(a, l == l)",
        "l.all(a, t.contains('ba'))",
        "l.all(a, t.matches('^(a|b)*$'))",
        "t.matches('^\\\\w*\\\\W\\\\w*$')",
        "l.map(a, t + t).size() == 1",
        "l.all(a, !(t in a))",
        "l.all(a, {t: 1}[t] == 1)",
        "l.all(a, {'': 1, t: 2} != null)",
        "l.all(a, size(t) > 0 && t <= t)",
        "l.exists(a, l.exists(b, a.missing || b.missing)) || false",
        "l.all(a, l.all(b, !(1 in l))) || true",
        &doubled,
        &longer,
    ] {
        let condition = Condition::parse(source, &world).unwrap();
        let result = condition.evaluate(&world, &Value::Null);
        let error = result.expect_err(source);
        assert!(error.starts_with("it takes too many operations"), "{source}: {error}");
    }
}
