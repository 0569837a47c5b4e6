use std::{
    fs,
    time::{Duration, Instant},
};

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use tempfile::TempDir;
use toolbox::{ToolLookup, ToolSet, Toolbox};

use super::*;

const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// The tools with a temporary folder and without a sandbox. Integration tests with the real binary
/// cover the sandbox.
struct SystemTools {
    folder: TempDir,
    toolbox: Toolbox,
}

impl SystemTools {
    fn new() -> Self {
        Self::in_folder(tempfile::tempdir().unwrap())
    }

    fn in_folder(folder: TempDir) -> Self {
        let tools = tools(folder.path(), SystemConfig::default(), Launcher::unconfined()).unwrap();
        let set = ToolSet::ready(SET.parse().unwrap(), "builtin", "", tools);
        Self { folder, toolbox: Toolbox::new([set]) }
    }

    async fn call(&self, name: &str, parameters: Value) -> Result<String, ToolError> {
        self.call_in(name, parameters, ToolContext::detached()).await
    }

    async fn call_in(
        &self,
        name: &str,
        parameters: Value,
        cx: ToolContext,
    ) -> Result<String, ToolError> {
        let ToolLookup::Tool(tool) = self.toolbox.find(&name.parse().unwrap()) else {
            panic!("{name}")
        };
        if let Some(complaint) = tool.complaint(&parameters) {
            return Err(ToolError::new(ErrorCode::INVALID_PARAMETERS, complaint));
        }
        let value = tool.tool().call(Arc::new(parameters), cx).await?;
        Ok(value.as_str().unwrap().to_owned())
    }

    async fn check(&self, name: &str, parameters: Value, expected: Expect) {
        let text = match self.call(name, parameters).await {
            Ok(text) => text,
            Err(err) => format!("{err} (retryable: {})", err.retryable),
        };
        let root = self.folder.path().canonicalize().unwrap();
        expected.assert_eq(&text.replace(root.to_str().unwrap(), "ROOT"));
    }
}

#[test]
fn a_confinement_error_names_a_folder_that_works() {
    let error_text = |reason: &str| confinement_error(reason).message.to_string();
    let here = format!("`/x/faber.yaml` is Faber's own: {OWN_FOLDER_ADVICE}");
    expect!["`bash` was not started: `/x/faber.yaml` is Faber's own: give the tool a separate folder, such as `root: ./work` (make that folder, and write into `faber.yaml`: `toolsets: [{ name: system_tools, source: { builtin: system_tools, root: ./work } }]`)"]
        .assert_eq(&error_text(&here));
    expect!["`bash` was not started: no Landlock"].assert_eq(&error_text("no Landlock"));
}

