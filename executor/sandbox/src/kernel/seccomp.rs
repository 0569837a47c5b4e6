//! System calls that a command does not get: they reach beyond what Landlock can see.
//!
//! A socket file is a door into whatever listens behind it (a container engine, an init system), and
//! UDP leads out as TCP does. Landlock knows neither, so the sockets themselves are not made. Pairs
//! of sockets are: they lead nowhere else.

mod modes;

use std::{collections::BTreeMap, io, thread};

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::super::{CALLS, Confinement, unseen};

/// The bit of the numbers of the x32 calls, which are otherwise those of `x86_64`.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
/// The part of a socket's type that says what it is; the rest are flags.
const KIND: u64 = 0xf;

/// What is one for the whole machine, or for all of a user's processes: keys, and memory, semaphores
/// and messages that have no file. Not only what finds them: their numbers can be guessed.
const SHARED: [libc::c_long; 19] = [
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
];
/// Calls whose first argument is a process id, where 0 means the process itself.
const OF_OTHERS: [libc::c_long; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];
/// Calls whose first argument is the kind of an id.
const TURNS: [(libc::c_long, u64); 2] = [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)];

/// What begins with flags that say which namespaces are made. In a user namespace of its own a
/// command would have every capability again, and with them much of the kernel that only
/// administrators reach. The others take capabilities, which it does not have.
const NAMESPACES: [libc::c_long; 2] = [libc::SYS_unshare, libc::SYS_clone];

/// Why there is no filter.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Refused calls with their conditions. A call without conditions is always refused.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// A condition on one argument, by its number.
type Check = (u8, SeccompCmpOp, u64);

/// Returns whether this kernel has filters, and Faber one for this machine: a thread that ends at
/// once takes one that refuses nothing. (What the kernel says of itself in `/proc` cannot be read
/// everywhere.)
pub(super) fn is_there() -> bool {
    let trial = || program(BTreeMap::new(), libc::EACCES).is_ok_and(|it| apply_filter(&it).is_ok());
    thread::scope(|it| it.spawn(trial).join()).unwrap_or(false)
}

/// Filters the calls of this thread, and of all that it starts, for ever. Calls of another ABI,
/// which would pass by the numbers, end their process. Without a view of its own, a command gets
/// fewer of them.
pub(super) fn apply(confinement: &Confinement, has_view: bool) -> io::Result<()> {
    let filtered = filters(confinement, has_view)
        .and_then(|it| Ok(it.iter().try_for_each(|filter| apply_filter(filter))?));
    match filtered {
        Err(_) if confinement.required && confinement.is_closed() => Err(unseen(CALLS)),
        _ => Ok(()),
    }
}

fn target() -> Option<TargetArch> {
    std::env::consts::ARCH.try_into().ok()
}

fn filters(confinement: &Confinement, has_view: bool) -> Result<Vec<BpfProgram>, Failure> {
    // The number that a process meets elsewhere, too, when it may not.
    let mut filters = vec![program(rules(confinement)?, libc::EACCES)?];
    // These have their arguments in memory, where no filter looks; programs know older ones.
    let unseen = with_x32([modes::UNSEEN, libc::SYS_clone3].map(|it| (it, Vec::new())));
    filters.push(program(unseen, libc::ENOSYS)?);
    if !has_view {
        let mut attributes = with_x32(modes::ATTRIBUTES.map(|it| (it, Vec::new())));
        let kinds = modes::ATTRIBUTES_TOO.map(|it| all_of([(1, SeccompCmpOp::Eq, it)]));
        let kinds = kinds.into_iter().collect::<Result<Vec<_>, _>>()?;
        attributes.insert(libc::SYS_ioctl, kinds.into_iter().flatten().collect());
        filters.push(program(attributes, libc::EOPNOTSUPP)?);
    }
    Ok(filters)
}

fn program(rules: Rules, number: libc::c_int) -> Result<BpfProgram, Failure> {
    let target = target().ok_or("no filter is known for this machine")?;
    let refused = SeccompAction::Errno(number.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, target)?;
    Ok(filter.try_into()?)
}

