use std::{fs, path::PathBuf, process::Command};

use builtin::system::SystemConfig;
use sandbox::{Confinement, Launcher, kernel_support};
use serde_json::json;
use shared::tool::{ErrorCode, ToolError};
use tests::{binary::faber, kernel::has_mount_namespaces};

use super::{Sandbox, confinement_order};

#[tokio::test]
async fn a_confined_command_can_neither_read_nor_change_hidden_files() {
    let sandbox = Sandbox::new();
    let hidden = ["faber.yaml", "data", "deep/er/x.db", "deep/er/x.db-wal", "not-there"];
    let root = sandbox.root();
    fs::create_dir_all(root.join("data")).unwrap();
    fs::create_dir_all(root.join("deep/er")).unwrap();
    for own in ["faber.yaml", "data/x", "deep/er/x.db", "deep/er/x.db-wal", "deep/free"] {
        fs::write(root.join(own), "own").unwrap();
    }
    if let Err(err) = sandbox.call_bash_hiding(&hidden, "true").await {
        assert_refusal_to_hide(&err);
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
        // Each of these commands must fail and name the reason.
        let err = sandbox.call_bash_hiding(&hidden, command).await.unwrap_err();
        let message = err.message.to_lowercase();
        let reasons =
            ["permission denied", "not permitted", "busy", "cross-device", "must be superuser"];
        assert!(reasons.iter().any(|reason| message.contains(reason)), "{command}: {err}");
    }
    let free = "cat deep/free && echo new > deep/new && mv deep/new deep/er/new && ls -a .";
    sandbox.call_bash_hiding(&hidden, free).await.unwrap();
    for own in ["faber.yaml", "data/x", "deep/er/x.db", "deep/er/x.db-wal"] {
        assert_eq!(fs::read_to_string(root.join(own)).unwrap(), "own", "{own}");
    }
}

/// Without a mount namespace, a command that could reach a hidden file is refused with the reason.
fn assert_refusal_to_hide(err: &ToolError) {
    assert!(
        !has_mount_namespaces() || !kernel_support().files,
        "the file could be hidden, but {err}"
    );
    let message = &err.message;
    let has_reason =
        message.contains("cannot be hidden on this machine") || message.contains("cannot confine");
    assert!(has_reason && err.code == ErrorCode::UNAVAILABLE && !err.retryable, "{err}");
}

/// Regression: a command still saw the hidden files through its working folder, because its process
/// entered the folder before Faber mounted over the files.
#[tokio::test]
async fn the_working_folder_of_a_command_does_not_show_hidden_files() {
    let sandbox = Sandbox::new();
    let root = sandbox.root();
    fs::create_dir_all(root.join("data")).unwrap();
    for own in ["faber.yaml", "data/f.db", "data/free"] {
        fs::write(root.join(own), "own").unwrap();
    }
    let hidden = ["faber.yaml", "data/f.db"];
    let run = async |cwd: &str, confine: Confinement, command: &str| {
        let config = SystemConfig { confine, ..SystemConfig::default() };
        let parameters = json!({ "command": command, "cwd": cwd });
        sandbox.call_with(sandbox.launcher_hiding(&hidden), config, "bash", parameters).await
    };
    let wide = || Confinement { read: vec![root.join("..")], ..Confinement::default() };
    if let Err(err) = run("", Confinement::default(), "true").await {
        assert_refusal_to_hide(&err);
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
    let launcher = sandbox.launcher_hiding(&["secret"]);
    let refused = sandbox.call_with(launcher, SystemConfig::default(), "bash", parameters).await;
    let err = refused.unwrap_err();
    assert!(err.message.contains("Refused: Path is Faber's own: secret"), "{err}");
}

/// Regression: a command created a journal of the store, which SQLite rolled back, and a
/// configuration, which Faber read.
#[tokio::test]
async fn a_command_cannot_create_hidden_files() {
    let sandbox = Sandbox::new();
    let root = sandbox.root();
    fs::write(root.join("store.db"), "own").unwrap();
    let names = ["faber.yaml", "store.db-journal", "bin/run.sh", "store.db-workers"];
    let own = || names.iter().chain(&["store.db"]).map(|name| root.join(name)).collect();
    let launcher = Launcher::with_binary(faber().to_owned()).with_hidden(own());
    let launcher = launcher.with_folders(vec![root.join("store.db-workers")]);
    let run = async |command: String| {
        let parameters = json!({ "command": command });
        sandbox.call_with(launcher.clone(), SystemConfig::default(), "bash", parameters).await
    };
    if let Err(err) = run("true".to_owned()).await {
        assert_refusal_to_hide(&err);
        return;
    }
    for name in names {
        for command in ["echo x > NAME", "ln -sf store NAME/", "mv -fT mine NAME", "rm -rf NAME"] {
            let command = format!("echo x > mine; {}", command.replace("NAME", name));
            let err = run(command.clone()).await.unwrap_err();
            let message = err.message.to_lowercase();
            let reasons = [
                "permission denied",
                "not permitted",
                "busy",
                "not a directory",
                "is a dir",
                "overwrite dir",
            ];
            assert!(reasons.iter().any(|reason| message.contains(reason)), "{command}: {err}");
        }
    }
    let free = "echo new > new; mkdir -p bin deep; echo new > bin/new; mv new deep; rm -f mine; ls";
    run(free.to_owned()).await.unwrap();
    for name in names {
        let path = root.join(name);
        let is_bare = path.is_dir() || !fs::read_to_string(&path).unwrap().contains("x\n");
        assert!(is_bare, "{name}");
    }
    drop(launcher);
    let mut left: Vec<_> =
        fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".faber", "bin", "deep", "store.db"]);
    assert!(!root.join("bin/run.sh").exists() && root.join("bin/new").exists());
}

