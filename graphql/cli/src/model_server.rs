//! A llama.cpp server for the downloaded planning model. Processes share one server through a lock
//! file with its port and key.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    net::TcpListener,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use planner::model::{
    Key,
    local::{PULL_COMMAND, STARTED_MODEL, ServerStarter, StartedServer},
    pull::find_downloaded,
};
use sandbox::{
    Launcher,
    process::{ProcessGroup, Program, describe_status},
};
use serde_json::Value;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep},
};

const SERVER_PROGRAM: &str = "llama-server";
/// The environment variable with the server's key. The key is not an argument, because all users of
/// the machine can see arguments.
const KEY_VARIABLE: &str = "LLAMA_API_KEY";
const PYTHON_SCRIPT: &str = "
import os, sys, time
try:
    import xllamacpp
except ImportError:
    sys.exit(3)
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.hostnames = ['127.0.0.1']
parameters.port = int(sys.argv[2])
parameters.model_alias = {sys.argv[3]}
parameters.api_keys = [os.environ['LLAMA_API_KEY']]
parameters.n_ctx = 8192
parameters.n_parallel = 1
server = xllamacpp.Server(parameters)
while True:
    time.sleep(3600)
";
const LOCK_FILE: &str = "model-server.lock";
const LOG_FILE: &str = "model-server.log";
/// Time limit for loading a model. It is long because a disk can be slow.
const START_TIMEOUT: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
const INSTALL_HINT: &str = "install llama.cpp so that `llama-server` is on the PATH, or run \
                       `pip install xllamacpp`";

#[derive(Debug)]
pub(crate) struct ModelServer {
    models_folder: PathBuf,
    data_folder: PathBuf,
    launcher: Launcher,
    started: Mutex<Option<ProcessGroup>>,
}

impl ModelServer {
    pub(crate) fn new(models_folder: PathBuf, data_folder: PathBuf, launcher: Launcher) -> Self {
        Self { models_folder, data_folder, launcher, started: Mutex::default() }
    }

    fn model_file(&self) -> Result<PathBuf, String> {
        let found = find_downloaded(&self.models_folder);
        found
            .map(|(_, path)| path)
            .ok_or_else(|| format!("run `{PULL_COMMAND}`, or start a server"))
    }