/// Returns rules for these calls under each number that they have.
fn with_x32(rules: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>) -> Rules {
    #[cfg(target_arch = "x86_64")]
    let both = |(call, any): (i64, Vec<SeccompRule>)| [(call | X32, any.clone()), (call, any)];
    #[cfg(not(target_arch = "x86_64"))]
    let both = |rule| [rule];
    rules.into_iter().flat_map(both).collect()
}

/// Returns the calls that are refused, each with what must be so; always where there is nothing.
fn rules(confinement: &Confinement) -> Result<Rules, Failure> {
    let mut refused: Rules = BTreeMap::new();
    let mut refuse = |call: i64, any: Vec<SeccompRule>| {
        refused.entry(call).or_default().extend(any);
    };
    let mut known = Vec::new();
    if confinement.network {
        // What asks for addresses asks by netlink for the machine's own.
        known.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    if confinement.sockets {
        known.push(libc::AF_UNIX);
    }
    let unknown = known.iter().map(|it| (0, SeccompCmpOp::Ne, number(*it)));
    refuse(libc::SYS_socket, all_of(unknown)?.into_iter().collect());
    let mut pairs = vec![all_of([(0, SeccompCmpOp::Ne, number(libc::AF_UNIX))])?];
    if !confinement.sockets {
        // One of these can be connected to a file still.
        let kind = SeccompCmpOp::MaskedEq(KIND);
        pairs.push(all_of([(1, kind, number(libc::SOCK_DGRAM))])?);
    }
    refuse(libc::SYS_socketpair, pairs.into_iter().flatten().collect());
    // It makes sockets, and whatever else, behind any filter.
    refuse(libc::SYS_io_uring_setup, Vec::new());
    for call in SHARED {
        refuse(call, Vec::new());
    }
    // The limits of other processes (a limit on time ends them), and when they have their turn.
    for call in OF_OTHERS {
        refuse(call, all_of([(0, SeccompCmpOp::Ne, 0)])?.into_iter().collect());
    }
    for (call, own) in TURNS {
        // Neither a group nor a user, and of processes itself only.
        let any = [(0, SeccompCmpOp::Ne, own), (1, SeccompCmpOp::Ne, 0)];
        let any = any.into_iter().map(|it| all_of([it]));
        refuse(call, any.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect());
    }
    for call in NAMESPACES {
        let user = number(libc::CLONE_NEWUSER);
        refuse(call, all_of([(0, SeccompCmpOp::MaskedEq(user), user)])?.into_iter().collect());
    }
    for (call, checks) in modes::as_somebody() {
        refuse(call, all_of(checks)?.into_iter().collect());
    }
    Ok(with_x32(refused))
}

/// Returns the rule that all of these hold; nothing where there are none, which always holds.
fn all_of(checks: impl IntoIterator<Item = Check>) -> Result<Option<SeccompRule>, Failure> {
    let conditions = checks.into_iter().map(|(argument, operator, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    });
    let conditions: Vec<_> = conditions.collect::<Result<_, _>>()?;
    if conditions.is_empty() {
        return Ok(None);
    }
    Ok(Some(SeccompRule::new(conditions)?))
}

fn number(of: libc::c_int) -> u64 {
    u64::from(of.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::ErrorKind,
        os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    };

    use nix::{
        errno::Errno,
        sched::{CloneFlags, unshare},
    };

    use super::*;

    #[test]
    fn every_confinement_has_a_filter() {
        for (network, sockets) in [(false, false), (false, true), (true, false), (true, true)] {
            let confinement = Confinement { network, sockets, ..Confinement::default() };
            let rules = rules(&confinement).unwrap();
            assert!(rules[&libc::SYS_io_uring_setup].is_empty(), "it is always refused");
            assert_eq!(rules[&libc::SYS_socket].is_empty(), !network && !sockets);
            if is_there() {
                let filters = |has_view| filters(&confinement, has_view).unwrap().len();
                assert_eq!(filters(true) + 1, filters(false), "{network} {sockets}");
            }
        }
    }

    /// What is done in a thread that ends with the filters that it took.
    fn filtered<T: Send>(has_view: bool, what: impl FnOnce() -> T + Send) -> T {
        let run = || {
            apply(&Confinement::default(), has_view).unwrap();
            what()
        };
        thread::scope(|it| it.spawn(run).join()).unwrap()
    }

    /// A model's command had every capability in one, and with them the calls of administrators.
    #[test]
    fn no_user_namespace_is_made() {
        if !is_there() {
            return;
        }
        let (plain, user) = (CloneFlags::CLONE_FS, CloneFlags::CLONE_NEWUSER);
        filtered(true, || {
            assert_eq!(unshare(plain), Ok(()));
            for flags in [user, user | CloneFlags::CLONE_NEWNS, user | plain] {
                assert_eq!(unshare(flags), Err(Errno::EACCES), "{flags:?}");
            }
            // What starts programs and threads does without the call that is not there.
            let output = std::process::Command::new("sh").args(["-c", "(echo here)"]).output();
            assert_eq!(output.unwrap().stdout, b"here\n");
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
            let mut python = std::process::Command::new("python3");
            python.args([
                "-c",
                "import ctypes, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n\
                for call in sys.argv[1:]: print(libc.syscall(int(call), 0x10000000, 0), ctypes.get_errno())",
            ]);
            let calls = [libc::SYS_clone, libc::SYS_clone3].map(|it| it.to_string());
            let said = python.args(calls).output().unwrap().stdout;
            let expected = format!("-1 {}\n-1 {}\n", libc::EACCES, libc::ENOSYS);
            assert_eq!(String::from_utf8(said).unwrap(), expected);
        });
    }

    #[test]
    fn nothing_is_made_that_runs_as_somebody() {
        if !is_there() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let chmod = |mode: u32| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).map_err(|it| it.kind())
        };
        let make = |name: &str, mode: u32, flags: i32| {
            let mut options = fs::OpenOptions::new();
            let path = folder.path().join(name);
            options.write(true).custom_flags(flags).mode(mode).open(path).map_err(|it| it.kind())
        };
        filtered(true, || {
            for mode in [0o755, 0o1777, 0] {
                assert_eq!(chmod(mode), Ok(()), "{mode:o}");
            }
            for mode in [0o4755, 0o2755, 0o6000] {
                assert_eq!(chmod(mode), Err(ErrorKind::PermissionDenied), "{mode:o}");
                let opened = make("made", mode, libc::O_CREAT).map(drop);
                assert_eq!(opened, Err(ErrorKind::PermissionDenied), "{mode:o}");
                let opened = make(".", mode, libc::O_TMPFILE).map(drop);
                assert_eq!(opened, Err(ErrorKind::PermissionDenied), "{mode:o}");
            }
            make("made", 0o644, libc::O_CREAT).unwrap();
            // Who makes nothing has a mode that says nothing.
            make("file", 0o4755, 0).unwrap();
        });
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0);
    }

    #[test]
    fn attributes_stay_as_they_are_where_there_is_no_view() {
        if !is_there() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let set = |has_view: bool| {
            let run = || {
                let mut python = std::process::Command::new("python3");
                python.args([
                    "-c",
                    "import os, sys\ntry: os.setxattr(sys.argv[1], 'user.a', b'')\n\
                    except OSError as err: print(err.errno)\ntry: os.chmod(sys.argv[1], 0o700)\n\
                    except OSError as err: print(err.errno)",
                ]);
                python.arg(folder.path()).output().unwrap()
            };
            String::from_utf8(filtered(has_view, run).stdout).unwrap()
        };
        assert_eq!(set(false), format!("{}\n", libc::EOPNOTSUPP));
        assert!(["", "95\n"].contains(&&*set(true)), "the file system may have none");
    }
}
