//! JSON Schemas of tools' parameters, compiled once and asked often.

use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

/// A compiled JSON Schema.
#[derive(Clone, Debug)]
pub struct Schema(jsonschema::Validator);

/// What does not fit a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// Where, as a JSON pointer: `/tags/0`.
    pub at: String,
    /// What is wrong.
    pub message: String,
    /// What kind of thing is wrong.
    pub kind: MisfitKind,
    /// Whether it is only wrong because an `if` of the schema came out as it did.
    pub is_conditional: bool,
}

/// What kind of thing is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MisfitKind {
    /// A property that must be there is not.
    Missing {
        /// Its name.
        property: String,
    },
    /// Properties that must not be there are.
    Unexpected {
        /// Their names.
        properties: Vec<String>,
    },
    /// The value has the wrong type.
    Type,
    /// Anything else.
    Other,
}

/// Fills in what is left out of a value and has a `default` in its schema, as far as objects go.
pub fn fill_defaults(schema: &Value, value: &mut Value) {
    let Value::Object(fields) = value else { return };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        match (fields.get_mut(name), property.get("default")) {
            (Some(inner), _) => fill_defaults(property, inner),
            (None, Some(default)) => drop(fields.insert(name.clone(), default.clone())),
            (None, None) => (),
        }
    }
}

/// The most misfits that are reported at once.
const MISFITS: usize = 20;

impl Schema {
    /// Compiles a schema, or says what is wrong with it. Nothing is ever fetched.
    pub fn new(schema: &Value) -> Result<Self, String> {
        jsonschema::options().build(schema).map(Self).map_err(|err| err.to_string())
    }

    /// Returns whether `value` fits.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.0.is_valid(value)
    }

    /// Returns what does not fit.
    pub fn misfits(&self, value: &Value) -> Vec<Misfit> {
        self.misfits_that(value, |_| true)
    }

    /// Returns what does not fit and passes `keep`, so that what a caller must not believe does
    /// not use up the limit.
    pub fn misfits_that(&self, value: &Value, keep: impl Fn(&Misfit) -> bool) -> Vec<Misfit> {
        self.0.iter_errors(value).map(|it| Misfit::new(&it)).filter(keep).take(MISFITS).collect()
    }

    /// Returns all that does not fit in one sentence, if anything does not.
    pub fn complaint(&self, value: &Value) -> Option<String> {
        if self.is_valid(value) {
            return None;
        }
        let misfits = self.misfits(value).into_iter().map(|it| match it.at.as_str() {
            "" => it.message,
            at => format!("at `{at}`: {}", it.message),
        });
        Some(misfits.collect::<Vec<_>>().join("; "))
    }
}

impl Misfit {
    fn new(err: &jsonschema::ValidationError<'_>) -> Self {
        let kind = match err.kind() {
            ValidationErrorKind::Required { property } => {
                MisfitKind::Missing { property: property.as_str().unwrap_or_default().to_owned() }
            }
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                MisfitKind::Unexpected { properties: unexpected.clone() }
            }
            ValidationErrorKind::Type { .. } => MisfitKind::Type,
            _ => MisfitKind::Other,
        };
        let evaluated = err.evaluation_path().to_string();
        let is_conditional = evaluated.split('/').any(|it| matches!(it, "then" | "else"));
        let at = err.instance_path().to_string();
        Self { at, message: err.to_string(), kind, is_conditional }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_that_does_not_fit_is_named() {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "b": { "type": "string" } },
            "required": ["a", "c"],
            "additionalProperties": false,
        });
        let schema = Schema::new(&schema).unwrap();
        assert_eq!(
            schema.complaint(&json!({ "a": 1, "c": 2 })).as_deref(),
            Some("Additional properties are not allowed ('c' was unexpected)")
        );
        let misfits = schema.misfits(&json!({ "a": "x", "b": "y" }));
        let kinds: Vec<_> = misfits.into_iter().map(|it| (it.at, it.kind)).collect();
        assert!(kinds.contains(&("/a".to_owned(), MisfitKind::Type)), "{kinds:?}");
        let missing = MisfitKind::Missing { property: "c".to_owned() };
        assert!(kinds.contains(&(String::new(), missing)), "{kinds:?}");
    }

    #[test]
    fn what_an_if_decides_says_so() {
        let schema = json!({
            "if": { "properties": { "a": { "const": 1 } } },
            "then": { "required": ["b"] },
            "required": ["c"],
        });
        let misfits = Schema::new(&schema).unwrap().misfits(&json!({ "a": 1 }));
        let conditional: Vec<_> =
            misfits.into_iter().map(|it| (it.kind, it.is_conditional)).collect();
        let missing = |it: &str| MisfitKind::Missing { property: it.to_owned() };
        assert!(conditional.contains(&(missing("b"), true)), "{conditional:?}");
        assert!(conditional.contains(&(missing("c"), false)), "{conditional:?}");
    }

    #[test]
    fn a_schema_that_is_none_is_refused() {
        let err = Schema::new(&json!({ "properties": { "a": "string" } })).unwrap_err();
        assert!(err.contains("string"), "{err}");
    }
}
