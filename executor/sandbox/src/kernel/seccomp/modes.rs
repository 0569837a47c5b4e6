//! Calls that change modes and attributes of files, which Landlock does not see.
//!
//! A program that runs as its owner, or as a group, is never made, not even where a command may
//! write: whoever runs it elsewhere would be Faber's user. Where a command has no view of its own,
//! attributes stay as they are, too; what is left then are plain modes, groups and dates, without
//! which no archive is unpacked.

use nix::libc;
use seccompiler::SeccompCmpOp;

use super::Check;

/// The bits of a mode by which a program runs as somebody.
const AS_SOMEBODY: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];
/// Calls that take a mode, each with the number of that argument.
const WITH_MODE: &[(libc::c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_mknodat, 2),
];
/// Calls that take a mode where flags before it say that a file is made.
const WITH_FLAGS: &[(libc::c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
    (libc::SYS_openat, 2),
];
/// The flags that say so.
const MAKING: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

// The same numbers on every machine; not every list of them has them yet.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

/// Takes its mode in memory, where no filter looks; programs know how to do without it.
pub(super) const UNSEEN: libc::c_long = libc::SYS_openat2;
/// Calls that change attributes of files. Programs expect that a file system may lack them.
pub(super) const ATTRIBUTES: [libc::c_long; 9] = [
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
];
/// What does so among the calls that do anything to a file: `FS_IOC_SETFLAGS`, `FS_IOC_FSSETXATTR`.
pub(super) const ATTRIBUTES_TOO: [u64; 2] = [0x4008_6602, 0x401c_5820];

/// Returns the calls that make a program run as somebody, each with what then all holds.
pub(super) fn as_somebody() -> Vec<(libc::c_long, Vec<Check>)> {
    let mut calls = Vec::new();
    for bit in AS_SOMEBODY {
        let has_bit = |at: u8| has(at, u64::from(bit));
        calls.extend(WITH_MODE.iter().map(|(call, mode)| (*call, vec![has_bit(*mode)])));
        for flag in MAKING.map(super::number) {
            let checks = |at: u8| vec![has(at, flag), has_bit(at + 1)];
            calls.extend(WITH_FLAGS.iter().map(|(call, flags)| (*call, checks(*flags))));
        }
    }
    calls
}

/// Returns the check that an argument has a bit.
fn has(argument: u8, bit: u64) -> Check {
    (argument, SeccompCmpOp::MaskedEq(bit), bit)
}
