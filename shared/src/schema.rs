//! JSON Schemas of tools' parameters, compiled once and asked often.
//!
//! Others write these schemas, and a small one can cost more evaluations than there is time. So
//! [`check_cost`] refuses such a schema before it is compiled, a check has a [`Budget`], and one that
//! takes more than a moment runs on a thread of its own.

mod cost;
mod meter;
mod threads;
mod words;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use jsonschema::{PatternOptions, Validator, error::ValidationErrorKind};
use serde_json::Value;

use self::{
    cost::Figures,
    meter::{Allowance, Exhausted, run_within},
    threads::{USABLE_STACK, WAITING, run_apart},
};

/// Evaluations that one check may take, however small the value is.
const EVALUATIONS: u64 = 1_000_000;
/// Evaluations that one check may take for each part of the value.
const PER_PART: u64 = 32;
/// Evaluations that finding everything that does not fit may take: each may leave an error in the
/// memory.
const ERROR_EVALUATIONS: u64 = 100_000;
/// The same, for each part of the value.
const ERRORS_PER_PART: u64 = 4;
/// Evaluations that all checks of one plan may take, however large the plan is.
const PLAN_EVALUATIONS: u64 = 100_000_000;
/// Time that one check may take: the evaluations are counted so that it is hardly ever reached.
const TIME: Duration = Duration::from_secs(5);
/// Evaluations that a check may take where it is asked for, on whatever thread that is.
const QUICK_EVALUATIONS: u64 = 20_000;
/// Bytes of the stack that such a check may use.
const QUICK_STACK: usize = 256 << 10;
/// Steps that matching a pattern may go back.
const BACKTRACKS: usize = 20_000;
/// Schemas, and parts of a value, that are checked without counting: together a moment at most.
const PLAIN_SCHEMAS: usize = 256;
/// Bytes of such a schema: messages may quote much of it.
const PLAIN_BYTES: usize = 64 << 10;
/// See [`PLAIN_SCHEMAS`].
const PLAIN_PARTS: u64 = 5_000;
/// See [`PLAIN_SCHEMAS`]: a check goes through each of these again to say what is wrong.
const PLAIN_NESTING: usize = 3;
/// Schemas and patterns that are compiled where they are asked for.
const QUICK_SCHEMAS: usize = 1_000;
/// See [`QUICK_SCHEMAS`].
const QUICK_PATTERNS: usize = 32;

/// A compiled JSON Schema.
#[derive(Clone)]
pub struct Schema(Arc<Compiled>);

struct Compiled {
    source: Value,
    figures: Figures,
    /// There where a check of a small value takes a moment at most.
    plain: Option<Validator>,
    /// Counts its evaluations. Compiled when it is first needed.
    metered: OnceLock<Result<Validator, String>>,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.0.source).finish()
    }
}

/// What several checks may take together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    evaluations: u64,
}

impl Budget {
    /// Makes the budget of one check.
    pub fn of_check() -> Self {
        Self { evaluations: u64::MAX }
    }

    /// Makes the budget of all checks of a plan.
    pub fn of_plan() -> Self {
        Self { evaluations: PLAN_EVALUATIONS }
    }
}

/// Says why a schema is refused that costs too much to compile or to check, if so. It need not be a
/// valid schema, and is not compiled.
pub fn check_cost(schema: &Value) -> Result<(), String> {
    cost::measure(schema).map(drop)
}

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
    /// The check takes too long, so the value is refused.
    Unchecked,
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
/// The most misfits that are looked at for that.
const ERRORS: usize = 1_000;
/// Parts of a value that the message about it shows.
const SHOWN_PARTS: u64 = 500;

impl Schema {
    /// Compiles a schema, or says what is wrong with it. Nothing is ever fetched.
    pub fn new(schema: &Value) -> Result<Self, String> {
        let figures = cost::measure(schema)?;
        let is_quick = figures.schemas <= QUICK_SCHEMAS && figures.patterns <= QUICK_PATTERNS;
        let compile = || Compiled::new(schema, figures);
        let compiled = if is_quick {
            compile()
        } else {
            // A tool is compiled once, so this waits as long as it takes.
            run_apart(usize::MAX, compile).map_err(|err| err.to_string())?
        };
        Ok(Self(Arc::new(compiled?)))
    }

