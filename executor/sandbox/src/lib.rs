//! Sandbox for commands.
//!
//! A process can only restrict itself, and little is safe between `fork` and `exec`. So a command
//! starts through the `faber` binary, whose hidden subcommand ([`run_confined`]) restricts its own
//! process and then runs the program.

#[cfg(target_os = "linux")]
mod kernel;
#[cfg(not(target_os = "linux"))]
#[path = "unsupported.rs"]
mod kernel;
mod placeholders;
pub mod process;
mod process_limit;
mod reaper;
mod resolved_path;
mod subcommand;

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

use self::placeholders::{PlaceholderKind, Placeholders};
pub use self::{
    kernel::hide_process_memory, resolved_path::ResolvedPath, subcommand::run_confined,
};

/// The name of the hidden subcommand that calls [`run_confined`].
pub const SUBCOMMAND: &str = "confined";
/// The variable with the [`LaunchOrder`]. It is removed before the program starts.
const ORDER_VARIABLE: &str = "FABER_CONFINED";
/// The exit status if nothing was started, the same as of `env` and similar programs.
const REFUSED_STATUS: u8 = 125;
const REFUSAL_PREFIX: &str = "the command is not confined: ";
/// The advice if a command's folder contains files of Faber.
pub const OWN_FOLDER_ADVICE: &str = "give the tool a separate folder, such as `root: ./work`";
const NEEDS_LANDLOCK: &str = "the files that the command uses (this needs Landlock: Linux 6.2)";
const NEEDS_SECCOMP: &str = "the connections of the command (this needs system call filters: \
                             seccomp)";
const CONFINED_VARIABLES: [&str; 4] = ["PATH", HOME_VARIABLE, "LANG", "TMPDIR"];
const HOME_VARIABLE: &str = "HOME";
/// Variables that other programs get, none of which may be a secret. A star matches any suffix.
const PROGRAM_VARIABLES: [&str; 52] = [
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
/// The command may read and run the folders of the system (`/usr`, `/etc`, …), and the paths in
/// [`read`](Self::read) and [`write`](Self::write). Of `/etc`, `/opt` and `/usr/local` it may read
/// only the files that every user may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Confinement {
    pub write: Vec<PathBuf>,
    /// Files and folders to read and run, besides the folders of the system.
    pub read: Vec<PathBuf>,
    /// The user that runs the command. The default is Faber's user. Another user needs `root`.
    pub user: Option<String>,
    /// `true` allows network sockets, including UDP and loopback.
    pub network: bool,
    /// `true` allows connections to socket files. A server at such a file can act for the command
    /// without these limits.
    pub sockets: bool,
    /// `true` refuses the command on machines that cannot restrict its files or its sockets.
    pub required: bool,
    /// CPU seconds of one process.
    pub cpu_seconds: u64,
    /// Bytes of data of one process. Address space is not limited, because many programs reserve
    /// much more than they use.
    pub memory_bytes: u64,
    pub file_bytes: u64,
    pub open_files: u64,
    /// Processes and threads at the same time.
    pub processes: u64,
    /// Names of environment variables to pass on, besides `PATH`, `HOME`, `LANG` and `TMPDIR`. A
    /// star at the end matches any suffix.
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
            // Six times the longest timeout of `bash`, because the limit counts the time of each
            // core.
            cpu_seconds: 3_600,
            // Enough for a large build. A leaking program fails before the machine runs out of
            // memory.
            memory_bytes: 4 << 30,
            // Keeps endless output from filling the disk.
            file_bytes: 4 << 30,
            // More than the usual soft limit of 1024, because some servers need more.
            open_files: 4_096,
            // Enough for a build, which has hundreds, and low enough to stop a fork bomb.
            processes: 4_096,
            pass: Vec::new(),
        }
    }
}

