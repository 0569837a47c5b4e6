//! Estimates the cost of a schema before it is compiled. If a few schemas each refer ten times to
//! the next schema, one value costs 10ⁿ evaluations.

use std::collections::BTreeMap;

use serde_json::Value;

use super::keywords::{Content, REFERENCE_KEYWORDS, resolve_reference};
use crate::{
    json,
    limits::{SCHEMA_BYTES, SCHEMA_CHAIN, SCHEMA_DEPTH, SCHEMA_EXPANSION, SCHEMA_PATTERN_BYTES},
};

/// Maximum number of evaluations of all parts of a schema together, because compiling the schema
/// visits each part.
const MAX_TOTAL_EVALUATIONS: u64 = 100 * SCHEMA_EXPANSION;
/// Maximum bytes that one pattern can compile to.
const MAX_PATTERN_BYTES: usize = 4 << 20;
/// Maximum number of patterns of a schema, because each compiled pattern takes memory.
const MAX_PATTERNS: usize = 2_000;

/// Measurements of a schema that decide how it is compiled and checked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SchemaFigures {
    pub(super) bytes: usize,
    pub(super) schema_count: usize,
    pub(super) pattern_count: usize,
    pub(super) has_references: bool,
    /// `true` if a match of a pattern can take longer than a check on the caller's thread should
    /// take.
    pub(super) has_slow_patterns: bool,
    /// The deepest nesting of `allOf`, `not` and similar keywords.
    pub(super) nesting: usize,
}

impl SchemaFigures {
    /// Returns the maximum bytes that each pattern can compile to, so that all of them fit into
    /// memory together.
    pub(super) fn pattern_bytes(&self) -> usize {
        (SCHEMA_PATTERN_BYTES / self.pattern_count.max(1)).min(MAX_PATTERN_BYTES)
    }
}

pub(super) fn measure_schema(schema: &Value) -> Result<SchemaFigures, String> {
    if json::is_deeper_than(schema, SCHEMA_DEPTH) {
        return Err(format!("it nests deeper than {SCHEMA_DEPTH} levels"));
    }
    let bytes = json::json_size(schema);
    if bytes > SCHEMA_BYTES {
        return Err(format!("it has more than {SCHEMA_BYTES} bytes"));
    }
    let figures = SchemaFigures { bytes, ..SchemaFigures::default() };
    let mut cost = CostEstimator { root: schema, costs: BTreeMap::new(), figures };
    let mut total = 0_u64;
    cost.visit_all(schema, 0, &mut total)?;
    if cost.figures.pattern_count > MAX_PATTERNS {
        return Err(format!("it has more than {MAX_PATTERNS} patterns"));
    }
    Ok(cost.figures)
}

struct CostEstimator<'a> {
    root: &'a Value,
    /// The cost of each schema, by its address. `None` while the schema is being estimated.
    costs: BTreeMap<usize, Option<u64>>,
    figures: SchemaFigures,
}

impl<'a> CostEstimator<'a> {
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
        self.figures.schema_count += 1;
        self.figures.nesting = self.figures.nesting.max(nesting);
        let cost = self.estimate_cost(schema, 0)?;
        *total = total.saturating_add(cost);
        if cost > SCHEMA_EXPANSION || *total > MAX_TOTAL_EVALUATIONS {
            return Err(format!(
                "a check of one value takes more than {SCHEMA_EXPANSION} evaluations: its \
                 subschemas refer to each other too often"
            ));
        }
        for (keyword, content) in fields {
            self.record_keyword(keyword, content);
            let kind = Content::from_keyword(keyword);
            let is_in_place = matches!(kind, Content::InPlace | Content::InPlaceMap);
            for inner in kind.schemas(content) {
                self.visit_all(inner, nesting + usize::from(is_in_place), total)?;
            }
        }
        Ok(())
    }

    fn record_keyword(&mut self, keyword: &str, content: &Value) {
        let figures = &mut self.figures;
        figures.has_references |= REFERENCE_KEYWORDS.contains(&keyword);
        let mut record_pattern = |pattern: &str| {
            figures.pattern_count += 1;
            figures.has_slow_patterns |= is_slow(pattern);
        };
        match (keyword, content) {
            ("pattern", Value::String(pattern)) => record_pattern(pattern),
            ("patternProperties", Value::Object(all)) => {
                all.keys().for_each(|pattern| record_pattern(pattern));
            }
            ("format", Value::String(format)) => figures.has_slow_patterns |= format == "regex",
            _ => (),
        }
    }

    fn estimate_cost(&mut self, schema: &'a Value, chain: usize) -> Result<u64, String> {
        let Value::Object(fields) = schema else { return Ok(1) };
        let address = std::ptr::from_ref(schema).addr();
        match self.costs.get(&address) {
            Some(Some(cost)) => return Ok(*cost),
            // Counts one evaluation for a cycle of references, because the check of a value stops
            // at the cycle.
            Some(None) => return Ok(1),
            None => (),
        }
        if chain > SCHEMA_CHAIN {
            let reason = "schemas that hold for one value refer to each other";
            return Err(format!("more than {SCHEMA_CHAIN} {reason} in a row"));
        }
        self.costs.insert(address, None);
        let mut cost = 1_u64;
        for (keyword, content) in fields {
            let kind = Content::from_keyword(keyword);
            if matches!(kind, Content::InPlace | Content::InPlaceMap) {
                for inner in kind.schemas(content) {
                    cost = cost.saturating_add(self.estimate_cost(inner, chain + 1)?);
                }
            }
            let reference =
                content.as_str().filter(|_| REFERENCE_KEYWORDS.contains(&keyword.as_str()));
            if let Some(target) =
                reference.and_then(|reference| resolve_reference(self.root, reference))
            {
                cost = cost.saturating_add(self.estimate_cost(target, chain + 1)?);
            }
        }
        self.costs.insert(address, Some(cost));
        Ok(cost)
    }
}

/// Returns `true` if a pattern can backtrack, or if it repeats a part very often.
fn is_slow(pattern: &str) -> bool {
    let looks_around = ["(?=", "(?!", "(?<"].iter().any(|group| pattern.contains(group));
    let refers_back =
        pattern.as_bytes().windows(2).any(|pair| pair[0] == b'\\' && pair[1].is_ascii_digit());
    looks_around || refers_back || count_repetitions(pattern) > 1_000
}

pub(super) fn count_repetitions(pattern: &str) -> u64 {
    let mut product = 1_u64;
    for part in pattern.split('{').skip(1) {
        let Some((counts, _)) = part.split_once('}') else { continue };
        let maximum = counts.split(',').filter_map(|count| count.trim().parse::<u64>().ok()).max();
        product = product.saturating_mul(maximum.unwrap_or(1).max(1));
    }
    product
}
