use executor::call_limits::{CallLimits, LimitRule, LimitedCalls};
use planner::suggest::did_you_mean;
use serde_json::{Map, Value};
use shared::store::Rate;

const RULE_KEYS: [&str; 5] = ["tool", "toolset", "key", "concurrency", "rate"];
/// Maximum number of rules. It is limited because each call is matched with each rule.
const MAX_RULES: usize = 1_000;

pub(super) fn read(value: &Value) -> Result<CallLimits, String> {
    let Value::Array(items) = value else {
        let hint = "write `[{ tool: shop.charge, rate: 100/min }]`";
        return Err(format!("`limits.calls` must be a list: {hint}"));
    };
    if items.len() > MAX_RULES {
        return Err(format!("`limits.calls` has {} rules; the limit is {MAX_RULES}", items.len()));
    }
    let rules = items.iter().enumerate().map(|(index, item)| {
        read_rule(item).map_err(|error| format!("`limits.calls[{index}]`: {error}"))
    });
    Ok(CallLimits::new(rules.collect::<Result<_, _>>()?))
}

fn read_rule(item: &Value) -> Result<LimitRule, String> {
    let Value::Object(fields) = item else {
        return Err("write a map such as `{ tool: shop.charge, concurrency: 2 }`".to_owned());
    };
    if let Some(key) = fields.keys().find(|key| !RULE_KEYS.contains(&key.as_str())) {
        let help = did_you_mean(key, RULE_KEYS)
            .unwrap_or_else(|| format!("there are `{}`", RULE_KEYS.join("`, `")));
        return Err(format!("`{key}` is unknown: {help}"));
    }
    let rule = LimitRule {
        calls: read_limited_calls(fields)?,
        key: match read_text(fields, "key")? {
            Some(path) => Some(path.parse().map_err(|err| format!("`key` is not a path: {err}"))?),
            None => None,
        },
        concurrency: read_concurrency(fields.get("concurrency"))?,
        rate: match read_text(fields, "rate")? {
            Some(text) => Some(parse_rate(text).ok_or_else(|| invalid_rate_message(text))?),
            None => None,
        },
    };
    if rule.concurrency.is_none() && rule.rate.is_none() {
        let reason = "the rule limits nothing: write `concurrency: 2`, `rate: 100/min`, or both";
        return Err(reason.to_owned());
    }
    Ok(rule)
}

fn read_limited_calls(fields: &Map<String, Value>) -> Result<LimitedCalls, String> {
    match (read_text(fields, "tool")?, read_text(fields, "toolset")?) {
        (Some(tool), None) if tool.contains('.') => {
            let tool = tool.parse().map_err(|err: shared::id::ParseIdError| err.to_string())?;
            Ok(LimitedCalls::Tool(tool))
        }
        (Some(tool), None) => {
            Err(format!("`{tool}` does not name its toolset: write `set.{tool}`"))
        }
        (None, Some(set)) => {
            let set = set.parse().map_err(|err: shared::id::ParseIdError| err.to_string())?;
            Ok(LimitedCalls::Set(set))
        }
        _ => Err("write exactly one of `tool: set.name` and `toolset: name`".to_owned()),
    }
}

fn read_text<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(format!("`{key}` is {other}; write a string")),
    }
}

fn read_concurrency(value: Option<&Value>) -> Result<Option<u32>, String> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let maximum =
        value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
    maximum
        .map(Some)
        .ok_or_else(|| format!("`concurrency` is {value}; write a whole number from 1"))
}

pub(super) fn parse_rate(text: &str) -> Option<Rate> {
    let (calls, unit) = text.split_once('/')?;
    let calls = calls.trim().parse().ok().filter(|number| *number > 0)?;
    let per_ms = match unit.trim() {
        "s" | "sec" | "second" => 1_000,
        "m" | "min" | "minute" => 60_000,
        "h" | "hour" => 3_600_000,
        "d" | "day" => 86_400_000,
        _ => return None,
    };
    Some(Rate { calls, per_ms })
}

fn invalid_rate_message(text: &str) -> String {
    format!("`rate` is `{text}`; write a rate, such as `5/s`, `100/min`, `1000/h` or `1/day`")
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_names_calls_and_their_limits() {
        let written = json!([
            { "tool": "shop.charge", "key": "customer.id", "concurrency": 2, "rate": "100 / min" },
            { "toolset": "shop", "rate": "5/s" },
        ]);
        let limits = read(&written).unwrap();
        let tool = "shop.charge".parse().unwrap();
        let call_limits = limits.limits_of_call(&tool, &json!({ "customer": { "id": 7 } }));
        let parsed_rules: Vec<_> = call_limits
            .iter()
            .map(|limit| (limit.key.as_str(), limit.concurrency, limit.rate))
            .collect();
        let (minute, second) =
            (Rate { calls: 100, per_ms: 60_000 }, Rate { calls: 5, per_ms: 1_000 });
        assert_eq!(
            parsed_rules,
            [
                ("tool:shop.charge/customer.id=7", Some(2), Some(minute)),
                ("set:shop", None, Some(second)),
            ]
        );
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read best inline")]
    fn check_refused(written: Value, expected: Expect) {
        expected.assert_eq(&read(&written).unwrap_err());
    }

    #[test]
    fn a_wrong_limit_rule_is_rejected() {
        check_refused(
            json!({}),
            expect![
                "`limits.calls` must be a list: write `[{ tool: shop.charge, rate: 100/min }]`"
            ],
        );
        check_refused(
            json!([{ "tool": "charge", "rate": "1/s" }]),
            expect!["`limits.calls[0]`: `charge` does not name its toolset: write `set.charge`"],
        );
        check_refused(
            json!([{ "tool": "a.b" }]),
            expect![
                "`limits.calls[0]`: the rule limits nothing: write `concurrency: 2`, `rate: \
                 100/min`, or both"
            ],
        );
        check_refused(
            json!([{ "rate": "1/s" }]),
            expect!["`limits.calls[0]`: write exactly one of `tool: set.name` and `toolset: name`"],
        );
        check_refused(
            json!([{ "tool": "a.b", "toolset": "a", "rate": "1/s" }]),
            expect!["`limits.calls[0]`: write exactly one of `tool: set.name` and `toolset: name`"],
        );
        check_refused(
            json!([{ "tool": "a.b", "concurency": 1 }]),
            expect!["`limits.calls[0]`: `concurency` is unknown: did you mean `concurrency`?"],
        );
        check_refused(
            json!([{ "tool": "a.b", "concurrency": 0 }]),
            expect!["`limits.calls[0]`: `concurrency` is 0; write a whole number from 1"],
        );
        for rate in ["", "0/s", "-1/s", "5", "5/week", "x/s", "5/s/s"] {
            let err = read(&json!([{ "tool": "a.b", "rate": rate }])).unwrap_err();
            assert!(err.contains("write a rate, such as"), "{err}");
        }
        let err = read(&json!([{ "tool": "a.b", "rate": "1/s", "key": "a..b" }])).unwrap_err();
        assert!(err.contains("`key` is not a path"), "{err}");
    }
}
