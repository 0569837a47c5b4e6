//! Child processes that end with everything that they started.

use std::{
    collections::BTreeMap,
    fmt, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use secrets::Redaction;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    time::{self, timeout, timeout_at},
};

use super::{Confinement, Launcher, Lifetime, ORDER_VARIABLE, reaper::KILL_NOW};

/// Time between the request to end and the kill. Shorter than [`shared::limits::CANCEL_GRACE`], so
/// a result arrives in time.
pub const STOP_GRACE: Duration = Duration::from_secs(3);
/// Time limit for stopping a process, even if the process and its reaper hang.
const STOP_TIMEOUT: Duration = Duration::from_millis(4_500);
/// The part of [`STOP_TIMEOUT`] after the last kill.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

#[derive(Clone, Copy)]
pub struct Program<'a> {
    /// A name on the search path, or a path.
    pub name: &'a str,
    pub cwd: Option<&'a Path>,
    pub readable_folder: Option<&'a Path>,
    pub pass: &'a [String],
    pub env: &'a BTreeMap<String, String>,
}

/// Shows only the names of variables, because their values may be secrets.
impl fmt::Debug for Program<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("name", &self.name)
            .field("cwd", &self.cwd)
            .field("pass", &self.pass)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

impl Program<'_> {
    /// Prepares the command without a shell and with piped streams. If `launcher` has a binary,
    /// everything that the command started ends with it.
    pub fn watched_command(&self, launcher: &Launcher) -> io::Result<Command> {
        let program = resolve_executable(self.name);
        // Checks first, because only this check can report that nothing was started.
        check_runnable(&program, self.cwd)?;
        Ok(self.with_streams(launcher.watched_command(program.as_os_str(), self.pass)?))
    }

    /// Prepares the command in the sandbox. The command may read the file of its program.
    pub fn confined_command(
        &self,
        launcher: &Launcher,
        confinement: &Confinement,
    ) -> io::Result<Command> {
        let program = resolve_executable(self.name);
        let file = Some(program.as_path()).filter(|path| path.is_absolute());
        let mut confinement = confinement.clone();
        confinement
            .read
            .extend(file.into_iter().chain(self.readable_folder).map(Path::to_path_buf));
        confinement.pass.extend_from_slice(self.pass);
        Ok(self.with_streams(launcher.confined_command(
            &confinement,
            Lifetime::Watched,
            program.as_os_str(),
        )?))
    }

    fn with_streams(&self, mut command: Command) -> Command {
        if let Some(cwd) = self.cwd {
            command.current_dir(cwd);
        }
        command.envs(self.env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Checks that the program exists and is executable, without starting it. The error names a
    /// remedy.
    pub fn check(&self) -> Result<(), String> {
        check_runnable(&resolve_executable(self.name), self.cwd)
            .map_err(|err| self.start_error(&err))
    }

    pub fn start_error(&self, err: &io::Error) -> String {
        let name = self.name;
        match (err.kind(), self.cwd) {
            (io::ErrorKind::NotFound | io::ErrorKind::NotADirectory, Some(cwd))
                if !cwd.is_dir() =>
            {
                format!("`{name}` cannot run in `{}`: there is no such directory", cwd.display())
            }
            (io::ErrorKind::NotFound, _) => {
                format!("`{name}` was not found: install it, or write its full path")
            }
            (io::ErrorKind::PermissionDenied, _) => {
                format!("`{name}` may not be run: check that it is an executable file ({err})")
            }
            _ => format!("`{name}` could not be started: {err}"),
        }
    }
}

/// Returns the program for a name. `faber` is the running binary.
fn resolve_executable(name: &str) -> PathBuf {
    let own_binary = || std::env::current_exe().ok().filter(|path| path.exists());
    if name == "faber" { own_binary().unwrap_or_else(|| name.into()) } else { name.into() }
}

const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Fails with the same error as starting a program that does not exist or is not executable.
fn check_runnable(program: &Path, cwd: Option<&Path>) -> io::Result<()> {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let files: Vec<PathBuf> = if program.components().count() > 1 || program.is_absolute() {
        vec![cwd.map_or_else(|| program.to_owned(), |cwd| cwd.join(program))]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        std::env::split_paths(&path).map(|folder| folder.join(program)).collect()
    };
    if files.iter().any(|path| is_program(path)) {
        return Ok(());
    }
    let is_there = files.iter().any(|path| path.exists());
    let errno = if is_there { Errno::EACCES } else { Errno::ENOENT };
    Err(io::Error::from_raw_os_error(errno as i32))
}

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A process with everything that it started. Dropping this value kills all of them.
pub struct ProcessGroup {
    /// `None` only during the drop.
    child: Option<Child>,
    id: Option<Pid>,
    has_reaper: bool,
}

impl ProcessGroup {
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let has_reaper = command
            .as_std()
            .get_envs()
            .any(|(name, value)| name == ORDER_VARIABLE && value.is_some());
        let child = command.process_group(0).kill_on_drop(!has_reaper).spawn()?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        Ok(Self { child: Some(child), id, has_reaper })
    }

    pub fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("only dropping the group takes the child")
    }

    /// Waits until the process ends. Processes that it started may continue.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child().wait().await
    }

    /// Kills the remaining processes of the group. If the group has a reaper, call this only after
    /// the reaper has ended or had time to end, because only the reaper knows all processes.
    pub fn kill(&self) {
        self.send_signal(Signal::SIGKILL);
    }

    /// Asks the group to end, and kills it after [`STOP_GRACE`]. Takes [`STOP_TIMEOUT`] at most.
    pub async fn stop(&mut self) -> Option<ExitStatus> {
        let until = time::Instant::now() + STOP_TIMEOUT;
        self.send_signal(Signal::SIGTERM);
        let mut ended = timeout(STOP_GRACE, self.wait()).await;
        if ended.is_err() {
            self.kill_all();
            ended = timeout_at(until - KILL_TIMEOUT, self.wait()).await;
        }
        self.kill();
        match ended {
            Ok(status) => status.ok(),
            Err(_) => timeout_at(until, self.wait()).await.ok()?.ok(),
        }
    }

    fn kill_all(&self) {
        match self.id.filter(|_| self.has_reaper) {
            Some(reaper) => {
                let _ = kill(reaper, KILL_NOW);
            }
            None => self.kill(),
        }
    }

    fn send_signal(&self, signal: Signal) {
        // Ignores the error, because it means that the group has ended already.
        if let Some(id) = self.id {
            let _ = killpg(id, signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        let left = self.id.filter(|_| self.has_reaper && child.id().is_some());
        let Some(id) = left else { return self.kill() };
        self.kill_all();
        // Waits for the reaper in a thread, so that the system does not reuse its process id before
        // the kill.
        let waiting = thread::Builder::new().spawn(move || kill_after_reaper(child, id));
        if waiting.is_err() {
            self.kill();
        }
    }
}

/// Waits until a reaper ends, for at most [`STOP_GRACE`], and then kills all remaining processes of
/// its group.
fn kill_after_reaper(mut reaper: Child, group: Pid) {
    let until = Instant::now() + STOP_GRACE;
    while matches!(reaper.try_wait(), Ok(None)) && Instant::now() < until {
        thread::sleep(POLL_INTERVAL);
    }
    let _ = killpg(group, Signal::SIGKILL);
}

impl fmt::Debug for ProcessGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Group").field(&self.id).finish()
    }
}

