//! What only a file does: it stays, it is shared, it can be damaged, it belongs to its owner.

use std::{path::Path, sync::Arc};

use rusqlite::Connection;
use shared::{
    id::Seq,
    store::{
        Append, Documents, ExecutionFilter, ExecutionLog, Head, Lease, Page, StoreError, open,
        sqlite::Sqlite,
    },
};
use tempfile::TempDir;
use tests::conformance::{World, at, execution, head, plan, plan_id, request, some_events, worker};

pub(crate) async fn alone() -> World {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("faber.db").display());
    World::new(open(&url).await.unwrap(), folder)
}

/// Two stores on one file, as two processes have.
pub(crate) async fn twice() -> World {
    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("new/deep/faber.db").display());
    World::shared(open(&url).await.unwrap(), open(&url).await.unwrap(), folder)
}

fn edit(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn what_was_written_is_there_when_it_is_opened_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    let append = Append { head: Some(head(1, 3)), ..some_events(execution(1), 0, 3) };
    store.append(append).await.unwrap();
    store.put_request(&request(1, "q", 0)).await.unwrap();
    store.put_plan(&plan(1, 1, 1, &["a.b"])).await.unwrap();
    drop(store);
    assert!(!folder.path().join("faber.db-wal").exists(), "the WAL is folded into the file");

    let store = Sqlite::open(&path).unwrap();
    assert_eq!(store.read(execution(1), Seq(0)).await.unwrap().len(), 3);
    assert_eq!(store.head(execution(1)).await.unwrap(), Some(head(1, 3)));
    assert!(store.plan(plan_id(1)).await.unwrap().is_some());
    assert_eq!(
        store.append(some_events(execution(1), 0, 1)).await.unwrap_err().to_string(),
        "the log has grown"
    );
    store.append(some_events(execution(1), 3, 1)).await.unwrap();
}

#[tokio::test]
async fn the_executions_of_a_dead_process_are_free_at_once() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let (dead, alive) = (Sqlite::open(&path).unwrap(), Sqlite::open(&path).unwrap());
    for (n, store) in [(1, &dead), (2, &alive)] {
        let lease = Lease { worker: worker(n), node: "here".to_owned(), until: at(1_000) };
        store.heartbeat(lease).await.unwrap();
        let head = Head { owner: Some(worker(n)), ..head(n, 1) };
        store.put_head(head).await.unwrap();
    }
    assert_eq!(alive.orphans(at(0), 10).await.unwrap(), []);
    assert_eq!(dead.orphans(at(0), 10).await.unwrap(), []);
    drop(dead);
    let orphans = alive.orphans(at(0), 10).await.unwrap();
    assert_eq!(orphans.iter().map(|it| it.execution).collect::<Vec<_>>(), [execution(1)]);
    // Its row is gone, too, so the answer stays.
    assert_eq!(alive.orphans(at(0), 10).await.unwrap(), orphans);
    let mut locks = std::fs::read_dir(folder.path().join("faber.db-workers")).unwrap();
    let lock = locks.next().unwrap().unwrap().file_name();
    assert_eq!(lock.to_str().unwrap(), format!("{}.lock", worker(2)));
    alive.retire(worker(2)).await.unwrap();
    assert_eq!(alive.orphans(at(0), 10).await.unwrap().len(), 2);
    assert_eq!(std::fs::read_dir(folder.path().join("faber.db-workers")).unwrap().count(), 0);
}

#[tokio::test]
async fn damage_stays_where_it_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    for n in 1..=4 {
        let append = Append { head: Some(head(n, 1)), ..some_events(execution(n), 0, 1) };
        store.append(append).await.unwrap();
        store.put_plan(&plan(n, n, 1, &["a.b"])).await.unwrap();
    }
    edit(
        &path,
        "UPDATE events SET json = '[{]' WHERE log = 1; UPDATE events SET first = 2 WHERE log = 2;
         UPDATE heads SET state = 'DANCING' WHERE number = 3;
         UPDATE plans SET json = '{}' WHERE id LIKE '%1';",
    );
    let is_damaged = |it: &StoreError| matches!(it, StoreError::Corrupt { .. });
    for n in [1, 2] {
        let err = store.read(execution(n), Seq(0)).await.unwrap_err();
        assert!(is_damaged(&err) && err.to_string().contains(&execution(n).to_string()), "{err}");
    }
    assert!(is_damaged(&store.head(execution(3)).await.unwrap_err()));
    assert!(is_damaged(&store.plan(plan_id(1)).await.unwrap_err()));
    assert_eq!(store.read(execution(3), Seq(0)).await.unwrap().len(), 1);
    assert!(store.plan(plan_id(2)).await.unwrap().is_some());
    let page = Page { first: 10, after: None };
    let heads = store.heads(&ExecutionFilter::default(), &page).await.unwrap();
    assert_eq!(heads.items.len(), 3, "a list goes on without what is damaged");
    store.append(some_events(execution(3), 1, 1)).await.unwrap();
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    drop(Sqlite::open(&path).unwrap());
    edit(&path, "UPDATE meta SET value = '7' WHERE name = 'schema_version'");
    let err = Sqlite::open(&path).map(drop).unwrap_err();
    assert_eq!(err, StoreError::TooNew { found: 7, known: 1 });
}

#[tokio::test]
async fn what_is_no_store_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "these are my notes, and they are long enough to be read").unwrap();
    let err = Sqlite::open(&path).map(drop).unwrap_err();
    assert!(err.to_string().contains("no SQLite database"), "{err}");
    let err = Sqlite::open(folder.path()).map(drop).unwrap_err();
    assert!(matches!(err, StoreError::Unavailable(_)), "{err}");
    let err = Sqlite::open(&path.join("below/faber.db")).map(drop).unwrap_err();
    assert!(err.to_string().contains("cannot be made"), "{err}");
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("sub/faber.db");
    let store = Sqlite::open(&path).unwrap();
    store.append(some_events(execution(1), 0, 1)).await.unwrap();
    let mode = |it: &Path| std::fs::metadata(it).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&folder.path().join("sub/faber.db-wal")), 0o600);
    assert_eq!(mode(&folder.path().join("sub")), 0o700);
}

#[tokio::test]
async fn a_file_that_stays_locked_is_said_to_be() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Arc::new(Sqlite::open(&path).unwrap());
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let err = store.check().await.unwrap_err();
    assert!(err.to_string().contains("another program has kept the file locked"), "{err}");
    other.execute_batch("ROLLBACK").unwrap();
    store.check().await.unwrap();
}

#[tokio::test]
async fn a_person_can_read_the_history() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("faber.db");
    let store = Sqlite::open(&path).unwrap();
    store.append(some_events(execution(1), 0, 2)).await.unwrap();
    let query = "SELECT execution || ' ' || first || ' ' || (json ->> '$[1].type') FROM history";
    let row: String =
        Connection::open(&path).unwrap().query_row(query, [], |row| row.get(0)).unwrap();
    assert_eq!(row, format!("{} 1 paused", execution(1)));
}
