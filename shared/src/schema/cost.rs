//! The cost of a schema, estimated before the schema is compiled.
//!
//! A few schemas that each refer ten times to the next cost 10ⁿ evaluations for one value. Every
//! chain of `allOf`, `anyOf`, `$ref` and the like holds for the same value, so the number of
//! evaluations is known without a value. What depends on the value is counted while it is checked.

use std::collections::BTreeMap;

use serde_json::Value;

use super::words::{Content, REFERENCES, resolve};
use crate::{
    json,
    limits::{SCHEMA_BYTES, SCHEMA_CHAIN, SCHEMA_DEPTH, SCHEMA_EXPANSION, SCHEMA_PATTERN_BYTES},
};

/// Evaluations that all parts of a schema together may cost: compiling goes through them.
const TOTAL: u64 = 100 * SCHEMA_EXPANSION;
/// The most bytes that one pattern may compile to.
const PATTERN_BYTES: usize = 4 << 20;
/// Patterns in a schema: each takes some memory of its own.
const PATTERNS: usize = 2_000;

/// The figures of a schema that decide how it is compiled and checked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    /// Its size.
    pub(super) bytes: usize,
    /// Schemas in it.
    pub(super) schemas: usize,
    /// Patterns in it.
    pub(super) patterns: usize,
    /// Whether a schema in it refers to another one.
    pub(super) has_references: bool,
    /// Whether a pattern in it may take more than a moment.
    pub(super) has_slow_patterns: bool,
    /// How many of `allOf`, `not` and the like lie within each other.
    pub(super) nesting: usize,
}

impl Figures {
    /// Bytes that each pattern may compile to, so that all of them fit into the memory.
    pub(super) fn pattern_bytes(&self) -> usize {
        (SCHEMA_PATTERN_BYTES / self.patterns.max(1)).min(PATTERN_BYTES)
    }
}

/// Measures a schema, or says why it is refused.
pub(super) fn measure(schema: &Value) -> Result<Figures, String> {
    if json::is_deeper_than(schema, SCHEMA_DEPTH) {
        return Err(format!("it nests deeper than {SCHEMA_DEPTH} levels"));
    }
    let bytes = json::bytes(schema);
    if bytes > SCHEMA_BYTES {
        return Err(format!("it has more than {SCHEMA_BYTES} bytes"));
    }
    let figures = Figures { bytes, ..Figures::default() };
    let mut cost = Cost { root: schema, known: BTreeMap::new(), figures };
    let mut total = 0_u64;
    cost.visit_all(schema, 0, &mut total)?;
    if cost.figures.patterns > PATTERNS {
        return Err(format!("it has more than {PATTERNS} patterns"));
    }
    Ok(cost.figures)
}

struct Cost<'a> {
    root: &'a Value,
    /// The cost of each schema by its address; nothing while it is being estimated.
    known: BTreeMap<usize, Option<u64>>,
    figures: Figures,
}

impl<'a> Cost<'a> {
    /// Estimates every schema in the document.
    fn visit_all(
        &mut self,
        schema: &'a Value,
        nesting: usize,
        total: &mut u64,
    ) -> Result<(), String> {
        let Value::Object(fields) = schema else {
            if let Value::Array(all) = schema {
                return all.iter().try_for_each(|item| self.visit_all(item, nesting, total));
            }
            return Ok(());
        };
        self.figures.schemas += 1;
        self.figures.nesting = self.figures.nesting.max(nesting);
        let cost = self.estimate(schema, 0)?;
        *total = total.saturating_add(cost);
        if cost > SCHEMA_EXPANSION || *total > TOTAL {
            return Err(format!(
                "a check of one value takes more than {SCHEMA_EXPANSION} evaluations: \
                 its schemas refer to each other too often"
            ));
        }
        for (keyword, content) in fields {
            self.note(keyword, content);
            let kind = Content::of(keyword);
            let is_in_place = matches!(kind, Content::InPlace | Content::InPlaceMap);
            for inner in kind.schemas(content) {
                self.visit_all(inner, nesting + usize::from(is_in_place), total)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, keyword: &str, content: &Value) {
        let figures = &mut self.figures;
        figures.has_references |= REFERENCES.contains(&keyword);
        let mut note_pattern = |pattern: &str| {
            figures.patterns += 1;
            figures.has_slow_patterns |= is_slow(pattern);
        };
        match (keyword, content) {
            ("pattern", Value::String(pattern)) => note_pattern(pattern),
            ("patternProperties", Value::Object(all)) => all.keys().for_each(|it| note_pattern(it)),
            ("format", Value::String(format)) => figures.has_slow_patterns |= format == "regex",
            _ => (),
        }
    }

    /// Returns how many schemas are evaluated for one value where this one holds.
    fn estimate(&mut self, schema: &'a Value, chain: usize) -> Result<u64, String> {
        let Value::Object(fields) = schema else { return Ok(1) };
        let address = std::ptr::from_ref(schema).addr();
        match self.known.get(&address) {
            Some(Some(cost)) => return Ok(*cost),
            // A circle: the check itself ends it.
            Some(None) => return Ok(1),
            None => (),
        }
        if chain > SCHEMA_CHAIN {
            let why = "schemas that hold for one value refer to each other";
            return Err(format!("more than {SCHEMA_CHAIN} {why} in a row"));
        }
        self.known.insert(address, None);
        let mut cost = 1_u64;
        for (keyword, content) in fields {
            let kind = Content::of(keyword);
            if matches!(kind, Content::InPlace | Content::InPlaceMap) {
                for inner in kind.schemas(content) {
                    cost = cost.saturating_add(self.estimate(inner, chain + 1)?);
                }
            }
            let reference = content.as_str().filter(|_| REFERENCES.contains(&keyword.as_str()));
            if let Some(target) = reference.and_then(|it| resolve(self.root, it)) {
                cost = cost.saturating_add(self.estimate(target, chain + 1)?);
            }
        }
        self.known.insert(address, Some(cost));
        Ok(cost)
    }
}

/// Returns whether a pattern may backtrack, or is matched slowly because it counts far.
fn is_slow(pattern: &str) -> bool {
    let looks_around = ["(?=", "(?!", "(?<"].iter().any(|it| pattern.contains(it));
    let refers_back =
        pattern.as_bytes().windows(2).any(|it| it[0] == b'\\' && it[1].is_ascii_digit());
    looks_around || refers_back || repetition(pattern) > 1_000
}

/// Returns how often the parts of a pattern are repeated by counts, at most.
pub(super) fn repetition(pattern: &str) -> u64 {
    let mut product = 1_u64;
    for part in pattern.split('{').skip(1) {
        let Some((counts, _)) = part.split_once('}') else { continue };
        let most = counts.split(',').filter_map(|it| it.trim().parse::<u64>().ok()).max();
        product = product.saturating_mul(most.unwrap_or(1).max(1));
    }
    product
}
