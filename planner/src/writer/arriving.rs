//! Steps of a plan that is still being written.
//!
//! Only what is JSON as it should be is understood before its end: whatever else a model writes is
//! read when all of it is there. Behind a step that is not understood, none is, for it may do
//! anything; and what a model only thinks is no plan. Some begin to think without a word (the
//! beginning stands at the end of what they are asked), which shows at its end only: so prose may be
//! a thought, until one has ended, and a plan is seen where the answer begins with it. What arrives
//! here is a forecast. The plan is what counts.

use serde_json::Value;
use shared::limits;

use super::reading::{PLANS, STEPS};

/// What stands before and behind what a model only thinks.
const THOUGHTS: [(&str, &str); 5] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
];

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
    /// What ends the thought that is being read.
    thought: Option<&'static str>,
    sight: Sight,
    /// Whether a thought has ended that had no beginning.
    is_sudden: bool,
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

/// Whether a plan would be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sight {
    /// It would: nothing has been written yet but white space and fences.
    #[default]
    Free,
    /// Not in the line of a fence.
    Fence,
    /// Not in what may be a thought whose beginning nobody wrote.
    Doubt,
    /// It would wherever it is: it has begun, or a thought has ended.
    Clear,
}

impl Arriving {
    /// Waits for an answer of a model that begins to think without a word.
    pub(super) fn of_sudden() -> Self {
        Self { sight: Sight::Doubt, ..Self::default() }
    }

