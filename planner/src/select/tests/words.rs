use super::*;

fn make_tools() -> Tools {
    list_tools([
        make_tool("createAuthor", "Create a new author.", &[]),
        tool_with_parameters("list_pets", "Lists what is there.", &[], &["petStatus", "limit"]),
        make_tool("clock", "Says the time.", &["what hour is it in Paris"]),
        make_tool("mute", "", &[]),
    ])
}

#[tokio::test]
async fn names_descriptions_parameters_and_examples_count() {
    let (selector, tools) = (Selector::new(None), make_tools());
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
        let matches =
            select_tools(&selector, &tools, &selection_request(query, Criterion::Lexical)).await;
        assert_eq!(matched_names(&tools, &matches), expected, "{query}");
        assert!(matches.iter().all(|found| found.is_hit && found.score > 0.0), "{matches:?}");
    }
}

#[tokio::test]
async fn rare_words_weigh_more_than_frequent_ones() {
    let selector = Selector::new(None);
    let tools = list_tools([
        make_tool("a", "send mail", &[]),
        make_tool("b", "send letters", &[]),
        make_tool("c", "send parcels", &[]),
        make_tool("d", "read letters and mail", &[]),
    ]);
    let matches =
        select_tools(&selector, &tools, &selection_request("send letters", Criterion::Lexical))
            .await;
    assert_eq!(matched_names(&tools, &matches)[0], "b");
    let limited =
        SelectionRequest { limit: 2, ..selection_request("parcels I send", Criterion::Lexical) };
    assert_eq!(matched_names(&tools, &select_tools(&selector, &tools, &limited).await), ["c", "a"]);
}
