//! Measures selection from thousands of tools. [`WordEmbedder`] makes their vectors without a
//! model, so the measured times do not include a model.

mod corpus;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use engine::{Engine, EngineError, SelectionQuery};
use executor::{control::Control, options::Options};
use offline::Offline;
use planner::{
    embed::{Embedder, Local, Source},
    select::{Criterion, Similarity},
};
use serde_json::{Value, json};
use shared::{
    clock::{Clock, WallClock},
    store::Store,
};
use toolbox::Toolbox;
use toolsets::{
    registry::{self, Registry},
    sources::{CONNECT_TIMEOUT, Sources},
};

use self::corpus::{Corpus, EXAMPLES_PER_TOOL, WordEmbedder};
use super::{
    BenchArgs, BenchError, BenchNode,
    report::{Report, percentile, round_to_four_decimals},
};

const DEFAULT_TOOLS: usize = 10_000;
const DEFAULT_QUERIES: usize = 200;
const SELECTED_TOOLS: usize = 5;
const COLLISION_THRESHOLD: f64 = 0.3;
const ENCODED_QUERIES: usize = 20;

pub(crate) async fn run_selection(
    bench_node: &BenchNode,
    args: &BenchArgs,
    report: &mut Report,
) -> Result<(), BenchError> {
    let tools = args.steps.unwrap_or(DEFAULT_TOOLS).max(2);
    let queries = args.runs.unwrap_or(DEFAULT_QUERIES).max(1);
    let corpus = Corpus::new(tools);
    report.set("effect", "read");
    report.set("tools", tools);
    report.set("vectors", tools * EXAMPLES_PER_TOOL);
    report.start_counting_commits(&*bench_node.store);

    let started_at = Instant::now();
    let first = SelectionBench::new(&bench_node.store, &corpus, tools).await?;
    first.ask("anything", Criterion::Centroid).await?;
    report.set("vectors_made_and_kept_s", to_seconds(started_at.elapsed()));

    let reopened = SelectionBench::new(&bench_node.store, &corpus, tools).await?;
    let started_at = Instant::now();
    reopened.ask("anything", Criterion::Centroid).await?;
    report.set("vectors_loaded_s", to_seconds(started_at.elapsed()));
    report.set("texts_embedded_again", reopened.words.count_embedded_texts() - 1);

    let started_at = Instant::now();
    let collisions =
        reopened.engine.selection.tool_collisions(Similarity::Dot, COLLISION_THRESHOLD).await;
    report.set("collisions_s", to_seconds(started_at.elapsed()));
    report.set("collisions", collisions.map_or(Value::Null, |pairs| json!(pairs.len())));

    let mut all = Vec::new();
    let wall_time = Instant::now();
    for by in Criterion::ALL {
        let name = by.as_str().to_lowercase();
        all.extend(
            reopened.measure_queries(by, &corpus.make_queries(queries, 1), &name, report).await?,
        );
    }
    for parts in [2, 4] {
        let name = format!("hybrid_{parts}_parts");
        let queries = corpus.make_queries(queries, parts);
        reopened.measure_queries(Criterion::Hybrid, &queries, &name, report).await?;
    }
    let wall_time = wall_time.elapsed();
    add_one_tool(&bench_node.store, &corpus, tools, report).await?;
    measure_encoder(&corpus, report).await?;
    report.set("steps", 1);
    report.set("concurrency", 1);
    report.record_runs(&*bench_node.store, 1, wall_time, &mut all);
    Ok(())
}

struct SelectionBench {
    engine: Engine,
    words: Arc<WordEmbedder>,
}

