//! A model that was asked is not asked again: for the same query, and with `cache: meaning` for one
//! that asks for the same in other words.

use serde_json::{Value, json};

use super::{Home, Model, SEED, configure, plan};

const POLITE: &str = "Please make a new author called Alice with the e-mail address alice@test.com \
                      and add a blog by Alice titled Hello about world, thanks!";

/// Returns what the transcript has of where a plan was taken from.
async fn taken(home: &Home, planned: &Value) -> Value {
    let request = home.json(&["debug", planned["requestId"].as_str().unwrap()], 0).await;
    let entries = request["transcript"].as_array().unwrap();
    let found = entries.iter().find(|it| it["kind"] == "cache");
    found.map(|it| it["content"].clone()).unwrap_or_default()
}

#[tokio::test]
async fn a_model_is_asked_once_for_what_asks_for_the_same() {
    let home = Home::new();
    let answers = json!([{ "content": plan("alice@test.com") }]);
    let model = Model::answering(&home, "model", answers).await;
    configure(&home, &format!("{}, cache: meaning", model.speaking("openai")));
    let first = home.json(&["plan", SEED], 0).await;
    let second = home.json(&["plan", POLITE], 0).await;
    assert_eq!(model.asked().await.len(), 1);
    let from = taken(&home, &second).await;
    assert_eq!((&from["requestId"], &from["match"]), (&first["requestId"], &json!("meaning")));
    assert_eq!(from["query"], SEED);
    assert_eq!((&second["tools"], &second["query"]), (&first["tools"], &json!(POLITE)));
    let told = home.run(&["debug", "--full", second["requestId"].as_str().unwrap()]).await.out;
    assert!(told.contains("asks for the same, cosine 0."), "{told}");
    // It runs like any other.
    let ran = home.json(&["run", POLITE], 0).await;
    assert_eq!((&ran["state"], &ran["successful"]), (&json!("COMPLETED"), &json!(2)));
    assert_eq!(model.asked().await.len(), 1);
    // What is another fact, another act or denied is another query.
    let others = [POLITE.replace("by Alice", "by Bob"), POLITE.replace("make a new", "delete the")];
    for (asked, other) in (2..).zip(&others) {
        home.json(&["plan", other], 0).await;
        assert_eq!(model.asked().await.len(), asked, "{other}");
    }
    // A query may say so for itself.
    let exact = home.json(&["plan", POLITE, "--cache", "exact"], 0).await;
    home.json(&["plan", SEED, "--cache", "off"], 0).await;
    assert_eq!(model.asked().await.len(), 5);
    let same = taken(&home, &home.json(&["plan", POLITE], 0).await).await;
    assert_eq!((&same["match"], &same["requestId"]), (&json!("exact"), &exact["requestId"]));
}
