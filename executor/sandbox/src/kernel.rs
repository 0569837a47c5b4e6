//! Applies the kernel's restrictions, each before the rights that it needs are dropped.

mod landlock;
mod mount_namespace;
mod protected_files;
mod seccomp;

use std::{ffi::CString, io, path::PathBuf};

use caps::{CapSet, Capability, errors::CapsError};
use nix::{
    sys::prctl,
    unistd::{User, geteuid, initgroups, setgid, setuid},
};

use self::landlock::ReadablePaths;
pub(super) use self::landlock::{SYSTEM_FOLDERS, block_outside_signals, can_restrict_files};
use super::{LaunchOrder, Support};

/// Asks the kernel which restrictions it supports. Applies no restriction.
pub(super) fn kernel_support() -> Support {
    Support {
        privileges: prctl::get_no_new_privs().is_ok(),
        calls: seccomp::is_supported(),
        ..landlock::landlock_support()
    }
}

pub(super) fn apply(order: &LaunchOrder) -> io::Result<()> {
    let Some(confinement) = &order.confinement else { return Ok(()) };
    let system = ReadablePaths::read_system(&order.hidden);
    // Mounts first, because mounting needs rights that the next steps drop.
    let has_mount_namespace = protected_files::protect_files(order, confinement, &system)?;
    if let Some(user) = &confinement.user {
        become_user(user)?;
    }
    prctl::set_no_new_privs()?;
    drop_capabilities().map_err(io::Error::other)?;
    landlock::apply(confinement, system).map_err(io::Error::other)?;
    seccomp::apply(confinement, has_mount_namespace)
}

/// Prevents other processes of the user from reading the memory and environment of this process.
///
/// # Errors
///
/// If the kernel refuses.
pub fn hide_process_memory() -> io::Result<()> {
    Ok(prctl::set_dumpable(false)?)
}

/// Switches permanently to another user and the groups of that user.
fn become_user(name: &str) -> io::Result<()> {
    let user = find_user(name)?;
    if user.uid == geteuid() {
        return Ok(());
    }
    let change = || {
        // Sets the groups first, because the new user cannot change them.
        initgroups(&CString::new(name)?, user.gid)?;
        setgid(user.gid)?;
        Ok::<_, io::Error>(setuid(user.uid)?)
    };
    change().map_err(|err| {
        io::Error::other(format!(
            "it cannot become the user `{name}` ({err}): this needs CAP_SETUID and CAP_SETGID, so \
             start Faber as root, or remove `user`"
        ))
    })
}

pub(super) fn home_folder(name: &str) -> io::Result<PathBuf> {
    Ok(find_user(name)?.dir)
}

fn find_user(name: &str) -> io::Result<User> {
    User::from_name(name)?.ok_or_else(|| {
        io::Error::other(format!("there is no user `{name}` on this machine: correct `user`"))
    })
}

/// Drops every capability. With `no_new_privs` no capability can come back, not even for `root`.
fn drop_capabilities() -> Result<(), CapsError> {
    // Only a process with this capability may change the bounding set.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        caps::clear(None, CapSet::Bounding)?;
    }
    caps::clear(None, CapSet::Ambient)?;
    for set in [CapSet::Inheritable, CapSet::Effective, CapSet::Permitted] {
        caps::clear(None, set)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_is_named_in_the_error() {
        let err = become_user("no-such-user").unwrap_err().to_string();
        assert_eq!(err, "there is no user `no-such-user` on this machine: correct `user`");
        let user = User::from_uid(geteuid()).unwrap().unwrap();
        become_user(&user.name).unwrap();
        assert_eq!(home_folder(&user.name).unwrap(), user.dir);
    }
}