    async fn lock(&self) -> Result<File, String> {
        let path = self.data_folder.join(LOCK_FILE);
        let failed = |err| format!("`{}` cannot be locked: {err}", path.display());
        fs::create_dir_all(&self.data_folder).map_err(failed)?;
        let file = open_private(&path, false).map_err(failed)?;
        let until = Instant::now() + START_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(err)) => return Err(failed(err)),
                Err(TryLockError::WouldBlock) if Instant::now() > until => {
                    let seconds = START_TIMEOUT.as_secs();
                    return Err(format!(
                        "another process has been starting the model server for {seconds} s"
                    ));
                }
                Err(TryLockError::WouldBlock) => sleep(POLL_INTERVAL).await,
            }
        }
    }

    fn spawn(&self, model: &Path, server: &ServerAddress) -> Result<ProcessGroup, String> {
        let (model, port) = (model.display().to_string(), server.port.to_string());
        #[rustfmt::skip]
        let arguments = [
            "--model", &model, "--alias", STARTED_MODEL, "--host", "127.0.0.1", "--port", &port,
            "--ctx-size", "8192", "--parallel", "1",
        ];
        let env = BTreeMap::from([(KEY_VARIABLE.to_owned(), server.key.clone())]);
        // The server does not start in the user's current folder, because Python imports modules
        // from the working directory.
        let cwd = Some(&*self.data_folder);
        let program = |name| Program { name, cwd, readable_folder: None, pass: &[], env: &env };
        let mut command = match program(SERVER_PROGRAM).watched_command(&self.launcher) {
            Ok(mut command) => {
                command.args(arguments);
                command
            }
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                let python = program("python3").watched_command(&self.launcher);
                let mut command = python.map_err(|_| INSTALL_HINT.to_owned())?;
                command.args(["-c", PYTHON_SCRIPT, &model, &port, STARTED_MODEL]);
                command
            }
            Err(err) => return Err(program(SERVER_PROGRAM).start_error(&err)),
        };
        let log = open_private(&self.log_path(), true)
            .map_err(|err| format!("`{}` cannot be written: {err}", self.log_path().display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log?);
        ProcessGroup::spawn(&mut command).map_err(|err| program(SERVER_PROGRAM).start_error(&err))
    }

    fn log_path(&self) -> PathBuf {
        self.data_folder.join(LOG_FILE)
    }

    async fn await_server(
        &self,
        server: &mut ProcessGroup,
        running: &ServerAddress,
    ) -> Result<(), String> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            if is_faber_server(running).await {
                return Ok(());
            }
            let log = self.log_path().display().to_string();
            if let Ok(Some(status)) = server.child().try_wait() {
                return Err(match status.code() {
                    Some(3) => INSTALL_HINT.to_owned(),
                    _ => format!("the model server {}: see `{log}`", describe_status(status)),
                });
            }
            if Instant::now() > until {
                let seconds = START_TIMEOUT.as_secs();
                return Err(format!(
                    "the model server is not ready after {seconds} s: see `{log}`"
                ));
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

#[async_trait]
impl ServerStarter for ModelServer {
    async fn start_server(&self) -> Result<StartedServer, String> {
        let model = self.model_file()?;
        let mut lock = self.lock().await?;
        if let Some(running) = ServerAddress::read(&mut lock)
            && is_faber_server(&running).await
        {
            return Ok(running.into_started());
        }
        let running =
            ServerAddress::choose_address().map_err(|err| format!("no port is free: {err}"))?;
        let mut server = self.spawn(&model, &running)?;
        self.await_server(&mut server, &running).await?;
        running.write(&mut lock).map_err(|err| {
            format!("`{}` cannot be written: {err}", self.data_folder.join(LOCK_FILE).display())
        })?;
        *self.started.lock().await = Some(server);
        Ok(running.into_started())
    }

    fn describe(&self) -> Result<String, String> {
        let model = self.model_file()?;
        let none = BTreeMap::new();
        let is_there = |name| {
            Program { name, cwd: None, readable_folder: None, pass: &[], env: &none }
                .check()
                .is_ok()
        };
        let server = match (is_there(SERVER_PROGRAM), is_there("python3")) {
            (true, _) => "`llama-server`",
            (_, true) => "`xllamacpp`, if Python has it,",
            _ => return Err(INSTALL_HINT.to_owned()),
        };
        Ok(format!("the first query starts {server} with {}", model.display()))
    }
}

fn local_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/v1")
}

fn open_private(path: &Path, is_truncated: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).write(true).truncate(is_truncated).mode(0o600).open(path)
}

struct ServerAddress {
    port: u16,
    key: String,
}

impl ServerAddress {
    fn choose_address() -> io::Result<Self> {
        let mut key = [0; 24];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Ok(Self { port, key: BASE64_URL_SAFE_NO_PAD.encode(key) })
    }

    fn read(file: &mut File) -> Option<Self> {
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
        let (port, key) = text.trim().split_once(' ')?;
        Some(Self { port: port.parse().ok()?, key: key.to_owned() })
    }

    fn write(&self, file: &mut File) -> io::Result<()> {
        file.set_len(0)?;
        file.rewind()?;
        writeln!(file, "{} {}", self.port, self.key)
    }

    fn into_started(self) -> StartedServer {
        let url = local_url(self.port);
        StartedServer { url, key: Key::Variable(KEY_VARIABLE.to_owned(), Some(self.key)) }
    }
}

/// Returns `true` if a model server of Faber answers at this port and has loaded its model. If the
/// server has ended, another program can use its port.
async fn is_faber_server(running: &ServerAddress) -> bool {
    let Ok(client) = reqwest::Client::builder().timeout(PROBE_TIMEOUT).no_proxy().build() else {
        return false;
    };
    let Ok(answer) = client
        .get(format!("{}/models", local_url(running.port)))
        .bearer_auth(&running.key)
        .send()
        .await
    else {
        return false;
    };
    if !answer.status().is_success() {
        return false;
    }
    let list: Value = match answer.bytes().await {
        Ok(body) => serde_json::from_slice(&body).unwrap_or_default(),
        Err(_) => return false,
    };
    list["data"].as_array().into_iter().flatten().any(|model| model["id"] == STARTED_MODEL)
}
