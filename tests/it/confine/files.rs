use std::{fs, path::Path};

use sandbox::{Confinement, Launcher, kernel_support};
use serde_json::json;
use tests::{binary::faber, toolset::Connected};

use super::{Sandbox, expect_refusal_if};

#[tokio::test]
async fn a_confined_command_writes_only_below_its_root() {
    let sandbox = Sandbox::new();
    let text =
        sandbox.call_bash("echo in > file && mkdir -p a/b && cat file /dev/null").await.unwrap();
    assert_eq!(text, "STDOUT:\nin\n\nReturn code: 0");
    let outside = sandbox.folder.path().join("outside");
    for command in [
        format!("echo out > {}", outside.display()),
        "echo out > ../outside".to_owned(),
        format!("ln -s {} link; echo out > link", outside.display()),
        format!("rm {}", sandbox.secret_path()),
        format!("mv {} here", sandbox.secret_path()),
        format!("echo > {}", sandbox.secret_path()),
    ] {
        expect_refusal_if(sandbox.call_bash(&command).await, kernel_support().files);
    }
    assert_eq!(outside.exists(), !kernel_support().files);
    if kernel_support().files {
        assert_eq!(fs::read_to_string(sandbox.secret_path()).unwrap(), "the secret");
    }
}

#[tokio::test]
async fn a_confined_command_reads_only_allowed_files() {
    let sandbox = Sandbox::new();
    let secret = sandbox.secret_path();
    for command in
        [format!("cat {secret}"), "cat ../secret".to_owned(), format!("ln -s {secret} l; cat l")]
    {
        expect_refusal_if(sandbox.call_bash(&command).await, kernel_support().files);
    }
    let confine = Confinement { read: vec![secret.clone().into()], ..Confinement::default() };
    let text = sandbox.call_bash_with(confine.clone(), &format!("cat {secret}")).await.unwrap();
    assert_eq!(text, "STDOUT:\nthe secret\n\nReturn code: 0");
    let written = sandbox.call_bash_with(confine, &format!("echo x > {secret}")).await;
    expect_refusal_if(written, kernel_support().files);
}

#[tokio::test]
async fn a_confined_command_has_a_temporary_folder() {
    let sandbox = Sandbox::new();
    let text = sandbox.call_bash("f=$(mktemp) && echo x > $f && cat $f").await.unwrap();
    assert!(text.starts_with("STDOUT:\nx\n"), "{text}");
    assert_eq!(fs::read_to_string(sandbox.root().join(".faber/.gitignore")).unwrap(), "*\n");
}

#[tokio::test]
async fn a_confined_tool_reads_its_working_folder_only_if_it_is_configured() {
    let sandbox = Sandbox::new();
    let root = sandbox.root();
    fs::write(root.join("faber.yaml"), "own").unwrap();
    let tool = |cwd: Option<&Path>| {
        let run = json!({ "command": ["cat", root.join("faber.yaml")], "cwd": cwd, "confine": {} });
        let set = json!({ "name": "t", "source": { "tools": [{ "name": "t", "run": run }] } });
        let set: toolsets::sources::SetConfig = serde_json::from_value(set).unwrap();
        Connected::start_connecting_set(
            set.rooted(&root),
            Launcher::with_binary(faber().to_owned()),
        )
    };
    let read = tool(None).call("t", json!({})).await;
    expect_refusal_if(read.map(|output| output.to_string()), kernel_support().files);
    assert_eq!(tool(Some(&root)).call("t", json!({})).await.unwrap(), json!("own"));
}
