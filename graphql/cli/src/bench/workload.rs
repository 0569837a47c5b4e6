use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use executor::control::Start;
use futures::StreamExt;
use planner::{
    catalog::{Catalog, CatalogTool},
    compile::compile,
    draft::{Draft, DraftStep},
};
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{
    clock::{Clock, Timestamp, WallClock},
    diagnostic::Diagnostic,
    event::Event,
    execution::ExecutionOptions,
    id::{ExecutionId, PlanId, RequestId, Seq},
    plan::{Plan, PlanInfo},
    request::Request,
    store,
};
use tokio::task::JoinSet;
use toolbox::{Toolbox, flow};

use super::{
    BenchArgs, BenchEffect, BenchError, BenchNode,
    load::{self, StopCondition},
    report::{Report, round_to_four_decimals},
};

pub(crate) async fn run_chain(
    bench_node: &BenchNode,
    args: &BenchArgs,
    report: &mut Report,
) -> Result<(), BenchError> {
    let steps = args.steps.unwrap_or(10).max(1);
    let concurrency = args.concurrency.unwrap_or(64);
    let tool = tool_with_effect(args.effect);
    let draft = (0..steps).map(|n| {
        let before = n.checked_sub(1).map(|n| json!(format!("s{n}")));
        make_step(&format!("s{n}"), tool, None, before)
    });
    let plan = save_plan(bench_node, draft.collect()).await?;
    let load = Load { steps, concurrency, runs: 20_000 };
    run_executions(bench_node, args, report, &plan, load).await
}

pub(crate) async fn run_fanout(
    bench_node: &BenchNode,
    args: &BenchArgs,
    report: &mut Report,
) -> Result<(), BenchError> {
    let steps = args.steps.unwrap_or(100).max(1);
    let concurrency = args.concurrency.unwrap_or(1);
    let tool = tool_with_effect(args.effect);
    let names: Vec<String> = (0..steps).map(|n| format!("s{n}")).collect();
    let mut draft: Vec<DraftStep> =
        names.iter().map(|name| make_step(name, tool, None, None)).collect();
    draft.push(make_step("join", tool, None, Some(json!(names))));
    let plan = save_plan(bench_node, draft).await?;
    let load = Load { steps: steps + 1, concurrency, runs: 1_000 };
    run_executions(bench_node, args, report, &plan, load).await?;
    // The plan has one step more than `--steps`, because the option does not count the step that
    // waits for all other steps.
    report.set("steps", steps);
    Ok(())
}

struct Load {
    steps: usize,
    concurrency: usize,
    runs: usize,
}

async fn run_executions(
    bench_node: &BenchNode,
    args: &BenchArgs,
    report: &mut Report,
    plan: &Arc<Plan>,
    load: Load,
) -> Result<(), BenchError> {
    let Load { steps, concurrency, runs } = load;
    let options =
        ExecutionOptions { max_parallel: u32::try_from(steps).ok(), ..ExecutionOptions::default() };
    let until = match args.seconds {
        Some(seconds) => {
            StopCondition::Time(Duration::try_from_secs_f64(seconds).unwrap_or_default())
        }
        None => StopCondition::Runs(args.runs.unwrap_or(runs)),
    };
    let warm_up = StopCondition::Runs(concurrency * 2);
    load::drive_executions(&bench_node.control, plan, &options, concurrency, warm_up).await?;
    report.start_counting_commits(&*bench_node.store);
    let mut runs =
        load::drive_executions(&bench_node.control, plan, &options, concurrency, until).await?;
    report.set("steps", steps);
    report.set("concurrency", concurrency);
    report.record_runs(&*bench_node.store, steps, runs.wall_time, &mut runs.run_durations);
    Ok(())
}

#[derive(Deserialize)]
struct Dag {
    steps: Vec<DagStep>,
}

#[derive(Deserialize)]
struct DagStep {
    id: String,
    #[serde(default)]
    after: Vec<String>,
    ms: u64,
}

