use super::*;
use crate::select::{Centroid, Collision, Similarity};

fn make_world() -> (Arc<KnownVectors>, Tools) {
    let known = KnownVectors::new([
        ("what time is it", vec![1.0, 0.0, 0.0]),
        ("tell me the time", vec![0.8, 0.6, 0.0]),
        ("clock", vec![1.0, 0.0, 0.0]),
        ("where am i", vec![0.0, 0.0, 1.0]),
        ("my place", vec![0.0, 0.6, 0.8]),
        ("time please", vec![0.95, 0.3, 0.0]),
        ("when", vec![0.6, 0.0, 0.8]),
        ("Says the time.", vec![0.6, 0.8, 0.0]),
        ("Says where.", vec![0.0, 0.0, 1.0]),
        ("Says nothing.", vec![0.0, 1.0, 0.0]),
    ]);
    let tools = list_tools([
        make_tool("time", "Says the time.", &["what time is it", "tell me the time", " ", "clock"]),
        make_tool("place", "Says where.", &["where am i", "my place"]),
        make_tool("mute", "Says nothing.", &[]),
    ]);
    (known, tools)
}

#[test]
fn a_centroid_is_a_mean_with_its_least_similar_example() {
    let of = |vectors: &[[f32; 2]]| {
        Centroid::mean_of(&vectors.iter().map(|vector| vector.to_vec()).collect::<Vec<_>>())
            .unwrap()
    };
    let centroid = of(&[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]);
    assert_eq!(centroid.mean, [2.0 / 3.0, 1.0 / 3.0]);
    assert_eq!(centroid.least_similar_index, 1);
    assert!((centroid.least_similar - 1.0 / 5.0_f64.sqrt()).abs() < 1e-6, "{centroid:?}");
    assert!((of(&[[3.0, 4.0]]).least_similar - 1.0).abs() < 1e-12);
    assert_eq!(Centroid::mean_of(&[]), None);
    assert_eq!(Centroid::mean_of(&[vec![1.0], vec![1.0, 2.0]]), None, "two models made these");
    assert!(of(&[[1.0, 0.0], [-1.0, 0.0]]).least_similar.abs() < 1e-12, "no middle");
}

#[tokio::test]
async fn a_hit_is_nearer_than_the_least_similar_example() {
    let (known, tools) = make_world();
    let selector = Selector::new(Some(known));
    let mut ask = selection_request("time please", Criterion::Centroid);
    let matches = select_tools(&selector, &tools, &ask).await;
    assert_eq!(
        matched_names(&tools, &matches),
        ["time", "place"],
        "a tool without examples takes no part"
    );
    assert!(matches[0].is_hit && !matches[1].is_hit, "{matches:?}");
    assert!((matches[0].score - 0.995_511).abs() < 1e-5, "{matches:?}");
    assert!((matches[0].least_similar.unwrap() - 0.907_959).abs() < 1e-5, "{matches:?}");
    assert_eq!(matches[0].least_similar_example.as_deref(), Some("tell me the time"));

    // A larger margin accepts fewer hits, and a negative margin accepts more.
    ask.margin = 0.1;
    assert!(!select_tools(&selector, &tools, &ask).await[0].is_hit);
    ask.query = "when";
    ask.margin = 0.0;
    assert!(select_tools(&selector, &tools, &ask).await.iter().all(|found| !found.is_hit));
    ask.margin = -0.5;
    assert!(select_tools(&selector, &tools, &ask).await.iter().all(|found| found.is_hit));
}

#[tokio::test]
async fn matches_that_are_no_hits_count_for_the_limit() {
    let (known, tools) = make_world();
    let selector = Selector::new(Some(known));
    let one = SelectionRequest {
        limit: 1,
        margin: 0.5,
        ..selection_request("when", Criterion::Centroid)
    };
    let matches = select_tools(&selector, &tools, &one).await;
    assert_eq!(matched_names(&tools, &matches), ["place"]);
    assert!(!matches[0].is_hit, "what does not hit is returned, too");
    let none = SelectionRequest { limit: 0, ..one };
    assert!(select_tools(&selector, &tools, &none).await.is_empty());
}

