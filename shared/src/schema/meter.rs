//! Counts the evaluations of a check, and stops a check that needs too many. The validator cannot
//! be stopped, so each schema gets a custom keyword that unwinds the stack when the allowance is
//! used up.

use std::{
    cell::{Cell, RefCell},
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::{Duration, Instant},
};

use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Value, json};

use super::{
    cost::count_repetitions,
    keywords::{
        Content, IDENTITY_KEYWORDS, REFERENCE_KEYWORDS, decode_fragment, resolve_reference,
    },
    threads::CheckStop,
};
use crate::json;

pub(super) const METER_KEYWORD: &str = "faber:meter";
/// Number of bytes of a text that count as one evaluation.
const BYTES_PER_EVALUATION: u64 = 16;
/// Number of items or properties that count as one evaluation.
const ITEMS_PER_EVALUATION: u64 = 8;
/// Number of times that evaluations are charged between two readings of the clock.
const CLOCK_INTERVAL: u32 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exhausted;

#[derive(Clone, Debug)]
pub(super) struct Allowance {
    pub(super) evaluations: u64,
    pub(super) time: Duration,
    pub(super) stack: usize,
    pub(super) stop: Option<CheckStop>,
}

#[derive(Clone, Copy, Debug)]
struct RemainingBudget {
    evaluations: u64,
    deadline: Instant,
    /// The address of the top of the stack when the check began. The distance from this address
    /// tells how much stack the check uses.
    start_address: usize,
    stack: usize,
    charges_until_clock: u32,
}

thread_local! {
    static REMAINING: Cell<Option<RemainingBudget>> = const { Cell::new(None) };
    static STOP: RefCell<Option<CheckStop>> = const { RefCell::new(None) };
}

/// Runs a check until it ends or uses up its allowance. Returns its result and the number of its
/// evaluations.
pub(super) fn run_within<T>(
    allowance: Allowance,
    check: impl FnOnce() -> T,
) -> (Result<T, Exhausted>, u64) {
    let marker = 0_u8;
    let left = RemainingBudget {
        evaluations: allowance.evaluations,
        deadline: Instant::now() + allowance.time,
        start_address: std::ptr::from_ref(&marker).addr(),
        stack: allowance.stack,
        charges_until_clock: CLOCK_INTERVAL,
    };
    let before = REMAINING.replace(Some(left));
    let stop_before = STOP.replace(allowance.stop);
    // Asserts unwind safety, because the validator keeps no state between two checks.
    let result = catch_unwind(AssertUnwindSafe(check));
    STOP.set(stop_before);
    let left = REMAINING.replace(before).map_or(0, |left| left.evaluations);
    let taken = allowance.evaluations - left;
    match result {
        Ok(result) => (Ok(result), taken),
        Err(reason) if reason.is::<Exhausted>() => (Err(Exhausted), taken),
        Err(reason) => resume_unwind(reason),
    }
}

fn charge_evaluations(evaluations: u64) {
    let marker = 0_u8;
    let here = std::ptr::from_ref(&marker).addr();
    let Some(mut left) = REMAINING.get() else { return };
    left.charges_until_clock = left.charges_until_clock.saturating_sub(1);
    let is_stopped = || STOP.with_borrow(|stop| stop.as_ref().is_some_and(CheckStop::is_stopped));
    let is_late = left.charges_until_clock == 0 && (Instant::now() > left.deadline || is_stopped());
    if left.charges_until_clock == 0 {
        left.charges_until_clock = CLOCK_INTERVAL;
    }
    let is_deep = left.start_address.abs_diff(here) > left.stack;
    let is_over = evaluations > left.evaluations || is_late || is_deep;
    left.evaluations = left.evaluations.saturating_sub(evaluations);
    REMAINING.set(Some(left));
    if is_over {
        // Unwinds without a panic, so that no panic hook writes a message.
        resume_unwind(Box::new(Exhausted));
    }
}

