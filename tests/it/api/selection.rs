//! Tool selection through the API, with vectors that the tests define.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use axum::http::StatusCode;
use chrono::TimeDelta;
use planner::embed::{EmbedError, Embedder, ServerConfig, Source};
use serde_json::{Value, json};

use super::test_api::{TestApi, api, texts_of_field};
use crate::embed::server::serve;

/// Vectors of some texts. All other texts get zeros, which are similar to no vector.
const TEXT_VECTORS: [(&str, [f32; 3]); 11] = [
    ("what time is it", [1.0, 0.0, 0.0]),
    ("tell me the time", [0.8, 0.6, 0.0]),
    ("clock", [1.0, 0.0, 0.0]),
    ("where am i", [0.0, 0.0, 1.0]),
    ("my place", [0.0, 0.6, 0.8]),
    ("time please", [0.95, 0.3, 0.0]),
    ("when", [0.6, 0.0, 0.8]),
    ("Says the hour.", [0.6, 0.8, 0.0]),
    ("Finds you.", [0.0, 0.0, 1.0]),
    ("hour: Says the hour.", [0.6, 0.8, 0.0]),
    ("place: Finds you.", [0.0, 0.0, 1.0]),
];

/// An embedder that returns the vectors of `TEXT_VECTORS`. All drafts get the same vector, because
/// the planner of these tests expects a draft as the query.
#[derive(Debug)]
struct KnownVectors;

#[async_trait]
impl Embedder for KnownVectors {
    fn model(&self) -> &'static str {
        "known"
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let vector = |text: &&str| match TEXT_VECTORS.iter().find(|(known, _)| known == text) {
            Some((_, vector)) => vector.to_vec(),
            None if text.starts_with('{') => vec![0.0, 1.0, 0.0],
            None => vec![0.0; 3],
        };
        Ok(texts.iter().map(vector).collect())
    }
}

/// Creates an API with two tools with examples, one without, and one that is inactive.
async fn api_with_tools() -> TestApi {
    let api = api().await.with(|api| api.with_embedder(Some(Source::Own(Arc::new(KnownVectors)))));
    let register = "mutation ($input: ToolInput!) { registerTool(input: $input) { name } }";
    for (name, set, description, examples) in [
        ("hour", "day", "Says the hour.", json!(["what time is it", "tell me the time", "clock"])),
        ("place", "day", "Finds you.", json!(["where am i", "my place"])),
        ("mute", "day", "Says nothing about the weather.", json!([])),
        ("night", "off", "Says how late it is at night.", json!(["what time is it"])),
    ] {
        let input = json!({ "name": name, "toolSet": set, "description": description,
            "examples": examples, "parameters": { "type": "object" }, "run": {} });
        api.get(register, json!({ "input": input })).await;
    }
    let off = "mutation { deactivateToolSets(names: [\"off\"]) { changed } }";
    assert_eq!(api.get(off, json!({})).await["changed"], json!(["off"]));
    api
}

const SELECT_QUERY: &str =
    "query ($query: String!, $by: SelectionCriterion, $limit: Int, $active: Boolean) {
    selectTools(query: $query, by: $by, limit: $limit, activeOnly: $active) {
        tool { name } score hit leastSimilar leastSimilarExample } }";

async fn select_tools(api: &TestApi, arguments: Value) -> Vec<Value> {
    api.get(SELECT_QUERY, arguments).await.as_array().unwrap().clone()
}

fn matched_names(matches: &[Value]) -> Vec<String> {
    matches.iter().map(|found| found["tool"]["name"].as_str().unwrap().to_owned()).collect()
}

fn matched_hits(matches: &[Value]) -> Vec<bool> {
    matches.iter().map(|found| found["hit"] == true).collect()
}

#[track_caller]
fn assert_near(value: &Value, expected: f64) {
    assert!((value.as_f64().unwrap() - expected).abs() < 1e-5, "{value} is not {expected}");
}

#[tokio::test]
async fn a_query_within_the_examples_of_a_tool_is_a_hit() {
    let api = api_with_tools().await;
    // The query names no criterion, so `CENTROID` is used.
    let found = select_tools(&api, json!({ "query": "time please" })).await;
    assert_eq!(matched_names(&found), ["hour", "place"], "a tool without examples is not ranked");
    assert_eq!(matched_hits(&found), [true, false], "tools that are not hits are also returned");
    assert_near(&found[0]["score"], 0.995_511);
    assert_near(&found[0]["leastSimilar"], 0.907_959);
    assert_eq!(found[0]["leastSimilarExample"], "tell me the time");
    let every = json!({ "query": "time please", "active": false });
    assert_eq!(matched_names(&select_tools(&api, every).await), ["hour", "night", "place"]);
    // With the default margin, a query that is as far from the centroid as the farthest example is
    // not a hit.
    let edge = select_tools(&api, json!({ "query": "tell me the time", "limit": 1 })).await;
    assert_eq!((matched_names(&edge), matched_hits(&edge)), (vec!["hour".to_owned()], vec![false]));
    let wider = api.with(|api| api.with_margin(-0.01));
    let edge = select_tools(&wider, json!({ "query": "tell me the time", "limit": 1 })).await;
    assert_eq!(matched_hits(&edge), [true], "a negative margin includes the farthest example");
}

