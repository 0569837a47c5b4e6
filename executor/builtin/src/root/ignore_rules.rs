//! Ignore rules of `.gitignore`, `.ignore` and `.rgignore`, read below the root like other files.

use std::{fmt, io::Read, path::Path, sync::Arc};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

use super::{Root, os_path};

const MAX_RULES_BYTES: u64 = 1 << 20;
const GIT_FILES: [&str; 2] = [".git/info/exclude", ".gitignore"];
/// Files with rules for search tools. Their rules take precedence over rules of Git.
const SEARCH_FILES: [&str; 2] = [".ignore", ".rgignore"];

#[derive(Debug)]
pub(crate) struct IgnoreRules {
    search_rules: Gitignore,
    git_rules: Gitignore,
    /// `true` if the folder contains `.git`. The Git rules of its parent folders do not apply to
    /// it.
    is_repository: bool,
    parent: Option<Arc<Self>>,
}

impl IgnoreRules {
    pub(crate) fn rules_above(root: &Root, folder: &Path) -> Option<Arc<Self>> {
        let mut parent = None;
        let mut folders: Vec<_> = folder.ancestors().skip(1).collect();
        folders.reverse();
        for folder in folders {
            parent = Self::add_folder(root, folder, parent, |_| true);
        }
        parent
    }

    /// Adds the rules of a folder. `has` returns `true` for a name that the folder contains.
    pub(crate) fn add_folder(
        root: &Root,
        folder: &Path,
        parent: Option<Arc<Self>>,
        has: impl Fn(&str) -> bool,
    ) -> Option<Arc<Self>> {
        let exists = |name| has(name) && root.dir().metadata(os_path(&folder.join(name))).is_ok();
        let is_repository = exists(".git");
        let names = GIT_FILES.iter().chain(&SEARCH_FILES);
        if !is_repository && !names.into_iter().any(|name| has(name)) {
            return parent;
        }
        let search_rules = read_rules(root, folder, &SEARCH_FILES);
        let git_rules = read_rules(root, folder, &GIT_FILES);
        Some(Arc::new(Self { search_rules, git_rules, is_repository, parent }))
    }

    /// Applies the nearest matching rule for search tools, or else the nearest matching rule of
    /// Git. Returns `None` if no rule matches.
    pub(crate) fn find_verdict(&self, path: &Path, is_folder: bool) -> Option<Verdict> {
        let by_search_rules = self.iter_levels().find_map(|level| {
            match_rules(&level.search_rules, path, is_folder, ExclusionReason::Ignore)
        });
        by_search_rules.or_else(|| {
            let outer =
                self.iter_levels().position(|level| level.is_repository).unwrap_or(usize::MAX);
            let levels = self.iter_levels().take(outer.saturating_add(1));
            levels.into_iter().find_map(|level| {
                match_rules(&level.git_rules, path, is_folder, ExclusionReason::Gitignore)
            })
        })
    }

    fn iter_levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |level| level.parent.as_deref())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ExclusionReason {
    Gitignore,
    /// A rule of `.ignore` or `.rgignore` matches.
    Ignore,
    Hidden,
    Own,
}

impl fmt::Display for ExclusionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gitignore => "by .gitignore",
            Self::Ignore => "by .ignore",
            Self::Hidden => "hidden",
            Self::Own => "Faber's own",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Excluded(ExclusionReason),
    /// A rule includes the entry, even if its name is hidden.
    Included,
}

fn match_rules(
    rules: &Gitignore,
    path: &Path,
    is_folder: bool,
    reason: ExclusionReason,
) -> Option<Verdict> {
    match rules.matched(path, is_folder) {
        Match::None => None,
        Match::Ignore(_) => Some(Verdict::Excluded(reason)),
        Match::Whitelist(_) => Some(Verdict::Included),
    }
}

fn read_rules(root: &Root, folder: &Path, names: &[&str]) -> Gitignore {
    let mut builder = GitignoreBuilder::new(folder);
    for text in names.iter().filter_map(|name| read_text(root, &folder.join(name))) {
        for line in text.trim_start_matches('\u{feff}').lines() {
            let _ = builder.add_line(None, line);
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

fn read_text(root: &Root, path: &Path) -> Option<String> {
    let (file, _) = root.open_file(path).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_RULES_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
