//! What a command may do: where it may write, what it may read, how much of the machine it may use.
//!
//! A process can only confine itself, and between `fork` and `exec` little is safe. So a confined
//! command is started through the `faber` binary: its hidden subcommand `confined` ([`enter()`])
//! confines itself and then starts the program. A program that embeds Faber has no such
//! subcommand: it names a `faber` binary with [`Launcher::at`], or does without
//! ([`Launcher::none`]), and then commands get a clean environment and nothing else.
//!
//! What holds depends on the kernel; [`support`] says what this one has. Limits and process groups
//! work everywhere. Folders are Landlock's (Linux 5.13), TCP is since 6.7; UDP and other sockets
//! are not confined by it.

mod enter;
#[cfg(target_os = "linux")]
mod landlock;
#[cfg(not(target_os = "linux"))]
#[path = "confine/elsewhere.rs"]
mod landlock;
mod warden;

use std::{
    ffi::{OsStr, OsString},
    fmt, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::process::Command;

pub use self::enter::enter;

/// The name of the hidden subcommand that calls [`enter()`].
pub const SUBCOMMAND: &str = "confined";
/// Where [`enter()`] finds what it is to do. The program does not see it.
const ORDER: &str = "FABER_CONFINED";
/// What every command gets of the environment, where it is set.
const PASSED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];

/// What a command may do.
///
/// It may read and run what the system brings (`/usr`, `/etc`, …), what [`read`](Self::read) and
/// [`write`](Self::write) name, and nothing else where the kernel can see to that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Confinement {
    /// Folders and files that may be written, and read.
    pub write: Vec<PathBuf>,
    /// Folders and files that may be read and run, besides the system's.
    pub read: Vec<PathBuf>,
    /// Whether it may use TCP.
    pub network: bool,
    /// Seconds of processor time that one process may use.
    pub cpu_seconds: u64,
    /// Bytes of data that one process may have. Not its address space: many programs reserve much
    /// more of that than they use.
    pub memory_bytes: u64,
    /// Bytes that one file may grow to.
    pub file_bytes: u64,
    /// Files that one process may have open.
    pub open_files: u64,
    /// Names of environment variables that are passed on, besides `PATH`, `HOME`, `LANG` and
    /// `TMPDIR`.
    pub pass: Vec<String>,
}

impl Default for Confinement {
    fn default() -> Self {
        Self {
            write: Vec::new(),
            read: Vec::new(),
            network: false,
            // Six times what the slowest `bash` may take: many cores count many times.
            cpu_seconds: 3_600,
            // What a large build takes; a program that leaks reaches it before the machine ends.
            memory_bytes: 4 << 30,
            // A command that prints into a file without end does not fill the disk.
            file_bytes: 4 << 30,
            // The usual soft limit is 1024; some servers want more.
            open_files: 4_096,
            pass: Vec::new(),
        }
    }
}

/// How long a command may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Life {
    /// As long as its caller: all that it has started ends with it, and with a caller that is killed.
    Watched,
    /// As long as it wants, in a session of its own.
    Background,
}

/// What the subcommand is told.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    confinement: Confinement,
    life: Life,
    /// Who must be there for a watched command to go on.
    caller: u32,
}

/// What starts confined commands: a `faber` binary, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher(Option<PathBuf>);

impl Launcher {
    /// Uses the binary of this process, which must be `faber`: any other would be run as whatever
    /// it is.
    pub fn this_binary() -> Self {
        // Stays the same file where the binary has been replaced since.
        let own = PathBuf::from("/proc/self/exe");
        if own.exists() {
            return Self(Some(own));
        }
        Self(std::env::current_exe().ok())
    }

    /// Uses a `faber` binary that lies elsewhere.
    pub fn at(binary: PathBuf) -> Self {
        Self(Some(binary))
    }

    /// Confines nothing: commands get a clean environment, and may do what this process may.
    pub fn none() -> Self {
        Self(None)
    }

    /// Returns whether commands are confined.
    pub fn confines(&self) -> bool {
        self.0.is_some()
    }

    /// Prepares a program to be started: with a clean environment, and confined. Arguments,
    /// folder, streams and more of the environment are for the caller to add.
    ///
    /// A watched command must be started in a process group of its own, a background command must
    /// not: it makes a session.
    ///
    /// # Errors
    ///
    /// If a path is not UTF-8.
    pub fn command(
        &self,
        confinement: &Confinement,
        life: Life,
        program: &OsStr,
    ) -> io::Result<Command> {
        let Some(binary) = &self.0 else {
            let mut command = Command::new(program);
            clean(&mut command, &confinement.pass);
            if life == Life::Background {
                command.process_group(0);
            }
            return Ok(command);
        };
        let order = Order { confinement: confinement.clone(), life, caller: std::process::id() };
        let order = serde_json::to_string(&order)
            .map_err(|err| io::Error::new(io::ErrorKind::InvalidInput, err))?;
        let mut command = Command::new(binary);
        clean(&mut command, &confinement.pass);
        command.env(ORDER, order).arg(SUBCOMMAND).arg("--").arg(program);
        Ok(command)
    }
}

