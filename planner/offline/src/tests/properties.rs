use std::time::Instant;

use proptest::prelude::*;

use super::{
    blog::blog,
    yardstick::{catalogs, queries},
    *,
};

#[test]
fn a_query_that_is_too_long_is_refused() {
    let query = "list all authors ".repeat(shared::limits::QUERY_BYTES / 16);
    let said = outcome(&blog(), &query);
    assert!(said.starts_with("no plan: the query has ") && said.contains("the limit is"), "{said}");
}

#[test]
fn without_active_tools_there_is_no_plan() {
    let inactive =
        blog().tools().to_vec().into_iter().map(|tool| CatalogTool { is_active: false, ..tool });
    for tools in [Catalog::default(), Catalog::new(inactive)] {
        assert!(outcome(&tools, "list all authors").starts_with("no plan: there are no tools"));
    }
}

#[tokio::test]
async fn the_notes_tell_how_a_query_was_read() {
    let query = "List all authors, then list all blogs";
    let proposal = Offline::default().propose(query, &blog(), &blog()).await.unwrap();
    assert_eq!(proposal.draft.query.as_deref(), Some(query));
    let kinds: Vec<&str> = proposal.notes.iter().map(|note| note.kind).collect();
    assert_eq!(kinds, ["clauses", "candidates"]);
    assert_eq!(proposal.notes[0].content, json!(["List all authors", "list all blogs"]));
}

/// The time grows at most with the square of the length, for a query of many clauses and for one
/// long clause.
#[test]
fn time_grows_with_the_length_of_the_query() {
    for part in [
        "create author Ann with email ann@x.io, then ",
        "lamp of the house in ",
        "and, ",
        "\"a\" to ",
        "if x is y ",
    ] {
        let took = |count: usize| {
            let query = format!("list all authors {}", part.repeat(count));
            let started = Instant::now();
            let _ = propose(&query, &blog());
            started.elapsed()
        };
        let (short, long) = (took(20), took(80));
        assert!(
            long < 16 * short + std::time::Duration::from_millis(500),
            "{part}: {short:?}, {long:?}"
        );
    }
}

fn word() -> impl Strategy<Value = String> {
    let words = [
        "create",
        "author",
        "blog",
        "by",
        "Alice",
        "titled",
        "with",
        "email",
        "a@b.c",
        "and",
        ",",
        "then",
        "it",
        "its",
        "title",
        "if",
        "unless",
        "for each",
        "every",
        "all",
        "not",
        "don't",
        "\"x y\"",
        "'",
        "(",
        ":",
        "12",
        "acme/site",
        "507f1f77bcf86cd799439011",
        "2026-03-01",
        "is",
        "has",
        "of",
        "to",
        "the",
        "?",
        "!",
        ".",
        "/tmp/a.txt",
        "é",
        "otherwise",
        "there are no",
        "fewer than",
        "one",
        "says",
        "about",
        "delete",
        "update",
        "list",
        "them",
        "first",
    ];
    prop_oneof![4 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

fn spliced_query() -> impl Strategy<Value = String> {
    let queries: Vec<String> = queries("dev").into_iter().map(|(.., query)| query).collect();
    let query = proptest::sample::select(queries);
    let join = proptest::sample::select(vec![" ", " and ", ", then ", ". ", " if ", " for each "]);
    (query.clone(), query, any::<prop::sample::Index>(), any::<prop::sample::Index>(), join)
        .prop_map(|(first, second, end, start, join)| {
            let first: Vec<&str> = first.split(' ').collect();
            let second: Vec<&str> = second.split(' ').collect();
            let (end, start) = (end.index(first.len() + 1), start.index(second.len()));
            format!("{}{join}{}", first[..end].join(" "), second[start..].join(" "))
        })
}

/// The second clause gets the noun `event` from the first one, which is no value.
#[test]
fn a_noun_of_the_clause_before_is_no_value() {
    let query = "list and play Miles Davis in the living room";
    let said = outcome(&catalogs()["all"], query);
    assert!(!said.contains(r#""event""#), "{said}");
}

fn is_said(value: &Value, schema: &Value, query: &str) -> bool {
    let query = query.to_lowercase();
    match value {
        Value::String(text) if text.contains("{{") => true,
        Value::String(text) => {
            let is_member = schema["enum"].as_array().is_some_and(|all| all.contains(value));
            let is_day = text.get(..10).is_some_and(|day| day.parse::<chrono::NaiveDate>().is_ok());
            let text = text.to_lowercase();
            let mut parts = text.split(|char: char| !char.is_alphanumeric());
            is_member || is_day || parts.all(|part| query.contains(part))
        }
        Value::Number(number) => {
            // `an hour` becomes minutes, and small numbers may be words.
            let is_small = number.as_u64().is_some_and(|number| number <= 10);
            let is_time = number.as_u64().is_some_and(|number| number % 60 == 0);
            is_small || is_time || query.contains(&number.to_string())
        }
        Value::Array(values) => values.iter().all(|value| is_said(value, &schema["items"], &query)),
        Value::Object(fields) => {
            fields.iter().all(|(name, value)| is_said(value, &schema["properties"][name], &query))
        }
        Value::Bool(_) | Value::Null => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every proposal compiles, nothing panics, and a plan in doubt does not act without a person.
    #[test]
    fn every_proposal_compiles(words in proptest::collection::vec(word(), 0..20)) {
        static BLOG: LazyLock<Catalog> = LazyLock::new(blog);
        let query = words.join(" ");
        if let Ok(proposal) = propose(&query, &BLOG) {
            assert_compiles(&proposal, &BLOG);
            prop_assert!(proposal.draft.tools.len() <= 64);
            if !proposal.warnings.is_empty() {
                let acts = proposal.draft.tools.iter().filter(|step| step.name.as_deref().is_some_and(|name| !name.starts_with("get") && !name.starts_with("list")));
                prop_assert!(acts.into_iter().all(|step| step.requires_approval == Some(true)));
            }
        }
    }

    /// The parameters of calls that act are in the query, allowed by the schema or returned by
    /// earlier steps. The same query gives the same plan.
    #[test]
    fn no_value_is_invented(query in spliced_query()) {
        let all = &catalogs()["all"];
        prop_assert_eq!(outcome(all, &query), outcome(all, &query));
        for step in propose(&query, all).map(|proposal| proposal.draft.tools).unwrap_or_default() {
            let tool = all.find(step.name.as_deref().unwrap()).unwrap();
            let (schema, parameters) = (&tool.definition.input_schema, step.parameters.unwrap());
            prop_assert!(
                tool.definition.effect == Effect::Read || is_said(&parameters, schema, &query),
                "{}: {}", query, parameters
            );
        }
    }
}
