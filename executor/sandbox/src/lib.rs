//! Confined commands: files, network and resources that a command may use.
//!
//! A process can only confine itself, and between `fork` and `exec` little is safe. So a confined
//! command is started through the `faber` binary: its hidden subcommand `confined` ([`enter()`])
//! confines itself and then starts the program. A program that embeds Faber has no such
//! subcommand: it names a `faber` binary with [`Launcher::at`], or does without
//! ([`Launcher::none`]), and then commands get a clean environment and nothing else.
//!
//! What holds depends on the kernel; [`support`] says what this one has. Limits and process groups
//! work everywhere. Folders are Landlock's (Linux 6.2), sockets are kept away by a filter of system
//! calls, and the rights of an administrator are given up.

mod enter;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(not(target_os = "linux"))]
#[path = "unsupported.rs"]
mod kernel;
mod names;
mod placeholders;
pub mod process;
mod process_limit;
mod reaper;

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use secrets::Redaction;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use self::placeholders::{Kind, Placeholders};
pub use self::{enter::enter, kernel::keep_to_itself, names::ResolvedPath};

/// The name of the hidden subcommand that calls [`enter()`].
pub const SUBCOMMAND: &str = "confined";
/// The variable with the order for [`enter()`]. The program does not see it.
const ORDER: &str = "FABER_CONFINED";
/// The status of [`enter()`] where nothing was started, as `env` and others have it.
const REFUSED: u8 = 125;
/// The start of its message.
const REFUSAL: &str = "the command is not confined: ";
/// The advice if a command's folder contains files of Faber.
pub const ELSEWHERE: &str = "let it work in a folder of its own, such as `root: ./work`";
/// The protection that needs Landlock, as the end of a sentence.
const FILES: &str = "what it reads and writes (that takes Landlock: Linux 6.2)";
/// The protection that needs seccomp.
const CALLS: &str = "what it connects to (that takes filters of system calls: seccomp)";
/// Variables that a confined command gets.
const PASSED: [&str; 4] = ["PATH", "HOME", "LANG", "TMPDIR"];
/// What any other program gets: who and where it is, how to print, how to reach the network, and
/// where languages keep their libraries. A star stands for whatever follows. Never what may be a
/// secret: that is named where it is needed.
const USUAL: [&str; 52] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TZ",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TMPDIR",
    "TMP",
    "TEMP",
    "XDG_*",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONUSERBASE",
    "PYTHONUNBUFFERED",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYENV_ROOT",
    "UV_CACHE_DIR",
    "UV_PYTHON",
    "PIP_CACHE_DIR",
    "NODE_PATH",
    "NVM_DIR",
    "VOLTA_HOME",
    "DENO_DIR",
    "BUN_INSTALL",
    "npm_config_cache",
    "npm_config_prefix",
    "JAVA_HOME",
    "GOPATH",
    "GOROOT",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GEM_HOME",
];

/// The limits of a command.
///
/// It may read and run what the system brings (`/usr`, `/etc`, …), what [`read`](Self::read) and
/// [`write`](Self::write) name, and nothing else where the kernel can see to that. Of `/etc` it may
/// read what every user may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Confinement {
    /// Folders and files that may be written, and read.
    pub write: Vec<PathBuf>,
    /// Folders and files that may be read and run, besides the system's.
    pub read: Vec<PathBuf>,
    /// The user that it runs as; Faber's own where nothing is said. That takes `root`.
    pub user: Option<String>,
    /// `true` if it may use the network, UDP and loopback included.
    pub network: bool,
    /// `true` if it may connect to socket files, whose servers could act for it.
    pub sockets: bool,
    /// `true` if the command is refused on machines that cannot restrict its files.
    pub required: bool,
    /// Seconds of processor time that one process may use.
    pub cpu_seconds: u64,
    /// Bytes of data that one process may have. Not its address space: many programs reserve much
    /// more of that than they use.
    pub memory_bytes: u64,
    /// Bytes that one file may grow to.
    pub file_bytes: u64,
    /// Files that one process may have open.
    pub open_files: u64,
    /// Processes and threads that it may have at the same time.
    pub processes: u64,
    /// Names of environment variables that are passed on, besides `PATH`, `HOME`, `LANG` and
    /// `TMPDIR`; a star at the end stands for whatever follows.
    pub pass: Vec<String>,
}

impl Default for Confinement {
    fn default() -> Self {
        Self {
            write: Vec::new(),
            read: Vec::new(),
            user: None,
            network: false,
            sockets: false,
            required: true,
            // Six times what the slowest `bash` may take: many cores count many times.
            cpu_seconds: 3_600,
            // What a large build takes; a program that leaks reaches it before the machine ends.
            memory_bytes: 4 << 30,
            // A command that prints into a file without end does not fill the disk.
            file_bytes: 4 << 30,
            // The usual soft limit is 1024; some servers want more.
            open_files: 4_096,
            // A build has hundreds, a bomb any number.
            processes: 4_096,
            pass: Vec::new(),
        }
    }
}

