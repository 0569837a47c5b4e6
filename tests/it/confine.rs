//! Confined commands: the real binary, on the kernel that is there.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use executor::{
    confine::{Confinement, Launcher, Life, support},
    tool::{
        ToolContext,
        builtin::system::{SystemConfig, tools},
    },
};
use serde_json::{Value, json};
use shared::tool::{ErrorCode, ToolError};
use tempfile::TempDir;
use tests::{
    binary::faber,
    kernel::has_views,
    toolset::{Connected, is_running, until},
};

/// The tools of the system, confined to a folder of their own.
struct World {
    /// What is around the root, with a secret.
    folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::write(folder.path().join("secret"), "the secret").unwrap();
        Self { folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn secret(&self) -> String {
        self.folder.path().join("secret").display().to_string()
    }

    async fn call(
        &self,
        config: SystemConfig,
        tool: &str,
        parameters: Value,
    ) -> Result<String, ToolError> {
        self.call_with(Launcher::at(faber().to_owned()), config, tool, parameters).await
    }

    /// Calls `bash` where some files in the root are Faber's own.
    async fn bash_hiding(&self, hidden: &[&str], command: &str) -> Result<String, ToolError> {
        let launcher = self.hiding(hidden);
        self.call_with(launcher, SystemConfig::default(), "bash", json!({ "command": command }))
            .await
    }

    fn hiding(&self, hidden: &[&str]) -> Launcher {
        let hidden = hidden.iter().map(|it| self.root().join(it)).collect();
        Launcher::at(faber().to_owned()).hiding(hidden)
    }

    async fn call_with(
        &self,
        launcher: Launcher,
        config: SystemConfig,
        tool: &str,
        parameters: Value,
    ) -> Result<String, ToolError> {
        let tools = tools(&self.root(), config, launcher).unwrap();
        let tool = tools.iter().find(|it| it.definition().name.as_str() == tool).unwrap();
        let value = tool.call(Arc::new(parameters), ToolContext::detached()).await?;
        Ok(value.as_str().unwrap().to_owned())
    }

    async fn bash(&self, command: &str) -> Result<String, ToolError> {
        self.call(SystemConfig::default(), "bash", json!({ "command": command })).await
    }

    async fn bash_with(&self, confine: Confinement, command: &str) -> Result<String, ToolError> {
        let config = SystemConfig { confine, ..SystemConfig::default() };
        self.call(config, "bash", json!({ "command": command })).await
    }

    fn pid(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.root().join(name)).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    }
}

/// Says what a command must have met: a refusal where the kernel knows how, its success elsewhere.
fn expect_refused(result: Result<String, ToolError>, is_held: bool) {
    match result {
        Err(err) if is_held => {
            let text = err.message.to_lowercase();
            let is_refusal = ["permission denied", "not permitted", "read-only file system"]
                .iter()
                .any(|it| text.contains(it));
            assert!(is_refusal, "{err}");
        }
        Ok(_) if !is_held => (),
        other => panic!("held: {is_held}, but {other:?}"),
    }
}

#[tokio::test]
async fn a_command_writes_below_its_root_only() {
    let world = World::new();
    let text = world.bash("echo in > file && mkdir -p a/b && cat file /dev/null").await.unwrap();
    assert_eq!(text, "STDOUT:\nin\n\nReturn code: 0");
    let outside = world.folder.path().join("outside");
    for command in [
        format!("echo out > {}", outside.display()),
        "echo out > ../outside".to_owned(),
        format!("ln -s {} link; echo out > link", outside.display()),
        format!("rm {}", world.secret()),
        format!("mv {} here", world.secret()),
        format!("echo > {}", world.secret()),
    ] {
        expect_refused(world.bash(&command).await, support().files);
    }
    assert_eq!(outside.exists(), !support().files);
    if support().files {
        assert_eq!(fs::read_to_string(world.secret()).unwrap(), "the secret");
    }
}

#[tokio::test]
async fn a_command_reads_what_it_may() {
    let world = World::new();
    let secret = world.secret();
    for command in
        [format!("cat {secret}"), "cat ../secret".to_owned(), format!("ln -s {secret} l; cat l")]
    {
        expect_refused(world.bash(&command).await, support().files);
    }
    let confine = Confinement { read: vec![secret.clone().into()], ..Confinement::default() };
    let text = world.bash_with(confine.clone(), &format!("cat {secret}")).await.unwrap();
    assert_eq!(text, "STDOUT:\nthe secret\n\nReturn code: 0");
    let written = world.bash_with(confine, &format!("echo x > {secret}")).await;
    expect_refused(written, support().files);
}

