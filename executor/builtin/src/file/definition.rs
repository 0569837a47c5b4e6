use std::{collections::BTreeMap, path::Path};

use grep_regex::RegexMatcher;
use grep_searcher::Searcher;
use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::ToolError;

use super::{
    languages::{self, Language},
    search::{self, SeenLine},
};
use crate::root::{
    CutReason, EntryKind, OutputLines, Root, StopSignal, Walk, WalkRules, clip_line, display_path,
};

const MAX_DEFINITIONS: usize = 200;
const MAX_SHOWN_LINE_BYTES: usize = 500;
const MAX_NAME_BYTES: usize = 256;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FindDefinition {
    /// Exact name. Of `Type::method` or `Class.method`, only the last part is used.
    pub(super) name: String,
    /// File or folder to search. Default: the project root.
    #[serde(default)]
    pub(super) path: Option<String>,
}

struct DefinitionSearch<'a> {
    name: &'a str,
    /// Compiled patterns of each language, by the first file extension of the language. A
    /// language's patterns are compiled when they are first used.
    matchers: BTreeMap<&'static str, RegexMatcher>,
    searcher: Searcher,
    lines: OutputLines,
    is_full: bool,
}

pub(super) fn find_definition(
    root: &Root,
    args: &FindDefinition,
    stop: &StopSignal,
) -> Result<String, ToolError> {
    let name = strip_qualifier(&args.name);
    let is_invalid_char = |char: char| char.is_whitespace() || "()[]{}\"';,".contains(char);
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains(is_invalid_char) {
        let text = format!("Invalid name '{}': give the name of one definition", args.name);
        return Err(ToolError::failed(text).without_retry());
    }
    let target_path = root.resolve_existing(args.path.as_deref())?;
    let mut walk = Walk::new(root, WalkRules::Hidden, stop);
    walk.start_at(&target_path)?;
    let mut definition_search = DefinitionSearch {
        name,
        matchers: BTreeMap::new(),
        searcher: search::build_searcher(0),
        lines: OutputLines::new(MAX_DEFINITIONS),
        is_full: false,
    };
    while let Some(entry) = walk.next()? {
        let language =
            languages::find_language(&entry.path).filter(|_| entry.kind == EntryKind::File);
        let Some(language) = language else { continue };
        definition_search.search_file(&entry.path, language, &mut walk)?;
        if definition_search.is_full {
            break;
        }
    }
    Ok(definition_search.into_output(&walk))
}

impl DefinitionSearch<'_> {
    fn search_file(
        &mut self,
        path: &Path,
        language: &'static Language,
        walk: &mut Walk<'_>,
    ) -> Result<(), ToolError> {
        let key = language.extensions[0];
        if !self.matchers.contains_key(key) {
            let matcher = search::build_matcher(&language.definition_pattern(self.name), false)?;
            self.matchers.insert(key, matcher);
        }
        let shown_path = display_path(&walk.to_caller_path(path));
        let mut found = Vec::new();
        let (name, room) = (self.name, MAX_DEFINITIONS - self.lines.len());
        let on_line = |seen: SeenLine<'_>| {
            if let SeenLine::Match { number, line } = seen {
                let text = clip_line(line, line.len(), MAX_SHOWN_LINE_BYTES);
                if !languages::is_statement(&text, name) {
                    found.push(format!("{shown_path}:{number}: {}", text.trim()));
                }
            }
            found.len() <= room
        };
        let matcher = &self.matchers[key];
        if search::search_file(walk, path, &mut self.searcher, matcher, on_line)? {
            self.is_full = !found.iter().all(|line| self.lines.push(line));
        }
        Ok(())
    }

    fn into_output(self, walk: &Walk<'_>) -> String {
        let notes = walk
            .closing_notes(self.is_full.then_some(CutReason::Full(MAX_DEFINITIONS, "definitions")));
        let heading = match self.lines.len() {
            0 => format!("No definitions found for: {}", self.name),
            count => format!("Found {count} definition(s) of '{}':", self.name),
        };
        self.lines.into_text(Some(&heading), &notes)
    }
}

fn strip_qualifier(name: &str) -> &str {
    let name = name.trim();
    let name = name.strip_suffix("()").or(name.strip_suffix('(')).unwrap_or(name);
    name.rsplit(['.', ':', '#']).next().unwrap_or(name)
}
