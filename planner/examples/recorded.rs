//! Selection with vectors that were recorded before: figures over queries whose right tools are
//! known, and collisions, without a model at hand.
//!
//! `cargo run -p planner --example recorded -- TEXTS.json VECTORS.f32 TOOLS.json QUERIES.jsonl`
//!
//! `TEXTS.json` is a list of texts, `VECTORS.f32` their vectors one after another (little-endian
//! `f32`), `TOOLS.json` is `{"tools_list": […]}`, and each line of `QUERIES.jsonl` is `{"query", "gold"}`.
//! Texts without a vector are printed to standard error and have one of zeros.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    sync::Arc,
    time::Instant,
};

use async_trait::async_trait;
use planner::{
    embed::{EmbedError, Embedder},
    select::{Ask, Criterion, Figures, MARGIN, Selector, Similarity, Tools},
};
use serde_json::{Value, json};
use shared::tool::{Effect, ToolDefinition};

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

fn recorded(texts: &str, vectors: &str) -> Result<Recorded, Box<dyn Error>> {
    let texts: Vec<String> = serde_json::from_str(&fs::read_to_string(texts)?)?;
    let cells: Vec<f32> = fs::read(vectors)?
        .chunks_exact(4)
        .map(|it| f32::from_le_bytes([it[0], it[1], it[2], it[3]]))
        .collect();
    let dimensions = cells.len() / texts.len().max(1);
    let rows = cells.chunks_exact(dimensions.max(1)).map(<[f32]>::to_vec);
    Ok(Recorded { vectors: texts.into_iter().zip(rows).collect(), dimensions })
}

fn tools(file: &str) -> Result<Tools, Box<dyn Error>> {
    let file: Value = serde_json::from_str(&fs::read_to_string(file)?)?;
    let list = file["tools_list"].as_array().ok_or("there is no `tools_list`")?;
    let tool = |it: &Value| -> Result<Arc<ToolDefinition>, Box<dyn Error>> {
        Ok(Arc::new(ToolDefinition {
            name: it["name"].as_str().unwrap_or_default().parse()?,
            set: "tools".parse()?,
            description: it["description"].as_str().unwrap_or_default().to_owned(),
            input_schema: json!({ "properties": it["arguments"] }),
            output_schema: None,
            effect: Effect::Read,
            examples: serde_json::from_value(it["examples"].clone()).unwrap_or_default(),
            is_callable: false,
        }))
    };
    list.iter().map(tool).collect()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [texts, vectors, tools_file, queries] = arguments.as_slice() else {
        return Err("give TEXTS.json VECTORS.f32 TOOLS.json QUERIES.jsonl".into());
    };
    let (tools, selector) =
        (tools(tools_file)?, Selector::new(Some(Arc::new(recorded(texts, vectors)?))));
    let queries: Vec<Value> =
        fs::read_to_string(queries)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for by in Criterion::ALL {
        let mut figures = Figures::default();
        for known in &queries {
            let query = known["query"].as_str().unwrap_or_default();
            let ask = Ask { query, by, limit: 100, margin: MARGIN };
            let matches = selector.select(&tools, &ask, |_| true).await?.matches;
            if queries.len() <= 8 {
                let best = matches.first().map(|it| (tools[it.at].name.as_str(), it));
                println!("{query} {by:?} {best:?}");
            }
            let right: BTreeSet<&str> =
                known["gold"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let names: Vec<&str> = matches.iter().map(|it| tools[it.at].name.as_str()).collect();
            figures.add(&right, &names);
        }
        let (hit, recall) = (figures.hit_at_1(), figures.recall_at_5());
        let mrr = figures.reciprocal_rank();
        println!("{:12} hit@1 {hit:.3} recall@5 {recall:.3} MRR {mrr:.3}", by.as_str());
    }
    let started = Instant::now();
    let pairs = selector.centroids(&tools).await?.collisions(Similarity::Dot, 0.3, |_| true)?;
    println!("{} collisions in {:?}", pairs.len(), started.elapsed());
    for it in pairs.iter().take(16) {
        println!("  {} -> {}: {}", tools[it.a].name, tools[it.b].name, it.similarity);
    }
    Ok(())
}
