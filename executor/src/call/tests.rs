use std::fmt::Write;

use expect_test::{Expect, expect};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use shared::{
    id::StepNumber,
    tool::{Effect, Progress},
};
use tokio::task::yield_now;
use toolbox::{Tool, ToolSet, function, progress::Reports};

use super::*;

const LONG_TIMEOUT: Duration = Duration::from_mins(5);

#[derive(Deserialize, JsonSchema)]
struct Script {
    /// The times of the tool's reports, in milliseconds from its start.
    #[serde(default)]
    reports: Vec<u64>,
    /// The time of the tool's answer in milliseconds. By default the tool never answers.
    answers: Option<u64>,
    /// The tool's reaction to a cancellation. By default the tool ignores the cancellation.
    stops: Option<StopBehavior>,
    /// `true` if the tool reports as fast as it can.
    #[serde(default)]
    floods: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum StopBehavior {
    Saying,
    Answering,
    Panicking,
}

#[expect(clippy::cast_precision_loss, reason = "tests report a few times")]
fn report(number: u64) -> Progress {
    Progress { progress: number as f64, total: None, message: None }
}

async fn run_script(script: Script, cx: ToolContext) -> Result<&'static str, ToolError> {
    let started_at = Instant::now();
    let wait_until = |ms| time::sleep_until(started_at + Duration::from_millis(ms));
    let work = async {
        for (number, ms) in (1..).zip(&script.reports) {
            wait_until(*ms).await;
            cx.progress(report(number));
        }
        for number in (1_u64..).take_while(|_| script.floods) {
            cx.progress(report(number));
            // Yields, because Tokio's paused clock does not advance while a task can run.
            if number % 100 == 0 { wait_until(number / 100).await } else { yield_now().await }
        }
        match script.answers {
            Some(ms) => wait_until(ms).await,
            None => std::future::pending().await,
        }
    };
    let Some(stops) = script.stops else {
        work.await;
        return Ok("done");
    };
    tokio::select! {
        () = work => return Ok("done"),
        () = cx.cancel.cancelled() => {}
    }
    match stops {
        StopBehavior::Saying => Err(ToolError::new(ErrorCode::CANCELLED, "stopped")),
        StopBehavior::Answering => Ok("stopped half way"),
        StopBehavior::Panicking => panic!("stopped"),
    }
}

fn toolbox() -> Toolbox {
    let tool: Arc<dyn Tool> = function("t", "act", "Does as told.", Effect::Read, run_script);
    Toolbox::new([ToolSet::ready("t".parse().unwrap(), "builtin", "", [tool])])
}

/// A plan names `m.b`, the tool `b` of the set `m`. Another server has a tool that the server
/// itself calls `m.b`.
#[tokio::test(start_paused = true)]
async fn a_missing_planned_tool_is_not_replaced_by_a_tool_of_another_set() {
    use toolbox::SetStatus;

    let impostor = || {
        let run = |_: Value, _: ToolContext| async { Ok::<_, ToolError>("the wrong server") };
        let tool = function("m2", "m.b", "Is another.", Effect::Read, run);
        ToolSet::ready("m2".parse().unwrap(), "mcp", "", [tool])
    };
    let beside = |status| ToolSet {
        status,
        ..ToolSet::ready("m".parse().unwrap(), "mcp", "", Vec::<Arc<dyn Tool>>::new())
    };
    let failed = SetStatus::Failed { error: "it is down".to_owned() };
    for (sets, reason) in [
        (vec![impostor()], "no tool `m.b`"),
        (vec![impostor(), beside(SetStatus::Ready)], "no tool `m.b`"),
        (vec![impostor(), beside(failed)], "it is down"),
        (vec![impostor(), beside(SetStatus::Connecting)], "did not connect"),
    ] {
        let name = "m.b".parse().unwrap();
        let found = find_tool_or_wait(&Toolbox::new(sets), &name, Duration::from_secs(30)).await;
        let error = found.map(|tool| tool.definition().qualified_name()).unwrap_err();
        assert!(error.message.contains(reason), "{error}");
    }
}