    /// Returns whether an answer begins with a thought that has an end only.
    pub(super) fn is_of_sudden(answer: &str) -> bool {
        let mut arriving = Self::default();
        arriving.take(answer);
        arriving.is_sudden
    }

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
            if self.is_thought(at) || !self.is_clear(at) {
                continue;
            }
            match self.text.as_bytes()[at] {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if self.string.is_some() => self.is_escaped = true,
                b'"' if self.string.is_some() => self.quote(at),
                _ if self.string.is_some() => (),
                // What is no object is no step that anybody understands.
                it if self.is_in_steps() && !matches!(it, b'{' | b']' | b',') => {
                    self.is_lost |= !it.is_ascii_whitespace();
                }
                b'"' => self.quote(at),
                b'{' | b'[' => self.begin(at),
                b'}' | b']' => steps.extend(self.end(at)),
                _ => (),
            }
        }
        steps
    }

    /// Looks no further: what follows may not be what it seems.
    pub(super) fn give_up(&mut self) {
        self.is_lost = true;
    }

    fn is_in_steps(&self) -> bool {
        self.open.last() == Some(&Open::Steps)
    }

    /// Returns whether what stands at `at` is thought, or ends a thought.
    fn is_thought(&mut self, at: usize) -> bool {
        let is_end = matches!(self.text.as_bytes()[at], b'>' | b']');
        let ends = |tag: &str| {
            let start = (at + 1).checked_sub(tag.len()).filter(|_| is_end);
            start.is_some_and(|it| {
                self.text.as_bytes()[it..=at].eq_ignore_ascii_case(tag.as_bytes())
            })
        };
        if let Some(end) = self.thought {
            if ends(end) {
                (self.thought, self.sight) = (None, Sight::Clear);
            }
            return true;
        }
        if let Some((_, end)) = THOUGHTS.iter().find(|(begin, _)| ends(begin)) {
            // Amid a plan it is anything: a text of a step, or prose with a brace before it.
            self.is_lost |= !self.open.is_empty();
            self.thought = Some(end);
            return true;
        }
        if THOUGHTS.iter().any(|(_, end)| ends(end)) {
            // Some begin to think without a word: all of that was thought, unless a step says it.
            self.is_lost |= self.step.is_some();
            (self.is_sudden, self.sight) = (!self.is_lost, Sight::Clear);
            (self.string, self.step, self.is_escaped) = (None, None, false);
            self.open.clear();
            self.last.clear();
            return true;
        }
        false
    }

    /// Returns whether what stands at `at` may be of a plan.
    fn is_clear(&mut self, at: usize) -> bool {
        /// What stands before everything else in some files, byte by byte.
        const MARK: &[u8] = "\u{feff}".as_bytes();
        self.sight = match (self.sight, self.text.as_bytes()[at]) {
            (Sight::Free | Sight::Fence, b'{') | (Sight::Clear, _) => Sight::Clear,
            (Sight::Free, it) if it.is_ascii_whitespace() || MARK.contains(&it) => Sight::Free,
            (Sight::Fence, b'\n') => Sight::Free,
            (Sight::Free | Sight::Fence, b'`' | b'\r') => Sight::Fence,
            (Sight::Fence, it) if it.is_ascii_alphanumeric() => Sight::Fence,
            _ => Sight::Doubt,
        };
        self.sight == Sight::Clear
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
        if self.is_in_steps() && is_object {
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
        if !self.is_in_steps() {
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
            ("\n```json\n{\"tools\": [", json!([])),
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
            ("\u{feff}~{\"tools\": [{\"name\": \"b\"}]}", &json!([])),
            (r#"{"tools": [ {"name": "a"} , "x", {"name": "b"}]}"#, &step),
            (r#"{"tools": [{"name": "a"}, ["y"], {"name": "b"}]}"#, &step),
            (r#"{"tools": [{"name": "a"}, // {"name": "b"}"#, &step),
            (r#"{"tools": [{"name": "a"}, 7, {"name": "b"}]}"#, &step),
            (r#"{"tools": ["x", ["y", {"name": "b"}], {"name": "b"}]}"#, &json!([])),
            (r#"{"tools": {"name": "b"}}"#, &json!([])),
            ("{'tools': [{'name': 'b'}]}", &json!([])),
            (r#"{"tools": [{"name": b}, {"name": "a"}]}"#, &json!([])),
            (r#"[{"name": "b"}]"#, &json!([])),
            ("}]}{[", &json!([])),
        ] {
            assert_eq!(&json!(arrived([text])), expected, "{text}");
        }
    }

    /// Prose before a plan may be a thought: whether it is shows at its end.
    #[test]
    fn what_may_be_thought_is_no_step() {
        let (a, b) = (r#"{"tools": [{"name": "a"}]}"#, r#"{"tools": [{"name": "b"}]}"#);
        let (none, step) = (json!([]), json!([{ "name": "a" }]));
        for (text, expected, is_sudden) in [
            (format!("The user wants the weather. {b} Or rather: {b}"), &none, false),
            (format!("The user wants the weather. {b} No.\n</think>\n\n{a}"), &step, true),
            (format!("Okay, {b}</think>Here it is:\n```json\n{a}\n```"), &step, true),
            (format!("Here it is:\n```json\n{b}\n```"), &none, false),
            (format!("<think>\n\n</think>\n\nHere it is: {a}"), &step, false),
            (format!("I think: <think>{b}</think>{a}"), &step, false),
            (format!("\u{feff} \r\n```json\r\n{a}\n```"), &step, false),
            (format!("```{a}```"), &step, false),
            (format!("``` Perhaps {b}? ```</think>{a}"), &step, true),
            (format!("- {b}"), &none, false),
            (format!("\"{b}"), &none, false),
        ] {
            assert_eq!(json!(arrived([text.as_str()])), *expected, "{text}");
            let letters = text.char_indices().map(|(at, it)| &text[at..at + it.len_utf8()]);
            assert_eq!(json!(arrived(letters)), *expected, "{text}, letter by letter");
            assert_eq!(Arriving::is_of_sudden(&text), is_sudden, "{text}");
        }
    }

    /// Of whom is known that he thinks so, an answer counts behind the end of a thought.
    #[test]
    fn who_thinks_without_a_word_is_not_taken_at_his_first() {
        let (a, b) = (r#"{"tools": [{"name": "a"}]}"#, r#"{"tools": [{"name": "b"}]}"#);
        for (text, expected) in [
            (format!("{b} Hm.</think>{a}"), json!([{ "name": "a" }])),
            (format!("<think>{b}</think>{a}"), json!([{ "name": "a" }])),
            (b.to_owned(), json!([])),
        ] {
            assert_eq!(json!(Arriving::of_sudden().take(&text)), expected, "{text}");
        }
        let at_once = format!("{b} Hm.</think>{a}");
        assert_eq!(json!(arrived([at_once.as_str()])), json!([{ "name": "b" }, { "name": "a" }]));
        assert!(Arriving::is_of_sudden(&at_once), "so that the next answer is not");
    }

    #[test]
    fn what_is_only_thought_is_no_step() {
        let (a, b) = (r#"{"tools": [{"name": "a"}]}"#, r#"{"tools": [{"name": "b"}]}"#);
        for (text, expected) in [
            (format!("<think>Perhaps {b}? No.</think>\n{a}"), json!([{ "name": "a" }])),
            (format!("<Thinking>{b}{b}</Thinking>{a}"), json!([{ "name": "a" }])),
            (format!("[THINK]{b}[/THINK]{a}"), json!([{ "name": "a" }])),
            (format!("<think>{b}"), json!([])),
            (format!("<think>It's {{\"{b} </thought> {b}</think>{a}"), json!([{ "name": "a" }])),
            // Where its end is the first that one hears of it, only what follows is the answer.
            (format!("It's {{\"… </think>{a}"), json!([{ "name": "a" }])),
            (format!("{{\"why\": \"<think>\"}} {b} </think> {b}"), json!([])),
            (format!("{a} <thin> k>"), json!([{ "name": "a" }])),
        ] {
            assert_eq!(json!(arrived([text.as_str()])), expected, "{text}");
            let bytes = text.char_indices().map(|(at, it)| &text[at..at + it.len_utf8()]);
            assert_eq!(json!(arrived(bytes)), expected, "{text}, letter by letter");
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
        fn it_does_not_matter_where_it_is_cut(text in r#"([\[\]{}:," a\\ä]|"tools":|"plan":|<think>|</think>){0,60}"#, at in 0usize..200) {
            let at = text.floor_char_boundary(at.min(text.len()));
            let (one, other) = text.split_at(at);
            prop_assert_eq!(arrived([one, other]), arrived([text.as_str()]));
        }
    }
}