impl Confinement {
    /// Returns whether some sockets are kept away.
    fn is_closed(&self) -> bool {
        !self.network || !self.sockets
    }
}

/// The lifetime of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Life {
    /// As long as its caller: all that it has started ends with it, and with a caller that is killed.
    Watched,
    /// As long as it wants, in a session of its own.
    Background,
}

/// The order for the subcommand.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    /// The limits. Without them the command may do what this process may.
    confinement: Option<Confinement>,
    /// Hidden paths inside folders that it may use.
    hidden: Vec<PathBuf>,
    /// Read-only paths inside folders that it may write.
    kept: Vec<PathBuf>,
    life: Life,
    /// The process id of the caller. A watched command ends with it.
    caller: u32,
}

/// Starts confined commands through a `faber` binary, or unconfined without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launcher {
    binary: Option<PathBuf>,
    hidden: Vec<PathBuf>,
    /// The hidden paths that are folders, including those that do not exist yet.
    folders: Vec<PathBuf>,
    kept: Vec<PathBuf>,
    /// The variables that are secrets.
    secrets: BTreeSet<String>,
    placeholders: Arc<Placeholders>,
}

impl Launcher {
    /// Uses the binary of this process, which must be `faber`: any other would be run as whatever
    /// it is.
    pub fn this_binary() -> Self {
        // Stays the same file where the binary has been replaced since.
        let own = PathBuf::from("/proc/self/exe");
        let binary = if own.exists() { Some(own) } else { std::env::current_exe().ok() };
        Self { binary, ..Self::default() }
    }

    /// Uses a `faber` binary that lies elsewhere.
    pub fn at(binary: PathBuf) -> Self {
        Self { binary: Some(binary), ..Self::default() }
    }

    /// Confines nothing: commands get a clean environment, and may do what this process may.
    pub fn none() -> Self {
        Self::default()
    }

    /// Keeps files and folders of Faber's own away from tools, also where these may otherwise do
    /// as they like: what holds the configuration and the store decides what Faber does.
    #[must_use]
    pub fn hiding(self, hidden: Vec<PathBuf>) -> Self {
        Self { hidden, ..self }
    }

    /// Names the hidden paths that are folders, since a missing path does not tell.
    #[must_use]
    pub fn with_folders(self, folders: Vec<PathBuf>) -> Self {
        Self { folders, ..self }
    }

    /// Says which variables of Faber's environment are secrets: where a command gets one and prints
    /// it, its name stands there instead.
    #[must_use]
    pub fn with_secrets(self, secrets: BTreeSet<String>) -> Self {
        Self { secrets, ..self }
    }

    /// Keeps programs that Faber runs as they are: whoever changes one has it run with all that
    /// Faber may.
    #[must_use]
    pub fn keeping(self, kept: Vec<PathBuf>) -> Self {
        Self { kept, ..self }
    }

    /// Returns what file tools are kept away from.
    pub fn own(&self) -> Vec<PathBuf> {
        [self.hidden.as_slice(), self.kept.as_slice()].concat()
    }

    /// Notes what a command gets of Faber's environment that is a secret.
    pub fn note_passed(&self, pass: &[String], seen: &mut Redaction) {
        let is_passed = |it: &&String| pass.iter().any(|listed| stands_for(listed, it));
        self.secrets.iter().filter(is_passed).for_each(|it| seen.note_variable(it));
    }

    /// Takes the names of Faber's own that nothing has yet where a command may write.
    fn take_places(&self, confinement: &Confinement) -> io::Result<()> {
        let kind = |it: &PathBuf| {
            if self.folders.contains(it) { Kind::Folder } else { Kind::File }
        };
        let hidden = self.hidden.iter().map(|it| (it.as_path(), kind(it)));
        let kept = self.kept.iter().map(|it| (it.as_path(), Kind::File));
        self.placeholders.take(hidden.chain(kept), &confinement.write)
    }

    /// Returns whether commands are confined.
    pub fn confines(&self) -> bool {
        self.binary.is_some()
    }