#[test]
fn system_tools_have_their_documented_names_and_parameters() {
    let system_tools = SystemTools::new();
    let shape: Vec<_> = system_tools.toolbox.sets()[0]
        .tools
        .iter()
        .map(|tool| {
            let definition = tool.definition();
            let schema = &definition.input_schema;
            let names = schema["properties"].as_object().map(|properties| {
                let required = schema["required"].as_array().cloned().unwrap_or_default();
                let mark = |name: &String| if required.contains(&json!(name)) { "!" } else { "" };
                properties
                    .keys()
                    .map(|name| format!("{name}{}", mark(name)))
                    .collect::<Vec<_>>()
                    .join(" ")
            });
            format!("{} {:?} ({})", definition.name, definition.effect, names.unwrap_or_default())
        })
        .collect();
    expect![[r"
        bash Once (command! cwd timeout description)
        bash_background Once (command! cwd description)
        process_kill Once (pid_or_name! force)
        process_list Read (filter_pattern)
        read_logs Read (file_path! lines follow)
        system_info Read ()
        todo_write Idempotent (todos!)"]]
    .assert_eq(&shape.join("\n"));
}

#[tokio::test]
async fn bash_returns_the_output_and_the_exit_status() {
    let system_tools = SystemTools::new();
    let run = |command: &str| json!({ "command": command });
    system_tools
        .check(
            "bash",
            run("echo hi; echo no >&2"),
            expect![[r"
        STDOUT:
        hi

        STDERR:
        no

        Return code: 0"]],
        )
        .await;
    system_tools
        .check(
            "bash",
            run("true"),
            expect![[r"
        (Command completed with no output)

        Return code: 0"]],
        )
        .await;
    system_tools
        .check(
            "bash",
            run("echo a; exit 3"),
            expect![[r"
        tool.failed: STDOUT:
        a

        Return code: 3 (retryable: true)"]],
        )
        .await;
    system_tools
        .check(
            "bash",
            run("kill -9 $$"),
            expect![[r"
        tool.failed: (Command completed with no output)

        Return code: -9 (retryable: true)"]],
        )
        .await;
    system_tools
        .check(
            "bash",
            run("read x; echo \"got '$x' $?\""),
            expect![[r"
        STDOUT:
        got '' 1

        Return code: 0"]],
        )
        .await;
}

#[tokio::test]
async fn bash_runs_below_the_root() {
    let system_tools = SystemTools::new();
    fs::create_dir(system_tools.folder.path().join("sub")).unwrap();
    std::os::unix::fs::symlink("/etc", system_tools.folder.path().join("link")).unwrap();
    let pwd = |cwd: &str| json!({ "command": "pwd", "cwd": cwd });
    system_tools
        .check(
            "bash",
            pwd("sub"),
            expect![[r"
        STDOUT:
        ROOT/sub

        Return code: 0"]],
        )
        .await;
    system_tools
        .check(
            "bash",
            pwd("nowhere"),
            expect!["tool.failed: Directory not found: nowhere (retryable: true)"],
        )
        .await;
    for outside in ["/etc", "..", "sub/../..", "link"] {
        let err = system_tools.call("bash", pwd(outside)).await.unwrap_err();
        let expected = format!("Refused: Path outside project root: {outside}");
        assert_eq!((&*err.message, err.retryable), (expected.as_str(), false));
    }
}

#[tokio::test]
async fn bash_rejects_parameters_out_of_range() {
    let system_tools = SystemTools::new();
    system_tools.check("bash", json!({ "command": "x", "timeout": 601 }), expect!["tool.invalid_parameters: timeout cannot exceed 600 seconds (10 minutes) (retryable: false)"]).await;
    system_tools
        .check(
            "bash",
            json!({ "command": "x", "timeout": 0 }),
            expect![
                "tool.invalid_parameters: timeout must be at least 1 second (retryable: false)"
            ],
        )
        .await;
    system_tools.check("bash", json!({ "command": "x", "shell": 0 }), expect!["tool.invalid_parameters: Additional properties are not allowed ('shell' was unexpected) (retryable: false)"]).await;
    let start = Instant::now();
    let slow = json!({ "command": "echo begun; sleep 1000 & echo $! > pid; wait", "timeout": 3 });
    system_tools
        .check(
            "bash",
            slow,
            expect![[r"
        tool.timeout: Command timed out after 3 seconds

        STDOUT:
        begun (retryable: true)"]],
        )
        .await;
    assert!(start.elapsed() < TEST_TIMEOUT);
    system_tools
        .check(
            "bash",
            json!({ "command": "sleep 1000", "timeout": 1 }),
            expect!["tool.timeout: Command timed out after 1 seconds (retryable: true)"],
        )
        .await;
    let pid: i32 =
        fs::read_to_string(system_tools.folder.path().join("pid")).unwrap().trim().parse().unwrap();
    let gone = async {
        // Polls, because the process that adopts a killed process removes it later.
        while fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z "))
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, gone).await.unwrap();
}

#[tokio::test]
async fn a_gigabyte_of_output_is_read_and_mostly_dropped() {
    let system_tools = SystemTools::new();
    let command = "yes | head -c 1000000000; echo end";
    let text = system_tools.call("bash", json!({ "command": command })).await.unwrap();
    assert!(text.len() < 128 << 10, "{}", text.len());
    assert!(text.starts_with("STDOUT:\ny\ny\n") && text.ends_with("y\nend\n\nReturn code: 0"));
    assert!(text.contains("bytes left out"));
}

#[tokio::test]
async fn a_cancelled_call_ends_its_command() {
    let system_tools = SystemTools::new();
    let cx = ToolContext::detached();
    let cancel = cx.cancel.clone();
    let start_marker = system_tools.folder.path().join("begun");
    let call = system_tools.call_in("bash", json!({ "command": "touch begun; sleep 1000" }), cx);
    let stop = async {
        while !start_marker.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        cancel.cancel();
    };
    let stop = tokio::time::timeout(TEST_TIMEOUT, stop);
    let (result, stopped) = tokio::join!(call, stop);
    stopped.expect("it begins");
    let err = result.unwrap_err();
    assert_eq!((err.code, err.is_definite), (ErrorCode::CANCELLED, false));
}

#[tokio::test]
async fn background_commands_are_listed_read_and_killed() {
    let system_tools = SystemTools::new();
    let command = "trap 'echo bye; exit' TERM; echo started; while :; do sleep 0.05; done";
    let text = system_tools.call("bash_background", json!({ "command": command })).await.unwrap();
    let pid = text.split("PID: ").nth(1).unwrap().split(')').next().unwrap().to_owned();
    assert!(text.ends_with("Log file: .faber/background/1.log"), "{text}");
    let listed =
        system_tools.call("process_list", json!({ "filter_pattern": "ECHO BYE" })).await.unwrap();
    assert!(listed.contains(&format!("*{pid:>7}")), "{listed}");
    let log = json!({ "file_path": ".faber/background/1.log" });
    let says = async |text: &str| {
        let wait = async {
            while !system_tools.call("read_logs", log.clone()).await.unwrap().contains(text) {}
        };
        tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap_or_else(|_| panic!("never: {text}"));
    };
    says("started").await;
    system_tools
        .check(
            "read_logs",
            log.clone(),
            expect![[r"
        Last 50 lines of .faber/background/1.log:

        started
    "]],
        )
        .await;
    let killed = system_tools.call("process_kill", json!({ "pid_or_name": pid })).await.unwrap();
    assert_eq!(killed, format!("Killed process {pid} (SIGTERM)"));
    says("bye").await;
    let nothing = json!({ "file_path": ".faber/background/1.log", "lines": 0 });
    system_tools
        .check(
            "read_logs",
            nothing,
            expect![
                "tool.invalid_parameters: `lines` is 0: write the number of lines to read, or \
                 leave out `lines` to read 50 (retryable: false)"
            ],
        )
        .await;
}

/// Regression: Faber did not recognise its own zombie processes.
#[tokio::test]
async fn a_zombie_process_is_reported_as_not_found() {
    let system_tools = SystemTools::new();
    let mut dead = std::process::Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", dead.id());
    let dies = async {
        while !fs::read_to_string(&stat).unwrap_or_default().contains(") Z ") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, dies).await.expect("it ends");
    let id = dead.id().to_string();
    let err = system_tools.call("process_kill", json!({ "pid_or_name": id })).await.unwrap_err();
    assert_eq!(err.to_string(), format!("tool.failed: Process not found: {id}"));
    dead.wait().unwrap();
}

#[tokio::test]
async fn background_commands_of_an_earlier_process_are_recognised() {
    let system_tools = SystemTools::new();
    let started =
        |text: &str| text.split("PID: ").nth(1).unwrap().split(')').next().unwrap().to_owned();
    let command = json!({ "command": "sleep 1001 & echo $! > child; wait" });
    let pid = started(&system_tools.call("bash_background", command).await.unwrap());
    let left = json!({ "command": "sleep 1002 & echo $! > left" });
    system_tools.call("bash_background", left).await.unwrap();
    let elsewhere = SystemTools::new();
    let refused = elsewhere.call("process_kill", json!({ "pid_or_name": pid })).await.unwrap_err();
    assert!(refused.message.contains("was not started by `bash_background`"), "{refused}");
    let system_tools = SystemTools::in_folder(system_tools.folder);
    let number = async |name: &str| {
        let read = || fs::read_to_string(system_tools.folder.path().join(name)).unwrap_or_default();
        let written = async {
            while !read().ends_with('\n') {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, written).await.unwrap_or_else(|_| panic!("no {name}"));
        read().trim().to_owned()
    };
    let (child, left) = (number("child").await, number("left").await);
    let listed =
        system_tools.call("process_list", json!({ "filter_pattern": "sleep 100" })).await.unwrap();
    for id in [&child, &left] {
        assert!(listed.contains(&format!("*{id:>7}")), "{listed}");
    }
    // A file with a process id must have no effect, because any program can write it.
    let mut other = std::process::Command::new("sleep").arg("1003").spawn().unwrap();
    fs::write(system_tools.folder.path().join(".faber/background/9.pid"), other.id().to_string())
        .unwrap();
    let err =
        system_tools.call("process_kill", json!({ "pid_or_name": other.id().to_string() })).await;
    assert!(err.unwrap_err().message.contains("was not started"));
    assert!(other.try_wait().unwrap().is_none(), "the other process still runs");
    other.kill().unwrap();
    other.wait().unwrap();
    for id in [&pid, &left] {
        let killed = system_tools.call("process_kill", json!({ "pid_or_name": id })).await.unwrap();
        assert_eq!(killed, format!("Killed process {id} (SIGTERM)"));
    }
    let is_dead = |id: &str| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.is_empty() || stat.rsplit(") ").next().is_some_and(|fields| fields.starts_with('Z'))
    };
    let dead = async {
        while ![&pid, &child, &left].iter().all(|pid| is_dead(pid)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, dead).await.unwrap();
}

#[tokio::test]
async fn a_background_command_that_fails_at_once_returns_its_error() {
    let system_tools = SystemTools::new();
    let failed = async {
        loop {
            // On a busy machine the command may outlast the wait for an early exit.
            let command = json!({ "command": "echo oops; exit 7" });
            if let Err(err) = system_tools.call("bash_background", command).await {
                return err.message;
            }
        }
    };
    let message = tokio::time::timeout(TEST_TIMEOUT, failed).await.expect("it fails");
    assert!(
        message.contains("it exited with status 7\n") && message.ends_with("\n\noops\n"),
        "{message}"
    );
}

#[tokio::test]
async fn process_kill_refuses_processes_that_faber_did_not_start() {
    let system_tools = SystemTools::new();
    let mut other = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let own = std::process::id().to_string();
    let parent = nix::unistd::getppid().to_string();
    for (target, reason) in [
        ("1", "Refused: process 1 belongs to the system"),
        ("-1", "Refused: process -1 belongs to the system"),
        ("0", "Refused: process 0 belongs to the system"),
        (own.as_str(), "is Faber or one of its parent processes"),
        (parent.as_str(), "is Faber or one of its parent processes"),
        (other.id().to_string().as_str(), "was not started by `bash_background`"),
        ("sleep", "was not started by `bash_background`"),
        ("2000000000", "Process not found: 2000000000"),
        ("no-such-program", "No processes found matching: no-such-program"),
        ("", "No processes found matching: "),
    ] {
        let err = system_tools
            .call("process_kill", json!({ "pid_or_name": target, "force": true }))
            .await;
        let message = err.unwrap_err().message;
        assert!(message.contains(reason), "{target}: {message}");
    }
    assert!(other.try_wait().unwrap().is_none(), "the other process still runs");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test]
async fn logs_outside_the_root_are_rejected() {
    let system_tools = SystemTools::new();
    std::os::unix::fs::symlink("/etc/passwd", system_tools.folder.path().join("link")).unwrap();
    std::process::Command::new("mkfifo")
        .arg(system_tools.folder.path().join("pipe"))
        .status()
        .unwrap();
    fs::write(system_tools.folder.path().join("empty"), "").unwrap();
    let read = |path: &str| json!({ "file_path": path });
    system_tools
        .check(
            "read_logs",
            read("/etc/passwd"),
            expect![
                "tool.failed: Refused: Path outside project root: /etc/passwd (retryable: false)"
            ],
        )
        .await;
    system_tools
        .check(
            "read_logs",
            read("../x"),
            expect!["tool.failed: Refused: Path outside project root: ../x (retryable: false)"],
        )
        .await;
    system_tools
        .check(
            "read_logs",
            read("link"),
            expect!["tool.failed: Refused: Path outside project root: link (retryable: false)"],
        )
        .await;
    system_tools
        .check(
            "read_logs",
            read("pipe"),
            expect!["tool.failed: Not a file: pipe (retryable: true)"],
        )
        .await;
    system_tools.check("read_logs", read("empty"), expect!["Log file is empty: empty"]).await;
    system_tools
        .check(
            "read_logs",
            read("none"),
            expect!["tool.failed: Log file not found: none (retryable: true)"],
        )
        .await;
}

#[tokio::test]
async fn following_a_log_reports_new_lines_until_it_is_cancelled() {
    let system_tools = SystemTools::new();
    let path = system_tools.folder.path().join("log");
    fs::write(&path, "one\n").unwrap();
    let (reporter, mut reports) = toolbox::progress::report_channel();
    let cx = ToolContext { reporter, ..ToolContext::detached() };
    let cancel = cx.cancel.clone();
    let call = system_tools.call_in("read_logs", json!({ "file_path": "log", "follow": true }), cx);
    let added = async {
        // Adds lines again until one is reported, because the tool may not follow the file yet.
        let report = loop {
            let mut log = fs::File::options().append(true).open(&path).unwrap();
            std::io::Write::write_all(&mut log, b"two\n").unwrap();
            let wait = std::time::Duration::from_secs(1);
            if let Ok(report) = tokio::time::timeout(wait, reports.next()).await {
                break report;
            }
        };
        assert!(report.progress.message.unwrap().ends_with("two"));
        cancel.cancel();
    };
    let (result, ()) = tokio::join!(call, added);
    assert_eq!(result.unwrap_err().code, ErrorCode::CANCELLED);
}

#[tokio::test]
async fn system_info_describes_the_machine() {
    let text = SystemTools::new().call("system_info", json!({})).await.unwrap();
    for part in ["CPU Cores: ", "Memory: ", "Disk: ", " MB used ("] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn todo_write_summarises_the_list() {
    let system_tools = SystemTools::new();
    let todos = json!([
        { "content": "Install", "status": "completed", "activeForm": "Installing" },
        { "content": "Start", "status": "in_progress", "activeForm": "Starting" },
        { "content": "Test", "status": "pending" },
    ]);
    system_tools
        .check(
            "todo_write",
            json!({ "todos": todos }),
            expect![[r"
        Task List:

        1. [x] Install
        2. [~] Starting
        3. [ ] Test

        Progress: 1/3 completed, 1 in progress, 1 pending"]],
        )
        .await;
    let wrong = json!({ "todos": [{ "content": "x", "status": "done" }] });
    let err = system_tools.call("todo_write", wrong).await.unwrap_err();
    assert_eq!(err.code, ErrorCode::INVALID_PARAMETERS);
}

/// Regression: a command that replaced Faber's folder made all later commands fail.
#[tokio::test]
async fn a_file_in_place_of_fabers_folder_is_removed() {
    let system_tools = SystemTools::new();
    let path_of = |name: &str| system_tools.folder.path().join(name);
    let run = async |command: &str| system_tools.call("bash", json!({ "command": command })).await;
    for broken in [
        "rm -rf .faber; ln -s /tmp .faber",
        "rm -rf .faber; ln -s nowhere .faber",
        "rm -rf .faber; mkfifo .faber",
        "rm -rf .faber; echo mine > .faber",
        "rm -rf .faber/tmp; ln -s /tmp .faber/tmp",
        "rm -rf .faber/tmp; echo mine > .faber/tmp",
        "chmod 0 .faber/tmp .faber",
    ] {
        run(broken).await.unwrap();
        let output = run("echo $TMPDIR; touch $TMPDIR/file").await.expect(broken);
        assert!(output.contains("/.faber/tmp\n"), "{output}");
        assert!(
            path_of(".faber/tmp/file").is_file() && path_of(".faber/.gitignore").is_file(),
            "{broken}"
        );
    }
    // Files of the user must not be removed.
    for kept in [".faber.1", ".faber/tmp.1"] {
        assert_eq!(fs::read_to_string(path_of(kept)).unwrap(), "mine\n", "{kept}");
    }
    let background = json!({ "command": "echo again" });
    run("rm -rf .faber/background; ln -s /tmp .faber/background").await.unwrap();
    system_tools.call("bash_background", background).await.unwrap();
}

/// Regression: outputs showed secrets that the setting `pass` gives to commands.
#[tokio::test]
async fn a_secret_that_is_passed_to_a_command_is_redacted() {
    let folder = tempfile::tempdir().unwrap();
    let confine = Confinement { pass: vec!["CARGO_PKG_*".to_owned()], ..Confinement::default() };
    let config = SystemConfig { confine, ..SystemConfig::default() };
    let secrets = ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"].map(str::to_owned);
    let launcher = Launcher::unconfined().with_secrets(secrets.into());
    let tools = tools(folder.path(), config, launcher).unwrap();
    let bash = tools.iter().find(|tool| tool.definition().name.as_str() == "bash").unwrap();
    for (code, expected) in
        [(0, "STDOUT:\n***CARGO_PKG_NAME*** 0\n"), (3, "STDOUT:\n***CARGO_PKG_NAME*** 3\n")]
    {
        let command = format!("echo $CARGO_PKG_NAME {code}; exit {code}");
        let result =
            bash.call(Arc::new(json!({ "command": command })), ToolContext::detached()).await;
        let output = result.map_or_else(
            |err| err.message.to_string(),
            |output| output.as_str().unwrap().to_owned(),
        );
        assert!(output.starts_with(expected), "{output}");
    }
}
