use std::time::Duration;

use engine::{
    age,
    retention::{RetentionAges, RetentionPolicy, RetentionRule},
};
use planner::suggest::did_you_mean;
use serde_json::{Map, Value, json};
use shared::{
    labels::{MAX_LABELS, check_key},
    store::LabelFilter,
};

/// The minimum retention. With a shorter retention, an execution whose worker is only frozen could
/// be removed.
const MIN_RETENTION: Duration = Duration::from_mins(1);
const MAX_RULES: usize = 64;
const STATES: [&str; 3] = ["succeeded", "failed", "cancelled"];

#[derive(Default)]
pub(super) struct RetentionSetting {
    pub(super) executions: Option<RetentionPolicy>,
    pub(super) audit: Option<AuditAge>,
}

/// The age of audit entries. `None` keeps them for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AuditAge(pub(super) Option<Duration>);

pub(super) fn read(value: Option<Value>) -> Result<RetentionSetting, String> {
    let mut fields = match value {
        None | Some(Value::Null) => return Ok(RetentionSetting::default()),
        Some(Value::Object(fields)) => fields,
        Some(age) => {
            let executions = read_age("retention", age)?.map(RetentionPolicy::from);
            return Ok(RetentionSetting { executions, audit: None });
        }
    };
    let audit = fields
        .remove("audit")
        .map(|age| read_age("retention.audit", age))
        .transpose()?
        .map(AuditAge);
    let has_executions = !fields.is_empty();
    let rules = match fields.remove("rules") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(rules)) if rules.len() <= MAX_RULES => {
            let places = (0..).map(|index| format!("retention.rules[{index}]"));
            let rules = rules.into_iter().zip(places).map(|(rule, place)| read_rule(rule, &place));
            rules.collect::<Result<_, _>>()?
        }
        Some(_) => {
            return Err(format!("`retention.rules` must be a list of at most {MAX_RULES} rules"));
        }
    };
    let ages = read_ages("retention", fields, &["rules", "audit"])?;
    let policy = RetentionPolicy { ages, rules, audit: None };
    Ok(RetentionSetting { executions: has_executions.then_some(policy), audit })
}

fn read_rule(rule: Value, place: &str) -> Result<RetentionRule, String> {
    let help = "write a rule such as `{ labels: { team: shop }, age: 7d }`";
    let Value::Object(mut fields) = rule else { return Err(format!("`{place}`: {help}")) };
    let labels = match fields.remove("labels") {
        Some(Value::Object(labels)) if !labels.is_empty() && labels.len() <= MAX_LABELS => labels,
        _ => return Err(format!("`{place}` needs 1 to {MAX_LABELS} `labels`: {help}")),
    };
    let labels = labels.into_iter().map(|(key, value)| {
        check_key(&key).map_err(|error| format!("`{place}.labels`: {error}"))?;
        let value = match value {
            Value::Null => None,
            Value::String(value) => Some(value),
            other => {
                return Err(format!(
                    "`{place}.labels.{key}` is {other}: write a text in quotes, or `null` for any \
                     value"
                ));
            }
        };
        Ok(LabelFilter { key, value })
    });
    let labels = labels.collect::<Result<_, _>>()?;
    Ok(RetentionRule { labels, ages: read_ages(place, fields, &["labels"])? })
}

/// Reads the key `age`, or an age for each state. `other_keys` are the keys of the object that the
/// caller has read before.
fn read_ages(
    place: &str,
    mut fields: Map<String, Value>,
    other_keys: &[&'static str],
) -> Result<RetentionAges, String> {
    let mut read = |key: &str| match fields.remove(key) {
        None => Ok(None),
        Some(age) => read_age(&format!("{place}.{key}"), age),
    };
    let all = read("age")?;
    let [completed, failed, cancelled] = STATES.map(&mut read);
    let ages = RetentionAges { completed: completed?, failed: failed?, cancelled: cancelled? };
    if let Some(unknown) = fields.keys().next() {
        let known = || ["age"].into_iter().chain(other_keys.iter().copied()).chain(STATES);
        let help = did_you_mean(unknown, known()).unwrap_or_else(|| {
            format!("the keys are `{}`", known().collect::<Vec<_>>().join("`, `"))
        });
        return Err(format!("`{place}.{unknown}` is unknown: {help}"));
    }
    match all {
        None => Ok(ages),
        Some(age) if ages == RetentionAges::default() => Ok(age.into()),
        Some(_) => Err(format!("`{place}` has `age` and an age of a state: write one of them")),
    }
}

fn read_age(place: &str, value: Value) -> Result<Option<Duration>, String> {
    let text = match value {
        Value::Null => return Ok(None),
        Value::String(text) => text,
        other => other.to_string(),
    };
    let kept = age::parse(&text).map_err(|error| format!("`{place}`: {error}"))?;
    if kept < MIN_RETENTION {
        let minimum = MIN_RETENTION.as_secs();
        return Err(format!("`{place}` is `{text}`; the shortest is {minimum}s"));
    }
    Ok(Some(kept))
}

pub(super) fn show_policy(policy: &RetentionPolicy) -> Value {
    if let Some(age) = policy.single_age() {
        return json!(age::format(age));
    }
    let mut shown = show_ages(policy.ages);
    let rules = policy.rules.iter().map(|RetentionRule { labels, ages }| {
        let mut rule = show_ages(*ages);
        let labels = labels.iter().map(|label| (label.key.clone(), json!(label.value)));
        rule.insert("labels".to_owned(), Value::Object(labels.collect()));
        Value::Object(rule)
    });
    let rules: Vec<Value> = rules.collect();
    if !rules.is_empty() {
        shown.insert("rules".to_owned(), Value::Array(rules));
    }
    Value::Object(shown)
}

fn show_ages(ages: RetentionAges) -> Map<String, Value> {
    let RetentionAges { completed, failed, cancelled } = ages;
    let ages = STATES.into_iter().zip([completed, failed, cancelled]);
    ages.map(|(state, age)| (state.to_owned(), json!(age.map(age::format)))).collect()
}
