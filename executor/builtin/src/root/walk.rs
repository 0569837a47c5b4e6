//! Walking the folders beneath a root, in the order of their names, without following symlinks.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::fs::{DirEntry, FileType, Metadata};
use shared::tool::ToolError;

use super::{
    Halt, Place, Root, Stop, failure,
    ignored::{Ignored, Reason, Verdict},
    work::{self, SEARCH_TIME},
};

/// Entries of folders that one walk looks at: its memory grows with them.
pub(crate) const ENTRIES: usize = 500_000;
/// How deep a walk goes: what nests deeper was not made by a person.
const DEPTH: usize = 200;

/// A walk.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    root: &'a Root,
    stop: &'a Stop,
    rules: Rules,
    /// Entries that it may still look at.
    left: usize,
    /// What is still to be passed, the next one last.
    ahead: Vec<Entry>,
    unreadable: usize,
    /// How many entries the rules left out, by reason.
    left_out: BTreeMap<Reason, usize>,
    /// How many files were not read to their end, and what the first is called.
    unfinished: (usize, String),
    cut: Option<Cut>,
    /// Where it begins, and as the caller calls that.
    start: (PathBuf, PathBuf),
}

/// What a walk passes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// The insides of `.git`.
    Git,
    /// The insides of `.git`, and what `.gitignore` and the like name.
    Ignored,
    /// What `.gitignore` and the like name, and hidden names.
    Hidden,
}

/// Something in a folder.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Where, relative to the root and without symlinks.
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    ignored: Option<Arc<Ignored>>,
}

/// What something in a folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A folder.
    Folder,
    /// A regular file.
    File,
    /// A symlink to whatever.
    Symlink,
    /// A FIFO, a socket or a device.
    Other,
}

/// Why an output is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The time was up.
    TimeUp,
    /// There were too many files and folders.
    Entries,
    /// There was more to show than this many of something.
    Full(usize, &'static str),
}

impl Cut {
    /// Says so, as the last line of an output.
    pub(crate) fn note(self) -> String {
        let why = match self {
            Self::TimeUp => format!("stopped after {} s", SEARCH_TIME.as_secs()),
            Self::Entries => format!("stopped after {ENTRIES} files and folders"),
            Self::Full(most, what) => format!("stopped at {most} {what}"),
        };
        format!("({why}: there may be more; narrow the pattern or the path)")
    }
}

impl<'a> Walk<'a> {
    /// Makes a walk that has nowhere to go yet.
    pub(crate) fn new(root: &'a Root, rules: Rules, stop: &'a Stop) -> Self {
        Self {
            root,
            stop,
            rules,
            left: ENTRIES,
            ahead: Vec::new(),
            unreadable: 0,
            left_out: BTreeMap::new(),
            unfinished: (0, String::new()),
            cut: None,
            start: (PathBuf::new(), PathBuf::new()),
        }
    }

    /// Lets the walk look at fewer entries.
    #[cfg(test)]
    pub(crate) fn within(self, left: usize) -> Self {
        Self { left, ..self }
    }

    /// Begins with a folder or a file, whatever the rules say about itself. Behind symlinks it is
    /// walked where it really is, so that what is hidden there is.
    pub(crate) fn begin(&mut self, path: &Path, kind: Kind) -> Result<Entry, ToolError> {
        let given = path.to_owned();
        let real = self.root.settled(path);
        let path = real.map_err(|err| failure("look at", &given.to_string_lossy(), &err))?;
        let ignored = match self.rules {
            Rules::Git => None,
            Rules::Ignored | Rules::Hidden => Ignored::above(self.root, &path),
        };
        self.start = (path.clone(), given);
        let entry = Entry { path, kind, ignored };
        self.ahead.push(entry.clone());
        Ok(entry)
    }

