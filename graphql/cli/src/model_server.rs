//! A llama.cpp server for the downloaded planning model.
//!
//! The server ends with this process, even if this process is killed, because a reaper watches it.
//! Two processes share one server: a lock file has the port of the running one. If the process that
//! started it ends, the next question of the other process starts a new one.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use async_trait::async_trait;
use planner::model::{
    local::{PULL, ServerStarter},
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

const LLAMA: &str = "llama-server";
/// Runs the server of the Python package `xllamacpp` with a model, a port and a name.
const SCRIPT: &str = "
import sys, time
try:
    import xllamacpp
except ImportError:
    sys.exit(3)
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.hostnames = ['127.0.0.1']
parameters.port = int(sys.argv[2])
parameters.model_alias = {sys.argv[3]}
parameters.n_ctx = 8192
parameters.n_parallel = 1
server = xllamacpp.Server(parameters)
while True:
    time.sleep(3600)
";
/// The name under which a started server offers the model.
const ALIAS: &str = "faber-planner";
const LOCK: &str = "model-server.lock";
const LOG: &str = "model-server.log";
/// Time to load a model, from a slow disk too.
const START_TIMEOUT: Duration = Duration::from_mins(2);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
const INSTALL: &str = "install llama.cpp so that `llama-server` is on the PATH, or run \
                       `pip install xllamacpp`";

#[derive(Debug)]
pub(crate) struct ModelServer {
    models: PathBuf,
    /// The folder of the lock file and of the server's log.
    data: PathBuf,
    launcher: Launcher,
    started: Mutex<Option<ProcessGroup>>,
}

impl ModelServer {
    pub(crate) fn new(models: PathBuf, data: PathBuf, launcher: Launcher) -> Self {
        Self { models, data, launcher, started: Mutex::default() }
    }

    fn model_file(&self) -> Result<PathBuf, String> {
        let found = find_downloaded(&self.models);
        found.map(|(_, path)| path).ok_or_else(|| format!("run `{PULL}`, or start a server"))
    }

    /// Opens the lock file and waits until no other process starts a server.
    async fn lock(&self) -> Result<File, String> {
        let (data, path) = (self.data.clone(), self.data.join(LOCK));
        let shown = path.display().to_string();
        let open = move || -> io::Result<File> {
            fs::create_dir_all(data)?;
            let mut options = OpenOptions::new();
            let file = options.create(true).read(true).write(true).truncate(false).open(path)?;
            file.lock()?;
            Ok(file)
        };
        let opened = tokio::task::spawn_blocking(open).await.map_err(io::Error::other).flatten();
        opened.map_err(|err| format!("`{shown}` cannot be locked: {err}"))
    }

    async fn spawn(&self, model: &Path, port: u16) -> Result<ProcessGroup, String> {
        let (model, port) = (model.display().to_string(), port.to_string());
        #[rustfmt::skip]
        let arguments = [
            "--model", &model, "--alias", ALIAS, "--host", "127.0.0.1", "--port", &port,
            "--ctx-size", "8192", "--parallel", "1",
        ];
        let none = std::collections::BTreeMap::new();
        let program = |name| Program { name, cwd: None, reads: None, pass: &[], env: &none };
        let mut command = match program(LLAMA).watched_command(&self.launcher) {
            Ok(mut command) => {
                command.args(arguments);
                command
            }
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                let python = program("python3").watched_command(&self.launcher);
                let mut command = python.map_err(|_| INSTALL.to_owned())?;
                command.args(["-c", SCRIPT, &model, &port, ALIAS]);
                command
            }
            Err(err) => return Err(program(LLAMA).start_error(&err)),
        };
        let log =
            File::create(self.log()).map_err(|err| format!("{}: {err}", self.log().display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log?);
        ProcessGroup::spawn(&mut command).map_err(|err| program(LLAMA).start_error(&err))
    }

    fn log(&self) -> PathBuf {
        self.data.join(LOG)
    }

    /// Waits until the server has loaded the model.
    async fn await_server(&self, server: &mut ProcessGroup, port: u16) -> Result<(), String> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            if is_ours(port).await {
                return Ok(());
            }
            let log = self.log().display().to_string();
            if let Ok(Some(status)) = server.child().try_wait() {
                return Err(match status.code() {
                    Some(3) => INSTALL.to_owned(),
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
    async fn start(&self) -> Result<String, String> {
        let model = self.model_file()?;
        let mut lock = self.lock().await?;
        if let Some(port) = read_port(&mut lock)
            && is_ours(port).await
        {
            return Ok(url(port));
        }
        let port = find_port().map_err(|err| format!("no port is free: {err}"))?;
        let mut server = self.spawn(&model, port).await?;
        self.await_server(&mut server, port).await?;
        write_port(&mut lock, port).map_err(|err| {
            format!("`{}` cannot be written: {err}", self.data.join(LOCK).display())
        })?;
        *self.started.lock().await = Some(server);
        Ok(url(port))
    }

    fn describe(&self) -> Result<String, String> {
        let model = self.model_file()?;
        let none = std::collections::BTreeMap::new();
        let is_there =
            |name| Program { name, cwd: None, reads: None, pass: &[], env: &none }.check().is_ok();
        let server = match (is_there(LLAMA), is_there("python3")) {
            (true, _) => LLAMA,
            (_, true) => "the server of `xllamacpp`, if Python has it,",
            _ => return Err(INSTALL.to_owned()),
        };
        Ok(format!("{server} is started for {}", model.display()))
    }
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}/v1")
}

fn find_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn read_port(file: &mut File) -> Option<u16> {
    let mut text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
    text.trim().parse().ok()
}

fn write_port(file: &mut File, port: u16) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{port}")
}

/// Returns whether a server that Faber started has loaded its model. The port of an ended server may
/// belong to another program.
async fn is_ours(port: u16) -> bool {
    let Ok(client) = reqwest::Client::builder().timeout(PROBE_TIMEOUT).no_proxy().build() else {
        return false;
    };
    let Ok(answer) = client.get(format!("{}/models", url(port))).send().await else { return false };
    if !answer.status().is_success() {
        return false;
    }
    let list: Value = match answer.bytes().await {
        Ok(body) => serde_json::from_slice(&body).unwrap_or_default(),
        Err(_) => return false,
    };
    list["data"].as_array().into_iter().flatten().any(|model| model["id"] == ALIAS)
}