    /// Prepares a program to be started: with a clean environment, and confined. Arguments,
    /// folder, streams and more of the environment are for the caller to add.
    ///
    /// A watched command must be started in a process group of its own, a background command must
    /// not: it makes a session.
    ///
    /// # Errors
    ///
    /// If a path is not UTF-8, or something of Faber's own is not there yet where the command may
    /// write, and its name cannot be taken.
    pub fn command(
        &self,
        confinement: &Confinement,
        life: Life,
        program: &OsStr,
    ) -> io::Result<Command> {
        let Some(binary) = &self.binary else {
            if let Some(user) = &confinement.user {
                let why = format!("nothing here can become the user `{user}`: leave out `user`");
                return Err(io::Error::other(why));
            }
            let mut command = Command::new(program);
            clean(&mut command, &PASSED, &confinement.pass);
            if life == Life::Background {
                command.process_group(0);
            }
            return Ok(command);
        };
        // What is in the background may live longer than what is put there: it is refused instead.
        if life == Life::Watched || !confinement.required {
            let taken = self.take_places(confinement);
            taken.or_else(|err| if confinement.required { Err(err) } else { Ok(()) })?;
        }
        let order = Order {
            confinement: Some(confinement.clone()),
            hidden: self.hidden.clone(),
            kept: self.kept.clone(),
            life,
            caller: std::process::id(),
        };
        let mut command = ordered(binary, program);
        clean(&mut command, &PASSED, &confinement.pass);
        command.env(ORDER, written(&order)?);
        Ok(command)
    }

    /// Prepares a program that may do what this process may, and ends with all that it has
    /// started. Of the environment it gets the usual, and what `pass` names.
    fn watched(&self, program: &OsStr, pass: &[String]) -> io::Result<Command> {
        let Some(binary) = &self.binary else {
            let mut command = Command::new(program);
            clean(&mut command, &USUAL, pass);
            return Ok(command);
        };
        let order = Order {
            confinement: None,
            hidden: Vec::new(),
            kept: Vec::new(),
            life: Life::Watched,
            caller: std::process::id(),
        };
        let mut command = ordered(binary, program);
        clean(&mut command, &USUAL, pass);
        command.env(ORDER, written(&order)?);
        Ok(command)
    }
}

/// Returns whether a command is watched by a process between it and Faber, which ends all that it
/// has started.
fn has_warden(command: &Command) -> bool {
    command.as_std().get_envs().any(|(name, value)| name == ORDER && value.is_some())
}

/// Returns why nothing was started, where a command ended so because it could not be confined.
pub fn refusal(code: Option<i32>, stderr: &str) -> Option<&str> {
    let is_refused = code == Some(i32::from(REFUSED)) && stderr.starts_with(REFUSAL);
    is_refused.then(|| stderr.trim_end())
}

/// Returns whether a process is still what confines a background command, and has not become it;
/// nowhere without a `/proc`.
pub fn is_confining(process: u32) -> bool {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    line.split(|it| *it == 0).nth(1) == Some(SUBCOMMAND.as_bytes())
}

/// Prepares the subcommand for a program.
fn ordered(binary: &Path, program: &OsStr) -> Command {
    let mut command = Command::new(binary);
    command.arg(SUBCOMMAND).arg("--").arg(program);
    command
}

fn written(order: &Order) -> io::Result<String> {
    serde_json::to_string(order).map_err(|err| io::Error::new(io::ErrorKind::InvalidInput, err))
}

/// Leaves of the environment what is usual, and what is named. Who may pass a proxy is a secret,
/// unless the proxy is named.
fn clean(command: &mut Command, usual: &[&str], named: &[String]) {
    command.env_clear();
    command.envs(std::env::vars_os().filter_map(|(name, value)| {
        let text = name.to_str().filter(|it| *it != ORDER)?;
        if named.iter().any(|it| stands_for(it, text)) {
            return Some((name, value));
        }
        let is_usual = usual.iter().any(|it| stands_for(it, text));
        let is_proxy = text.to_ascii_lowercase().ends_with("_proxy");
        let value = if is_proxy { without_user(value.to_str()?).into() } else { value };
        is_usual.then_some((name, value))
    }));
}

/// Takes the name and the password out of an address.
fn without_user(address: &str) -> String {
    let (scheme, rest) = address
        .split_once("://")
        .map_or(("", address), |(scheme, rest)| (&address[..scheme.len() + "://".len()], rest));
    // A password may contain anything: what is before the last sign goes.
    format!("{scheme}{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host))
}

/// Returns whether a name of a list is that of a variable, or begins it and ends in a star.
fn stands_for(listed: &str, name: &str) -> bool {
    listed.strip_suffix('*').map_or(listed == name, |it| name.starts_with(it))
}

/// The parts of a confinement that this machine supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
pub struct Support {
    /// Files: Landlock, Linux 6.2. Before that, truncation is possible anywhere.
    pub files: bool,
    /// That it opens no TCP port: Linux 6.7. With [`calls`](Self::calls) it has no network at all.
    pub tcp: bool,
    /// That it signals nobody outside: Linux 6.12.
    pub signals: bool,
    /// System calls, and so sockets: seccomp.
    pub calls: bool,
    /// That it gains no privileges.
    pub privileges: bool,
}

/// Returns what this machine supports. Confines nothing.
pub fn support() -> Support {
    kernel::support()
}

impl Support {
    /// Returns what is missing to hold a command to its confinement, where that is required.
    pub fn missing(&self, confinement: &Confinement) -> Option<&'static str> {
        if !self.files {
            return Some(FILES);
        }
        (confinement.is_closed() && !self.calls).then_some(CALLS)
    }
}

