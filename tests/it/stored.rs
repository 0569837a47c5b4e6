//! Stores that an older version wrote. The current binary opens them and continues their
//! executions.

mod conversion;

use std::fs;

use mongodb::{Client, bson::Document};
use serde_json::{Value, json};

use crate::{
    cli::workspace::{CommandOutput, Workspace},
    mongod::Mongod,
};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/stored");

/// The versions that wrote the files in `tests/stored`, and the number of their executions.
const VERSIONS: [(&str, usize); 3] = [("b30c5c8", 9), ("99bdf0da", 12), ("81ccf61a", 12)];

const STATES: [&str; 12] = [
    "PENDING",
    "IN_PROGRESS",
    "WAITING",
    "IN_PROGRESS",
    "WAITING",
    "WAITING",
    "FAILED",
    "FAILED",
    "COMPLETED",
    "COMPENSATING",
    "IN_PROGRESS",
    "PAUSED",
];
// Indexes of executions in `STATES` and in `OldStore::ids`.
const KILLED: usize = 1;
const CHILD: usize = 2;
const PARENT: usize = 3;
const SIGNAL: usize = 4;
const APPROVAL: usize = 5;
const UNDONE: usize = 6;
const FAILED: usize = 7;
const UNDOING: usize = 9;
const UNKNOWN: usize = 10;
const PAUSED: usize = 11;

struct OldStore {
    workspace: Workspace,
    ids: Vec<String>,
}

impl OldStore {
    async fn open(store: &str, written: (&str, usize)) -> Self {
        let (version, executions) = written;
        let workspace = Workspace::new();
        let tools = fs::read_to_string(format!("{FOLDER}/faber.yaml")).unwrap();
        workspace.file("faber.yaml", &format!("store: {store}\n{tools}"));
        if store.starts_with("sqlite:") {
            fs::copy(format!("{FOLDER}/{version}.sqlite"), workspace.path("old.db")).unwrap();
        }
        let listed = workspace.json(&["list", "executions"], 0).await;
        let listed = listed.as_array().unwrap();
        let states: Vec<_> = listed.iter().map(|execution| execution["state"].clone()).collect();
        assert_eq!(states, STATES[..executions], "{version}");
        let ids = listed.iter().map(|execution| execution["executionId"].as_str().unwrap().into());
        Self { ids: ids.collect(), workspace }
    }

    async fn run(&self, command: &str, execution: usize, arguments: &[&str]) -> CommandOutput {
        let id = self.ids[execution].as_str();
        self.workspace.run(&[&[command, id], arguments].concat()).await
    }

    async fn complete(&self, command: &str, execution: usize, arguments: &[&str]) -> Value {
        let ended = self.run(command, execution, arguments).await;
        assert_eq!(ended.status, 0, "{command}: {ended:?}");
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    }

    async fn continue_all(&self) {
        if self.ids.len() > UNDOING {
            self.continue_killed_and_paused().await;
        }
        for execution in 0..self.ids.len() {
            let debug = self.run("debug", execution, &[]).await;
            assert_eq!(debug.status, 0, "{debug:?}");
        }
        let undone = self.workspace.json(&["debug", &self.ids[UNDONE]], 0).await;
        assert_eq!(undone["executions"][0]["steps"][0]["state"], "COMPENSATED");

        let outputs = self.complete("approve", APPROVAL, &["send"]).await;
        assert_eq!(outputs, json!({ "send": { "to": "bob" }, "after": { "to": "bob" } }));

        let outputs = self.complete("signal", SIGNAL, &["go", r#"{"to":["x","y"]}"#]).await;
        assert_eq!(outputs["each"], json!([{ "to": "x" }, { "to": "y" }]));

        let outputs = self.complete("resume", KILLED, &[]).await;
        assert_eq!(outputs["last"], json!({ "to": "dan" }));

        // The signal completes the child. The parent continues in its own time, so `watch` waits
        // for it.
        self.complete("signal", CHILD, &["go", "{}"]).await;
        let parent = self.run("watch", PARENT, &[]).await;
        assert_eq!(parent.status, 0, "{parent:?}");

        // Later versions compensate a failed execution by default if its plan has compensations.
        let failed = self.workspace.json(&["debug", &self.ids[FAILED]], 0).await;
        let is_undone = failed["executions"][0]["steps"][0]["state"] == "COMPENSATED";
        let retried = self.run("retry", FAILED, &["--yes"]).await;
        assert_eq!(retried.status, 1, "{retried:?}");
        assert_eq!(retried.err.contains("kept: `send`"), !is_undone, "{retried:?}");

        let scheduled = self.run("cancel", 0, &[]).await;
        assert_eq!(scheduled.status, 0, "{scheduled:?}");
    }

    async fn continue_killed_and_paused(&self) {
        let undone = self.run("cancel", UNDOING, &[]).await;
        assert_eq!(undone.status, 0, "{undone:?}");
        let undone = self.workspace.json(&["debug", &self.ids[UNDOING]], 0).await;
        assert_eq!(undone["executions"][0]["state"], "FAILED");
        assert_eq!(undone["executions"][0]["steps"][0]["state"], "COMPENSATED");

        let unknown = self.run("execute", UNKNOWN, &[]).await;
        assert_eq!(unknown.status, 1, "{unknown:?}");
        assert!(unknown.err.contains("tool.outcome_unknown"), "{unknown:?}");

        let outputs = self.complete("resume", PAUSED, &[]).await;
        assert_eq!(outputs["last"], json!({ "to": "hal" }));
    }
}

#[tokio::test]
async fn executions_in_a_sqlite_file_of_an_older_version_continue() {
    for version in VERSIONS {
        OldStore::open("sqlite:old.db", version).await.continue_all().await;
    }
}

#[tokio::test]
async fn executions_in_a_mongodb_database_of_an_older_version_continue() {
    for version in VERSIONS {
        let url = Mongod::shared().await.new_database_url();
        load_dump(&url, version.0).await;
        OldStore::open(&url, version).await.continue_all().await;
    }
}

async fn load_dump(url: &str, version: &str) {
    let database = Client::with_uri_str(url).await.unwrap().default_database().unwrap();
    let dump = fs::read(format!("{FOLDER}/{version}.bson")).unwrap();
    let mut rest = dump.as_slice();
    while !rest.is_empty() {
        let entry = Document::from_reader(&mut rest).unwrap();
        let name = entry.get_str("collection").unwrap();
        let mut document = entry.get_document("document").unwrap().clone();
        if name == "workers" {
            // With the time 0, the lease has expired, even if the clock of this machine is slow.
            document.insert("until", 0_i64);
        }
        database.collection::<Document>(name).insert_one(document).await.unwrap();
    }
}
