//! Applies the kernel's restrictions, each before the rights for it are given up.

mod account;
mod capabilities;
mod landlock;
mod masks;
mod seccomp;
mod view;

use std::{io, path::PathBuf};

use nix::sys::prctl;

use super::{Order, Support};

/// Asks the kernel which restrictions it supports. Applies none.
pub(super) fn support() -> Support {
    Support {
        privileges: prctl::get_no_new_privs().is_ok(),
        calls: seccomp::is_there(),
        ..landlock::support()
    }
}

pub(super) fn sees_files() -> bool {
    landlock::sees_files()
}

pub(super) fn system() -> &'static [&'static str] {
    &landlock::SYSTEM
}

/// Restricts this thread and its future children for good.
pub(super) fn apply(order: &Order) -> io::Result<()> {
    let Some(confinement) = &order.confinement else { return Ok(()) };
    // Mounting needs rights that the next steps give up.
    let has_view = masks::put_on(order, confinement)?;
    if let Some(user) = &confinement.user {
        account::become_user(user)?;
    }
    prctl::set_no_new_privs()?;
    capabilities::give_up()?;
    landlock::apply(confinement)?;
    seccomp::apply(confinement, has_view)
}

pub(super) fn home_of(user: &str) -> io::Result<PathBuf> {
    account::home_of(user)
}

pub(super) fn keep_apart() -> io::Result<()> {
    landlock::keep_apart()
}

/// Prevents other processes of the user from reading the memory and environment of this process.
///
/// # Errors
///
/// If the kernel refuses.
pub fn keep_to_itself() -> io::Result<()> {
    Ok(prctl::set_dumpable(false)?)
}
