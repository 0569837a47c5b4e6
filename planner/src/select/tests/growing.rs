use super::*;

fn make_world() -> (Arc<KnownVectors>, Selector) {
    let texts = ["a", "b", "c", "d", "x", "query"];
    let known = KnownVectors::new(texts.iter().enumerate().map(|(index, text)| {
        let mut vector = vec![0.1; 6];
        vector[index] = 1.0;
        (*text, vector)
    }));
    let selector = Selector::new(Some(Arc::clone(&known) as Arc<dyn Embedder>));
    (known, selector)
}

async fn select(selector: &Selector, tools: &Tools, by: Criterion) -> Vec<String> {
    let matches = select_tools(selector, tools, &selection_request("query", by)).await;
    matched_names(tools, &matches).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_criterion_embeds_only_the_texts_it_needs() {
    let (known, selector) = make_world();
    let tools = list_tools([
        make_tool("one", "a", &["b", "c"]),
        make_tool("two", "d", &[]),
        make_tool("three", " ", &[]),
    ]);
    select(&selector, &tools, Criterion::Lexical).await;
    assert!(known.take_embedded_texts().is_empty());
    select(&selector, &tools, Criterion::Centroid).await;
    assert_eq!(known.take_embedded_texts(), ["b", "c", "query"]);
    select(&selector, &tools, Criterion::Description).await;
    assert_eq!(known.take_embedded_texts(), ["a", "d", "query"]);
    select(&selector, &tools, Criterion::Centroid).await;
    assert_eq!(known.take_embedded_texts(), ["query"]);
}

#[tokio::test]
async fn a_new_tool_embeds_only_its_own_texts() {
    let (known, selector) = make_world();
    let one = make_tool("one", "a", &["b"]);
    let select_both_ways = |tools: Vec<Arc<ToolDefinition>>| {
        let selector = &selector;
        async move {
            let tools = list_tools(tools);
            let mut found = select(selector, &tools, Criterion::Centroid).await;
            found.extend(select(selector, &tools, Criterion::Description).await);
            found.sort();
            found
        }
    };
    select_both_ways(vec![Arc::clone(&one)]).await;
    known.take_embedded_texts();
    assert_eq!(
        select_both_ways(vec![make_tool("two", "c", &["d"]), Arc::clone(&one)]).await,
        ["one", "one", "two", "two"]
    );
    assert_eq!(known.take_embedded_texts(), ["d", "query", "c", "query"]);

    // The tool is the same after its source was read again.
    select_both_ways(vec![make_tool("one", "a", &["b"]), make_tool("two", "c", &["d"])]).await;
    assert_eq!(known.take_embedded_texts(), ["query", "query"]);

    assert_eq!(select_both_ways(vec![make_tool("one", "a", &["x"])]).await, ["one", "one"]);
    assert_eq!(known.take_embedded_texts(), ["x", "query", "a", "query"]);
    assert_eq!(select_both_ways(Vec::new()).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_index_of_a_criterion_survives_changes_seen_by_another() {
    let (known, selector) = make_world();
    let one = make_tool("one", "a", &[]);
    select(&selector, &list_tools([Arc::clone(&one)]), Criterion::Description).await;
    let two = make_tool("two", "b", &[]);
    select(&selector, &list_tools([Arc::clone(&one), Arc::clone(&two)]), Criterion::Lexical).await;
    known.take_embedded_texts();
    let three = list_tools([one, two, make_tool("three", "c", &[])]);
    select(&selector, &three, Criterion::Description).await;
    assert_eq!(known.take_embedded_texts(), ["b", "c", "query"]);
}
