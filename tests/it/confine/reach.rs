//! What a confined command has in common with others: the environment, sockets, memory, rights.

use std::{fs, os::unix::process::CommandExt as _, process::Command};

use sandbox::{Confinement, kernel_support};
use tests::binary::faber;

use super::{World, expect_refused, order};

#[tokio::test]
async fn a_command_sees_neither_secrets_of_the_environment_nor_its_order() {
    let world = World::new();
    let text = world.bash("env | sort | cut -d= -f1 | tr '\\n' ' '").await.unwrap();
    let names = text.lines().nth(1).unwrap().split_whitespace();
    // The shell's own are `PWD`, `OLDPWD`, `SHLVL` and `_`.
    let known = ["HOME", "LANG", "PATH", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"];
    let others: Vec<_> = names.filter(|name| !known.contains(name)).collect();
    assert_eq!(others, Vec::<&str>::new());
    let confine =
        Confinement { pass: vec!["CARGO_MANIFEST_DIR".to_owned()], ..Confinement::default() };
    let text = world.bash_with(confine, "echo $CARGO_MANIFEST_DIR").await.unwrap();
    assert!(text.contains(env!("CARGO_MANIFEST_DIR")), "{text}");
}

#[tokio::test]
async fn a_command_sees_no_other_process_s_environment() {
    let world = World::new();
    // What started the tests has this variable, and so has what stands for Faber.
    let found = world
        .bash("grep -ls CARGO_MANIFEST_DIR= /proc/*/environ; grep ^Cap /proc/self/status; true")
        .await
        .unwrap();
    assert!(!found.contains("environ"), "{found}");
    let sets: Vec<_> = found.lines().filter(|line| line.starts_with("Cap")).collect();
    let is_nothing = |line: &&&str| line.ends_with("\t0000000000000000");
    // The bounding set is only for those to give up who could use it.
    assert!(sets.len() == 5 && sets.iter().filter(is_nothing).count() >= 4, "{sets:?}");
}

/// What Python says when it does this with sockets: `done`, or the number of the error.
async fn with_sockets(world: &World, confine: Confinement, what: &str) -> String {
    let script = format!(
        "import ctypes, socket as s\ntry:\n  {what}\n  print('done')\nexcept OSError as err:\n  \
         print('errno', err.errno)\n"
    );
    fs::write(world.root().join("script.py"), script).unwrap();
    world
        .bash_with(confine, "PATH=/usr/bin:/bin python3 script.py")
        .await
        .unwrap()
        .lines()
        .nth(1)
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_command_connects_to_no_socket_file_unless_it_may() {
    let world = World::new();
    let listener = std::os::unix::net::UnixListener::bind(world.root().join("door")).unwrap();
    let connect = "s.socket(s.AF_UNIX).connect('door')";
    let closed = || Confinement::default();
    let wide = || Confinement { network: true, ..Confinement::default() };
    let open = || Confinement { sockets: true, ..Confinement::default() };
    let refused = if kernel_support().calls { "errno 13" } else { "done" };
    assert_eq!(with_sockets(&world, closed(), connect).await, refused);
    assert_eq!(with_sockets(&world, wide(), connect).await, refused);
    assert_eq!(with_sockets(&world, open(), connect).await, "done");
    // Pairs lead nowhere, unless they can be led elsewhere.
    let pair = "p = s.socketpair(); p[0].send(b'x')";
    assert_eq!(with_sockets(&world, closed(), pair).await, "done");
    let loose = "s.socketpair(s.AF_UNIX, s.SOCK_DGRAM | s.SOCK_CLOEXEC)";
    assert_eq!(with_sockets(&world, closed(), loose).await, refused);
    let ring = "c = ctypes.CDLL(None, use_errno=True); \
                c.syscall(425, 1, 0) < 0 and exec('raise OSError(ctypes.get_errno(), \"\")')";
    if kernel_support().calls {
        assert_eq!(with_sockets(&world, open(), ring).await, "errno 13");
    }
    drop(listener);
}

#[tokio::test]
async fn a_command_sends_no_datagram_unless_it_may() {
    let world = World::new();
    let listener = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let send = format!("echo hi > /dev/udp/127.0.0.1/{port}");
    expect_refused(world.bash(&send).await, kernel_support().calls);
    let confine = Confinement { network: true, ..Confinement::default() };
    world.bash_with(confine, &send).await.unwrap();
    let mut bytes = [0; 9];
    assert_eq!(listener.recv(&mut bytes).unwrap(), 3);
    let confine = Confinement { network: true, ..Confinement::default() };
    let raw = with_sockets(&world, confine, "s.socket(s.AF_ALG, s.SOCK_SEQPACKET)").await;
    assert!(!kernel_support().calls || raw == "errno 13", "{raw}");
}

#[test]
fn what_faber_inherited_reaches_no_command() {
    let world = World::new();
    let confinement = Confinement { write: vec![world.root()], ..Confinement::default() };
    let script = format!(
        "exec 3< {}; FABER_CONFINED='{}' {} confined -- sh -c 'cat <&3'; echo $?",
        world.secret(),
        order(&confinement, Vec::new(), "'$$'"),
        faber().display(),
    );
    let output =
        Command::new("sh").arg("-c").arg(script).current_dir(world.root()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!said.contains("the secret") && said != "0\n", "{said}");
}

/// A shell found `python3` where a version manager keeps its own, was not let in, and looked no further.
#[test]
fn a_command_finds_the_programs_that_it_may_run() {
    let world = World::new();
    let shims = world.folder.path().join("shims");
    fs::create_dir(&shims).unwrap();
    fs::copy("/bin/sh", shims.join("cat")).unwrap();
    let confinement = Confinement { write: vec![world.root()], ..Confinement::default() };
    let output = Command::new(faber())
        .args(["confined", "--", "sh", "-c", "echo found | cat; echo $PATH"])
        .env("FABER_CONFINED", order(&confinement, Vec::new(), &std::process::id().to_string()))
        .env("PATH", format!("{}:/usr/bin:/bin", shims.display()))
        .current_dir(world.root())
        .process_group(0)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = if kernel_support().files { "found\n/usr/bin:/bin\n" } else { &said };
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_command_has_no_network_unless_it_may() {
    let world = World::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
    expect_refused(world.bash(&connect).await, kernel_support().tcp);
    let confine = Confinement { network: true, ..Confinement::default() };
    let text = world.bash_with(confine, &connect).await.unwrap();
    assert!(text.contains("connected"), "{text}");
}

#[tokio::test]
async fn a_command_gains_no_privileges_and_has_limits() {
    let world = World::new();
    let confine = Confinement { open_files: 123, file_bytes: 2048, ..Confinement::default() };
    let text = world
        .bash_with(
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
    let err = world.bash_with(confine, "head -c 9999 /dev/zero > file; exit $?").await.unwrap_err();
    assert!(err.message.contains("Return code: 1"), "{err}");
    assert_eq!(fs::metadata(world.root().join("file")).unwrap().len(), 2048);
    let confine = Confinement { memory_bytes: 64 << 20, ..Confinement::default() };
    let err = world.bash_with(confine, "x=$(head -c 200000000 /dev/zero | tr '\\0' x)").await;
    assert!(err.is_err(), "{err:?}");
    let confine = Confinement { cpu_seconds: 1, ..Confinement::default() };
    let err = world.bash_with(confine, "while :; do :; done").await.unwrap_err();
    assert!(err.message.contains("Return code: -9"), "{err}");
}

#[tokio::test]
async fn a_command_has_no_memory_and_no_keys_in_common_with_others() {
    let world = World::new();
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
        let said = with_sockets(&world, Confinement::default(), &call(refused)).await;
        assert_eq!(said, "errno 13", "{refused}");
    }
    // The lowest priority is allowed to every process, however low the tests themselves run.
    let own = with_sockets(&world, Confinement::default(), &call("setpriority(0, 0, 19)")).await;
    assert_eq!(own, "done");
}
