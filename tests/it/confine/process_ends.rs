use std::{
    fs,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    sync::Arc,
};

use builtin::system::{SystemConfig, tools};
use sandbox::{Confinement, Launcher, Lifetime, kernel_support};
use serde_json::{Value, json};
use shared::tool::ErrorCode;
use tests::{
    binary::faber,
    toolset::{Connected, is_running, wait_until},
};
use toolbox::ToolContext;

use super::{Sandbox, confined_tool, expect_refusal_if};

#[tokio::test]
async fn the_exit_code_or_signal_of_a_confined_command_is_reported() {
    let sandbox = Sandbox::new();
    for (command, code) in
        [("exit 0", 0), ("exit 42", 42), ("kill -TERM $$", -15), ("kill -SEGV $$", -11)]
    {
        let text = match sandbox.call_bash(command).await {
            Ok(text) => text,
            Err(err) => err.message.to_string(),
        };
        assert!(text.ends_with(&format!("Return code: {code}")), "{command}: {text}");
    }
    let sandbox = Sandbox::new();
    // The test process is outside the sandbox, so the command must not be allowed to signal it.
    let own = std::process::id();
    expect_refusal_if(sandbox.call_bash(&format!("kill -0 {own}")).await, kernel_support().signals);
}

#[tokio::test]
async fn background_processes_end_with_a_confined_command() {
    let sandbox = Sandbox::new();
    let text = sandbox
        .call_bash(
            "sleep 1000 & echo $! > plain; setsid sh -c 'echo $$ > away; exec sleep 1000' & \
               while ! test -s away; do :; done; echo done",
        )
        .await
        .unwrap();
    assert!(text.contains("done"), "{text}");
    for name in ["plain", "away"] {
        let pid = sandbox.pid(name).unwrap();
        wait_until(name, || !is_running(&pid)).await;
    }
}

/// Regression: processes survived if the command killed its watcher.
#[tokio::test]
async fn a_confined_command_cannot_kill_its_watcher() {
    let sandbox = Sandbox::new();
    let text = sandbox
        .call_bash(
            "setsid sh -c 'echo $$ > away; exec sleep 1000' & while ! test -s away; do :; done; \
             kill -9 $PPID; echo killed: $?; prlimit --pid $PPID --cpu=0 2> /dev/null; \
             echo limited: $?",
        )
        .await;
    if kernel_support().signals {
        let text = text.unwrap();
        assert!(text.contains("killed: 1") && !text.contains("limited: 0"), "{text}");
        let pid = sandbox.pid("away").unwrap();
        wait_until("the background process ends", || !is_running(&pid)).await;
    }
}

/// The command hangs, so Faber kills it together with all its processes.
#[tokio::test]
async fn a_timeout_ends_grandchildren_too() {
    let sandbox = Sandbox::new();
    let command = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 1; done' & \
                   setsid sh -c 'trap \"\" TERM; echo $$ > away; while :; do sleep 1; done' & wait; wait";
    let parameters = json!({ "command": command, "timeout": 5 });
    let err = sandbox.call(SystemConfig::default(), "bash", parameters).await.unwrap_err();
    assert_eq!(err.code, ErrorCode::TIMEOUT);
    for name in ["child", "away"] {
        let pid = sandbox.pid(name).unwrap();
        wait_until(name, || !is_running(&pid)).await;
    }
}

#[tokio::test]
async fn a_confined_command_ends_when_its_engine_is_killed() {
    let sandbox = Sandbox::new();
    let launcher = Launcher::with_binary(faber().to_owned());
    let confinement = Confinement { write: vec![sandbox.root()], ..Confinement::default() };
    let command =
        launcher.confined_command(&confinement, Lifetime::Watched, "sh".as_ref()).unwrap();
    let order =
        command.as_std().get_envs().find(|variable| variable.0 == "FABER_CONFINED").unwrap();
    // In this test, a shell starts the command, so the shell is the caller.
    let order = order.1.unwrap().to_str().unwrap().to_owned();
    let order = order.replace(&format!("\"caller\":{}", std::process::id()), "\"caller\":'$$'");
    let script = format!(
        "FABER_CONFINED='{order}' {} confined -- sh -c \
         'echo $$ > plain; setsid sh -c \"echo \\$\\$ > away; exec sleep 1000\" & \
          exec sleep 1000' & wait",
        faber().display()
    );
    let mut engine = Command::new("sh")
        .arg("-c")
        .arg(script)
        .current_dir(sandbox.root())
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    wait_until("the command runs", || {
        sandbox.pid("plain").is_some() && sandbox.pid("away").is_some()
    })
    .await;
    let pids = ["plain", "away"].map(|name| sandbox.pid(name).unwrap());
    assert!(pids.iter().all(|pid| is_running(pid)));
    engine.kill().unwrap();
    engine.wait().unwrap();
    for pid in pids {
        wait_until("the command ends", || !is_running(&pid)).await;
    }
}

