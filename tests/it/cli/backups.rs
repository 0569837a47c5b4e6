//! `faber backup`, `faber restore`, `faber export --since` and `faber import`.

use std::{fs, path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use tests::toolset::MAX_WAIT;
use tokio::time;

use super::workspace::Workspace;

const PLAN: &str = r#"{"tools":[{"name":"flow.sleep","parameters":{"ms":5}},{"name":"flow.echo","parameters":{"x":1}}]}"#;

async fn list_ids(workspace: &Workspace, store: &str) -> Vec<String> {
    let list = ["list", "executions", "--first", "200", "--store", store];
    let listed = workspace.json(&list, 0).await;
    let ids = listed.as_array().unwrap().iter();
    ids.map(|execution| execution["executionId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_backup_is_taken_while_a_server_executes() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", PLAN);
    let mut server = workspace.spawn(&["serve", "--listen", "127.0.0.1:0"]);
    let line = server.wait_for_line("listening on http://").await;
    let url = line.rsplit(' ').next().unwrap();
    let work = async {
        for _ in 0..8 {
            let run = ["run", "--plan", &plan, "--server", url];
            assert_eq!(workspace.run(&run).await.status, 0);
        }
    };
    let backups = async {
        for _ in 0..4 {
            let written = workspace.json(&["backup", "b.fbk"], 0).await;
            assert_eq!((&written["file"], &written["unreadable"]), (&json!("b.fbk"), &json!(0)));
        }
    };
    tokio::join!(work, backups);
    let written = workspace.json(&["backup", "b.fbk"], 0).await;
    assert_eq!(written["counts"]["executions"], 8);
    let leftover = fs::read_dir(workspace.path(".")).unwrap();
    let leftover = leftover
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains(".part"));
    assert_eq!(leftover.count(), 0);

    let restored = workspace.json(&["restore", "b.fbk", "--store", "sqlite:copy.db"], 0).await;
    assert_eq!(restored["counts"], written["counts"]);
    assert_eq!(restored["backup"]["store"], "sqlite");
    let ids = list_ids(&workspace, "sqlite:copy.db").await;
    assert_eq!(ids, workspace_ids(&workspace, url).await);
    let again = workspace.json(&["restore", "b.fbk", "--store", "sqlite:copy.db"], 2).await;
    assert_eq!(again["error"]["code"], "CONFLICT", "{again}");
    server.signal("-TERM");
    assert_eq!(server.wait_for_exit().await.status, 0);
    assert!(written["store"].as_str().unwrap().starts_with("sqlite:"), "{written}");
    assert_eq!(restored["store"], "sqlite:copy.db");
    let recorded = workspace.json(&["audit", "--action", "backup"], 0).await;
    assert_eq!(recorded.as_array().map(Vec::len), Some(5), "{recorded}");
    assert_eq!(recorded[0]["detail"]["executions"], 8, "{recorded}");
    let refused = workspace.json(&["backup", "b.fbk", "--server", url], 2).await;
    assert_eq!(refused["error"]["code"], "INVALID_ARGUMENT");
}

async fn workspace_ids(workspace: &Workspace, url: &str) -> Vec<String> {
    let listed =
        workspace.json(&["list", "executions", "--first", "200", "--server", url], 0).await;
    let ids = listed.as_array().unwrap().iter();
    ids.map(|execution| execution["executionId"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_wrong_file_is_refused_and_creates_no_store() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", PLAN);
    assert_eq!(workspace.json(&["backup", "b.fbk"], 2).await["error"]["code"], "NOT_FOUND");
    assert_eq!(workspace.run(&["run", "--plan", &plan]).await.status, 0);
    workspace.json(&["backup", "b.fbk"], 0).await;
    let whole = fs::read(workspace.path("b.fbk")).unwrap();
    let mut newer = whole.clone();
    newer[8] = 9;
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    for (bytes, why) in [
        (whole[..whole.len() - 1].to_vec(), "is damaged: its checksum is wrong"),
        (whole[..4].to_vec(), "is not a backup of Faber"),
        (flipped, "is damaged: its checksum is wrong"),
        (newer, "is damaged: its checksum is wrong"),
        (b"{}".to_vec(), "is not a backup of Faber"),
    ] {
        fs::write(workspace.path("wrong"), bytes).unwrap();
        let refused = workspace.json(&["restore", "wrong", "--store", "sqlite:new.db"], 2).await;
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
    }
    let absent = workspace.json(&["restore", "absent", "--store", "sqlite:new.db"], 2).await;
    assert_eq!(absent["error"]["code"], "INVALID_ARGUMENT", "{absent}");
    assert!(!workspace.path("new.db").exists());
    // A backup never replaces a file that is not a backup, such as the store itself.
    workspace.file("notes", "mine");
    let occupied = workspace.json(&["backup", "notes"], 2).await;
    assert!(occupied["error"]["message"].as_str().unwrap().contains("is not a backup"));
    assert_eq!(fs::read_to_string(workspace.path("notes")).unwrap(), "mine");
    let memory = workspace.run(&["restore", "b.fbk", "--store", "memory:"]).await;
    assert_eq!(memory.status, 2, "{memory:?}");
}

fn is_being_restored(path: &Path) -> bool {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let Ok(connection) = Connection::open_with_flags(path, flags) else { return false };
    let found = connection.prepare("SELECT 1 FROM records WHERE kind = 'restore'");
    found.is_ok_and(|mut statement| statement.exists([]).unwrap_or_default())
}

#[tokio::test]
async fn a_killed_restore_is_named_and_can_be_completed() {
    let workspace = Workspace::new();
    let bench = ["bench", "chain", "--steps", "3", "--runs", "600", "--concurrency", "64"];
    let bench = [&bench[..], &["--store", "sqlite:full.db"]].concat();
    workspace.json(&bench, 0).await;
    let written = workspace.json(&["backup", "b.fbk", "--store", "sqlite:full.db"], 0).await;
    let executions = written["counts"]["executions"].as_u64().unwrap();
    assert!(executions >= 600, "{written}");
    let restore = ["restore", "b.fbk", "--store", "sqlite:copy.db"];
    let running = workspace.spawn(&restore);
    let begun = async {
        while !is_being_restored(&workspace.path("copy.db")) {
            time::sleep(Duration::from_millis(1)).await;
        }
    };
    time::timeout(MAX_WAIT, begun).await.unwrap();
    running.signal("-KILL");
    running.wait_for_exit().await;
    assert!(is_being_restored(&workspace.path("copy.db")), "the restore was faster than the test");
    for command in [&["list", "executions"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        let refused = workspace.json(&[command, &["--store", "sqlite:copy.db"]].concat(), 3).await;
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("its restore did not finish") && message.contains("b.fbk"),
            "{message}"
        );
    }
    workspace.json(&restore, 0).await;
    let again = ["backup", "again.fbk", "--store", "sqlite:copy.db"];
    let again = workspace.json(&again, 0).await;
    let mut expected = written["counts"].clone();
    assert_eq!(expected["auditEntries"], 0, "benchmarks have no actor");
    // The restore adds an audit entry of its own.
    expected["auditEntries"] = json!(1);
    assert_eq!(again["counts"], expected);
}

#[tokio::test]
async fn an_export_of_the_history_is_imported_once() {
    let workspace = Workspace::new();
    let plan = workspace.file("plan.json", PLAN);
    let done = workspace.json(&["run", "--plan", &plan], 0).await;
    let shown = workspace.run(&["export", "--since", "1h"]).await;
    assert_eq!(shown.status, 0, "{shown:?}");
    let lines: Vec<Value> =
        shown.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ended = lines.iter().find(|line| line["type"] == "execution").unwrap();
    assert_eq!(ended["executionId"], done["executionId"]);
    let written =
        workspace.json(&["export", "--since", "2020-01-01T00:00:00Z", "h.jsonl"], 0).await;
    assert_eq!(written["counts"]["executions"], 1);
    let import = ["import", "h.jsonl", "--store", "sqlite:copy.db"];
    let imported = workspace.json(&import, 0).await;
    assert_eq!(imported["new"], written["counts"]);
    let again = workspace.json(&import, 0).await;
    assert_eq!(
        (&again["new"]["executions"], &again["known"]["executions"]),
        (&json!(0), &json!(1))
    );
    let id = done["executionId"].as_str().unwrap();
    let watched = workspace.json(&["watch", id, "--store", "sqlite:copy.db"], 0).await;
    assert_eq!(watched["outputs"], done["outputs"]);
    let recorded = workspace.json(&["audit", "--action", "export"], 0).await;
    assert_eq!(recorded.as_array().map(Vec::len), Some(2), "{recorded}");
    for wrong in [
        &["export", "--since", "soon"][..],
        &["export"],
        &["export", "--since", "1h", "a", "-o", "b"],
    ] {
        assert_eq!(workspace.run(wrong).await.status, 2, "{wrong:?}");
    }
    assert_eq!(workspace.run(&["import", "plan.json", "--store", "sqlite:x.db"]).await.status, 2);
}
