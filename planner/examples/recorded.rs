//! Measures tool selection: figures over queries with known right tools, and collisions.
//!
//! `cargo run -p planner --example recorded -- MODEL TOOLS QUERIES.jsonl`
//!
//! - `MODEL` is `builtin`, a model directory, or a file of recorded vectors:
//!   `{"vectors": {TEXT: [NUMBER, …]}}`. A text without a vector is printed to standard error and
//!   gets a vector of zeros.
//! - `TOOLS` is `{"tools_list": […]}`, or one tool on each line: `{"name", "text"}`. The text may
//!   begin with the name.
//! - Each line of `QUERIES.jsonl` is `{"query", "gold"}`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    path::Path,
    sync::Arc,
    time::Instant,
};

use async_trait::async_trait;
use planner::{
    embed::{CachingEmbedder, EmbedError, Embedder, Local},
    select::{
        Criterion, DEFAULT_MARGIN, SelectionQuality, SelectionRequest, Selector, Similarity, Tools,
    },
};
use serde_json::{Value, json};
use shared::{
    store::memory::Memory,
    tool::{Effect, ToolDefinition},
};

#[derive(Debug)]
struct Recorded {
    vectors: BTreeMap<String, Vec<f32>>,
    dimensions: usize,
}

#[async_trait]
impl Embedder for Recorded {
    fn model(&self) -> &'static str {
        "recorded"
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let vector = |text: &&str| {
            self.vectors.get(*text).cloned().unwrap_or_else(|| {
                eprintln!("{}", json!(text));
                vec![0.0; self.dimensions]
            })
        };
        Ok(texts.iter().map(vector).collect())
    }
}

async fn embedder(model: &str) -> Result<Arc<dyn Embedder>, Box<dyn Error>> {
    if Path::new(model).is_file() {
        let mut file: Value = serde_json::from_str(&fs::read_to_string(model)?)?;
        let vectors: BTreeMap<String, Vec<f32>> = serde_json::from_value(file["vectors"].take())?;
        let dimensions = vectors.values().next().map_or(0, Vec::len);
        return Ok(Arc::new(Recorded { vectors, dimensions }));
    }
    let local = match model {
        "builtin" => Local::open_builtin_model().await?,
        directory => Local::open(Path::new(directory)).await?,
    };
    Ok(Arc::new(CachingEmbedder::new(Arc::new(local), Arc::new(Memory::new()))))
}

fn tools(file: &str) -> Result<Tools, Box<dyn Error>> {
    let text = fs::read_to_string(file)?;
    let list: Vec<Value> = match serde_json::from_str::<Value>(&text) {
        Ok(mut file) => serde_json::from_value(file["tools_list"].take())?,
        Err(_) => text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?,
    };
    let tool = |entry: &Value| -> Result<Arc<ToolDefinition>, Box<dyn Error>> {
        let description =
            entry["description"].as_str().or(entry["text"].as_str()).unwrap_or_default();
        Ok(Arc::new(ToolDefinition {
            name: entry["name"].as_str().unwrap_or_default().parse()?,
            set: "tools".parse()?,
            description: description.to_owned(),
            input_schema: json!({ "properties": entry["arguments"] }),
            output_schema: None,
            effect: Effect::Read,
            examples: serde_json::from_value(entry["examples"].clone()).unwrap_or_default(),
            is_callable: false,
        }))
    };
    list.iter().map(tool).collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, tools_file, queries] = arguments.as_slice() else {
        return Err("give MODEL TOOLS QUERIES.jsonl".into());
    };
    let (tools, selector) = (tools(tools_file)?, Selector::new(Some(embedder(model).await?)));
    let queries: Vec<Value> =
        fs::read_to_string(queries)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for by in Criterion::ALL {
        let mut figures = SelectionQuality::default();
        for known in &queries {
            let query = known["query"].as_str().unwrap_or_default();
            let ask =
                SelectionRequest { query, by, limit: 100, margin: DEFAULT_MARGIN, outcomes: None };
            let matches = selector.select(&tools, &ask, |_| true).await?.matches;
            if queries.len() <= 8 {
                let best = matches.first().map(|found| (tools[found.index].name.as_str(), found));
                println!("{query} {by:?} {best:?}");
            }
            let right: BTreeSet<&str> =
                known["gold"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let names: Vec<&str> =
                matches.iter().map(|found| tools[found.index].name.as_str()).collect();
            figures.add_query(&right, &names);
        }
        let (hit, recall) = (figures.hit_at_1(), figures.recall_at_5());
        let mrr = figures.reciprocal_rank();
        println!("{:12} hit@1 {hit:.3} recall@5 {recall:.3} MRR {mrr:.3}", by.as_str());
    }
    let started = Instant::now();
    let pairs = selector.centroids(&tools).await?.collisions(Similarity::Dot, 0.3, |_| true)?;
    println!("{} collisions in {:?}", pairs.len(), started.elapsed());
    for pair in pairs.iter().take(16) {
        println!("  {} -> {}: {}", tools[pair.a].name, tools[pair.b].name, pair.similarity);
    }
    Ok(())
}