/// The kernel does not limit the number of processes of root, so Faber must enforce the limit
/// itself.
#[tokio::test]
async fn a_command_over_its_process_limit_is_ended_with_all_processes() {
    let sandbox = Sandbox::new();
    // Each `sleep` ends by itself, so that no process remains if the test fails.
    let command = "setsid sh -c 'echo $$ > away; exec sleep 1000' & \
                   for i in $(seq 300); do sleep 1000 & done; echo $! > last; wait";
    let confine = Confinement { processes: 64, ..Confinement::default() };
    let err = sandbox.call_bash_with(confine, command).await.unwrap_err();
    assert!(err.message.contains("more than 64 processes and threads"), "{err}");
    assert!(err.message.contains("Return code: -9"), "{err}");
    for pid in ["away", "last"].into_iter().filter_map(|name| sandbox.pid(name)) {
        wait_until("the process ends", || !is_running(&pid)).await;
    }
    // A command with fewer processes than the limit must not be ended.
    let confine = Confinement { processes: 64, ..Confinement::default() };
    let command = "for i in $(seq 20); do sleep 0.3 & done; wait; echo fine";
    let text = sandbox.call_bash_with(confine, command).await.unwrap();
    assert!(text.contains("fine"), "{text}");
}

#[tokio::test]
async fn a_background_command_continues_confined() {
    let sandbox = Sandbox::new();
    let launcher = Launcher::with_binary(faber().to_owned());
    let tools = tools(&sandbox.root(), SystemConfig::default(), launcher).unwrap();
    let call = async |name: &str, parameters: Value| {
        let tool = tools.iter().find(|tool| tool.definition().name.as_str() == name).unwrap();
        tool.call(Arc::new(parameters), ToolContext::detached()).await
    };
    let command = format!(
        "sleep 1000 & echo $! > child; cat {} || echo refused; echo $$ > pid; wait",
        sandbox.secret_path()
    );
    let started = call("bash_background", json!({ "command": command })).await.unwrap();
    wait_until("the command runs", || sandbox.pid("pid").is_some()).await;
    let (pid, child) = (sandbox.pid("pid").unwrap(), sandbox.pid("child").unwrap());
    assert!(started.as_str().unwrap().contains(&format!("(PID: {pid})")), "{started}");
    let log = fs::read_to_string(sandbox.root().join(".faber/background/1.log")).unwrap();
    assert_eq!(log.contains("refused"), kernel_support().files, "{log}");
    assert!(is_running(&pid) && is_running(&child));
    // The command has its own session, so no terminal ends it.
    let listed = call("process_list", json!({ "filter_pattern": "sleep 1000" })).await.unwrap();
    assert!(listed.as_str().unwrap().contains(&format!("*{child:>7}")), "{listed}");
    // A Faber process that starts later must list and end the same processes.
    let later = async |name: &str, parameters: Value| {
        sandbox.call(SystemConfig::default(), name, parameters).await.unwrap()
    };
    let listed = later("process_list", json!({ "filter_pattern": "sleep 1000" })).await;
    assert!(listed.contains(&format!("*{child:>7}")), "{listed}");
    later("process_kill", json!({ "pid_or_name": pid })).await;
    wait_until("both processes end", || !is_running(&pid) && !is_running(&child)).await;
}

