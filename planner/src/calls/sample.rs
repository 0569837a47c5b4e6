use std::cell::Cell;

use serde_json::{Map, Value, json};

const MAX_DEPTH: usize = 8;
/// Maximum number of values in a sample, because recursive schemas could ask for any number.
const MAX_PARTS: usize = 1_000;
const PATTERN_COST: usize = 50;
const MAX_ITEMS: u64 = 8;
const SAMPLE_TEXTS: [&str; 12] = [
    "a",
    "A",
    "1",
    "abc",
    "ABC",
    "1234",
    "2026-01-31",
    "2026-01-31T12:00:00Z",
    "12:00",
    "https://example.org",
    "someone@example.org",
    "#336699",
];

pub(super) fn resolve_schema<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut current = schema;
    for _ in 0..MAX_DEPTH {
        let Some(place) = current.get("$ref").and_then(Value::as_str) else { break };
        let Some(target) = place.strip_prefix('#').and_then(|pointer| root.pointer(pointer)) else {
            break;
        };
        current = target;
    }
    current
}

pub(super) fn flatten_schema(root: &Value, schema: &Value, choice: usize) -> Map<String, Value> {
    let mut all = Map::new();
    merge_schema(root, schema, choice, MAX_DEPTH, &mut all);
    all
}

fn merge_schema(
    root: &Value,
    schema: &Value,
    choice: usize,
    depth: usize,
    all: &mut Map<String, Value>,
) {
    let target = resolve_schema(root, schema);
    for part in [schema, target].into_iter().take(if std::ptr::eq(schema, target) { 1 } else { 2 })
    {
        for (key, value) in part.as_object().into_iter().flatten() {
            match (all.get_mut(key), value) {
                (Some(Value::Object(old)), Value::Object(new)) if key == "properties" => {
                    for (name, schema) in new {
                        old.entry(name).or_insert_with(|| schema.clone());
                    }
                }
                (Some(Value::Array(old)), Value::Array(new)) if key == "required" => {
                    old.extend(new.iter().cloned());
                }
                (Some(_), _) => (),
                (None, _) => drop(all.insert(key.clone(), value.clone())),
            }
        }
    }
    if depth == 0 {
        return;
    }
    let parts = |key: &str| target.get(key).and_then(Value::as_array);
    for part in parts("allOf").into_iter().flatten() {
        merge_schema(root, part, choice, depth - 1, all);
    }
    for key in ["anyOf", "oneOf"] {
        let is_some = |choice: &&Value| choice.get("type").is_none_or(|kind| kind != "null");
        let branches: Vec<_> = parts(key).into_iter().flatten().filter(is_some).collect();
        if !branches.is_empty() {
            merge_schema(root, branches[choice % branches.len()], choice, depth - 1, all);
        }
    }
}

pub(super) fn make_sample(root: &Value, name: &str, schema: &Value, choice: usize) -> Value {
    let sampler = Sampler { root, choice, parts_left: Cell::new(MAX_PARTS) };
    sampler.make_value(name, schema, MAX_DEPTH)
}

struct Sampler<'a> {
    root: &'a Value,
    choice: usize,
    parts_left: Cell<usize>,
}

