//! Hiding single files in a folder that a command may otherwise use.
//!
//! Landlock allows a folder with all that is in it, or does not. What a command must not touch
//! there (Faber's own configuration and store) is covered by something that nobody may open, in a
//! view of the file system that only the command has. The programs that Faber runs stay as they
//! are there.
//!
//! A cover goes with the file that it lies on: where somebody outside puts another in that one's
//! place, the command sees it. So what may live on for days is refused instead. And what is not there
//! has no place for a cover: something is [put there](super::super::placeholders) before, or the command is
//! refused.

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

/// Folders for the covers, which exist for a moment and only in this process.
const WORKSHOPS: [&str; 6] = ["/tmp", "/run", "/var", "/dev", "/etc", "/usr"];

/// The mounts that protect Faber's own files from a command.
#[derive(Default)]
struct Work {
    /// Folders that it may write.
    write: Vec<PathBuf>,
    /// Folders that it may read or write.
    reach: Vec<PathBuf>,
    /// Files of Faber inside these folders, to be covered.
    hidden: Vec<PathBuf>,
    /// Paths to mount read-only.
    kept: Vec<PathBuf>,
    /// Symlinks that it could replace, by which Faber finds its own.
    links: Vec<PathBuf>,
    /// Names of Faber's own that nothing has, which it could take.
    free: Vec<PathBuf>,
}

impl Work {
    /// Begins with where a command may read and write, of which `named` is what somebody names.
    fn new(confinement: &Confinement, named: &[PathBuf]) -> Self {
        let reach = [named, real(SYSTEM).as_slice()].concat();
        Self { write: real(&confinement.write), reach, ..Self::default() }
    }

    /// Finds what of Faber's own the command could reach: by its path, behind symlinks, and by other
    /// names of the same file.
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

    /// Returns what paths lead to, as far as it is there.
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

    /// Leaves out what is done with something else.
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

    /// Returns something of Faber's own that the command could change, or read.
    fn first(&self) -> Option<&PathBuf> {
        self.hidden.iter().chain(&self.kept).chain(&self.links).next()
    }

    /// Returns whether nothing can be changed but where it may write.
    fn do_it(&self) -> io::Result<bool> {
        let is_whole = view::write_only(&self.write, &self.reach)?;
        cover(self)?;
        keep(self)?;
        keep_links(self)?;
        Ok(is_whole)
    }
}

/// Lets the command change files where it may write, and nowhere else; covers what of Faber's own it
/// could reach, and keeps the programs that it could change, and the symlinks to all of that, as they
/// are. Returns whether it has a view of its own in which that holds.
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
        Err(err) => match work.first().filter(|_| confinement.required) {
            Some(first) => {
                let why = format!("cannot be hidden on this machine ({err})");
                return Err(refused(first, &why, &named));
            }
            None => false,
        },
    };
    // It still stands in the folder as it was, where nothing is covered, and where nothing can be
    // written any more, however little of the view there is.
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

/// Leaves out what lies in another one of them.
fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
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
    // Held open: what covers is made in a folder that they may lie in.
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

/// Lets programs be read and run, and not be changed.
fn keep(work: &Work) -> io::Result<()> {
    for path in &work.kept {
        pin(path, &work.reach)?;
        bind(path, path, path)?;
        let only_read = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | held(path)?;
        mount(None::<&str>, path, None::<&str>, only_read, None::<&str>)?;
    }
    Ok(())
}

/// Lets symlinks be followed, and not be replaced: something is mounted there.
fn keep_links(work: &Work) -> io::Result<()> {
    for path in &work.links {
        pin(path, &work.reach)?;
        let held = hold(path)?;
        bind(&by_number(&held), &by_number(&held), path)?;
    }
    Ok(())
}

/// Returns what holds of a place already: it cannot be taken away, and must be said again.
fn held(path: &Path) -> io::Result<MsFlags> {
    let now = statvfs(path)?.flags();
    let flags = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    Ok(flags.into_iter().filter(|it| now.contains(it.0)).map(|it| it.1).collect())
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

fn hold(path: &Path) -> io::Result<File> {
    // The very thing, also where it is a symlink.
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn by_number(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[cfg(test)]
mod tests;
