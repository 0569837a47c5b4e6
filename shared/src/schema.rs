//! JSON Schemas, such as those of tools' parameters. Schemas are untrusted, so [`check_cost`]
//! refuses costly schemas before they are compiled, and a check stops at a maximum number of
//! evaluations.

mod cost;
mod keywords;
mod meter;
mod patterns;
mod threads;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use jsonschema::{PatternOptions, Validator, error::ValidationErrorKind};
use serde_json::Value;

pub use self::threads::CheckStop;
use self::{
    cost::SchemaFigures,
    meter::{Allowance, Exhausted, run_within},
    threads::{MAX_WAITING_CHECKS, USABLE_STACK, run_on_own_thread},
};

/// Maximum number of evaluations of one check, apart from the evaluations for the parts of the
/// value.
const MAX_EVALUATIONS: u64 = 1_000_000;
const EVALUATIONS_PER_PART: u64 = 32;
/// The limit [`MAX_EVALUATIONS`] of a check that collects errors. It is lower, because each
/// evaluation can leave an error in memory.
const MAX_ERROR_EVALUATIONS: u64 = 100_000;
/// The value of [`EVALUATIONS_PER_PART`] for a check that collects errors.
const ERROR_EVALUATIONS_PER_PART: u64 = 4;
const MAX_PLAN_EVALUATIONS: u64 = 100_000_000;
/// Time limit of one check. The limits on evaluations stop a check long before this time on a
/// normal machine.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of evaluations on the caller's thread.
const QUICK_EVALUATIONS: u64 = 20_000;
/// Maximum bytes of the stack that a check on the caller's thread can use.
const QUICK_STACK_BYTES: usize = 256 << 10;
/// Maximum number of backtracking steps of a pattern match.
const MAX_BACKTRACKS: usize = 20_000;
/// Maximum number of subschemas of a schema that is checked without counting evaluations. Together
/// with [`MAX_UNMETERED_PARTS`], it keeps such a check short.
const MAX_UNMETERED_SCHEMAS: usize = 256;
/// Maximum bytes of a schema that is checked without counting evaluations, because error messages
/// can quote a large part of the schema.
const MAX_UNMETERED_BYTES: usize = 64 << 10;
/// Maximum number of parts of a value that is checked without counting evaluations.
const MAX_UNMETERED_PARTS: u64 = 5_000;
/// Maximum nesting of a schema that is checked without counting evaluations. Each level is
/// evaluated again to collect errors.
const MAX_UNMETERED_NESTING: usize = 3;
const MAX_QUICK_SCHEMAS: usize = 1_000;
const MAX_QUICK_PATTERNS: usize = 32;

#[derive(Clone)]
pub struct Schema(Arc<CompiledSchema>);

struct CompiledSchema {
    source: Value,
    figures: SchemaFigures,
    /// The validator that does not count evaluations, for small values. `None` if the schema itself
    /// is too costly for this validator.
    unmetered: Option<Validator>,
    /// The validator that counts its evaluations. It is compiled on first use, or with the schema
    /// if `unmetered` is `None`.
    metered: OnceLock<Result<Validator, String>>,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Schema").field(&self.0.source).finish()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    evaluations: u64,
}

impl Budget {
    pub fn for_check() -> Self {
        Self { evaluations: u64::MAX }
    }

    pub fn for_plan() -> Self {
        Self { evaluations: MAX_PLAN_EVALUATIONS }
    }
}

#[derive(Clone, Copy)]
struct Limit {
    fixed: u64,
    per_part: u64,
}

/// Refuses a schema that costs too much to compile or to check, with a message.
///
/// The schema is not compiled and need not be valid.
pub fn check_cost(schema: &Value) -> Result<(), String> {
    cost::measure_schema(schema).map(drop)
}

