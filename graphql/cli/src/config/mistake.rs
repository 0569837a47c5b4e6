use std::{
    fmt,
    path::{Path, PathBuf},
};

use engine::yaml;
use planner::suggest::explain_unknown_field;
use serde_json::{Value, json};
use shared::placed_error::join_paths;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// `None` if the whole file is wrong, such as a file that cannot be read.
    pub line: Option<u64>,
    /// The path of the wrong value, such as `toolsets[2].source.mcp.command`. If a key is missing,
    /// the path may end with this key.
    pub path: Option<String>,
    pub reason: String,
}

impl Mistake {
    pub(super) fn of_file(reason: String) -> Self {
        Self { line: None, path: None, reason }
    }

    pub(super) fn of_syntax(reason: String) -> Self {
        let after = reason.split_once("line ").map(|(_, rest)| rest);
        let digits = after.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        let line = digits.flatten().and_then(|digits| digits.parse().ok());
        Self { line, path: None, reason }
    }

    /// Finds the path and the line of a message that begins with a path, such as "`limits.lease`
    /// is unknown". Adds the nearest known key to a message about an unknown key.
    pub(super) fn locate(text: &str, reason: &str) -> Self {
        let reason = explain_unknown_field(reason);
        let Some((written, rest)) = split_quoted(&reason) else { return Self::of_file(reason) };
        let mut path = written.to_owned();
        // A message such as "`access`: `token` is unknown" names a part after the path.
        if let Some((part, _)) = rest.strip_prefix(": ").and_then(split_quoted) {
            let inner_path = join_paths(&path, part);
            if yaml::find_line(text, &inner_path, None).is_some() {
                path = inner_path;
            }
        }
        let line = find_nearest_line(text, &path);
        Self { line, path: line.map(|_| path), reason }
    }

    fn to_json(&self, file: &Path) -> Value {
        json!({ "file": file, "line": self.line, "path": self.path, "message": self.reason })
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line.filter(|_| self.path.is_some()) {
            Some(line) => write!(f, "line {line}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

fn split_quoted(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('`')?.split_once('`')
}

/// Returns the line of a value. If the value is missing, returns the line of the nearest value
/// that should contain it.
fn find_nearest_line(text: &str, path: &str) -> Option<u64> {
    let mut path = path;
    loop {
        if let Some(line) = yaml::find_line(text, path, None) {
            return Some(line);
        }
        path = &path[..path.rfind(['.', '['])?];
    }
}

/// The mistakes of one file. There is at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes {
    pub file: PathBuf,
    pub list: Vec<Mistake>,
}

impl Mistakes {
    pub fn messages(&self) -> impl Iterator<Item = String> {
        let file = self.file.display();
        self.list.iter().map(move |mistake| format!("`{file}`: {mistake}"))
    }

    /// Returns the first message, and the number of mistakes if there are several, because the
    /// error of a command has one line.
    pub(super) fn summary(&self) -> String {
        let first = self.messages().next().unwrap_or_default();
        match self.list.len() {
            0 | 1 => first,
            count => {
                format!("{first} (the file has {count} mistakes: `faber config check` lists them)")
            }
        }
    }

    pub(super) fn to_json(&self) -> Value {
        self.list.iter().map(|mistake| mistake.to_json(&self.file)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_located_by_the_path_that_it_names() {
        let text = "access:\n  tokens:\n    - name: ci\n      role: root\ntoolsets:\n  - name: a\n    \
                    source:\n      mcp:\n        command: 3\n";
        for (reason, line, path) in [
            ("`access.tokens[0]`: `role` is wrong", Some(4), Some("access.tokens[0].role")),
            ("`access.tokens[0]`: `token_env` is missing", Some(3), Some("access.tokens[0]")),
            (
                "`toolsets[0].source.mcp.command`: x",
                Some(9),
                Some("toolsets[0].source.mcp.command"),
            ),
            (
                "`toolsets[0].source.mcp.x.y` is missing",
                Some(8),
                Some("toolsets[0].source.mcp.x.y"),
            ),
            ("`tokens` are strange", None, None),
            ("strange", None, None),
        ] {
            let found = Mistake::locate(text, reason);
            assert_eq!((found.line, found.path.as_deref()), (line, path), "{reason}");
            assert!(found.reason == reason && found.to_string().ends_with(reason), "{found}");
        }
        let found = Mistake::of_syntax("this is not YAML: line 12, column 3: no".to_owned());
        assert_eq!((found.line, found.to_string()), (Some(12), found.reason.clone()));
    }
}