#[tokio::test]
async fn processes_of_a_background_command_are_listed_and_can_be_ended() {
    let sandbox = Sandbox::new();
    let launcher = Launcher::with_binary(faber().to_owned());
    let tools = tools(&sandbox.root(), SystemConfig::default(), launcher).unwrap();
    let call = async |name: &str, parameters: Value| {
        let tool = tools.iter().find(|tool| tool.definition().name.as_str() == name).unwrap();
        tool.call(Arc::new(parameters), ToolContext::detached()).await
    };
    let start = |number: u32| json!({ "command": format!("(echo $BASHPID > {number}; exec sleep 1000) &") });
    let mut ids = Vec::new();
    for number in 0..64 {
        let started = call("bash_background", start(number)).await.unwrap();
        let started = started.as_str().unwrap();
        // On a busy machine the command perhaps still runs. Then its answer does not list
        // processes.
        let lists_processes = started.contains("Processes that it started still run");
        assert!(lists_processes || !started.contains("which has ended"), "{started}");
        let id = started.split("(PID: ").nth(1).unwrap().split(')').next().unwrap();
        ids.push(id.to_owned());
    }
    let err = call("bash_background", start(64)).await.unwrap_err();
    assert!(err.message.contains("64 background commands are already running"), "{err}");
    for (n, id) in ids.iter().enumerate() {
        let force = json!({ "pid_or_name": id, "force": true });
        if n % 16 == 0 {
            sandbox.call(SystemConfig::default(), "process_kill", force).await.unwrap();
        } else {
            call("process_kill", force).await.unwrap();
        }
    }
    for number in 0..64 {
        wait_until("the command writes its process id", || {
            sandbox.pid(&number.to_string()).is_some()
        })
        .await;
        let pid = sandbox.pid(&number.to_string()).unwrap();
        wait_until("the process ends", || !is_running(&pid)).await;
    }
    let again = call("bash_background", json!({ "command": "true" })).await.unwrap();
    assert!(!again.as_str().unwrap().contains("still run"), "{again}");
}

#[tokio::test]
async fn background_processes_end_with_an_unconfined_command_tool() {
    let sandbox = Sandbox::new();
    let script = "setsid sh -c 'echo $$ > away; exec sleep 1000' > /dev/null 2>&1 & \
                  while ! test -s away; do :; done; echo $CARGO_PKG_NAME-$CARGO_PKG_VERSION";
    let run = json!({
        "command": ["sh", "-c", script], "cwd": sandbox.root(), "pass": ["CARGO_PKG_VERSION"],
    });
    let launcher = Launcher::with_binary(faber().to_owned());
    let tools = json!({ "tools": [{ "name": "t", "run": run }] });
    let connected = Connected::start_connecting_with(&tools, launcher);
    let output = connected.call("t", json!({})).await.unwrap();
    assert_eq!(output, json!(format!("-{}", env!("CARGO_PKG_VERSION"))));
    let pid = sandbox.pid("away").unwrap();
    wait_until("the background process ends", || !is_running(&pid)).await;
}

/// The watcher must end all processes. If Faber killed the process group of the watcher, a process
/// that has left this group would survive.
#[tokio::test]
async fn a_command_that_prints_too_much_is_ended_with_its_processes() {
    let sandbox = Sandbox::new();
    let script = "setsid sh -c 'echo $$ > away; exec sleep 1000' > /dev/null 2>&1 & \
                  while ! test -s away; do :; done; yes";
    for confine in [json!(null), json!({ "write": [sandbox.root()] })] {
        let _ = fs::remove_file(sandbox.root().join("away"));
        let tool = confined_tool(&confine, &["sh", "-c", script], &sandbox.root());
        let err = tool.call("t", json!({})).await.unwrap_err();
        assert_eq!(err.code, ErrorCode::OUTPUT_TOO_LARGE, "{err}");
        let pid = sandbox.pid("away").unwrap();
        wait_until("the background process ends", || !is_running(&pid)).await;
    }
}

#[tokio::test]
async fn a_dropped_call_ends_all_processes_of_its_command() {
    let sandbox = Sandbox::new();
    let command = "setsid sh -c 'echo $$ > away; exec sleep 1000' & wait; sleep 1000";
    let call = sandbox.call_bash(command);
    let started = wait_until("the command runs", || sandbox.pid("away").is_some());
    tokio::select! {
        ended = call => panic!("{ended:?}"),
        () = started => (),
    }
    let pid = sandbox.pid("away").unwrap();
    wait_until("the background process ends", || !is_running(&pid)).await;
}