struct Trial {
    call: Call,
    reports: Reports<AttemptKey>,
    cancel_at: Option<Duration>,
}

impl Trial {
    fn new(script: Value) -> Self {
        Self::for_tool("t.act", script)
    }

    fn for_tool(tool: &str, parameters: Value) -> Self {
        let reports = Reports::default();
        let key = (Task::from(StepNumber::new(0)), Attempt::FIRST);
        let call = Call {
            task: key.0,
            attempt: key.1,
            tool: tool.parse().unwrap(),
            known_tool: None,
            parameters: Arc::new(parameters),
            timeout: LONG_TIMEOUT,
            idle_timeout: None,
            progress: reports.sink(key),
            cx: ToolContext::detached(),
        };
        Self { call, reports, cancel_at: None }
    }

    fn with_timeout(mut self, timeout: Duration) -> Self {
        self.call.timeout = timeout;
        self
    }

    fn with_idle_timeout(mut self, ms: u64) -> Self {
        self.call.idle_timeout = Some(Duration::from_millis(ms));
        self
    }

    fn cancel_at(mut self, ms: u64) -> Self {
        self.cancel_at = Some(Duration::from_millis(ms));
        self
    }

    async fn run(self, toolbox: Toolbox) -> (String, Result<Value, ToolError>) {
        let Self { call, mut reports, cancel_at } = self;
        let started_at = Instant::now();
        let cancel = call.cx.cancel.clone();
        let mut call = pin!(call.run_call(toolbox, Arc::default()));
        let mut story = String::new();
        loop {
            tokio::select! {
                biased;
                ended = &mut call => {
                    let ms = started_at.elapsed().as_millis();
                    let end = match &ended.result {
                        Ok(answer) => answer.output.to_string(),
                        Err(err) if err.is_definite => format!("{err} (definite)"),
                        Err(err) => err.to_string(),
                    };
                    writeln!(story, "{ms} {end}").unwrap();
                    assert!(reports.recv().now_or_never().is_none(), "a finished call sends no report");
                    return (story, ended.result.map(|answer| answer.output));
                }
                (_, report) = reports.recv() => {
                    writeln!(story, "{} {}", started_at.elapsed().as_millis(), report.progress).unwrap();
                }
                () = time::sleep_until(started_at + cancel_at.unwrap_or_default()),
                    if cancel_at.is_some() && !cancel.is_cancelled() => cancel.cancel(),
            }
        }
    }

    async fn check(self, expected: Expect) {
        expected.assert_eq(&self.run(toolbox()).await.0);
    }
}

#[test]
fn a_too_large_or_too_deep_output_is_an_error() {
    assert!(check_output(json!("x".repeat(10)), 12).is_ok());
    let error = check_output(json!("x".repeat(11)), 12).unwrap_err();
    assert_eq!(error.code, ErrorCode::OUTPUT_TOO_LARGE);
    let deep = (0..200).fold(json!(1), |number, _| json!([number]));
    assert_eq!(check_output(deep, 1 << 20).unwrap_err().code, ErrorCode::OUTPUT_TOO_LARGE);
}

