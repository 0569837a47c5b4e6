//! A replica set of three real `mongod` that can be killed, frozen and started again.

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use mongodb::{
    Client,
    bson::{Document, doc},
    options::{ReadPreference, SelectionCriteria},
};
use tempfile::TempDir;
use tokio::{
    net::TcpStream,
    sync::{Mutex, MutexGuard, OnceCell},
    time::{Instant, interval, timeout},
};

use crate::{
    mongod::{command, free_port, program},
    supervised::Supervised,
};

/// How many members there are: one may be lost.
const MEMBERS: usize = 3;
/// How long a set may take until it works.
const START: Duration = Duration::from_secs(90);
/// How long one question may take: members may be frozen.
const ANSWER: Duration = Duration::from_secs(3);
/// How often is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(50);
/// How long members wait for a primary until they elect another, in milliseconds.
const ELECTION_MS: i32 = 1_500;

/// A replica set that ends with the test process.
#[derive(Debug)]
pub(super) struct Cluster {
    // In this order: nobody writes any more when the folder is removed.
    members: Vec<Member>,
    _folder: Supervised,
    databases: AtomicU32,
}

/// One `mongod`.
#[derive(Debug)]
struct Member {
    port: u16,
    folder: PathBuf,
    process: Option<Supervised>,
}

impl Cluster {
    /// Borrows the one of this test binary, which whoever asks first starts: who has it may harm
    /// it, so others wait.
    pub(super) async fn borrow() -> MutexGuard<'static, Self> {
        static SHARED: OnceCell<Mutex<Cluster>> = OnceCell::const_new();
        let shared = SHARED.get_or_init(|| async { Mutex::new(Self::start().await) }).await;
        let mut cluster = shared.lock().await;
        cluster.heal().await;
        cluster
    }

    async fn start() -> Self {
        let folder = TempDir::with_prefix("faber-cluster-").unwrap();
        let path = folder.path().to_owned();
        let keeper = Supervised::start(folder, &["sleep", "infinity"]);
        let members = (0..MEMBERS).map(|number| {
            let folder = path.join(format!("member-{number}"));
            std::fs::create_dir(&folder).unwrap();
            Member { port: free_port(), folder, process: None }
        });
        let members = members.collect();
        let mut cluster = Self { members, _folder: keeper, databases: AtomicU32::new(0) };
        for number in 0..MEMBERS {
            cluster.begin(number);
        }
        for number in 0..MEMBERS {
            cluster.await_listening(number).await;
        }
        cluster.found().await;
        cluster
    }

    fn begin(&mut self, number: usize) {
        let member = &mut self.members[number];
        let command: Vec<OsString> = command(&program(), &member.folder, member.port, true);
        member.process = Some(Supervised::start_in(&member.folder, &command));
    }

    async fn await_listening(&mut self, number: usize) {
        let deadline = Instant::now() + START;
        let mut look = interval(LOOK);
        let address = self.address(number);
        loop {
            look.tick().await;
            let process = self.members[number].process.as_mut().expect("it was begun");
            // Somebody else may have the port for a moment, and be who would answer.
            if process.ended().is_some() {
                self.begin(number);
            } else if TcpStream::connect(&address).await.is_ok() {
                return;
            }
            assert!(Instant::now() < deadline, "member {number} does not listen");
        }
    }

    async fn found(&self) {
        let members: Vec<Document> = (0_i32..)
            .zip(0..MEMBERS)
            .map(|(id, number)| doc! { "_id": id, "host": self.address(number) })
            .collect();
        let settings =
            doc! { "electionTimeoutMillis": ELECTION_MS, "heartbeatIntervalMillis": 300 };
        let set = doc! { "_id": "rs0", "members": members, "settings": settings };
        self.ask(0, doc! { "replSetInitiate": set }).await.expect("a new set is founded");
    }

    fn address(&self, number: usize) -> String {
        format!("127.0.0.1:{}", self.members[number].port)
    }

    /// Returns the address of a store that no other test has.
    pub(super) fn fresh_url(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let hosts: Vec<String> = (0..MEMBERS).map(|number| self.address(number)).collect();
        format!("mongodb://{}/torture_{number}?replicaSet=rs0", hosts.join(","))
    }

    /// Asks one member.
    async fn ask(&self, number: usize, command: Document) -> Result<Document, String> {
        let wait = ANSWER.as_millis();
        let url = format!(
            "mongodb://{}/?directConnection=true&serverSelectionTimeoutMS={wait}&connectTimeoutMS={wait}",
            self.address(number)
        );
        let asking = async {
            let client = Client::with_uri_str(url).await.map_err(|err| err.to_string())?;
            let nearest =
                SelectionCriteria::ReadPreference(ReadPreference::Nearest { options: None });
            let admin = client.database("admin");
            let answer = admin.run_command(command).selection_criteria(nearest).await;
            client.shutdown().await;
            answer.map_err(|err| err.to_string())
        };
        timeout(2 * ANSWER, asking).await.unwrap_or_else(|_| Err("no answer".to_owned()))
    }

    /// Returns which member is primary, as soon as there is one.
    pub(super) async fn primary(&self) -> usize {
        let mut look = interval(LOOK);
        let electing = async {
            loop {
                look.tick().await;
                for number in 0..MEMBERS {
                    let hello = self.ask(number, doc! { "hello": 1 }).await;
                    if hello.is_ok_and(|answer| {
                        answer.get_bool("isWritablePrimary").unwrap_or_default()
                    }) {
                        return number;
                    }
                }
            }
        };
        timeout(START, electing).await.expect("members elect a primary")
    }

    /// Kills a member.
    pub(super) fn kill(&mut self, number: usize) {
        drop(self.members[number].process.take());
    }

    /// Starts a member that was killed, with what it had.
    pub(super) async fn start_again(&mut self, number: usize) {
        self.begin(number);
        self.await_listening(number).await;
    }

    /// Stops a member in mid-air.
    pub(super) fn freeze(&self, number: usize) {
        if let Some(process) = &self.members[number].process {
            process.signal("-STOP");
        }
    }

    /// Lets it go on as if nothing had happened.
    pub(super) fn thaw(&self, number: usize) {
        if let Some(process) = &self.members[number].process {
            process.signal("-CONT");
        }
    }

    /// Tells the primary to be none. Returns whether it obeyed.
    pub(super) async fn step_down(&self) -> bool {
        let primary = self.primary().await;
        let command = doc! { "replSetStepDown": 4, "secondaryCatchUpPeriodSecs": 2 };
        self.ask(primary, command).await.is_ok()
    }

    /// Sees to it that every member works and that there is a primary.
    pub(super) async fn heal(&mut self) {
        for number in 0..MEMBERS {
            match &self.members[number].process {
                None => self.start_again(number).await,
                Some(_) => self.thaw(number),
            }
        }
        let mut look = interval(LOOK);
        let healing = async {
            loop {
                look.tick().await;
                let primary = self.primary().await;
                let status = self.ask(primary, doc! { "replSetGetStatus": 1 }).await;
                let status = status.unwrap_or_default();
                let members = status.get_array("members").cloned().unwrap_or_default();
                let those =
                    members.iter().filter_map(|member| member.as_document()?.get_i32("state").ok());
                let well = those.filter(|state| [1, 2].contains(state)).count();
                if well == MEMBERS {
                    return;
                }
            }
        };
        timeout(START, healing).await.expect("the set gets well");
    }
}
