//! Selection through the API, over vectors that are known.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use axum::http::StatusCode;
use chrono::TimeDelta;
use planner::embed::{EmbedError, Embedder, ServerConfig, Source};
use serde_json::{Value, json};

use super::world::{World, pluck, world};
use crate::embed::server::serve;

/// What texts mean; whatever else is said means nothing.
const MEANINGS: [(&str, [f32; 3]); 11] = [
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

/// Knows what a few texts mean, and that drafts, which the planner here takes for queries, are alike.
#[derive(Debug)]
struct Known;

#[async_trait]
impl Embedder for Known {
    fn model(&self) -> &'static str {
        "known"
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let vector = |text: &&str| match MEANINGS.iter().find(|(known, _)| known == text) {
            Some((_, vector)) => vector.to_vec(),
            None if text.starts_with('{') => vec![0.0, 1.0, 0.0],
            None => vec![0.0; 3],
        };
        Ok(texts.iter().map(vector).collect())
    }
}

/// Returns a world with two tools that have examples, one without, and one that is switched off.
async fn with_tools() -> World {
    let world =
        world().await.with(|world| world.with_embedders(vec![Source::Own(Arc::new(Known))]));
    let register = "mutation ($input: ToolInput!) { registerTool(input: $input) { name } }";
    for (name, set, description, examples) in [
        ("hour", "day", "Says the hour.", json!(["what time is it", "tell me the time", "clock"])),
        ("place", "day", "Finds you.", json!(["where am i", "my place"])),
        ("mute", "day", "Says nothing about the weather.", json!([])),
        ("night", "off", "Says how late it is at night.", json!(["what time is it"])),
    ] {
        let input = json!({ "name": name, "toolSet": set, "description": description,
            "examples": examples, "parameters": { "type": "object" }, "run": {} });
        world.get(register, json!({ "input": input })).await;
    }
    let off = "mutation { deactivateToolSets(names: [\"off\"]) { changed } }";
    assert_eq!(world.get(off, json!({})).await["changed"], json!(["off"]));
    world
}

const SELECT: &str =
    "query ($query: String!, $by: SelectionCriterion, $limit: Int, $active: Boolean) {
    selectTools(query: $query, by: $by, limit: $limit, activeOnly: $active) {
        tool { name } score hit leastSimilar leastSimilarExample } }";

async fn selected(world: &World, asked: Value) -> Vec<Value> {
    world.get(SELECT, asked).await.as_array().unwrap().clone()
}

fn names(matches: &[Value]) -> Vec<String> {
    matches.iter().map(|found| found["tool"]["name"].as_str().unwrap().to_owned()).collect()
}

fn hits(matches: &[Value]) -> Vec<bool> {
    matches.iter().map(|found| found["hit"] == true).collect()
}

#[track_caller]
fn assert_near(value: &Value, expected: f64) {
    assert!((value.as_f64().unwrap() - expected).abs() < 1e-5, "{value} is not {expected}");
}

#[tokio::test]
async fn a_centroid_is_hit_from_within_the_examples() {
    let world = with_tools().await;
    // It is what the API chooses by where nothing is said.
    let found = selected(&world, json!({ "query": "time please" })).await;
    assert_eq!(names(&found), ["hour", "place"], "one without examples takes no part");
    assert_eq!(hits(&found), [true, false], "what does not hit is returned, too");
    assert_near(&found[0]["score"], 0.995_511);
    assert_near(&found[0]["leastSimilar"], 0.907_959);
    assert_eq!(found[0]["leastSimilarExample"], "tell me the time");
    let every = json!({ "query": "time please", "active": false });
    assert_eq!(names(&selected(&world, every).await), ["hour", "night", "place"]);
    // Examples are as near to their own middle as they are; the margin keeps the farthest out.
    let edge = selected(&world, json!({ "query": "tell me the time", "limit": 1 })).await;
    assert_eq!((names(&edge), hits(&edge)), (vec!["hour".to_owned()], vec![false]));
    let wider = world.with(|world| world.with_margin(-0.01));
    let edge = selected(&wider, json!({ "query": "tell me the time", "limit": 1 })).await;
    assert_eq!(hits(&edge), [true], "a negative margin is the first program's rule");
}

