//! The common parts of tests that kill, freeze and restart the real binary: a folder with a
//! configuration, a tool that writes a ledger, the processes, and a client of the API.

pub(crate) mod api_client;

use std::{
    fs::{self, File},
    marker::PhantomData,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use shared::{
    event::RecordedEvent,
    id::{ExecutionId, Seq},
    store::{ExecutionFilter, ExecutionHead, Page, Store},
};
use tempfile::TempDir;
use tests::{binary::faber, request_retries::retry_until_answered};
use tokio::{
    process::{Child, Command},
    time::{Instant, interval, timeout},
};

/// Time limit for the start and for the end of a process. It is long because the machine can be
/// busy.
pub(crate) const MAX_START: Duration = Duration::from_mins(3);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) trait LedgerLine {
    fn from_words(words: [&str; 5]) -> Self;
}

#[derive(Debug)]
pub(crate) struct Workspace<L> {
    folder: TempDir,
    store: String,
    process_count: AtomicU32,
    ledger: PhantomData<fn() -> L>,
}

impl<L: LedgerLine> Workspace<L> {
    pub(crate) fn create(folder: TempDir, store: String, script: &str) -> Self {
        let process_count = AtomicU32::new(0);
        let workspace = Self { folder, store, process_count, ledger: PhantomData };
        fs::write(workspace.path("tool.sh"), script).unwrap();
        fs::write(workspace.path("ledger"), "").unwrap();
        workspace
    }

    pub(crate) fn configure(&self, file: &str, sets: &[Value], mut limits: Value, more: &Value) {
        for (key, value) in more.as_object().into_iter().flatten() {
            limits[key] = value.clone();
        }
        let config = json!({ "store": self.store, "toolsets": sets, "limits": limits });
        fs::write(self.path(file), config.to_string()).unwrap();
    }

    pub(crate) fn describe_tool(
        &self,
        name: &str,
        effect: &str,
        parameters: &Value,
        arguments: &[&str],
    ) -> Value {
        let mut command = vec![json!("sh"), json!(self.path("tool.sh"))];
        command.extend(arguments.iter().map(|argument| json!(argument)));
        json!({
            "name": name,
            "effect": effect,
            "parameters": parameters,
            "run": { "command": command, "env": { "LEDGER": self.path("ledger") } },
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn store(&self) -> &str {
        &self.store
    }

    pub(crate) fn ledger(&self) -> Vec<L> {
        parse_ledger(&fs::read_to_string(self.path("ledger")).unwrap())
    }

    /// Returns the ledger without its last line if that is incomplete, because a tool is perhaps
    /// writing it.
    pub(crate) fn complete_ledger_lines(&self) -> Vec<L> {
        let text = read_output(&self.path("ledger"));
        parse_ledger(text.rsplit_once('\n').map_or("", |(whole, _)| whole))
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(faber());
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("HOME", self.folder.path()).stdin(Stdio::null()).kill_on_drop(true);
        for variable in ["PATH", "FABER_LOG"] {
            command.envs(std::env::var_os(variable).map(|value| (variable, value)));
        }
        command
    }

    pub(crate) fn spawn(&self, arguments: &[&str]) -> Process {
        self.spawn_with(arguments, &[])
    }

    pub(crate) fn spawn_with(&self, arguments: &[&str], variables: &[(&str, PathBuf)]) -> Process {
        let number = self.process_count.fetch_add(1, Ordering::Relaxed);
        let output = self.path(&format!("output-{number:03}"));
        let mut command = self.command(arguments);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::null()).stderr(File::create(&output).unwrap());
        Process { child: command.spawn().unwrap(), output }
    }

    /// Returns the standard error of every process, with its file.
    pub(crate) fn outputs_of_processes(&self) -> Vec<(PathBuf, String)> {
        let count = self.process_count.load(Ordering::Relaxed);
        let files = (0..count).map(|number| self.path(&format!("output-{number:03}")));
        files.map(|file| (file.clone(), read_output(&file))).collect()
    }

    pub(crate) fn keep(self) -> PathBuf {
        self.folder.keep()
    }
}

fn parse_ledger<L: LedgerLine>(text: &str) -> Vec<L> {
    let parse = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        L::from_words(words.try_into().unwrap_or_else(|_| panic!("torn line: `{line}`")))
    };
    text.lines().map(parse).collect()
}

/// Reads a process's output so far, even if it is not valid UTF-8.
fn read_output(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// A process of the binary. It is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    output: PathBuf,
}

impl Process {
    pub(crate) async fn wait_for_address(&mut self) -> Result<String, ExitStatus> {
        let line = self.wait_for_line("listening on http://").await?;
        Ok(line.rsplit('/').next().unwrap().to_owned())
    }

    pub(crate) async fn wait_for_worker(&mut self) -> Result<(), ExitStatus> {
        self.wait_for_line("working on ").await.map(drop)
    }

    /// Waits until the process prints a line with `part`, and returns the line. Returns the exit
    /// status if the process ends first.
    async fn wait_for_line(&mut self, part: &str) -> Result<String, ExitStatus> {
        let mut poll = interval(POLL_INTERVAL);
        let found = async {
            loop {
                poll.tick().await;
                let ended = self.child.try_wait().unwrap();
                let output = read_output(&self.output);
                if let Some(line) = output.lines().find(|line| line.contains(part)) {
                    return Ok(line.to_owned());
                }
                if let Some(status) = ended {
                    return Err(status);
                }
            }
        };
        timeout(MAX_START, found)
            .await
            .unwrap_or_else(|_| panic!("the process does not print `{part}`"))
    }

    pub(crate) fn output(&self) -> String {
        read_output(&self.output)
    }

    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until the process ends by itself. Returns `None` at the limit.
    pub(crate) async fn wait_for_exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        timeout(limit, self.child.wait()).await.ok().map(Result::unwrap)
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().expect("the process was not awaited").to_string();
        assert!(std::process::Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends SIGTERM and waits for the end. Fails at the limit or with an exit code other than 0.
    /// Returns how long it took.
    pub(crate) async fn drain(&mut self, limit: Duration) -> Result<Duration, String> {
        let started_at = Instant::now();
        self.signal("-TERM");
        match self.wait_for_exit(limit).await {
            None => Err(format!("did not drain within {limit:?}")),
            Some(status) if status.success() => Ok(started_at.elapsed()),
            Some(status) => Err(format!("drained with {status}: {}", self.output())),
        }
    }
}

pub(crate) async fn read_heads(store: &dyn Store) -> Vec<ExecutionHead> {
    let (mut all, mut page) = (Vec::new(), Page::first_items(500));
    loop {
        let filter = ExecutionFilter::default();
        let heads = retry_until_answered(async || store.list_heads(&filter, &page).await).await;
        all.extend(heads.items.iter().map(|(_, head)| head.clone()));
        match heads.items.last() {
            Some((cursor, _)) if heads.has_more => page.after = Some(cursor.clone()),
            _ => return all,
        }
    }
}

pub(crate) async fn read_log(store: &dyn Store, id: ExecutionId) -> Vec<RecordedEvent> {
    let mut log: Vec<RecordedEvent> = Vec::new();
    loop {
        let after = log.last().map_or(Seq::START, |recorded| recorded.seq);
        let more = retry_until_answered(async || store.read(id, after).await).await;
        if more.is_empty() {
            return log;
        }
        log.extend(more);
    }
}

pub(crate) fn to_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

pub(crate) fn number_from_env(variable: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "only tests read these variables")]
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("`{variable}` is a number")))
}
