//! What is Faber's own, and hidden from commands.

use std::{fs, path::PathBuf, process::Command};

use builtin::system::SystemConfig;
use sandbox::{Confinement, Launcher, kernel_support};
use serde_json::json;
use shared::tool::{ErrorCode, ToolError};
use tests::{binary::faber, kernel::has_mount_namespaces};

use super::{World, order};

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
        assert!(reasons.iter().any(|reason| said.contains(reason)), "{command}: {err}");
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
    assert!(
        !has_mount_namespaces() || !kernel_support().files,
        "something could be hidden, but {err}"
    );
    let said = &err.message;
    let is_said =
        said.contains("cannot be hidden on this machine") || said.contains("cannot confine");
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

/// A command made the store's journal, which was rolled back, and a configuration, which was read.
#[tokio::test]
async fn a_command_makes_nothing_that_faber_reads() {
    let world = World::new();
    let root = world.root();
    fs::write(root.join("store.db"), "own").unwrap();
    let names = ["faber.yaml", "store.db-journal", "bin/run.sh", "store.db-workers"];
    let own = || names.iter().chain(&["store.db"]).map(|name| root.join(name)).collect();
    let launcher = Launcher::with_binary(faber().to_owned()).with_hidden(own());
    let launcher = launcher.with_folders(vec![root.join("store.db-workers")]);
    let run = async |command: String| {
        let parameters = json!({ "command": command });
        world.call_with(launcher.clone(), SystemConfig::default(), "bash", parameters).await
    };
    if let Err(err) = run("true".to_owned()).await {
        refuses_to_hide(&err);
        return;
    }
    for name in names {
        for command in ["echo x > NAME", "ln -sf store NAME/", "mv -fT mine NAME", "rm -rf NAME"] {
            let command = format!("echo x > mine; {}", command.replace("NAME", name));
            let err = run(command.clone()).await.unwrap_err();
            let said = err.message.to_lowercase();
            let reasons = [
                "permission denied",
                "not permitted",
                "busy",
                "not a directory",
                "is a dir",
                "overwrite dir",
            ];
            assert!(reasons.iter().any(|reason| said.contains(reason)), "{command}: {err}");
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

/// What covers a file goes when somebody puts another in its place, and a background command has
/// the time to wait for that.
#[tokio::test]
async fn nothing_in_the_background_is_near_what_is_hidden() {
    let world = World::new();
    fs::write(world.root().join("faber.yaml"), "own").unwrap();
    let err = world.refused_in_the_background(&["faber.yaml"]).await;
    let is_said = err.message.contains("for as long as a command in the background may live");
    assert!(is_said || !kernel_support().files, "{err}");
    assert_eq!((err.code, err.retryable), (ErrorCode::UNAVAILABLE, false));
    if kernel_support().files {
        let hidden = ["../elsewhere.yaml", "../not-there.db"];
        world.start_in_the_background(&hidden).await.unwrap();
        let err = world.refused_in_the_background(&["not-there.db"]).await;
        assert!(err.message.contains("for as long as a command in the background"), "{err}");
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
        let launcher = Launcher::with_binary(faber().to_owned()).with_read_only(kept);
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
        assert!(reasons.iter().any(|reason| err.message.contains(reason)), "{command}: {err}");
    }
    assert_eq!(fs::read_to_string(root.join("s.sh")).unwrap(), "echo mine");
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
    assert!(said.starts_with("ready\n") || !has_mount_namespaces(), "{said}");
    if said.starts_with("ready\n") && kernel_support().files {
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "ready\n1\n", "{err}");
        assert!(err.contains("/etc/faber.yaml: Permission denied"), "{err}");
    }
}
