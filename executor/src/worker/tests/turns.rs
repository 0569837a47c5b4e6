//! The turns of tokens whose executions wait for slots.

use shared::labels;

use super::*;

fn options_of(token: &str) -> ExecutionOptions {
    let mut options = ExecutionOptions::default();
    labels::set_token(&mut options.labels, Some(token));
    options
}

#[tokio::test(start_paused = true)]
async fn many_executions_of_a_token_delay_another_token_by_few_executions() {
    let test = WorkerTest::new();
    let sleep = || vec![step("a", "flow.sleep", json!({ "ms": 100 }))];
    let mut many = Vec::new();
    for _ in 0..500 {
        many.push(test.start_with(sleep(), options_of("many")).await);
    }
    let count_started = async || {
        let mut started = 0;
        for id in &many {
            started += usize::from(test.event_kinds(*id).await.contains(&"step_started"));
        }
        started
    };
    let before = count_started().await;
    let one = test.start_with(sleep(), options_of("one")).await;
    test.wait_for_event(one, "step_started", Duration::from_mins(1)).await;
    let overtaken_by = count_started().await - before;
    assert!(overtaken_by <= 9, "{overtaken_by} executions started first");
    assert!(before < 50, "the executions of the token waited: {before}");
}

#[tokio::test(start_paused = true)]
async fn a_new_execution_of_a_token_takes_no_slot_while_others_wait() {
    let store = Arc::new(Memory::new());
    let (worker, handle) = worker(&store);
    let clock = Arc::clone(&worker.context.clock);
    let control = Control::new(Arc::<Memory>::clone(&store), clock, Some(handle.clone()));
    let plan = plan(vec![step("a", "flow.noop", json!({}))]);
    store.put_plan(&plan).await.unwrap();
    handle.set_crowded(true);
    let id = control.start(Start::new(&plan, options_of("a"))).await.unwrap().id;
    let head = store.head(id).await.unwrap().unwrap();
    assert!(head.is_claimable(), "it waits in the store for the turn of its token: {head:?}");
    let mut tasks = JoinSet::new();
    tasks.spawn(worker.run());
    let mut look = time::interval(Duration::from_millis(10));
    while !store.head(id).await.unwrap().unwrap().state.is_finished() {
        look.tick().await;
    }
    assert!(!handle.is_crowded(), "no execution waits any more");
}
