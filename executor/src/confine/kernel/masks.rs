//! Hiding single files in a folder that a command may otherwise use.
//!
//! Landlock allows a folder with all that is in it, or does not. What a command must not touch
//! there (Faber's own configuration and store) is covered by something that nobody may open, in a
//! view of the file system that only the command has.

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    libc,
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    unistd::{getegid, geteuid},
};

use super::super::Confinement;

/// Where what covers is made: for a moment, and seen by this process only.
const WORKSHOP: &str = "/tmp";

/// Covers those of `hidden` that the command could reach, as far as they are there.
pub(super) fn put_on(hidden: &[PathBuf], confinement: &Confinement) -> io::Result<()> {
    let reach = confinement.write.iter().chain(&confinement.read);
    let reach: Vec<_> = reach.filter_map(|it| it.canonicalize().ok()).collect();
    let reached = |path: &PathBuf| {
        let path = path.canonicalize().ok()?;
        // A folder that somebody names is meant.
        reach.iter().any(|it| path != *it && path.starts_with(it)).then_some(path)
    };
    let mut reached: Vec<_> = hidden.iter().filter_map(reached).collect();
    reached.sort();
    // What lies in a covered folder is covered.
    reached.dedup_by(|later, earlier| later.starts_with(earlier));
    if reached.is_empty() {
        return Ok(());
    }
    match own_view().and_then(|()| cover(&reached, &reach)) {
        Err(err) if confinement.required => {
            let path = reached[0].display();
            let why = format!(
                "`{path}` is Faber's own, lies where it may read or write, and cannot be hidden on \
                 this machine ({err}): let it work in a folder of its own, such as `root: ./work`"
            );
            Err(io::Error::other(why))
        }
        _ => Ok(()),
    }
}

/// Gives this process a view of its own: as `root` directly, else as somebody in a user namespace.
fn own_view() -> io::Result<()> {
    match unshare(CloneFlags::CLONE_NEWNS) {
        Ok(()) => (),
        Err(Errno::EPERM) => {
            let (user, group) = (geteuid(), getegid());
            unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        }
        Err(err) => return Err(err.into()),
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    Ok(mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?)
}

fn cover(paths: &[PathBuf], reach: &[PathBuf]) -> io::Result<()> {
    for path in paths {
        pin(path, reach)?;
    }
    // Held open: what covers is made in a folder that they may lie in.
    let held: Vec<_> = paths.iter().map(|it| hold(it)).collect::<io::Result<_>>()?;
    mount(Some("tmpfs"), WORKSHOP, Some("tmpfs"), MsFlags::empty(), Some("size=64k"))?;
    let (file, folder) = (Path::new(WORKSHOP).join("file"), Path::new(WORKSHOP).join("folder"));
    fs::write(&file, [])?;
    fs::create_dir(&folder)?;
    for it in [&file, &folder] {
        fs::set_permissions(it, Permissions::from_mode(0o0))?;
    }
    for (path, held) in paths.iter().zip(&held) {
        let cover = if held.metadata()?.is_dir() { &folder } else { &file };
        bind(cover, &by_number(held), path)?;
    }
    Ok(umount2(WORKSHOP, MntFlags::MNT_DETACH)?)
}

/// Keeps the folders between what may be used and a path where they are: if one could be moved,
/// another could take its place.
fn pin(path: &Path, reach: &[PathBuf]) -> io::Result<()> {
    let is_between =
        |it: &&Path| reach.iter().any(|top| it.starts_with(top) && *it != top.as_path());
    let mut between: Vec<_> = path.ancestors().skip(1).filter(is_between).collect();
    between.reverse();
    for folder in between {
        bind(folder, folder, folder)?;
    }
    Ok(())
}

fn bind(from: &Path, to: &Path, called: &Path) -> io::Result<()> {
    let bound =
        mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>);
    bound.map_err(|err| io::Error::other(format!("`{}`: {err}", called.display())))
}

fn hold(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)
}

fn by_number(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
