//! A confined command must not change modes, groups and times of files outside its folder. Landlock
//! does not restrict such changes. These tests use the real binary and the kernel of this machine.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::PathBuf,
};

use sandbox::{Launcher, kernel_support};
use serde_json::{Value, json};
use shared::tool::ToolError;
use tempfile::TempDir;
use tests::{binary::faber, kernel::has_mount_namespaces, toolset::Connected};

struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir_all(folder.path().join("root/sub")).unwrap();
        let sandbox = Self { folder };
        fs::write(sandbox.outside(), "outside").unwrap();
        fs::set_permissions(sandbox.outside(), fs::Permissions::from_mode(0o644)).unwrap();
        sandbox
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }

    async fn run(&self, command: &str) -> Result<Value, ToolError> {
        let root = self.root();
        let run = json!({
            "command": ["bash", "-c", command], "cwd": root, "confine": { "write": [root] },
        });
        let launcher = Launcher::with_binary(faber().to_owned());
        let tools = json!({ "tools": [{ "name": "t", "run": run }] });
        Connected::start_connecting_with(&tools, launcher).call("t", json!({})).await
    }

    fn mode_group_and_time(&self) -> (u32, u32, i64) {
        let metadata = fs::metadata(self.outside()).unwrap();
        (metadata.mode(), metadata.gid(), metadata.mtime())
    }
}

#[tokio::test]
async fn a_confined_command_cannot_change_modes_of_a_file_outside() {
    let sandbox = Sandbox::new();
    let before = sandbox.mode_group_and_time();
    for command in [
        "chmod 4777 ../outside",
        "chmod 2755 ../outside",
        "ln -s ../outside l; chmod 4777 l",
        "exec 3< /dev/null; chmod 4777 ../root/../outside",
    ] {
        let refused = sandbox.run(command).await;
        assert!(refused.is_err() || !kernel_support().calls, "{command}: {refused:?}");
    }
    assert!(sandbox.mode_group_and_time() == before || !kernel_support().calls);
    if !has_mount_namespaces() {
        return;
    }
    for command in [
        "chmod 777 ../outside",
        "chmod 777 ..",
        "touch -d 2001-01-01 ../outside",
        "touch -h -d 2001-01-01 ..",
        "chgrp $(id -g) ../outside",
        "exec 3< /dev/null; chmod 600 /proc/self/fd/3",
        "exec 3< /usr/bin/env; touch -d 2001-01-01 /proc/self/fd/3",
        "chmod 755 /usr/bin/env",
        "unshare --user --map-root-user --mount mount -o remount,rw,bind /",
    ] {
        let err = sandbox.run(command).await.unwrap_err();
        let message = err.message.to_lowercase();
        let reasons = ["read-only file system", "not permitted", "permission denied"];
        assert!(reasons.iter().any(|reason| message.contains(reason)), "{command}: {err}");
    }
    assert_eq!(sandbox.mode_group_and_time(), before);
}

#[tokio::test]
async fn a_confined_command_can_change_modes_of_its_own_files() {
    let sandbox = Sandbox::new();
    let command = "echo x > file && chmod 700 file sub && chmod 1777 sub && touch -d 2001-01-01 file && \
        chgrp $(id -g) file && ln file sub/other && mv file sub/file && cp -a sub copy && \
        tar -cf t.tar sub && tar -xpf t.tar -C copy && stat -c %a-%Y sub/other copy/sub/file && \
        echo > /dev/null";
    let output = sandbox.run(command).await.unwrap();
    assert_eq!(output, json!("700-978307200\n700-978307200"), "{output}");
    let err = sandbox.run("echo x > new && chmod 4755 new").await;
    assert!(err.is_err() || !kernel_support().calls, "{err:?}");
}
