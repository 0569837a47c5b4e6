//! Conditions of toolsets over the data of contexts.

use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
};

use serde_json::{Map, Value};
use shared::{
    condition::Condition,
    id::StepNumber,
    template::{LookUpValues, ResolveNames, Target},
};

pub(super) type Contexts = BTreeMap<String, Value>;

pub(super) fn check_syntax(condition: &str) -> Result<(), String> {
    Condition::parse(condition, &VariableNumbers::default())
        .map(drop)
        .map_err(|err| err.to_string())
}

/// Evaluates conditions. Copies the data of all contexts at most once, when a condition needs them.
pub(super) struct ConditionEvaluator<'a> {
    contexts: &'a Contexts,
    all: OnceCell<Value>,
}

impl<'a> ConditionEvaluator<'a> {
    pub(super) fn new(contexts: &'a Contexts) -> Self {
        Self { contexts, all: OnceCell::new() }
    }

    /// Evaluates a condition. Missing fields are null. The error states why the condition has no
    /// result.
    pub(super) fn evaluate(&self, condition: &str, context: Option<&str>) -> Result<bool, String> {
        let variables = VariableNumbers::default();
        let condition = Condition::parse(condition, &variables).map_err(|err| err.to_string())?;
        let data = context.and_then(|name| self.contexts.get(name)).unwrap_or(&Value::Null);
        let field = |variable: &String| match context {
            Some(_) => data.get(variable),
            None => self.contexts.values().find_map(|data| data.get(variable)),
        };
        let variables = variables.0.into_inner();
        let values = variables.iter().map(|variable| match (field(variable), variable.as_str()) {
            (Some(value), _) => value,
            (None, "data" | "context") => data,
            (None, "contexts") => self.all_contexts(),
            (None, _) => &Value::Null,
        });
        condition.evaluate(&VariableValues(values.collect()), data)
    }

    fn all_contexts(&self) -> &Value {
        self.all.get_or_init(|| {
            let all = self.contexts.iter().map(|(name, data)| (name.clone(), data.clone()));
            Value::Object(all.collect::<Map<_, _>>())
        })
    }
}

#[derive(Default)]
struct VariableNumbers(RefCell<Vec<String>>);

impl ResolveNames for VariableNumbers {
    fn find_step(&self, name: &str) -> Option<StepNumber> {
        let mut variables = self.0.borrow_mut();
        let index = variables.iter().position(|known| known == name).unwrap_or_else(|| {
            variables.push(name.to_owned());
            variables.len() - 1
        });
        Some(StepNumber::new(index))
    }

    fn find_tool_step(&self, _: &str) -> Option<StepNumber> {
        None
    }
}

struct VariableValues<'a>(Vec<&'a Value>);

impl LookUpValues for VariableValues<'_> {
    fn find_value(&self, target: &Target) -> Option<&Value> {
        match target {
            Target::Step(number) => self.0.get(number.get()).copied(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_condition(condition: &str, expected: Result<bool, &str>) {
        let contexts = Contexts::from([
            ("shop".to_owned(), json!({ "adminMode": true, "users": ["ann"], "tier": 2 })),
            ("my-context".to_owned(), json!({ "adminMode": false })),
        ]);
        let found = ConditionEvaluator::new(&contexts).evaluate(condition, Some("shop"));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{condition}"),
            (Err(found), Err(expected)) => {
                assert!(found.contains(expected), "{condition}: {found}");
            }
            (found, expected) => panic!("{condition}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn a_condition_reads_the_data_of_its_context() {
        check_condition("adminMode", Ok(true));
        check_condition("adminMode == true && tier >= 2", Ok(true));
        check_condition("data.adminMode", Ok(true));
        check_condition("context.tier > 2", Ok(false));
        check_condition("'ann' in users", Ok(true));
        check_condition(r#"contexts["my-context"].adminMode"#, Ok(false));
        check_condition("contexts.shop.adminMode", Ok(true));
        check_condition("missing == true", Ok(false));
        check_condition("missing", Err("neither true nor false"));
        check_condition("adminMode &&", Err("line 1"));
    }

    #[test]
    fn contexts_are_copied_only_for_conditions_that_read_all() {
        let contexts = Contexts::from([("shop".to_owned(), json!({ "n": 1 }))]);
        let evaluator = ConditionEvaluator::new(&contexts);
        assert_eq!(evaluator.evaluate("n == 1 && data.n == 1", Some("shop")), Ok(true));
        assert!(evaluator.all.get().is_none());
        assert_eq!(evaluator.evaluate("contexts.shop.n == 1", None), Ok(true));
        assert!(evaluator.all.get().is_some());
    }

    #[test]
    fn a_condition_without_a_context_searches_all_contexts() {
        let contexts = Contexts::from([
            ("b".to_owned(), json!({ "adminMode": false, "tier": 2 })),
            ("a".to_owned(), json!({ "adminMode": true, "note": null })),
        ]);
        let evaluator = ConditionEvaluator::new(&contexts);
        for (condition, expected) in [
            ("adminMode == true", true),
            ("tier == 2", true),
            ("missing == true", false),
            ("data == null", true),
            ("contexts.b.adminMode", false),
        ] {
            assert_eq!(evaluator.evaluate(condition, None), Ok(expected), "{condition}");
        }
    }

    #[test]
    fn a_missing_context_has_no_data() {
        let contexts = Contexts::new();
        let evaluator = ConditionEvaluator::new(&contexts);
        assert_eq!(evaluator.evaluate("adminMode == true", Some("none")), Ok(false));
        assert_eq!(evaluator.evaluate("adminMode == true", None), Ok(false));
    }
}
