//! Calls that change modes and attributes of files, which Landlock does not restrict. A command can
//! never create a setuid or setgid program, because another user who runs it would act as Faber's
//! user.

use nix::libc;
use seccompiler::SeccompCmpOp;

use super::ArgumentCheck;

const SET_ID_BITS: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];
const MODE_CALLS: &[(libc::c_long, u8)] = &[
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
/// Calls that use a mode only with a flag for a new file. The number is the index of the argument
/// with the flags.
const OPEN_CALLS: &[(libc::c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
    (libc::SYS_openat, 2),
];
const CREATE_FLAGS: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

// Writes the numbers of these calls, because some versions of `libc` lack them. The numbers are the
// same on every architecture.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

/// A call whose mode is in memory, where a filter cannot read it. Programs fall back to `openat`.
pub(super) const UNFILTERABLE_CALL: libc::c_long = libc::SYS_openat2;
/// Calls that change extended attributes. Refusing them breaks no program, because programs expect
/// file systems without such attributes.
pub(super) const ATTRIBUTE_CALLS: [libc::c_long; 9] = [
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
/// Requests of `ioctl` that change attributes: `FS_IOC_SETFLAGS` and `FS_IOC_FSSETXATTR`.
pub(super) const ATTRIBUTE_REQUESTS: [u64; 2] = [0x4008_6602, 0x401c_5820];

pub(super) fn set_id_checks() -> Vec<(libc::c_long, Vec<ArgumentCheck>)> {
    let mut calls = Vec::new();
    for bit in SET_ID_BITS {
        let has_bit = |index: u8| bit_check(index, u64::from(bit));
        calls.extend(MODE_CALLS.iter().map(|(call, mode)| (*call, vec![has_bit(*mode)])));
        for flag in CREATE_FLAGS.map(super::as_argument) {
            let checks = |index: u8| vec![bit_check(index, flag), has_bit(index + 1)];
            calls.extend(OPEN_CALLS.iter().map(|(call, flags)| (*call, checks(*flags))));
        }
    }
    calls
}

fn bit_check(argument: u8, bit: u64) -> ArgumentCheck {
    (argument, SeccompCmpOp::MaskedEq(bit), bit)
}