#[tokio::test]
async fn a_command_sees_neither_secrets_of_the_environment_nor_its_order() {
    let world = World::new();
    let text = world.bash("env | sort | cut -d= -f1 | tr '\\n' ' '").await.unwrap();
    let names = text.lines().nth(1).unwrap().split_whitespace();
    // The shell's own are `PWD`, `OLDPWD`, `SHLVL` and `_`.
    let known = ["HOME", "LANG", "PATH", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"];
    let others: Vec<_> = names.filter(|it| !known.contains(it)).collect();
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
    let sets: Vec<_> = found.lines().filter(|it| it.starts_with("Cap")).collect();
    let is_nothing = |it: &&&str| it.ends_with("\t0000000000000000");
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
    let refused = if support().calls { "errno 13" } else { "done" };
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
    if support().calls {
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
    expect_refused(world.bash(&send).await, support().calls);
    let confine = Confinement { network: true, ..Confinement::default() };
    world.bash_with(confine, &send).await.unwrap();
    let mut bytes = [0; 9];
    assert_eq!(listener.recv(&mut bytes).unwrap(), 3);
    let confine = Confinement { network: true, ..Confinement::default() };
    let raw = with_sockets(&world, confine, "s.socket(s.AF_ALG, s.SOCK_SEQPACKET)").await;
    assert!(!support().calls || raw == "errno 13", "{raw}");
}

#[tokio::test]
async fn a_command_does_not_touch_what_is_faber_s_own() {
    let world = World::new();
    let hidden = ["faber.yaml", "data", "deep/er/x.db", "deep/er/x.db-wal", "not-there"];
    let root = world.root();
    fs::create_dir_all(root.join("data")).unwrap();
    fs::create_dir_all(root.join("deep/er")).unwrap();
    for own in ["faber.yaml", "data/x", "deep/er/x.db", "deep/er/x.db-wal", "deep/free"] {
        fs::write(root.join(own), "own").unwrap();
    }
    if let Err(err) = world.bash_hiding(&hidden, "true").await {
        refuses_to_hide(&err);
        return;
    }
    for command in [
        "cat faber.yaml",
        "cat ../root/faber.yaml",
        "echo x > faber.yaml",
        "echo x >> deep/er/x.db-wal",
        "cat data/x",
        "touch data/y",
        "ln deep/er/x.db other && cat other",
        "ln -s deep/er/x.db link && cat link",
        "rm -f faber.yaml",
        "mv faber.yaml elsewhere",
        "mv deep elsewhere",
        "mv deep/er elsewhere",
        "umount faber.yaml",
    ] {
        // They print nothing of their own to the output, and say why they failed.
        let err = world.bash_hiding(&hidden, command).await.unwrap_err();
        let said = err.message.to_lowercase();
        let reasons =
            ["permission denied", "not permitted", "busy", "cross-device", "must be superuser"];
        assert!(reasons.iter().any(|it| said.contains(it)), "{command}: {err}");
    }
    let free = "cat deep/free && echo new > deep/new && mv deep/new deep/er/new && ls -a .";
    world.bash_hiding(&hidden, free).await.unwrap();
    for own in ["faber.yaml", "data/x", "deep/er/x.db", "deep/er/x.db-wal"] {
        assert_eq!(fs::read_to_string(root.join(own)).unwrap(), "own", "{own}");
    }
}

/// Where nobody may make a mount namespace, a command that could reach what is hidden is refused,
/// and why is said.
fn refuses_to_hide(err: &ToolError) {
    assert!(!has_views() || !support().files, "something could be hidden, but {err}");
    let said = &err.message;
    let is_said =
        said.contains("cannot be hidden on this machine") || said.contains("cannot see to");
    assert!(is_said && err.code == ErrorCode::UNAVAILABLE && !err.retryable, "{err}");
}

/// A process that changed its folder before the view was put on stood in the old one.
#[tokio::test]
async fn a_command_does_not_stand_where_nothing_is_hidden() {
    let world = World::new();
    let root = world.root();
    fs::create_dir_all(root.join("data")).unwrap();
    for own in ["faber.yaml", "data/f.db", "data/free"] {
        fs::write(root.join(own), "own").unwrap();
    }
    let hidden = ["faber.yaml", "data/f.db"];
    let run = async |cwd: &str, confine: Confinement, command: &str| {
        let config = SystemConfig { confine, ..SystemConfig::default() };
        let parameters = json!({ "command": command, "cwd": cwd });
        world.call_with(world.hiding(&hidden), config, "bash", parameters).await
    };
    let wide = || Confinement { read: vec![root.join("..")], ..Confinement::default() };
    if let Err(err) = run("", Confinement::default(), "true").await {
        refuses_to_hide(&err);
        return;
    }
    for (cwd, confine, command) in [
        ("data", Confinement::default(), "cat f.db"),
        ("data", Confinement::default(), "echo x >> f.db"),
        ("", wide(), "cat faber.yaml"),
        ("", wide(), "echo x >> faber.yaml"),
        (".", wide(), "cat data/f.db"),
        ("data", wide(), "cat ./f.db"),
    ] {
        let err = run(cwd, confine, command).await.unwrap_err();
        assert!(err.message.contains("Permission denied"), "{cwd} {command}: {err}");
    }
    let text = run("data", wide(), "pwd; cat free").await.unwrap();
    assert!(text.contains("/root/data\nown"), "{text}");
    for own in hidden {
        assert_eq!(fs::read_to_string(root.join(own)).unwrap(), "own", "{own}");
    }
    fs::create_dir(root.join("secret")).unwrap();
    let parameters = json!({ "command": "ls -a", "cwd": "secret" });
    let launcher = world.hiding(&["secret"]);
    let refused = world.call_with(launcher, SystemConfig::default(), "bash", parameters).await;
    let err = refused.unwrap_err();
    assert!(err.message.contains("Refused: Path is Faber's own: secret"), "{err}");
}

/// What covers a file goes when somebody puts another in its place, and a background command has
/// the time to wait for that.
#[tokio::test]
async fn nothing_in_the_background_is_near_what_is_hidden() {
    let world = World::new();
    fs::write(world.root().join("faber.yaml"), "own").unwrap();
    let start = async |hidden: &[&str]| {
        let parameters = json!({ "command": "true" });
        let (launcher, config) = (world.hiding(hidden), SystemConfig::default());
        world.call_with(launcher, config, "bash_background", parameters).await
    };
    let err = start(&["faber.yaml"]).await.unwrap_err();
    let is_said = err.message.contains("for as long as a command in the background may live");
    assert!(is_said || !support().files, "{err}");
    assert_eq!((err.code, err.retryable), (ErrorCode::UNAVAILABLE, false));
    if support().files {
        start(&["../elsewhere.yaml", "not-there.db"]).await.unwrap();
    }
}

/// Programs that run unconfined stay as they are.
#[tokio::test]
async fn a_command_changes_no_program_that_faber_runs() {
    let world = World::new();
    let root = world.root();
    fs::create_dir_all(root.join("bin")).unwrap();
    for program in ["s.sh", "bin/real.sh"] {
        fs::write(root.join(program), "echo mine").unwrap();
    }
    std::os::unix::fs::symlink("real.sh", root.join("bin/link.sh")).unwrap();
    let run = async |command: &str| {
        let kept = vec![root.join("s.sh"), root.join("bin/link.sh")];
        let launcher = Launcher::at(faber().to_owned()).keeping(kept);
        let parameters = json!({ "command": command });
        world.call_with(launcher, SystemConfig::default(), "bash", parameters).await
    };
    let said = match run("sh s.sh && sh bin/link.sh && echo new > other").await {
        Err(err) => return refuses_to_hide(&err),
        Ok(said) => said,
    };
    assert!(said.contains("mine\nmine"), "{said}");
    for command in [
        "echo x > s.sh",
        "mv other s.sh",
        "rm -f s.sh",
        "echo x > bin/real.sh",
        "ln -sf ../other bin/link.sh",
        "mv bin elsewhere",
    ] {
        let err = run(command).await.unwrap_err();
        let reasons = ["Read-only file system", "busy"];
        assert!(reasons.iter().any(|it| err.message.contains(it)), "{command}: {err}");
    }
    assert_eq!(fs::read_to_string(root.join("s.sh")).unwrap(), "echo mine");
}

/// What a command is to do, as the launcher tells it, and where it runs: for a shell, with the
/// caller that `caller` says.
fn order(confinement: &Confinement, hidden: Vec<PathBuf>, caller: &str) -> String {
    let launcher = Launcher::at(faber().to_owned()).hiding(hidden);
    let command = launcher.command(confinement, Life::Watched, "sh".as_ref()).unwrap();
    let order = command.as_std().get_envs().find(|it| it.0 == "FABER_CONFINED").unwrap();
    let order = order.1.unwrap().to_str().unwrap();
    order.replace(&format!("\"caller\":{}", std::process::id()), &format!("\"caller\":{caller}"))
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

/// Files of Faber's own in the folders of the system, which every command may read, and a kernel
/// that does not say in `/proc/sys` what it offers: in a view that only this test has.
#[test]
fn what_lies_in_a_folder_of_the_system_is_hidden_too() {
    let world = World::new();
    let own = PathBuf::from("/etc/faber.yaml");
    let confinement = Confinement { write: vec![world.root()], ..Confinement::default() };
    let script = format!(
        "mount -t tmpfs none /etc && echo hush > /etc/faber.yaml && mount -t tmpfs none /proc/sys && \
         echo ready && FABER_CONFINED='{}' {} confined -- bash -c 'cat /etc/faber.yaml; echo $?; \
         exec 3<> /dev/udp/127.0.0.1/9 && echo open'",
        order(&confinement, vec![own], "'$$'"),
        faber().display(),
    );
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &script])
        .current_dir(world.root())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("ready\n") || !has_views(), "{said}");
    if said.starts_with("ready\n") && support().files {
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "ready\n1\n", "{err}");
        assert!(err.contains("/etc/faber.yaml: Permission denied"), "{err}");
    }
}

