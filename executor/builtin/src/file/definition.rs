//! `find_definition`.

use std::{collections::BTreeMap, path::Path};

use grep_regex::RegexMatcher;
use grep_searcher::Searcher;
use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;

use super::{
    languages::{self, Language},
    search::{self, Seen},
};
use crate::root::{Cut, Kind, Lines, Root, Rules, Stop, Walk, clipped, shown};

/// Most definitions that one call shows.
const DEFINITIONS: usize = 200;
/// Longest part of a line that is shown.
const LINE_BYTES: usize = 500;
const NAME_BYTES: usize = 256;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FindDefinition {
    /// The exact name; of `Type::method` or `Class.method` the last part counts.
    pub(super) name: String,
    /// The file or folder to search; the project root by default.
    #[serde(default)]
    pub(super) path: Option<String>,
}

struct Hunt<'a> {
    name: &'a str,
    /// Patterns by the first extension of their language, compiled on first use.
    matchers: BTreeMap<&'static str, RegexMatcher>,
    searcher: Searcher,
    lines: Lines,
    is_full: bool,
}

pub(super) fn find(root: &Root, args: &FindDefinition, stop: &Stop) -> Result<String, ToolError> {
    let name = last_part(&args.name);
    let is_no_name = |it: char| it.is_whitespace() || "()[]{}\"';,".contains(it);
    if name.is_empty() || name.len() > NAME_BYTES || name.contains(is_no_name) {
        let text = format!("Invalid name '{}': give the name of one definition", args.name);
        return Err(ToolError::failed(text).without_retry());
    }
    let place = root.start(args.path.as_deref())?;
    let mut walk = Walk::new(root, Rules::Hidden, stop);
    walk.begin_at(&place)?;
    let mut hunt = Hunt {
        name,
        matchers: BTreeMap::new(),
        searcher: search::searcher(0),
        lines: Lines::new(DEFINITIONS),
        is_full: false,
    };
    while let Some(entry) = walk.next()? {
        let language = languages::of(&entry.path).filter(|_| entry.kind == Kind::File);
        let Some(language) = language else { continue };
        hunt.search(&entry.path, language, &mut walk)?;
        if hunt.is_full {
            break;
        }
    }
    Ok(hunt.told(&walk))
}

impl Hunt<'_> {
    fn search(
        &mut self,
        path: &Path,
        language: &'static Language,
        walk: &mut Walk<'_>,
    ) -> Result<(), ToolError> {
        let key = language.extensions[0];
        if !self.matchers.contains_key(key) {
            let matcher = search::matcher(&language.pattern(self.name), false)?;
            self.matchers.insert(key, matcher);
        }
        let shown = shown(&walk.called(path));
        let mut found = Vec::new();
        let (name, room) = (self.name, DEFINITIONS - self.lines.count());
        let see = |seen: Seen<'_>| {
            if let Seen::Match { number, line } = seen {
                let text = clipped(line, line.len(), LINE_BYTES);
                if !languages::is_statement(&text, name) {
                    found.push(format!("{shown}:{number}: {}", text.trim()));
                }
            }
            found.len() <= room
        };
        let matcher = &self.matchers[key];
        if search::search_file(walk, path, &mut self.searcher, matcher, see)? {
            self.is_full = !found.iter().all(|line| self.lines.push(line));
        }
        Ok(())
    }

    fn told(self, walk: &Walk<'_>) -> String {
        let notes = walk.notes(self.is_full.then_some(Cut::Full(DEFINITIONS, "definitions")));
        let heading = match self.lines.count() {
            0 => format!("No definitions found for: {}", self.name),
            count => format!("Found {count} definition(s) of '{}':", self.name),
        };
        self.lines.between(Some(&heading), &notes)
    }
}

/// Removes the type, class or module before a name, and parentheses after it.
fn last_part(name: &str) -> &str {
    let name = name.trim();
    let name = name.strip_suffix("()").or(name.strip_suffix('(')).unwrap_or(name);
    name.rsplit(['.', ':', '#']).next().unwrap_or(name)
}