#[tokio::test]
async fn only_tools_within_the_limit_can_be_hits() {
    let api = api_with_tools().await.with(|api| api.with_margin(-0.2));
    // With this margin only the nearest tool, `place`, is a hit. With -0.4, `hour` is a hit, too,
    // but not if `limit` leaves it out.
    let two = select_tools(&api, json!({ "query": "when", "by": "CENTROID" })).await;
    assert_eq!(
        (matched_names(&two), matched_hits(&two)),
        (vec!["place".into(), "hour".into()], vec![true, false])
    );
    let api = api.with(|api| api.with_margin(-0.4));
    let two = select_tools(&api, json!({ "query": "when", "by": "CENTROID" })).await;
    assert_eq!(matched_hits(&two), [true, true]);
    let one = select_tools(&api, json!({ "query": "when", "by": "CENTROID", "limit": 1 })).await;
    assert_eq!(matched_names(&one), ["place"]);
    for limit in [0, -1, 1001] {
        let refused =
            api.expect_error(SELECT_QUERY, json!({ "query": "when", "limit": limit })).await;
        assert_eq!(refused["code"], "INVALID_ARGUMENT", "{refused}");
    }
    let refused = api.expect_error(SELECT_QUERY, json!({ "query": " " })).await;
    assert_eq!(refused["code"], "INVALID_ARGUMENT", "{refused}");
}

#[tokio::test]
async fn selection_by_description_or_words_needs_no_examples() {
    let api = api_with_tools().await;
    let arguments = json!({ "query": "my place", "by": "DESCRIPTION", "limit": 2 });
    let found = select_tools(&api, arguments).await;
    assert_eq!(
        (matched_names(&found), matched_hits(&found)),
        (vec!["place".into(), "hour".into()], vec![true; 2])
    );
    assert_near(&found[0]["score"], 0.8);
    assert_near(&found[1]["score"], 0.48);
    assert_eq!(found[0]["leastSimilar"], Value::Null);
    let found = select_tools(&api, json!({ "query": "the weather", "by": "LEXICAL" })).await;
    assert_eq!(
        (matched_names(&found), matched_hits(&found)),
        (vec!["mute".to_owned()], vec![true])
    );
    assert!(found[0]["score"].as_f64().unwrap() > 0.0);
    assert!(select_tools(&api, json!({ "query": "zebra", "by": "LEXICAL" })).await.is_empty());
}

#[tokio::test]
async fn hybrid_selection_combines_meaning_and_words() {
    let api = api_with_tools().await;
    let arguments = |query: &str| json!({ "query": query, "by": "HYBRID", "limit": 1 });
    for (query, expected) in [("where am i", "place"), ("weather", "mute"), ("time please", "hour")]
    {
        assert_eq!(
            matched_names(&select_tools(&api, arguments(query)).await),
            [expected],
            "{query}"
        );
    }
    // The query has two parts, and each part finds the tool for it.
    let two =
        json!({ "query": "where am i. And then show me the weather", "by": "HYBRID", "limit": 2 });
    let mut both = matched_names(&select_tools(&api, two).await);
    both.sort();
    assert_eq!(both, ["mute", "place"]);
}

#[tokio::test]
async fn tools_collide_by_the_dot_product_of_their_centroids() {
    let api = api_with_tools().await;
    let query = "query ($threshold: Float, $similarity: CollisionSimilarity) {
        toolCollisions(threshold: $threshold, similarity: $similarity) { a b similarity } }";
    let pairs =
        async |arguments: Value| api.get(query, arguments).await.as_array().unwrap().clone();
    // The centroids are (0.933, 0.2, 0), (0, 0.3, 0.9), and (1, 0, 0) of the inactive tool.
    let found = pairs(json!({})).await;
    assert_eq!(
        (texts_of_field(&found, "a"), texts_of_field(&found, "b")),
        (vec!["hour".into()], vec!["night".into()])
    );
    assert_near(&found[0]["similarity"], 0.933_333);
    let found = pairs(json!({ "threshold": 0.05 })).await;
    assert_eq!(texts_of_field(&found, "b"), ["place", "night"], "pairs follow the order of tools");
    assert_near(&found[0]["similarity"], 0.06);
    let found = pairs(json!({ "threshold": 0.05, "similarity": "COSINE" })).await;
    assert_near(&found[0]["similarity"], 0.066_264);
}

