//! Meaning chooses where words leave tools close, and never what acts.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use shared::{store::memory::Memory, tool::Effect};

use super::{catalog, shown, tool};
use crate::{Offline, propose};
use planner::{
    catalog::Catalog,
    embed::{EmbedError, Embedder, Embedders, Source},
};

const QUERY: &str = "What temperature did the city Oslo have long ago?";

/// Knows one thing: that old times are long ago. Or it knows nothing.
#[derive(Debug)]
struct Knows(bool);

#[async_trait]
impl Embedder for Knows {
    fn model(&self) -> &'static str {
        "knows"
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        if !self.0 {
            let (model, why) = ("knows".to_owned(), "it is away".to_owned());
            return Err(EmbedError::Model { model, why });
        }
        let is_old = |it: &str| it.contains("long ago") || it.contains("bygone");
        let vector = |it: &&str| if is_old(it) { vec![1.0, 0.0] } else { vec![0.0, 1.0] };
        Ok(texts.iter().map(vector).collect())
    }
}

fn tools(effect: Effect) -> Catalog {
    let city = json!({ "city!": { "type": "string", "description": "The city" } });
    let mut tools = vec![
        tool("temperature_today", "The temperature of a city these days", city.clone()),
        tool("temperature_history", "The temperature of a city in bygone times", city),
    ];
    for it in &mut tools {
        it.effect = effect;
    }
    catalog(tools)
}

fn planner(knows: bool) -> Offline {
    let wanted = vec![Source::Own(Arc::new(Knows(knows)))];
    Offline::with(Arc::new(Embedders::new(wanted, Arc::new(Memory::default()))))
}

#[tokio::test]
async fn meaning_chooses_between_tools_that_words_leave_close() {
    let tools = tools(Effect::Read);
    let by_words = shown(&propose(QUERY, &tools).unwrap());
    assert!(by_words.contains("temperature_today"), "{by_words}");
    let found = planner(true).propose(QUERY, &tools).await.unwrap();
    assert!(shown(&found).contains("temperature_history"), "{}", shown(&found));
    let found = planner(false).propose(QUERY, &tools).await.unwrap();
    assert_eq!(shown(&found), by_words, "nobody knows");
    let said = "What temperature_today does the city Oslo have?";
    let found = planner(true).propose(said, &tools).await.unwrap();
    assert!(shown(&found).contains("temperature_today"), "{}", shown(&found));
}

#[tokio::test]
async fn what_acts_is_called_for_its_words_alone() {
    let tools = tools(Effect::Once);
    for query in [QUERY, "temperature history of Oslo", "temperature today: city Oslo"] {
        let by_words = propose(query, &tools);
        let found = planner(true).propose(query, &tools).await;
        assert_eq!(found.map(|it| it.draft), by_words.map(|it| it.draft), "{query}");
    }
}
