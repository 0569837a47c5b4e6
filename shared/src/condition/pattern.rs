//! Regular expressions. A plan keeps only the text of a pattern, and each evaluation compiles it
//! again, because a pattern of a few bytes can compile to many thousand times its size.

use regex::{Regex, RegexBuilder};

use super::ConditionError;
use crate::limits;

#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: String,
    /// Cost of compiling the pattern, in operations. A match costs a thousandth of this number for
    /// each byte of the text.
    cost: usize,
}

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self, ConditionError> {
        let large = limits::CONDITION_PATTERN_BYTES;
        let mut result = Err(String::new());
        for (bytes, cost) in [(large / 16, 1_000), (large, limits::PATTERN_COST)] {
            result = compile_regex(text, bytes).map(|_| cost);
            if result.is_ok() {
                break;
            }
        }
        match result {
            Ok(cost) => Ok(Self { text: text.to_owned(), cost }),
            Err(error) => Err(ConditionError::Pattern { reason: error }),
        }
    }

    pub(super) fn compile(&self) -> Option<Regex> {
        compile_regex(&self.text, limits::CONDITION_PATTERN_BYTES).ok()
    }

    pub(super) fn compile_cost(&self) -> usize {
        self.cost
    }

    pub(super) fn match_cost(&self, bytes: usize) -> usize {
        bytes.saturating_mul(self.cost / 1_000)
    }
}

fn compile_regex(text: &str, max_bytes: usize) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).size_limit(max_bytes).build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "it becomes too large; repeat less".to_owned(),
        other => {
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default().trim();
            last.trim_start_matches("error: ").to_owned()
        }
    })
}
