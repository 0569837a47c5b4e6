use std::{fs, os::unix::process::CommandExt as _, process::Command};

use sandbox::{Confinement, kernel_support};
use tests::binary::faber;

use super::{Sandbox, confinement_order, expect_refusal_if};

#[tokio::test]
async fn a_confined_command_sees_no_other_environment_variables() {
    let sandbox = Sandbox::new();
    let text = sandbox.call_bash("env | sort | cut -d= -f1 | tr '\\n' ' '").await.unwrap();
    let names = text.lines().nth(1).unwrap().split_whitespace();
    // The shell itself sets `PWD`, `OLDPWD`, `SHLVL` and `_`, so they are allowed.
    let known = ["HOME", "LANG", "PATH", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"];
    let others: Vec<_> = names.filter(|name| !known.contains(name)).collect();
    assert_eq!(others, Vec::<&str>::new());
    let confine =
        Confinement { pass: vec!["CARGO_MANIFEST_DIR".to_owned()], ..Confinement::default() };
    let text = sandbox.call_bash_with(confine, "echo $CARGO_MANIFEST_DIR").await.unwrap();
    assert!(text.contains(env!("CARGO_MANIFEST_DIR")), "{text}");
}

#[tokio::test]
async fn a_confined_command_cannot_read_the_environment_of_other_processes() {
    let sandbox = Sandbox::new();
    // The test process has this variable, so a command that can read the environment of its parent
    // finds it.
    let found = sandbox
        .call_bash(
            "grep -ls CARGO_MANIFEST_DIR= /proc/*/environ; grep ^Cap /proc/self/status; true",
        )
        .await
        .unwrap();
    assert!(!found.contains("environ"), "{found}");
    let sets: Vec<_> = found.lines().filter(|line| line.starts_with("Cap")).collect();
    let is_nothing = |line: &&&str| line.ends_with("\t0000000000000000");
    // One of the five sets, the bounding set, can remain, because only a privileged process can
    // drop it.
    assert!(sets.len() == 5 && sets.iter().filter(is_nothing).count() >= 4, "{sets:?}");
}

/// Runs a Python statement in the sandbox. Returns `done`, or `errno` with its number.
async fn run_socket_script(sandbox: &Sandbox, confine: Confinement, statement: &str) -> String {
    let script = format!(
        "import ctypes, socket as s\ntry:\n  {statement}\n  print('done')\nexcept OSError as err:\n  \
         print('errno', err.errno)\n"
    );
    fs::write(sandbox.root().join("script.py"), script).unwrap();
    sandbox
        .call_bash_with(confine, "PATH=/usr/bin:/bin python3 script.py")
        .await
        .unwrap()
        .lines()
        .nth(1)
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_confined_command_connects_to_socket_files_only_if_allowed() {
    let sandbox = Sandbox::new();
    let listener = std::os::unix::net::UnixListener::bind(sandbox.root().join("door")).unwrap();
    let connect = "s.socket(s.AF_UNIX).connect('door')";
    let closed = || Confinement::default();
    let wide = || Confinement { network: true, ..Confinement::default() };
    let open = || Confinement { sockets: true, ..Confinement::default() };
    let refused = if kernel_support().calls { "errno 13" } else { "done" };
    assert_eq!(run_socket_script(&sandbox, closed(), connect).await, refused);
    assert_eq!(run_socket_script(&sandbox, wide(), connect).await, refused);
    assert_eq!(run_socket_script(&sandbox, open(), connect).await, "done");
    // The two sockets of a pair are connected only to each other, unless a system call connects one
    // of them elsewhere.
    let pair = "p = s.socketpair(); p[0].send(b'x')";
    assert_eq!(run_socket_script(&sandbox, closed(), pair).await, "done");
    let loose = "s.socketpair(s.AF_UNIX, s.SOCK_DGRAM | s.SOCK_CLOEXEC)";
    assert_eq!(run_socket_script(&sandbox, closed(), loose).await, refused);
    let ring = "c = ctypes.CDLL(None, use_errno=True); \
                c.syscall(425, 1, 0) < 0 and exec('raise OSError(ctypes.get_errno(), \"\")')";
    if kernel_support().calls {
        assert_eq!(run_socket_script(&sandbox, open(), ring).await, "errno 13");
    }
    drop(listener);
}

#[tokio::test]
async fn a_confined_command_sends_datagrams_only_if_allowed() {
    let sandbox = Sandbox::new();
    let listener = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let send = format!("echo hi > /dev/udp/127.0.0.1/{port}");
    expect_refusal_if(sandbox.call_bash(&send).await, kernel_support().calls);
    let confine = Confinement { network: true, ..Confinement::default() };
    sandbox.call_bash_with(confine, &send).await.unwrap();
    let mut bytes = [0; 9];
    assert_eq!(listener.recv(&mut bytes).unwrap(), 3);
    let confine = Confinement { network: true, ..Confinement::default() };
    let raw = run_socket_script(&sandbox, confine, "s.socket(s.AF_ALG, s.SOCK_SEQPACKET)").await;
    assert!(!kernel_support().calls || raw == "errno 13", "{raw}");
}

#[test]
fn open_files_of_faber_are_not_inherited_by_confined_commands() {
    let sandbox = Sandbox::new();
    let confinement = Confinement { write: vec![sandbox.root()], ..Confinement::default() };
    let script = format!(
        "exec 3< {}; FABER_CONFINED='{}' {} confined -- sh -c 'cat <&3'; echo $?",
        sandbox.secret_path(),
        confinement_order(&confinement, Vec::new(), "'$$'"),
        faber().display(),
    );
    let output =
        Command::new("sh").arg("-c").arg(script).current_dir(sandbox.root()).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(!output.contains("the secret") && output != "0\n", "{output}");
}

/// Regression: a shell found `python3` in the folder of a version manager, was not allowed to run
/// it, and did not search the next folders.
#[test]
fn a_confined_command_finds_programs_only_in_readable_folders() {
    let sandbox = Sandbox::new();
    let shims = sandbox.folder.path().join("shims");
    fs::create_dir(&shims).unwrap();
    fs::copy("/bin/sh", shims.join("cat")).unwrap();
    let confinement = Confinement { write: vec![sandbox.root()], ..Confinement::default() };
    let output = Command::new(faber())
        .args(["confined", "--", "sh", "-c", "echo found | cat; echo $PATH"])
        .env(
            "FABER_CONFINED",
            confinement_order(&confinement, Vec::new(), &std::process::id().to_string()),
        )
        .env("PATH", format!("{}:/usr/bin:/bin", shims.display()))
        .current_dir(sandbox.root())
        .process_group(0)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = if kernel_support().files { "found\n/usr/bin:/bin\n" } else { &text };
    assert_eq!(text, expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_confined_command_uses_the_network_only_if_allowed() {
    let sandbox = Sandbox::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
    expect_refusal_if(sandbox.call_bash(&connect).await, kernel_support().tcp);
    let confine = Confinement { network: true, ..Confinement::default() };
    let text = sandbox.call_bash_with(confine, &connect).await.unwrap();
    assert!(text.contains("connected"), "{text}");
}

#[tokio::test]
async fn a_confined_command_gains_no_privileges_and_has_limits() {
    let sandbox = Sandbox::new();
    let confine = Confinement { open_files: 123, file_bytes: 2048, ..Confinement::default() };
    let text = sandbox
        .call_bash_with(
            confine,
            "grep NoNewPrivs /proc/self/status; ulimit -n; ulimit -Hf; ulimit -c; ulimit -u",
        )
        .await
        .unwrap();
    let processes: Option<u64> = text.lines().nth(5).and_then(|number| number.parse().ok());
    assert!(processes.is_some_and(|count| count > 4_096 && count < 1 << 30), "{text}");
    if kernel_support().privileges {
        assert!(text.contains("NoNewPrivs:\t1"), "{text}");
    }
    assert!(text.contains("\n123\n2\n0\n"), "{text}");
    let confine = Confinement { file_bytes: 2048, ..Confinement::default() };
    let err = sandbox
        .call_bash_with(confine, "head -c 9999 /dev/zero > file; exit $?")
        .await
        .unwrap_err();
    assert!(err.message.contains("Return code: 1"), "{err}");
    assert_eq!(fs::metadata(sandbox.root().join("file")).unwrap().len(), 2048);
    let confine = Confinement { memory_bytes: 64 << 20, ..Confinement::default() };
    let err =
        sandbox.call_bash_with(confine, "x=$(head -c 200000000 /dev/zero | tr '\\0' x)").await;
    assert!(err.is_err(), "{err:?}");
    let confine = Confinement { cpu_seconds: 1, ..Confinement::default() };
    let err = sandbox.call_bash_with(confine, "while :; do :; done").await.unwrap_err();
    assert!(err.message.contains("Return code: -9"), "{err}");
}

#[tokio::test]
async fn a_confined_command_shares_no_memory_and_no_keys() {
    let sandbox = Sandbox::new();
    let call = |number: &str| {
        format!(
            "c = ctypes.CDLL(None, use_errno=True); c.{number} < 0 and \
             exec('raise OSError(ctypes.get_errno(), \"\")')"
        )
    };
    if !kernel_support().calls {
        return;
    }
    for refused in [
        "shmget(0, 4096, 0o1600)",
        "semget(0, 1, 0o1600)",
        "msgget(0, 0o1600)",
        "shmat(0, 0, 0)",
        "shmctl(0, 2, 0)",
        "semop(0, 0, 1)",
        "semtimedop(0, 0, 1, 0)",
        "semctl(0, 0, 12)",
        "msgsnd(0, 0, 0, 0)",
        "msgrcv(0, 0, 0, 0, 0)",
        "msgctl(0, 2, 0)",
        "mq_unlink(b'/none')",
        "setpriority(0, 1, 19)",
    ] {
        let output = run_socket_script(&sandbox, Confinement::default(), &call(refused)).await;
        assert_eq!(output, "errno 13", "{refused}");
    }
    // A process is always allowed to lower its own priority, even if it already has the lowest
    // priority.
    let own =
        run_socket_script(&sandbox, Confinement::default(), &call("setpriority(0, 0, 19)")).await;
    assert_eq!(own, "done");
}