impl fmt::Display for Support {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.files, "folders"),
            (self.tcp, "TCP"),
            (self.signals, "signals"),
            (self.calls, "sockets"),
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

/// Refuses a command because this machine does not see to something.
fn unseen(what: &str) -> io::Error {
    io::Error::other(format!(
        "this machine cannot see to {what}: run it elsewhere, or say `confine: {{required: false}}`"
    ))
}

/// Adds what a command needs to be able to run at all: its own file, and where it was told to run.
fn with_own(mut confinement: Confinement, own: &[Option<&Path>]) -> Confinement {
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
        let hidden = vec!["/w/faber.db".into()];
        let kept = vec!["/w/tool.sh".into()];
        let order =
            Order { confinement: Some(confinement), hidden, kept, life: Life::Watched, caller: 7 };
        let text = serde_json::to_string(&order).unwrap();
        expect![[r#"{"confinement":{"write":["/w"],"read":[],"user":null,"network":true,"sockets":false,"required":true,"cpu_seconds":3600,"memory_bytes":4294967296,"file_bytes":4294967296,"open_files":4096,"processes":4096,"pass":["ÄPFEL"]},"hidden":["/w/faber.db"],"kept":["/w/tool.sh"],"life":"watched","caller":7}"#]].assert_eq(&text);
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
    fn an_address_is_passed_on_without_who_may_use_it() {
        for (address, expected) in [
            ("http://proxy:3128", "http://proxy:3128"),
            ("http://me:pass@proxy:3128/", "http://proxy:3128/"),
            ("http://me:p@ss/w?rd@proxy:3128", "http://proxy:3128"),
            ("me:pass@proxy", "proxy"),
            ("localhost,.local", "localhost,.local"),
            ("", ""),
        ] {
            assert_eq!(without_user(address), expected, "{address}");
        }
    }

    #[test]
    fn what_must_hold_is_known() {
        let all = Support { files: true, tcp: true, signals: true, calls: true, privileges: true };
        let closed = Confinement::default();
        let open = Confinement { network: true, sockets: true, ..Confinement::default() };
        let wide = Confinement { network: true, ..Confinement::default() };
        let missing = |support: Support, of| support.missing(of).is_some();
        assert!(!missing(all, &closed));
        for confinement in [&closed, &wide] {
            assert!(missing(Support { calls: false, ..all }, confinement));
        }
        assert!(!missing(Support { calls: false, ..all }, &open));
        assert!(missing(Support { files: false, ..all }, &open));
    }

    #[test]
    fn only_faber_s_own_refusal_is_one() {
        assert_eq!(
            refusal(Some(125), "the command is not confined: x\n"),
            Some("the command is not confined: x")
        );
        assert_eq!(refusal(Some(125), "docker: no such image"), None);
        assert_eq!(refusal(Some(1), "the command is not confined: x"), None);
    }

    #[test]
    fn a_program_gets_the_usual_environment_and_what_is_named() {
        let named = |pass: &[&str]| {
            let pass: Vec<_> = pass.iter().map(|it| (*it).to_owned()).collect();
            let command = Launcher::none().watched(OsStr::new("prog"), &pass).unwrap();
            let envs = command.as_std().get_envs().filter_map(|it| it.0.to_str());
            envs.map(str::to_owned).collect::<Vec<_>>()
        };
        let has = |of: &[String], name: &str| of.iter().any(|it| it == name);
        let usual = named(&[]);
        assert!(has(&usual, "PATH") && !has(&usual, "CARGO_PKG_NAME"), "{usual:?}");
        assert!(has(&named(&["CARGO_PKG_NAME"]), "CARGO_PKG_NAME"));
        let many = named(&["CARGO_PKG_*"]);
        assert!(has(&many, "CARGO_PKG_NAME") && has(&many, "CARGO_PKG_VERSION"), "{many:?}");
        assert!(!has(&many, "CARGO_MANIFEST_DIR"), "{many:?}");
    }

    #[test]
    fn support_is_told_in_words() {
        let mut support =
            Support { files: true, tcp: true, signals: true, calls: false, privileges: true };
        expect!["commands are confined in folders, TCP, signals, privileges; not in sockets"]
            .assert_eq(&support.to_string());
        support.calls = true;
        expect!["commands are confined in folders, TCP, signals, sockets, privileges"]
            .assert_eq(&support.to_string());
    }
}