pub(crate) async fn run_dag(
    bench_node: &BenchNode,
    args: &BenchArgs,
    report: &mut Report,
) -> Result<(), BenchError> {
    let usage = |reason: String| BenchError::Usage(reason);
    let file = args.file.as_ref().ok_or_else(|| usage("`dag` needs `--file FILE`".to_owned()))?;
    let text = std::fs::read_to_string(file)
        .map_err(|err| usage(format!("`{}` cannot be read: {err}", file.display())))?;
    let dag: Dag = serde_json::from_str(&text)
        .map_err(|err| usage(format!("`{}` is not a graph: {err}", file.display())))?;
    let draft = dag.steps.iter().map(|node| {
        make_step(&node.id, "flow.sleep", Some(json!({ "ms": node.ms })), Some(json!(node.after)))
    });
    let plan = save_plan(bench_node, draft.collect()).await?;
    let width = args.concurrency.unwrap_or(256).max(1);
    let max_parallel = Some(u32::try_from(width).unwrap_or(u32::MAX));
    let options = ExecutionOptions { max_parallel, ..ExecutionOptions::default() };
    report.start_counting_commits(&*bench_node.store);
    let started_at = Instant::now();
    let id = load::run_once(&bench_node.control, &plan, &options).await?;
    let wall_time = started_at.elapsed();
    report.set("effect", "read");
    report.set("steps", dag.steps.len());
    report.set("concurrency", width);
    report.record_runs(&*bench_node.store, dag.steps.len(), wall_time, &mut [wall_time]);
    let (work, critical) = compute_path_lengths(&plan, &dag);
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2⁵²")]
    let share = work / width as f64;
    report.set("makespan_s", round_to_four_decimals(load_makespan(bench_node, id).await?));
    report.set("work_s", round_to_four_decimals(work));
    report.set("critical_path_s", round_to_four_decimals(critical));
    report.set("lower_bound_s", round_to_four_decimals(share.max(critical)));
    report.set("upper_bound_s", round_to_four_decimals(share + critical));
    Ok(())
}

async fn load_makespan(bench_node: &BenchNode, id: ExecutionId) -> Result<f64, BenchError> {
    let mut events =
        Box::pin(store::follow_log(Arc::clone(&bench_node.store), id, Seq::START, Duration::MAX));
    let (mut first, mut last): (Option<Timestamp>, Option<Timestamp>) = (None, None);
    while let Some(recorded) = events.next().await {
        let recorded = recorded?;
        match recorded.event {
            Event::StepStarted(_) => drop(first.get_or_insert(recorded.at)),
            Event::StepSucceeded { .. } => last = Some(recorded.at),
            _ => (),
        }
    }
    let span = first.zip(last).and_then(|(first, last)| (last - first).to_std().ok());
    Ok(span.unwrap_or_default().as_secs_f64())
}

/// Returns two sums of durations in seconds: of all steps, and of the steps on the longest path.
fn compute_path_lengths(plan: &Plan, dag: &Dag) -> (f64, f64) {
    let times: BTreeMap<&str, u64> =
        dag.steps.iter().map(|step| (step.id.as_str(), step.ms)).collect();
    let mut ends: Vec<u64> = Vec::new();
    for step in plan.steps() {
        let begins = step.depends_on.iter().map(|step| ends[step.get()]).max().unwrap_or(0);
        ends.push(begins + times[step.id.as_str()]);
    }
    let seconds = |ms: u64| Duration::from_millis(ms).as_secs_f64();
    (seconds(times.values().sum()), seconds(ends.into_iter().max().unwrap_or(0)))
}

pub(crate) async fn run_subscribers(
    bench_node: &BenchNode,
    args: &BenchArgs,
    report: &mut Report,
) -> Result<(), BenchError> {
    let followers = args.concurrency.unwrap_or(64).max(1);
    let steps = args.steps.unwrap_or(1_000).max(1);
    let tool = tool_with_effect(args.effect);
    let draft = (0..steps).map(|n| {
        let before = n.checked_sub(1).map(|n| json!(format!("s{n}")));
        make_step(&format!("s{n}"), tool, None, before)
    });
    let plan = save_plan(bench_node, draft.collect()).await?;
    report.start_counting_commits(&*bench_node.store);
    let started_at = Instant::now();
    let started = bench_node.control.start(Start::new(&plan, ExecutionOptions::default())).await;
    let id = started.map_err(|err| BenchError::Engine(err.to_string()))?.id;
    let mut tasks = JoinSet::new();
    for _ in 0..followers {
        let store = Arc::clone(&bench_node.store);
        tasks.spawn(async move {
            let poll = shared::limits::POLL_INTERVAL;
            store::follow_log(store, id, Seq::START, poll)
                .filter(|answer| std::future::ready(answer.is_ok()))
                .count()
                .await
        });
    }
    let mut events = 0;
    while let Some(count) = tasks.join_next().await {
        events += count.map_err(|err| BenchError::Engine(err.to_string()))?;
    }
    let wall_time = started_at.elapsed();
    report.set("steps", steps);
    report.set("concurrency", followers);
    report.record_runs(&*bench_node.store, steps, wall_time, &mut [wall_time]);
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2⁵²")]
    report.set("events_per_s", round_to_four_decimals(events as f64 / wall_time.as_secs_f64()));
    report.set("events", events);
    Ok(())
}

