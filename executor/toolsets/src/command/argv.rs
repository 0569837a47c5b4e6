//! A command line whose arguments may name parameters.

use serde::Deserialize;
use serde_json::Value;

use crate::template::Template;

/// A program and its arguments, in which `{{name}}` stands for a parameter.
///
/// A string stands as it is, everything else as compact JSON. An argument that is exactly one
/// `{{name}}` is left out where the parameter is absent; inside text an absent one is empty.
/// `{{{{` writes a literal `{{`; an unclosed `{{` is literal. The program is never a template.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Argv {
    program: String,
    arguments: Vec<Template>,
}

/// A list of words that is no command line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseArgvError {
    /// There is no program.
    #[error("a command needs a program, as in `[date, -u]`")]
    Empty,
    /// The program would depend on what a plan says.
    #[error("the program `{0}` cannot be a template: only arguments can")]
    Template(String),
}

impl TryFrom<Vec<String>> for Argv {
    type Error = ParseArgvError;

    fn try_from(words: Vec<String>) -> Result<Self, ParseArgvError> {
        let mut words = words.into_iter();
        let program = words.next().filter(|it| !it.is_empty()).ok_or(ParseArgvError::Empty)?;
        if program.contains("{{") {
            return Err(ParseArgvError::Template(program));
        }
        Ok(Self { program, arguments: words.map(|it| Template::parse(&it)).collect() })
    }
}

impl Argv {
    /// Returns the program.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Runs another program with the same arguments.
    #[must_use]
    pub fn with_program(self, program: String) -> Self {
        Self { program, ..self }
    }

    /// Returns the parameters that the arguments name.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().flat_map(Template::parameters)
    }

    /// Fills in the parameters.
    pub fn arguments(&self, parameters: &Value) -> Vec<String> {
        self.arguments.iter().filter_map(|it| it.fill(parameters)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(words: &[&str], expected: &[&str]) {
        let words: Vec<_> = words.iter().map(|&it| it.to_owned()).collect();
        let argv = Argv::try_from(words).unwrap();
        let parameters = json!({ "s": "two words; $(rm)", "n": 1.5, "o": { "b": 1, "a": [null] }, "e": "", "z": null });
        assert_eq!(argv.arguments(&parameters), expected);
    }

    #[test]
    fn parameters_are_filled_in() {
        check(&["p", "{{s}}", "-n={{ n }}"], &["two words; $(rm)", "-n=1.5"]);
        check(&["p", "{{o}}"], &[r#"{"b":1,"a":[null]}"#]);
        check(&["p", "{{n}}{{s}}x"], &["1.5two words; $(rm)x"]);
    }

    #[test]
    fn absent_parameters_are_left_out() {
        check(&["p", "{{absent}}", "a"], &["a"]);
        check(&["p", "--a={{absent}}"], &["--a="]);
        check(&["p", "{{e}}", "{{z}}"], &["", "null"]);
    }

    #[test]
    fn braces_can_be_literal() {
        check(&["p", "{{{{s}}", "{{s", "", "{s}"], &["{{s}}", "{{s", "", "{s}"]);
    }

    #[test]
    fn no_program_is_an_error() {
        assert_eq!(Argv::try_from(Vec::new()), Err(ParseArgvError::Empty));
        assert_eq!(Argv::try_from(vec![String::new()]), Err(ParseArgvError::Empty));
        let template = vec!["{{p}}".to_owned()];
        assert_eq!(Argv::try_from(template), Err(ParseArgvError::Template("{{p}}".to_owned())));
    }
}