impl SelectionBench {
    async fn new(
        store: &Arc<dyn Store>,
        corpus: &Corpus,
        tools: usize,
    ) -> Result<Self, BenchError> {
        let clock: Arc<dyn Clock> = Arc::new(WallClock);
        let toolbox = Toolbox::default();
        let set = json!({ "name": "bench", "source": { "tools": corpus.make_tools(tools) } });
        let set = serde_json::from_value(set).map_err(|err| BenchError::Engine(err.to_string()))?;
        let registry = Registry::new(registry::Parts {
            sources: Sources::new(&toolbox, shared::limits::OUTPUT_BYTES),
            toolbox,
            store: Arc::clone(store),
            clock: Arc::clone(&clock),
            configured: vec![set],
            contexts: BTreeMap::new(),
            base: PathBuf::from("/"),
            secrets: Some(BTreeSet::new()),
        });
        registry.sync().await?;
        registry.toolbox().wait_for_sets(CONNECT_TIMEOUT).await;
        let control = Control::new(Arc::clone(store), Arc::clone(&clock), None);
        let words: Arc<WordEmbedder> = Arc::default();
        let engine =
            Engine::new(control, registry, Arc::new(Offline::default()), clock, Options::default())
                .with_embedder(Some(Source::Own(Arc::clone(&words) as Arc<dyn Embedder>)));
        Ok(Self { engine, words })
    }

    async fn ask(&self, query: &str, by: Criterion) -> Result<usize, BenchError> {
        let selection_query =
            SelectionQuery { query, by, limit: SELECTED_TOOLS, active_only: true };
        Ok(self.engine.selection.select_tools(selection_query).await.map_err(to_bench_error)?.len())
    }

    /// Runs each query twice and measures the second run, in which the query's vector comes from
    /// the engine's cache.
    async fn measure_queries(
        &self,
        by: Criterion,
        queries: &[String],
        name: &str,
        report: &mut Report,
    ) -> Result<Vec<Duration>, BenchError> {
        let mut times = Vec::with_capacity(queries.len());
        for query in queries {
            self.ask(query, by).await?;
            let started_at = Instant::now();
            let found = self.ask(query, by).await?;
            times.push(started_at.elapsed());
            if found == 0 {
                return Err(BenchError::Engine(format!("nothing was chosen by {}", by.as_str())));
            }
        }
        times.sort_unstable();
        for percent in [50, 99] {
            report.set_ms(&format!("{name}_p{percent}_ms"), percentile(&times, percent));
        }
        Ok(times)
    }
}

async fn add_one_tool(
    store: &Arc<dyn Store>,
    corpus: &Corpus,
    tools: usize,
    report: &mut Report,
) -> Result<(), BenchError> {
    let seat = SelectionBench::new(store, corpus, tools).await?;
    for by in Criterion::ALL {
        seat.ask("anything", by).await?;
    }
    let before = seat.words.count_embedded_texts();
    let added = corpus.make_tools(tools + 1).pop().unwrap_or_default();
    seat.engine.tools.register_tool(Some("more"), added).await.map_err(to_bench_error)?;
    let started_at = Instant::now();
    seat.ask("anything", Criterion::Hybrid).await?;
    report.set_ms("one_more_tool_ms", started_at.elapsed());
    report.set("one_more_tool_texts", seat.words.count_embedded_texts() - before);
    Ok(())
}

async fn measure_encoder(corpus: &Corpus, report: &mut Report) -> Result<(), BenchError> {
    let broken = |err: planner::embed::EmbedError| BenchError::Engine(err.to_string());
    let encoder = Local::open_builtin_model().await.map_err(broken)?;
    let mut times = Vec::with_capacity(ENCODED_QUERIES);
    for n in 0..ENCODED_QUERIES {
        let query = corpus.make_query(n, 1);
        let started_at = Instant::now();
        encoder.embed(&[&query]).await.map_err(broken)?;
        times.push(started_at.elapsed());
    }
    times.sort_unstable();
    report.set_ms("builtin_encoder_p50_ms", percentile(&times, 50));
    Ok(())
}

fn to_seconds(duration: Duration) -> f64 {
    round_to_four_decimals(duration.as_secs_f64())
}

#[expect(clippy::needless_pass_by_value, reason = "many calls pass it to `map_err`")]
fn to_bench_error(err: EngineError) -> BenchError {
    BenchError::Engine(err.to_string())
}
