//! Mounts that cover or protect single files in a folder of a command.
//!
//! Landlock allows a folder only with all its contents. So Faber's configuration and store are
//! covered by unreadable files in the command's mount namespace. Programs that Faber runs are
//! mounted read-only.
//!
//! A cover lies on a file. If another program replaces the file, the command sees the new one. So a
//! background command, which may live for days, is refused. A missing file cannot be covered.
//! Either a [placeholder](super::super::placeholders) exists, or the command is refused.

mod others;

use std::{
    env,
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::{
        fd::AsRawFd as _,
        unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
};

use nix::{
    libc,
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::statvfs::{FsFlags, statvfs},
};

use super::{
    super::{
        Confinement, ELSEWHERE, Life, Order,
        names::{ResolvedPath, is_within, real},
    },
    landlock::SYSTEM,
    view::{self, bind},
};

/// Folders in which covers can be created. The mount there is visible only to this process, for a
/// short time.
const WORKSHOPS: [&str; 6] = ["/tmp", "/run", "/var", "/dev", "/etc", "/usr"];

/// The mounts that protect Faber's own files from a command.
#[derive(Default)]
struct Work {
    /// Folders that the command may write.
    write: Vec<PathBuf>,
    /// Folders that the command may read or write.
    reach: Vec<PathBuf>,
    /// Faber's files inside these folders, to be covered.
    hidden: Vec<PathBuf>,
    /// Paths to mount read-only.
    kept: Vec<PathBuf>,
    /// Symlinks to Faber's files that the command could replace.
    links: Vec<PathBuf>,
    /// Missing paths of Faber that the command could create.
    free: Vec<PathBuf>,
}

impl Work {
    /// Starts with the folders of a command. The configuration names those in `named`.
    fn new(confinement: &Confinement, named: &[PathBuf]) -> Self {
        let reach = [named, real(SYSTEM).as_slice()].concat();
        Self { write: real(&confinement.write), reach, ..Self::default() }
    }

    /// Finds Faber's files that the command could reach by path, behind symlinks, or by hard links.
    fn find(mut self, order: &Order, named: &[PathBuf]) -> io::Result<Self> {
        let (hidden, kept) = (self.follow(&order.hidden)?, self.follow(&order.kept)?);
        let others = others::of(&hidden, named)?;
        let near = hidden.into_iter().filter(|it| is_within(it, &self.reach));
        self.hidden = near.chain(others).collect();
        let others = others::of(&kept, &self.write)?;
        let near = kept.into_iter().filter(|it| is_within(it, &self.write));
        self.kept = near.chain(others).collect();
        Ok(self)
    }

    /// Resolves paths and returns those that exist.
    fn follow(&mut self, paths: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
        let mut ends = Vec::new();
        for path in paths {
            let way = ResolvedPath::of(path)
                .map_err(|err| io::Error::other(format!("`{}`: {err}", path.display())))?;
            if way.is_free() && is_within(&way.end, &self.write) {
                self.free.push(way.end.clone());
            }
            let links = way.links.into_iter().filter(|it| is_within(it, &self.write));
            self.links.extend(links);
            ends.extend(Some(way.end).filter(|_| way.is_there));
        }
        Ok(ends)
    }

    /// Removes paths that are covered by the protection of another path.
    fn shorten(self) -> Self {
        let hidden = outermost(self.hidden);
        let is_covered = |it: &PathBuf| hidden.iter().any(|above| it.starts_with(above));
        let left = |paths: Vec<PathBuf>| {
            let mut left = outermost(paths);
            left.retain(|it| !is_covered(it));
            left
        };
        let (kept, links, write) = (left(self.kept), left(self.links), outermost(self.write));
        Self { write, hidden, kept, links, ..self }
    }

    /// Returns whether every mount outside the writable folders became read-only.
    fn do_it(&self) -> io::Result<bool> {
        let is_whole = view::write_only(&self.write, &self.reach)?;
        cover(self)?;
        keep(self)?;
        keep_links(self)?;
        Ok(is_whole)
    }
}

/// Makes everything read-only except the folders in `write`. Covers Faber's files within reach, and
/// protects Faber's programs and the symlinks to them. Returns whether the command has a complete
/// mount namespace of its own.
pub(super) fn put_on(order: &Order, confinement: &Confinement) -> io::Result<bool> {
    let named = real(confinement.write.iter().chain(&confinement.read));
    let work = match Work::new(confinement, &named).find(order, &named) {
        Err(err) if confinement.required => return Err(err),
        found => found.unwrap_or_else(|_| Work::new(confinement, &named)).shorten(),
    };
    if confinement.required {
        let own = [work.hidden.as_slice(), &work.kept, &work.links, &work.free].concat();
        let in_named = own.iter().find(|it| is_within(it, &named));
        if let Some(path) = in_named.filter(|_| order.life == Life::Background) {
            let why = "cannot be hidden for as long as a command in the background may live";
            return Err(refused(path, why, &named));
        }
        if let Some(path) = work.free.first() {
            return Err(refused(path, "is not there, so that it cannot be hidden", &named));
        }
    }
    let here = env::current_dir()?;
    let is_whole = match view::take().and_then(|()| work.do_it()) {
        Ok(is_whole) => is_whole,
        Err(err) => {
            let first = work.hidden.iter().chain(&work.kept).chain(&work.links).next();
            if let Some(first) = first.filter(|_| confinement.required) {
                let why = format!("cannot be hidden on this machine ({err})");
                return Err(refused(first, &why, &named));
            }
            false
        }
    };
    // The process still stands in the uncovered folder. This call moves it into the namespace.
    env::set_current_dir(&here).map_err(|err| {
        let here = here.display();
        io::Error::other(format!(
            "it cannot run in `{here}`: {err} (what is Faber's own is hidden)"
        ))
    })?;
    Ok(is_whole)
}

fn refused(path: &Path, why: &str, named: &[PathBuf]) -> io::Error {
    let at = path.display();
    let (place, help) = if is_within(path, named) {
        ("where it may read or write", ELSEWHERE)
    } else {
        ("in a folder of the system, which every command reads", "keep it elsewhere")
    };
    io::Error::other(format!("`{at}` is Faber's own, lies {place}, and {why}: {help}"))
}

/// Removes duplicates and paths that are inside another one.
fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    // The contents of a folder follow it directly in this order.
    paths.sort();
    paths.dedup_by(|later, earlier| later.starts_with(earlier));
    paths
}