/// Returns the patterns of a schema that can be large and cannot be enforced. Compiles at most
/// `left` patterns, and subtracts their number from `left`.
pub fn find_large_patterns(schema: &Value, left: &mut usize) -> Vec<String> {
    let Ok(figures) = cost::measure_schema(schema) else { return Vec::new() };
    if figures.pattern_count == 0 {
        return Vec::new();
    }
    patterns::find_unusable(schema, figures.pattern_bytes(), left)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaViolation {
    /// The place in the value as a JSON pointer, such as `/tags/0`.
    pub at: String,
    pub message: String,
    pub kind: ViolationKind,
    /// `true` if the violation depends on the result of an `if` in the schema.
    pub is_conditional: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    Missing {
        property: String,
    },
    Unexpected {
        properties: Vec<String>,
    },
    Type,
    /// The check did not end, for example because it takes too long. The value counts as invalid.
    Unchecked,
    Other,
}

/// Inserts the defaults of missing properties, in nested objects too.
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

const MAX_VIOLATIONS: usize = 20;
/// The maximum number of errors that are examined for one report.
const MAX_ERRORS: usize = 1_000;
/// The maximum size of a value, in parts, that a message quotes.
const MAX_SHOWN_PARTS: u64 = 500;

impl Schema {
    pub fn new(schema: &Value) -> Result<Self, String> {
        let figures = cost::measure_schema(schema)?;
        let is_quick = figures.schema_count <= MAX_QUICK_SCHEMAS
            && figures.pattern_count <= MAX_QUICK_PATTERNS;
        let compile = || CompiledSchema::new(schema, figures);
        let compiled = if is_quick {
            compile()
        } else {
            // Waits for a slot without limit, because the schema of a tool is compiled only once.
            run_on_own_thread(usize::MAX, None, compile).map_err(|err| err.to_string())?
        };
        Ok(Self(Arc::new(compiled?)))
    }

    /// Compiles a schema without the patterns that are too large or not regular expressions.
    /// Returns these patterns, too.
    pub fn without_large_patterns(schema: &Value) -> Result<(Self, Vec<String>), String> {
        let reason = match Self::new(schema) {
            Ok(compiled) => return Ok((compiled, Vec::new())),
            Err(error) => error,
        };
        let bytes = cost::measure_schema(schema)?.pattern_bytes();
        let mut rest = schema.clone();
        let removed =
            run_on_own_thread(usize::MAX, None, || patterns::remove_unusable(&mut rest, bytes));
        let removed = removed.map_err(|err| err.to_string())?;
        if removed.is_empty() { Err(reason) } else { Ok((Self::new(&rest)?, removed)) }
    }

    /// Returns `true` if `value` fits the schema. A value that cannot be checked does not fit.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.is_valid_within(value, &mut Budget::for_check())
    }

    pub fn is_valid_within(&self, value: &Value, budget: &mut Budget) -> bool {
        self.check_value(value, budget).unwrap_or(false)
    }

    pub fn violations(&self, value: &Value) -> Vec<SchemaViolation> {
        self.violations_where(value, &mut Budget::for_check(), |_| true)
    }

    /// Returns the violations for which `keep` is true. Other violations do not count towards the
    /// limit of a report.
    pub fn violations_where(
        &self,
        value: &Value,
        budget: &mut Budget,
        keep: impl Fn(&SchemaViolation) -> bool + Sync,
    ) -> Vec<SchemaViolation> {
        match self.check_value(value, budget) {
            Ok(true) => Vec::new(),
            Ok(false) => self.find_violations(value, budget, &keep),
            Err(error) => vec![SchemaViolation::for_whole_value(ViolationKind::Unchecked, error)],
        }
    }

    /// Describes the violations in one line, or returns `None` if the value fits.
    pub fn complaint(&self, value: &Value) -> Option<String> {
        let misfits = self.violations(value).into_iter().map(|misfit| match misfit.at.as_str() {
            "" => misfit.message,
            path => format!("at `{path}`: {}", misfit.message),
        });
        let complaint = misfits.collect::<Vec<_>>().join("; ");
        Some(complaint).filter(|text| !text.is_empty())
    }

    fn check_value(&self, value: &Value, budget: &mut Budget) -> Result<bool, String> {
        if let Some(plain) = self.unmetered_validator(value) {
            return Ok(plain.is_valid(value));
        }
        let limit = Limit { fixed: MAX_EVALUATIONS, per_part: EVALUATIONS_PER_PART };
        self.check_metered(value, budget, limit, |valid| valid.is_valid(value))
    }

    fn find_violations(
        &self,
        value: &Value,
        budget: &mut Budget,
        keep: &(impl Fn(&SchemaViolation) -> bool + Sync),
    ) -> Vec<SchemaViolation> {
        let find = |valid: &Validator| {
            let errors = valid.iter_errors(value).take(MAX_ERRORS);
            let misfits = errors.map(|err| SchemaViolation::new(&err)).filter(keep);
            misfits.take(MAX_VIOLATIONS).collect::<Vec<_>>()
        };
        if let Some(plain) = self.unmetered_validator(value) {
            return find(plain);
        }
        let limit = Limit { fixed: MAX_ERROR_EVALUATIONS, per_part: ERROR_EVALUATIONS_PER_PART };
        self.check_metered(value, budget, limit, find).unwrap_or_else(|_| {
            let reason = "it does not fit the schema (the reasons are too long to list)";
            let misfit = SchemaViolation::for_whole_value(ViolationKind::Other, reason.to_owned());
            Some(misfit).into_iter().filter(keep).collect()
        })
    }

    fn unmetered_validator(&self, value: &Value) -> Option<&Validator> {
        let plain = self.0.unmetered.as_ref()?;
        fits_within(value, &mut { MAX_UNMETERED_PARTS }).then_some(plain)
    }

    /// Runs a check on the caller's thread first, and again on a separate thread if it needs more
    /// evaluations or stack.
    fn check_metered<T: Send>(
        &self,
        value: &Value,
        budget: &mut Budget,
        limit: Limit,
        check: impl Fn(&Validator) -> T + Sync,
    ) -> Result<T, String> {
        if budget.evaluations == 0 {
            return Err("together, the checks of the plan take too long".to_owned());
        }
        let metered = self.0.metered_validator()?;
        let maximum = limit
            .fixed
            .saturating_add(limit.per_part.saturating_mul(meter::count_evaluations(value)));
        let maximum = maximum.min(budget.evaluations);
        let mut run = |evaluations: u64, stack: usize, stop: Option<&CheckStop>| {
            let evaluations = evaluations.min(budget.evaluations);
            let allowance =
                Allowance { evaluations, time: CHECK_TIMEOUT, stack, stop: stop.cloned() };
            let (result, taken) = run_within(allowance, || check(metered));
            budget.evaluations -= taken;
            result
        };
        if let Ok(result) = run(QUICK_EVALUATIONS.min(maximum), QUICK_STACK_BYTES, None) {
            return Ok(result);
        }
        let stop = CheckStop::current();
        let stop = stop.as_ref();
        let result =
            run_on_own_thread(MAX_WAITING_CHECKS, stop, || run(maximum, USABLE_STACK, stop))
                .map_err(|err| err.to_string())?;
        result.map_err(|Exhausted| {
            if stop.is_some_and(CheckStop::is_stopped) {
                return threads::STOPPED_MESSAGE.to_owned();
            }
            format!(
                "it takes too long to check it against the schema: more than {maximum} evaluations"
            )
        })
    }
}

