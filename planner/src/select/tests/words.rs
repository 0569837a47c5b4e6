use super::*;

fn tools() -> Tools {
    list([
        tool("createAuthor", "Create a new author.", &[]),
        with_parameters("list_pets", "Lists what is there.", &[], &["petStatus", "limit"]),
        tool("clock", "Says the time.", &["what hour is it in Paris"]),
        tool("mute", "", &[]),
    ])
}

#[tokio::test]
async fn names_descriptions_parameters_and_examples_count() {
    let (selector, tools) = (Selector::new(None), tools());
    for (query, expected) in [
        ("creating authors", &["createAuthor"][..]),
        ("pets by status", &["list_pets"]),
        ("the limits", &["list_pets"]),
        ("hours", &["clock"]),
        ("MUTE", &["mute"]),
        ("a list of new authors", &["createAuthor", "list_pets"]),
        ("what is it", &[]),
        ("", &[]),
    ] {
        let matches = chosen(&selector, &tools, &ask(query, Criterion::Lexical)).await;
        assert_eq!(names(&tools, &matches), expected, "{query}");
        assert!(matches.iter().all(|it| it.is_hit && it.score > 0.0), "{matches:?}");
    }
}

#[tokio::test]
async fn rare_words_weigh_more_than_frequent_ones() {
    let selector = Selector::new(None);
    let tools = list([
        tool("a", "send mail", &[]),
        tool("b", "send letters", &[]),
        tool("c", "send parcels", &[]),
        tool("d", "read letters and mail", &[]),
    ]);
    let matches = chosen(&selector, &tools, &ask("send letters", Criterion::Lexical)).await;
    assert_eq!(names(&tools, &matches)[0], "b");
    let limited = Ask { limit: 2, ..ask("parcels I send", Criterion::Lexical) };
    assert_eq!(names(&tools, &chosen(&selector, &tools, &limited).await), ["c", "a"]);
}
