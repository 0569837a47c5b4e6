//! A replica set of three real `mongod` processes that tests kill, freeze and restart.

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
    mongod::{free_port, mongod_command, mongod_program},
    supervised::Supervised,
};

const MEMBER_COUNT: usize = 3;
const MAX_START_TIME: Duration = Duration::from_secs(90);
/// Time limit of one command, because a frozen member does not answer.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(3);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time after which members elect another primary, in milliseconds.
const ELECTION_MS: i32 = 1_500;

#[derive(Debug)]
pub(super) struct Cluster {
    // Declared first, so that members end before their folder is removed.
    members: Vec<Member>,
    _folder: Supervised,
    database_count: AtomicU32,
}

#[derive(Debug)]
struct Member {
    port: u16,
    folder: PathBuf,
    process: Option<Supervised>,
}

impl Cluster {
    /// Returns the replica set that all tests of this binary share. The first caller starts it.
    /// Only one test at a time injects faults into it, so other tests wait here.
    pub(super) async fn lock_shared() -> MutexGuard<'static, Self> {
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
        let members = (0..MEMBER_COUNT).map(|number| {
            let folder = path.join(format!("member-{number}"));
            std::fs::create_dir(&folder).unwrap();
            Member { port: free_port(), folder, process: None }
        });
        let members = members.collect();
        let mut cluster = Self { members, _folder: keeper, database_count: AtomicU32::new(0) };
        for number in 0..MEMBER_COUNT {
            cluster.start_member(number);
        }
        for number in 0..MEMBER_COUNT {
            cluster.wait_until_listening(number).await;
        }
        cluster.initiate().await;
        cluster
    }

    fn start_member(&mut self, number: usize) {
        let member = &mut self.members[number];
        let command: Vec<OsString> =
            mongod_command(&mongod_program(), &member.folder, member.port, true);
        member.process = Some(Supervised::start_in(&member.folder, &command));
    }

    async fn wait_until_listening(&mut self, number: usize) {
        let deadline = Instant::now() + MAX_START_TIME;
        let mut look = interval(POLL_INTERVAL);
        let address = self.address(number);
        loop {
            look.tick().await;
            let process = self.members[number].process.as_mut().expect("the member was started");
            // If `mongod` has ended, another process has taken the port since it was chosen, and
            // answers instead of `mongod`.
            if process.exit_status().is_some() {
                self.start_member(number);
            } else if TcpStream::connect(&address).await.is_ok() {
                return;
            }
            assert!(Instant::now() < deadline, "member {number} does not listen");
        }
    }

    async fn initiate(&self) {
        let members: Vec<Document> = (0_i32..)
            .zip(0..MEMBER_COUNT)
            .map(|(id, number)| doc! { "_id": id, "host": self.address(number) })
            .collect();
        let settings =
            doc! { "electionTimeoutMillis": ELECTION_MS, "heartbeatIntervalMillis": 300 };
        let set = doc! { "_id": "rs0", "members": members, "settings": settings };
        self.run_on(0, doc! { "replSetInitiate": set }).await.expect("the set is initiated");
    }

    fn address(&self, number: usize) -> String {
        format!("127.0.0.1:{}", self.members[number].port)
    }

    pub(super) fn new_database_url(&self) -> String {
        let number = self.database_count.fetch_add(1, Ordering::Relaxed);
        let hosts: Vec<String> = (0..MEMBER_COUNT).map(|number| self.address(number)).collect();
        format!("mongodb://{}/torture_{number}?replicaSet=rs0", hosts.join(","))
    }

    async fn run_on(&self, number: usize, command: Document) -> Result<Document, String> {
        let wait = MAX_ANSWER_TIME.as_millis();
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
        timeout(2 * MAX_ANSWER_TIME, asking).await.unwrap_or_else(|_| Err("no answer".to_owned()))
    }

    pub(super) async fn wait_for_primary(&self) -> usize {
        let mut look = interval(POLL_INTERVAL);
        let electing = async {
            loop {
                look.tick().await;
                for number in 0..MEMBER_COUNT {
                    let hello = self.run_on(number, doc! { "hello": 1 }).await;
                    if hello.is_ok_and(|answer| {
                        answer.get_bool("isWritablePrimary").unwrap_or_default()
                    }) {
                        return number;
                    }
                }
            }
        };
        timeout(MAX_START_TIME, electing).await.expect("members elect a primary")
    }

    pub(super) fn kill(&mut self, number: usize) {
        drop(self.members[number].process.take());
    }

    pub(super) async fn restart_member(&mut self, number: usize) {
        self.start_member(number);
        self.wait_until_listening(number).await;
    }

    pub(super) fn freeze(&self, number: usize) {
        if let Some(process) = &self.members[number].process {
            process.signal("-STOP");
        }
    }

    pub(super) fn thaw(&self, number: usize) {
        if let Some(process) = &self.members[number].process {
            process.signal("-CONT");
        }
    }

    pub(super) async fn step_down(&self) -> bool {
        let primary = self.wait_for_primary().await;
        let command = doc! { "replSetStepDown": 4, "secondaryCatchUpPeriodSecs": 2 };
        self.run_on(primary, command).await.is_ok()
    }

    /// Restarts the killed members and thaws the others. Then waits until all of them work and one
    /// is the primary.
    pub(super) async fn heal(&mut self) {
        for number in 0..MEMBER_COUNT {
            match &self.members[number].process {
                None => self.restart_member(number).await,
                Some(_) => self.thaw(number),
            }
        }
        let mut look = interval(POLL_INTERVAL);
        let healing = async {
            loop {
                look.tick().await;
                let primary = self.wait_for_primary().await;
                let status = self.run_on(primary, doc! { "replSetGetStatus": 1 }).await;
                let status = status.unwrap_or_default();
                let members = status.get_array("members").cloned().unwrap_or_default();
                let member_states =
                    members.iter().filter_map(|member| member.as_document()?.get_i32("state").ok());
                let working = member_states.filter(|state| [1, 2].contains(state)).count();
                if working == MEMBER_COUNT {
                    return;
                }
            }
        };
        timeout(MAX_START_TIME, healing).await.expect("the set recovers");
    }
}
