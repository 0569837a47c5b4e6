//! Steps of a plan that is still being written.
//!
//! Only what is JSON as it should be is understood before its end: whatever else a model writes is
//! read when all of it is there. What arrives here is a forecast. The plan is what counts.

use serde_json::Value;
use shared::limits;

use super::reading::{PLANS, STEPS};

/// Finds the steps in the pieces of an answer.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    text: String,
    /// Bytes that were looked at.
    seen: usize,
    /// What is open, outermost first.
    open: Vec<Open>,
    /// Where the string begins that is being read.
    string: Option<usize>,
    is_escaped: bool,
    /// The last string that was read.
    last: String,
    /// Where the step begins that is being read.
    step: Option<usize>,
    /// Whether it is no use to look any further.
    is_lost: bool,
}

/// An object or a list that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// A plan, or what a plan is inside of.
    Plan,
    /// The steps of one.
    Steps,
    Other,
}

impl Arriving {
    /// Takes the next words, and returns the steps that end in them.
    pub(super) fn take(&mut self, words: &str) -> Vec<Value> {
        let mut steps = Vec::new();
        if self.is_lost || self.text.len() + words.len() > limits::REPLY_BYTES {
            self.is_lost = true;
            return steps;
        }
        self.text.push_str(words);
        while self.seen < self.text.len() && !self.is_lost {
            let at = self.seen;
            self.seen += 1;
            match self.text.as_bytes()[at] {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.string.is_some() => self.is_escaped = true,
                b'"' => self.quote(at),
                _ if self.string.is_some() => (),
                b'{' | b'[' => self.begin(at),
                b'}' | b']' => steps.extend(self.end(at)),
                _ => (),
            }
        }
        steps
    }

    fn quote(&mut self, at: usize) {
        match self.string.take() {
            Some(start) => {
                self.last.clear();
                self.last.push_str(&self.text[start..at]);
            }
            // Prose has quotes of its own.
            None if !self.open.is_empty() => self.string = Some(at + 1),
            None => (),
        }
    }

    fn begin(&mut self, at: usize) {
        let is_object = self.text.as_bytes()[at] == b'{';
        let (last, is_named) = (self.last.as_str(), self.is_named(at));
        let next = match self.open.last() {
            None if is_object => Open::Plan,
            Some(Open::Plan) if is_named && is_object && PLANS.contains(&last) => Open::Plan,
            Some(Open::Plan) if is_named && !is_object && STEPS.contains(&last) => Open::Steps,
            None => return,
            _ => Open::Other,
        };
        if self.open.last() == Some(&Open::Steps) && is_object {
            self.step = Some(at);
        }
        self.open.push(next);
        self.is_lost |= self.open.len() > limits::JSON_DEPTH;
    }

    /// Returns whether the value that begins at `at` is that of a field.
    fn is_named(&self, at: usize) -> bool {
        self.text[..at].trim_end().ends_with(':')
    }

    fn end(&mut self, at: usize) -> Option<Value> {
        self.open.pop()?;
        if self.open.last() != Some(&Open::Steps) {
            return None;
        }
        let start = self.step.take()?;
        let step = serde_json::from_str(&self.text[start..=at]).ok();
        self.is_lost |= step.is_none();
        step
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn arrived<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Vec<Value> {
        let mut arriving = Arriving::default();
        pieces.into_iter().flat_map(|it| arriving.take(it)).collect()
    }

    #[test]
    fn steps_arrive_as_they_end() {
        let mut arriving = Arriving::default();
        for (piece, expected) in [
            ("Here it is:\n```json\n{\"tools\": [", json!([])),
            ("{\"name\": \"a\", \"parameters\": {\"x\": \"}] \\\" {\"", json!([])),
            ("}}", json!([{ "name": "a", "parameters": { "x": "}] \" {" } }])),
            (", {\"name\": \"b\"}, {\"name\": \"c\", ", json!([{ "name": "b" }])),
            (
                "\"dependsOn\": [\"a\"]}], \"executionOrder\": [\"a\"]}\n```",
                json!([
                    { "name": "c", "dependsOn": ["a"] },
                ]),
            ),
            ("and {\"name\": \"d\"}", json!([])),
        ] {
            assert_eq!(json!(arriving.take(piece)), expected, "{piece}");
        }
    }

    #[test]
    fn steps_are_found_where_models_put_them() {
        let step = json!([{ "name": "a" }]);
        for (text, expected) in [
            (r#"{"plan": {"steps": [{"name": "a"}]}}"#, &step),
            (r#"{ "answer" : { "plan": { "tool_calls" :[ {"name": "a"} ] } } }"#, &step),
            (r#"{"why": "tools", "x": [{"name": "b"}], "tools": [{"name": "a"}]}"#, &step),
            (r#"{"x": {"tools": [{"name": "b"}]}, "tools": [{"name": "a"}]}"#, &step),
            (r#"It's {nothing}, "as it were": {"tools": [{"name": "a"}]}"#, &step),
            (r#"{"tools": ["x", ["y", {"name": "b"}], {"name": "a"}]}"#, &step),
            (r#"{"tools": {"name": "b"}}"#, &json!([])),
            ("{'tools': [{'name': 'b'}]}", &json!([])),
            (r#"{"tools": [{"name": b}, {"name": "a"}]}"#, &json!([])),
            (r#"[{"name": "b"}]"#, &json!([])),
            ("}]}{[", &json!([])),
        ] {
            assert_eq!(&json!(arrived([text])), expected, "{text}");
        }
    }

    #[test]
    fn what_is_too_long_or_too_deep_is_left_to_the_end() {
        let deep = format!("{}{{\"tools\": [{{}}]}}", "{".repeat(limits::JSON_DEPTH));
        assert_eq!(arrived([deep.as_str()]), [] as [Value; 0]);
        let long = " ".repeat(limits::REPLY_BYTES);
        assert_eq!(arrived([long.as_str(), "{\"tools\": [{}]}"]), [] as [Value; 0]);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_it_is_cut(text in r#"([\[\]{}:," a\\ä]|"tools":|"plan":){0,60}"#, at in 0usize..200) {
            let at = text.floor_char_boundary(at.min(text.len()));
            let (one, other) = text.split_at(at);
            prop_assert_eq!(arrived([one, other]), arrived([text.as_str()]));
        }
    }
}
