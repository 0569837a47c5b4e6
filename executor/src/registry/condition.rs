//! Whether a set is there: its condition over the data of contexts.

use std::{cell::RefCell, collections::BTreeMap};

use serde_json::{Map, Value};
use shared::{
    condition::Condition,
    id::StepIx,
    template::{Names, Target, Values},
};

/// The data of every context, by its name.
pub(super) type Contexts = BTreeMap<String, Value>;

/// Returns whether a condition holds. Err: why that cannot be told, for people.
///
/// `data` is that of the set's own context, whose fields are also names of their own; `contexts`
/// has that of all. What is not there is null.
pub(super) fn holds(
    condition: &str,
    context: Option<&str>,
    contexts: &Contexts,
) -> Result<bool, String> {
    let words = Words::default();
    let condition = Condition::parse(condition, &words).map_err(|err| err.to_string())?;
    let data = context.and_then(|it| contexts.get(it)).cloned().unwrap_or_default();
    let all = contexts.iter().map(|(name, data)| (name.clone(), data.clone()));
    let all = Value::Object(all.collect::<Map<_, _>>());
    let values = words.0.into_inner().into_iter().map(|word| match (data.get(&word), &*word) {
        (Some(value), _) => value.clone(),
        (None, "data" | "context") => data.clone(),
        (None, "contexts") => all.clone(),
        (None, _) => Value::Null,
    });
    condition.holds(&Meanings(values.collect()), &data)
}

/// Numbers whatever a condition names, as it comes.
#[derive(Default)]
struct Words(RefCell<Vec<String>>);

impl Names for Words {
    fn step(&self, name: &str) -> Option<StepIx> {
        let mut words = self.0.borrow_mut();
        let at = words.iter().position(|it| it == name).unwrap_or_else(|| {
            words.push(name.to_owned());
            words.len() - 1
        });
        Some(StepIx::new(at))
    }

    fn tool(&self, _: &str) -> Option<StepIx> {
        None
    }
}

/// What the words mean.
struct Meanings(Vec<Value>);

impl Values for Meanings {
    fn value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Step(at) => self.0.get(at.get()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(condition: &str, expected: Result<bool, &str>) {
        let contexts = Contexts::from([
            ("shop".to_owned(), json!({ "adminMode": true, "users": ["ann"], "tier": 2 })),
            ("my-context".to_owned(), json!({ "adminMode": false })),
        ]);
        let found = holds(condition, Some("shop"), &contexts);
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{condition}"),
            (Err(found), Err(expected)) => {
                assert!(found.contains(expected), "{condition}: {found}");
            }
            (found, expected) => panic!("{condition}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn a_condition_asks_for_data_of_contexts() {
        check("adminMode", Ok(true));
        check("adminMode == true && tier >= 2", Ok(true));
        check("data.adminMode", Ok(true));
        check("context.tier > 2", Ok(false));
        check("'ann' in users", Ok(true));
        check(r#"contexts["my-context"].adminMode"#, Ok(false));
        check("contexts.shop.adminMode", Ok(true));
        check("missing == true", Ok(false));
        check("missing", Err("neither true nor false"));
        check("adminMode &&", Err("line 1"));
    }

    #[test]
    fn a_context_that_is_not_there_has_no_data() {
        assert_eq!(holds("adminMode == true", Some("none"), &Contexts::new()), Ok(false));
        assert_eq!(holds("adminMode == true", None, &Contexts::new()), Ok(false));
    }
}