/// Describes the end of a process: `exited with status 3`, `was ended by signal 9`.
pub fn describe_status(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[derive(Debug, Default)]
pub struct Tail {
    bytes: Vec<u8>,
    /// `true` if earlier bytes were dropped.
    is_cut: bool,
}

impl Tail {
    const MAX_BYTES: usize = 4 << 10;

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > 4 * Self::MAX_BYTES {
            self.bytes.drain(..self.bytes.len() - 2 * Self::MAX_BYTES);
            self.is_cut = true;
        }
    }

    /// Returns the trimmed text without secrets. Secrets are removed before the text is cut,
    /// because a part of a secret could not be recognised.
    pub fn redacted_text(&self, redaction: &Redaction) -> String {
        let text = redaction.redact(String::from_utf8_lossy(&self.bytes).into_owned());
        let broken = if self.is_cut { redaction.max_secret_bytes().min(text.len()) } else { 0 };
        let start = text.len().saturating_sub(Self::MAX_BYTES).max(broken);
        text[text.ceil_char_boundary(start)..].trim().to_owned()
    }
}

pub async fn read_tail(mut stream: impl AsyncRead + Unpin, tail: &mut Tail) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        tail.push(&buffer[..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_path_is_this_binary() {
        assert_eq!(resolve_executable("faber"), std::env::current_exe().unwrap());
        assert_eq!(resolve_executable("fabel"), Path::new("fabel"));
    }

    #[test]
    fn a_command_line_is_shown_without_secrets() {
        let env = BTreeMap::from([("KEY".to_owned(), "hush".to_owned())]);
        let program = Program { name: "x", cwd: None, readable_folder: None, pass: &[], env: &env };
        let text = format!("{program:?}");
        assert!(text.contains("KEY") && !text.contains("hush"), "{text}");
    }

    /// The process of this test ignores signals, as a stopped reaper does.
    #[tokio::test(start_paused = true)]
    async fn stopping_a_stopped_process_takes_less_than_the_cancel_grace() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM HUP; echo ready; while :; do read -r _; done"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut group = ProcessGroup::spawn(&mut command).unwrap();
        group.has_reaper = true;
        let mut ready = [0; 6];
        group.child().stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
        let started_at = time::Instant::now();
        group.stop().await;
        let took = started_at.elapsed();
        assert!(took >= STOP_GRACE && took < shared::limits::CANCEL_GRACE, "{took:?}");
    }

    #[test]
    fn a_tail_keeps_the_end_of_an_output() {
        let mut tail = Tail::default();
        for _ in 0..10_000 {
            tail.push(b"noise ");
        }
        tail.push("ende \u{e4}\n".as_bytes());
        let text = tail.redacted_text(&Redaction::default());
        assert!(text.ends_with("noise ende \u{e4}") && text.len() <= Tail::MAX_BYTES, "{text}");
    }

    #[test]
    fn a_tail_contains_no_part_of_a_secret() {
        let secret = "0123456789abcdef".repeat(64);
        let mut redaction = Redaction::default();
        redaction.add_secret("KEY", &secret);
        for noise in [0, Tail::MAX_BYTES - 100, 3 * Tail::MAX_BYTES - 100, 3 * Tail::MAX_BYTES] {
            let mut tail = Tail::default();
            let text = format!("{secret}{}", "!".repeat(noise));
            text.as_bytes().chunks(1_000).for_each(|chunk| tail.push(chunk));
            let text = tail.redacted_text(&redaction);
            assert!(!text.contains("cdef"), "{noise}: {text}");
        }
    }
}