#[tokio::test]
async fn selection_without_an_embedder_uses_words_only() {
    let api = api_with_tools().await.with(|api| api.with_embedder(None));
    for by in ["CENTROID", "DESCRIPTION"] {
        let refused = api.expect_error(SELECT_QUERY, json!({ "query": "when", "by": by })).await;
        assert_eq!(refused["code"], "PLANNER_UNAVAILABLE", "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("`embedding`") && message.contains("builtin: true"), "{message}");
    }
    let refused = api.expect_error("{ toolCollisions { a } }", json!({})).await;
    assert_eq!(refused["code"], "PLANNER_UNAVAILABLE", "{refused}");
    for by in ["LEXICAL", "HYBRID"] {
        let found = select_tools(&api, json!({ "query": "the weather", "by": by })).await;
        assert_eq!(matched_names(&found), ["mute"], "{by}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_succeeded_for_similar_queries_gets_a_higher_score() {
    let api = api_with_tools().await;
    let run = "mutation ($query: String!) { run(query: $query) { executionId } }";
    let good = r#"{"tools":[{"name":"flow.noop"}]}"#;
    let bad =
        r#"{"tools":[{"name":"flow.noop"},{"name":"flow.fail","parameters":{"message":"no"}}]}"#;
    for query in [good, good, good, bad] {
        let id = api.get(run, json!({ "query": query })).await["executionId"].clone();
        api.events(id.as_str().unwrap()).await;
    }
    // This execution has no query, so the learning must ignore it.
    let id = api.start(json!([{ "name": "flow.echo" }]), json!({})).await;
    api.events(&id).await;
    let until = api.engine.clock().now() + TimeDelta::minutes(1);
    assert_eq!(api.engine.selection.learning.learn(until).await.unwrap(), 5);
    assert_eq!(
        api.engine.selection.learning.learn(until).await.unwrap(),
        0,
        "an execution counts once"
    );
    let query = "query ($query: String!) { selectTools(query: $query, by: HYBRID) {
        tool { name } score learned } }";
    let learned = async |api: &TestApi, arguments: &str| {
        let found = api.get(query, json!({ "query": arguments })).await;
        let of = |name: &str| {
            let mut found = found.as_array().unwrap().iter();
            let tool = found.find(|candidate| candidate["tool"]["name"] == name).unwrap();
            (tool["score"].as_f64().unwrap(), tool["learned"].as_f64())
        };
        [of("flow.noop"), of("flow.fail")]
    };
    let [noop, fail] = learned(&api, "{ noop, fail }").await;
    for (learned, expected) in [(noop.1, 0.6), (fail.1, -1.0 / 3.0)] {
        assert!((learned.unwrap() - expected).abs() < 1e-3, "{learned:?} is not {expected}");
    }
    let [other, _] = learned(&api, "noop or fail").await;
    assert_eq!(other.1, None, "the query is not similar");
    let off = api.with(|api| api.with_learning(false));
    let [without, _] = learned(&off, "{ noop, fail }").await;
    assert_eq!(without.1, None);
    assert!((noop.0 - without.0 - 0.05 * 0.6).abs() < 1e-4, "{noop:?} {without:?}");
}

/// An embedder that can be switched off.
#[derive(Debug, Default)]
struct FlakyEmbedder {
    is_unavailable: AtomicBool,
}

#[async_trait]
impl Embedder for FlakyEmbedder {
    fn model(&self) -> &'static str {
        "known"
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        if self.is_unavailable.load(Ordering::SeqCst) {
            let (url, reason) = ("http://model".to_owned(), "it is away".to_owned());
            return Err(EmbedError::Unavailable { url, reason });
        }
        KnownVectors.embed(texts).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn learning_waits_for_an_embedder_that_does_not_answer() {
    let flaky = Arc::new(FlakyEmbedder::default());
    let own: Arc<dyn Embedder> = flaky.clone();
    let api = api_with_tools().await.with(|api| api.with_embedder(Some(Source::Own(own))));
    let run = "mutation ($query: String!) { run(query: $query) { executionId } }";
    let query = r#"{"tools":[{"name":"flow.noop"}]}"#;
    let id = api.get(run, json!({ "query": query })).await["executionId"].clone();
    api.events(id.as_str().unwrap()).await;
    let select = "query { selectTools(query: \"{ noop }\", by: HYBRID) { tool { name } learned } }";
    let learned = async || {
        let found = api.get(select, json!({})).await;
        let mut found = found.as_array().unwrap().iter();
        found
            .find(|tool| tool["tool"]["name"] == "flow.noop")
            .and_then(|tool| tool["learned"].as_f64())
    };
    // The execution finishes while the embedder is available, so only its learning meets the error.
    assert_eq!(learned().await, None);
    flaky.is_unavailable.store(true, Ordering::SeqCst);
    let until = api.engine.clock().now() + TimeDelta::seconds(1);
    assert_eq!(api.engine.selection.learning.learn(until).await.unwrap(), 1);
    assert_eq!(
        api.engine.selection.learning.learn(until + TimeDelta::minutes(1)).await.unwrap(),
        0
    );
    flaky.is_unavailable.store(false, Ordering::SeqCst);
    assert_eq!(learned().await, None);
    assert_eq!(
        api.engine.selection.learning.learn(until + TimeDelta::minutes(2)).await.unwrap(),
        1
    );
    assert!((learned().await.unwrap() - 1.0 / 3.0).abs() < 1e-3);
    assert_eq!(
        api.engine.selection.learning.learn(until + TimeDelta::minutes(3)).await.unwrap(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn words_decide_while_the_embedder_fails() {
    let flaky = Arc::new(FlakyEmbedder::default());
    let own: Arc<dyn Embedder> = flaky.clone();
    let api = api_with_tools().await.with(|api| api.with_embedder(Some(Source::Own(own))));
    // Without the embedder, only words count, and `place` shares no word with the query `when`.
    let by_meaning = json!({ "query": "when", "by": "HYBRID", "limit": 1 });
    let by_words = json!({ "query": "the weather", "by": "HYBRID" });
    flaky.is_unavailable.store(true, Ordering::SeqCst);
    assert_ne!(matched_names(&select_tools(&api, by_meaning.clone()).await), ["place"]);
    assert_eq!(matched_names(&select_tools(&api, by_words).await), ["mute"]);
    for by in ["CENTROID", "DESCRIPTION"] {
        let refused = api.expect_error(SELECT_QUERY, json!({ "query": "when", "by": by })).await;
        assert_eq!(refused["code"], "PLANNER_UNAVAILABLE", "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("it is away"), "{refused}");
    }
    let refused = api.expect_error("{ toolCollisions { a } }", json!({})).await;
    assert_eq!(refused["code"], "PLANNER_UNAVAILABLE", "{refused}");
    flaky.is_unavailable.store(false, Ordering::SeqCst);
    let found = select_tools(&api, by_meaning).await;
    assert_eq!(matched_names(&found), ["place"]);
    assert_near(&found[0]["score"], 0.8);
}

/// Regression: an answer with duplicated indexes failed every later selection.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_failed_in_use_is_used_again_when_it_answers() {
    const DUPLICATED_INDEXES: &str =
        r#"{"data": [{"index": 0, "embedding": [1, 1]}, {"index": 0, "embedding": [1, 1]}]}"#;
    let busy = (StatusCode::SERVICE_UNAVAILABLE, "restarting");
    let twice = (StatusCode::OK, DUPLICATED_INDEXES);
    let long = (StatusCode::BAD_REQUEST, "the text is too long");
    let gone = (StatusCode::NOT_FOUND, "gone");
    for answers in [vec![busy; 4], vec![twice], vec![long], vec![gone]] {
        let (url, seen, _tasks) = serve(Vec::new()).await;
        let (model, api_key) = ("small".to_owned(), Some("sk-test".to_owned()));
        let server =
            Source::Server(ServerConfig { base_url: url, model, api_key, api_key_file: None });
        let api = api_with_tools().await.with(|api| api.with_embedder(Some(server)));
        // This server computes vectors from the lengths of texts. `place` is nearest to a query of
        // nine letters, because its examples have nine letters on average.
        let arguments = json!({ "query": "xxxxxxxxx", "limit": 1 });
        assert_eq!(matched_names(&select_tools(&api, arguments.clone()).await), ["place"]);
        seen.lock().unwrap().first_answers.clone_from(&answers);
        let refused = api.expect_error(SELECT_QUERY, json!({ "query": "time please" })).await;
        assert_eq!(refused["code"], "PLANNER_UNAVAILABLE", "{refused}");
        assert!(seen.lock().unwrap().first_answers.is_empty(), "the requests reached {answers:?}");
        assert_eq!(matched_names(&select_tools(&api, arguments).await), ["place"]);
    }
}
