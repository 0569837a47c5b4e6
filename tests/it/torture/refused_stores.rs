//! A process refuses to start with a store that cannot work. The error contains a remedy.

use std::time::Duration;

use tempfile::TempDir;
use tokio::{
    net::TcpStream,
    time::{interval, timeout},
};

use super::{disk::Disk, workspace::Workspace};
use crate::{
    mongod::{free_port, mongod_command, mongod_program},
    supervised::Supervised,
};

const MAX_START: Duration = Duration::from_mins(1);

/// Runs a command that must not reach its store. Returns its standard error.
async fn expect_refusal(store: &str, arguments: &[&str]) -> String {
    let workspace = Workspace::new(store.to_owned());
    let output = timeout(MAX_START, workspace.command(arguments).output())
        .await
        .expect("the command ends")
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    text
}

async fn start_mongod(is_member: bool) -> (Supervised, String) {
    let (folder, port) = (TempDir::new().unwrap(), free_port());
    let command = mongod_command(&mongod_program(), folder.path(), port, is_member);
    let mongod = Supervised::start(folder, &command);
    let mut look = interval(Duration::from_millis(20));
    let listening = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            look.tick().await;
        }
    };
    timeout(MAX_START, listening).await.expect("`mongod` listens");
    (mongod, format!("mongodb://127.0.0.1:{port}/x?directConnection=true"))
}

#[tokio::test]
async fn a_mongod_without_a_replica_set_is_refused_with_a_remedy() {
    let (_mongod, url) = start_mongod(false).await;
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["worker"]] {
        let message = expect_refusal(&url, arguments).await;
        for part in ["is not a replica set", "--replSet", "rs.initiate()"] {
            assert!(message.contains(part), "the message lacks `{part}`: {message}");
        }
    }
}

#[tokio::test]
async fn a_replica_set_that_is_not_initiated_is_refused_with_a_remedy() {
    let (_mongod, url) = start_mongod(true).await;
    let message = expect_refusal(&url, &["worker"]).await;
    assert!(message.contains("rs.initiate()"), "{message}");
}

#[tokio::test]
async fn a_read_only_sqlite_file_is_refused_with_a_remedy() {
    // The user root can write every file, except on a read-only mount. So this test needs a mount.
    let Some(disk) = Disk::mount(16 << 20) else { return };
    let store = format!("sqlite:{}", disk.path().join("faber.db").display());
    let workspace = Workspace::new(store.clone());
    let made = workspace.command(&["tools", "call", "flow.noop"]).output().await.unwrap();
    assert!(made.status.success(), "{made:?}");
    disk.remount_read_only();
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["run", "make an author"]] {
        let message = expect_refusal(&store, arguments).await;
        assert!(message.contains("can be written"), "{message}");
    }
}
