//! Stores that cannot be one are refused at the start, by what to do about them.

use std::time::Duration;

use tempfile::TempDir;
use tokio::{
    net::TcpStream,
    time::{interval, timeout},
};

use super::{disk::Disk, home::Home};
use crate::{
    mongod::{command, free_port, program},
    supervised::Supervised,
};

/// How long a start may take.
const START: Duration = Duration::from_mins(1);

/// Runs a command that must not reach its store, and returns what it says.
async fn refused(store: &str, arguments: &[&str]) -> String {
    let home = Home::new(store.to_owned());
    let output = timeout(START, home.command(arguments).output()).await.expect("it ends").unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    said
}

async fn standalone(is_member: bool) -> (Supervised, String) {
    let (folder, port) = (TempDir::new().unwrap(), free_port());
    let command = command(&program(), folder.path(), port, is_member);
    let mongod = Supervised::start(folder, &command);
    let mut look = interval(Duration::from_millis(20));
    let listening = async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            look.tick().await;
        }
    };
    timeout(START, listening).await.expect("`mongod` listens");
    (mongod, format!("mongodb://127.0.0.1:{port}/x?directConnection=true"))
}

#[tokio::test]
async fn a_mongod_without_a_replica_set_is_refused_with_what_to_do() {
    let (_mongod, url) = standalone(false).await;
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["worker"]] {
        let said = refused(&url, arguments).await;
        for part in ["no replica set", "--replSet", "rs.initiate()"] {
            assert!(said.contains(part), "it does not say `{part}`: {said}");
        }
    }
}

#[tokio::test]
async fn a_replica_set_that_nobody_founded_is_refused_with_what_to_do() {
    let (_mongod, url) = standalone(true).await;
    let said = refused(&url, &["worker"]).await;
    assert!(said.contains("rs.initiate()"), "{said}");
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_refused_with_what_to_do() {
    // Whoever is root may write everything but what is on a disk that cannot be written.
    let Some(disk) = Disk::small(16 << 20) else { return };
    let store = format!("sqlite:{}", disk.path().join("faber.db").display());
    let home = Home::new(store.clone());
    let made = home.command(&["tools", "call", "flow.noop"]).output().await.unwrap();
    assert!(made.status.success(), "{made:?}");
    disk.protect();
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["run", "make an author"]] {
        let said = refused(&store, arguments).await;
        assert!(said.contains("can be written"), "{said}");
    }
}
