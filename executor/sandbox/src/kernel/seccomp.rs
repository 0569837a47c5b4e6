//! System calls that Landlock does not cover, such as those that create UDP sockets and socket
//! files.

mod modes;

use std::{collections::BTreeMap, io, thread};

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::super::{Confinement, NEEDS_SECCOMP, unsupported_error};

/// The bit that marks the number of an x32 call. The other bits are the number of the `x86_64`
/// call.
#[cfg(target_arch = "x86_64")]
const X32_BIT: i64 = 0x4000_0000;
const SOCKET_TYPE_MASK: u64 = 0xf;

/// Objects that all processes of a user or of the machine share: keys, and System V and POSIX
/// objects without a file. Calls with an existing id are refused, too, because ids can be guessed.
const SHARED_CALLS: [libc::c_long; 19] = [
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
/// Calls whose first argument is a process id. 0 means the calling process.
const PROCESS_CALLS: [libc::c_long; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];
/// Calls whose first argument is the kind of an id, with the kind for a process.
const PRIORITY_CALLS: [(libc::c_long, u64); 2] =
    [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)];

/// Calls whose first argument has flags for new namespaces. In a new user namespace, a command has
/// every capability again.
const NAMESPACE_CALLS: [libc::c_long; 2] = [libc::SYS_unshare, libc::SYS_clone];

type FilterError = Box<dyn std::error::Error + Send + Sync>;

/// Refused calls with their conditions. A call without conditions is always refused.
type CallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// A condition on an argument: its index, the comparison and the value.
type ArgumentCheck = (u8, SeccompCmpOp, u64);

/// Returns whether the kernel accepts a filter. A temporary thread tries an empty filter, because
/// `/proc` does not show this on every system.
pub(super) fn is_supported() -> bool {
    let trial = || {
        compile_filter(BTreeMap::new(), libc::EACCES)
            .is_ok_and(|filter| apply_filter(&filter).is_ok())
    };
    thread::scope(|scope| scope.spawn(trial).join()).unwrap_or(false)
}

/// Filters the calls of this thread and its future children permanently. If the kernel accepts no
/// filter, returns an error only if a required confinement restricts sockets.
pub(super) fn apply(confinement: &Confinement, has_mount_namespace: bool) -> io::Result<()> {
    let filtered = build_filters(confinement, has_mount_namespace)
        .and_then(|filters| Ok(filters.iter().try_for_each(|filter| apply_filter(filter))?));
    match filtered {
        Err(_) if confinement.required && confinement.restricts_sockets() => {
            Err(unsupported_error(NEEDS_SECCOMP))
        }
        _ => Ok(()),
    }
}

fn target_arch() -> Option<TargetArch> {
    std::env::consts::ARCH.try_into().ok()
}

fn build_filters(
    confinement: &Confinement,
    has_mount_namespace: bool,
) -> Result<Vec<BpfProgram>, FilterError> {
    // Uses the error of a missing permission, because programs know how to report that.
    let mut filters = vec![compile_filter(build_rules(confinement)?, libc::EACCES)?];
    // These calls fail as unknown, because a filter cannot read their arguments in memory. Programs
    // fall back to older calls.
    let unseen =
        with_x32([modes::UNFILTERABLE_CALL, libc::SYS_clone3].map(|call| (call, Vec::new())));
    filters.push(compile_filter(unseen, libc::ENOSYS)?);
    if !has_mount_namespace {
        let mut attributes = with_x32(modes::ATTRIBUTE_CALLS.map(|call| (call, Vec::new())));
        let kinds =
            modes::ATTRIBUTE_REQUESTS.map(|request| match_all([(1, SeccompCmpOp::Eq, request)]));
        let kinds = kinds.into_iter().collect::<Result<Vec<_>, _>>()?;
        attributes.insert(libc::SYS_ioctl, kinds.into_iter().flatten().collect());
        filters.push(compile_filter(attributes, libc::EOPNOTSUPP)?);
    }
    Ok(filters)
}

fn compile_filter(rules: CallRules, number: libc::c_int) -> Result<BpfProgram, FilterError> {
    let target = target_arch().ok_or("no filter is known for this machine")?;
    let refused = SeccompAction::Errno(number.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, target)?;
    Ok(filter.try_into()?)
}

fn with_x32(rules: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>) -> CallRules {
    #[cfg(target_arch = "x86_64")]
    let call_pair =
        |(call, any): (i64, Vec<SeccompRule>)| [(call | X32_BIT, any.clone()), (call, any)];
    #[cfg(not(target_arch = "x86_64"))]
    let call_pair = |rule| [rule];
    rules.into_iter().flat_map(call_pair).collect()
}