pub(crate) fn measure_compiler(steps: usize) -> Value {
    let drafts = (0..steps.max(1)).map(|n| {
        let before = [n.checked_sub(1), n.checked_sub(7)].into_iter().flatten();
        let before: Vec<String> = before.map(|n| format!("s{n}")).collect();
        let text = before.first().map_or("none".to_owned(), |name| format!("{{{{{name}.text}}}}"));
        make_step(&format!("s{n}"), "flow.echo", Some(json!({ "text": text })), Some(json!(before)))
    });
    let draft = Draft { tools: drafts.collect(), ..Draft::default() };
    let started_at = Instant::now();
    let compiled = compile(&draft, make_plan_info(), &make_catalog(&flow_tools()));
    let wall_time = started_at.elapsed();
    let (nodes, edges) = (60_000_usize, 245_000_usize);
    let draft = cyclic_draft(nodes, edges);
    let started_at = Instant::now();
    let refused = compile(&draft, make_plan_info(), &make_catalog(&flow_tools()));
    let cycle = started_at.elapsed();
    let named = refused.err().unwrap_or_default();
    let mut report = Report::for_compiler(wall_time, steps);
    report.set("steps", steps);
    report.set("compiled", compiled.is_ok());
    report.set("cycle_steps", nodes);
    report.set("cycle_edges", edges);
    report.set("cycle_wall_s", round_to_four_decimals(cycle.as_secs_f64()));
    report
        .set("cycle_named", named.iter().any(|problem: &Diagnostic| problem.code == "plan.cycle"));
    report.to_json()
}

fn cyclic_draft(nodes: usize, edges: usize) -> Draft {
    let mut before: Vec<Vec<String>> = vec![Vec::new(); nodes];
    let mut seed = 1_u64;
    for edge in 0..edges {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let from = 1 + edge % (nodes - 1);
        let to = usize::try_from(seed >> 33).unwrap_or(0) % from;
        before[from].push(format!("s{to}"));
    }
    before[0].push(format!("s{}", nodes - 1));
    let steps = before.into_iter().enumerate();
    let steps = steps
        .map(|(n, before)| make_step(&format!("s{n}"), "flow.noop", None, Some(json!(before))));
    Draft { tools: steps.collect(), ..Draft::default() }
}

fn tool_with_effect(effect: BenchEffect) -> &'static str {
    match effect {
        BenchEffect::Read => "flow.noop",
        BenchEffect::Once => "flow.effect",
    }
}

fn make_step(id: &str, tool: &str, parameters: Option<Value>, before: Option<Value>) -> DraftStep {
    DraftStep {
        id: Some(id.to_owned()),
        name: Some(tool.to_owned()),
        parameters,
        depends_on: before,
        ..DraftStep::default()
    }
}

fn flow_tools() -> Toolbox {
    Toolbox::new([flow::flow()])
}

fn make_catalog(toolbox: &Toolbox) -> Catalog {
    let sets = toolbox.sets();
    let tools = sets.iter().flat_map(|set| &set.tools);
    let tools = tools
        .map(|tool| CatalogTool { definition: Arc::clone(tool.definition()), is_active: true });
    Catalog::new(tools)
}

fn make_plan_info() -> PlanInfo {
    let created_at = WallClock.now();
    PlanInfo {
        id: PlanId::draw(created_at),
        request: RequestId::draw(created_at),
        version: 1,
        query: "bench".to_owned(),
        planner: "explicit".to_owned(),
        created_at,
    }
}

async fn save_plan(bench_node: &BenchNode, tools: Vec<DraftStep>) -> Result<Arc<Plan>, BenchError> {
    let about = make_plan_info();
    let created_at = bench_node.clock.now();
    let request = Request::new(about.request, about.query.clone(), created_at);
    bench_node.store.put_request(&request).await?;
    let draft = Draft { tools, ..Draft::default() };
    let plan = compile(&draft, about, &make_catalog(&bench_node.toolbox)).map_err(|problems| {
        let first = problems.iter().find(|problem| problem.is_error());
        BenchError::Usage(first.map_or_else(String::new, ToString::to_string))
    })?;
    bench_node.store.put_plan(&plan).await?;
    debug_assert!(bench_node.toolbox.has_all(plan.steps().iter().map(|step| &step.tool)));
    Ok(Arc::new(plan))
}