    /// Returns a path of an entry as the caller calls it.
    pub(crate) fn called<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
        let (real, given) = &self.start;
        match path.strip_prefix(real) {
            Ok(rest) if real != given && rest.as_os_str().is_empty() => given.clone().into(),
            Ok(rest) if real != given => given.join(rest).into(),
            _ => path.into(),
        }
    }

    /// Adds what a caller named: a folder, or a regular file.
    pub(crate) fn begin_at(&mut self, place: &Place) -> Result<(), ToolError> {
        let is_folder = place.meta.as_ref().is_some_and(Metadata::is_dir);
        if !is_folder {
            place.file()?;
        }
        self.begin(&place.path, if is_folder { Kind::Folder } else { Kind::File })?;
        Ok(())
    }

    /// Returns the next thing that is no folder.
    pub(crate) fn next(&mut self) -> Result<Option<Entry>, ToolError> {
        while let Some(entry) = self.ahead.pop() {
            if self.is_over()? {
                return Ok(None);
            }
            if entry.kind != Kind::Folder {
                return Ok(Some(entry));
            }
            let mut entries = self.list(&entry)?;
            entries.reverse();
            self.ahead.append(&mut entries);
        }
        Ok(None)
    }

    /// Reads a folder, and counts the entries that the rules leave out.
    pub(crate) fn list(&mut self, folder: &Entry) -> Result<Vec<Entry>, ToolError> {
        let read = match folder.path.components().count() {
            depth if depth > DEPTH => Err(io::Error::other("it is too deep")),
            _ => self.names(&folder.path),
        };
        let Ok(names) = read else {
            self.unreadable += 1;
            return Ok(Vec::new());
        };
        self.is_over()?;
        let ignored = self.ignored(folder, &names);
        let mut entries = Vec::new();
        for (name, kind) in names.into_iter().filter(|(name, _)| name != ".git") {
            let path = folder.path.join(&name);
            match self.find_reason(&name, &path, kind, ignored.as_deref()) {
                Some(reason) => *self.left_out.entry(reason).or_default() += 1,
                None => entries.push(Entry { path, kind, ignored: ignored.clone() }),
            }
        }
        Ok(entries)
    }

    /// Returns how many entries were left out and why, such as `left out: 2 Faber's own`.
    pub(crate) fn describe_left_out(&self) -> Option<String> {
        let counts = self.left_out.iter().map(|(reason, count)| format!("{count} {reason}"));
        let counts: Vec<_> = counts.collect();
        (!counts.is_empty()).then(|| format!("left out: {}", counts.join(", ")))
    }

    /// Says why the output is not whole, with what the caller knows about it.
    pub(crate) fn notes(&self, cut: Option<Cut>) -> Vec<String> {
        let mut notes: Vec<_> = cut.or(self.cut).map(Cut::note).into_iter().collect();
        if self.unreadable > 0 {
            notes.push(format!("({} file(s) or folder(s) could not be read)", self.unreadable));
        }
        let (count, first) = &self.unfinished;
        if *count > 0 {
            notes.push(format!(
                "({count} file(s) have a line that is too long to search and were searched up \
                 to it, such as {first}: use `bash`, where that is switched on)"
            ));
        }
        notes
    }

    /// Counts a file with a line that is too long to be read.
    pub(crate) fn pass_over_rest(&mut self, shown: &str) {
        if self.unfinished.0 == 0 {
            shown.clone_into(&mut self.unfinished.1);
        }
        self.unfinished.0 += 1;
    }

    /// Counts something that could not be read.
    pub(crate) fn pass_over(&mut self) {
        self.unreadable += 1;
    }

    /// Returns whether the walk has to end, which it then remembers.
    pub(crate) fn is_over(&mut self) -> Result<bool, ToolError> {
        match self.stop.halt() {
            None => Ok(false),
            Some(Halt::Cancelled) => Err(work::cancelled()),
            Some(Halt::TimeUp) => {
                self.cut = Some(Cut::TimeUp);
                Ok(true)
            }
        }
    }

    /// Reads the names in a folder, as many as the walk may still look at, in order.
    fn names(&mut self, folder: &Path) -> io::Result<Vec<(OsString, Kind)>> {
        let mut names = Vec::new();
        for entry in self.root.open_folder(folder)?.entries()? {
            let entry = entry?;
            if self.left == 0 {
                self.cut = Some(Cut::Entries);
                break;
            }
            if self.stop.halt().is_some() {
                break;
            }
            self.left -= 1;
            names.push((entry.file_name(), kind(&entry)));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Returns the rules for what is in a folder.
    fn ignored(&self, folder: &Entry, names: &[(OsString, Kind)]) -> Option<Arc<Ignored>> {
        if self.rules == Rules::Git {
            return None;
        }
        let has = |name: &str| {
            let first = name.split('/').next().unwrap_or(name);
            names.binary_search_by(|(it, _)| it.as_os_str().cmp(first.as_ref())).is_ok()
        };
        Ignored::beneath(self.root, &folder.path, folder.ignored.clone(), has)
    }

    /// Returns why an entry is left out, or `None` if the walk keeps it.
    fn find_reason(
        &self,
        name: &OsStr,
        path: &Path,
        kind: Kind,
        ignored: Option<&Ignored>,
    ) -> Option<Reason> {
        if self.root.hidden().covers(path) {
            return Some(Reason::Own);
        }
        match ignored.and_then(|rules| rules.verdict(path, kind == Kind::Folder)) {
            Some(Verdict::Out(reason)) => Some(reason),
            Some(Verdict::Kept) => None,
            None => {
                let is_hidden = name.as_encoded_bytes().starts_with(b".");
                (self.rules == Rules::Hidden && is_hidden).then_some(Reason::Hidden)
            }
        }
    }
}

/// Some file systems do not tell with the name what it is.
fn kind(entry: &DirEntry) -> Kind {
    let told = entry.file_type().map_or(Kind::Other, kind_of);
    if told != Kind::Other {
        return told;
    }
    entry.metadata().map_or(Kind::Other, |meta| kind_of(meta.file_type()))
}

fn kind_of(kind: FileType) -> Kind {
    if kind.is_dir() {
        Kind::Folder
    } else if kind.is_file() {
        Kind::File
    } else if kind.is_symlink() {
        Kind::Symlink
    } else {
        Kind::Other
    }
}