fn build_rules(confinement: &Confinement) -> Result<CallRules, FilterError> {
    let mut refused: CallRules = BTreeMap::new();
    let mut refuse = |call: i64, any: Vec<SeccompRule>| {
        refused.entry(call).or_default().extend(any);
    };
    let mut families = Vec::new();
    if confinement.network {
        // Allows netlink, because programs that resolve names query the machine's addresses by it.
        families.extend([libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]);
    }
    if confinement.sockets {
        families.push(libc::AF_UNIX);
    }
    let unknown = families.iter().map(|family| (0, SeccompCmpOp::Ne, as_argument(*family)));
    refuse(libc::SYS_socket, match_all(unknown)?.into_iter().collect());
    let mut pairs = vec![match_all([(0, SeccompCmpOp::Ne, as_argument(libc::AF_UNIX))])?];
    if !confinement.sockets {
        // Refuses pairs of datagram sockets, because such a socket can still connect to a socket
        // file.
        let kind = SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK);
        pairs.push(match_all([(1, kind, as_argument(libc::SOCK_DGRAM))])?);
    }
    refuse(libc::SYS_socketpair, pairs.into_iter().flatten().collect());
    // Refuses `io_uring`, because it can create sockets past any filter.
    refuse(libc::SYS_io_uring_setup, Vec::new());
    for call in SHARED_CALLS {
        refuse(call, Vec::new());
    }
    // Refuses these calls for other processes, because they change limits and scheduling. A limit
    // on CPU time could end such a process.
    for call in PROCESS_CALLS {
        refuse(call, match_all([(0, SeccompCmpOp::Ne, 0)])?.into_iter().collect());
    }
    for (call, own_value) in PRIORITY_CALLS {
        // Allows these calls only if they name the calling process, and no other process or group.
        let any = [(0, SeccompCmpOp::Ne, own_value), (1, SeccompCmpOp::Ne, 0)];
        let any = any.into_iter().map(|check| match_all([check]));
        refuse(call, any.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect());
    }
    for call in NAMESPACE_CALLS {
        let user = as_argument(libc::CLONE_NEWUSER);
        refuse(call, match_all([(0, SeccompCmpOp::MaskedEq(user), user)])?.into_iter().collect());
    }
    for (call, checks) in modes::set_id_checks() {
        refuse(call, match_all(checks)?.into_iter().collect());
    }
    Ok(with_x32(refused))
}

fn match_all(
    checks: impl IntoIterator<Item = ArgumentCheck>,
) -> Result<Option<SeccompRule>, FilterError> {
    let conditions = checks.into_iter().map(|(argument, operator, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    });
    let conditions: Vec<_> = conditions.collect::<Result<_, _>>()?;
    if conditions.is_empty() {
        return Ok(None);
    }
    Ok(Some(SeccompRule::new(conditions)?))
}

fn as_argument(of: libc::c_int) -> u64 {
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
            let rules = build_rules(&confinement).unwrap();
            assert!(
                rules[&libc::SYS_io_uring_setup].is_empty(),
                "a call without conditions is always refused"
            );
            assert_eq!(rules[&libc::SYS_socket].is_empty(), !network && !sockets);
            if is_supported() {
                let filters = |has_mount_namespace| {
                    build_filters(&confinement, has_mount_namespace).unwrap().len()
                };
                assert_eq!(filters(true) + 1, filters(false), "{network} {sockets}");
            }
        }
    }

    fn run_filtered<T: Send>(has_mount_namespace: bool, action: impl FnOnce() -> T + Send) -> T {
        let run = || {
            apply(&Confinement::default(), has_mount_namespace).unwrap();
            action()
        };
        thread::scope(|scope| scope.spawn(run).join()).unwrap()
    }

    /// In a user namespace, a command would have every capability.
    #[test]
    fn creating_a_user_namespace_is_denied() {
        if !is_supported() {
            return;
        }
        let (plain, user) = (CloneFlags::CLONE_FS, CloneFlags::CLONE_NEWUSER);
        run_filtered(true, || {
            assert_eq!(unshare(plain), Ok(()));
            for flags in [user, user | CloneFlags::CLONE_NEWNS, user | plain] {
                assert_eq!(unshare(flags), Err(Errno::EACCES), "{flags:?}");
            }
            // Programs and threads start without the refused call.
            let output = std::process::Command::new("sh").args(["-c", "(echo here)"]).output();
            assert_eq!(output.unwrap().stdout, b"here\n");
            assert_eq!(thread::spawn(|| 7).join().unwrap(), 7);
            let mut python = std::process::Command::new("python3");
            python.args([
                "-c",
                "import ctypes, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n\
                for call in sys.argv[1:]: print(libc.syscall(int(call), 0x10000000, 0), ctypes.get_errno())",
            ]);
            let calls = [libc::SYS_clone, libc::SYS_clone3].map(|call| call.to_string());
            let output = python
                .args(calls)
                .output()
                .expect("python3 is missing: run `./tests/run`, which installs what the tests need")
                .stdout;
            let expected = format!("-1 {}\n-1 {}\n", libc::EACCES, libc::ENOSYS);
            assert_eq!(String::from_utf8(output).unwrap(), expected);
        });
    }

    #[test]
    fn creating_setuid_files_is_denied() {
        if !is_supported() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let chmod = |mode: u32| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).map_err(|err| err.kind())
        };
        let make = |name: &str, mode: u32, flags: i32| {
            let mut options = fs::OpenOptions::new();
            let path = folder.path().join(name);
            options.write(true).custom_flags(flags).mode(mode).open(path).map_err(|err| err.kind())
        };
        run_filtered(true, || {
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
            // Without the flag for a new file, the mode has no effect.
            make("file", 0o4755, 0).unwrap();
        });
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0);
    }

    #[test]
    fn extended_attributes_are_denied_without_a_mount_namespace() {
        if !is_supported() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let set = |has_mount_namespace: bool| {
            let run = || {
                let mut python = std::process::Command::new("python3");
                python.args([
                    "-c",
                    "import os, sys\ntry: os.setxattr(sys.argv[1], 'user.a', b'')\n\
                    except OSError as err: print(err.errno)\ntry: os.chmod(sys.argv[1], 0o700)\n\
                    except OSError as err: print(err.errno)",
                ]);
                python.arg(folder.path()).output().expect(
                    "python3 is missing: run `./tests/run`, which installs what the tests need",
                )
            };
            String::from_utf8(run_filtered(has_mount_namespace, run).stdout).unwrap()
        };
        assert_eq!(set(false), format!("{}\n", libc::EOPNOTSUPP));
        assert!(["", "95\n"].contains(&&*set(true)), "the file system may have no attributes");
    }
}