pub(super) fn count_evaluations(value: &Value) -> u64 {
    match value {
        Value::String(text) => 1 + text.len() as u64 / BYTES_PER_EVALUATION,
        Value::Array(items) => 1 + items.iter().map(count_evaluations).sum::<u64>(),
        Value::Object(fields) => {
            let keys = fields.keys().map(|key| key.len() as u64 / BYTES_PER_EVALUATION);
            1 + keys.sum::<u64>() + fields.values().map(count_evaluations).sum::<u64>()
        }
        _ => 1,
    }
}

/// The number of evaluations of one schema, as its keyword `faber:meter` states it.
struct Meter {
    /// Evaluations for any value.
    fixed: u64,
    /// Evaluations for every [`BYTES_PER_EVALUATION`] of a text.
    text: u64,
    /// Evaluations for every [`ITEMS_PER_EVALUATION`] of an array or object.
    items: u64,
    /// `true` if the schema refers to a schema whose evaluations are not counted.
    is_foreign: bool,
}

impl Meter {
    fn charge_value(&self, value: &Value) {
        let of_value = match value {
            Value::String(text) => {
                self.text.saturating_mul(text.len() as u64 / BYTES_PER_EVALUATION)
            }
            Value::Array(items) => {
                self.items.saturating_mul(items.len() as u64 / ITEMS_PER_EVALUATION)
            }
            Value::Object(fields) => {
                self.items.saturating_mul(fields.len() as u64 / ITEMS_PER_EVALUATION)
            }
            _ => 0,
        };
        let of_foreign =
            if self.is_foreign { BYTES_PER_EVALUATION * count_evaluations(value) } else { 0 };
        charge_evaluations(self.fixed.saturating_add(of_value).saturating_add(of_foreign));
    }
}

impl<'i> Keyword<'i> for Meter {
    fn validate(&self, value: &'i Value) -> Result<(), ValidationError<'i>> {
        self.charge_value(value);
        Ok(())
    }

    fn is_valid(&self, value: &'i Value) -> bool {
        self.charge_value(value);
        true
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a factory may fail")]
pub(super) fn make_meter<'a>(
    _: &'a Map<String, Value>,
    argument: &'a Value,
    _: jsonschema::paths::Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    let figure = |index: usize| argument[index].as_u64().unwrap_or(1);
    let is_foreign = argument[3].as_bool().unwrap_or(true);
    Ok(Box::new(Meter { fixed: figure(0), text: figure(1), items: figure(2), is_foreign }))
}

/// Adds a meter to each subschema, which counts the evaluations of the subschema. Returns a message
/// if that is impossible.
pub(super) fn add_meters(schema: &Value) -> Result<Value, String> {
    MeterBuilder { root: schema }.add_meter(schema)
}

struct MeterBuilder<'a> {
    /// The schema to which JSON pointers are relative.
    root: &'a Value,
}

impl MeterBuilder<'_> {
    fn add_meter(&self, schema: &Value) -> Result<Value, String> {
        let Value::Object(fields) = schema else { return Ok(schema.clone()) };
        if is_resource(fields) && !std::ptr::eq(schema, self.root) {
            return MeterBuilder { root: schema }.add_meter(schema);
        }
        let (mut outer, mut inner) = (Map::new(), Map::new());
        let mut is_foreign = false;
        for (keyword, content) in fields {
            let name = keyword.as_str();
            if IDENTITY_KEYWORDS.contains(&name) && !content.is_object() {
                outer.insert(keyword.clone(), content.clone());
                continue;
            }
            let reference = content.as_str().filter(|_| REFERENCE_KEYWORDS.contains(&name));
            let made = if let Some(reference) = reference {
                let moved = self.retarget_reference(reference)?;
                is_foreign |= moved.is_none();
                Value::from(moved.unwrap_or_else(|| reference.to_owned()))
            } else {
                self.meter_content(Content::from_keyword(name), content)?
            };
            inner.insert(keyword.clone(), made);
        }
        let meter = json!({ METER_KEYWORD: meter_arguments(fields, is_foreign) });
        outer.insert("allOf".to_owned(), Value::Array(vec![meter, Value::Object(inner)]));
        Ok(Value::Object(outer))
    }

