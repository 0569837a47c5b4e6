//! What lists look for, said once, so that every store finds the same.

use std::collections::BTreeSet;

use crate::plan::Plan;

/// Returns a text as it is searched: case does not matter.
pub fn fold_case(text: &str) -> String {
    text.to_lowercase()
}

/// Returns the words that a text must have, each somewhere, each once.
///
/// A query of a store nests as deep as there are words: [`crate::limits::SEARCH_WORDS`] says how many whoever
/// takes a search from outside lets through.
pub fn search_words(search: Option<&str>) -> Vec<String> {
    let words = search.unwrap_or_default().split_whitespace();
    words.map(fold_case).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the names by which the tools of a plan are looked for: `set.name` and the plain name.
pub fn searched_tools(plan: &Plan) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for step in plan.steps() {
        let name = step.tool.as_str();
        names.insert(name);
        names.extend(name.split_once('.').map(|(_, plain)| plain).filter(|it| !it.is_empty()));
    }
    names
}
