//! The index embeds only texts that are new.

use super::*;

fn world() -> (Arc<Known>, Selector) {
    let texts = ["a", "b", "c", "d", "x", "query"];
    let known = Known::new(texts.iter().enumerate().map(|(at, it)| {
        let mut vector = vec![0.1; 6];
        vector[at] = 1.0;
        (*it, vector)
    }));
    let selector = Selector::new(Some(Arc::clone(&known) as Arc<dyn Embedder>));
    (known, selector)
}

async fn select(selector: &Selector, tools: &Tools, by: Criterion) -> Vec<String> {
    let matches = chosen(selector, tools, &ask("query", by)).await;
    names(tools, &matches).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_criterion_embeds_only_the_texts_it_needs() {
    let (known, selector) = world();
    let tools =
        list([tool("one", "a", &["b", "c"]), tool("two", "d", &[]), tool("three", " ", &[])]);
    select(&selector, &tools, Criterion::Lexical).await;
    assert!(known.asked().is_empty());
    select(&selector, &tools, Criterion::Centroid).await;
    assert_eq!(known.asked(), ["b", "c", "query"]);
    select(&selector, &tools, Criterion::Description).await;
    assert_eq!(known.asked(), ["a", "d", "query"]);
    select(&selector, &tools, Criterion::Centroid).await;
    assert_eq!(known.asked(), ["query"]);
}

#[tokio::test]
async fn a_new_tool_embeds_only_its_own_texts() {
    let (known, selector) = world();
    let one = tool("one", "a", &["b"]);
    let both = |tools: Vec<Arc<ToolDefinition>>| {
        let selector = &selector;
        async move {
            let tools = list(tools);
            let mut found = select(selector, &tools, Criterion::Centroid).await;
            found.extend(select(selector, &tools, Criterion::Description).await);
            found.sort();
            found
        }
    };
    both(vec![Arc::clone(&one)]).await;
    known.asked();
    assert_eq!(
        both(vec![tool("two", "c", &["d"]), Arc::clone(&one)]).await,
        ["one", "one", "two", "two"]
    );
    assert_eq!(known.asked(), ["d", "query", "c", "query"]);

    // The same tool after its source was read again.
    both(vec![tool("one", "a", &["b"]), tool("two", "c", &["d"])]).await;
    assert_eq!(known.asked(), ["query", "query"]);

    // One tool changed, and one disappeared.
    assert_eq!(both(vec![tool("one", "a", &["x"])]).await, ["one", "one"]);
    assert_eq!(known.asked(), ["x", "query", "a", "query"]);
    assert_eq!(both(Vec::new()).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_index_of_a_criterion_survives_changes_seen_by_another() {
    let (known, selector) = world();
    let one = tool("one", "a", &[]);
    select(&selector, &list([Arc::clone(&one)]), Criterion::Description).await;
    let two = tool("two", "b", &[]);
    select(&selector, &list([Arc::clone(&one), Arc::clone(&two)]), Criterion::Lexical).await;
    known.asked();
    let three = list([one, two, tool("three", "c", &[])]);
    select(&selector, &three, Criterion::Description).await;
    assert_eq!(known.asked(), ["b", "c", "query"]);
}