impl Confinement {
    fn restricts_sockets(&self) -> bool {
        !self.network || !self.sockets
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lifetime {
    /// Ends together with its caller. Everything that it started ends with it.
    Watched,
    /// Runs in a session of its own until it ends.
    Background,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LaunchOrder {
    /// The limits. `None` applies no restrictions.
    confinement: Option<Confinement>,
    hidden: Vec<PathBuf>,
    kept: Vec<PathBuf>,
    life: Lifetime,
    caller: u32,
}

/// Starts confined commands through a `faber` binary, or unconfined commands without one.
#[derive(Clone, Debug, Default)]
pub struct Launcher {
    binary: Option<PathBuf>,
    hidden: Vec<PathBuf>,
    /// The hidden paths that are folders, including folders that do not exist.
    folders: Vec<PathBuf>,
    kept: Vec<PathBuf>,
    secrets: BTreeSet<String>,
    placeholders: Arc<Placeholders>,
}

impl Launcher {
    /// Makes a launcher that starts commands through [`SUBCOMMAND`] of this process's own binary.
    /// Only `faber` has that subcommand, so other programs must not call this function.
    pub fn this_binary() -> Self {
        // Uses this path because it refers to the running file, even after the binary was replaced.
        let own_binary = PathBuf::from("/proc/self/exe");
        let binary =
            if own_binary.exists() { Some(own_binary) } else { std::env::current_exe().ok() };
        Self { binary, ..Self::default() }
    }

    pub fn with_binary(binary: PathBuf) -> Self {
        Self { binary: Some(binary), ..Self::default() }
    }

    /// Applies no restrictions. Commands get a clean environment.
    pub fn unconfined() -> Self {
        Self::default()
    }

    /// Hides Faber's own files and folders from tools, even inside folders that tools may use. A
    /// tool that could change the configuration or the store would control Faber.
    #[must_use]
    pub fn with_hidden(self, hidden: Vec<PathBuf>) -> Self {
        Self { hidden, ..self }
    }

    /// Names the hidden paths that are folders. This is needed because a missing path does not show
    /// its kind.
    #[must_use]
    pub fn with_folders(self, folders: Vec<PathBuf>) -> Self {
        Self { folders, ..self }
    }

    /// Names the variables with secrets. In the output of a command, the value is replaced by the
    /// name.
    #[must_use]
    pub fn with_secrets(self, secrets: BTreeSet<String>) -> Self {
        Self { secrets, ..self }
    }

    /// Keeps programs that Faber runs read-only, because a changed program would run with all
    /// rights of Faber.
    #[must_use]
    pub fn with_read_only(self, kept: Vec<PathBuf>) -> Self {
        Self { kept, ..self }
    }

    pub fn protected_paths(&self) -> Vec<PathBuf> {
        [self.hidden.as_slice(), self.kept.as_slice()].concat()
    }

    pub fn add_passed_secrets(&self, pass: &[String], redaction: &mut Redaction) {
        let is_passed = |secret: &&String| pass.iter().any(|listed| matches_name(listed, secret));
        self.secrets.iter().filter(is_passed).for_each(|secret| redaction.add_variable(secret));
    }

    fn create_placeholders(&self, confinement: &Confinement) -> io::Result<()> {
        let kind = |path: &PathBuf| {
            if self.folders.contains(path) {
                PlaceholderKind::Folder
            } else {
                PlaceholderKind::File
            }
        };
        let hidden = self.hidden.iter().map(|path| (path.as_path(), kind(path)));
        let kept = self.kept.iter().map(|path| (path.as_path(), PlaceholderKind::File));
        self.placeholders.create_missing(hidden.chain(kept), &confinement.write)
    }

    pub fn can_confine(&self) -> bool {
        self.binary.is_some()
    }

    /// Prepares a confined program with a clean environment. The caller adds arguments, working
    /// directory, streams and variables.
    ///
    /// The caller must start a watched command in a new process group. A background command creates
    /// a session and must not get a new process group.
    ///
    /// # Errors
    ///
    /// If a path is not UTF-8, a placeholder of a required confinement cannot be created, or the
    /// command needs another user and this launcher has no binary.
    pub fn confined_command(
        &self,
        confinement: &Confinement,
        life: Lifetime,
        program: &OsStr,
    ) -> io::Result<Command> {
        let Some(binary) = &self.binary else {
            if let Some(user) = &confinement.user {
                let reason =
                    format!("this program cannot run commands as the user `{user}`: remove `user`");
                return Err(io::Error::other(reason));
            }
            let mut command = Command::new(program);
            clean_environment(&mut command, &CONFINED_VARIABLES, &confinement.pass);
            if life == Lifetime::Background {
                command.process_group(0);
            }
            return Ok(command);
        };
        // Creates no placeholders for a required confinement in the background, because the command
        // may outlive them. The subcommand refuses the command if it would need one.
        if life == Lifetime::Watched || !confinement.required {
            let created = self.create_placeholders(confinement);
            created.or_else(|err| if confinement.required { Err(err) } else { Ok(()) })?;
        }
        let order = LaunchOrder {
            confinement: Some(confinement.clone()),
            hidden: self.hidden.clone(),
            kept: self.kept.clone(),
            life,
            caller: std::process::id(),
        };
        // Another user must not get Faber's `HOME`, so the subcommand sets the `HOME` of that user.
        let is_usual = |name: &&str| *name != HOME_VARIABLE || confinement.user.is_none();
        let usual: Vec<&str> = CONFINED_VARIABLES.into_iter().filter(is_usual).collect();
        subcommand_for(binary, program, &order, &usual, &confinement.pass)
    }

    /// Prepares an unconfined program, with the usual variables and the variables in `pass`. If
    /// this launcher has a binary, everything that the program started ends with it.
    fn watched_command(&self, program: &OsStr, pass: &[String]) -> io::Result<Command> {
        let Some(binary) = &self.binary else {
            let mut command = Command::new(program);
            clean_environment(&mut command, &PROGRAM_VARIABLES, pass);
            return Ok(command);
        };
        let order = LaunchOrder {
            confinement: None,
            hidden: Vec::new(),
            kept: Vec::new(),
            life: Lifetime::Watched,
            caller: std::process::id(),
        };
        subcommand_for(binary, program, &order, &PROGRAM_VARIABLES, pass)
    }
}

pub fn refusal_reason(code: Option<i32>, stderr: &str) -> Option<&str> {
    let is_refused = code == Some(i32::from(REFUSED_STATUS)) && stderr.starts_with(REFUSAL_PREFIX);
    is_refused.then(|| stderr.trim_end())
}

/// Returns whether a process still runs the subcommand of a background command. Without `/proc`
/// returns `false`.
pub fn is_confining(process: u32) -> bool {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(SUBCOMMAND.as_bytes())
}

fn subcommand_for(
    binary: &Path,
    program: &OsStr,
    order: &LaunchOrder,
    usual: &[&str],
    named: &[String],
) -> io::Result<Command> {
    let order = serde_json::to_string(order)
        .map_err(|err| io::Error::new(io::ErrorKind::InvalidInput, err))?;
    let mut command = Command::new(binary);
    command.arg(SUBCOMMAND).arg("--").arg(program);
    clean_environment(&mut command, usual, named);
    command.env(ORDER_VARIABLE, order);
    Ok(command)
}

/// Sets the environment to the usual variables and the named variables. A proxy's credentials are
/// secret, so they are removed unless the variable is named.
fn clean_environment(command: &mut Command, usual: &[&str], named: &[String]) {
    command.env_clear();
    command.envs(std::env::vars_os().filter_map(|(name, value)| {
        let text = name.to_str().filter(|name| *name != ORDER_VARIABLE)?;
        if named.iter().any(|listed| matches_name(listed, text)) {
            return Some((name, value));
        }
        let is_usual = usual.iter().any(|listed| matches_name(listed, text));
        let is_proxy = text.to_ascii_lowercase().ends_with("_proxy");
        let value = if is_proxy { remove_credentials(value.to_str()?).into() } else { value };
        is_usual.then_some((name, value))
    }));
}

fn remove_credentials(address: &str) -> String {
    let (scheme, rest) = address
        .split_once("://")
        .map_or(("", address), |(scheme, rest)| (&address[..scheme.len() + "://".len()], rest));
    // A password may contain `@`, so the host begins after the last `@`.
    format!("{scheme}{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host))
}

/// Returns whether a listed name matches a variable. A star at the end matches any suffix.
fn matches_name(listed: &str, name: &str) -> bool {
    listed.strip_suffix('*').map_or(listed == name, |prefix| name.starts_with(prefix))
}

/// The accesses of a command that this kernel can restrict, with the first Linux version that can
/// restrict them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent")]
pub struct Support {
    /// Access to files: Landlock, Linux 6.2. Older versions do not restrict truncation.
    pub files: bool,
    /// Access to TCP ports: Landlock, Linux 6.7. [`calls`](Self::calls) restricts other sockets,
    /// such as UDP.
    pub tcp: bool,
    /// Signals to other processes: Linux 6.12.
    pub signals: bool,
    /// System calls, including the calls that create sockets: seccomp.
    pub calls: bool,
    /// New privileges, such as those of setuid programs: `no_new_privs`.
    pub privileges: bool,
}

pub fn kernel_support() -> Support {
    kernel::kernel_support()
}

impl Support {
    pub fn missing_for(&self, confinement: &Confinement) -> Option<&'static str> {
        if !self.files {
            return Some(NEEDS_LANDLOCK);
        }
        (confinement.restricts_sockets() && !self.calls).then_some(NEEDS_SECCOMP)
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
            let names: Vec<_> =
                parts.iter().filter(|part| part.0 == wanted).map(|part| part.1).collect();
            names.join(", ")
        };
        match (named(true), named(false)) {
            (held, free) if free.is_empty() => write!(f, "commands are confined in {held}"),
            (held, free) if held.is_empty() => {
                write!(
                    f,
                    "commands are confined by limits only; this kernel supports none of {free}"
                )
            }
            (held, free) => write!(f, "commands are confined in {held}; not in {free}"),
        }
    }
}

fn unsupported_error(subject: &str) -> io::Error {
    io::Error::other(format!(
        "this machine cannot confine {subject}: run it on another machine, or set `confine: \
         {{required: false}}`"
    ))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_launch_order_survives_serialization() {
        let confinement = Confinement {
            write: vec!["/w".into()],
            network: true,
            pass: vec!["ÄPFEL".to_owned()],
            ..Confinement::default()
        };
        let hidden = vec!["/w/faber.db".into()];
        let kept = vec!["/w/tool.sh".into()];
        let order = LaunchOrder {
            confinement: Some(confinement),
            hidden,
            kept,
            life: Lifetime::Watched,
            caller: 7,
        };
        let text = serde_json::to_string(&order).unwrap();
        expect![[r#"{"confinement":{"write":["/w"],"read":[],"user":null,"network":true,"sockets":false,"required":true,"cpu_seconds":3600,"memory_bytes":4294967296,"file_bytes":4294967296,"open_files":4096,"processes":4096,"pass":["ÄPFEL"]},"hidden":["/w/faber.db"],"kept":["/w/tool.sh"],"life":"watched","caller":7}"#]].assert_eq(&text);
        assert_eq!(serde_json::from_str::<LaunchOrder>(&text).unwrap(), order);
    }

    #[test]
    fn a_confinement_with_an_unknown_field_is_rejected() {
        let read = |text| serde_json::from_str::<Confinement>(text);
        assert_eq!(read("{}").unwrap(), Confinement::default());
        assert!(!Confinement::default().network);
        let wrong = read(r#"{"netwrok": true}"#).unwrap_err().to_string();
        assert!(wrong.starts_with("unknown field `netwrok`"), "{wrong}");
    }

    #[test]
    fn a_command_gets_no_variables_of_faber() {
        let confinement = Confinement {
            pass: vec!["CARGO_MANIFEST_DIR".to_owned(), ORDER_VARIABLE.to_owned()],
            ..Confinement::default()
        };
        for launcher in [Launcher::unconfined(), Launcher::with_binary("/bin/faber".into())] {
            let command = launcher
                .confined_command(&confinement, Lifetime::Watched, OsStr::new("prog"))
                .unwrap();
            let envs: Vec<_> =
                command.as_std().get_envs().filter_map(|pair| pair.0.to_str()).collect();
            assert!(envs.contains(&"PATH") && envs.contains(&"CARGO_MANIFEST_DIR"), "{envs:?}");
            assert!(!envs.contains(&"CARGO_PKG_NAME"), "{envs:?}");
            assert_eq!(envs.contains(&ORDER_VARIABLE), launcher.can_confine());
        }
    }

    #[test]
    fn another_user_does_not_get_the_home_of_faber() {
        let has_home = |confinement: Confinement| {
            let launcher = Launcher::with_binary("/bin/faber".into());
            let command =
                launcher.confined_command(&confinement, Lifetime::Watched, OsStr::new("prog"));
            command.unwrap().as_std().get_envs().any(|(name, _)| name == HOME_VARIABLE)
        };
        let user = || Some("nobody".to_owned());
        assert!(has_home(Confinement::default()));
        assert!(!has_home(Confinement { user: user(), ..Confinement::default() }));
        // If `pass` names `HOME`, another user gets Faber's `HOME`, too.
        let pass = vec![HOME_VARIABLE.to_owned()];
        assert!(has_home(Confinement { user: user(), pass, ..Confinement::default() }));
    }

    #[test]
    fn credentials_are_removed_from_proxy_urls() {
        for (address, expected) in [
            ("http://proxy:3128", "http://proxy:3128"),
            ("http://me:pass@proxy:3128/", "http://proxy:3128/"),
            ("http://me:p@ss/w?rd@proxy:3128", "http://proxy:3128"),
            ("me:pass@proxy", "proxy"),
            ("localhost,.local", "localhost,.local"),
            ("", ""),
        ] {
            assert_eq!(remove_credentials(address), expected, "{address}");
        }
    }

    #[test]
    fn missing_kernel_support_is_reported_for_each_confinement() {
        let all = Support { files: true, tcp: true, signals: true, calls: true, privileges: true };
        let closed = Confinement::default();
        let open = Confinement { network: true, sockets: true, ..Confinement::default() };
        let wide = Confinement { network: true, ..Confinement::default() };
        let missing = |support: Support, of| support.missing_for(of).is_some();
        assert!(!missing(all, &closed));
        for confinement in [&closed, &wide] {
            assert!(missing(Support { calls: false, ..all }, confinement));
        }
        assert!(!missing(Support { calls: false, ..all }, &open));
        assert!(missing(Support { files: false, ..all }, &open));
    }

    #[test]
    fn only_fabers_own_refusal_is_recognised() {
        assert_eq!(
            refusal_reason(Some(125), "the command is not confined: x\n"),
            Some("the command is not confined: x")
        );
        assert_eq!(refusal_reason(Some(125), "docker: no such image"), None);
        assert_eq!(refusal_reason(Some(1), "the command is not confined: x"), None);
    }

    #[test]
    fn a_program_gets_the_usual_and_the_named_variables() {
        let named = |pass: &[&str]| {
            let pass: Vec<_> = pass.iter().map(|name| (*name).to_owned()).collect();
            let command =
                Launcher::unconfined().watched_command(OsStr::new("prog"), &pass).unwrap();
            let envs = command.as_std().get_envs().filter_map(|pair| pair.0.to_str());
            envs.map(str::to_owned).collect::<Vec<_>>()
        };
        let has = |of: &[String], name: &str| of.iter().any(|variable| variable == name);
        let usual = named(&[]);
        assert!(has(&usual, "PATH") && !has(&usual, "CARGO_PKG_NAME"), "{usual:?}");
        assert!(has(&named(&["CARGO_PKG_NAME"]), "CARGO_PKG_NAME"));
        let many = named(&["CARGO_PKG_*"]);
        assert!(has(&many, "CARGO_PKG_NAME") && has(&many, "CARGO_PKG_VERSION"), "{many:?}");
        assert!(!has(&many, "CARGO_MANIFEST_DIR"), "{many:?}");
    }

    #[test]
    fn kernel_support_is_described_in_words() {
        let mut support =
            Support { files: true, tcp: true, signals: true, calls: false, privileges: true };
        expect!["commands are confined in folders, TCP, signals, privileges; not in sockets"]
            .assert_eq(&support.to_string());
        support.calls = true;
        expect!["commands are confined in folders, TCP, signals, sockets, privileges"]
            .assert_eq(&support.to_string());
    }
}
