use std::{
    collections::BTreeMap,
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, Write as _},
    os::{fd::RawFd, unix::process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    unistd::{User, close, geteuid, setsid},
};

use super::{
    Confinement, LaunchOrder, Lifetime, NEEDS_LANDLOCK, ORDER_VARIABLE, REFUSAL_PREFIX,
    REFUSED_STATUS, kernel, process_limit, reaper,
    resolved_path::{ResolvedPath, canonical_paths},
    unsupported_error,
};

const LAST_INHERITED_DESCRIPTOR: RawFd = 2;
/// Maximum number of descriptors that are closed if the system cannot list the open descriptors.
const MAX_DESCRIPTORS: u64 = 1 << 16;
const PATH_VARIABLE: &str = "PATH";
const HOME_VARIABLE: &str = "HOME";
/// The search path if the sandbox allows no folder of `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Exit status if the program cannot be run, as in shells.
const NOT_RUNNABLE_STATUS: u8 = 126;
/// Exit status if the program does not exist, as in shells.
const NOT_FOUND_STATUS: u8 = 127;

/// Restricts this process and runs the program that `arguments` name after `--`.
///
/// This is the subcommand [`SUBCOMMAND`](super::SUBCOMMAND). The process must have one thread only,
/// because other threads would stay unrestricted.
pub fn run_confined(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = arguments.into_iter().skip_while(|argument| argument == "--").collect();
    match run(arguments) {
        Ok(code) => code,
        Err((status, complaint)) => {
            // Ignores the error, because standard error may be closed.
            let _ = writeln!(io::stderr(), "{complaint}");
            ExitCode::from(status)
        }
    }
}

fn run(arguments: Vec<OsString>) -> Result<ExitCode, (u8, String)> {
    let refuse = |err: String| (REFUSED_STATUS, format!("{REFUSAL_PREFIX}{err}"));
    close_inherited();
    let order = read_order().map_err(refuse)?;
    let mut arguments = arguments.into_iter();
    let program = arguments.next().ok_or_else(|| refuse("it names no program".to_owned()))?;
    let name = program.to_string_lossy().into_owned();
    let path = env::var_os(PATH_VARIABLE)
        .zip(order.confinement.as_ref())
        .map(|pair| readable_search_path(&pair.0, pair.1));
    let account = account_variables(&order).map_err(|err| refuse(err.to_string()))?;
    apply_order(&order).map_err(|err| refuse(err.to_string()))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_remove(ORDER_VARIABLE)
        .envs(path.map(|path| (PATH_VARIABLE, path)))
        .envs(account);
    let err = match order.life {
        Lifetime::Background => command.exec(),
        Lifetime::Watched => match reaper::run_command(&mut command, &order) {
            Ok(code) => return Ok(code),
            Err(err) => err,
        },
    };
    Err(start_error(&name, &err))
}

/// Returns `HOME`, `USER` and `LOGNAME` for a command that runs as another user. An explicit `HOME`
/// stays, unless it is the home folder of Faber's user.
fn account_variables(order: &LaunchOrder) -> io::Result<BTreeMap<&'static str, OsString>> {
    let user = order.confinement.as_ref().and_then(|confinement| confinement.user.as_ref());
    let Some(user) = user else { return Ok(BTreeMap::new()) };
    let home = kernel::home_folder(user)?;
    let own_home = User::from_uid(geteuid())?.map(|own_home| own_home.dir);
    let is_own = env::var_os(HOME_VARIABLE)
        .is_none_or(|home| own_home.is_some_and(|own_home| own_home == Path::new(&home)));
    let home = is_own.then(|| (HOME_VARIABLE, home.into_os_string()));
    let names = ["USER", "LOGNAME"].map(|name| (name, OsString::from(user)));
    Ok(home.into_iter().chain(names).collect())
}

/// Closes descriptors that Faber inherited, because the sandbox does not restrict open descriptors.
fn close_inherited() {
    let listed = fs::read_dir("/proc/self/fd").or_else(|_| fs::read_dir("/dev/fd"));
    let open: Vec<RawFd> = if let Ok(listed) = listed {
        listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    } else {
        let (maximum, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((MAX_DESCRIPTORS, 0));
        (0..RawFd::try_from(maximum.min(MAX_DESCRIPTORS)).unwrap_or(0)).collect()
    };
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > LAST_INHERITED_DESCRIPTOR)
    {
        // Ignores the error, because the descriptor of the listing itself is closed already.
        let _ = close(descriptor);
    }
}

