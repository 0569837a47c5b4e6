use std::{fmt::Write as _, mem, sync::Arc};

use html5gum::Token;
use reqwest::{StatusCode, Url};
use schemars::JsonSchema;
use serde::Deserialize;
use shared::tool::{ErrorCode, ToolError};

use super::{
    WebServices,
    html::{self, MAX_LINK_BYTES, get_attribute},
};
use crate::whole;

pub(super) const DOCS_DESCRIPTION: &str = "Search official documentation for popular libraries.";
pub(super) const GITHUB_DESCRIPTION: &str = "Search GitHub repositories.";
pub(super) const STACK_OVERFLOW_DESCRIPTION: &str = "Search Stack Overflow questions and answers.";
pub(super) const WEB_DESCRIPTION: &str = "Search the web using DuckDuckGo (privacy-focused).";
pub(super) const WIKI_DESCRIPTION: &str = "Look up a topic on Wikipedia.";

const MAX_RESULTS: usize = 20;
/// Maximum number of bytes that are read of a title or a snippet.
const MAX_FIELD_BYTES: usize = 4 << 10;
const MAX_DOCS_RESULTS: usize = 5;
const MAX_SUMMARY_BYTES: usize = 3_000;
/// Documentation sites of common libraries. Other libraries are searched by name.
const LIBRARIES: [(&str, &str); 18] = [
    ("angular", "angular.dev"),
    ("django", "docs.djangoproject.com"),
    ("docker", "docs.docker.com"),
    ("fastapi", "fastapi.tiangolo.com"),
    ("flask", "flask.palletsprojects.com"),
    ("go", "pkg.go.dev"),
    ("javascript", "developer.mozilla.org"),
    ("kubernetes", "kubernetes.io"),
    ("mongodb", "www.mongodb.com/docs"),
    ("nodejs", "nodejs.org/docs"),
    ("numpy", "numpy.org/doc"),
    ("pandas", "pandas.pydata.org/docs"),
    ("postgresql", "www.postgresql.org/docs"),
    ("python", "docs.python.org/3"),
    ("react", "react.dev"),
    ("rust", "doc.rust-lang.org"),
    ("typescript", "www.typescriptlang.org/docs"),
    ("vue", "vuejs.org"),
];

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Search {
    /// Search query.
    query: String,
    /// Number of results to return (default: 5, max: 20).
    #[serde(default = "default_results", deserialize_with = "whole::read_number")]
    max_results: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DocsSearch {
    /// Library name (e.g., "python", "flask", "react").
    library: String,
    /// Search terms.
    query: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WikiLookup {
    /// Topic to look up.
    topic: String,
}

fn default_results() -> u64 {
    5
}

impl Search {
    fn result_limit(&self) -> usize {
        usize::try_from(self.max_results).unwrap_or(MAX_RESULTS).clamp(1, MAX_RESULTS)
    }
}

pub(super) async fn search_web(
    services: Arc<WebServices>,
    args: Search,
) -> Result<String, ToolError> {
    require_text("query", &args.query)?;
    search_pages(&services, &services.duckduckgo, &args.query, args.result_limit()).await
}

pub(super) async fn search_docs(
    services: Arc<WebServices>,
    args: DocsSearch,
) -> Result<String, ToolError> {
    let library = args.library.trim().to_lowercase();
    let known_library = LIBRARIES.iter().find(|(name, _)| *name == library);
    let query = match known_library {
        Some((_, site)) => format!("site:{site} {}", args.query),
        None => format!("{} documentation {}", args.library.trim(), args.query),
    };
    search_pages(&services, &services.docs, &query, MAX_DOCS_RESULTS).await
}

fn require_text<'a>(name: &str, text: &'a str) -> Result<&'a str, ToolError> {
    let text = text.trim();
    if text.is_empty() {
        let message = format!("`{name}` is empty: enter a search term");
        return Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, message));
    }
    Ok(text)
}