#[tokio::test]
async fn the_limit_comes_before_the_hits() {
    let world = with_tools().await.with(|world| world.with_margin(-0.2));
    // `place` is nearest to it and `hour` near enough: only what is within the limit is judged.
    let two = selected(&world, json!({ "query": "when", "by": "CENTROID" })).await;
    assert_eq!((names(&two), hits(&two)), (vec!["place".into(), "hour".into()], vec![true, false]));
    let world = world.with(|world| world.with_margin(-0.4));
    let two = selected(&world, json!({ "query": "when", "by": "CENTROID" })).await;
    assert_eq!(hits(&two), [true, true]);
    let one = selected(&world, json!({ "query": "when", "by": "CENTROID", "limit": 1 })).await;
    assert_eq!(names(&one), ["place"]);
    for limit in [0, -1, 1001] {
        let refused = world.refused(SELECT, json!({ "query": "when", "limit": limit })).await;
        assert_eq!(refused["code"], "INVALID_ARGUMENT", "{refused}");
    }
    let refused = world.refused(SELECT, json!({ "query": " " })).await;
    assert_eq!(refused["code"], "INVALID_ARGUMENT", "{refused}");
}

#[tokio::test]
async fn descriptions_and_words_need_no_examples() {
    let world = with_tools().await;
    let asked = json!({ "query": "my place", "by": "DESCRIPTION", "limit": 2 });
    let found = selected(&world, asked).await;
    assert_eq!((names(&found), hits(&found)), (vec!["place".into(), "hour".into()], vec![true; 2]));
    assert_near(&found[0]["score"], 0.8);
    assert_near(&found[1]["score"], 0.48);
    assert_eq!(found[0]["leastSimilar"], Value::Null);
    let found = selected(&world, json!({ "query": "the weather", "by": "LEXICAL" })).await;
    assert_eq!((names(&found), hits(&found)), (vec!["mute".to_owned()], vec![true]));
    assert!(found[0]["score"].as_f64().unwrap() > 0.0);
    assert!(selected(&world, json!({ "query": "zebra", "by": "LEXICAL" })).await.is_empty());
}

#[tokio::test]
async fn meaning_and_words_choose_together() {
    let world = with_tools().await;
    let asked = |query: &str| json!({ "query": query, "by": "HYBRID", "limit": 1 });
    for (query, expected) in [("where am i", "place"), ("weather", "mute"), ("time please", "hour")]
    {
        assert_eq!(names(&selected(&world, asked(query)).await), [expected], "{query}");
    }
    // Each part finds its tool.
    let two =
        json!({ "query": "where am i. And then show me the weather", "by": "HYBRID", "limit": 2 });
    let mut both = names(&selected(&world, two).await);
    both.sort();
    assert_eq!(both, ["mute", "place"]);
}

#[tokio::test]
async fn tools_collide_by_the_product_of_their_means() {
    let world = with_tools().await;
    let query = "query ($threshold: Float, $similarity: CollisionSimilarity) {
        toolCollisions(threshold: $threshold, similarity: $similarity) { a b similarity } }";
    let pairs = async |asked: Value| world.get(query, asked).await.as_array().unwrap().clone();
    // The means are (0.933, 0.2, 0), (0, 0.3, 0.9), and (1, 0, 0) of the one that is switched off.
    let found = pairs(json!({})).await;
    assert_eq!(
        (pluck(&found, "a"), pluck(&found, "b")),
        (vec!["hour".into()], vec!["night".into()])
    );
    assert_near(&found[0]["similarity"], 0.933_333);
    let found = pairs(json!({ "threshold": 0.05 })).await;
    assert_eq!(pluck(&found, "b"), ["place", "night"], "in the order of the tools");
    assert_near(&found[0]["similarity"], 0.06);
    let found = pairs(json!({ "threshold": 0.05, "similarity": "COSINE" })).await;
    assert_near(&found[0]["similarity"], 0.066_264);
}