#[tokio::test(start_paused = true)]
async fn frequent_progress_reports_are_merged_and_the_last_is_kept() {
    let reports = [0, 10, 20, 99, 150, 400, 1_000];
    Trial::new(json!({ "reports": reports, "answers": 1_050 }))
        .check(expect![[r#"
        0 1
        100 4
        200 5
        400 6
        1000 7
        1050 "done"
    "#]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_without_progress_ends_at_its_idle_timeout() {
    Trial::new(json!({ "stops": "saying" }))
        .with_idle_timeout(2_000)
        .check(expect![[r"
        2000 tool.timeout: the tool sent no answer and no progress for 2s, so the call was ended
    "]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn each_progress_report_restarts_the_idle_timeout() {
    let reports = [900, 1_800, 2_700];
    Trial::new(json!({ "reports": reports, "answers": 3_600 }))
        .with_idle_timeout(1_000)
        .check(expect![[r#"
            900 1
            1800 2
            2700 3
            3600 "done"
        "#]])
        .await;
    Trial::new(json!({ "reports": reports, "stops": "saying" }))
        .with_idle_timeout(1_000)
        .check(expect![[r"
            900 1
            1800 2
            2700 3
            3700 tool.timeout: the tool sent no answer and no progress for 1s, so the call was ended
        "]])
        .await;
    // The second report arrives during the pause. It has the time at which the tool made it.
    let reports = [0, 50];
    Trial::new(json!({ "reports": reports, "stops": "saying" }))
        .with_idle_timeout(1_000)
        .check(expect![[r"
            0 1
            100 2
            1050 tool.timeout: the tool sent no answer and no progress for 1s, so the call was ended
        "]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn progress_does_not_extend_the_timeout() {
    let script = json!({ "floods": true, "stops": "saying" });
    Trial::new(script)
        .with_idle_timeout(1_000)
        .with_timeout(Duration::from_millis(350))
        .check(expect![[r"
        0 1
        100 10001
        200 20001
        300 30001
        350 tool.timeout: took longer than its timeout of 350ms and was ended
    "]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_result_after_the_timeout_is_still_a_timeout() {
    for stops in ["saying", "answering", "panicking"] {
        let script = json!({ "stops": stops });
        Trial::new(script)
            .with_timeout(Duration::from_secs(1))
            .check(expect![[r"
            1000 tool.timeout: took longer than its timeout of 1s and was ended
        "]])
            .await;
    }
    // A tool that ignores the cancellation is ended five seconds after the timeout.
    let (story, _) =
        Trial::new(json!({})).with_timeout(Duration::from_secs(1)).run(toolbox()).await;
    expect![[r"
        6000 tool.timeout: took longer than its timeout of 1s and was ended
    "]]
    .assert_eq(&story);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_may_still_return_its_own_result() {
    let check = |stops: &str, expected| {
        Trial::new(json!({ "stops": stops }))
            .with_idle_timeout(2_000)
            .cancel_at(500)
            .check(expected)
    };
    check(
        "saying",
        expect![[r"
        500 tool.cancelled: stopped
    "]],
    )
    .await;
    check(
        "answering",
        expect![[r#"
        500 "stopped half way"
    "#]],
    )
    .await;
    check(
        "panicking",
        expect![[r"
        500 tool.failed: `t.act` panicked: this is a bug in the tool
    "]],
    )
    .await;
    Trial::new(json!({}))
        .with_idle_timeout(2_000)
        .cancel_at(500)
        .check(expect![[r"
        5500 tool.cancelled: cancelled, and ended after 5s because it did not stop
    "]])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_started_has_a_definite_failure() {
    let waiting = || {
        let toolbox = Toolbox::default();
        let mut set = ToolSet::ready("t".parse().unwrap(), "builtin", "", []);
        set.status = toolbox::SetStatus::Connecting;
        toolbox.register_set(set).unwrap();
        toolbox
    };
    let trial = || Trial::new(json!({}));
    let (story, _) =
        trial().with_idle_timeout(1).with_timeout(Duration::from_secs(2)).run(waiting()).await;
    expect![[r"
        2000 tool.timeout: took longer than its timeout of 2s and was ended (definite)
    "]]
    .assert_eq(&story);
    let (story, _) = trial().cancel_at(500).run(waiting()).await;
    expect![[r"
        500 tool.cancelled: cancelled before the call started (definite)
    "]]
    .assert_eq(&story);
}

#[tokio::test(start_paused = true)]
async fn the_longest_timeouts_do_not_panic() {
    let trial =
        Trial::new(json!({ "answers": 1 })).with_timeout(Duration::MAX).with_idle_timeout(u64::MAX);
    assert_eq!(trial.run(toolbox()).await.1, Ok(json!("done")));
}

mod server {
    use tempfile::TempDir;
    use toolsets::sources::{SetConfig, Sources};

    use super::*;

    struct Server {
        toolbox: Toolbox,
        _sources: Sources,
        _folder: TempDir,
    }

    impl Server {
        async fn ready() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/it/mcp/hostile.mjs");
            let args = json!([script, "normal", folder.path().join("record")]);
            let source = json!({ "mcp": { "command": "node", "args": args } });
            let set: SetConfig =
                serde_json::from_value(json!({ "name": "s", "source": source })).unwrap();
            let toolbox = Toolbox::default();
            let sources = Sources::new(&toolbox, limits::OUTPUT_BYTES);
            sources.put(set);
            let server = Self { toolbox, _sources: sources, _folder: folder };
            let started = server.run(Trial::for_tool("s.starts", json!({}))).await;
            started.expect("node starts: run `./tests/run`, which names what is missing");
            server
        }

        async fn run(&self, trial: Trial) -> Result<Value, ToolError> {
            trial.run(self.toolbox.clone()).await.1
        }

        /// Waits until the server has received a cancel notification. Returns the number of these
        /// notifications.
        async fn cancelled(&self) -> Value {
            self.run(Trial::for_tool("s.cancelled", json!({})).with_timeout(Duration::from_mins(1)))
                .await
                .unwrap()
        }
    }

    #[track_caller]
    fn assert_timed_out(result: Result<Value, ToolError>, expected: &Expect) {
        let err = result.unwrap_err();
        expected.assert_eq(&err.to_string());
        assert!(err.retryable && !err.is_definite);
    }

    /// Regression: a call that never returned blocked its step forever, and the server got no
    /// cancel notification.
    #[tokio::test]
    async fn a_hanging_call_times_out_and_the_server_gets_a_cancellation() {
        let server = Server::ready().await;
        let hung = server.run(Trial::for_tool("s.hang", json!({})).with_idle_timeout(200)).await;
        assert_timed_out(
            hung,
            &expect![
                "tool.timeout: the tool sent no answer and no progress for 200ms, so the call was \
                 ended"
            ],
        );
        assert_eq!(server.cancelled().await, json!(1));
        let timeout = Duration::from_millis(300);
        let hung = server.run(Trial::for_tool("s.hang", json!({})).with_timeout(timeout)).await;
        assert_timed_out(
            hung,
            &expect!["tool.timeout: took longer than its timeout of 300ms and was ended"],
        );
        assert_eq!(server.cancelled().await, json!(2));
    }

    #[tokio::test]
    async fn progress_keeps_a_slow_call_running() {
        let server = Server::ready().await;
        // The whole call takes longer than the idle timeout, which each report restarts.
        let script = json!({ "every": 100, "times": 80 });
        assert_eq!(
            server.run(Trial::for_tool("s.report", script).with_idle_timeout(5_000)).await,
            Ok(json!(80))
        );
        let script = json!({ "every": 1, "times": 3, "hang": true });
        let (story, result) = Trial::for_tool("s.report", script)
            .with_idle_timeout(3_000)
            .run(server.toolbox.clone())
            .await;
        assert!(story.contains(" 3\n"), "{story}");
        assert_timed_out(
            result,
            &expect![
                "tool.timeout: the tool sent no answer and no progress for 3s, so the call was \
                 ended"
            ],
        );
        assert_eq!(server.cancelled().await, json!(1));
    }

    #[tokio::test]
    async fn a_flood_of_progress_reports_is_throttled() {
        let server = Server::ready().await;
        let timeout = Duration::from_millis(3_050);
        let flood =
            Trial::for_tool("s.flood", json!({ "times": 1_u64 << 50 })).with_timeout(timeout);
        let (story, result) = flood.run(server.toolbox.clone()).await;
        assert_timed_out(
            result,
            &expect!["tool.timeout: took longer than its timeout of 3.05s and was ended"],
        );
        let reports = story.lines().count() - 1;
        // Checks no exact number, because on a busy machine the call may end later.
        let last = story.lines().last().unwrap();
        let ms: usize = last.split(' ').next().unwrap().parse().unwrap();
        assert!((1..=ms / 100 + 1).contains(&reports), "{story}");
        assert_eq!(server.cancelled().await, json!(1));
    }
}