#[tokio::test]
async fn tools_that_the_filter_excludes_are_not_selected() {
    let (known, tools) = make_world();
    let selector = Selector::new(Some(known));
    let ask =
        SelectionRequest { limit: 1, ..selection_request("time please", Criterion::Centroid) };
    let selection = selector.select(&tools, &ask, |index| index != 0).await.unwrap();
    assert_eq!(matched_names(&tools, &selection.matches), ["place"]);
}

#[tokio::test]
async fn selection_by_description_needs_no_examples() {
    let (known, tools) = make_world();
    let selector = Selector::new(Some(known));
    let matches =
        select_tools(&selector, &tools, &selection_request("my place", Criterion::Description))
            .await;
    assert_eq!(matched_names(&tools, &matches), ["place", "mute", "time"]);
    let scores: Vec<f64> = matches.iter().map(|found| found.score).collect();
    for (score, expected) in scores.iter().zip([0.8, 0.6, 0.48]) {
        assert!((score - expected).abs() < 1e-6, "{scores:?}");
    }
    assert!(matches.iter().all(|found| found.is_hit && found.least_similar.is_none()));
}

#[tokio::test]
async fn selection_without_an_embedder_names_the_setting() {
    let (_, tools) = make_world();
    let selector = Selector::new(None);
    for by in [Criterion::Centroid, Criterion::Description] {
        let err = selector.select(&tools, &selection_request("x", by), |_| true).await.unwrap_err();
        assert!(err.to_string().contains("`embedding`"), "{err}");
    }
    assert!(selector.centroids(&tools).await.is_err());
}

#[tokio::test]
async fn a_failed_embedding_is_reported_and_retried_next_time() {
    let (known, tools) = make_world();
    let selector = Selector::new(Some(Arc::clone(&known) as _));
    known.set_broken(true);
    let ask = selection_request("time please", Criterion::Centroid);
    let err = selector.select(&tools, &ask, |_| true).await.unwrap_err();
    assert!(matches!(&err, SelectError::Embed(_)) && err.to_string().contains("broken"), "{err}");
    known.set_broken(false);
    assert_eq!(select_tools(&selector, &tools, &ask).await.len(), 2);
}

#[tokio::test]
async fn a_query_vector_of_another_length_is_rejected() {
    let known = KnownVectors::new([("a", vec![1.0, 0.0]), ("q", vec![1.0])]);
    let selector = Selector::new(Some(known));
    let tools = list_tools([make_tool("t", "", &["a"])]);
    let err = selector
        .select(&tools, &selection_request("q", Criterion::Centroid), |_| true)
        .await
        .unwrap_err();
    assert!(
        err.to_string().contains("a vector of 1 numbers, but the tools have vectors of 2"),
        "{err}"
    );
}

#[tokio::test]
async fn collisions_compare_centroids_by_dot_product_or_cosine() {
    let (known, tools) = make_world();
    let centroids = Selector::new(Some(known)).centroids(&tools).await.unwrap();
    // The means are (0.933, 0.2, 0) and (0, 0.3, 0.9).
    let pairs = centroids.collisions(Similarity::Dot, 0.06 - 1e-6, |_| true).unwrap();
    assert_eq!(pairs.len(), 1);
    let Collision { a, b, similarity } = pairs[0];
    assert!((a, b) == (0, 1) && (similarity - 0.06).abs() < 1e-6, "{pairs:?}");
    assert!(centroids.collisions(Similarity::Dot, 0.0601, |_| true).unwrap().is_empty());
    let cosines = centroids.collisions(Similarity::Cosine, 0.066, |_| true).unwrap();
    assert!((cosines[0].similarity - 0.066_26).abs() < 1e-5, "{cosines:?}");
    assert!(centroids.collisions(Similarity::Dot, -1.0, |at| at != 1).unwrap().is_empty());
}