/// Leaves of the environment what every command gets, and what is named.
pub(crate) fn clean(command: &mut Command, named: &[String]) {
    command.env_clear();
    let named = named.iter().map(String::as_str);
    let kept = PASSED.into_iter().chain(named).filter(|it| *it != ORDER);
    command.envs(kept.filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?))));
}

/// What of a confinement this machine can hold a command to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct Support {
    /// Where it may read and write: Landlock, Linux 5.13.
    pub files: bool,
    /// Whether it may use TCP: Linux 6.7.
    pub tcp: bool,
    /// That it signals nobody outside: Linux 6.12.
    pub signals: bool,
    /// That it connects to no socket file outside: newer yet.
    pub sockets: bool,
    /// That it gains no privileges.
    pub privileges: bool,
}

/// Says what this machine can hold a command to. Nothing is confined by asking.
pub fn support() -> Support {
    landlock::support()
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.files, "folders"),
            (self.tcp, "TCP"),
            (self.signals, "signals"),
            (self.sockets, "socket files"),
            (self.privileges, "privileges"),
        ];
        let named = |wanted: bool| {
            let names: Vec<_> = parts.iter().filter(|it| it.0 == wanted).map(|it| it.1).collect();
            names.join(", ")
        };
        match (named(true), named(false)) {
            (held, free) if free.is_empty() => write!(f, "commands are confined in {held}"),
            (held, free) if held.is_empty() => {
                write!(f, "commands are confined by limits only; this kernel knows none of {free}")
            }
            (held, free) => write!(f, "commands are confined in {held}; not in {free}"),
        }
    }
}

/// Adds what a command needs to be able to run at all: where it runs, and its own file.
pub(crate) fn with_own(mut confinement: Confinement, own: &[Option<&Path>]) -> Confinement {
    confinement.read.extend(own.iter().flatten().map(|it| it.to_path_buf()));
    confinement
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn an_order_says_it_all() {
        let confinement = Confinement {
            write: vec!["/w".into()],
            network: true,
            pass: vec!["ÄPFEL".to_owned()],
            ..Confinement::default()
        };
        let order = Order { confinement, life: Life::Watched, caller: 7 };
        let text = serde_json::to_string(&order).unwrap();
        expect![[r#"{"confinement":{"write":["/w"],"read":[],"network":true,"cpu_seconds":3600,"memory_bytes":4294967296,"file_bytes":4294967296,"open_files":4096,"pass":["ÄPFEL"]},"life":"watched","caller":7}"#]].assert_eq(&text);
        assert_eq!(serde_json::from_str::<Order>(&text).unwrap(), order);
    }

    #[test]
    fn a_confinement_is_read_as_it_is_written() {
        let read = |text| serde_json::from_str::<Confinement>(text);
        assert_eq!(read("{}").unwrap(), Confinement::default());
        assert!(!Confinement::default().network);
        let wrong = read(r#"{"netwrok": true}"#).unwrap_err().to_string();
        assert!(wrong.starts_with("unknown field `netwrok`"), "{wrong}");
    }

    #[test]
    fn the_environment_is_clean() {
        let confinement = Confinement {
            pass: vec!["CARGO_MANIFEST_DIR".to_owned(), ORDER.to_owned()],
            ..Confinement::default()
        };
        for launcher in [Launcher::none(), Launcher::at("/bin/faber".into())] {
            let command =
                launcher.command(&confinement, Life::Watched, OsStr::new("prog")).unwrap();
            let envs: Vec<_> = command.as_std().get_envs().filter_map(|it| it.0.to_str()).collect();
            assert!(envs.contains(&"PATH") && envs.contains(&"CARGO_MANIFEST_DIR"), "{envs:?}");
            assert!(!envs.contains(&"CARGO_PKG_NAME"), "{envs:?}");
            assert_eq!(envs.contains(&ORDER), launcher.confines());
        }
    }

    #[test]
    fn support_is_told_in_words() {
        let mut support =
            Support { files: true, tcp: true, signals: true, sockets: false, privileges: true };
        expect!["commands are confined in folders, TCP, signals, privileges; not in socket files"]
            .assert_eq(&support.to_string());
        support.sockets = true;
        expect!["commands are confined in folders, TCP, signals, socket files, privileges"]
            .assert_eq(&support.to_string());
    }
}