impl Sampler<'_> {
    /// Takes `parts` from the budget. Returns `false` if too few are left.
    fn take_budget(&self, parts: usize) -> bool {
        let parts_left = self.parts_left.get().checked_sub(parts);
        self.parts_left.set(parts_left.unwrap_or(0));
        parts_left.is_some()
    }

    fn make_value(&self, name: &str, schema: &Value, depth: usize) -> Value {
        if !self.take_budget(1) {
            return Value::Null;
        }
        let schema = flatten_schema(self.root, schema, self.choice);
        let given = |key: &str| schema.get(key).filter(|value| !value.is_null()).cloned();
        let first = |key: &str| {
            let list = schema.get(key).and_then(Value::as_array);
            list.and_then(|values| values.iter().find(|value| !value.is_null())).cloned()
        };
        let example = given("const").or_else(|| first("examples")).or_else(|| first("enum"));
        if let Some(example) = example.or_else(|| given("default")) {
            return example;
        }
        let deeper = |name: &str, schema: &Value| match depth {
            0 => Value::Null,
            _ => self.make_value(name, schema, depth - 1),
        };
        match sample_kind(&schema) {
            "integer" => sample_number(&schema, true),
            "number" => sample_number(&schema, false),
            "boolean" => json!(true),
            "array" => {
                let minimum =
                    schema.get("minItems").and_then(Value::as_u64).unwrap_or(0).min(MAX_ITEMS);
                let items = schema.get("items").cloned().unwrap_or_default();
                let first =
                    |index| schema.get("prefixItems").and_then(|items: &Value| items.get(index));
                let minimum = usize::try_from(minimum).unwrap_or(0);
                let is_unique = schema.get("uniqueItems") == Some(&Value::Bool(true));
                let item = |index: usize| match deeper(name, first(index).unwrap_or(&items)) {
                    Value::String(text) if is_unique && index > 0 => {
                        json!(format!("{text}{index}"))
                    }
                    Value::Number(number) if is_unique => {
                        number.as_i64().map_or(json!(index), |number| {
                            json!(number.saturating_add(i64::try_from(index).unwrap_or(0)))
                        })
                    }
                    other => other,
                };
                (0..minimum).map(item).collect()
            }
            "object" => {
                let required = schema.get("required").and_then(Value::as_array);
                let is_needed = |name: &str| {
                    required.is_some_and(|required| required.iter().any(|field| field == name))
                };
                let fields = schema.get("properties").and_then(Value::as_object);
                let fields = fields.into_iter().flatten().filter(|field| is_needed(field.0));
                fields.map(|(name, schema)| (name.clone(), deeper(name, schema))).collect()
            }
            _ => sample_text(&schema, name, || self.take_budget(PATTERN_COST)),
        }
    }
}

fn sample_kind(schema: &Map<String, Value>) -> &str {
    let type_name = match schema.get("type") {
        Some(Value::Array(types)) => {
            types.iter().find(|kind| *kind != "null").and_then(Value::as_str)
        }
        other => other.and_then(Value::as_str),
    };
    let has = |key| schema.contains_key(key);
    type_name.unwrap_or(match () {
        () if has("properties") || has("required") => "object",
        () if has("items") || has("minItems") => "array",
        () if has("minimum") || has("maximum") => "number",
        () => "string",
    })
}

fn sample_number(schema: &Map<String, Value>, is_whole: bool) -> Value {
    let of = |key: &str| schema.get(key).and_then(Value::as_f64);
    let mut number: f64 = 1.0;
    let minimum = of("minimum").or_else(|| of("exclusiveMinimum").map(|limit| limit + 1.0));
    let maximum = of("maximum").or_else(|| of("exclusiveMaximum").map(|limit| limit - 1.0));
    number = maximum.map_or(number, |maximum| number.min(maximum));
    number = minimum.map_or(number, |minimum| number.max(minimum));
    match of("multipleOf") {
        Some(step) if step > 0.0 => number = (number / step).ceil() * step,
        _ if is_whole => number = number.ceil(),
        _ => (),
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the number is whole and small enough to be exact"
    )]
    if number.fract() == 0.0 && number.abs() < 9e15 {
        return json!(number as i64);
    }
    json!(number)
}

/// Returns a sample for the format of the schema, or the name itself. If the schema has a pattern
/// and `can_search` allows a search, prefers a text that fits the pattern.
fn sample_text(schema: &Map<String, Value>, name: &str, can_search: impl Fn() -> bool) -> Value {
    let formatted = match schema.get("format").and_then(Value::as_str) {
        Some("date") => "2026-01-31",
        Some("date-time") => "2026-01-31T12:00:00Z",
        Some("time") => "12:00:00Z",
        Some("email") => "someone@example.org",
        Some("uri" | "url") => "https://example.org",
        Some("uuid") => "123e4567-e89b-42d3-a456-426614174000",
        _ => name,
    };
    let of = |key: &str| {
        schema.get(key).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok())
    };
    let fitted = |text: &str| {
        let missing = of("minLength").unwrap_or(0).min(1_000).saturating_sub(text.chars().count());
        let last = text.chars().last().unwrap_or('x');
        let text = text.chars().chain(std::iter::repeat_n(last, missing));
        text.take(of("maxLength").unwrap_or(usize::MAX)).collect::<String>()
    };
    let pattern = schema.get("pattern").filter(|_| can_search());
    let Some(pattern) = pattern else { return Value::from(fitted(formatted)) };
    let pattern = shared::schema::Schema::new(&json!({ "pattern": pattern }));
    let fits = |text: &Value| pattern.as_ref().is_ok_and(|pattern| pattern.is_valid(text));
    let mut texts =
        std::iter::once(formatted).chain(SAMPLE_TEXTS).map(|text| Value::from(fitted(text)));
    texts.find(fits).unwrap_or_else(|| Value::from(fitted(formatted)))
}
