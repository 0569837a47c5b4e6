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
    Root, RootPath, StopReason, StopSignal,
    call_queue::{self, SEARCH_TIMEOUT},
    ignore_rules::{ExclusionReason, IgnoreRules, Verdict},
    io_failure,
};

/// Maximum number of entries of one walk. It limits the memory, which grows with the entries.
pub(crate) const MAX_ENTRIES: usize = 500_000;
const MAX_DEPTH: usize = 200;

#[derive(Debug)]
pub(crate) struct Walk<'a> {
    pub(crate) root: &'a Root,
    pub(crate) stop: &'a StopSignal,
    rules: WalkRules,
    entries_left: usize,
    /// Stack of the entries to visit. The last entry is visited next.
    pending: Vec<Entry>,
    unreadable_count: usize,
    left_out: BTreeMap<ExclusionReason, usize>,
    /// Number of files that were searched only in part, and the name of the first such file.
    partly_searched: (usize, String),
    cut_reason: Option<CutReason>,
    /// The canonical start, and the start in the form that the caller gave.
    start: (PathBuf, PathBuf),
}

/// The entries that a walk leaves out besides `.git` and Faber's own files, which each walk leaves
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkRules {
    /// Nothing else.
    Git,
    /// Entries that match ignore rules.
    Ignored,
    /// Entries that match ignore rules, and entries with hidden names.
    Hidden,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Relative to the root, without symlinks.
    pub(crate) path: PathBuf,
    pub(crate) kind: EntryKind,
    ignored: Option<Arc<IgnoreRules>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EntryKind {
    Folder,
    File,
    Symlink,
    /// A FIFO, a socket or a device.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutReason {
    TimeUp,
    TooManyEntries,
    /// The output reached its limit of lines, files or definitions.
    Full(usize, &'static str),
}

impl CutReason {
    pub(crate) fn describe(self) -> String {
        let reason = match self {
            Self::TimeUp => format!("stopped after {} s", SEARCH_TIMEOUT.as_secs()),
            Self::TooManyEntries => format!("stopped after {MAX_ENTRIES} files and folders"),
            Self::Full(maximum, noun) => format!("stopped at {maximum} {noun}"),
        };
        format!("({reason}: there may be more; narrow the pattern or the path)")
    }
}

impl<'a> Walk<'a> {
    pub(crate) fn new(root: &'a Root, rules: WalkRules, stop: &'a StopSignal) -> Self {
        Self {
            root,
            stop,
            rules,
            entries_left: MAX_ENTRIES,
            pending: Vec::new(),
            unreadable_count: 0,
            left_out: BTreeMap::new(),
            partly_searched: (0, String::new()),
            cut_reason: None,
            start: (PathBuf::new(), PathBuf::new()),
        }
    }

    #[cfg(test)]
    pub(crate) fn with_limit(self, entries_left: usize) -> Self {
        Self { entries_left, ..self }
    }

    /// Sets the start, to which rules do not apply. The walk uses its canonical path, so that it
    /// finds protected files even through symlinks.
    pub(crate) fn set_start(&mut self, path: &Path, kind: EntryKind) -> Result<Entry, ToolError> {
        let caller_path = path.to_owned();
        let real = self.root.canonical_path(path);
        let path =
            real.map_err(|err| io_failure("look at", &caller_path.to_string_lossy(), &err))?;
        let ignored = match self.rules {
            WalkRules::Git => None,
            WalkRules::Ignored | WalkRules::Hidden => IgnoreRules::rules_above(self.root, &path),
        };
        self.start = (path.clone(), caller_path);
        let entry = Entry { path, kind, ignored };
        self.pending.push(entry.clone());
        Ok(entry)
    }

    /// Returns the path of an entry. The path begins with the start in the form that the caller
    /// gave.
    pub(crate) fn to_caller_path<'p>(&self, path: &'p Path) -> Cow<'p, Path> {
        let (real, caller_path) = &self.start;
        match path.strip_prefix(real) {
            Ok(rest) if real != caller_path && rest.as_os_str().is_empty() => {
                caller_path.clone().into()
            }
            Ok(rest) if real != caller_path => caller_path.join(rest).into(),
            _ => path.into(),
        }
    }

    pub(crate) fn start_at(&mut self, target_path: &RootPath) -> Result<(), ToolError> {
        let is_folder = target_path.meta.as_ref().is_some_and(Metadata::is_dir);
        if !is_folder {
            target_path.regular_file()?;
        }
        self.set_start(
            &target_path.path,
            if is_folder { EntryKind::Folder } else { EntryKind::File },
        )?;
        Ok(())
    }

    pub(crate) fn next(&mut self) -> Result<Option<Entry>, ToolError> {
        while let Some(entry) = self.pending.pop() {
            if self.should_stop()? {
                return Ok(None);
            }
            if entry.kind != EntryKind::Folder {
                return Ok(Some(entry));
            }
            let mut entries = self.list_folder(&entry)?;
            entries.reverse();
            self.pending.append(&mut entries);
        }
        Ok(None)
    }

    /// Lists a folder, and counts the entries that the rules leave out.
    pub(crate) fn list_folder(&mut self, folder: &Entry) -> Result<Vec<Entry>, ToolError> {
        let read = match folder.path.components().count() {
            depth if depth > MAX_DEPTH => Err(io::Error::other("it is too deep")),
            _ => self.read_names(&folder.path),
        };
        let Ok(names) = read else {
            self.unreadable_count += 1;
            return Ok(Vec::new());
        };
        self.should_stop()?;
        let ignored = self.ignore_rules_in(folder, &names);
        let mut entries = Vec::new();
        for (name, kind) in names.into_iter().filter(|(name, _)| name != ".git") {
            let path = folder.path.join(&name);
            match self.find_exclusion_reason(&name, &path, kind, ignored.as_deref()) {
                Some(reason) => *self.left_out.entry(reason).or_default() += 1,
                None => entries.push(Entry { path, kind, ignored: ignored.clone() }),
            }
        }
        Ok(entries)
    }

    /// Returns the number of left out entries by reason, such as `left out: 2 Faber's own`.
    pub(crate) fn describe_left_out(&self) -> Option<String> {
        let counts = self.left_out.iter().map(|(reason, count)| format!("{count} {reason}"));
        let counts: Vec<_> = counts.collect();
        (!counts.is_empty()).then(|| format!("left out: {}", counts.join(", ")))
    }

    /// Returns notes about an incomplete output. `cut` is the reason why the caller ended the
    /// output early.
    pub(crate) fn closing_notes(&self, cut: Option<CutReason>) -> Vec<String> {
        let mut notes: Vec<_> =
            cut.or(self.cut_reason).map(CutReason::describe).into_iter().collect();
        if self.unreadable_count > 0 {
            notes.push(format!(
                "({} file(s) or folder(s) could not be read)",
                self.unreadable_count
            ));
        }
        let (count, first) = &self.partly_searched;
        if *count > 0 {
            notes.push(format!(
                "({count} file(s), such as {first}, have a line that is too long, and only the \
                 lines before it were searched: use `bash` if it is active)"
            ));
        }
        notes
    }

    pub(crate) fn count_unfinished(&mut self, path: &str) {
        if self.partly_searched.0 == 0 {
            path.clone_into(&mut self.partly_searched.1);
        }
        self.partly_searched.0 += 1;
    }

    pub(crate) fn count_unreadable(&mut self) {
        self.unreadable_count += 1;
    }

    /// Returns whether the walk must end because of the time limit. Fails if the call was
    /// cancelled.
    pub(crate) fn should_stop(&mut self) -> Result<bool, ToolError> {
        match self.stop.stop_reason() {
            None => Ok(false),
            Some(StopReason::Cancelled) => Err(call_queue::cancelled_error()),
            Some(StopReason::TimeUp) => {
                self.cut_reason = Some(CutReason::TimeUp);
                Ok(true)
            }
        }
    }

    fn read_names(&mut self, folder: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        let mut names = Vec::new();
        for entry in self.root.open_folder(folder)?.entries()? {
            let entry = entry?;
            if self.entries_left == 0 {
                self.cut_reason = Some(CutReason::TooManyEntries);
                break;
            }
            if self.stop.stop_reason().is_some() {
                break;
            }
            self.entries_left -= 1;
            names.push((entry.file_name(), entry_kind(&entry)));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn ignore_rules_in(
        &self,
        folder: &Entry,
        names: &[(OsString, EntryKind)],
    ) -> Option<Arc<IgnoreRules>> {
        if self.rules == WalkRules::Git {
            return None;
        }
        let has = |name: &str| {
            let first = name.split('/').next().unwrap_or(name);
            names.binary_search_by(|(known, _)| known.as_os_str().cmp(first.as_ref())).is_ok()
        };
        IgnoreRules::add_folder(self.root, &folder.path, folder.ignored.clone(), has)
    }

    /// Returns the reason to leave an entry out, or `None` to keep it.
    fn find_exclusion_reason(
        &self,
        name: &OsStr,
        path: &Path,
        kind: EntryKind,
        ignored: Option<&IgnoreRules>,
    ) -> Option<ExclusionReason> {
        if self.root.protected_files().is_protected_path(path) {
            return Some(ExclusionReason::Own);
        }
        match ignored.and_then(|rules| rules.find_verdict(path, kind == EntryKind::Folder)) {
            Some(Verdict::Excluded(reason)) => Some(reason),
            Some(Verdict::Included) => None,
            None => {
                let is_hidden = name.as_encoded_bytes().starts_with(b".");
                (self.rules == WalkRules::Hidden && is_hidden).then_some(ExclusionReason::Hidden)
            }
        }
    }
}

/// Asks for the metadata if the file system does not report the type together with the name.
fn entry_kind(entry: &DirEntry) -> EntryKind {
    let kind = entry.file_type().map_or(EntryKind::Other, kind_from_type);
    if kind != EntryKind::Other {
        return kind;
    }
    entry.metadata().map_or(EntryKind::Other, |meta| kind_from_type(meta.file_type()))
}

fn kind_from_type(kind: FileType) -> EntryKind {
    if kind.is_dir() {
        EntryKind::Folder
    } else if kind.is_file() {
        EntryKind::File
    } else if kind.is_symlink() {
        EntryKind::Symlink
    } else {
        EntryKind::Other
    }
}
