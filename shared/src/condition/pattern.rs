//! Regular expressions, checked early and compiled late.
//!
//! A pattern of a few bytes can compile to many thousand times as much, and a plan may have as many
//! conditions as steps. So only the text is kept; what it compiles to lives while one condition is told.

use regex::{Regex, RegexBuilder};

use super::ConditionError;
use crate::limits;

/// A pattern that compiles.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: String,
    /// How many operations compiling it takes, and matching it for every thousand bytes.
    cost: usize,
}

impl Pattern {
    /// Checks a pattern, and how large it becomes.
    pub(super) fn parse(text: &str) -> Result<Self, ConditionError> {
        let large = limits::CONDITION_PATTERN_BYTES;
        let mut result = Err(String::new());
        for (bytes, cost) in [(large / 16, 1_000), (large, limits::PATTERN_COST)] {
            result = compile(text, bytes).map(|_| cost);
            if result.is_ok() {
                break;
            }
        }
        match result {
            Ok(cost) => Ok(Self { text: text.to_owned(), cost }),
            Err(why) => Err(ConditionError::Pattern { why }),
        }
    }

    /// Compiles it.
    pub(super) fn compiled(&self) -> Option<Regex> {
        compile(&self.text, limits::CONDITION_PATTERN_BYTES).ok()
    }

    /// Returns how many operations compiling it is worth.
    pub(super) fn compile_cost(&self) -> usize {
        self.cost
    }

    /// Returns how many operations going through so many bytes is worth.
    pub(super) fn match_cost(&self, bytes: usize) -> usize {
        bytes.saturating_mul(self.cost / 1_000)
    }
}

fn compile(text: &str, most_bytes: usize) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).size_limit(most_bytes).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "it becomes too large; repeat less".to_owned(),
        other => {
            let said = other.to_string();
            let last = said.lines().last().unwrap_or_default().trim();
            last.trim_start_matches("error: ").to_owned()
        }
    })
}