/// If a file is replaced, the mount that hides it disappears. A background command can run until
/// this happens, so it is refused.
#[tokio::test]
async fn background_commands_are_refused_beside_hidden_files() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.root().join("faber.yaml"), "own").unwrap();
    let err = sandbox.expect_background_refusal(&["faber.yaml"]).await;
    let has_reason = err.message.contains("for as long as a command in the background may live");
    assert!(has_reason || !kernel_support().files, "{err}");
    assert_eq!((err.code, err.retryable), (ErrorCode::UNAVAILABLE, false));
    if kernel_support().files {
        let hidden = ["../elsewhere.yaml", "../not-there.db"];
        sandbox.start_in_the_background(&hidden).await.unwrap();
        let err = sandbox.expect_background_refusal(&["not-there.db"]).await;
        assert!(err.message.contains("for as long as a command in the background"), "{err}");
    }
}

/// Faber runs some programs unconfined, so a command must not change them.
#[tokio::test]
async fn a_command_cannot_change_programs_that_faber_runs() {
    let sandbox = Sandbox::new();
    let root = sandbox.root();
    fs::create_dir_all(root.join("bin")).unwrap();
    for program in ["s.sh", "bin/real.sh"] {
        fs::write(root.join(program), "echo mine").unwrap();
    }
    std::os::unix::fs::symlink("real.sh", root.join("bin/link.sh")).unwrap();
    let run = async |command: &str| {
        let kept = vec![root.join("s.sh"), root.join("bin/link.sh")];
        let launcher = Launcher::with_binary(faber().to_owned()).with_read_only(kept);
        let parameters = json!({ "command": command });
        sandbox.call_with(launcher, SystemConfig::default(), "bash", parameters).await
    };
    let output = match run("sh s.sh && sh bin/link.sh && echo new > other").await {
        Err(err) => return assert_refusal_to_hide(&err),
        Ok(output) => output,
    };
    assert!(output.contains("mine\nmine"), "{output}");
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
        assert!(reasons.iter().any(|reason| err.message.contains(reason)), "{command}: {err}");
    }
    assert_eq!(fs::read_to_string(root.join("s.sh")).unwrap(), "echo mine");
}

/// The hidden files are in a system folder, which every command can read, and the kernel does not
/// list its features in `/proc/sys`. The test simulates both with mounts that only its own
/// processes see.
#[test]
fn hidden_files_in_system_folders_are_hidden_too() {
    let sandbox = Sandbox::new();
    let own = PathBuf::from("/etc/faber.yaml");
    let confinement = Confinement { write: vec![sandbox.root()], ..Confinement::default() };
    let script = format!(
        "mount -t tmpfs none /etc && echo hush > /etc/faber.yaml && mount -t tmpfs none /proc/sys && \
         echo ready && FABER_CONFINED='{}' {} confined -- bash -c 'cat /etc/faber.yaml; echo $?; \
         exec 3<> /dev/udp/127.0.0.1/9 && echo open'",
        confinement_order(&confinement, vec![own], "'$$'"),
        faber().display(),
    );
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &script])
        .current_dir(sandbox.root())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("ready\n") || !has_mount_namespaces(), "{text}");
    if text.starts_with("ready\n") && kernel_support().files {
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text, "ready\n1\n", "{err}");
        assert!(err.contains("/etc/faber.yaml: Permission denied"), "{err}");
    }
}