#[tokio::test]
async fn a_command_has_temporary_files() {
    let world = World::new();
    let text = world.bash("f=$(mktemp) && echo x > $f && cat $f").await.unwrap();
    assert!(text.starts_with("STDOUT:\nx\n"), "{text}");
    assert_eq!(fs::read_to_string(world.root().join(".faber/.gitignore")).unwrap(), "*\n");
}

#[tokio::test]
async fn a_command_has_no_network_unless_it_may() {
    let world = World::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected");
    expect_refused(world.bash(&connect).await, support().tcp);
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
    let processes: Option<u64> = text.lines().nth(5).and_then(|it| it.parse().ok());
    assert!(processes.is_some_and(|it| it > 4_096 && it < 1 << 30), "{text}");
    if support().privileges {
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
    expect_refused(world.bash(&format!("kill -0 {own}")).await, support().signals);
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
        until(name, || !is_running(&pid)).await;
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
    if support().signals {
        let text = text.unwrap();
        assert!(text.contains("killed: 1") && !text.contains("limited: 0"), "{text}");
        let pid = world.pid("away").unwrap();
        until("away", || !is_running(&pid)).await;
    }
}

/// PEERS 46: a hung call is cut off, and nothing of it stays.
#[tokio::test]
async fn a_time_out_ends_grandchildren_too() {
    let world = World::new();
    let command = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 1; done' & \
                   setsid sh -c 'trap \"\" TERM; echo $$ > away; while :; do sleep 1; done' & wait; wait";
    let parameters = json!({ "command": command, "timeout": 1 });
    let err = world.call(SystemConfig::default(), "bash", parameters).await.unwrap_err();
    assert_eq!(err.code, ErrorCode::TIMEOUT);
    for name in ["child", "away"] {
        let pid = world.pid(name).unwrap();
        until(name, || !is_running(&pid)).await;
    }
}

/// A process that starts a confined command as the engine does, and is then killed.
#[tokio::test]
async fn nothing_outlives_an_engine_that_is_killed() {
    let world = World::new();
    let launcher = Launcher::at(faber().to_owned());
    let confinement = Confinement { write: vec![world.root()], ..Confinement::default() };
    let command = launcher.command(&confinement, Life::Watched, "sh".as_ref()).unwrap();
    let order = command.as_std().get_envs().find(|it| it.0 == "FABER_CONFINED").unwrap();
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
    until("it runs", || world.pid("plain").is_some() && world.pid("away").is_some()).await;
    let pids = ["plain", "away"].map(|it| world.pid(it).unwrap());
    assert!(pids.iter().all(|it| is_running(it)));
    engine.kill().unwrap();
    engine.wait().unwrap();
    for pid in pids {
        until("what it ran ends", || !is_running(&pid)).await;
    }
}

#[tokio::test]
async fn a_background_command_goes_on_confined() {
    let world = World::new();
    let launcher = Launcher::at(faber().to_owned());
    let tools = tools(&world.root(), SystemConfig::default(), launcher).unwrap();
    let call = async |name: &str, parameters: Value| {
        let tool = tools.iter().find(|it| it.definition().name.as_str() == name).unwrap();
        tool.call(Arc::new(parameters), ToolContext::detached()).await
    };
    let command = format!(
        "sleep 1000 & echo $! > child; cat {} || echo refused; echo $$ > pid; wait",
        world.secret()
    );
    let started = call("bash_background", json!({ "command": command })).await.unwrap();
    until("it runs", || world.pid("pid").is_some()).await;
    let (pid, child) = (world.pid("pid").unwrap(), world.pid("child").unwrap());
    assert!(started.as_str().unwrap().contains(&format!("(PID: {pid})")), "{started}");
    let log = fs::read_to_string(world.root().join(".faber/background/1.log")).unwrap();
    assert_eq!(log.contains("refused"), support().files, "{log}");
    assert!(is_running(&pid) && is_running(&child));
    // A session of its own: nobody's terminal ends it.
    let listed = call("process_list", json!({ "filter_pattern": "sleep 1000" })).await.unwrap();
    assert!(listed.as_str().unwrap().contains(&format!("*{child:>7}")), "{listed}");
    call("process_kill", json!({ "pid_or_name": pid })).await.unwrap();
    until("all of it ends", || !is_running(&pid) && !is_running(&child)).await;
}

#[tokio::test]
async fn what_a_background_command_leaves_behind_is_known() {
    let world = World::new();
    let launcher = Launcher::at(faber().to_owned());
    let tools = tools(&world.root(), SystemConfig::default(), launcher).unwrap();
    let call = async |name: &str, parameters: Value| {
        let tool = tools.iter().find(|it| it.definition().name.as_str() == name).unwrap();
        tool.call(Arc::new(parameters), ToolContext::detached()).await
    };
    let start = |number: u32| json!({ "command": format!("(echo $BASHPID > {number}; exec sleep 1000) &") });
    let mut ids = Vec::new();
    for number in 0..64 {
        let started = call("bash_background", start(number)).await.unwrap();
        let started = started.as_str().unwrap();
        assert!(started.contains("What it has started goes on"), "{started}");
        let id = started.split("(PID: ").nth(1).unwrap().split(')').next().unwrap();
        ids.push(id.to_owned());
    }
    let err = call("bash_background", start(64)).await.unwrap_err();
    assert!(err.message.contains("64 background commands are running already"), "{err}");
    for id in &ids {
        let force = json!({ "pid_or_name": id, "force": true });
        call("process_kill", force).await.unwrap();
    }
    for number in 0..64 {
        until("it wrote its number", || world.pid(&number.to_string()).is_some()).await;
        let pid = world.pid(&number.to_string()).unwrap();
        until("it ends", || !is_running(&pid)).await;
    }
    let again = call("bash_background", json!({ "command": "true" })).await.unwrap();
    assert!(!again.as_str().unwrap().contains("goes on"), "{again}");
}

#[tokio::test]
async fn what_a_command_tool_leaves_behind_ends_with_it_though_it_is_not_confined() {
    let world = World::new();
    let script = "setsid sh -c 'echo $$ > away; exec sleep 1000' > /dev/null 2>&1 & \
                  while ! test -s away; do :; done; echo $CARGO_PKG_NAME-$CARGO_PKG_VERSION";
    let run = json!({
        "command": ["sh", "-c", script], "cwd": world.root(), "pass": ["CARGO_PKG_VERSION"],
    });
    let launcher = Launcher::at(faber().to_owned());
    let tools = json!({ "tools": [{ "name": "t", "run": run }] });
    let connected = Connected::begin_with(&tools, launcher);
    let said = connected.call("t", json!({})).await.unwrap();
    assert_eq!(said, json!(format!("-{}", env!("CARGO_PKG_VERSION"))));
    let pid = world.pid("away").unwrap();
    until("away", || !is_running(&pid)).await;
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
        until("away", || !is_running(&pid)).await;
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_leaves_nothing_behind() {
    let world = World::new();
    let command = "setsid sh -c 'echo $$ > away; exec sleep 1000' & wait; sleep 1000";
    let call = world.bash(command);
    let begun = until("it runs", || world.pid("away").is_some());
    tokio::select! {
        ended = call => panic!("{ended:?}"),
        () = begun => (),
    }
    let pid = world.pid("away").unwrap();
    until("away", || !is_running(&pid)).await;
}

#[tokio::test]
async fn a_confined_tool_reads_where_it_runs_only_if_that_is_written() {
    let world = World::new();
    let root = world.root();
    fs::write(root.join("faber.yaml"), "own").unwrap();
    let tool = |cwd: Option<&Path>| {
        let run = json!({ "command": ["cat", root.join("faber.yaml")], "cwd": cwd, "confine": {} });
        let set = json!({ "name": "t", "source": { "tools": [{ "name": "t", "run": run }] } });
        let set: executor::sources::SetConfig = serde_json::from_value(set).unwrap();
        Connected::begin_set(set.rooted(&root), Launcher::at(faber().to_owned()))
    };
    let read = tool(None).call("t", json!({})).await;
    expect_refused(read.map(|it| it.to_string()), support().files);
    assert_eq!(tool(Some(&root)).call("t", json!({})).await.unwrap(), json!("own"));
}

#[tokio::test]
async fn a_refusal_to_confine_is_no_failure_of_the_command() {
    let world = World::new();
    fs::write(world.root().join("faber.yaml"), "own").unwrap();
    let launcher = world.hiding(&["faber.yaml"]);
    let parameters = json!({ "command": "true" });
    let started =
        world.call_with(launcher, SystemConfig::default(), "bash_background", parameters).await;
    let err = started.unwrap_err();
    assert_eq!((err.code.clone(), err.retryable), (ErrorCode::UNAVAILABLE, false), "{err}");
    // With so few files nothing can be confined.
    let tool = confined_tool(&json!({ "open_files": 3 }), &["true"], &world.root());
    let err = tool.call("t", json!({})).await.unwrap_err();
    assert_eq!((err.code.clone(), err.retryable), (ErrorCode::UNAVAILABLE, false), "{err}");
    // Its own word, with the same status.
    let err = world.bash("echo no such image >&2; exit 125").await.unwrap_err();
    assert!(err.code == ErrorCode::FAILED || !support().files, "{err}");
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
    if !support().calls {
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
        "setpriority(0, 1, 5)",
    ] {
        let said = with_sockets(&world, Confinement::default(), &call(refused)).await;
        assert_eq!(said, "errno 13", "{refused}");
    }
    let own = with_sockets(&world, Confinement::default(), &call("setpriority(0, 0, 5)")).await;
    assert_eq!(own, "done");
}

fn confined_tool(confine: &Value, command: &[&str], root: &Path) -> Connected {
    let run = json!({ "command": command, "cwd": root, "confine": confine });
    let launcher = Launcher::at(faber().to_owned());
    Connected::begin_with(&json!({ "tools": [{ "name": "t", "run": run }] }), launcher)
}

#[tokio::test]
async fn command_tools_are_confined_where_the_configuration_says_so() {
    let world = World::new();
    let secret = world.secret();
    let script = format!("cat; cat {secret}");
    let tool =
        confined_tool(&json!({ "write": [world.root()] }), &["sh", "-c", &script], &world.root());
    let result = tool.call("t", json!({})).await;
    expect_refused(result.map(|it| it.to_string()), support().files);
    let tool = confined_tool(
        &json!({}),
        &["sh", "-c", "cat; echo $FABER_ATTEMPT $CARGO_PKG_NAME"],
        &world.root(),
    );
    assert_eq!(tool.call("t", json!({})).await.unwrap(), json!("{}2"));
    let tool = confined_tool(&json!({}), &["no-such-program"], &world.root());
    let err = tool.call("t", json!({})).await.unwrap_err();
    assert!(
        err.message
            .ends_with("`no-such-program` was not found: install it, or write its full path"),
        "{err}"
    );
}

#[test]
fn the_subcommand_is_for_faber_only() {
    let run = |order: Option<&str>| {
        let mut command = Command::new(faber());
        command.args(["confined", "--", "true"]).env_remove("FABER_CONFINED");
        command.envs(order.map(|it| ("FABER_CONFINED", it)));
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = run(None);
    assert_eq!(code, Some(125));
    assert_eq!(
        said,
        "the command is not confined: `FABER_CONFINED` says nothing: this subcommand is for Faber's own use\n"
    );
    assert_eq!(run(Some("{}")).0, Some(125));
    let help = Command::new(faber()).arg("--help").output().unwrap();
    assert!(!String::from_utf8(help.stdout).unwrap().contains("confined"));
}
