//! System calls that a command does not get: they reach beyond what Landlock can see.
//!
//! A socket file is a door into whatever listens behind it (a container engine, an init system), and
//! UDP leads out as TCP does. Landlock knows neither, so the sockets themselves are not made. Pairs
//! of sockets are: they lead nowhere else.

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
/// and messages that have no file.
const SHARED: [libc::c_long; 7] = [
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_shmget,
    libc::SYS_semget,
    libc::SYS_msgget,
    libc::SYS_mq_open,
];
/// What begins with the number of a process, which is 0 where it is the process itself.
const OF_OTHERS: [libc::c_long; 5] = [
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
];
/// What begins with the kind of a number, here as that of a process.
const TURNS: [(libc::c_long, u64); 2] = [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)];

/// Why there is no filter.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A condition on one argument, by its number.
type Check = (u8, SeccompCmpOp, u64);

/// Returns whether this kernel has filters, and Faber one for this machine: a thread that ends at
/// once takes one that refuses nothing. (What the kernel says of itself in `/proc` cannot be read
/// everywhere.)
pub(super) fn is_there() -> bool {
    let trial = || program(BTreeMap::new()).is_ok_and(|it| apply_filter(&it).is_ok());
    thread::scope(|it| it.spawn(trial).join()).unwrap_or(false)
}

/// Filters the calls of this thread, and of all that it starts, for ever. Calls of another ABI,
/// which would pass by the numbers, end their process.
pub(super) fn apply(confinement: &Confinement) -> io::Result<()> {
    let filtered = filter(confinement).and_then(|it| Ok(apply_filter(&it)?));
    match filtered {
        Err(_) if confinement.required && confinement.is_closed() => Err(unseen(CALLS)),
        _ => Ok(()),
    }
}

fn target() -> Option<TargetArch> {
    std::env::consts::ARCH.try_into().ok()
}

fn filter(confinement: &Confinement) -> Result<BpfProgram, Failure> {
    program(rules(confinement)?)
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Result<BpfProgram, Failure> {
    let target = target().ok_or("no filter is known for this machine")?;
    // The number that a process meets elsewhere, too, when it may not.
    let refused = SeccompAction::Errno(libc::EACCES.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, target)?;
    Ok(filter.try_into()?)
}

/// Returns the calls that are refused, each with what must be so; always where there is nothing.
fn rules(confinement: &Confinement) -> Result<BTreeMap<i64, Vec<SeccompRule>>, Failure> {
    let mut refused = BTreeMap::new();
    let mut refuse = |call: i64, any: Vec<SeccompRule>| {
        #[cfg(target_arch = "x86_64")]
        refused.insert(call | X32, any.clone());
        refused.insert(call, any);
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
    Ok(refused)
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
    use super::*;

    #[test]
    fn every_confinement_has_a_filter() {
        for (network, sockets) in [(false, false), (false, true), (true, false), (true, true)] {
            let confinement = Confinement { network, sockets, ..Confinement::default() };
            let rules = rules(&confinement).unwrap();
            assert!(rules[&libc::SYS_io_uring_setup].is_empty(), "it is always refused");
            assert_eq!(rules[&libc::SYS_socket].is_empty(), !network && !sockets);
            if is_there() {
                assert!(!filter(&confinement).unwrap().is_empty());
            }
        }
    }
}
