//! Applies the restrictions of Linux in an order that each of them allows.

mod account;
mod capabilities;
mod landlock;
mod masks;
mod seccomp;
mod view;

use std::{io, path::PathBuf};

use nix::sys::prctl;

use super::{Order, Support};

/// Returns what this kernel supports. Confines nothing.
pub(super) fn support() -> Support {
    Support {
        privileges: prctl::get_no_new_privs().is_ok(),
        calls: seccomp::is_there(),
        ..landlock::support()
    }
}

/// Returns whether this kernel can hold a command to where it reads and writes.
pub(super) fn sees_files() -> bool {
    landlock::sees_files()
}

/// Returns the folders of the system that any command may read and run.
pub(super) fn system() -> &'static [&'static str] {
    &landlock::SYSTEM
}

/// Confines this thread, and all that it starts, for ever.
pub(super) fn apply(order: &Order) -> io::Result<()> {
    let Some(confinement) = &order.confinement else { return Ok(()) };
    // First what takes a right that is given up afterwards.
    let has_view = masks::put_on(order, confinement)?;
    if let Some(user) = &confinement.user {
        account::become_user(user)?;
    }
    prctl::set_no_new_privs()?;
    capabilities::give_up()?;
    landlock::apply(confinement)?;
    seccomp::apply(confinement, has_view)
}

/// Returns the home folder of a user.
pub(super) fn home_of(user: &str) -> io::Result<PathBuf> {
    account::home_of(user)
}

/// Keeps this thread, and all that it starts, from signalling what is confined as it is now.
pub(super) fn keep_apart() -> io::Result<()> {
    landlock::keep_apart()
}

/// Keeps other processes of the user from reading the memory and the environment of this one.
///
/// # Errors
///
/// If the kernel refuses.
pub fn keep_to_itself() -> io::Result<()> {
    Ok(prctl::set_dumpable(false)?)
}
