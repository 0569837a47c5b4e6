//! Child processes that end with everything that they have started.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    time::timeout,
};

use crate::confine::{Confinement, Launcher, Life, clean, with_own};

/// How long a process may take to end once told to, before it is killed: within
/// [`shared::limits::CANCEL_GRACE`], so that the answer still comes in time.
pub(super) const STOP_GRACE: Duration = Duration::from_secs(3);

/// What of Faber's environment a program gets that is not confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Inherited {
    /// All of it: whoever writes the configuration decides what Faber is given, too.
    #[default]
    Whole,
    /// What every command gets, such as `PATH`: it was added by somebody who may not ask for more.
    Clean,
}

/// A program to start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program<'a> {
    /// What to run: a name on the path, or a path.
    pub name: &'a str,
    /// Where.
    pub cwd: Option<&'a Path>,
    /// What to add to the environment.
    pub env: &'a BTreeMap<String, String>,
    /// What it is added to.
    pub inherited: Inherited,
}

impl Program<'_> {
    /// Prepares the command: no shell, all three streams piped.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(executable(self.name));
        if self.inherited == Inherited::Clean {
            clean(&mut command, &[]);
        }
        self.prepared(command)
    }

    /// Prepares the command with a clean environment, and confined; it may read where it runs,
    /// and its own file.
    pub(super) fn confined(
        &self,
        launcher: &Launcher,
        confinement: &Confinement,
    ) -> io::Result<Command> {
        let program = executable(self.name);
        let file = Some(program.as_path()).filter(|it| it.is_absolute());
        let confinement = with_own(confinement.clone(), &[file, self.cwd]);
        Ok(self.prepared(launcher.command(&confinement, Life::Watched, program.as_os_str())?))
    }

    fn prepared(&self, mut command: Command) -> Command {
        if let Some(cwd) = self.cwd {
            command.current_dir(cwd);
        }
        command.envs(self.env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Says why the program could not be started, and what to do.
    pub(super) fn complaint(&self, err: &io::Error) -> String {
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
                format!("`{name}` may not be run: is it an executable file? ({err})")
            }
            _ => format!("`{name}` could not be started: {err}"),
        }
    }
}

/// Returns what to run for a name; `faber` is this very binary, wherever it lies.
fn executable(name: &str) -> PathBuf {
    let own = || std::env::current_exe().ok().filter(|it| it.exists());
    if name == "faber" { own().unwrap_or_else(|| name.into()) } else { name.into() }
}

/// A process and all that it has started; dropping it kills them.
pub(super) struct Group {
    child: Child,
    id: Option<Pid>,
}

impl Group {
    /// Starts a process in a group of its own.
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.process_group(0).kill_on_drop(true).spawn()?;
        let id = child.id().and_then(|it| i32::try_from(it).ok()).map(Pid::from_raw);
        Ok(Self { child, id })
    }

    /// Returns the process itself, to take its streams.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the process to end. Those that it has started may live on.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills the whole group at once.
    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Asks the whole group to end, and kills what is left after [`STOP_GRACE`].
    pub(super) async fn stop(&mut self) -> Option<ExitStatus> {
        self.signal(Signal::SIGTERM);
        let ended = timeout(STOP_GRACE, self.child.wait()).await;
        self.kill();
        match ended {
            Ok(status) => status.ok(),
            Err(_) => timeout(STOP_GRACE, self.child.wait()).await.ok()?.ok(),
        }
    }

    fn signal(&self, signal: Signal) {
        // An error says that the group is gone already, which is what was wanted.
        if let Some(id) = self.id {
            let _ = killpg(id, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Group").field(&self.id).finish()
    }
}

/// Says how a process ended: `exited with status 3`, `was ended by signal 9`.
pub(super) fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
pub(super) struct Tail(Vec<u8>);

impl Tail {
    /// Bytes that a tail keeps: what a person reads of an error.
    const BYTES: usize = 4 << 10;

    /// Adds what was read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() > 2 * Self::BYTES {
            self.0.drain(..self.0.len() - Self::BYTES);
        }
    }

    /// Returns the text, without the blank around it.
    pub(super) fn text(&self) -> String {
        let start = self.0.len().saturating_sub(Self::BYTES);
        String::from_utf8_lossy(&self.0[start..]).trim().to_owned()
    }
}

/// Reads a stream to its end and keeps the tail.
pub(super) async fn read_tail(mut stream: impl AsyncRead + Unpin, tail: &mut Tail) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        tail.push(&buffer[..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faber_is_this_binary() {
        assert_eq!(executable("faber"), std::env::current_exe().unwrap());
        assert_eq!(executable("fabel"), Path::new("fabel"));
    }

    #[test]
    fn a_tail_is_the_end() {
        let mut tail = Tail::default();
        for _ in 0..10_000 {
            tail.push(b"noise ");
        }
        tail.push("ende \u{e4}\n".as_bytes());
        let text = tail.text();
        assert!(text.ends_with("noise ende \u{e4}") && text.len() <= Tail::BYTES, "{text}");
    }
}