    fn meter_content(&self, kind: Content, content: &Value) -> Result<Value, String> {
        Ok(match (kind, content) {
            (Content::Data, _) => content.clone(),
            (Content::Map | Content::InPlaceMap, Value::Object(all)) => {
                let metered = all
                    .iter()
                    .map(|(name, schema)| Ok::<_, String>((name.clone(), self.add_meter(schema)?)));
                Value::Object(metered.collect::<Result<_, _>>()?)
            }
            (_, Value::Array(all)) => {
                Value::Array(all.iter().map(|item| self.add_meter(item)).collect::<Result<_, _>>()?)
            }
            _ => self.add_meter(content)?,
        })
    }

    /// Changes a reference so that it is valid in the schema with meters. Returns `None` if its
    /// target is outside the document, or does not exist.
    fn retarget_reference(&self, reference: &str) -> Result<Option<String>, String> {
        let pointer = match reference.strip_prefix('#') {
            Some(pointer) if pointer.is_empty() || pointer.starts_with('/') => {
                decode_fragment(pointer)
            }
            Some(_) if resolve_reference(self.root, reference).is_some() => {
                return Ok(Some(reference.to_owned()));
            }
            _ => return Ok(None),
        };
        let Some(target) = self.root.pointer(&pointer) else { return Ok(None) };
        let mut moved = "#".to_owned();
        let (mut current, mut kind) = (self.root, Content::Unknown);
        for token in pointer.split('/').skip(1) {
            let name = token.replace("~1", "/").replace("~0", "~");
            let is_map = matches!(kind, Content::Map | Content::InPlaceMap) && current.is_object();
            if current.is_object() && !is_map && kind != Content::Data {
                moved.push_str("/allOf/1");
            }
            moved.push('/');
            moved.push_str(&encode_fragment(token));
            kind = match current {
                _ if kind == Content::Data => Content::Data,
                Value::Object(_) if is_map => Content::Unknown,
                Value::Object(_) => Content::from_keyword(&name),
                _ => Content::Unknown,
            };
            let Some(next) = current.pointer(&format!("/{token}")) else { return Ok(None) };
            current = next;
        }
        let is_map = matches!(kind, Content::Map | Content::InPlaceMap);
        if target.is_object() && (is_map || kind == Content::Data) {
            return Err(format!("`{reference}` does not refer to a schema"));
        }
        Ok(Some(moved))
    }
}

/// Returns `true` if a schema is a separate resource, so that its pointers are relative to it.
fn is_resource(fields: &Map<String, Value>) -> bool {
    let ids = ["$id", "id"].iter().filter_map(|name| fields.get(*name)?.as_str());
    ids.into_iter().any(|id| !id.starts_with('#'))
}

fn encode_fragment(token: &str) -> String {
    let mut text = String::with_capacity(token.len());
    for byte in token.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Returns the argument of the keyword `faber:meter`, from which [`make_meter`] reads a [`Meter`].
fn meter_arguments(fields: &Map<String, Value>, is_foreign: bool) -> Value {
    let data = fields.iter().filter(|(keyword, _)| Content::from_keyword(keyword) == Content::Data);
    let bytes: usize = data.map(|(_, content)| json::json_size(content)).sum();
    let count = |keyword: &str| {
        fields.get(keyword).and_then(Value::as_object).map_or(0, |all| all.len() as u64)
    };
    let fixed =
        1 + bytes as u64 / (4 * BYTES_PER_EVALUATION) + count("properties") / ITEMS_PER_EVALUATION;
    let pattern = fields.get("pattern").and_then(Value::as_str);
    let is_regex = fields.get("format").and_then(Value::as_str) == Some("regex");
    let text = 1
        + pattern.map_or(0, |pattern| 4 + count_repetitions(pattern) / BYTES_PER_EVALUATION)
        + u64::from(is_regex) * 100;
    let items = 1 + count("patternProperties") * ITEMS_PER_EVALUATION;
    json!([fixed, text, items, is_foreign])
}
