//! What ends with a confined command, and with what it has started.

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

use super::{World, confined_tool, expect_refused};

#[tokio::test]
async fn a_command_ends_as_itself() {
    let world = World::new();
    for (command, code) in
        [("exit 0", 0), ("exit 42", 42), ("kill -TERM $$", -15), ("kill -SEGV $$", -11)]
    {
        let text = match world.bash(command).await {
            Ok(text) => text,
            Err(err) => err.message.to_string(),
        };
        assert!(text.ends_with(&format!("Return code: {code}")), "{command}: {text}");
    }
    let world = World::new();
    // Signals reach nobody outside.
    let own = std::process::id();
    expect_refused(world.bash(&format!("kill -0 {own}")).await, kernel_support().signals);
}

#[tokio::test]
async fn what_a_command_leaves_behind_ends_with_it() {
    let world = World::new();
    let text = world
        .bash(
            "sleep 1000 & echo $! > plain; setsid sh -c 'echo $$ > away; exec sleep 1000' & \
               while ! test -s away; do :; done; echo done",
        )
        .await
        .unwrap();
    assert!(text.contains("done"), "{text}");
    for name in ["plain", "away"] {
        let pid = world.pid(name).unwrap();
        wait_until(name, || !is_running(&pid)).await;
    }
}

/// A command that ended what watches it left everything behind.
#[tokio::test]
async fn a_command_cannot_end_its_warden() {
    let world = World::new();
    let text = world
        .bash(
            "setsid sh -c 'echo $$ > away; exec sleep 1000' & while ! test -s away; do :; done; \
             kill -9 $PPID; echo killed: $?; prlimit --pid $PPID --cpu=0 2> /dev/null; \
             echo limited: $?",
        )
        .await;
    if kernel_support().signals {
        let text = text.unwrap();
        assert!(text.contains("killed: 1") && !text.contains("limited: 0"), "{text}");
        let pid = world.pid("away").unwrap();
        wait_until("away", || !is_running(&pid)).await;
    }
}

/// PEERS 46: a hung call is cut off, and nothing of it stays.
#[tokio::test]
async fn a_time_out_ends_grandchildren_too() {
    let world = World::new();
    let command = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 1; done' & \
                   setsid sh -c 'trap \"\" TERM; echo $$ > away; while :; do sleep 1; done' & wait; wait";
    let parameters = json!({ "command": command, "timeout": 5 });
    let err = world.call(SystemConfig::default(), "bash", parameters).await.unwrap_err();
    assert_eq!(err.code, ErrorCode::TIMEOUT);
    for name in ["child", "away"] {
        let pid = world.pid(name).unwrap();
        wait_until(name, || !is_running(&pid)).await;
    }
}

/// A process that starts a confined command as the engine does, and is then killed.
#[tokio::test]
async fn nothing_outlives_an_engine_that_is_killed() {
    let world = World::new();
    let launcher = Launcher::with_binary(faber().to_owned());
    let confinement = Confinement { write: vec![world.root()], ..Confinement::default() };
    let command =
        launcher.confined_command(&confinement, Lifetime::Watched, "sh".as_ref()).unwrap();
    let order =
        command.as_std().get_envs().find(|variable| variable.0 == "FABER_CONFINED").unwrap();
    // The caller is whoever starts it: here a shell.
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
        .current_dir(world.root())
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    wait_until("it runs", || world.pid("plain").is_some() && world.pid("away").is_some()).await;
    let pids = ["plain", "away"].map(|name| world.pid(name).unwrap());
    assert!(pids.iter().all(|pid| is_running(pid)));
    engine.kill().unwrap();
    engine.wait().unwrap();
    for pid in pids {
        wait_until("what it ran ends", || !is_running(&pid)).await;
    }
}

/// The kernel lets `root` have any number.
#[tokio::test]
async fn a_command_that_becomes_too_many_is_ended_with_all_of_them() {
    let world = World::new();
    // Not without end itself, should nothing end it.
    let command = "setsid sh -c 'echo $$ > away; exec sleep 1000' & \
                   for i in $(seq 300); do sleep 1000 & done; echo $! > last; wait";
    let confine = Confinement { processes: 64, ..Confinement::default() };
    let err = world.bash_with(confine, command).await.unwrap_err();
    assert!(err.message.contains("more than 64 processes and threads"), "{err}");
    assert!(err.message.contains("Return code: -9"), "{err}");
    for pid in ["away", "last"].into_iter().filter_map(|name| world.pid(name)) {
        wait_until("it ends", || !is_running(&pid)).await;
    }
    // Fewer are none of its business.
    let confine = Confinement { processes: 64, ..Confinement::default() };
    let command = "for i in $(seq 20); do sleep 0.3 & done; wait; echo fine";
    let text = world.bash_with(confine, command).await.unwrap();
    assert!(text.contains("fine"), "{text}");
}