fn cover(work: &Work) -> io::Result<()> {
    if work.hidden.is_empty() {
        return Ok(());
    }
    for path in &work.hidden {
        pin(path, &work.reach)?;
    }
    // Stays open, because the covers are created in a folder that may contain these files.
    let held: Vec<_> = work.hidden.iter().map(|it| hold(it)).collect::<io::Result<_>>()?;
    let shop = WORKSHOPS.iter().map(Path::new).find(|it| it.is_dir());
    let shop = shop.ok_or_else(|| io::Error::other("there is no folder such as `/tmp`"))?;
    mount(Some("tmpfs"), shop, Some("tmpfs"), MsFlags::empty(), Some("size=64k"))?;
    let (file, folder) = (shop.join("file"), shop.join("folder"));
    fs::write(&file, [])?;
    fs::create_dir(&folder)?;
    for it in [&file, &folder] {
        fs::set_permissions(it, Permissions::from_mode(0o0))?;
    }
    for (path, held) in work.hidden.iter().zip(&held) {
        let cover = if held.metadata()?.is_dir() { &folder } else { &file };
        bind(cover, &by_number(held), path)?;
    }
    Ok(umount2(shop, MntFlags::MNT_DETACH)?)
}

fn keep(work: &Work) -> io::Result<()> {
    for path in &work.kept {
        pin(path, &work.reach)?;
        bind(path, path, path)?;
        let only_read = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | held(path)?;
        mount(None::<&str>, path, None::<&str>, only_read, None::<&str>)?;
    }
    Ok(())
}

/// Mounts each symlink on itself, so it can be followed but not replaced.
fn keep_links(work: &Work) -> io::Result<()> {
    for path in &work.links {
        pin(path, &work.reach)?;
        let held = hold(path)?;
        bind(&by_number(&held), &by_number(&held), path)?;
    }
    Ok(())
}

/// Returns the flags of a mount that a remount must repeat. They cannot be removed.
fn held(path: &Path) -> io::Result<MsFlags> {
    let now = statvfs(path)?.flags();
    let flags = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    Ok(flags.into_iter().filter(|it| now.contains(it.0)).map(|it| it.1).collect())
}

/// Mounts the folders between an allowed folder and `path` on themselves. Otherwise a command could
/// move one and put another in that place.
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

fn hold(path: &Path) -> io::Result<File> {
    // Opens a symlink itself, not its target.
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn by_number(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests;
