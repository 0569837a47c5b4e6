use super::*;
use crate::embed::Embedding;

fn make_world() -> (Arc<KnownVectors>, Tools) {
    let known = KnownVectors::new([
        ("clock: Says the hour.", vec![1.0, 0.0, 0.0]),
        ("place: Says where you are.", vec![0.0, 1.0, 0.0]),
        ("order_1: Reads the form K1.", vec![0.0, 0.0, 1.0]),
        ("order_2: Reads the form K2.", vec![0.0, 0.0, 1.0]),
        ("how late is it", vec![0.9, 0.1, 0.0]),
        ("I am lost", vec![0.1, 0.9, 0.0]),
        ("read form K2", vec![0.0, 0.0, 1.0]),
        ("I am lost. And then read form K2", vec![0.0, 0.2, 1.0]),
    ]);
    let tools = list_tools([
        make_tool("clock", "Says the hour.", &[]),
        make_tool("place", "place: Says where you are.", &[]),
        make_tool("order_1", "Reads the form K1.", &[]),
        make_tool("order_2", "Reads the form K2.", &[]),
    ]);
    (known, tools)
}

#[tokio::test]
async fn hybrid_scores_combine_meaning_and_words() {
    let (known, tools) = make_world();
    let selector = Selector::new(Some(known));
    for (query, expected) in
        [("how late is it", "clock"), ("I am lost", "place"), ("read form K2", "order_2")]
    {
        let matches =
            select_tools(&selector, &tools, &selection_request(query, Criterion::Hybrid)).await;
        assert_eq!(matched_names(&tools, &matches)[0], expected, "{matches:?}");
        assert!(matches.iter().all(|found| found.is_hit && found.least_similar.is_none()));
    }
}

#[tokio::test]
async fn each_part_of_a_query_finds_its_tool() {
    let (known, tools) = make_world();
    let selector = Selector::new(Some(Arc::clone(&known) as _));
    let query = "I am lost. And then read form K2";
    let two = SelectionRequest { limit: 2, ..selection_request(query, Criterion::Hybrid) };
    let matches = selector.select(&tools, &two, |index| index != 2).await.unwrap().matches;
    assert_eq!(matched_names(&tools, &matches), ["order_2", "place"]);
    assert_eq!(known.take_embedded_texts()[4..], [query, "I am lost", "read form K2"]);
}

#[tokio::test]
async fn hybrid_selection_without_vectors_uses_words_and_says_why() {
    let (known, tools) = make_world();
    let selector = Selector::new(Some(Arc::clone(&known) as _));
    known.set_broken(true);
    let hybrid = selection_request("read form K2", Criterion::Hybrid);
    let selection = selector.select(&tools, &hybrid, |_| true).await.unwrap();
    assert!(selection.without_meaning.unwrap().to_string().contains("it is broken"));
    assert_eq!(matched_names(&tools, &selection.matches)[0], "order_2");
    known.set_broken(false);
    let selection = selector.select(&tools, &hybrid, |_| true).await.unwrap();
    assert_eq!(selection.without_meaning, None);
}

#[tokio::test]
async fn excluded_tools_do_not_influence_scores() {
    let selector = Selector::new(None);
    let tools = list_tools([
        make_tool("a", "read the form K2", &[]),
        make_tool("b", "forms", &[]),
        make_tool("c", "nothing of that kind", &[]),
    ]);
    let form = selection_request("read form K2", Criterion::Hybrid);
    let selection = selector.select(&tools, &form, |index| index != 0).await.unwrap();
    assert_eq!(matched_names(&tools, &selection.matches), ["b"]);
    assert!((selection.matches[0].score - 0.18).abs() < 1e-6, "{selection:?}");
    assert_eq!(selection.without_meaning, None, "no embedder is configured");
}

#[tokio::test]
async fn learned_outcomes_change_scores_slightly() {
    let (known, tools) = make_world();
    let selector = Selector::new(Some(known));
    let at = Timestamp::UNIX_EPOCH;
    let (good, bad): (ToolName, ToolName) =
        ("tools.order_1".parse().unwrap(), "tools.order_2".parse().unwrap());
    let mut outcomes = Outcomes::default();
    let learned = async |outcomes: &Outcomes, query: &str| {
        let ask = SelectionRequest {
            outcomes: Some((outcomes, at)),
            ..selection_request(query, Criterion::Hybrid)
        };
        select_tools(&selector, &tools, &ask).await
    };
    let before = learned(&outcomes, "read form K2").await;
    assert!(before.iter().all(|found| found.learned.is_none()), "{before:?}");
    assert_eq!(selector.kind(&outcomes, "read form K2").await.unwrap(), None);
    outcomes.learn(None, "how late is it", &[(good.clone(), true)], at);
    assert_eq!(selector.kind(&outcomes, "how late is it").await.unwrap(), Some(0));
    assert_eq!(learned(&outcomes, "read form K2").await, before, "that query is of another kind");
    for _ in 0..18 {
        let kind = selector.kind(&outcomes, "read form K2").await.unwrap();
        outcomes.learn(kind, "read form K2", &[(good.clone(), true), (bad.clone(), false)], at);
    }
    assert_eq!(outcomes.queries().len(), 2);
    let after = learned(&outcomes, "read form K2").await;
    let score = |matches: &[Match], index: usize| {
        let found = matches.iter().find(|found| found.index == index).unwrap();
        (found.score, found.learned)
    };
    for (place, verdict) in [(2, 0.9), (3, -0.9)] {
        let ((was, _), (is, learned)) = (score(&before, place), score(&after, place));
        assert!((learned.unwrap() - verdict).abs() < 1e-9, "{after:?}");
        assert!((is - was - 0.05 * verdict).abs() < 1e-9, "{was} {is}");
    }
    assert_eq!(after.iter().find(|found| found.index == 0).and_then(|found| found.learned), None);
}

/// Queries are personal data, so their vectors are not stored.
#[tokio::test]
async fn kinds_are_embedded_once_and_not_stored() {
    let near = || {
        KnownVectors::new([
            ("a", vec![1.0, 0.0, 0.0]),
            ("b", vec![0.0, 1.0, 0.0]),
            ("c", vec![0.0, 0.0, 1.0]),
        ])
    };
    let (texts, queries) = (near(), near());
    let embedding =
        Embedding { texts: texts.clone(), queries: queries.clone(), source: String::new() };
    let selector = Selector::from_embedding(&embedding);
    let (mut outcomes, at) = (Outcomes::default(), Timestamp::UNIX_EPOCH);
    let tools = [("s.t".parse().unwrap(), true)];
    for (query, expected, expected_texts) in [
        ("a", None, vec!["a"]),
        ("b", None, vec!["b", "a"]),
        ("c", None, vec!["c", "b"]),
        ("a", Some(0), vec!["a", "c"]),
        ("b", Some(1), vec!["b"]),
    ] {
        let kind = selector.kind(&outcomes, query).await.unwrap();
        assert_eq!(kind, expected, "{query}");
        assert_eq!(queries.take_embedded_texts(), expected_texts, "{query}");
        outcomes.learn(kind, query, &tools, at);
    }
    assert_eq!(texts.take_embedded_texts(), Vec::<String>::new());
}
