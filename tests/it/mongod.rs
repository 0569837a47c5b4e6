//! A real `mongod` that all tests of the binary share, with a separate database for each test.
//!
//! It runs as a replica set of one, because the store needs majority writes and change streams.
//! `./tests/run` installs the program and names it in `FABER_TEST_MONGOD`.

use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::{
    Acknowledgment, CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern,
};
use mongodb::{Client, Collection};
use tempfile::TempDir;
use tests::installed;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio::time::{interval, timeout};

use crate::supervised::Supervised;

/// Time limit for a start. On a quiet machine a start takes about a second.
const START_LIMIT: Duration = Duration::from_mins(1);

/// Poll interval while `mongod` starts.
const LISTEN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum number of attempts to find a port, because another process can take a free port first.
const PORT_ATTEMPTS: u32 = 5;

/// The first port that is tried, and the number of ports. Most systems assign ports from 32768 on,
/// so lower ports are free more often.
const FIRST_PORT: u16 = 12_000;
const PORT_COUNT: u16 = 18_000;

/// Exit code of `mongod` if its address is in use.
const ADDRESS_IN_USE: i32 = 48;

/// A `mongod` that is the primary of its replica set. It ends with the test process.
#[derive(Debug)]
pub(crate) struct Mongod {
    port: u16,
    database_count: AtomicU32,
    process: Supervised,
}

impl Mongod {
    /// Returns the server that all tests of this binary share. The first caller starts it.
    pub(crate) async fn shared() -> &'static Self {
        static SHARED: OnceCell<Mongod> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    pub(crate) fn new_database_url(&self) -> String {
        let number = self.database_count.fetch_add(1, Ordering::Relaxed);
        format!("mongodb://127.0.0.1:{}/it_{number}?replicaSet=rs0", self.port)
    }

    async fn start() -> Self {
        let program = mongod_program();
        for _ in 0..PORT_ATTEMPTS {
            let mut mongod = Self::spawn(&program);
            let listening = timeout(START_LIMIT, mongod.wait_until_listening()).await;
            match listening.expect("`mongod` listens within the limit") {
                Ok(()) => {
                    mongod.become_primary().await;
                    return mongod;
                }
                Err(status) if status.code() == Some(ADDRESS_IN_USE) => {}
                Err(status) => panic!("`mongod` does not start ({status}): see its log above"),
            }
        }
        panic!("`mongod` found no free port in {PORT_ATTEMPTS} attempts");
    }

    fn spawn(program: &OsStr) -> Self {
        let port = free_port();
        let directory = TempDir::with_prefix("faber-mongod-").expect("a temporary directory");
        let command = mongod_command(program, directory.path(), port, true);
        Self {
            port,
            database_count: AtomicU32::new(0),
            process: Supervised::start(directory, &command),
        }
    }

    /// Waits until the port answers. Returns the exit status if the program ends first.
    async fn wait_until_listening(&mut self) -> Result<(), ExitStatus> {
        let mut poll = interval(LISTEN_POLL_INTERVAL);
        loop {
            poll.tick().await;
            if let Some(status) = self.process.exit_status() {
                return Err(status);
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.is_ok() {
                return Ok(());
            }
        }
    }

    /// Initiates the replica set and waits for its primary, because the driver selects no server
    /// before there is a primary.
    async fn become_primary(&self) {
        let address = format!("127.0.0.1:{}", self.port);
        let limit = START_LIMIT.as_millis();
        let direct = format!("mongodb://{address}/?directConnection=true");
        let members = doc! { "_id": "rs0", "members": [{ "_id": 0, "host": &address }] };
        run_admin(&direct, doc! { "replSetInitiate": members }).await;

        let primary =
            format!("mongodb://{address}/?replicaSet=rs0&serverSelectionTimeoutMS={limit}");
        run_admin(&primary, doc! { "ping": 1 }).await;
    }
}

pub(crate) fn mongod_program() -> OsString {
    installed::find_path("FABER_TEST_MONGOD", "mongod").into()
}

/// Returns the command that starts the program on a port, with a small cache. A member belongs to
/// the replica set `rs0`.
pub(crate) fn mongod_command(
    program: &OsStr,
    directory: &Path,
    port: u16,
    is_member: bool,
) -> Vec<OsString> {
    let mut command = vec![program.to_owned(), "--nounixsocket".into()];
    let arguments = [
        ("--dbpath", directory.as_os_str().to_owned()),
        ("--port", port.to_string().into()),
        ("--bind_ip", "127.0.0.1".into()),
        ("--wiredTigerCacheSizeGB", "0.5".into()),
        ("--setParameter", "diagnosticDataCollectionEnabled=false".into()),
    ];
    let member = [("--replSet", OsString::from("rs0")), ("--oplogSize", "256".into())];
    for (name, value) in arguments.into_iter().chain(member.into_iter().filter(|_| is_member)) {
        command.extend([OsString::from(name), value]);
    }
    command
}

/// Runs an admin command on the primary. With a direct connection, runs it on the server of the
/// connection.
async fn run_admin(url: &str, command: Document) {
    let client = Client::with_uri_str(url).await.expect("a URL of our own making");
    let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
    client
        .database("admin")
        .run_command(command)
        .selection_criteria(primary)
        .await
        .expect("a fresh `mongod` runs the command");
    client.shutdown().await;
}

/// Finds a free port below the ports that the system assigns, so that it is probably still free
/// when a server restarts.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Each test process starts its search at another port, so that two processes rarely choose the
    // same one.
    let first =
        u16::try_from(std::process::id() % u32::from(PORT_COUNT)).expect("the remainder is small");
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut ports = (0..PORT_COUNT).map(|_| {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed) % PORT_COUNT;
        FIRST_PORT + (first + nth) % PORT_COUNT
    });
    ports.find(is_free).expect("the machine has free ports")
}

async fn durable_collection(url: &str) -> Collection<Document> {
    let client = Client::with_uri_str(url).await.expect("the fixture's URL parses");
    let durable = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
    let options = CollectionOptions::builder()
        .write_concern(durable)
        .read_concern(ReadConcern::majority())
        .build();
    let database = client.default_database().expect("the fixture's URL names a database");
    database.collection_with_options("written", options)
}

#[tokio::test]
async fn a_durable_write_is_read_back() {
    let collection = durable_collection(&Mongod::shared().await.new_database_url()).await;

    collection.insert_one(doc! { "_id": 1, "text": "kept" }).await.unwrap();

    let found = collection.find_one(doc! { "_id": 1 }).await.unwrap();
    assert_eq!(found, Some(doc! { "_id": 1, "text": "kept" }));
}

#[tokio::test]
async fn every_test_gets_an_empty_database() {
    let mongod = Mongod::shared().await;
    let mine = durable_collection(&mongod.new_database_url()).await;
    let other = durable_collection(&mongod.new_database_url()).await;

    mine.insert_one(doc! { "_id": 1 }).await.unwrap();

    assert_eq!(other.find_one(doc! {}).await.unwrap(), None);
    assert_ne!(mine.namespace(), other.namespace());
}