#[tokio::test]
async fn without_an_embedder_words_are_left() {
    let world = with_tools().await.with(|world| world.with_embedders(Vec::new()));
    for by in ["CENTROID", "DESCRIPTION"] {
        let refused = world.refused(SELECT, json!({ "query": "when", "by": by })).await;
        assert_eq!(refused["code"], "PLANNER_UNAVAILABLE", "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("`embedding`") && message.contains("builtin: true"), "{message}");
    }
    let refused = world.refused("{ toolCollisions { a } }", json!({})).await;
    assert_eq!(refused["code"], "PLANNER_UNAVAILABLE", "{refused}");
    for by in ["LEXICAL", "HYBRID"] {
        let found = selected(&world, json!({ "query": "the weather", "by": by })).await;
        assert_eq!(names(&found), ["mute"], "{by}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_did_well_for_such_queries_is_learned() {
    let world = with_tools().await;
    let run = "mutation ($query: String!) { run(query: $query) { executionId } }";
    let good = r#"{"tools":[{"name":"flow.noop"}]}"#;
    let bad =
        r#"{"tools":[{"name":"flow.noop"},{"name":"flow.fail","parameters":{"message":"no"}}]}"#;
    for query in [good, good, good, bad] {
        let id = world.get(run, json!({ "query": query })).await["executionId"].clone();
        world.events(id.as_str().unwrap()).await;
    }
    // What nobody asked for in words teaches nothing about queries.
    let id = world.start(json!([{ "name": "flow.echo" }]), json!({})).await;
    world.events(&id).await;
    let until = world.engine.clock().now() + TimeDelta::minutes(1);
    assert_eq!(world.engine.selection.learning.learn(until).await.unwrap(), 5);
    assert_eq!(world.engine.selection.learning.learn(until).await.unwrap(), 0, "each counts once");
    let query = "query ($query: String!) { selectTools(query: $query, by: HYBRID) {
        tool { name } score learned } }";
    let learned = async |world: &World, asked: &str| {
        let found = world.get(query, json!({ "query": asked })).await;
        let of = |name: &str| {
            let mut found = found.as_array().unwrap().iter();
            let tool = found.find(|candidate| candidate["tool"]["name"] == name).unwrap();
            (tool["score"].as_f64().unwrap(), tool["learned"].as_f64())
        };
        [of("flow.noop"), of("flow.fail")]
    };
    let [noop, fail] = learned(&world, "{ noop, fail }").await;
    for (learned, expected) in [(noop.1, 0.6), (fail.1, -1.0 / 3.0)] {
        assert!((learned.unwrap() - expected).abs() < 1e-3, "{learned:?} is not {expected}");
    }
    let [other, _] = learned(&world, "noop or fail").await;
    assert_eq!(other.1, None, "that is another kind of query");
    let off = world.with(|world| world.with_learning(false));
    let [without, _] = learned(&off, "{ noop, fail }").await;
    assert_eq!(without.1, None);
    assert!((noop.0 - without.0 - 0.05 * 0.6).abs() < 1e-4, "{noop:?} {without:?}");
}

/// Answers, or does not.
#[derive(Debug, Default)]
struct Flaky {
    is_away: AtomicBool,
}

#[async_trait]
impl Embedder for Flaky {
    fn model(&self) -> &'static str {
        "known"
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        if self.is_away.load(Ordering::SeqCst) {
            let (url, why) = ("http://model".to_owned(), "it is away".to_owned());
            return Err(EmbedError::Unavailable { url, why });
        }
        Known.embed(texts).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_wait_for_a_model_that_does_not_answer() {
    let flaky = Arc::new(Flaky::default());
    let own: Arc<dyn Embedder> = flaky.clone();
    let world = with_tools().await.with(|world| world.with_embedders(vec![Source::Own(own)]));
    let run = "mutation ($query: String!) { run(query: $query) { executionId } }";
    let query = r#"{"tools":[{"name":"flow.noop"}]}"#;
    let id = world.get(run, json!({ "query": query })).await["executionId"].clone();
    world.events(id.as_str().unwrap()).await;
    let select = "query { selectTools(query: \"{ noop }\", by: HYBRID) { tool { name } learned } }";
    let learned = async || {
        let found = world.get(select, json!({})).await;
        let mut found = found.as_array().unwrap().iter();
        found
            .find(|tool| tool["tool"]["name"] == "flow.noop")
            .and_then(|tool| tool["learned"].as_f64())
    };
    // All of it is known before the model goes away.
    assert_eq!(learned().await, None);
    flaky.is_away.store(true, Ordering::SeqCst);
    let until = world.engine.clock().now() + TimeDelta::seconds(1);
    assert_eq!(world.engine.selection.learning.learn(until).await.unwrap(), 1);
    assert_eq!(
        world.engine.selection.learning.learn(until + TimeDelta::minutes(1)).await.unwrap(),
        0
    );
    flaky.is_away.store(false, Ordering::SeqCst);
    assert_eq!(learned().await, None);
    assert_eq!(
        world.engine.selection.learning.learn(until + TimeDelta::minutes(2)).await.unwrap(),
        1
    );
    assert!((learned().await.unwrap() - 1.0 / 3.0).abs() < 1e-3);
    assert_eq!(
        world.engine.selection.learning.learn(until + TimeDelta::minutes(3)).await.unwrap(),
        0
    );
}

/// It failed the selection that met the failure, and lists whose places were doubled failed every one.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_in_use_is_left_for_the_next_embedder_at_once() {
    const TWICE: &str =
        r#"{"data": [{"index": 0, "embedding": [1, 1]}, {"index": 0, "embedding": [1, 1]}]}"#;
    let busy = (StatusCode::SERVICE_UNAVAILABLE, "restarting");
    let twice = (StatusCode::OK, TWICE);
    let long = (StatusCode::BAD_REQUEST, "the text is too long");
    for answers in [vec![busy; 4], vec![twice], vec![long], vec![(StatusCode::NOT_FOUND, "gone")]] {
        let stays = answers[0] == long;
        let (url, seen, _tasks) = serve(Vec::new()).await;
        let (model, api_key) = ("small".to_owned(), Some("sk-test".to_owned()));
        let server = Source::Server(ServerConfig { base_url: url, model, api_key });
        let world = with_tools().await;
        let world =
            world.with(|world| world.with_embedders(vec![server, Source::Own(Arc::new(Known))]));
        // It goes by the lengths of texts: that of `place`'s examples is nine on average.
        let found = selected(&world, json!({ "query": "xxxxxxxxx", "limit": 1 })).await;
        assert_eq!(names(&found), ["place"]);
        assert_near(&found[0]["score"], 1.0);
        seen.lock().unwrap().first.clone_from(&answers);
        let found = selected(&world, json!({ "query": "time please" })).await;
        assert_eq!(names(&found), ["hour", "place"], "{answers:?}");
        assert_near(&found[0]["score"], 0.995_511);
        assert!(seen.lock().unwrap().first.is_empty(), "{answers:?} was met");
        // The rest is asked of whoever works.
        let by_description = json!({ "query": "my place", "by": "DESCRIPTION", "limit": 1 });
        let found = selected(&world, by_description).await;
        let known = (found[0]["score"].as_f64().unwrap() - 0.8).abs() < 1e-5;
        assert_eq!(known, !stays, "{answers:?}: {found:?}");
        let pairs = world.get("{ toolCollisions { a b similarity } }", json!({})).await;
        let known = (pairs[0]["similarity"].as_f64().unwrap() - 0.933_333).abs() < 1e-5;
        assert_eq!(known, !stays, "{answers:?}: {pairs}");
    }
}

/// Meaning has a say as long as any embedder works.
#[tokio::test(flavor = "multi_thread")]
async fn meaning_goes_on_with_the_next_embedder() {
    let flaky = Arc::new(Flaky::default());
    let wanted = vec![Source::Own(flaky.clone() as _), Source::Own(Arc::new(Known))];
    let world = with_tools().await.with(|world| world.with_embedders(wanted));
    flaky.is_away.store(true, Ordering::SeqCst);
    // Not a word of it is the tool's.
    let asked = json!({ "query": "when", "by": "HYBRID", "limit": 1 });
    let found = selected(&world, asked).await;
    assert_eq!(names(&found), ["place"]);
    assert_near(&found[0]["score"], 0.8);
}
