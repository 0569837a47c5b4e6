//! Search terms of lists, shared by all stores so that all of them find the same items.

use std::collections::BTreeSet;

use crate::plan::Plan;

/// Returns a text in lower case, because searches ignore case.
pub fn fold_case(text: &str) -> String {
    text.to_lowercase()
}

/// Returns the words that a text must contain, without duplicates.
///
/// The nesting of a store's query grows with the number of words. Callers with outside input must
/// enforce [`crate::limits::SEARCH_WORDS`].
pub fn search_words(search: Option<&str>) -> Vec<String> {
    let words = search.unwrap_or_default().split_whitespace();
    words.map(fold_case).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the names under which a plan's tools are found: `set.name` and the name without its set.
pub fn searched_tools(plan: &Plan) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    for step in plan.steps() {
        let name = step.tool.as_str();
        names.insert(name);
        names
            .extend(name.split_once('.').map(|(_, plain)| plain).filter(|plain| !plain.is_empty()));
    }
    names
}
