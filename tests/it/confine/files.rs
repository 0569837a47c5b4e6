//! What a confined command reads and writes.

use std::{fs, path::Path};

use sandbox::{Confinement, Launcher, kernel_support};
use serde_json::json;
use tests::{binary::faber, toolset::Connected};

use super::{World, expect_refused};

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
        expect_refused(world.bash(&command).await, kernel_support().files);
    }
    assert_eq!(outside.exists(), !kernel_support().files);
    if kernel_support().files {
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
        expect_refused(world.bash(&command).await, kernel_support().files);
    }
    let confine = Confinement { read: vec![secret.clone().into()], ..Confinement::default() };
    let text = world.bash_with(confine.clone(), &format!("cat {secret}")).await.unwrap();
    assert_eq!(text, "STDOUT:\nthe secret\n\nReturn code: 0");
    let written = world.bash_with(confine, &format!("echo x > {secret}")).await;
    expect_refused(written, kernel_support().files);
}

#[tokio::test]
async fn a_command_has_temporary_files() {
    let world = World::new();
    let text = world.bash("f=$(mktemp) && echo x > $f && cat $f").await.unwrap();
    assert!(text.starts_with("STDOUT:\nx\n"), "{text}");
    assert_eq!(fs::read_to_string(world.root().join(".faber/.gitignore")).unwrap(), "*\n");
}

#[tokio::test]
async fn a_confined_tool_reads_where_it_runs_only_if_that_is_written() {
    let world = World::new();
    let root = world.root();
    fs::write(root.join("faber.yaml"), "own").unwrap();
    let tool = |cwd: Option<&Path>| {
        let run = json!({ "command": ["cat", root.join("faber.yaml")], "cwd": cwd, "confine": {} });
        let set = json!({ "name": "t", "source": { "tools": [{ "name": "t", "run": run }] } });
        let set: toolsets::sources::SetConfig = serde_json::from_value(set).unwrap();
        Connected::begin_set(set.rooted(&root), Launcher::with_binary(faber().to_owned()))
    };
    let read = tool(None).call("t", json!({})).await;
    expect_refused(read.map(|output| output.to_string()), kernel_support().files);
    assert_eq!(tool(Some(&root)).call("t", json!({})).await.unwrap(), json!("own"));
}