async fn search_pages(
    services: &WebServices,
    base: &Url,
    query: &str,
    limit: usize,
) -> Result<String, ToolError> {
    let mut url = base.clone();
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    url.query_pairs_mut().append_pair("q", query);
    let answer = services.web.get(url, "text/html").await?;
    let text = String::from_utf8_lossy(&answer.bytes).into_owned();
    let ResultPage { mut results, is_result_page } = read_results(&text, &answer.url);
    let is_asked = answer.status == StatusCode::ACCEPTED || text.contains("anomaly-modal");
    let host = base.host_str().unwrap_or_default();
    if results.is_empty() && is_asked {
        let complaint = "requires a CAPTCHA: try again later, or configure another search service";
        return Err(ToolError::new(ErrorCode::UNAVAILABLE, format!("`{host}` {complaint}")));
    }
    if !is_result_page {
        let text = format!("`{host}` sent an unexpected answer without a list of results");
        return Err(ToolError::failed(text));
    }
    results.truncate(limit);
    Ok(format_results(query, &results))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ResultPart {
    Title,
    Snippet,
}

#[derive(Default)]
struct ResultPage {
    results: Vec<SearchResult>,
    /// `true` if the page has results or adverts, or states that it has no results.
    is_result_page: bool,
}

const NO_RESULTS_CLASSES: [&str; 2] = ["no-results", "result--no-result"];

fn read_results(html: &str, base: &Url) -> ResultPage {
    let ResultPage { mut results, mut is_result_page } = ResultPage::default();
    let mut part = None;
    let mut is_advert = false;
    for token in html::html_tokens(html) {
        match token {
            Token::StartTag(tag) => {
                let classes = get_attribute(&tag, b"class").unwrap_or_default();
                let has = |class: &str| classes.split_whitespace().any(|name| name == class);
                is_result_page |= has("result__a") || NO_RESULTS_CLASSES.into_iter().any(has);
                if has("result__a") && results.len() == MAX_RESULTS {
                    break;
                }
                if has("result__a") {
                    let url =
                        get_attribute(&tag, b"href").and_then(|href| result_link(base, &href));
                    is_advert = url.is_none();
                    part = (!is_advert).then_some(ResultPart::Title);
                    results.extend(url.map(|url| SearchResult { url, ..SearchResult::default() }));
                } else if has("result__snippet") && !is_advert {
                    part = Some(ResultPart::Snippet);
                }
            }
            Token::String(text) => {
                let text = String::from_utf8_lossy(&text);
                match (part, results.last_mut()) {
                    (Some(ResultPart::Title), Some(result)) => {
                        push_limited(&mut result.title, &text);
                    }
                    (Some(ResultPart::Snippet), Some(result)) => {
                        push_limited(&mut result.snippet, &text);
                    }
                    _ => (),
                }
            }
            // The part may contain inline elements. It ends where its link or table cell ends.
            Token::EndTag(tag) if matches!(&**tag.name, b"a" | b"div" | b"td") => part = None,
            _ => (),
        }
    }
    for result in &mut results {
        result.title = collapse_whitespace(&mem::take(&mut result.title));
        result.snippet = collapse_whitespace(&mem::take(&mut result.snippet));
    }
    ResultPage { results, is_result_page }
}

fn push_limited(to: &mut String, text: &str) {
    let room = MAX_FIELD_BYTES.saturating_sub(to.len());
    to.push_str(&text[..text.floor_char_boundary(room)]);
}

/// Returns the address of a result, behind a link that counts clicks. Returns `None` for adverts
/// and for links that cannot be used.
fn result_link(base: &Url, href: &str) -> Option<String> {
    let url = html::join_link(base, href)?;
    let is_counted = url.path() == "/l/";
    let counted = url.query_pairs().find(|pair| is_counted && pair.0 == "uddg");
    if let Some((_, url)) = counted {
        return Some(url.into_owned());
    }
    (url.path() != "/y.js").then(|| url.to_string())
}

fn collapse_whitespace(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn service_url<'a>(
    base: &Url,
    path: &str,
    pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Url {
    let mut url = base.clone();
    let path = format!("{}/{path}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.query_pairs_mut().extend_pairs(pairs);
    url
}

#[derive(Deserialize)]
struct Items<T> {
    items: Vec<T>,
}

#[derive(Deserialize)]
struct Repository {
    full_name: String,
    html_url: String,
    description: Option<String>,
    #[serde(default)]
    stargazers_count: u64,
    language: Option<String>,
}

pub(super) async fn search_github(
    services: Arc<WebServices>,
    args: Search,
) -> Result<String, ToolError> {
    require_text("query", &args.query)?;
    let limit = args.result_limit().to_string();
    let pairs =
        [("q", args.query.as_str()), ("sort", "stars"), ("order", "desc"), ("per_page", &limit)];
    let url = service_url(&services.github, "search/repositories", pairs);
    let answer: Items<Repository> = services.web.get_json(url).await?;
    let results = answer.items.into_iter().take(args.result_limit()).map(|repository| {
        let language = repository.language.as_deref().unwrap_or("Unknown");
        let description = repository.description.as_deref().unwrap_or("No description");
        SearchResult {
            title: repository.full_name,
            url: repository.html_url,
            snippet: format!(
                "{} stars, {language}: {}",
                repository.stargazers_count,
                collapse_whitespace(description)
            ),
        }
    });
    Ok(format_results(&args.query, &results.collect::<Vec<_>>()))
}

#[derive(Deserialize)]
struct Question {
    title: String,
    link: String,
    #[serde(default)]
    score: i64,
    #[serde(default)]
    is_answered: bool,
    #[serde(default)]
    answer_count: u64,
    #[serde(default)]
    view_count: u64,
}

pub(super) async fn search_stack_overflow(
    services: Arc<WebServices>,
    args: Search,
) -> Result<String, ToolError> {
    require_text("query", &args.query)?;
    let limit = args.result_limit().to_string();
    let pairs = [
        ("order", "desc"),
        ("sort", "relevance"),
        ("q", args.query.as_str()),
        ("site", "stackoverflow"),
        ("pagesize", &limit),
    ];
    let url = service_url(&services.stack_overflow, "search/advanced", pairs);
    let answer: Items<Question> = services.web.get_json(url).await?;
    let results = answer.items.into_iter().take(args.result_limit()).map(|question| {
        let answered = if question.is_answered { "answered" } else { "not answered" };
        let (score, answers, views) = (question.score, question.answer_count, question.view_count);
        SearchResult {
            title: html::strip_tags(&question.title),
            url: question.link,
            snippet: format!("score {score}, {answered}, {answers} answers, {views} views"),
        }
    });
    Ok(format_results(&args.query, &results.collect::<Vec<_>>()))
}

#[derive(Deserialize)]
struct Articles {
    query: Option<Pages>,
}

#[derive(Deserialize)]
struct Pages {
    #[serde(default)]
    pages: Vec<Article>,
}

#[derive(Deserialize)]
struct Article {
    title: String,
    #[serde(default)]
    missing: bool,
    #[serde(default)]
    extract: String,
    #[serde(default)]
    fullurl: String,
}

/// Parameters that request the address and the start of an article as text.
const ARTICLE_PARAMETERS: [(&str, &str); 8] = [
    ("action", "query"),
    ("format", "json"),
    ("formatversion", "2"),
    ("prop", "extracts|info"),
    ("inprop", "url"),
    ("exintro", "1"),
    ("explaintext", "1"),
    ("redirects", "1"),
];

pub(super) async fn look_up_topic(
    services: Arc<WebServices>,
    args: WikiLookup,
) -> Result<String, ToolError> {
    let topic = require_text("topic", &args.topic)?;
    // Looks for the article with this title, and then for the first search result.
    for parameters in [
        vec![("titles", topic)],
        vec![("generator", "search"), ("gsrsearch", topic), ("gsrlimit", "1")],
    ] {
        let url = service_url(
            &services.wikipedia,
            "w/api.php",
            ARTICLE_PARAMETERS.into_iter().chain(parameters),
        );
        let answer: Articles = services.web.get_json(url).await?;
        let pages = answer.query.map(|answer| answer.pages).unwrap_or_default();
        if let Some(article) =
            pages.into_iter().find(|article| !article.missing && !article.extract.is_empty())
        {
            let summary =
                &article.extract[..article.extract.floor_char_boundary(MAX_SUMMARY_BYTES)];
            return Ok(format!("{}\n{}\n\n{}", article.title, article.fullurl, summary.trim()));
        }
    }
    Ok(format_results(topic, &[]))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct SearchResult {
    title: String,
    url: String,
    snippet: String,
}

const MAX_TITLE_BYTES: usize = 400;
const MAX_SNIPPET_BYTES: usize = 400;

fn format_results(query: &str, results: &[SearchResult]) -> String {
    if results.is_empty() {
        return format!("No results found for: {query}");
    }
    let mut text = format!("Results for: {query}");
    for (index, result) in results.iter().enumerate() {
        // Writing into a string cannot fail.
        let title = &result.title[..result.title.floor_char_boundary(MAX_TITLE_BYTES)];
        let url = if result.url.len() > MAX_LINK_BYTES {
            "(its address is too long)"
        } else {
            &result.url
        };
        let _ = write!(text, "\n\n{}. {title}\n   {url}", index + 1);
        let snippet = &result.snippet[..result.snippet.floor_char_boundary(MAX_SNIPPET_BYTES)];
        if !snippet.is_empty() {
            let more = if snippet.len() < result.snippet.len() { "…" } else { "" };
            let _ = write!(text, "\n   {snippet}{more}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_titles_are_limited() {
        let one =
            format!(r#"<a class="result__a" href="/x">{}</a>"#, "t".repeat(MAX_FIELD_BYTES + 1));
        let base = "https://example.com/".parse().unwrap();
        let results = read_results(&one.repeat(1_000), &base).results;
        assert_eq!((results.len(), results[0].title.len()), (MAX_RESULTS, MAX_FIELD_BYTES));
    }

    #[test]
    fn results_are_parsed_from_a_result_page() {
        let html = r#"
          <div class="result results_links result--ad"><h2 class="result__title">
            <a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=x">Buy</a></h2>
            <a class="result__snippet" href="https://duckduckgo.com/y.js?x">now</a></div>
          <div class="result results_links"><h2 class="result__title">
            <a rel="nofollow" class="result__a"
               href="//duckduckgo.com/l/?uddg=https%3A%2F%2Frust%2Dlang.org%2F%3Fa%3D1&amp;rut=1">Rust
               &amp; <b>Cargo</b></a></h2>
            <a class="result__url" href="x">rust-lang.org</a>
            <a class="result__snippet" href="x">A <b>language</b>.</a></div>
          <div class="result"><a class="result__a" href="https://b.example/">B</a></div>"#;
        let base = "https://html.duckduckgo.com/html/".parse().unwrap();
        let results = read_results(html, &base).results;
        let expected = [
            ("Rust & Cargo", "https://rust-lang.org/?a=1", "A language."),
            ("B", "https://b.example/", ""),
        ];
        let results: Vec<_> = results
            .iter()
            .map(|result| (result.title.as_str(), result.url.as_str(), result.snippet.as_str()))
            .collect();
        assert_eq!(results, expected);
    }
}
