//! A command line whose arguments may name parameters.

use serde::Deserialize;
use serde_json::Value;

use crate::template::Template;

/// A program and its arguments, in which `{{name}}` stands for a parameter. The program cannot be a
/// template.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Argv {
    program: String,
    arguments: Vec<Template>,
}

impl TryFrom<Vec<String>> for Argv {
    type Error = String;

    fn try_from(words: Vec<String>) -> Result<Self, String> {
        let mut words = words.into_iter();
        let program = words.next().filter(|word| !word.is_empty());
        let program = program.ok_or("a command needs a program, as in `[date, -u]`")?;
        if program.contains("{{") {
            return Err(format!(
                "the program `{program}` cannot be a template: only arguments can"
            ));
        }
        Ok(Self { program, arguments: words.map(|word| Template::parse(&word)).collect() })
    }
}

impl Argv {
    pub fn program(&self) -> &str {
        &self.program
    }

    #[must_use]
    pub fn with_program(self, program: String) -> Self {
        Self { program, ..self }
    }

    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().flat_map(Template::parameters)
    }

    pub fn arguments(&self, parameters: &Value) -> Vec<String> {
        self.arguments.iter().filter_map(|argument| argument.render(parameters)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check_arguments(words: &[&str], expected: &[&str]) {
        let words: Vec<_> = words.iter().map(|&word| word.to_owned()).collect();
        let argv = Argv::try_from(words).unwrap();
        let parameters = json!({ "s": "two words; $(rm)", "n": 1.5, "o": { "b": 1, "a": [null] }, "e": "", "z": null });
        assert_eq!(argv.arguments(&parameters), expected);
    }

    #[test]
    fn parameters_are_inserted_into_arguments() {
        check_arguments(&["p", "{{s}}", "-n={{ n }}"], &["two words; $(rm)", "-n=1.5"]);
        check_arguments(&["p", "{{o}}"], &[r#"{"b":1,"a":[null]}"#]);
        check_arguments(&["p", "{{n}}{{s}}x"], &["1.5two words; $(rm)x"]);
    }

    #[test]
    fn arguments_of_absent_parameters_are_left_out() {
        check_arguments(&["p", "{{absent}}", "a"], &["a"]);
        check_arguments(&["p", "--a={{absent}}"], &["--a="]);
        check_arguments(&["p", "{{e}}", "{{z}}"], &["", "null"]);
    }

    #[test]
    fn doubled_braces_are_literal() {
        check_arguments(&["p", "{{{{s}}", "{{s", "", "{s}"], &["{{s}}", "{{s", "", "{s}"]);
    }

    #[test]
    fn a_command_without_a_program_is_an_error() {
        for (words, reason) in [
            (vec![], "needs a program"),
            (vec![""], "needs a program"),
            (vec!["{{p}}"], "`{{p}}` cannot be a template"),
        ] {
            let words: Vec<_> = words.into_iter().map(str::to_owned).collect();
            assert!(Argv::try_from(words).unwrap_err().contains(reason), "{reason}");
        }
    }
}
