//! Lists of search results.

use std::fmt::Write as _;

use super::html::LINK;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) title: String,
    pub(super) url: String,
    pub(super) snippet: String,
}

const TITLE: usize = 400;
const SNIPPET: usize = 400;

/// Returns a numbered list of titles, addresses and snippets.
pub(super) fn listed(query: &str, found: &[Found]) -> String {
    if found.is_empty() {
        return format!("No results found for: {query}");
    }
    let mut text = format!("Results for: {query}");
    for (at, it) in found.iter().enumerate() {
        // Writing into a string cannot fail.
        let title = &it.title[..it.title.floor_char_boundary(TITLE)];
        let url = if it.url.len() > LINK { "(its address is too long)" } else { &it.url };
        let _ = write!(text, "\n\n{}. {title}\n   {url}", at + 1);
        let snippet = &it.snippet[..it.snippet.floor_char_boundary(SNIPPET)];
        if !snippet.is_empty() {
            let more = if snippet.len() < it.snippet.len() { "…" } else { "" };
            let _ = write!(text, "\n   {snippet}{more}");
        }
    }
    text
}