fn read_order() -> Result<LaunchOrder, String> {
    let text = env::var_os(ORDER_VARIABLE).ok_or_else(|| {
        format!("`{ORDER_VARIABLE}` is not set: only Faber itself uses this subcommand")
    })?;
    let text = text.to_str().ok_or_else(|| format!("`{ORDER_VARIABLE}` is not UTF-8"))?;
    serde_json::from_str(text).map_err(|err| format!("`{ORDER_VARIABLE}`: {err}"))
}

/// Returns the search path without folders that the command cannot read. A shell would find a
/// program in such a folder, fail to run it, and stop the search.
fn readable_search_path(path: &OsStr, confinement: &Confinement) -> OsString {
    if !kernel::can_restrict_files() {
        return path.to_owned();
    }
    let folders = confinement.write.iter().chain(&confinement.read).map(PathBuf::as_path);
    let folders = canonical_paths(folders.chain(kernel::SYSTEM_FOLDERS.iter().map(Path::new)));
    let may_read = |path: &PathBuf| {
        // An empty entry is the working directory.
        let folder = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        ResolvedPath::resolve(folder)
            .is_ok_and(|resolved| folders.iter().any(|folder| resolved.end.starts_with(folder)))
    };
    let left: Vec<_> = env::split_paths(path).filter(may_read).collect();
    match env::join_paths(left) {
        Ok(path) if !path.is_empty() => path,
        _ => DEFAULT_PATH.into(),
    }
}

fn apply_order(order: &LaunchOrder) -> io::Result<()> {
    if order.life == Lifetime::Background {
        setsid()?;
    }
    if let Some(confinement) = &order.confinement {
        if confinement.required && !kernel::can_restrict_files() {
            return Err(unsupported_error(NEEDS_LANDLOCK));
        }
        set_limits(confinement)?;
    }
    kernel::apply(order)
}

fn set_limits(confinement: &Confinement) -> io::Result<()> {
    // The kernel compares this limit with all processes of the user. So the limit is the number of
    // processes on the machine plus the limit of the command.
    let all = process_limit::count_all().unwrap_or(u64::MAX);
    let limits = [
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_CPU, confinement.cpu_seconds),
        (Resource::RLIMIT_DATA, confinement.memory_bytes),
        (Resource::RLIMIT_FSIZE, confinement.file_bytes),
        (Resource::RLIMIT_NOFILE, confinement.open_files),
        // Sets no limit if the number of processes is unknown.
        (Resource::RLIMIT_NPROC, all.saturating_add(confinement.processes)),
    ];
    for (resource, wanted) in limits {
        let (_, hard) = getrlimit(resource)?;
        let maximum = wanted.min(hard);
        setrlimit(resource, maximum, maximum)?;
    }
    Ok(())
}

fn start_error(name: &str, err: &io::Error) -> (u8, String) {
    match err.kind() {
        io::ErrorKind::NotFound => (
            NOT_FOUND_STATUS,
            format!("`{name}` was not found: install it, or write its full path"),
        ),
        io::ErrorKind::PermissionDenied => (
            NOT_RUNNABLE_STATUS,
            format!(
                "`{name}` may not be run: check that it is an executable file in a folder that the \
                 confinement allows the command to read ({err})"
            ),
        ),
        _ => (NOT_RUNNABLE_STATUS, format!("`{name}` could not be started: {err}")),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_program_is_searched_in_readable_folders_only() {
        let folder = tempfile::tempdir().unwrap();
        let path_of = |path: &str| folder.path().join(path).display().to_string();
        for path in ["root/bin", "shims", "tools"] {
            fs::create_dir_all(path_of(path)).unwrap();
        }
        symlink(path_of("tools"), path_of("linked")).unwrap();
        symlink("../shims", path_of("root/away")).unwrap();
        let confinement = Confinement {
            write: vec![path_of("root").into()],
            read: vec![path_of("tools").into()],
            ..Confinement::default()
        };
        let check = |path: &[&str], expected: &[&str]| {
            let path = readable_search_path(path.join(":").as_ref(), &confinement);
            let expected = if kernel::can_restrict_files() { expected } else { return };
            assert_eq!(path.to_str().unwrap(), expected.join(":"));
        };
        let [shims, bin, new, tools, linked, away] =
            ["shims", "root/bin", "root/new", "tools", "linked", "root/away"].map(path_of);
        check(&[&shims, "/usr/bin", "/bin"], &["/usr/bin", "/bin"]);
        check(
            &[&bin, &shims, &tools, &away, &linked, "", &new, "/usr/local/sbin"],
            &[&bin, &tools, &linked, &new, "/usr/local/sbin"],
        );
        check(&[&shims], &[DEFAULT_PATH]);
        check(&[""], &[DEFAULT_PATH]);
    }
}
