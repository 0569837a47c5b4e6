//! Thousands of tools: times of registering, listing, finding and planning.

use std::{
    collections::{BTreeMap, BTreeSet},
    hint::black_box,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use engine::{Engine, PlanningOptions};
use executor::{control::Control, options::Options};
use offline::Offline;
use planner::draft::Draft;
use serde_json::json;
use shared::{
    clock::{Clock, WallClock},
    id::{ParseIdError, ToolName},
    store::{Store, memory::Memory},
};
use toolbox::Toolbox;
use toolsets::{
    registry::{self, Registry},
    sources::Sources,
};

use super::{
    super::{
        BenchError,
        report::{Report, percentile, round},
        workload::step,
    },
    note,
};

const REPETITIONS: usize = 200;

/// Registers `tools` tools one after another and measures. A run with a hundred tools serves as
/// comparison.
pub(crate) async fn many(tools: usize, report: &mut Report) -> Result<(), BenchError> {
    let few = Crowd::new(tools.clamp(1, 100)).await?;
    let many = Crowd::new(tools.max(1)).await?;
    report.set("tools", tools);
    report.set("register_wall_s", round(many.registered.iter().sum::<Duration>().as_secs_f64()));
    let tenth = many.registered.len().div_ceil(10);
    let us = |times: &[Duration]| {
        let all: Duration = times.iter().sum();
        #[expect(clippy::cast_precision_loss, reason = "far fewer than 2⁵²")]
        round(all.as_secs_f64() * 1e6 / times.len().max(1) as f64)
    };
    report.set("register_first_tenth_us", us(&many.registered[..tenth]));
    report.set("register_last_tenth_us", us(&many.registered[many.registered.len() - tenth..]));
    for (crowd, name) in [(&few, "few"), (&many, "many")] {
        crowd.measure(name, report).await?;
    }
    Ok(())
}

struct Crowd {
    engine: Engine,
    tools: usize,
    registered: Vec<Duration>,
}

impl Crowd {
    async fn new(tools: usize) -> Result<Self, BenchError> {
        let store: Arc<dyn Store> = Arc::new(Memory::new());
        let clock: Arc<dyn Clock> = Arc::new(WallClock);
        let toolbox = Toolbox::default();
        let registry = Registry::new(registry::Parts {
            sources: Sources::new(&toolbox, shared::limits::OUTPUT_BYTES),
            toolbox,
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            configured: Vec::new(),
            contexts: BTreeMap::new(),
            base: PathBuf::from("/"),
            secrets: Some(BTreeSet::new()),
        });
        registry.sync().await?;
        let control = Control::new(store, Arc::clone(&clock), None);
        let options = Options::default();
        let engine = Engine::new(control, registry, Arc::new(Offline::default()), clock, options);
        let mut registered = Vec::with_capacity(tools);
        for n in 0..tools {
            let text = json!({ "type": "string", "description": "What it is about." });
            let parameters =
                json!({ "type": "object", "properties": { "text": text }, "required": ["text"] });
            let tool = json!({
                "name": format!("tool{n}"),
                "description": format!("Does the thing that has the number {n}."),
                "effect": "read",
                "parameters": parameters,
                "run": { "command": ["true"] },
            });
            let begun = Instant::now();
            let done = engine.tools.register_tool(Some("crowd"), tool).await;
            registered.push(begun.elapsed());
            done.map_err(|err| BenchError::Engine(err.to_string()))?;
        }
        Ok(Self { engine, tools, registered })
    }

    async fn measure(&self, name: &str, report: &mut Report) -> Result<(), BenchError> {
        let engine = |err: engine::EngineError| BenchError::Engine(err.to_string());
        let last = self.tools - 1;
        let tool: ToolName = format!("tool{last}")
            .parse()
            .map_err(|err: ParseIdError| BenchError::Engine(err.to_string()))?;
        let five = (0..5).map(|n| {
            let tool = format!("tool{}", last.saturating_sub(n));
            step(&format!("s{n}"), &tool, Some(json!({ "text": "x" })), None)
        });
        let draft = Draft { tools: five.collect(), ..Draft::default() };
        let query = format!("call tool{last} with text hello");
        let (mut looks, mut lists, mut plans, mut words) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for n in 0..=REPETITIONS {
            let begun = Instant::now();
            black_box(self.engine.tools.inventory.toolbox().find(&tool));
            note(&mut looks, n > 0, begun.elapsed());
            let begun = Instant::now();
            black_box(self.engine.tools.sets());
            note(&mut lists, n > 0, begun.elapsed());
            let begun = Instant::now();
            let verdict = self.engine.plans.validate(&draft).await.map_err(engine)?;
            note(&mut plans, n > 0, begun.elapsed());
            if verdict.plan.is_none() {
                return Err(BenchError::Engine(format!("{:?}", verdict.diagnostics)));
            }
            if n % 20 == 0 {
                let begun = Instant::now();
                // Only the time counts, so the query may yield no plan.
                let _ = black_box(
                    self.engine.plans.plan_query(&query, &PlanningOptions::default()).await,
                );
                note(&mut words, n > 0, begun.elapsed());
            }
        }
        for (what, mut times) in
            [("find", looks), ("list", lists), ("compile", plans), ("plan_words", words)]
        {
            times.sort_unstable();
            let p50 = percentile(&times, 50).as_secs_f64() * 1e6;
            report.set(&format!("{name}_tools_{what}_p50_us"), round(p50));
        }
        Ok(())
    }
}