impl CompiledSchema {
    fn new(schema: &Value, figures: SchemaFigures) -> Result<Self, String> {
        let is_plain = !figures.has_references
            && !figures.has_slow_patterns
            && figures.bytes <= MAX_UNMETERED_BYTES
            && figures.schema_count <= MAX_UNMETERED_SCHEMAS
            && figures.nesting <= MAX_UNMETERED_NESTING;
        let compiled = Self {
            source: schema.clone(),
            figures,
            unmetered: is_plain
                .then(|| build_validator(schema, figures.pattern_bytes()))
                .transpose()?,
            metered: OnceLock::new(),
        };
        if !is_plain {
            // Builds this validator first, because its error messages name places of the original
            // schema, and not of the schema with meters.
            build_validator(schema, figures.pattern_bytes())?;
            compiled.metered_validator()?;
        }
        Ok(compiled)
    }

    fn metered_validator(&self) -> Result<&Validator, String> {
        let build =
            || build_validator(&meter::add_meters(&self.source)?, self.figures.pattern_bytes());
        self.metered.get_or_init(build).as_ref().map_err(Clone::clone)
    }
}

fn build_validator(schema: &Value, bytes: usize) -> Result<Validator, String> {
    let patterns = PatternOptions::fancy_regex();
    let patterns = patterns.backtrack_limit(MAX_BACKTRACKS).size_limit(bytes).dfa_size_limit(bytes);
    let options = jsonschema::options().with_keyword(meter::METER_KEYWORD, meter::make_meter);
    options.with_pattern_options(patterns).build(schema).map_err(|err| err.to_string())
}

/// Returns `true` if a value has at most `left` parts. Subtracts its parts from `left`.
fn fits_within(value: &Value, left: &mut u64) -> bool {
    let own_size = match value {
        Value::String(text) => 1 + text.len() as u64 / 64,
        Value::Object(fields) => 1 + fields.len() as u64,
        _ => 1,
    };
    if own_size > *left {
        return false;
    }
    *left -= own_size;
    match value {
        Value::Array(items) => items.iter().all(|item| fits_within(item, left)),
        Value::Object(fields) => fields.values().all(|field| fits_within(field, left)),
        _ => true,
    }
}