#[tokio::test]
async fn a_background_command_goes_on_confined() {
    let world = World::new();
    let launcher = Launcher::with_binary(faber().to_owned());
    let tools = tools(&world.root(), SystemConfig::default(), launcher).unwrap();
    let call = async |name: &str, parameters: Value| {
        let tool = tools.iter().find(|tool| tool.definition().name.as_str() == name).unwrap();
        tool.call(Arc::new(parameters), ToolContext::detached()).await
    };
    let command = format!(
        "sleep 1000 & echo $! > child; cat {} || echo refused; echo $$ > pid; wait",
        world.secret()
    );
    let started = call("bash_background", json!({ "command": command })).await.unwrap();
    wait_until("it runs", || world.pid("pid").is_some()).await;
    let (pid, child) = (world.pid("pid").unwrap(), world.pid("child").unwrap());
    assert!(started.as_str().unwrap().contains(&format!("(PID: {pid})")), "{started}");
    let log = fs::read_to_string(world.root().join(".faber/background/1.log")).unwrap();
    assert_eq!(log.contains("refused"), kernel_support().files, "{log}");
    assert!(is_running(&pid) && is_running(&child));
    // A session of its own: nobody's terminal ends it.
    let listed = call("process_list", json!({ "filter_pattern": "sleep 1000" })).await.unwrap();
    assert!(listed.as_str().unwrap().contains(&format!("*{child:>7}")), "{listed}");
    // A Faber that comes later knows them, too.
    let later = async |name: &str, parameters: Value| {
        world.call(SystemConfig::default(), name, parameters).await.unwrap()
    };
    let listed = later("process_list", json!({ "filter_pattern": "sleep 1000" })).await;
    assert!(listed.contains(&format!("*{child:>7}")), "{listed}");
    later("process_kill", json!({ "pid_or_name": pid })).await;
    wait_until("all of it ends", || !is_running(&pid) && !is_running(&child)).await;
}

#[tokio::test]
async fn what_a_background_command_leaves_behind_is_known() {
    let world = World::new();
    let launcher = Launcher::with_binary(faber().to_owned());
    let tools = tools(&world.root(), SystemConfig::default(), launcher).unwrap();
    let call = async |name: &str, parameters: Value| {
        let tool = tools.iter().find(|tool| tool.definition().name.as_str() == name).unwrap();
        tool.call(Arc::new(parameters), ToolContext::detached()).await
    };
    let start = |number: u32| json!({ "command": format!("(echo $BASHPID > {number}; exec sleep 1000) &") });
    let mut ids = Vec::new();
    for number in 0..64 {
        let started = call("bash_background", start(number)).await.unwrap();
        let started = started.as_str().unwrap();
        // On a busy machine it has not ended by the time that it is waited for.
        let is_said = started.contains("Processes that it started still run");
        assert!(is_said || !started.contains("which has ended"), "{started}");
        let id = started.split("(PID: ").nth(1).unwrap().split(')').next().unwrap();
        ids.push(id.to_owned());
    }
    let err = call("bash_background", start(64)).await.unwrap_err();
    assert!(err.message.contains("64 background commands are running already"), "{err}");
    for (n, id) in ids.iter().enumerate() {
        let force = json!({ "pid_or_name": id, "force": true });
        if n % 16 == 0 {
            world.call(SystemConfig::default(), "process_kill", force).await.unwrap();
        } else {
            call("process_kill", force).await.unwrap();
        }
    }
    for number in 0..64 {
        wait_until("it wrote its number", || world.pid(&number.to_string()).is_some()).await;
        let pid = world.pid(&number.to_string()).unwrap();
        wait_until("it ends", || !is_running(&pid)).await;
    }
    let again = call("bash_background", json!({ "command": "true" })).await.unwrap();
    assert!(!again.as_str().unwrap().contains("still run"), "{again}");
}

#[tokio::test]
async fn what_a_command_tool_leaves_behind_ends_with_it_though_it_is_not_confined() {
    let world = World::new();
    let script = "setsid sh -c 'echo $$ > away; exec sleep 1000' > /dev/null 2>&1 & \
                  while ! test -s away; do :; done; echo $CARGO_PKG_NAME-$CARGO_PKG_VERSION";
    let run = json!({
        "command": ["sh", "-c", script], "cwd": world.root(), "pass": ["CARGO_PKG_VERSION"],
    });
    let launcher = Launcher::with_binary(faber().to_owned());
    let tools = json!({ "tools": [{ "name": "t", "run": run }] });
    let connected = Connected::begin_with(&tools, launcher);
    let said = connected.call("t", json!({})).await.unwrap();
    assert_eq!(said, json!(format!("-{}", env!("CARGO_PKG_VERSION"))));
    let pid = world.pid("away").unwrap();
    wait_until("away", || !is_running(&pid)).await;
}

/// A warden that is killed leaves what has left its group.
#[tokio::test]
async fn a_command_that_prints_too_much_leaves_nothing_behind() {
    let world = World::new();
    let script = "setsid sh -c 'echo $$ > away; exec sleep 1000' > /dev/null 2>&1 & \
                  while ! test -s away; do :; done; yes";
    for confine in [json!(null), json!({ "write": [world.root()] })] {
        let _ = fs::remove_file(world.root().join("away"));
        let tool = confined_tool(&confine, &["sh", "-c", script], &world.root());
        let err = tool.call("t", json!({})).await.unwrap_err();
        assert_eq!(err.code, ErrorCode::OUTPUT_TOO_LARGE, "{err}");
        let pid = world.pid("away").unwrap();
        wait_until("away", || !is_running(&pid)).await;
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_nothing_behind() {
    let world = World::new();
    let command = "setsid sh -c 'echo $$ > away; exec sleep 1000' & wait; sleep 1000";
    let call = world.bash(command);
    let begun = wait_until("it runs", || world.pid("away").is_some());
    tokio::select! {
        ended = call => panic!("{ended:?}"),
        () = begun => (),
    }
    let pid = world.pid("away").unwrap();
    wait_until("away", || !is_running(&pid)).await;
}
