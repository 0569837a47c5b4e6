use std::path::Path;

use client::{failure::Failure, plan_file::read_text};
use engine::yaml;

use crate::{
    App, ExitStatus,
    args::TestArgs,
    plan_test::{
        TestResult,
        file::TestFile,
        plans::Workload,
        report::{draw_result, draw_summary, to_json, to_junit},
        run_tests,
    },
    session::{Need, Session},
};

/// Runs the tests of a file. Its exit status is 1 if a test failed, and 2 if the file is wrong.
pub(crate) async fn test(app: &App, args: TestArgs) -> Result<ExitStatus, Failure> {
    let name = args.file.display().to_string();
    let file = read_file(&args.file, &name).await?;
    let session = Session::open_existing(app, Need::Tools).await?;
    let results = session.close_after(async |session| {
        let Some(engine) = session.engine() else {
            let reason = "tests run in this process: leave out `--server` and `FABER_SERVER`";
            return Err(Failure::usage(reason));
        };
        let workload = Workload::load(engine, &file).await?;
        // Each test has a runtime of its own, which a thread of this runtime must not block.
        let running = tokio::task::spawn_blocking(move || run_tests(&workload, &file));
        running.await.map_err(|err| Failure::new("INTERNAL", err.to_string()))?
    });
    let results = results.await?;
    report(app, &args, &name, &results).await
}

async fn read_file(path: &Path, name: &str) -> Result<TestFile, Failure> {
    let wrong = |reason: String| Failure::usage(format!("`{name}`: {reason}"));
    let text = read_text("the tests", path).await?;
    let written = yaml::parse(&text).map_err(wrong)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    TestFile::read(&written, folder).map_err(wrong)
}

async fn report(
    app: &App,
    args: &TestArgs,
    name: &str,
    results: &[TestResult],
) -> Result<ExitStatus, Failure> {
    if let Some(junit) = &args.junit {
        let written = tokio::fs::write(junit, to_junit(name, results)).await;
        written.map_err(|err| {
            Failure::usage(format!("`--junit`: `{}` cannot be written: {err}", junit.display()))
        })?;
    }
    let screen = &app.screen;
    if screen.json {
        screen.print_json(&to_json(name, results))?;
    } else {
        for result in results {
            screen.print(&draw_result(result))?;
        }
        screen.say(&draw_summary(results));
    }
    let has_passed = results.iter().all(TestResult::has_passed);
    Ok(if has_passed { ExitStatus::Done } else { ExitStatus::Failed })
}