impl SchemaViolation {
    fn for_whole_value(kind: ViolationKind, message: String) -> Self {
        Self { at: String::new(), message, kind, is_conditional: false }
    }

    fn new(err: &jsonschema::ValidationError<'_>) -> Self {
        let kind = match err.kind() {
            ValidationErrorKind::Required { property } => ViolationKind::Missing {
                property: property.as_str().unwrap_or_default().to_owned(),
            },
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                ViolationKind::Unexpected { properties: unexpected.clone() }
            }
            ValidationErrorKind::Type { .. } => ViolationKind::Type,
            _ => ViolationKind::Other,
        };
        let evaluated = err.evaluation_path().to_string();
        let is_conditional = evaluated.split('/').any(|name| matches!(name, "then" | "else"));
        let path = err.instance_path().to_string();
        let is_shown = fits_within(err.instance(), &mut { MAX_SHOWN_PARTS });
        let message = if is_shown { err.to_string() } else { err.masked().to_string() };
        Self { at: path, message, kind, is_conditional }
    }
}

#[cfg(test)]
mod tests {
    mod hostile;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_violation_is_reported_for_each_value_that_does_not_fit() {
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
        let misfits = schema.violations(&json!({ "a": "x", "b": "y" }));
        let kinds: Vec<_> = misfits.into_iter().map(|misfit| (misfit.at, misfit.kind)).collect();
        assert!(kinds.contains(&("/a".to_owned(), ViolationKind::Type)), "{kinds:?}");
        let missing = ViolationKind::Missing { property: "c".to_owned() };
        assert!(kinds.contains(&(String::new(), missing)), "{kinds:?}");
    }

    #[test]
    fn errors_of_conditional_schemas_are_marked() {
        let schema = json!({
            "if": { "properties": { "a": { "const": 1 } } },
            "then": { "required": ["b"] },
            "required": ["c"],
        });
        let misfits = Schema::new(&schema).unwrap().violations(&json!({ "a": 1 }));
        let conditional: Vec<_> =
            misfits.into_iter().map(|misfit| (misfit.kind, misfit.is_conditional)).collect();
        let missing = |name: &str| ViolationKind::Missing { property: name.to_owned() };
        assert!(conditional.contains(&(missing("b"), true)), "{conditional:?}");
        assert!(conditional.contains(&(missing("c"), false)), "{conditional:?}");
    }

    #[test]
    fn a_pattern_that_is_too_large_leaves_the_rest_enforced() {
        const LARGE: &str = r"^(\w{1000}){1000}$";
        let schema = json!({
            "type": "object",
            "properties": {
                "code": { "type": "string", "pattern": LARGE },
                "short": { "pattern": "^[a-z]$" },
                "pattern": { "type": "integer" },
                "map": {
                    "patternProperties": { LARGE: { "type": "null" }, "^x": { "type": "null" } },
                    "additionalProperties": false,
                },
            },
        });
        assert!(Schema::new(&schema).is_err());
        let (rest, removed) = Schema::without_large_patterns(&schema).unwrap();
        assert_eq!(removed, [LARGE, LARGE]);
        let mut left = 3;
        assert_eq!(find_large_patterns(&schema, &mut left), removed);
        assert_eq!(left, 1);
        assert_eq!(find_large_patterns(&schema, &mut left), [LARGE]);
        assert_eq!(left, 0);
        for (value, fits) in [
            (json!({ "code": "a" }), true),
            (json!({ "code": 1 }), false),
            (json!({ "short": "ab" }), false),
            (json!({ "pattern": "x" }), false),
            (json!({ "map": { "a": 1 } }), true),
            (json!({ "map": { "x": 1 } }), false),
        ] {
            assert_eq!(rest.is_valid(&value), fits, "{value}");
        }
        let fine = json!({ "pattern": "^a{10}$" });
        assert_eq!(Schema::without_large_patterns(&fine).unwrap().1, [""; 0]);
        assert_eq!(find_large_patterns(&fine, &mut 1), [""; 0]);
        assert!(Schema::without_large_patterns(&json!({ "type": "x" })).is_err());
    }

    #[test]
    fn an_invalid_schema_is_rejected() {
        let err = Schema::new(&json!({ "properties": { "a": "string" } })).unwrap_err();
        assert!(err.contains("string"), "{err}");
    }
}