    /// Returns whether `value` fits. One that cannot be checked does not.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.is_valid_within(value, &mut Budget::of_check())
    }

    /// Returns whether `value` fits, and takes what that costs from a budget.
    pub fn is_valid_within(&self, value: &Value, budget: &mut Budget) -> bool {
        self.judge(value, budget).unwrap_or(false)
    }

    /// Returns what does not fit.
    pub fn misfits(&self, value: &Value) -> Vec<Misfit> {
        self.misfits_that(value, &mut Budget::of_check(), |_| true)
    }

    /// Returns what does not fit and passes `keep`, so that what a caller must not believe does
    /// not use up the limit.
    pub fn misfits_that(
        &self,
        value: &Value,
        budget: &mut Budget,
        keep: impl Fn(&Misfit) -> bool + Sync,
    ) -> Vec<Misfit> {
        match self.judge(value, budget) {
            Ok(true) => Vec::new(),
            Ok(false) => self.find_misfits(value, budget, &keep),
            Err(why) => vec![Misfit::of_whole(MisfitKind::Unchecked, why)],
        }
    }

    /// Returns all that does not fit in one sentence, if anything does not.
    pub fn complaint(&self, value: &Value) -> Option<String> {
        let misfits = self.misfits(value).into_iter().map(|misfit| match misfit.at.as_str() {
            "" => misfit.message,
            at => format!("at `{at}`: {}", misfit.message),
        });
        let complaint = misfits.collect::<Vec<_>>().join("; ");
        Some(complaint).filter(|text| !text.is_empty())
    }

    /// Returns whether a value fits, or why that cannot be said.
    fn judge(&self, value: &Value, budget: &mut Budget) -> Result<bool, String> {
        if let Some(plain) = self.plain_for(value) {
            return Ok(plain.is_valid(value));
        }
        self.check_metered(value, budget, [EVALUATIONS, PER_PART], |valid| valid.is_valid(value))
    }

    /// Returns what does not fit and passes `keep`, as far as that can be said.
    fn find_misfits(
        &self,
        value: &Value,
        budget: &mut Budget,
        keep: &(impl Fn(&Misfit) -> bool + Sync),
    ) -> Vec<Misfit> {
        let find = |valid: &Validator| {
            let errors = valid.iter_errors(value).take(ERRORS);
            let misfits = errors.map(|err| Misfit::new(&err)).filter(keep);
            misfits.take(MISFITS).collect::<Vec<_>>()
        };
        if let Some(plain) = self.plain_for(value) {
            return find(plain);
        }
        let most = [ERROR_EVALUATIONS, ERRORS_PER_PART];
        self.check_metered(value, budget, most, find).unwrap_or_else(|_| {
            let why = "it does not fit the schema (there is too much to say why)";
            let misfit = Misfit::of_whole(MisfitKind::Other, why.to_owned());
            Some(misfit).into_iter().filter(keep).collect()
        })
    }

    /// Returns what checks without counting, where a check of the value takes a moment at most.
    fn plain_for(&self, value: &Value) -> Option<&Validator> {
        let plain = self.0.plain.as_ref()?;
        is_small(value, &mut { PLAIN_PARTS }).then_some(plain)
    }

    /// Runs a check that may take so much: at once if it is quick, else on a thread of its own.
    fn check_metered<T: Send>(
        &self,
        value: &Value,
        budget: &mut Budget,
        [fixed, per_part]: [u64; 2],
        check: impl Fn(&Validator) -> T + Sync,
    ) -> Result<T, String> {
        if budget.evaluations == 0 {
            return Err("the checks of the plan take too long together".to_owned());
        }
        let metered = self.0.metered()?;
        let most = fixed.saturating_add(per_part.saturating_mul(meter::size(value)));
        let most = most.min(budget.evaluations);
        let mut run = |evaluations: u64, stack: usize| {
            let evaluations = evaluations.min(budget.evaluations);
            let (result, taken) =
                run_within(Allowance { evaluations, time: TIME, stack }, || check(metered));
            budget.evaluations -= taken;
            result
        };
        if let Ok(result) = run(QUICK_EVALUATIONS.min(most), QUICK_STACK) {
            return Ok(result);
        }
        let result =
            run_apart(WAITING, || run(most, USABLE_STACK)).map_err(|err| err.to_string())?;
        result.map_err(|Exhausted| {
            format!(
                "it takes too long to check it against the schema: more than {most} evaluations"
            )
        })
    }
}

impl Compiled {
    fn new(schema: &Value, figures: Figures) -> Result<Self, String> {
        let is_plain = !figures.has_references
            && !figures.has_slow_patterns
            && figures.bytes <= PLAIN_BYTES
            && figures.schemas <= PLAIN_SCHEMAS
            && figures.nesting <= PLAIN_NESTING;
        let compiled = Self {
            source: schema.clone(),
            figures,
            plain: is_plain.then(|| build(schema, figures)).transpose()?,
            metered: OnceLock::new(),
        };
        if !is_plain {
            // What is wrong with the schema is said of the schema as it was written.
            build(schema, figures)?;
            compiled.metered()?;
        }
        Ok(compiled)
    }

    fn metered(&self) -> Result<&Validator, String> {
        let build = || build(&meter::add_meters(&self.source)?, self.figures);
        self.metered.get_or_init(build).as_ref().map_err(Clone::clone)
    }
}

fn build(schema: &Value, figures: Figures) -> Result<Validator, String> {
    let bytes = figures.pattern_bytes();
    let patterns = PatternOptions::fancy_regex();
    let patterns = patterns.backtrack_limit(BACKTRACKS).size_limit(bytes).dfa_size_limit(bytes);
    let options = jsonschema::options().with_keyword(meter::METER, meter::make_meter);
    options.with_pattern_options(patterns).build(schema).map_err(|err| err.to_string())
}

/// Returns whether a value has at most so many parts.
fn is_small(value: &Value, left: &mut u64) -> bool {
    let own = match value {
        Value::String(text) => 1 + text.len() as u64 / 64,
        Value::Object(fields) => 1 + fields.len() as u64,
        _ => 1,
    };
    if own > *left {
        return false;
    }
    *left -= own;
    match value {
        Value::Array(items) => items.iter().all(|item| is_small(item, left)),
        Value::Object(fields) => fields.values().all(|field| is_small(field, left)),
        _ => true,
    }
}

impl Misfit {
    fn of_whole(kind: MisfitKind, message: String) -> Self {
        Self { at: String::new(), message, kind, is_conditional: false }
    }

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
        let is_shown = is_small(err.instance(), &mut { SHOWN_PARTS });
        let message = if is_shown { err.to_string() } else { err.masked().to_string() };
        Self { at, message, kind, is_conditional }
    }
}

#[cfg(test)]
mod hostile;

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
